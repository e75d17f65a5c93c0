//! Reports as JSON of our own shape, for scripts that want everything.
//!
//! Pure. `write` is what `test` prints, `findings` what `review` prints; field names are part of the interface and documented in
//! `hooks/README.md`.

use serde_json::{Value, json};

use super::super::outcome::{Finding, Report};
use super::{Case, Cases, Status, moment, shown_path};

pub(super) fn write(cases: &Cases) -> String {
    let report = json!({
        "command": cases.title,
        "started": moment(cases.started),
        "seconds": cases.elapsed.as_secs_f64(),
        "passed": cases.count(Status::Passed),
        "failed": cases.count(Status::Failed),
        "errors": cases.count(Status::Error),
        "skipped": cases.count(Status::Skipped),
        "cases": cases.cases.iter().map(case).collect::<Vec<Value>>(),
    });
    pretty(&report)
}

fn case(case: &Case) -> Value {
    json!({
        "hook": case.judge,
        "name": case.name,
        "file": case.file,
        "line": case.line,
        "status": case.status.word(),
        "message": case.message,
        "details": case.details,
        "warnings": case.warnings,
        "seconds": case.elapsed.as_secs_f64(),
    })
}

/// What a `review` found. The objects themselves are in it only where a hook changed them.
pub(crate) fn findings(report: &Report, unjudged_is_fine: bool) -> String {
    let whole = json!({
        "command": "shell-operator review",
        "started": moment(report.started),
        "seconds": report.elapsed.as_secs_f64(),
        "exitCode": report.ending(unjudged_is_fine).exit_code(),
        "notes": report.notes,
        "findings": report.findings.iter().map(finding).collect::<Vec<Value>>(),
    });
    pretty(&whole)
}

fn finding(finding: &Finding) -> Value {
    let object = &finding.object;
    let code = match finding.verdict {
        super::super::outcome::Verdict::Denied { code, .. } => Some(code),
        _ => None,
    };
    let patched = finding.patched.as_deref();
    json!({
        "file": shown_path(std::path::Path::new(&finding.place.file)),
        "line": finding.place.line,
        "document": finding.place.document,
        "source": finding.place.source,
        "object": {
            "apiVersion": object.api_version,
            "kind": object.kind,
            "namespace": object.namespace,
            "name": object.name,
        },
        "operation": finding.operation.as_str(),
        "subresource": finding.subresource,
        "hook": finding.hook,
        "webhook": finding.webhook,
        "verdict": finding.verdict.word(),
        "code": code,
        "message": finding.verdict.message(),
        "warnings": finding.warnings,
        "before": patched.map(|patched| &patched.before),
        "after": patched.map(|patched| &patched.after),
        "output": finding.output,
        "seconds": finding.elapsed.as_secs_f64(),
    })
}

/// Writing a value into memory cannot fail.
pub(super) fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}
