//! Forty requests and more, generated over kinds, scopes, namespaces, labels, versions and subresources, through twelve hooks: `review` must
//! say what the API server says, word for word.
//!
//! Every hook is for objects of this stage alone, by the label of its namespaces or by one on the object itself.

use serde_json::{Value, json};

use super::{Request, heard, read, review};
use crate::support::Stage;
use crate::support::stage::Kind;

/// The user that the tests' token stands for.
const USER: [&str; 4] = ["--user", "admin", "--groups", "system:masters"];

fn rule(group: &str, versions: &[&str], resource: &str, operations: &[&str]) -> Value {
    json!([{
        "apiGroups": [group], "apiVersions": versions, "resources": [resource], "operations": operations,
    }])
}

/// A body that answers with what jq makes of the request.
fn jq(program: &str) -> String {
    format!(
        "jq -c '.[0].review.request | {program}' \"$BINDING_CONTEXT_PATH\" >\"$VALIDATING_RESPONSE_PATH\""
    )
}

fn deny_if(condition: &str, message: &str) -> String {
    jq(&format!(
        "if {condition} then {{allowed: false, message: {message}}} else {{allowed: true}} end"
    ))
}

/// A patch that sets a key of `data` unless it is there.
fn set(condition: &str, key: &str, value: &str) -> String {
    jq(&format!(
        "if ({condition}) and (.object.data.{key} == null) then {{allowed: true, patch: \
         ([{{op: \"add\", path: \"/data/{key}\", value: \"{value}\"}}] | tojson | @base64)}} else {{allowed: true}} end"
    ))
}

fn hooks(stage: Stage<'static>) -> Stage<'static> {
    let label = stage.label.clone();
    let own = json!({ "matchLabels": { &label: "true" } });
    let all = ["CREATE", "UPDATE", "DELETE"];
    let shown = "\"\\(.operation) \\(.kind.kind) \\(.resource.resource)/\\(.subResource) \\(.requestKind.version) \
                 \\(.namespace) \\(.name) \\(.dryRun) \\(.options.kind) \\(.userInfo.username) \\(.object == null) \\(.oldObject == null)\"";
    let keys = "\"bad, with \\(.object.data | keys | join(\",\"))\"";
    let validating = Kind::Validating;
    stage
        .hook("a-first", Kind::Mutating, &json!({
            "rules": rule("", &["v1"], "configmaps", &["CREATE"]), "reinvocationPolicy": "IfNeeded",
        }), &set(".object.data.second != null", "reinvoked", "yes"))
        .hook("b-second", Kind::Mutating, &json!({
            "rules": rule("*", &["*"], "configmaps", &["CREATE", "UPDATE"]),
        }), &set(".object.data.start != null", "second", "yes"))
        .hook("c-data", validating, &json!({}), &deny_if(".object.data.bad != null", keys))
        .hook("d-kept", validating, &json!({
            "rules": rule("", &["v1"], "configmaps", &["DELETE"]),
        }), &deny_if(".oldObject.data.keep != null", "\"kept: \\(.oldObject.metadata.name)\""))
        .hook("e-scale", validating, &json!({
            "rules": rule("apps", &["v1"], "*/scale", &["UPDATE"]),
        }), &deny_if(".object.spec.replicas > 5", "\"from \\(.oldObject.spec.replicas) to \\(.object.spec.replicas) \\(.kind.kind)\""))
        .hook("f-status", validating, &json!({
            "rules": rule("apps", &["*"], "deployments/*", &["UPDATE"]),
        }), &deny_if("(.subResource == \"status\" and .object.status.replicas == 3) or (.subResource == null and .object.spec.replicas == 6)", "\"status of \\(.object.spec.replicas)\""))
        .hook("g-cluster", validating, &json!({
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": all, "scope": "Cluster"}],
            "labelSelector": own,
            "namespace": { "labelSelector": { "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["free"] }] } },
        }), &deny_if("true", shown))
        .hook("h-tier", validating, &json!({
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["*"], "operations": ["*"], "scope": "Namespaced"}],
            "namespace": { "labelSelector": { "matchLabels": { &label: "true" }, "matchExpressions": [
                { "key": "tier", "operator": "In", "values": ["paid", "gold"] },
            ] } },
            "labelSelector": { "matchExpressions": [{ "key": "shown", "operator": "Exists" }] },
        }), &deny_if("true", shown))
        .hook("i-condition", validating, &json!({
            "rules": rule("", &["v1"], "secrets", &all),
            "matchConditions": [
                { "name": "named", "expression": "request.name.startsWith('cond-')" },
                { "name": "strict", "expression": "request.operation == 'DELETE' || object.metadata.annotations['mode'] == 'strict'" },
            ],
        }), &deny_if("true", "\"strict \\(.name)\""))
        .hook("j-lenient", validating, &json!({
            "rules": rule("", &["v1"], "services", &all), "failurePolicy": "Ignore",
            "matchConditions": [{ "name": "mode", "expression": "object.metadata.annotations['mode'] == 'warn'" }],
        }), &jq("{allowed: true, warnings: [\"look at \\(.name)\", \"say \\\"hi\\\"\"]}"))
        .hook("k-version", validating, &json!({
            "rules": rule(&format!("{label}.example.com"), &["v1"], "CronTab", &all),
        }), &deny_if("true", "\"\\(.object.apiVersion // .oldObject.apiVersion) of \\(.requestKind.version) as \\(.kind.version)\""))
        .hook("l-evict", validating, &json!({
            "rules": rule("", &["v1"], "pods/eviction", &["CREATE"]),
        }), &deny_if("true", "\"\\(.kind.group) \\(.object.kind) \\(.name)\""))
}

fn definition(label: &str) -> Value {
    let group = format!("{label}.example.com");
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("crontabs.{group}") },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "plural": "crontabs", "kind": "CronTab" },
            "versions": [version("v1", true), version("v1beta1", false)],
        },
    })
}

