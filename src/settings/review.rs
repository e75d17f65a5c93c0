//! The words of `review`: which manifests, which request is made of them, and how the report is written.
//!
//! Pure. Values are checked for their form; whether a file exists is for `offline`, which opens it.

use argh::FromArgs;

use super::report::{ReportForm, report_form};

/// What is to be reviewed, and as what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reviewing {
    /// Files and directories; `-` is standard input.
    pub(crate) manifests: Vec<String>,
    /// Files and directories with what the cluster holds.
    pub(crate) objects: Vec<String>,
    /// Files with the objects as they were before.
    pub(crate) old: Vec<String>,
    /// In capital letters. None: UPDATE for objects that the cluster holds, else CREATE.
    pub(crate) operation: Option<String>,
    pub(crate) subresource: String,
    pub(crate) user: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) dry_run: bool,
    pub(crate) form: ReportForm,
    /// Show what hooks printed, also those that did not fail.
    pub(crate) verbose: bool,
    /// What cannot be judged without a cluster is no failure.
    pub(crate) allow_unjudged: bool,
}

/// Decide manifests with the hooks and without a cluster.
#[derive(FromArgs)]
#[argh(subcommand, name = "review")]
pub(super) struct ReviewWords {
    /// manifests
    #[argh(positional)]
    words: Vec<String>,
    /// manifests
    #[argh(option)]
    filename: Vec<String>,
    /// what the cluster holds
    #[argh(option)]
    objects: Vec<String>,
    /// objects as they were
    #[argh(option)]
    old: Vec<String>,
    /// what the request does
    #[argh(option, from_str_fn(operation))]
    operation: Option<String>,
    /// what of the object is requested
    #[argh(option)]
    subresource: Option<String>,
    /// who asks
    #[argh(option)]
    user: Option<String>,
    /// groups of the user
    #[argh(option)]
    groups: Vec<String>,
    /// a dry run
    #[argh(switch)]
    dry_run: bool,
    /// form of the report
    #[argh(option, from_str_fn(report_form))]
    output: Option<ReportForm>,
    /// output of hooks, too
    #[argh(switch)]
    verbose: bool,
    /// unjudged is no failure
    #[argh(switch)]
    allow_unjudged: bool,
}

impl ReviewWords {
    pub(super) fn reviewing(self) -> Result<Reviewing, &'static str> {
        let manifests: Vec<String> = self.filename.into_iter().chain(self.words).collect();
        if manifests.is_empty() {
            return Err("review needs manifests, such as -f manifests/ or -f - for standard input");
        }
        let groups = self.groups.iter().flat_map(|list| list.split(','));
        let named = groups.map(str::trim).filter(|group| !group.is_empty());
        Ok(Reviewing {
            manifests,
            objects: self.objects,
            old: self.old,
            operation: self.operation,
            subresource: self.subresource.unwrap_or_default(),
            user: self.user.filter(|user| !user.is_empty()),
            groups: named.map(str::to_owned).collect(),
            dry_run: self.dry_run,
            form: self.output.unwrap_or_default(),
            verbose: self.verbose,
            allow_unjudged: self.allow_unjudged,
        })
    }
}

fn operation(text: &str) -> Result<String, String> {
    let operation = text.to_ascii_uppercase();
    match operation.as_str() {
        "CREATE" | "UPDATE" | "DELETE" | "CONNECT" => Ok(operation),
        _ => Err("expected CREATE, UPDATE, DELETE or CONNECT".to_owned()),
    }
}
