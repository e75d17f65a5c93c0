//! Unit tests of the room: what a real API server decided, what it refuses, and input that means harm.

mod hostile;
mod words;

use serde_json::{Value, json};

use super::{Expression, Outcome, Variables};

/// Expressions with what Kubernetes 1.36 made of them; `tests/cluster/cel.rs` asks it again. After a slash stands what we say
/// where that is less than the API server knows.
pub(crate) const CASES: &str = include_str!("cases.txt");

/// A line of the table: what the API server says, what we say, the expression.
pub(crate) fn cases() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    CASES.lines().filter_map(|line| {
        let (expected, expression) = line.split_once(' ')?;
        let (theirs, ours) = expected.split_once('/').unwrap_or((expected, expected));
        Some((theirs, ours, expression.trim()))
    })
}

/// The ConfigMap that the expressions are about.
pub(crate) fn object(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" }, "annotations": { "n": "5" } },
        "data": { "a": "1", "b": "two" },
    })
}

/// The request that creates it, as the API server shows it to expressions.
pub(crate) fn request(name: &str) -> Value {
    let kind = json!({ "group": "", "version": "v1", "kind": "ConfigMap" });
    let resource = json!({ "group": "", "version": "v1", "resource": "configmaps" });
    json!({
        "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "name": name, "namespace": "default", "operation": "CREATE", "dryRun": true,
        "userInfo": { "username": "admin", "groups": ["system:masters", "system:authenticated"] },
        "options": { "apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions", "dryRun": ["All"] },
    })
}

/// What we make of an expression, in the words of the table.
pub(crate) fn judge(expression: &str, name: &str) -> (&'static str, String) {
    let (object, request) = (object(name), request(name));
    let variables = Variables {
        object: Some(&object),
        old_object: None,
        request: Some(&request),
    };
    match Expression::parse(expression) {
        Err(error) => ("invalid", error.to_string()),
        Ok(expression) => match expression.evaluate(&variables) {
            Outcome::Bool(true) => ("true", String::new()),
            Outcome::Bool(false) => ("false", String::new()),
            Outcome::Error(words) => ("error", words),
            Outcome::CannotJudge(words) => ("unknown", words),
        },
    }
}

#[test]
fn expressions_are_judged_as_the_api_server_judged_them() {
    let mut wrong = Vec::new();
    for (theirs, ours, expression) in cases() {
        let (found, words) = judge(expression, "p1-example");
        if found != ours {
            wrong.push(format!(
                "{expression}: {theirs}, but we say {found} {words}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}