fn object(api_version: &str, kind: &str, name: &str, more: &Value) -> Value {
    let mut object =
        json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name } });
    for (key, value) in more.as_object().unwrap() {
        if key == "labels" || key == "annotations" {
            object["metadata"][key] = value.clone();
        } else {
            object[key] = value.clone();
        }
    }
    object
}

/// Names are given by position, so that every request is about an object of its own.
struct Generated {
    requests: Vec<Request>,
}

impl Generated {
    fn add(&mut self, operation: &'static str, collection: &str, object: Value) {
        let dry_run = self.requests.len().is_multiple_of(2);
        self.requests.push(Request {
            operation,
            collection: collection.to_owned(),
            subresource: "",
            object,
            dry_run,
        });
    }

    fn add_sub(
        &mut self,
        operation: &'static str,
        collection: &str,
        subresource: &'static str,
        object: Value,
    ) {
        self.add(operation, collection, object);
        self.requests.last_mut().unwrap().subresource = subresource;
    }
}

fn deployment(name: &str, replicas: u32) -> Value {
    object(
        "apps/v1",
        "Deployment",
        name,
        &json!({ "spec": {
        "replicas": replicas, "selector": { "matchLabels": { "a": "b" } },
        "template": {
            "metadata": { "labels": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        },
    } }),
    )
}

/// What is created, in this stage's namespaces and outside of them.
fn creations(stage: &Stage<'_>) -> Generated {
    let label = &stage.label;
    let mut made = Generated {
        requests: Vec::new(),
    };
    let namespaces = [
        label.clone(),
        format!("{label}-gold"),
        format!("{label}-other"),
    ];
    for (number, namespace) in namespaces.iter().enumerate() {
        config_maps(&mut made, number, namespace);
        others(&mut made, label, namespace);
    }
    for (name, labels) in [
        ("labelled", json!({ label: "true" })),
        ("free", json!({ label: "true", "tier": "free" })),
        ("bare", json!({})),
    ] {
        let (name, more) = (format!("{label}-{name}"), json!({ "labels": labels }));
        let namespace = object("v1", "Namespace", &name, &more);
        made.add("CREATE", "/api/v1/namespaces", namespace);
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        let role = object("rbac.authorization.k8s.io/v1", "ClusterRole", &name, &more);
        made.add("CREATE", roles, role);
    }
    made
}

fn config_maps(made: &mut Generated, number: usize, namespace: &str) {
    let all = [
        json!({ "start": "1" }),
        json!({ "start": "1", "bad": "1" }),
        json!({ "bad": "1" }),
        json!({ "second": "0", "bad": "1" }),
        json!({ "fine": "1" }),
    ];
    for (index, data) in all.iter().enumerate() {
        let name = format!("map-{number}-{index}");
        let map = object("v1", "ConfigMap", &name, &json!({ "data": data }));
        made.add(
            "CREATE",
            &format!("/api/v1/namespaces/{namespace}/configmaps"),
            map,
        );
    }
}

/// Secrets, Services, accounts and custom resources.
fn others(made: &mut Generated, label: &str, namespace: &str) {
    let at = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    for (name, annotations) in [
        ("cond-strict", json!({ "mode": "strict" })),
        ("cond-loose", json!({ "mode": "loose" })),
        ("cond-error", json!({ "other": "x" })),
        ("unnamed", json!({})),
    ] {
        let more = json!({ "annotations": annotations });
        made.add(
            "CREATE",
            &at("secrets"),
            object("v1", "Secret", name, &more),
        );
    }
    for (name, mode) in [("warned", "warn"), ("quiet", "none")] {
        let more =
            json!({ "annotations": { "mode": mode }, "spec": { "ports": [{ "port": 80 }] } });
        made.add(
            "CREATE",
            &at("services"),
            object("v1", "Service", name, &more),
        );
    }
    let shown = json!({ "labels": { "shown": "yes" } });
    let account = object("v1", "ServiceAccount", "shown", &shown);
    made.add("CREATE", &at("serviceaccounts"), account);
    let group = format!("{label}.example.com");
    for version in ["v1", "v1beta1"] {
        let collection = format!("/apis/{group}/{version}/namespaces/{namespace}/crontabs");
        let (api_version, name) = (format!("{group}/{version}"), format!("tab-{version}"));
        made.add(
            "CREATE",
            &collection,
            object(&api_version, "CronTab", &name, &json!({})),
        );
    }
}

/// What is done to objects that are there.
fn changes(stage: &Stage<'_>) -> Generated {
    let label = &stage.label;
    let mut made = Generated {
        requests: Vec::new(),
    };
    let maps = format!("/api/v1/namespaces/{label}/configmaps");
    for (name, data) in [
        ("old-a", json!({ "start": "2" })),
        ("old-b", json!({ "start": "1", "bad": "2" })),
    ] {
        made.add(
            "UPDATE",
            &maps,
            object("v1", "ConfigMap", name, &json!({ "data": data })),
        );
    }
    for name in ["old-a", "old-keep"] {
        made.add("DELETE", &maps, object("v1", "ConfigMap", name, &json!({})));
    }
    let deployments = format!("/apis/apps/v1/namespaces/{label}/deployments");
    for replicas in [5, 6] {
        made.add_sub("UPDATE", &deployments, "scale", deployment("web", replicas));
        made.add("UPDATE", &deployments, deployment("web", replicas));
    }
    for replicas in [2, 3] {
        let mut web = deployment("web", 9);
        web["status"] = json!({ "replicas": replicas });
        made.add_sub("UPDATE", &deployments, "status", web);
    }
    let pods = format!("/api/v1/namespaces/{label}/pods");
    made.add_sub(
        "CREATE",
        &pods,
        "eviction",
        object("v1", "Pod", "one", &json!({})),
    );
    made.add(
        "DELETE",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        object(
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            &format!("{label}-role"),
            &json!({}),
        ),
    );
    made
}

/// Puts what changes are about into the cluster.
fn furnish(stage: &Stage<'_>) {
    let label = &stage.label;
    let maps = stage.config_maps();
    let role = object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        &format!("{label}-role"),
        &json!({ "labels": { label: "true" } }),
    );
    let pod = object(
        "v1",
        "Pod",
        "one",
        &json!({ "spec": { "containers": [{ "name": "c", "image": "i" }] } }),
    );
    // Made by the control plane for real, which has no controllers that would do it.
    let account = object("v1", "ServiceAccount", "default", &json!({}));
    for (path, object) in [
        (
            maps.clone(),
            object("v1", "ConfigMap", "old-a", &json!({ "data": { "x": "1" } })),
        ),
        (
            maps.clone(),
            object("v1", "ConfigMap", "old-b", &json!({ "data": { "x": "1" } })),
        ),
        (
            maps,
            object(
                "v1",
                "ConfigMap",
                "old-keep",
                &json!({ "data": { "keep": "1" } }),
            ),
        ),
        (
            format!("/apis/apps/v1/namespaces/{label}/deployments"),
            deployment("web", 1),
        ),
        (
            format!("/api/v1/namespaces/{label}/serviceaccounts"),
            account,
        ),
        (format!("/api/v1/namespaces/{label}/pods"), pod),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles".to_owned(),
            role,
        ),
    ] {
        let answer = stage.api.create(&path, &object);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
}

