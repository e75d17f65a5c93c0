//! The report for people: one row for each finding, aligned, the place first so that terminals and editors can jump to it.
//!
//! Pure. Plain allowances of one object share a row. Control characters in what hooks and manifests say are shown as `?`, so that no
//! message can draw on the terminal.

use std::fmt::Write as _;

use super::diff::{self, Sign};
use super::outcome::{Finding, Report, Verdict};

/// How it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) is_coloured: bool,
    /// Output of hooks that did not fail, too.
    pub(super) is_verbose: bool,
}

const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// The first four columns of a row, what follows them, and lines below.
struct Row {
    place: String,
    object: String,
    verdict: &'static str,
    judge: String,
    message: String,
    below: Vec<(&'static str, String)>,
}

pub(super) fn write(report: &Report, style: Style) -> String {
    let rows = rows(&report.findings, style);
    let width = |cell: fn(&Row) -> &str| {
        let widths = rows.iter().map(|row| cell(row).chars().count());
        widths.max().unwrap_or_default()
    };
    let (place, object) = (width(|row| &row.place), width(|row| &row.object));
    let (verdict, judge) = (width(|row| row.verdict), width(|row| &row.judge));
    let mut text = String::new();
    for row in &rows {
        let colour = match row.verdict {
            "allowed" => GREEN,
            "not matched" => DIM,
            "unjudged" => YELLOW,
            _ => RED,
        };
        let mut line = format!("{:<place$}  {:<object$}  ", row.place, row.object);
        line.push_str(&painted(
            style,
            colour,
            &format!("{:<verdict$}", row.verdict),
        ));
        let _ = write!(line, "  {:<judge$}  {}", row.judge, row.message);
        text.push_str(line.trim_end());
        text.push('\n');
        for (colour, below) in &row.below {
            let _ = writeln!(text, "    {}", painted(style, colour, below));
        }
    }
    if !report.notes.is_empty() {
        text.push('\n');
    }
    for note in &report.notes {
        let _ = writeln!(text, "{} {}", painted(style, YELLOW, "note:"), plain(note));
    }
    let _ = write!(text, "\n{}\n", summary(report));
    text
}

fn rows(findings: &[Finding], style: Style) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut shared: Option<(&Finding, usize)> = None;
    for finding in findings {
        let is_plain = finding.verdict == Verdict::Allowed
            && finding.warnings.is_empty()
            && finding.patched.is_none()
            && !style.is_verbose;
        // Places of denials may be those of fields, so that the document tells whether it is the same object.
        let is_same = |other: &Finding| {
            other.object == finding.object
                && other.place.file == finding.place.file
                && other.place.document == finding.place.document
                && other.place.line == finding.place.line
        };
        match (&mut shared, rows.last_mut()) {
            (Some((first, count)), Some(row)) if is_plain && is_same(first) => {
                *count += 1;
                row.judge = format!("{count} webhooks");
            }
            _ => {
                rows.push(row(finding, style));
                shared = is_plain.then_some((finding, 1));
            }
        }
    }
    rows
}

fn row(finding: &Finding, style: Style) -> Row {
    let mut below = Vec::new();
    if let Some(source) = &finding.place.source
        && !matches!(finding.verdict, Verdict::Allowed | Verdict::NotMatched)
    {
        below.push((DIM, format!("from {}", plain(source))));
    }
    for warning in &finding.warnings {
        below.push((YELLOW, format!("warning: {}", plain(warning))));
    }
    if let Some(patched) = &finding.patched {
        for change in diff::changes(&patched.before, &patched.after) {
            let colour = match change.sign {
                Sign::Added => GREEN,
                Sign::Removed => RED,
            };
            below.push((
                colour,
                format!("{} {}", change.sign.letter(), plain(&change.text)),
            ));
        }
    }
    if let (true, Some(hook)) = (style.is_verbose, &finding.hook) {
        let took = finding.elapsed.as_millis();
        below.push((DIM, format!("| {} took {took} ms", plain(hook))));
    }
    if style.is_verbose || is_failure(finding) {
        for line in &finding.output {
            below.push((DIM, format!("| {}", plain(line))));
        }
    }
    let mut object = plain(&finding.object.to_string());
    if !finding.subresource.is_empty() {
        let _ = write!(object, " ({})", plain(&finding.subresource));
    }
    Row {
        place: plain(&finding.place.to_string()),
        object: format!("{} {object}", finding.operation.as_str()),
        verdict: if finding.patched.is_some() && finding.verdict == Verdict::Allowed {
            "changed"
        } else {
            finding.verdict.word()
        },
        judge: plain(finding.webhook.as_deref().unwrap_or_default()),
        message: plain(short(finding)),
        below,
    }
}

/// The message without the words that the row says already.
fn short(finding: &Finding) -> &str {
    let message = finding.verdict.message();
    let webhook = finding.webhook.as_deref().unwrap_or_default();
    let known = format!("admission webhook \"{webhook}\" denied the request");
    match message.strip_prefix(&known) {
        Some(rest) => rest.strip_prefix(": ").unwrap_or(rest).trim_start(),
        None => message,
    }
}

/// A hook that failed is denied with a code of ours; then everybody wants to know what it printed.
fn is_failure(finding: &Finding) -> bool {
    match &finding.verdict {
        Verdict::Denied { code, .. } => *code >= 500,
        Verdict::Error { .. } => true,
        _ => false,
    }
}

