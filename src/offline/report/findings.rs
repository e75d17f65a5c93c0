//! The findings of a `review` as cases of a report.
//!
//! Pure. One finding is one case: the manifest's file is its suite, the webhook its judge. A finding without a hook that says nothing
//! but "no hook is asked" passed. What stands behind `helm template` points at the template that it names, because the rendered text
//! is in no repository.

use std::path::Path;

use super::super::outcome::{Finding, Report, Verdict};
use super::{Case, Cases, Status, shown_path};

/// The judge of what no hook was asked about.
const NOBODY: &str = "shell-operator";

/// `unjudged_is_fine` makes a skipped case of what cannot be said without a cluster, and an error otherwise.
pub(crate) fn cases_of(report: &Report, unjudged_is_fine: bool) -> Cases {
    let case = |finding: &Finding| case(finding, unjudged_is_fine);
    Cases {
        title: "shell-operator review",
        cases: report.findings.iter().map(case).collect(),
        started: report.started,
        elapsed: report.elapsed,
    }
}

fn case(finding: &Finding, unjudged_is_fine: bool) -> Case {
    let status = match &finding.verdict {
        Verdict::Allowed | Verdict::NotMatched => Status::Passed,
        Verdict::Denied { .. } => Status::Failed,
        Verdict::Unjudged { .. } if unjudged_is_fine => Status::Skipped,
        Verdict::Unjudged { .. } | Verdict::Error { .. } => Status::Error,
    };
    let (file, line) = place(finding);
    let judge = finding.webhook.as_deref().or(finding.hook.as_deref());
    let mut name = format!("{} {}", finding.operation.as_str(), finding.object);
    if !finding.subresource.is_empty() {
        name.push_str(&format!(" ({})", finding.subresource));
    }
    Case {
        suite: file.clone(),
        judge: judge.unwrap_or(NOBODY).to_owned(),
        name,
        file,
        line,
        status,
        message: finding.verdict.message().to_owned(),
        details: details(finding),
        warnings: finding.warnings.clone(),
        elapsed: finding.elapsed,
    }
}

fn place(finding: &Finding) -> (String, u64) {
    let place = &finding.place;
    match &place.source {
        Some(template) if place.file == "-" => (template.clone(), 1),
        _ if place.file == "-" => ("stdin".to_owned(), place.line),
        _ => (shown_path(Path::new(&place.file)), place.line),
    }
}

fn details(finding: &Finding) -> String {
    if matches!(finding.verdict, Verdict::Allowed | Verdict::NotMatched) {
        return String::new();
    }
    let mut lines = Vec::new();
    if let Some(hook) = &finding.hook {
        lines.push(format!("hook: {hook}"));
    }
    if let Some(template) = &finding.place.source {
        lines.push(format!("template: {template}"));
    }
    lines.extend(finding.output.iter().cloned());
    lines.join("\n")
}
