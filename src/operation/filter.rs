//! The jq programs of operations: what whoever evaluates them must be able to do, and the check of all programs of a file.
//!
//! Pure, on the thread of the run. A hook writes programs while it runs, so that one may be anything; they are evaluated
//! where they can do no harm, which is for the implementation of `Evaluate` to see to. No error holds words of a program.

use std::collections::HashSet;
use std::fmt;
use std::time::Instant;

use super::document::Flaw;
use super::file::FileError;
use super::{Change, File, Undone};

/// LIMIT: programs that are checked at once. Each takes about a millisecond, and the evaluation has a limit of time.
const AT_ONCE: usize = 200;

/// Evaluates jq programs apart from everything else.
pub(crate) trait Evaluate: Send + Sync {
    /// Whether all of these are programs; if not, which one is the first that is none.
    fn check(&self, programs: &[&str], until: Option<Instant>) -> Result<(), (usize, Unevaluated)>;

    /// What a program makes of an object, as JSON.
    fn apply(
        &self,
        program: &str,
        object: &[u8],
        until: Option<Instant>,
    ) -> Result<Vec<u8>, Unevaluated>;
}

/// Why there is no result of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unevaluated {
    NoProgram,
    /// It ended with an error. Its text may quote the object.
    Failed,
    /// The words for the limit.
    Excess(String),
    /// The time of the run is over.
    Late,
    /// The operator is stopping.
    Stopped,
    /// It could not be tried.
    Broken(String),
}

impl fmt::Display for Unevaluated {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unevaluated::NoProgram => out.write_str("jqFilter does not compile; try it with jq"),
            Unevaluated::Failed => out.write_str(
                "the jqFilter failed on the object; try it with jq, the object is not shown here",
            ),
            Unevaluated::Excess(limit) => write!(out, "the jq program used more than {limit}"),
            Unevaluated::Late => out.write_str("there was no time left for it"),
            Unevaluated::Stopped => out.write_str("shell-operator is stopping"),
            Unevaluated::Broken(reason) => write!(out, "the jqFilter cannot be tried: {reason}"),
        }
    }
}

/// Checks the programs of a file, each once.
pub(crate) fn check_filters(
    file: &File<'_>,
    evaluate: &dyn Evaluate,
    until: Option<Instant>,
) -> Result<(), Undone> {
    if !file.has_filters {
        return Ok(());
    }
    let mut known = HashSet::new();
    let mut waiting: Vec<(usize, String, String)> = Vec::new();
    file.each(|operation| {
        let what = format!("{} {}", operation.verb.name(), operation.target);
        if let Change::Filter(program) = operation.change
            && known.insert(program.clone())
        {
            waiting.push((operation.document, what, program));
        }
        if waiting.len() >= AT_ONCE {
            check(&std::mem::take(&mut waiting), evaluate, until)?;
        }
        Ok(())
    })?;
    check(&waiting, evaluate, until)
}

fn check(
    programs: &[(usize, String, String)],
    evaluate: &dyn Evaluate,
    until: Option<Instant>,
) -> Result<(), Undone> {
    if programs.is_empty() {
        return Ok(());
    }
    let texts: Vec<&str> = programs.iter().map(|(_, _, text)| text.as_str()).collect();
    let Err((index, reason)) = evaluate.check(&texts, until) else {
        return Ok(());
    };
    if reason == Unevaluated::Stopped {
        return Err(Undone::Stopped);
    }
    let (document, what) = programs
        .get(index)
        .map(|(document, what, _)| (*document, what.clone()))
        .unwrap_or_default();
    let error = FileError::Invalid {
        document,
        what,
        flaw: Flaw::Filter(reason),
    };
    Err(Undone::Failed(error.to_string()))
}