fn summary(report: &Report) -> String {
    let count =
        |is: &dyn Fn(&Finding) -> bool| report.findings.iter().filter(|one| is(one)).count();
    let mut objects: Vec<(&str, usize, u64, String)> = report
        .findings
        .iter()
        .map(|finding| {
            let place = &finding.place;
            (&*place.file, place.document, 0, finding.object.to_string())
        })
        .collect();
    objects.dedup();
    let (denied, unjudged) = (
        count(&|one| matches!(one.verdict, Verdict::Denied { .. })),
        count(&|one| matches!(one.verdict, Verdict::Unjudged { .. })),
    );
    let changed = count(&|one| one.patched.is_some());
    let errors = count(&|one| matches!(one.verdict, Verdict::Error { .. }));
    let warnings = report.findings.iter().map(|one| one.warnings.len()).sum();
    let mut parts = Vec::new();
    for (number, words) in [
        (denied, format!("{denied} denied")),
        (changed, format!("{changed} changed")),
        (unjudged, format!("{unjudged} unjudged")),
        (errors, several(errors, "error")),
        (warnings, several(warnings, "warning")),
    ] {
        if number > 0 {
            parts.push(words);
        }
    }
    if parts.is_empty() {
        parts.push("all allowed".to_owned());
    }
    let asked = count(&|one| one.webhook.is_some());
    format!(
        "{}, {}: {} ({:.1} s)",
        several(objects.len(), "object"),
        several(asked, "answer"),
        parts.join(", "),
        report.elapsed.as_secs_f64()
    )
}

fn several(number: usize, word: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {word}{ending}")
}

fn painted(style: Style, colour: &str, text: &str) -> String {
    if style.is_coloured {
        format!("{colour}{text}{RESET}")
    } else {
        text.to_owned()
    }
}

/// One line, and nothing that a terminal would obey.
fn plain(text: &str) -> String {
    let shown = |letter: char| match letter {
        '\n' | '\t' => ' ',
        letter if letter.is_control() => '?',
        letter => letter,
    };
    text.trim_end().chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::json;

    use super::super::outcome::{ObjectName, Operation, Patched, Place};
    use super::*;

    fn finding(webhook: &str, verdict: Verdict) -> Finding {
        Finding {
            place: Place {
                file: "a.yaml".to_owned(),
                line: 3,
                document: 1,
                source: None,
            },
            object: ObjectName {
                kind: "Pod".to_owned(),
                name: "web".to_owned(),
                ..ObjectName::default()
            },
            operation: Operation::Create,
            subresource: String::new(),
            hook: Some("hook.sh".to_owned()),
            webhook: Some(webhook.to_owned()),
            verdict,
            warnings: Vec::new(),
            patched: None,
            output: vec!["seen".to_owned()],
            elapsed: Duration::from_millis(7),
        }
    }

    fn written(findings: Vec<Finding>, style: Style) -> String {
        let report = Report {
            findings,
            notes: vec!["labels are not known".to_owned()],
            started: SystemTime::UNIX_EPOCH,
            elapsed: Duration::from_millis(40),
        };
        write(&report, style)
    }

    #[test]
    fn rows_are_aligned_and_plain_allowances_share_one() {
        let denied = Verdict::Denied {
            message: "admission webhook \"b.c\" denied the request: no\n\u{1b}[31mway".to_owned(),
            code: 403,
        };
        let mut changed = finding("d", Verdict::Allowed);
        changed.patched = Some(Box::new(Patched {
            before: json!({}),
            after: json!({"a": 1}),
        }));
        changed.warnings.push("old".to_owned());
        let findings = vec![
            finding("a", Verdict::Allowed),
            finding("b", Verdict::Allowed),
            finding("b.c", denied),
            changed,
        ];
        assert_eq!(
            written(findings, Style::default()),
            "a.yaml:3  CREATE Pod web  allowed  2 webhooks\n\
             a.yaml:3  CREATE Pod web  denied   b.c         no ?[31mway\n\
             a.yaml:3  CREATE Pod web  changed  d\n    warning: old\n    + a: 1\n\
             \nnote: labels are not known\n\
             \n1 object, 4 answers: 1 denied, 1 changed, 1 warning (0.0 s)\n"
        );
    }

    #[test]
    fn a_failure_shows_what_the_hook_printed_and_verbose_shows_all() {
        let failed = || {
            finding(
                "a",
                Verdict::Denied {
                    message: "admission webhook \"a\" denied the request without explanation"
                        .to_owned(),
                    code: 500,
                },
            )
        };
        let text = written(vec![failed()], Style::default());
        assert!(
            text.starts_with(
                "a.yaml:3  CREATE Pod web  denied  a  without explanation\n    | seen\n"
            ),
            "{text}"
        );
        let verbose = Style {
            is_coloured: true,
            is_verbose: true,
        };
        let text = written(vec![finding("a", Verdict::Allowed)], verbose);
        assert!(text.contains("\u{1b}[32mallowed\u{1b}[0m  a\n    \u{1b}[2m| hook.sh took 7 ms\u{1b}[0m\n    \u{1b}[2m| seen\u{1b}[0m\n"), "{text}");
    }
}
