//! `review` as people call it: every flag, every way to hand in manifests, and every mistake that can be made with them.
//!
//! What is proven against a real API server is in `cluster/offline`; here nothing listens and nothing is dialled.

/// Ways to hand in manifests, and the mistakes in them.
mod inputs;
/// What the command line says about a request.
mod requests;
/// The shipped samples, as the README shows them.
mod samples;
/// Objects that are there already.
mod snapshots;

use serde_json::{Value, json};

use crate::support::{Env, Output};

/// A hook with one webhook `NAME.example.com`; `body` is sh.
fn hook(env: &Env, name: &str, section: &str, binding: &Value, body: &str) {
    hook_with(env, name, &json!({}), section, binding, body);
}

fn hook_with(env: &Env, name: &str, more: &Value, section: &str, binding: &Value, body: &str) {
    let mut whole = json!({
        "name": format!("{name}.policy.example.com"),
        "rules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"] }],
    });
    for (key, value) in binding.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let mut config = json!({ "configVersion": "v1", section: [whole] });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --config ]; then\ncat <<'CONFIG'\n{config}\nCONFIG\nexit 0\nfi\n{body}\n"
    );
    env.write_hook(&format!("{name}.sh"), &script);
}

/// Denies everything with what jq makes of the request.
fn show(env: &Env, program: &str) {
    show_with(env, &json!({}), program);
}

fn show_with(env: &Env, binding: &Value, program: &str) {
    let body = format!(
        "jq -c '{{allowed: false, message: (.[0].review.request | {program})}}' \"$BINDING_CONTEXT_PATH\" >\"$VALIDATING_RESPONSE_PATH\""
    );
    hook(env, "show", "kubernetesValidating", binding, &body);
}

const ALLOW: &str = r#"echo '{"allowed": true}' >"$VALIDATING_RESPONSE_PATH""#;

fn pod(name: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{}}\n")
}

/// Writes the manifest and reviews it with these arguments more.
#[track_caller]
fn review(env: &Env, manifest: &str, more: &[&str]) -> Output {
    env.write("manifest.yaml", manifest);
    let mut arguments = vec!["review", "-f", "manifest.yaml"];
    arguments.extend(more);
    env.run(&arguments)
}

/// The messages of all denials.
#[track_caller]
fn denials(output: &Output) -> Vec<String> {
    assert_eq!(output.code, Some(1), "{}", output.all());
    let rows = output
        .stdout
        .lines()
        .filter(|line| line.contains("  denied  "));
    let messages = rows.map(|row| {
        row.split(".policy.example.com")
            .nth(1)
            .unwrap()
            .trim()
            .to_owned()
    });
    messages.collect()
}
