//! Reports as commands of GitHub's runner, which shows them beside the changed lines without any upload.
//!
//! Pure. A line for every failure, warning and skipped case, and a last one that sums up.
//! <https://docs.github.com/actions/reference/workflow-commands-for-github-actions>

use super::{Case, Cases, Status};

pub(super) fn write(cases: &Cases) -> String {
    let mut text = String::new();
    for case in &cases.cases {
        match case.status {
            Status::Passed => {}
            Status::Failed | Status::Error => {
                // The details of a test begin with what the message says.
                let body = match case.details.as_str() {
                    "" => case.message.clone(),
                    details if cases.title.ends_with("test") => details.to_owned(),
                    details => format!("{}\n{details}", case.message),
                };
                text.push_str(&command("error", case, &body));
            }
            Status::Skipped => {
                let body = format!("skipped: {}", case.message);
                text.push_str(&command("notice", case, &body));
            }
        }
        for warning in &case.warnings {
            text.push_str(&command("warning", case, warning));
        }
    }
    text.push_str(&format!(
        "{} passed, {} failed, {} errors, {} skipped\n",
        cases.count(Status::Passed),
        cases.count(Status::Failed),
        cases.count(Status::Error),
        cases.count(Status::Skipped),
    ));
    text
}

fn command(level: &str, case: &Case, body: &str) -> String {
    let title = property(&format!("{}: {}", case.judge, case.name));
    let file = property(&case.file);
    let line = case.line.max(1);
    format!(
        "::{level} file={file},line={line},title={title}::{}\n",
        escaped(body)
    )
}

/// What stands behind the second pair of colons. Nothing that a log viewer could take for a command of its own is left.
fn escaped(text: &str) -> String {
    let is_foreign = |letter: char| letter.is_control() && !['\r', '\n', '\t'].contains(&letter);
    text.replace(is_foreign, "\u{fffd}")
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// What stands behind an equals sign, where colons and commas have a meaning too.
fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}
