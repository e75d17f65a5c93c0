//! What came out: one finding for each object and each hook that had a say, and what all of them mean together.
//!
//! The seam between deciding and reporting: `decide.rs` and `suite` make these values, `report/` writes them. Plain values without
//! behaviour but the exit code; made on worker threads, read on the main thread. They hold whole objects, which may be Secrets, so
//! nothing here is ever logged.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde_json::Value;

/// All findings, in the order of the manifests and, for one manifest, in the order in which the API server calls the hooks.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) findings: Vec<Finding>,
    /// What somebody should know who reads the findings, such as a namespace whose labels are not known. One sentence each.
    pub(crate) notes: Vec<String>,
    pub(crate) started: SystemTime,
    pub(crate) elapsed: Duration,
}

/// What one hook said about one object; or, without a hook, what is to be said about an object that no hook was asked about.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) place: Place,
    pub(crate) object: ObjectName,
    pub(crate) operation: Operation,
    /// Empty unless the request is for a subresource.
    pub(crate) subresource: String,
    /// The path of the hook below the hooks directory.
    pub(crate) hook: Option<String>,
    /// The name of the webhook as the API server would show it.
    pub(crate) webhook: Option<String>,
    pub(crate) verdict: Verdict,
    pub(crate) warnings: Vec<String>,
    /// The object before and after, if this hook changed it.
    pub(crate) patched: Option<Box<Patched>>,
    /// What the hook printed, kept for whoever has to find out why it failed.
    pub(crate) output: Vec<String>,
    pub(crate) elapsed: Duration,
}

/// Where an object is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// As it was given; `-` for standard input.
    pub(crate) file: String,
    /// The line of its first key, from 1, counted in the whole file.
    pub(crate) line: u64,
    /// Which document of the file, from 1.
    pub(crate) document: usize,
    /// The template it was made from, as helm names it in a comment.
    pub(crate) source: Option<String>,
}

/// How an object is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectName {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// Empty for objects outside of namespaces.
    pub(crate) namespace: String,
    /// With a `*` at its end where the API server would make a name of a `generateName`.
    pub(crate) name: String,
}

/// What the request does to the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Operation {
    #[default]
    Create,
    Update,
    Delete,
    Connect,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    /// The request would be refused with this text and this code.
    Denied {
        /// The whole sentence that the user of the cluster would read.
        message: String,
        code: u16,
    },
    /// No hook wants to be asked about this object.
    NotMatched,
    /// It cannot be said without a cluster, for this reason, which names the remedy.
    Unjudged {
        reason: String,
    },
    /// The object or the request could not be put before the hooks.
    Error {
        message: String,
    },
}

/// An object before and after a hook changed it. Never printed by accident: it may be a Secret.
#[derive(Clone, PartialEq)]
pub(crate) struct Patched {
    pub(crate) before: Value,
    pub(crate) after: Value,
}

impl fmt::Debug for Patched {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Patched")
    }
}

/// What the process ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// Everything is allowed: 0.
    Allowed,
    /// Something is denied: 1.
    Denied,
    /// Something could not be decided: 2. It counts more than a denial, because nobody knows what else would be denied.
    Failed,
}

impl Ending {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Ending::Allowed => 0,
            Ending::Denied => 1,
            Ending::Failed => 2,
        }
    }
}

impl Report {
    /// What could not be judged counts as a failure unless the caller said that it may not be judged.
    pub(crate) fn ending(&self, unjudged_is_fine: bool) -> Ending {
        let ending = |finding: &Finding| match finding.verdict {
            Verdict::Allowed | Verdict::NotMatched => Ending::Allowed,
            Verdict::Denied { .. } => Ending::Denied,
            Verdict::Unjudged { .. } if unjudged_is_fine => Ending::Allowed,
            Verdict::Unjudged { .. } | Verdict::Error { .. } => Ending::Failed,
        };
        let worst = self.findings.iter().map(ending).max();
        worst.unwrap_or(Ending::Allowed)
    }
}

impl Verdict {
    /// One word, the same in every format.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Verdict::Allowed => "allowed",
            Verdict::Denied { .. } => "denied",
            Verdict::NotMatched => "not matched",
            Verdict::Unjudged { .. } => "unjudged",
            Verdict::Error { .. } => "error",
        }
    }

    /// The text behind the word, if there is any.
    pub(crate) fn message(&self) -> &str {
        match self {
            Verdict::Denied { message, .. } | Verdict::Error { message } => message,
            Verdict::Unjudged { reason } => reason,
            Verdict::Allowed | Verdict::NotMatched => "",
        }
    }
}

impl Operation {
    pub(crate) const ALL: [Operation; 4] = [
        Operation::Create,
        Operation::Update,
        Operation::Delete,
        Operation::Connect,
    ];

    /// As an AdmissionReview and the rules of a webhook spell it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    /// From any spelling of the letters.
    pub(crate) fn parse(text: &str) -> Option<Operation> {
        let is_named = |operation: &Operation| operation.as_str().eq_ignore_ascii_case(text);
        Operation::ALL.into_iter().find(is_named)
    }
}

impl fmt::Display for ObjectName {
    /// `Kind namespace/name`, as people say it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectName {
            kind,
            namespace,
            name,
            ..
        } = self;
        write!(out, "{kind} ")?;
        if !namespace.is_empty() {
            write!(out, "{namespace}/")?;
        }
        out.write_str(name)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: Verdict) -> Finding {
        Finding {
            place: Place::default(),
            object: ObjectName::default(),
            operation: Operation::Create,
            subresource: String::new(),
            hook: None,
            webhook: None,
            verdict,
            warnings: Vec::new(),
            patched: None,
            output: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    fn ending(verdicts: &[Verdict], unjudged_is_fine: bool) -> u8 {
        let report = Report {
            findings: verdicts.iter().cloned().map(finding).collect(),
            notes: Vec::new(),
            started: SystemTime::UNIX_EPOCH,
            elapsed: Duration::ZERO,
        };
        report.ending(unjudged_is_fine).exit_code()
    }

    #[test]
    fn the_worst_finding_decides_how_the_process_ends() {
        let denied = Verdict::Denied {
            message: "no".to_owned(),
            code: 403,
        };
        let unjudged = Verdict::Unjudged {
            reason: "unknown".to_owned(),
        };
        let error = Verdict::Error {
            message: "bad".to_owned(),
        };
        let fine = [Verdict::Allowed, Verdict::NotMatched];
        assert_eq!(ending(&[], false), 0);
        assert_eq!(ending(&fine, false), 0);
        assert_eq!(ending(&[fine[0].clone(), denied.clone()], false), 1);
        assert_eq!(ending(&[denied.clone(), unjudged.clone()], false), 2);
        assert_eq!(ending(&[denied.clone(), unjudged.clone()], true), 1);
        assert_eq!(ending(&[unjudged], true), 0);
        assert_eq!(ending(&[error, denied], true), 2);
    }

    #[test]
    fn an_operation_is_read_in_any_spelling() {
        assert_eq!(Operation::parse("create"), Some(Operation::Create));
        assert_eq!(Operation::parse("DELETE"), Some(Operation::Delete));
        assert_eq!(Operation::parse("patch"), None);
    }

    #[test]
    fn an_object_is_named_as_people_name_it() {
        let mut object = ObjectName {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
        };
        assert_eq!(object.to_string(), "Pod shop/web");
        object.namespace.clear();
        assert_eq!(object.to_string(), "Pod web");
    }
}
