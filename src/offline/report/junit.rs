//! Reports as JUnit's XML, in the part of it that Jenkins, GitLab and GitHub's readers have in common.
//!
//! Pure. There is no standard but the schema that Jenkins publishes; only what that allows is written, so a case's file and line stand
//! in the text of its failure. XML 1.0 cannot hold most control characters in any spelling; they become the replacement character.

use std::fmt::Write as _;

use super::{Case, Cases, Status, count, moment, seconds};

pub(super) fn write(cases: &Cases) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let totals = totals(&cases.cases.iter().collect::<Vec<_>>());
    let _ = writeln!(
        xml,
        "<testsuites name=\"{}\" {totals} time=\"{}\">",
        attribute(cases.title),
        seconds(cases.elapsed)
    );
    for (suite, members) in cases.suites() {
        write_suite(&mut xml, suite, &members, &moment(cases.started));
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn write_suite(xml: &mut String, suite: &str, cases: &[&Case], started: &str) {
    let elapsed = cases.iter().map(|case| case.elapsed).sum();
    let file = cases.first().map_or("", |case| case.file.as_str());
    let _ = writeln!(
        xml,
        "  <testsuite name=\"{}\" {} skipped=\"{}\" time=\"{}\" timestamp=\"{started}\" file=\"{}\">",
        attribute(suite),
        totals(cases),
        count(cases.iter().copied(), Status::Skipped),
        seconds(elapsed),
        attribute(file),
    );
    for case in cases {
        write_case(xml, case);
    }
    xml.push_str("  </testsuite>\n");
}

fn totals(cases: &[&Case]) -> String {
    format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\"",
        cases.len(),
        count(cases.iter().copied(), Status::Failed),
        count(cases.iter().copied(), Status::Error),
    )
}

fn write_case(xml: &mut String, case: &Case) {
    let _ = write!(
        xml,
        "    <testcase name=\"{}\" classname=\"{}\" time=\"{}\"",
        attribute(&case.name),
        attribute(&case.judge),
        seconds(case.elapsed)
    );
    let element = match case.status {
        Status::Passed => None,
        Status::Failed => Some("failure"),
        Status::Error => Some("error"),
        Status::Skipped => Some("skipped"),
    };
    if element.is_none() && case.warnings.is_empty() {
        xml.push_str("/>\n");
        return;
    }
    xml.push_str(">\n");
    let message = attribute(&case.message);
    match element {
        Some("skipped") => {
            let _ = writeln!(xml, "      <skipped message=\"{message}\"/>");
        }
        Some(element) => {
            let mut body = format!("{}:{}: {}", case.file, case.line, case.message);
            if !case.details.is_empty() {
                body.push('\n');
                body.push_str(&case.details);
            }
            let _ = writeln!(
                xml,
                "      <{element} type=\"{element}\" message=\"{message}\">{}</{element}>",
                text(&body)
            );
        }
        None => {}
    }
    if !case.warnings.is_empty() {
        let warnings = case.warnings.join("\n");
        let _ = writeln!(xml, "      <system-out>{}</system-out>", text(&warnings));
    }
    xml.push_str("    </testcase>\n");
}

/// Text between tags.
fn text(content: &str) -> String {
    let mut escaped = String::with_capacity(content.len());
    for letter in content.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            // A reader would take it for the end of a line.
            '\r' => escaped.push_str("&#13;"),
            '\n' | '\t' => escaped.push(letter),
            _ if is_forbidden(letter) => escaped.push('\u{fffd}'),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// Text between double quotes, where a reader would turn line ends and tabs into spaces.
fn attribute(content: &str) -> String {
    text(content)
        .replace('"', "&quot;")
        .replace('\n', "&#10;")
        .replace('\t', "&#9;")
}

/// What XML 1.0 calls no character at all. <https://www.w3.org/TR/xml/#charsets>
fn is_forbidden(letter: char) -> bool {
    matches!(letter, '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}
