//! Every operation, and what it does to the object.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Site, documents};
use crate::support::control_plane::unique;
use crate::support::stage::script;
use crate::support::{SOON, repository, wait_for};

#[test]
fn objects_are_created_kept_or_replaced() {
    let site = Site::new("creating");
    site.create_map("kept", &json!({ "old": "1" }));
    site.create_map("replaced", &json!({ "old": "1" }));
    let create = |operation: &str, name: &str| json!({ "operation": operation, "object": site.object(name, &json!({ "new": "2" })) });
    let mut generated = create("Create", "unused");
    generated["object"]["metadata"] =
        json!({ "generateName": "made-", "namespace": site.namespace.name });
    let _operator = site.run(&documents(&[
        create("Create", "fresh"),
        create("CreateIfNotExists", "kept"),
        create("CreateIfNotExists", "absent"),
        create("CreateOrUpdate", "replaced"),
        create("CreateOrUpdate", "first"),
        generated,
    ]));
    for name in ["fresh", "absent", "replaced", "first"] {
        // All of the object: a field that is not given is gone.
        assert_eq!(site.map(name)["data"], json!({ "new": "2" }), "{name}");
    }
    assert_eq!(site.map("kept")["data"], json!({ "old": "1" }));
    let all = site.api.object(&site.maps());
    let names = all["items"].as_array().unwrap().iter();
    let made = names.filter(|item| {
        item["metadata"]["name"]
            .as_str()
            .unwrap()
            .starts_with("made-")
    });
    assert_eq!(made.count(), 1);
}

#[test]
fn patches_of_every_sort_change_the_object() {
    let site = Site::new("patching");
    for name in ["merge", "merge-text", "json", "json-text", "jq", "same"] {
        site.create_map(name, &json!({ "a": "1", "b": "2" }));
    }
    let before = site.map("same")["metadata"]["resourceVersion"].clone();
    let merge = json!({ "data": { "a": null, "c": "3" } });
    let items = json!([{ "op": "remove", "path": "/data/a" }, { "op": "add", "path": "/data/c", "value": "3" }]);
    let yaml = "- op: remove\n  path: /data/a\n- op: add\n  path: /data/c\n  value: \"3\"\n";
    let filter =
        "del(.data.a, .metadata.labels.x) | .data.c = \"3\" | .metadata.annotations.by = \"jq\"";
    let _operator = site.run(&documents(&[
        site.on("MergePatch", "merge", &json!({ "mergePatch": merge })),
        site.on(
            "MergePatch",
            "merge-text",
            &json!({ "mergePatch": "data: {a: null, c: '3'}" }),
        ),
        site.on("JSONPatch", "json", &json!({ "jsonPatch": items })),
        site.on("JSONPatch", "json-text", &json!({ "jsonPatch": yaml })),
        site.on("JQPatch", "jq", &json!({ "jqFilter": filter })),
        site.on("JQPatch", "same", &json!({ "jqFilter": "." })),
        // Without apiVersion, and by another name of the kind.
        json!({
            "operation": "MergePatch", "kind": "cm", "namespace": site.namespace.name,
            "name": "merge", "mergePatch": { "metadata": { "labels": { "x": "y" } } },
        }),
    ]));
    for name in ["merge", "merge-text", "json", "json-text", "jq"] {
        assert_eq!(
            site.map(name)["data"],
            json!({ "b": "2", "c": "3" }),
            "{name}"
        );
    }
    assert_eq!(site.map("merge")["metadata"]["labels"]["x"], "y");
    assert_eq!(site.map("jq")["metadata"]["annotations"]["by"], "jq");
    assert_eq!(site.map("same")["metadata"]["resourceVersion"], before);
    let managers = site.map("merge")["metadata"]["managedFields"].to_string();
    assert!(managers.contains("\"shell-operator\""), "{managers}");
}

const DEPLOYMENT: &str = "
operation: CreateOrUpdate
object:
  apiVersion: apps/v1
  kind: Deployment
  metadata:
    name: web
    namespace: NAMESPACE
  spec:
    replicas: REPLICAS
    selector: {matchLabels: {app: web}}
    template:
      metadata: {labels: {app: web}}
      spec:
        terminationGracePeriodSeconds: 0x10
        containers:
        - name: web
          image: web:1
          ports: [{containerPort: 8080}]
        volumes:
        - name: files
          configMap: {name: files, defaultMode: 0644}
";

fn deployments(site: &Site) -> String {
    format!(
        "/apis/apps/v1/namespaces/{}/deployments",
        site.namespace.name
    )
}

/// The original panics on the second of these documents, for ever.
#[test]
fn integers_in_yaml_are_integers_also_when_the_object_is_there() {
    let site = Site::new("integers");
    let document = DEPLOYMENT.replace("NAMESPACE", &site.namespace.name);
    let file = [3, 5].map(|count| document.replace("REPLICAS", &count.to_string()));
    let _operator = site.run(&file.join("---"));
    let deployment = site.api.object(&format!("{}/web", deployments(&site)));
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 5);
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["volumes"][0]["configMap"]["defaultMode"], 420);
    assert_eq!(pod["terminationGracePeriodSeconds"], 16);
}

