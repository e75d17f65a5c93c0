//! Files that are wrong, objects that are not there, hooks that fail, and an operator that is told to stop.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{Site, documents, is_failed_run};
use crate::support::{SOON, wait_for};

#[test]
fn one_bad_document_keeps_all_others_from_being_carried_out() {
    let site = Site::new("bad");
    site.create_map("there", &json!({}));
    let good = site.on(
        "MergePatch",
        "there",
        &json!({ "mergePatch": { "data": { "x": "1" } } }),
    );
    let bad = site.on("MergePatch", "there", &json!({}));
    let (mut operator, error) = site.fail(&documents(&[good.clone(), bad, good]));
    let expected = format!(
        "object patch file: can't validate document 2 (MergePatch v1/ConfigMap/{}/there): mergePatch is required",
        site.namespace.name
    );
    assert_eq!(error, expected);
    assert!(site.map("there").get("data").is_none());
    assert!(operator.is_running());
}

/// The API server decodes `%2F` before it takes a path apart, so that a name with a slash would be another object, or all of them.
/// Such a document is refused like every other bad one: nothing of its file runs.
#[test]
fn a_name_with_a_slash_reaches_no_other_object() {
    let site = Site::new("slash");
    for name in ["there", "other"] {
        site.create_map(name, &json!({}));
    }
    let namespace = site.namespace.name.clone();
    let elsewhere = format!("{namespace}/configmaps");
    let there = format!("{namespace}/configmaps/there");
    let merge = json!({ "data": { "x": "1" } });
    let good = site.on("MergePatch", "other", &json!({ "mergePatch": merge }));
    let bad = [
        json!({ "operation": "Delete", "kind": "Namespace", "name": elsewhere }),
        json!({ "operation": "DeleteInBackground", "kind": "Namespace", "name": elsewhere }),
        json!({ "operation": "DeleteNonCascading", "kind": "Namespace", "name": there }),
        json!({ "operation": "DeleteInBackground", "kind": "Namespace", "name": elsewhere.replace('/', "%2F") }),
        json!({ "operation": "MergePatch", "kind": "Namespace", "name": there, "mergePatch": merge }),
        json!({ "operation": "MergePatch", "kind": "Namespace", "name": namespace, "subresource": "configmaps/there", "mergePatch": merge }),
        json!({ "operation": "JSONPatch", "kind": "Namespace", "name": there,
            "jsonPatch": [{ "op": "add", "path": "/data", "value": { "x": "1" } }] }),
        json!({ "operation": "JQPatch", "kind": "Namespace", "name": there, "jqFilter": ".data.x = \"1\"" }),
        json!({ "operation": "DeleteInBackground", "kind": "Secret", "namespace": there, "name": ".." }),
        json!({ "operation": "Create", "object": {
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": elsewhere } } }),
        json!({ "operation": "CreateOrUpdate", "object": {
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": there } } }),
        json!({ "operation": "Apply", "object": {
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": there } } }),
    ];
    let before = ["there", "other"].map(|name| site.map(name));
    for bad in bad {
        let (mut operator, error) =
            site.fail(&documents(&[good.clone(), bad.clone(), good.clone()]));
        assert!(
            error.contains("can't validate document 2"),
            "{bad}: {error}"
        );
        assert!(
            error.contains("must not be \".\" or \"..\""),
            "{bad}: {error}"
        );
        assert!(operator.is_running());
        assert_eq!(
            ["there", "other"].map(|name| site.map(name)),
            before,
            "{bad}"
        );
    }
}

#[test]
fn a_failed_operation_is_named_and_the_others_are_carried_out() {
    let site = Site::new("failing");
    for name in ["there", "taken"] {
        site.create_map(name, &json!({}));
    }
    let merge = json!({ "mergePatch": { "data": { "x": "1" } } });
    let mut ignored = site.on("MergePatch", "absent", &merge);
    ignored["ignoreMissingObject"] = json!(true);
    let mut filtered = site.on("JQPatch", "absent", &json!({ "jqFilter": "." }));
    filtered["ignoreMissingObject"] = json!(true);
    let (operator, error) = site.fail(&documents(&[
        json!({ "operation": "Create", "object": site.object("taken", &json!({})) }),
        site.on("MergePatch", "absent", &merge),
        site.on(
            "JSONPatch",
            "there",
            &json!({ "jsonPatch": [{ "op": "test", "path": "/kind", "value": "x" }] }),
        ),
        site.on("JQPatch", "there", &json!({ "jqFilter": "error" })),
        site.on("JQPatch", "there", &json!({ "jqFilter": ".metadata.name" })),
        json!({ "operation": "Delete", "kind": "Nowhere", "name": "x" }),
        ignored,
        filtered,
        site.on("MergePatch", "there", &merge),
    ]));
    let namespace = &site.namespace.name;
    assert!(error.starts_with("6 errors occurred:\n"), "{error}");
    for expected in [
        format!(
            "Create object v1/ConfigMap/{namespace}/taken: document 1, Create: POST {}: 409 AlreadyExists",
            site.maps()
        ),
        format!(
            "Filter object v1/ConfigMap/{namespace}/absent: document 2, MergePatch: PATCH {}/absent: 404 NotFound",
            site.maps()
        ),
        format!("Filter object v1/ConfigMap/{namespace}/there: document 3, JSONPatch: "),
        format!(
            "Filter object v1/ConfigMap/{namespace}/there: document 4, JQPatch: the jqFilter failed"
        ),
        format!(
            "Filter object v1/ConfigMap/{namespace}/there: document 5, JQPatch: the jqFilter must make one object"
        ),
        "Delete object Nowhere/x: document 6, Delete: ".to_owned(),
    ] {
        assert!(error.contains(&expected), "{expected}\n{error}");
    }
    assert_eq!(site.map("there")["data"]["x"], "1");
    let lines = operator.log_lines();
    let named: Vec<_> = lines
        .iter()
        .filter(|line| line.message() == "object operation failed")
        .collect();
    assert_eq!(named.len(), 6);
    assert_eq!(named[1].label("kind"), Some("ConfigMap"));
    assert_eq!(named[1].label("namespace"), Some(namespace.as_str()));
    assert_eq!(named[1].label("name"), Some("absent"));
    assert_eq!(named[1].label("operation"), Some("MergePatch"));
    assert_eq!(named[1].label("hook"), Some("change.sh"));
}

/// The original documents `ignoreHookError` and does nothing about it.
#[test]
fn a_failed_hook_changes_only_what_it_marked() {
    let site = Site::new("marked");
    site.create_map("there", &json!({}));
    let plain = json!({ "mergePatch": { "data": { "plain": "1" } } });
    let marked = json!({ "mergePatch": { "data": { "marked": "1" } }, "ignoreHookError": true });
    site.hook_that(
        &documents(&[
            site.on("MergePatch", "there", &plain),
            site.on("MergePatch", "there", &marked),
        ]),
        "echo broken >&2; exit 3",
    );
    let operator = site.env.start();
    let line = operator.wait_log("the failed run", is_failed_run);
    assert!(
        line.label("error").unwrap().contains("broken"),
        "{}",
        line.text
    );
    assert_eq!(site.map("there")["data"], json!({ "marked": "1" }));
}

#[test]
fn a_hook_whose_metrics_cannot_be_read_changes_what_it_marked() {
    let site = Site::new("marked-metrics");
    site.create_map("there", &json!({}));
    let plain = json!({ "mergePatch": { "data": { "plain": "1" } } });
    let marked = json!({ "mergePatch": { "data": { "marked": "1" } }, "ignoreHookError": true });
    site.hook_that(
        &documents(&[
            site.on("MergePatch", "there", &plain),
            site.on("MergePatch", "there", &marked),
        ]),
        "echo nonsense >\"$METRICS_PATH\"",
    );
    let operator = site.env.start();
    operator.wait_log("the failed run", is_failed_run);
    assert_eq!(site.map("there")["data"], json!({ "marked": "1" }));
}

/// T16: through every operation, and through every way to fail.
#[test]
fn a_value_of_a_secret_is_never_in_the_log() {
    const MARKER: &str = "marker-4711-of-the-secret";
    let site = Site::new("secret-operations");
    let encoded = STANDARD.encode(MARKER);
    let namespace = site.namespace.name.clone();
    let secret = |name: &str, more: serde_json::Value| {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name, "namespace": namespace }, "data": { "value": encoded },
        });
        for (key, value) in more.as_object().unwrap() {
            secret[key] = value.clone();
        }
        secret
    };
    let on = |operation: &str, name: &str, more: serde_json::Value| {
        let mut operation = site.on(operation, name, &more);
        operation["kind"] = json!("Secret");
        operation
    };
    let create = |operation: &str, object: serde_json::Value| json!({ "operation": operation, "object": object });
    let (operator, error) = site.fail(&documents(&[
        create("Create", secret("a", json!({}))),
        create("CreateOrUpdate", secret("a", json!({ "type": "Opaque" }))),
        create("Apply", secret("b", json!({}))),
        on("MergePatch", "a", json!({ "mergePatch": { "stringData": { "more": MARKER } } })),
        on("JQPatch", "a", json!({ "jqFilter": format!(".data.again = \"{encoded}\"") })),
        // From here on all fail.
        create("Create", secret("a", json!({}))),
        create("CreateOrUpdate", secret("a", json!({ "type": MARKER }))),
        create("Create", secret("c", json!({ "data": { "value": MARKER } }))),
        create("Create", secret("c", json!({ "metadata": { "name": "c", "namespace": namespace, "labels": { "x": format!("{MARKER}!") } } }))),
        on("MergePatch", "a", json!({ "mergePatch": { "data": { "value": MARKER } } })),
        on("MergePatch", "a", json!({ "mergePatch": { "data": MARKER } })),
        on("JSONPatch", "a", json!({ "jsonPatch": [{ "op": "test", "path": "/data/value", "value": MARKER }] })),
        on("JQPatch", "a", json!({ "jqFilter": "error(.data.value | @base64d)" })),
        on("JQPatch", "a", json!({ "jqFilter": ".data.value" })),
    ]));
    assert!(error.starts_with("9 errors occurred:"), "{error}");
    let found = site
        .api
        .object(&format!("/api/v1/namespaces/{namespace}/secrets/a"));
    assert_eq!(
        found["data"],
        json!({ "value": encoded, "more": encoded, "again": encoded })
    );
    for text in [MARKER, encoded.as_str()] {
        for line in operator.log_lines() {
            assert!(!line.contains(text), "{}", line.text);
        }
    }
    drop(operator);
    // Documents that cannot be read at all: the reader of YAML may quote what it does not understand.
    for object in [
        format!("  data: {{k: {MARKER}\n"),
        format!("  data: {{k: !!int {MARKER}}}\n"),
        format!("  data: {{k: !!{MARKER} x}}\n"),
        format!("  data: {{k: *{MARKER}}}\n"),
        format!("  data: {{{MARKER}: 1, {MARKER}: 2}}\n"),
        format!("  data: {{k: \"{MARKER}\\q\"}}\n"),
    ] {
        let (operator, error) = site.fail(&format!("operation: Create\nobject:\n{object}"));
        assert!(error.contains("document 1 cannot be read: YAML"), "{error}");
        for line in operator.log_lines() {
            assert!(!line.contains(MARKER), "{}", line.text);
        }
    }
}

/// A hook that may finish within the grace period has its changes made, too.
#[test]
fn a_hook_that_ends_during_the_stop_has_its_changes_made() {
    let site = Site::new("stopping");
    site.create_map("there", &json!({}));
    let merge = json!({ "mergePatch": { "data": { "x": "1" } } });
    site.hook_that(
        &documents(&[site.on("MergePatch", "there", &merge)]),
        "touch began; while [ ! -e end ]; do sleep 0.05; done",
    );
    let mut operator = site.env.start();
    let began = site.env.hooks_dir().join("began");
    wait_for("the hook to run", SOON, || began.exists());
    operator.term();
    operator.wait_log("the stop", |line| line.message() == "stopping");
    std::fs::write(site.env.hooks_dir().join("end"), "").unwrap();
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
    assert_eq!(site.map("there")["data"]["x"], "1");
}
