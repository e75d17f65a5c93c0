//! Reports for machines: what came out of `test` and of `review`, in the formats that build servers read.
//!
//! Both commands make the same plain values (`Cases`) of what they found; a writer for each format turns those into text. Pure, on the
//! main thread. Whatever a hook, a manifest or a file name holds may be in here, so every writer escapes all of it; none prints.

mod findings;
mod github;
mod json;
mod junit;
mod sarif;
mod tap;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::{Duration, SystemTime};

pub(crate) use findings::cases_of;
pub(crate) use json::findings as json_findings;

use crate::settings::ReportForm;

/// Everything that a report tells.
#[derive(Debug)]
pub(crate) struct Cases {
    /// The command that was run, such as `shell-operator test`.
    pub(crate) title: &'static str,
    pub(crate) cases: Vec<Case>,
    pub(crate) started: SystemTime,
    pub(crate) elapsed: Duration,
}

/// One thing that was judged.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// What it belongs to: the hook of a test, the file of a manifest. Cases of one suite stand together.
    pub(crate) suite: String,
    /// Who judged: the hook of a test, the webhook of a review.
    pub(crate) judge: String,
    pub(crate) name: String,
    /// Relative to the working directory where that is possible.
    pub(crate) file: String,
    /// From 1; 0 when the place is not known.
    pub(crate) line: u64,
    pub(crate) status: Status,
    /// One line: why it failed, or why it was skipped.
    pub(crate) message: String,
    /// More lines about a failure.
    pub(crate) details: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) elapsed: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Passed,
    /// It was judged, and not as it should be.
    Failed,
    /// It could not be judged.
    Error,
    /// It was not judged, for a reason that is not its fault.
    Skipped,
}

impl Status {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Status::Passed => "passed",
            Status::Failed => "failed",
            Status::Error => "error",
            Status::Skipped => "skipped",
        }
    }

    pub(crate) fn is_bad(self) -> bool {
        matches!(self, Status::Failed | Status::Error)
    }
}

impl Cases {
    pub(crate) fn count(&self, status: Status) -> usize {
        count(self.cases.iter(), status)
    }

    /// The cases by suite, suites in the order of their first case.
    pub(crate) fn suites(&self) -> Vec<(&str, Vec<&Case>)> {
        let mut suites: Vec<(&str, Vec<&Case>)> = Vec::new();
        for case in &self.cases {
            match suites.iter_mut().find(|(name, _)| *name == case.suite) {
                Some((_, cases)) => cases.push(case),
                None => suites.push((&case.suite, vec![case])),
            }
        }
        suites
    }
}

fn count<'a>(cases: impl Iterator<Item = &'a Case>, status: Status) -> usize {
    cases.filter(|case| case.status == status).count()
}

/// The report in one of the formats for machines. None for text, which each command writes in its own way.
pub(crate) fn write(form: ReportForm, cases: &Cases) -> Option<String> {
    match form {
        ReportForm::Text => None,
        ReportForm::Json => Some(json::write(cases)),
        ReportForm::Junit => Some(junit::write(cases)),
        ReportForm::Sarif => Some(sarif::write(cases)),
        ReportForm::Tap => Some(tap::write(cases)),
        ReportForm::Github => Some(github::write(cases)),
    }
}

/// A path as reports show it: relative to the working directory if it is below that.
pub(crate) fn shown_path(path: &Path) -> String {
    let below = std::env::current_dir()
        .ok()
        .and_then(|directory| path.strip_prefix(directory).ok().map(Path::to_owned));
    let shown = below.as_deref().unwrap_or(path);
    let shown = shown.strip_prefix(".").unwrap_or(shown);
    shown.to_string_lossy().into_owned()
}

/// Seconds with milliseconds, without the exponent that a float may have.
fn seconds(elapsed: Duration) -> String {
    format!("{}.{:03}", elapsed.as_secs(), elapsed.subsec_millis())
}

/// A moment as ISO 8601 writes it, in UTC and whole seconds.
fn moment(time: SystemTime) -> String {
    let timestamp = jiff::Timestamp::try_from(time).unwrap_or_default();
    timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
