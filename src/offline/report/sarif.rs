//! Reports as SARIF 2.1.0, which code hosts show beside the line that a finding is about.
//!
//! Pure. A rule for every judge, a result for every failure and every warning; what passed is no result, because code hosts would show
//! it as an alert. What was skipped is a note about the run. Files are named relative to the root of the sources, as they were given.
//! <https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html>

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::json::pretty;
use super::{Case, Cases, Status, moment};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// The name that code hosts resolve to the checked-out sources.
const ROOT: &str = "%SRCROOT%";

pub(super) fn write(cases: &Cases) -> String {
    let mut rules: Vec<&str> = Vec::new();
    let mut results = Vec::new();
    let reported = cases
        .cases
        .iter()
        .filter(|case| case.status.is_bad() || !case.warnings.is_empty());
    for case in reported {
        let known = rules.iter().position(|rule| *rule == case.judge);
        let index = known.unwrap_or_else(|| {
            rules.push(&case.judge);
            rules.len() - 1
        });
        if case.status.is_bad() {
            results.push(result(case, index, "error", &failure_text(case)));
        }
        for warning in &case.warnings {
            let text = format!("{}: {warning}", case.name);
            results.push(result(case, index, "warning", &text));
        }
    }
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "shell-operator",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(|rule| self::rule(rule)).collect::<Vec<Value>>(),
            }},
            "invocations": [invocation(cases)],
            "results": results,
            "columnKind": "unicodeCodePoints",
        }],
    });
    pretty(&log)
}

fn rule(judge: &str) -> Value {
    json!({
        "id": judge,
        "shortDescription": {"text": format!("What {judge} decides")},
        "defaultConfiguration": {"level": "error"},
    })
}

fn invocation(cases: &Cases) -> Value {
    let skipped = cases
        .cases
        .iter()
        .filter(|case| case.status == Status::Skipped);
    let notes: Vec<Value> = skipped
        .map(|case| {
            let text = format!("{} was skipped: {}", case.name, case.message);
            json!({"level": "note", "message": {"text": text}, "locations": [location(case)]})
        })
        .collect();
    let ended = cases.started.checked_add(cases.elapsed);
    json!({
        "executionSuccessful": cases.count(Status::Error) == 0,
        "commandLine": cases.title,
        "startTimeUtc": moment(cases.started),
        "endTimeUtc": moment(ended.unwrap_or(cases.started)),
        "toolExecutionNotifications": notes,
    })
}

fn failure_text(case: &Case) -> String {
    let mut text = format!("{}: {}", case.name, case.message);
    if !case.details.is_empty() {
        text.push('\n');
        text.push_str(&case.details);
    }
    text
}

fn result(case: &Case, rule: usize, level: &str, text: &str) -> Value {
    json!({
        "ruleId": case.judge,
        "ruleIndex": rule,
        "kind": "fail",
        "level": level,
        "message": {"text": text},
        "locations": [location(case)],
    })
}

fn location(case: &Case) -> Value {
    let base = (!case.file.starts_with('/')).then_some(ROOT);
    let mut artifact = Map::from_iter([("uri".to_owned(), json!(uri(&case.file)))]);
    artifact.extend(base.map(|base| ("uriBaseId".to_owned(), json!(base))));
    let mut place = Map::from_iter([("artifactLocation".to_owned(), Value::Object(artifact))]);
    let region = (case.line > 0).then(|| json!({"startLine": case.line}));
    place.extend(region.map(|region| ("region".to_owned(), region)));
    json!({"physicalLocation": place, "logicalLocations": [{"fullyQualifiedName": case.name}]})
}

/// A path as a relative reference, or as a whole address when it is absolute. Everything with a meaning in addresses is escaped.
fn uri(path: &str) -> String {
    let mut uri = String::from(if path.starts_with('/') { "file://" } else { "" });
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}
