//! What a case expects: the keys of `expect`, read strictly, because a key that is passed over is a test that tests nothing.
//!
//! Pure. Which keys there are depends on what the hook is run for. `check.rs` compares them with what happened.

use std::time::Duration;

use serde_json::Value;

use super::fields::{Fault, Fields, Read};
use super::file::Asked;
use super::pattern::Pattern;
use crate::yaml::{Node, Tree, integer};

/// How often a case runs when it only says `deterministic: true`.
const USUAL_RUNS: u32 = 3;
/// LIMIT: runs of one case. A hook that is right a hundred times in a row is as good as proven.
const MOST_RUNS: i64 = 100;

const ALWAYS: &[&str] = &[
    "exit",
    "stderr",
    "under",
    "deterministic",
    "operations",
    "metrics",
    "calls",
];
const OF_REQUESTS: &[&str] = &[
    "allowed",
    "code",
    "message",
    "reason",
    "warnings",
    "auditAnnotations",
    "patched",
    "patchedExactly",
    "patch",
    "idempotent",
];
const OF_CONVERSIONS: &[&str] = &["converted", "message"];

/// What is checked after the run. None: not looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Expect {
    /// Set for every request that does not expect an exit status.
    pub(super) allowed: Option<bool>,
    pub(super) code: Option<u16>,
    pub(super) message: Option<Pattern>,
    pub(super) reason: Option<Pattern>,
    pub(super) warnings: Option<Warnings>,
    /// At least these.
    pub(super) audit_annotations: Option<Value>,
    /// At least these fields.
    pub(super) patched: Option<Value>,
    /// The whole object.
    pub(super) patched_exactly: Option<Value>,
    pub(super) patch: Option<Vec<Value>>,
    pub(super) idempotent: bool,
    /// How often the hook is run; more than once to see whether it does the same each time.
    pub(super) runs: u32,
    pub(super) under: Option<Duration>,
    pub(super) exit: Option<u8>,
    pub(super) stderr: Option<Pattern>,
    /// At least these fields of each, in this order, and no others.
    pub(super) operations: Option<Vec<Value>>,
    pub(super) metrics: Option<Vec<Value>>,
    pub(super) converted: Option<Vec<Value>>,
    /// The command lines of the shims, in this order, and no others.
    pub(super) calls: Option<Vec<Pattern>>,
}

#[derive(Clone, Debug)]
pub(super) enum Warnings {
    Count(usize),
    These(Vec<Pattern>),
}

pub(super) fn read(node: &Node, asked: &Asked) -> Read<Expect> {
    let own = match asked {
        Asked::Request(_) => OF_REQUESTS,
        Asked::Conversion { .. } => OF_CONVERSIONS,
        _ => &[],
    };
    let known: Vec<&'static str> = own.iter().chain(ALWAYS).copied().collect();
    let fields = Fields::open(node, "expect", &known)?;
    if !known.iter().any(|key| fields.is_written(key)) {
        return Err(Fault::new(
            node.line,
            "expect is empty, so it tests nothing",
        ));
    }
    // A case says little and means more: a message means a denial, an exit status means a hook that fails, and all others an allowed
    // request.
    let allowed = match (asked, fields.truth("allowed")?) {
        (Asked::Request(_), None) if fields.get("exit").is_some() => None,
        (Asked::Request(_), None) => {
            Some(!fields.is_written("message") && !fields.is_written("code"))
        }
        (_, given) => given,
    };
    let expect = Expect {
        allowed,
        code: small(&fields, "code", 100..=599, "an HTTP status code")?,
        message: pattern(&fields, "message")?,
        reason: pattern(&fields, "reason")?,
        warnings: warnings(&fields)?,
        audit_annotations: fields.object("auditAnnotations")?,
        patched: fields.object("patched")?,
        patched_exactly: fields.object("patchedExactly")?,
        patch: fields.objects("patch")?,
        idempotent: fields.truth("idempotent")?.unwrap_or(false),
        runs: runs(&fields)?,
        under: fields.time("under")?,
        exit: small(&fields, "exit", 0..=255, "an exit status from 0 to 255")?
            .and_then(|exit| u8::try_from(exit).ok()),
        stderr: pattern(&fields, "stderr")?,
        operations: fields.objects("operations")?,
        metrics: fields.objects("metrics")?,
        converted: fields.objects("converted")?,
        calls: patterns(&fields, "calls")?,
    };
    contradictions(&fields, &expect)?;
    Ok(expect)
}

