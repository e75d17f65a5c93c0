//! Operations: changes to objects of the cluster that a hook asks for by `KUBERNETES_PATCH_PATH`.
//!
//! ```text
//! file (JSON or YAML documents) -> file: every document checked -> one Operation at a time -> whoever implements Perform
//! ```
//! Pure: no I/O, no state, on whichever thread asks. It knows what may be written and what it means; `kube` carries it out.
//! INVARIANT: nothing of an object or a patch is in an error or in `Debug`; only kinds and names are.

mod document;
mod file;
mod object;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Instant;

use crate::jq::Filter;

pub(crate) use file::{File, FileError};
pub(crate) use object::with_version;

/// The manager of fields that are set by `Apply` where the hook names none; the same that the server knows us by otherwise.
pub(crate) const FIELD_MANAGER: &str = "shell-operator";

/// LIMIT: bytes of a name, a namespace, a kind. Hardly any kind allows more than 253; some take any path segment.
const LONGEST_NAME: usize = 512;

/// LIMIT: characters of each of them in messages: the longest name of nearly all kinds.
const SHOWN_OF_NAME: usize = 253;

/// Whether a text can be one piece of the path of an object, by the rule of the API server. Everything else leads elsewhere,
/// because the server decodes a path before it takes it apart.
pub(crate) fn is_path_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%'])
}

/// One change, checked: every field that it needs is there.
pub(crate) struct Operation {
    /// The place in the file, from 1.
    pub(crate) document: usize,
    pub(crate) verb: Verb,
    pub(crate) target: Target,
    /// Of patches and `Apply`.
    pub(crate) subresource: Option<String>,
    /// An object that is not there is no failure of a patch.
    pub(crate) ignore_missing_object: bool,
    /// To be carried out even when the hook failed.
    pub(crate) ignore_hook_error: bool,
    pub(crate) change: Change,
}

/// The object that is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// None: the version that the server prefers.
    pub(crate) api_version: Option<String>,
    pub(crate) kind: String,
    /// Empty for objects of a cluster-scoped kind.
    pub(crate) namespace: String,
    /// Empty only for an object that gets its name from the server.
    pub(crate) name: String,
}

/// What has to be done. Objects and patches are JSON texts.
pub(crate) enum Change {
    Create {
        object: String,
        existing: Existing,
    },
    Delete(Propagation),
    Filter(Filter),
    Merge(String),
    Json(String),
    Apply {
        object: String,
        field_manager: String,
        force: bool,
    },
}

/// What becomes of an object that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    Fail,
    Keep,
    Replace,
}

/// What becomes of the objects that the deleted one owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Foreground,
    Background,
    Orphan,
}

/// The operation as the hook calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    CreateIfNotExists,
    CreateOrUpdate,
    Delete,
    DeleteInBackground,
    DeleteNonCascading,
    JqPatch,
    MergePatch,
    JsonPatch,
    Apply,
}

impl Verb {
    pub(crate) const ALL: [Verb; 10] = [
        Verb::Create,
        Verb::CreateIfNotExists,
        Verb::CreateOrUpdate,
        Verb::Delete,
        Verb::DeleteInBackground,
        Verb::DeleteNonCascading,
        Verb::JqPatch,
        Verb::MergePatch,
        Verb::JsonPatch,
        Verb::Apply,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Create => "Create",
            Verb::CreateIfNotExists => "CreateIfNotExists",
            Verb::CreateOrUpdate => "CreateOrUpdate",
            Verb::Delete => "Delete",
            Verb::DeleteInBackground => "DeleteInBackground",
            Verb::DeleteNonCascading => "DeleteNonCascading",
            Verb::JqPatch => "JQPatch",
            Verb::MergePatch => "MergePatch",
            Verb::JsonPatch => "JSONPatch",
            Verb::Apply => "Apply",
        }
    }

    /// What the original calls it in errors.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Verb::Create | Verb::CreateIfNotExists | Verb::CreateOrUpdate => "Create object",
            Verb::Delete | Verb::DeleteInBackground | Verb::DeleteNonCascading => "Delete object",
            Verb::JqPatch | Verb::MergePatch | Verb::JsonPatch => "Filter object",
            Verb::Apply => "Apply object",
        }
    }
}

impl fmt::Display for Target {
    /// `apps/v1/Deployment/shop/web`; what is not known is left out, and what is too long is cut.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.api_version.as_deref().unwrap_or_default(),
            &self.kind,
            &self.namespace,
            &self.name,
        ];
        let mut between = "";
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            write!(out, "{between}{part:.SHOWN_OF_NAME$}")?;
            if part.chars().nth(SHOWN_OF_NAME).is_some() {
                out.write_str("...")?;
            }
            between = "/";
        }
        Ok(())
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Operation({} {})", self.verb.name(), self.target)
    }
}

/// Which operations of a file are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    All,
    /// The hook failed: only those that asked for it.
    DespiteFailure,
    /// A dry run: the file is checked and that is all.
    Check,
}

/// What a run of a hook left to be done.
pub(crate) struct Order<'a> {
    /// As the hook wrote it: it may be anything.
    pub(crate) file: &'a [u8],
    pub(crate) scope: Scope,
    /// Nothing is begun after this moment, and nothing waits beyond it.
    pub(crate) until: Option<Instant>,
    /// Who wrote it, for the log.
    pub(crate) hook: &'a str,
    pub(crate) binding: &'a str,
}

/// Why not everything was done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Undone {
    /// The operator is stopping.
    Stopped,
    /// The text names every failed operation, or the first of many.
    Failed(String),
}

/// Carries out what a hook asked for. Returns when all of it is done or has failed.
pub(crate) trait Perform: Send + Sync {
    fn perform(&self, order: &Order<'_>) -> Result<(), Undone>;
}
