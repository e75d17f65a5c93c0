//! Reports as the Test Anything Protocol, version 14, which `prove` and many others read.
//!
//! Pure. One line for each case; what there is to say about a failure follows as a block of YAML. <https://testanything.org>

use serde_json::json;

use super::{Case, Cases, Status};
use crate::yaml;

pub(super) fn write(cases: &Cases) -> String {
    let mut text = format!("TAP version 14\n1..{}\n", cases.cases.len());
    if cases.cases.is_empty() {
        // A plan without tests must say so.
        text = "TAP version 14\n1..0 # SKIP there is no case\n".to_owned();
    }
    for (index, case) in cases.cases.iter().enumerate() {
        let verdict = if case.status.is_bad() { "not ok" } else { "ok" };
        let name = line(&format!("{}: {}", case.judge, case.name));
        text.push_str(&format!("{verdict} {} - {name}", index + 1));
        if case.status == Status::Skipped {
            text.push_str(&format!(" # SKIP {}", line(&case.message)));
        }
        text.push('\n');
        if case.status.is_bad() || !case.warnings.is_empty() {
            push_block(&mut text, case);
        }
    }
    text
}

fn push_block(text: &mut String, case: &Case) {
    let told = json!({
        "message": case.message,
        "severity": if case.status.is_bad() { case.status.word() } else { "warning" },
        "at": {"file": case.file, "line": case.line},
        "details": case.details,
        "warnings": case.warnings,
    });
    // It was JSON a moment ago, so that this cannot fail.
    let block = yaml::emit(told.to_string().as_bytes()).unwrap_or_default();
    text.push_str("  ---\n");
    for line in block.lines() {
        text.push_str("  ");
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("  ...\n");
}

/// One line, in which neither a number sign nor a backslash means anything.
fn line(content: &str) -> String {
    content
        .replace(char::is_control, " ")
        .replace('\\', "\\\\")
        .replace('#', "\\#")
}
