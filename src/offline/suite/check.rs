//! What happened against what was expected.
//!
//! Pure. Every difference is told, not only the first; of objects the paths that differ and not the objects. INVARIANT: a hook that
//! crashed, ran out of time or wrote something unreadable fails its case unless the case expects just that.

use serde_json::Value;

use super::expect::{Expect, Warnings};
use super::observe::{End, Observed};
use super::pattern::Pattern;
use crate::review::FAILED;

/// LIMIT: characters of a value that are shown; enough for a sentence, and an object can be read in the suite.
const SHOWN: usize = 400;
/// LIMIT: differences of one object that are told; the first ones tell what is wrong with the rest.
const MOST_DIFFERENCES: usize = 20;

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) actual: String,
}

impl Flaw {
    pub(super) fn new(
        what: impl Into<String>,
        expected: impl Into<String>,
        actual: impl Into<String>,
    ) -> Flaw {
        Flaw {
            what: what.into(),
            expected: expected.into(),
            actual: actual.into(),
        }
    }

    /// In one line.
    pub(super) fn line(&self) -> String {
        let Flaw {
            what,
            expected,
            actual,
        } = self;
        format!("{what}: expected {expected}, got {actual}")
    }
}

/// Everything that is not as expected, the most telling first.
pub(super) fn check(expect: &Expect, seen: &Observed) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    check_end(expect, seen, &mut flaws);
    for command in &seen.unexpected {
        let expected = "only calls that the case has under `commands`";
        flaws.push(Flaw::new("commands", expected, shown_text(command)));
    }
    if !flaws.is_empty() {
        // What else is wrong follows from this.
        return flaws;
    }
    check_answer(expect, seen, &mut flaws);
    check_change(expect, seen, &mut flaws);
    check_conversion(expect, seen, &mut flaws);
    for (what, expected, actual) in [
        ("operations", &expect.operations, &seen.operations),
        ("metrics", &expect.metrics, &seen.metrics),
    ] {
        match (expected, actual) {
            (_, Err(problem)) => flaws.push(Flaw::new(what, "a readable file", problem)),
            (Some(expected), Ok(actual)) => check_list(what, expected, actual, &mut flaws),
            (None, Ok(_)) => {}
        }
    }
    if let Some(expected) = &expect.calls {
        check_texts("calls", expected, &seen.calls, &mut flaws);
    }
    if let Some(pattern) = &expect.stderr {
        check_text("stderr", pattern, &seen.stderr, &mut flaws);
    }
    if let Some(limit) = expect.under.filter(|limit| seen.elapsed >= *limit) {
        let actual = format!("{:?}", seen.elapsed);
        flaws.push(Flaw::new("time", format!("less than {limit:?}"), actual));
    }
    flaws
}

/// How the process ended, unless the case is about that.
fn check_end(expect: &Expect, seen: &Observed, flaws: &mut Vec<Flaw>) {
    match (&seen.end, expect.exit) {
        (End::Exited(code), Some(expected)) if *code == i32::from(expected) => {}
        (End::NotRun, None) => {}
        (end, Some(expected)) => flaws.push(Flaw::new(
            "exit",
            format!("exit status {expected}"),
            end.to_string(),
        )),
        (end, None) => {
            let failed = match &seen.answer {
                // A hook may fail and have said why the request is denied; then it has decided.
                Some(answer) => answer.code == FAILED && expect.code != Some(FAILED),
                None => *end != End::Exited(0),
            };
            if failed {
                let told = seen.answer.as_ref().map(|answer| answer.message.as_str());
                let actual = match (end, told) {
                    (End::Exited(0), Some(message)) => message.to_owned(),
                    (end, _) => end.to_string(),
                };
                let actual = match &seen.problem {
                    Some(problem) => format!("{actual} ({problem})"),
                    None => actual,
                };
                flaws.push(Flaw::new("hook", "an answer", actual));
            }
        }
    }
}

fn check_answer(expect: &Expect, seen: &Observed, flaws: &mut Vec<Flaw>) {
    let Some(answer) = &seen.answer else {
        return;
    };
    if let Some(expected) = expect.allowed.filter(|allowed| *allowed != answer.allowed) {
        let word = |allowed| if allowed { "allowed" } else { "denied" };
        let mut actual = word(answer.allowed).to_owned();
        if !answer.allowed {
            actual = format!("denied: {}", shown_text(&answer.message));
        }
        flaws.push(Flaw::new("verdict", word(expected), actual));
        return;
    }
    if let Some(expected) = expect.code.filter(|code| *code != answer.code) {
        let actual = answer.code.to_string();
        flaws.push(Flaw::new("code", expected.to_string(), actual));
    }
    for (what, pattern, text) in [
        ("message", &expect.message, &answer.message),
        ("reason", &expect.reason, &answer.reason),
    ] {
        if let Some(pattern) = pattern {
            check_text(what, pattern, text, flaws);
        }
    }
    match &expect.warnings {
        Some(Warnings::Count(count)) if *count != answer.warnings.len() => {
            let found = answer.warnings.join("; ");
            let actual = format!("{} ({})", answer.warnings.len(), shown_text(&found));
            flaws.push(Flaw::new("warnings", count.to_string(), actual));
        }
        Some(Warnings::These(patterns)) => {
            check_texts("warnings", patterns, &answer.warnings, flaws);
        }
        _ => {}
    }
    if let Some(expected) = &expect.audit_annotations {
        let annotations = serde_json::to_value(&answer.audit_annotations).unwrap_or_default();
        compare(
            "auditAnnotations",
            expected,
            Some(&annotations),
            false,
            flaws,
        );
    }
}

