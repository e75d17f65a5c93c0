//! What hooks see of the cluster: objects that are there, and manifests that come before.

use serde_json::json;

use super::{denials, hook_with, pod, review};
use crate::support::Env;

/// Denies with the names in the snapshot `pods`.
fn names(env: &Env, binding: &serde_json::Value) {
    let mut pods = json!({ "name": "pods", "apiVersion": "v1", "kind": "Pod" });
    for (key, value) in binding.as_object().unwrap() {
        pods[key] = value.clone();
    }
    let body = "jq -c '.[0] | {allowed: false, message: ([.snapshots.pods[] | .filterResult // .object.metadata.name] | join(\",\"))}' \
                \"$BINDING_CONTEXT_PATH\" >\"$VALIDATING_RESPONSE_PATH\"";
    let validating = json!({ "includeSnapshotsFrom": ["pods"] });
    hook_with(
        env,
        "names",
        &json!({ "kubernetes": [pods] }),
        "kubernetesValidating",
        &validating,
        body,
    );
}

#[test]
fn a_manifest_sees_what_is_there_and_what_came_before_it() {
    let env = Env::new();
    names(&env, &json!({}));
    env.write(
        "objects/pods.yaml",
        format!("{}---\n{}", pod("x"), pod("b")),
    );
    let manifests = format!("{}---\n{}---\n{}", pod("a"), pod("b"), pod("c"));
    let output = review(&env, &manifests, &["--objects", "objects"]);
    assert_eq!(denials(&output), ["b,x", "a,b,x", "a,b,x"]);
    let output = review(
        &env,
        &pod("x"),
        &["--objects", "objects", "--operation", "DELETE"],
    );
    assert_eq!(denials(&output), ["b,x"]);
}

#[test]
fn selectors_and_filters_of_the_binding_hold() {
    let env = Env::new();
    env.write(
        "objects.yaml",
        "apiVersion: v1\nkind: List\nitems:\n\
        - {apiVersion: v1, kind: Pod, metadata: {name: x, labels: {app: web}}}\n\
        - {apiVersion: v1, kind: Pod, metadata: {name: v, namespace: shop, labels: {app: web}}}\n\
        - {apiVersion: v1, kind: Secret, metadata: {name: z, labels: {app: web}}}\n",
    );
    for (binding, expected) in [
        (
            json!({ "labelSelector": { "matchLabels": { "app": "web" } }, "jqFilter": ".metadata.name + \"!\"" }),
            "x!,v!",
        ),
        (
            json!({ "namespace": { "nameSelector": { "matchNames": ["shop"] } } }),
            "v",
        ),
        (json!({ "nameSelector": { "matchNames": ["x"] } }), "x"),
    ] {
        names(&env, &binding);
        assert_eq!(
            denials(&review(&env, &pod("a"), &["--objects", "objects.yaml"])),
            [expected]
        );
    }
    names(&env, &json!({ "jqFilter": "error(\"no\")" }));
    let output = review(&env, &pod("a"), &["--objects", "objects.yaml"]);
    assert_eq!(output.code, Some(2));
    assert!(
        output
            .stdout
            .contains("its jqFilter fails on Pod default/x"),
        "{}",
        output.stdout
    );
}

/// Denies an Ingress whose host another one has, by snapshots that show the cluster as it would be.
fn one_host_each(env: &Env) {
    let ingresses = json!({
        "name": "ingresses", "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "jqFilter": "[.metadata.name, .spec.rules[].host]",
    });
    let body = "jq -c '[.[0].snapshots.ingresses[].filterResult] | group_by(.[1]) | map(select(length > 1)) \
                | if . == [] then {allowed: true} else {allowed: false, message: \"\\(.[0][0][1]) is taken by \\(.[0] | map(.[0]) | join(\" and \"))\"} end' \
                \"$BINDING_CONTEXT_PATH\" >\"$VALIDATING_RESPONSE_PATH\"";
    let validating = json!({
        "includeSnapshotsFrom": ["ingresses"], "overlay": true,
        "rules": [{
            "apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "resources": ["ingresses"], "operations": ["*"],
        }],
    });
    let more = json!({ "kubernetes": [ingresses] });
    hook_with(
        env,
        "hosts",
        &more,
        "kubernetesValidating",
        &validating,
        body,
    );
}

fn ingress(name: &str, host: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}}}\nspec: {{rules: [{{host: {host}}}]}}\n"
    )
}

/// HX-39 to HX-41: what is asked for is seen as if it were there.
#[test]
fn a_host_that_is_taken_is_refused_and_freed_by_an_update_or_a_deletion() {
    let env = Env::new();
    one_host_each(&env);
    let both = format!(
        "{}---\n{}",
        ingress("one", "a.example.com"),
        ingress("two", "a.example.com")
    );
    let output = review(&env, &both, &[]);
    assert_eq!(denials(&output), ["a.example.com is taken by one and two"]);
    assert!(
        output
            .stdout
            .contains("CREATE Ingress default/one  allowed"),
        "{}",
        output.stdout
    );
    let moved = format!(
        "{}---\n{}---\n{}",
        ingress("one", "a.example.com"),
        ingress("one", "b.example.com"),
        ingress("two", "a.example.com")
    );
    assert_eq!(review(&env, &moved, &[]).code, Some(0));
    env.write("objects.yaml", both);
    let output = review(
        &env,
        &ingress("one", "a.example.com"),
        &["--objects", "objects.yaml", "--operation", "DELETE"],
    );
    assert_eq!(output.code, Some(0), "{}", output.all());
}