/// Asks both. Of an object that is there the API server is asked for it first.
#[track_caller]
fn check(stage: &Stage<'_>, request: &Request, objects: &str) {
    let mut manifest = request.object.clone();
    if request.collection.contains("/namespaces/") {
        let namespace = request.collection.split('/').rev().nth(1).unwrap();
        manifest["metadata"]["namespace"] = json!(namespace);
    }
    let mut more = vec!["--objects", objects];
    more.extend(USER);
    let mut request = request.clone();
    let is_known = request.operation != "CREATE" || !request.subresource.is_empty();
    let old = stage
        .env
        .path()
        .join("old.json")
        .to_string_lossy()
        .into_owned();
    if is_known {
        let path = format!("{}/{}", request.collection, request.name());
        stage
            .env
            .write("old.json", stage.api.object(&path).to_string());
        more.extend(["--old", &old]);
    }
    match request.subresource {
        "scale" => {
            let mut scale = stage.api.object(&request.path());
            scale["spec"]["replicas"] = request.object["spec"]["replicas"].clone();
            request.object = scale;
        }
        "eviction" => {
            request.object = object("policy/v1", "Eviction", request.name(), &json!({}));
        }
        _ => {}
    }
    let reviewed = review(stage, &manifest, &request, &more);
    let answer = request.ask(&stage.api);
    let (theirs, ours) = (heard(&answer), read(&reviewed));
    let shown = format!("{request:?}\n{}\n{}", answer.text(), reviewed.all());
    // One of several denials is all that the API server tells.
    match theirs.denials.as_slice() {
        [] => assert_eq!(ours.denials, [""; 0], "{shown}"),
        denials => assert!(ours.denials.contains(&denials[0]), "{shown}"),
    }
    assert_eq!(ours.warnings, theirs.warnings, "{shown}");
    // What mutating hooks added is in the answer and in the diff.
    if answer.status == 201 && request.object["kind"] == "ConfigMap" {
        for (key, value) in answer.json()["data"].as_object().unwrap() {
            let is_new = request.object["data"].get(key).is_none();
            let line = format!("    + data.{key}: {value}\n");
            assert_eq!(reviewed.stdout.contains(&line), is_new, "{key}: {shown}");
        }
    }
}

