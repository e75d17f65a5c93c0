//! Match conditions: our evaluator and the API server's are asked the same, and must say the same.
//!
//! The room is included here by its path, since a test target cannot reach into a binary. Every expression is registered as a match
//! condition of a webhook (tried only), which shows whether it is accepted, and of a ValidatingAdmissionPolicy that denies what
//! matches. Each policy is for one object's name, so that all can be in force at once, and nothing is called.

use serde_json::{Value, json};

use crate::support::control_plane::unique;
use crate::support::{Answer, Api, ControlPlane, SOON, wait_for};

#[path = "../../src/cel/mod.rs"]
mod room;

use room::tests::{cases, judge, object};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// What an expression must be for the API server to take it as a match condition of a webhook.
fn refusal(api: &Api, expression: &str) -> Option<String> {
    let answer = api.create(
        &format!("{GROUP}/validatingwebhookconfigurations?dryRun=All"),
        &json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": "expression" },
            "webhooks": [{
                "name": "expression.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": { "url": "https://127.0.0.1:1/" },
                "rules": [rule(&["*"])],
                "matchConditions": [{ "name": "expression", "expression": expression }],
            }],
        }),
    );
    (answer.status != 201).then(|| answer.text())
}

/// Names other than `*` are those of the objects that it is for.
fn rule(names: &[&str]) -> Value {
    let mut rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"],
    });
    if names != ["*"] {
        rule["resourceNames"] = json!(names);
    }
    rule
}

/// A policy and its binding, which deny ConfigMaps of the policy's name that match the expression.
#[track_caller]
fn enforce(api: &Api, name: &str, expression: &str) {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [rule(&[name])] },
            "matchConditions": [{ "name": "expression", "expression": expression }],
            "validations": [{ "expression": "false", "message": "it matches" }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": name },
        "spec": { "policyName": name, "validationActions": ["Deny"] },
    });
    for (plural, object) in [
        ("validatingadmissionpolicies", policy),
        ("validatingadmissionpolicybindings", binding),
    ] {
        let answer = api.create(&format!("{GROUP}/{plural}"), &object);
        assert_eq!(answer.status, 201, "{expression}: {}", answer.text());
    }
}

fn ask(api: &Api, name: &str) -> Answer {
    let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
    api.create(path, &object(name))
}

/// The API server's verdict, in the words of the table.
fn verdict(answer: &Answer) -> &'static str {
    let text = answer.text();
    match answer.status {
        201 => "false",
        _ if text.contains("it matches") => "true",
        _ if text.contains("resulted in error") => "error",
        _ => "neither",
    }
}

/// Removes the policies, also when the test panics: they are asked about every ConfigMap of the other tests.
struct Policies<'a> {
    api: &'a Api,
    names: Vec<String>,
}

impl Drop for Policies<'_> {
    fn drop(&mut self) {
        for name in &self.names {
            for plural in [
                "validatingadmissionpolicybindings",
                "validatingadmissionpolicies",
            ] {
                let path = format!("{GROUP}/{plural}/{name}");
                let _ = self.api.try_ask("DELETE", &path, "application/json", b"");
            }
        }
    }
}

#[test]
fn expressions_mean_here_what_they_mean_to_the_api_server() {
    let plane = ControlPlane::shared();
    let api = plane.api();
    let prefix = unique("cel");
    let mut policies = Policies {
        api: &api,
        names: Vec::new(),
    };
    let mut asked = Vec::new();
    let mut wrong = Vec::new();
    for (index, (theirs, ours, expression)) in cases().enumerate() {
        if let Some(refusal) = refusal(&api, expression) {
            if theirs != "invalid" {
                wrong.push(format!("{expression}: refused with {refusal}"));
            }
            continue;
        }
        let name = format!("{prefix}-{index}");
        enforce(&api, &name, expression);
        policies.names.push(name.clone());
        asked.push((name, theirs, ours, expression));
    }
    let last = format!("{prefix}-last");
    enforce(&api, &last, "true");
    policies.names.push(last.clone());
    wait_for("the policies to be in force", SOON, || {
        ask(&api, &last).status != 201
    });
    for (name, theirs, ours, expression) in &asked {
        let answer = ask(&api, name);
        let found = verdict(&answer);
        let (judged, words) = judge(expression, name);
        if found != *theirs || judged != *ours {
            let text = answer.text();
            wrong.push(format!(
                "{expression}: the API server says {found} ({text}), we say {judged} {words}"
            ));
        }
    }
    assert!(asked.len() > 300, "{}", asked.len());
    assert!(wrong.is_empty(), "{}\n{}", wrong.len(), wrong.join("\n"));
}
