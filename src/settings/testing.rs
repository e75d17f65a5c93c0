//! The words of `test`: which suites, which cases, and how the report is written.
//!
//! Pure. Running them is the business of `offline/suite`.

use std::path::PathBuf;

use argh::FromArgs;

use super::report::{ReportForm, report_form};
use super::{Settings, value};

/// What `test` was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Testing {
    /// Hooks, suites or directories; the hooks directory when there is none.
    pub(crate) paths: Vec<PathBuf>,
    /// A regular expression over `hook: case`.
    pub(crate) run: Option<String>,
    /// Again whenever something changes.
    pub(crate) watch: bool,
    /// What would be skipped fails.
    pub(crate) no_skip: bool,
    pub(crate) form: ReportForm,
    pub(crate) hooks_dir: PathBuf,
    pub(crate) tmp_dir: PathBuf,
    /// Variables that hooks inherit; empty for all.
    pub(crate) hook_variables: Vec<String>,
}

/// Run the tests of hooks.
#[derive(FromArgs)]
#[argh(subcommand, name = "test")]
pub(super) struct TestWords {
    /// hooks, suites or directories
    #[argh(positional, from_str_fn(argh_path))]
    paths: Vec<PathBuf>,
    /// only cases that match
    #[argh(option)]
    run: Option<String>,
    /// again and again
    #[argh(switch)]
    watch: bool,
    /// skipped cases fail
    #[argh(switch)]
    no_skip: bool,
    /// text, json, junit, sarif, tap or github
    #[argh(option, from_str_fn(report_form))]
    output: Option<ReportForm>,
}

impl TestWords {
    pub(super) fn testing(self, settings: Settings) -> Testing {
        Testing {
            paths: self.paths,
            run: self.run,
            watch: self.watch,
            no_skip: self.no_skip,
            form: self.output.unwrap_or_default(),
            hooks_dir: settings.hooks_dir,
            tmp_dir: settings.tmp_dir,
            hook_variables: settings.hook_variables,
        }
    }
}

fn argh_path(text: &str) -> Result<PathBuf, String> {
    value::path(text).map_err(|expected| format!("expected {expected}"))
}
