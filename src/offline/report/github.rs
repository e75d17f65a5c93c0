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
                let mut body = case.message.clone();
                if !case.details.is_empty() {
                    body.push('\n');
                    body.push_str(&case.details);
                }
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

/// What stands behind the second pair of colons.
fn escaped(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// What stands behind an equals sign, where colons and commas have a meaning too.
fn property(text: &str) -> String {
    escaped(text).replace(':', "%3A").replace(',', "%2C")
}
