//! The forms of a report, shared by the commands that decide without a cluster.
//!
//! Pure: one name each, and nothing about how they are written; that is the business of `offline/report`.

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReportForm {
    /// For people.
    #[default]
    Text,
    Json,
    Junit,
    Sarif,
    Tap,
    /// Commands of GitHub's runner.
    Github,
}

/// For argh.
pub(super) fn report_form(text: &str) -> Result<ReportForm, String> {
    match text.to_ascii_lowercase().as_str() {
        "text" => Ok(ReportForm::Text),
        "json" => Ok(ReportForm::Json),
        "junit" => Ok(ReportForm::Junit),
        "sarif" => Ok(ReportForm::Sarif),
        "tap" => Ok(ReportForm::Tap),
        "github" => Ok(ReportForm::Github),
        _ => Err("expected text, json, junit, sarif, tap or github".to_owned()),
    }
}