#[test]
fn a_subresource_is_changed_and_nothing_else() {
    let site = Site::new("subresource");
    let document = DEPLOYMENT.replace("NAMESPACE", &site.namespace.name);
    let document = document.replace("REPLICAS", "2");
    let on = |operation: &str, more: &str| {
        format!(
            "---\noperation: {operation}\nkind: Deployment\nnamespace: {}\nname: web\n{more}\n",
            site.namespace.name
        )
    };
    let file = [
        document,
        on(
            "MergePatch",
            "subresource: status\nmergePatch: {spec: {replicas: 9}, status: {observedGeneration: 7}}",
        ),
        on(
            "JQPatch",
            "subresource: /status\njqFilter: '.spec.replicas = 8 | .status.readyReplicas = 1 | .status.replicas = 1'",
        ),
        on(
            "JSONPatch",
            "subresource: scale\njsonPatch: [{op: replace, path: /spec/replicas, value: 4}]",
        ),
    ];
    let _operator = site.run(&file.concat());
    let deployment = site.api.object(&format!("{}/web", deployments(&site)));
    assert_eq!(deployment["spec"]["replicas"], 4);
    assert_eq!(deployment["status"]["observedGeneration"], 7);
    assert_eq!(deployment["status"]["readyReplicas"], 1);
}

/// Nobody collects garbage here: the finalizer that a propagation sets stays, and shows which it was.
#[test]
fn the_three_deletions_differ_in_what_they_do_to_dependents() {
    let site = Site::new("deleting");
    for name in ["foreground", "background", "orphan"] {
        site.create_map(name, &json!({}));
    }
    site.hook_that(
        &documents(&[
            site.on("DeleteInBackground", "background", &json!({})),
            site.on("DeleteNonCascading", "orphan", &json!({})),
            site.on("Delete", "absent", &json!({})),
            site.on("Delete", "foreground", &json!({})),
            site.on("Delete", "foreground", &json!({})),
        ]),
        "",
    );
    let operator = site.env.start();
    let path = |name: &str| format!("{}/{name}", site.maps());
    let finalizers = |name: &str| {
        let object = site.api.get(&path(name)).json();
        object["metadata"]["finalizers"].clone()
    };
    wait_for("the finalizer of the foreground deletion", SOON, || {
        finalizers("foreground") == json!(["foregroundDeletion"])
    });
    assert_eq!(finalizers("orphan"), json!(["orphan"]));
    assert_eq!(site.api.get(&path("background")).status, 404);
    let done = |operator: &crate::support::Operator| {
        let lines = operator.log_lines();
        lines
            .iter()
            .any(|line| line.message() == "Hook executed successfully")
    };
    assert!(!done(&operator), "the run waits until the object is gone");
    site.api.merge(
        &path("foreground"),
        &json!({ "metadata": { "finalizers": null } }),
    );
    operator.wait_ready();
    assert!(done(&operator));
    assert_eq!(site.api.get(&path("foreground")).status, 404);
}

#[test]
fn a_foreground_deletion_that_does_not_end_fails_after_twenty_seconds() {
    let site = Site::new("held");
    site.create_map("held", &json!({}));
    site.hook_that(&documents(&[site.on("Delete", "held", &json!({}))]), "");
    let operator = site.env.start();
    let line = operator.wait_log_for(
        "the failed run",
        Duration::from_secs(60),
        super::is_failed_run,
    );
    let error = line.label("error").unwrap();
    assert!(error.contains("context deadline exceeded"), "{error}");
    assert!(
        error.contains(&format!(
            "Delete object v1/ConfigMap/{}/held: ",
            site.namespace.name
        )),
        "{error}"
    );
}

#[test]
fn server_side_apply_shares_the_object_with_others() {
    let site = Site::new("applying");
    site.create_map("shared", &json!({ "theirs": "1", "both": "1" }));
    let apply = |data: Value, more: Value| {
        let mut operation = json!({ "operation": "Apply", "object": site.object("shared", &data) });
        for (key, value) in more.as_object().unwrap() {
            operation[key] = value.clone();
        }
        operation
    };
    {
        let fresh =
            json!({ "operation": "Apply", "object": site.object("fresh", &json!({ "a": "1" })) });
        let _operator = site.run(&documents(&[
            apply(json!({ "ours": "2" }), json!({ "fieldManager": "one" })),
            fresh,
        ]));
        let expected = json!({ "theirs": "1", "both": "1", "ours": "2" });
        assert_eq!(site.map("shared")["data"], expected);
        assert_eq!(
            site.map("fresh")["metadata"]["managedFields"][0]["manager"],
            "shell-operator"
        );
        assert_eq!(
            site.map("fresh")["metadata"]["managedFields"][0]["operation"],
            "Apply"
        );
    }
    {
        let (_operator, error) = site.fail(&documents(&[apply(
            json!({ "ours": "2", "both": "2" }),
            json!({ "fieldManager": "one" }),
        )]));
        assert!(error.contains("409 Conflict"), "{error}");
        assert_eq!(site.map("shared")["data"]["both"], "1");
    }
    let _operator = site.run(&documents(&[apply(
        json!({ "both": "2" }),
        json!({ "fieldManager": "one", "force": true }),
    )]));
    // What the manager no longer names is taken away, what others own stays.
    assert_eq!(
        site.map("shared")["data"],
        json!({ "theirs": "1", "both": "2" })
    );
}

