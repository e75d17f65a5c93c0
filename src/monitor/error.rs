//! Why the bindings of a hook could not be enabled. Every one of these is tried again by the queue.

use std::fmt;
use std::io;

use crate::kube;

#[derive(Debug)]
pub(crate) enum EnableError {
    /// The cluster does not have the kind, or could not be asked.
    Kind {
        binding: String,
        api_version: String,
        kind: String,
        error: Box<kube::Error>,
    },
    /// Namespaces are named for a kind that lives in none.
    NoNamespaces { binding: String, kind: String },
    /// Objects could not be listed.
    List { binding: String, reason: String },
    /// The jqFilter fails on an object that is there already.
    Filter {
        binding: String,
        object: String,
        reason: String,
    },
    /// No thread for a watch.
    Thread(io::Error),
    /// The process is ending.
    Stopped,
}

impl fmt::Display for EnableError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind {
                binding,
                api_version,
                kind,
                error,
            } => write!(
                out,
                "{binding}: Cannot get GroupVersionResource info for apiVersion '{api_version}' kind '{kind}' from api-server. \
                 Possibly CRD is not created before informers are started. Error was: {error}"
            ),
            Self::NoNamespaces { binding, kind } => write!(
                out,
                "{binding}: objects of kind '{kind}' are in no namespace; remove 'namespace' from the binding"
            ),
            Self::List { binding, reason } => {
                write!(out, "{binding}: list existing objects: {reason}")
            }
            Self::Filter {
                binding,
                object,
                reason,
            } => write!(
                out,
                "apply filter for '{binding}/{object}': jqFilter: {reason}"
            ),
            Self::Thread(error) => write!(out, "start a watch thread: {error}"),
            Self::Stopped => out.write_str("the operator is stopping"),
        }
    }
}

impl std::error::Error for EnableError {}