/// What no hook could do at the same time.
fn contradictions(fields: &Fields<'_>, expect: &Expect) -> Read<()> {
    for key in ["patched", "patchedExactly", "patch", "idempotent"] {
        if expect.allowed == Some(false) && fields.is_written(key) {
            let text = format!("a request that is denied changes nothing: `{key}` cannot hold");
            return fields.fault(key, text);
        }
    }
    for key in ["message", "code"] {
        if expect.allowed == Some(true) && fields.is_written(key) {
            let text = format!(
                "a request that is allowed has no {key}: write `allowed: false` or take it out"
            );
            return fields.fault(key, text);
        }
    }
    if fields.is_written("converted") && fields.is_written("message") {
        let text = "a conversion that fails with a message makes no objects";
        return fields.fault("message", text);
    }
    Ok(())
}

fn pattern(fields: &Fields<'_>, key: &str) -> Read<Option<Pattern>> {
    let Some(text) = fields.text(key)? else {
        return Ok(None);
    };
    match Pattern::parse(&text) {
        Ok(pattern) => Ok(Some(pattern)),
        Err(problem) => fields.fault(key, format!("expect.{key}: {problem}")),
    }
}

fn patterns(fields: &Fields<'_>, key: &str) -> Read<Option<Vec<Pattern>>> {
    if fields.get(key).is_none() {
        return Ok(None);
    }
    let texts = fields.texts(key)?;
    let parsed: Result<Vec<Pattern>, String> =
        texts.iter().map(|text| Pattern::parse(text)).collect();
    match parsed {
        Ok(patterns) => Ok(Some(patterns)),
        Err(problem) => fields.fault(key, format!("expect.{key}: {problem}")),
    }
}

fn warnings(fields: &Fields<'_>) -> Read<Option<Warnings>> {
    let count = match fields.get("warnings").map(|node| &node.tree) {
        Some(Tree::Number(number)) => integer(number).and_then(|n| usize::try_from(n).ok()),
        Some(Tree::Array(_)) => {
            return Ok(patterns(fields, "warnings")?.map(Warnings::These));
        }
        None => return Ok(None),
        Some(_) => None,
    };
    match count {
        Some(count) => Ok(Some(Warnings::Count(count))),
        None => fields.fault(
            "warnings",
            "expect.warnings is how many there are, or a list of their texts",
        ),
    }
}

fn runs(fields: &Fields<'_>) -> Read<u32> {
    let Some(node) = fields.get("deterministic") else {
        return Ok(1);
    };
    let runs = match &node.tree {
        Tree::Bool(true) => Some(USUAL_RUNS),
        Tree::Bool(false) => Some(1),
        Tree::Number(number) => integer(number)
            .filter(|runs| (2..=MOST_RUNS).contains(runs))
            .and_then(|runs| u32::try_from(runs).ok()),
        _ => None,
    };
    match runs {
        Some(runs) => Ok(runs),
        None => fields.fault(
            "deterministic",
            format!("expect.deterministic is true, or how often the hook is run: 2 to {MOST_RUNS}"),
        ),
    }
}

fn small(
    fields: &Fields<'_>,
    key: &str,
    range: std::ops::RangeInclusive<i64>,
    what: &str,
) -> Read<Option<u16>> {
    match fields.number(key)? {
        None => Ok(None),
        Some(number) if range.contains(&number) => Ok(u16::try_from(number).ok()),
        Some(_) => fields.fault(key, format!("expect.{key} is {what}")),
    }
}
