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