#[test]
fn review_says_what_the_api_server_says() {
    let stage = hooks(Stage::new("offline"));
    let label = stage.label.clone();
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let definition = definition(&label);
    let answer = stage.api.create(definitions, &definition);
    assert_eq!(answer.status, 201, "{}", answer.text());
    stage.make_namespace(
        &format!("{label}-gold"),
        &json!({ &label: "true", "tier": "gold" }),
    );
    stage.make_namespace(&format!("{label}-other"), &json!({}));
    furnish(&stage);
    let _operator = stage.start();
    crate::support::wait_for("the custom kind", crate::support::SOON, || {
        let path = format!("/apis/{label}.example.com/v1beta1/namespaces/{label}/crontabs");
        stage.api.get(&path).status == 200
    });
    let namespaces = stage.api.object("/api/v1/namespaces");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [definition] });
    let objects = stage
        .env
        .path()
        .join("objects")
        .to_string_lossy()
        .into_owned();
    stage
        .env
        .write("objects/namespaces.json", namespaces.to_string());
    stage
        .env
        .write("objects/definitions.json", list.to_string());
    let requests = [creations(&stage), changes(&stage)];
    let requests: Vec<Request> = requests
        .into_iter()
        .flat_map(|made| made.requests)
        .collect();
    assert!(requests.len() >= 40, "{}", requests.len());
    for request in &requests {
        check(&stage, request, &objects);
    }
    let path = format!("{definitions}/crontabs.{label}.example.com");
    stage.api.delete(&path);
}