#[test]
fn cluster_scoped_objects_and_custom_kinds_are_changed_too() {
    let site = Site::new("kinds");
    let made = unique("made-by-a-hook");
    site.namespace
        .apply(&site.namespace.crd("gadgets", "Gadget"));
    let group = format!("{}.example.com", site.namespace.name);
    let path = format!(
        "/apis/{group}/v1/namespaces/{}/gadgets",
        site.namespace.name
    );
    wait_for("the kind to be served", SOON, || {
        site.api.get(&path).status == 200
    });
    let gadget = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Gadget",
        "metadata": { "name": "one", "namespace": site.namespace.name }, "spec": { "size": 3 },
    });
    let _operator = site.run(&documents(&[
        json!({ "operation": "Create", "object": { "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": made } } }),
        json!({ "operation": "MergePatch", "kind": "Namespace", "name": made, "mergePatch": { "metadata": { "labels": { "a": "b" } } } }),
        json!({ "operation": "CreateOrUpdate", "object": gadget }),
        json!({
            "operation": "JQPatch", "apiVersion": format!("{group}/v1"), "kind": "Gadget",
            "namespace": site.namespace.name, "name": "one", "jqFilter": ".spec.size += 1",
        }),
    ]));
    let namespace = site.api.object(&format!("/api/v1/namespaces/{made}"));
    assert_eq!(namespace["metadata"]["labels"]["a"], "b");
    assert_eq!(site.api.object(&format!("{path}/one"))["spec"]["size"], 4);
}

/// Upstream issue 346.
#[test]
fn an_object_out_of_a_snapshot_can_be_written_back_and_copied() {
    let site = Site::new("snapshot");
    site.create_map("source", &json!({ "a": "1" }));
    let config = json!({
        "configVersion": "v1",
        "kubernetes": [{
            "name": "maps", "apiVersion": "v1", "kind": "ConfigMap",
            "nameSelector": { "matchNames": ["source"] },
            "namespace": { "nameSelector": { "matchNames": [site.namespace.name] } },
        }],
    });
    let body = "jq -c '.[0].objects[].object
      | {operation: \"CreateOrUpdate\", object: (.data.b = \"2\")},
        {operation: \"CreateOrUpdate\", object: (.metadata.name = \"copy\")},
        {operation: \"Apply\", object: (.metadata.name = \"applied\")}
    ' \"$BINDING_CONTEXT_PATH\" >\"$KUBERNETES_PATCH_PATH\"";
    let synchronization = body.replace(
        ".[0].objects[]",
        ".[0] | select(.type == \"Synchronization\") | .objects[]",
    );
    site.env
        .write_hook("copy.sh", &script(&config, &synchronization));
    let operator = site.env.start();
    operator.wait_ready();
    assert_eq!(site.map("source")["data"], json!({ "a": "1", "b": "2" }));
    assert_eq!(site.map("copy")["data"], json!({ "a": "1" }));
    assert_eq!(site.map("applied")["data"], json!({ "a": "1" }));
}

/// The operations printed in `hooks/README.md`, as they stand there, and the hook that is printed above them.
#[test]
fn what_the_readme_prints_does_what_it_says() {
    let site = Site::new("printed");
    site.create_map("old-settings", &json!({}));
    let readme = std::fs::read_to_string(repository().join("hooks/README.md")).unwrap();
    let block = |mark: &str| {
        let (_, rest) = readme.split_once(&format!("<!-- {mark} -->\n```")).unwrap();
        let (_, rest) = rest.split_once('\n').unwrap();
        rest.split_once("\n```\n").unwrap().0.to_owned()
    };
    let label =
        json!({ "metadata": { "labels": { "welcome.example.com/enabled": site.namespace.name } } });
    let path = format!("/api/v1/namespaces/{}", site.namespace.name);
    assert_eq!(site.api.merge(&path, &label).status, 200);
    let hook = block("hook: welcome.sh").replace(
        "enabled: \"true\"",
        &format!("enabled: {}", site.namespace.name),
    );
    site.env.write_hook("welcome.sh", &hook);
    let operations = block("operations").replace(
        "namespace: shop",
        &format!("namespace: {}", site.namespace.name),
    );
    let _operator = site.run(&operations);
    let settings = site.map("settings");
    assert_eq!(settings["data"], json!({ "color": "BLUE", "weight": "7" }));
    assert_eq!(settings["metadata"]["labels"]["owner"], "shop");
    assert_eq!(settings["metadata"]["annotations"]["checked"], "yes");
    assert_eq!(
        site.api
            .get(&format!("{}/old-settings", site.maps()))
            .status,
        404
    );
    assert_eq!(
        site.map("welcome")["data"]["text"],
        format!("this is {}", site.namespace.name)
    );
}
