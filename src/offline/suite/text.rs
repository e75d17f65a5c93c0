//! The report of `test` for people: hook by hook, a line for each case, and for what failed what was expected, what came and what the
//! hook printed.
//!
//! Pure. Signs and colours only on a terminal, plain letters elsewhere. Names and messages may hold anything, so control characters
//! are made visible.

use std::fmt::Write as _;

use super::super::report::{Case, Cases, Status};

/// How the report looks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    pub(super) is_terminal: bool,
    pub(super) has_colour: bool,
}

pub(super) fn write(cases: &Cases, style: Style) -> String {
    let mut text = String::new();
    for (suite, members) in cases.suites() {
        let file = members.first().map_or("", |case| case.file.as_str());
        let _ = writeln!(text, "{}  {}", bold(&visible(suite), style), visible(file));
        for case in members {
            write_case(&mut text, case, style);
        }
        text.push('\n');
    }
    text.push_str(&summary(cases, style));
    text
}

fn write_case(text: &mut String, case: &Case, style: Style) {
    let time = format!("({} ms)", case.elapsed.as_millis());
    let name = visible(&case.name);
    let sign = sign(case.status, style);
    match case.status {
        Status::Passed => {
            let _ = writeln!(text, "  {sign} {name} {time}");
        }
        Status::Skipped => {
            let _ = writeln!(text, "  {sign} {name}: skipped: {}", visible(&case.message));
        }
        Status::Failed | Status::Error => {
            let _ = writeln!(text, "  {sign} {name} {time}");
            let _ = writeln!(text, "      {}:{}", visible(&case.file), case.line);
            let told = if case.details.is_empty() {
                &case.message
            } else {
                &case.details
            };
            for line in told.lines() {
                let _ = writeln!(text, "      {}", visible(line));
            }
        }
    }
}

fn sign(status: Status, style: Style) -> String {
    let (on_terminal, elsewhere, colour) = match status {
        Status::Passed => ("✓", "ok  ", "32"),
        Status::Failed | Status::Error => ("✗", "FAIL", "31"),
        Status::Skipped => ("-", "skip", "33"),
    };
    let word = if style.is_terminal {
        on_terminal
    } else {
        elsewhere
    };
    paint(word, colour, style)
}

fn summary(cases: &Cases, style: Style) -> String {
    let failed = cases.count(Status::Failed);
    let errors = cases.count(Status::Error);
    let mut parts = vec![format!("{} passed", cases.count(Status::Passed))];
    let colour = if failed + errors > 0 { "31" } else { "32" };
    parts.push(format!("{failed} failed"));
    if errors > 0 {
        parts.push(format!("{errors} could not run"));
    }
    parts.push(format!("{} skipped", cases.count(Status::Skipped)));
    let seconds = cases.elapsed.as_secs_f64();
    format!(
        "{} in {seconds:.2} s\n",
        paint(&parts.join(", "), colour, style)
    )
}

fn bold(text: &str, style: Style) -> String {
    paint(text, "1", style)
}

fn paint(text: &str, colour: &str, style: Style) -> String {
    if style.has_colour {
        format!("\x1b[{colour}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// Control characters as Rust writes them, so that nothing a hook prints moves the cursor.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && letter != '\t' {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}