/// What the hook made of the object.
fn check_change(expect: &Expect, seen: &Observed, flaws: &mut Vec<Flaw>) {
    if let Some(expected) = &expect.patched {
        compare("patched", expected, seen.patched.as_ref(), false, flaws);
    }
    if let Some(expected) = &expect.patched_exactly {
        compare("patched", expected, seen.patched.as_ref(), true, flaws);
    }
    if let Some(expected) = &expect.patch {
        let (expected, actual) = (
            Value::from(expected.clone()),
            Value::from(seen.patch.clone()),
        );
        compare("patch", &expected, Some(&actual), true, flaws);
    }
}

fn check_conversion(expect: &Expect, seen: &Observed, flaws: &mut Vec<Flaw>) {
    match (&seen.converted, &expect.converted, &expect.message) {
        (None, ..) => {}
        (Some(Err(message)), _, Some(pattern)) => check_text("message", pattern, message, flaws),
        (Some(Err(message)), _, None) if expect.exit.is_none() => {
            let actual = format!("it failed: {}", shown_text(message));
            flaws.push(Flaw::new("conversion", "converted objects", actual));
        }
        (Some(Err(_)), _, None) => {}
        (Some(Ok(objects)), _, Some(pattern)) => {
            let actual = format!("{} converted objects", objects.len());
            let expected = format!("that it fails with {pattern}");
            flaws.push(Flaw::new("conversion", expected, actual));
        }
        (Some(Ok(objects)), Some(expected), None) => {
            check_list("converted", expected, objects, flaws);
        }
        (Some(Ok(_)), None, None) => {}
    }
}

fn check_text(what: &str, pattern: &Pattern, text: &str, flaws: &mut Vec<Flaw>) {
    if !pattern.matches(text) {
        flaws.push(Flaw::new(what, pattern.to_string(), shown_text(text)));
    }
}

fn check_texts(what: &str, patterns: &[Pattern], texts: &[String], flaws: &mut Vec<Flaw>) {
    if patterns.len() != texts.len() {
        let actual = format!("{} ({})", texts.len(), shown_text(&texts.join("; ")));
        flaws.push(Flaw::new(what, patterns.len().to_string(), actual));
        return;
    }
    for (index, (pattern, text)) in patterns.iter().zip(texts).enumerate() {
        check_text(&format!("{what}[{index}]"), pattern, text, flaws);
    }
}

/// As many, in the same order, each with at least the expected fields.
fn check_list(what: &str, expected: &[Value], actual: &[Value], flaws: &mut Vec<Flaw>) {
    let (expected, actual) = (Value::from(expected.to_vec()), Value::from(actual.to_vec()));
    compare(what, &expected, Some(&actual), false, flaws);
}

/// Tells every path at which the two differ. Unless `whole`, fields that are not expected are passed over in maps, and an expected
/// null means that there is no such field.
pub(super) fn compare(
    path: &str,
    expected: &Value,
    actual: Option<&Value>,
    whole: bool,
    flaws: &mut Vec<Flaw>,
) {
    if flaws.len() >= MOST_DIFFERENCES {
        return;
    }
    match (expected, actual) {
        (Value::Object(fields), Some(Value::Object(others))) => {
            for (key, value) in fields {
                compare(&step(path, key), value, others.get(key), whole, flaws);
            }
            for (key, value) in others.iter().filter(|_| whole) {
                if !fields.contains_key(key) {
                    flaws.push(Flaw::new(step(path, key), "nothing", shown(Some(value))));
                }
            }
        }
        (Value::Array(items), Some(Value::Array(others))) if items.len() == others.len() => {
            for (index, (item, other)) in items.iter().zip(others).enumerate() {
                compare(&format!("{path}[{index}]"), item, Some(other), whole, flaws);
            }
        }
        (Value::Array(items), Some(Value::Array(others))) => {
            let actual = format!("{}: {}", others.len(), shown(actual));
            flaws.push(Flaw::new(path, format!("{} items", items.len()), actual));
        }
        (Value::Null, None | Some(Value::Null)) => {}
        (expected, Some(actual)) if same(expected, actual) => {}
        (expected, actual) => flaws.push(Flaw::new(path, shown(Some(expected)), shown(actual))),
    }
}

/// Whether two scalars are the same; 1 and 1.0 are.
fn same(one: &Value, other: &Value) -> bool {
    one == other
        || matches!((one.as_f64(), other.as_f64()), (Some(one), Some(other)) if one.total_cmp(&other).is_eq())
}

fn step(path: &str, key: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    if !key.is_empty() && key.chars().all(is_plain) {
        format!("{path}.{key}")
    } else {
        format!("{path}[{key:?}]")
    }
}

fn shown(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(Value::Null) => "nothing (null)".to_owned(),
        Some(value) => cut(&value.to_string()),
    }
}

fn shown_text(text: &str) -> String {
    cut(&format!("{text:?}"))
}

fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown
}
