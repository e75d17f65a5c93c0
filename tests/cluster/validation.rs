//! Reviews that come from `kubernetes` bindings (HX-16…HX-25, HX-53, HX-54): the rule that discovery makes of a binding, the path
//! that all of them share, and who is asked there.

use serde_json::{Value, json};

use crate::support::Stage;
use crate::support::stage::{Kind, answers, config_map, message, review, script, webhooks};

/// A hook that watches a kind in this stage's namespace and validates it; `body` is sh, run for reviews only.
fn validating<'a>(
    stage: Stage<'a>,
    stem: &str,
    kind: &str,
    validation: &Value,
    body: &str,
) -> Stage<'a> {
    let config = json!({
        "configVersion": "v1",
        "kubernetes": [
            {
                "name": "watched", "kind": kind, "executeHookOnEvent": [],
                "namespace": { "nameSelector": { "matchNames": [stage.label] } },
                "webhookValidation": validation, "includeSnapshotsFrom": ["services"],
            },
            {
                "name": "services", "kind": "Service", "executeHookOnEvent": [],
                "namespace": { "nameSelector": { "matchNames": [stage.label] } },
            },
        ],
    });
    let journal = stage.env.path().join(format!("{stem}.json"));
    let body = format!(
        "grep -q '\"type\":\"Validating\"' \"$BINDING_CONTEXT_PATH\" || exit 0\ncp \"$BINDING_CONTEXT_PATH\" '{}'\n{body}",
        journal.display()
    );
    let script = script(&config, &body);
    stage.script(&format!("{stem}.sh"), &script)
}

fn refusing(text: &str) -> String {
    answers(&json!({ "allowed": false, "message": text }))
}

fn allowing(warning: &str) -> String {
    answers(&json!({ "allowed": true, "warnings": [warning] }))
}

/// The entries of the shared path.
fn derived(stage: &Stage<'_>) -> Vec<Value> {
    let all = webhooks(&stage.configuration(Kind::Validating));
    let is_derived = |webhook: &Value| webhook["name"].as_str().unwrap().starts_with("validate.");
    all.into_iter().filter(is_derived).collect()
}

/// HX-17…HX-25.
#[test]
fn a_binding_that_opts_in_is_a_rule_and_its_hook_is_asked() {
    let stage = Stage::new("derived");
    let stage = validating(
        stage,
        "maps",
        "configmaps",
        &json!(true),
        &refusing("not this map"),
    );
    let more = json!({ "operations": ["DELETE"], "timeoutSeconds": 7, "failurePolicy": "Ignore", "errors": { "from": "marked" } });
    let stage = validating(
        stage,
        "ingresses",
        "ing",
        &more,
        "echo 'FAIL: stays' >&2; exit 1",
    );
    let operator = stage.start();

    let entries = derived(&stage);
    let url = format!("https://{}/validate", stage.address());
    let names: Vec<&str> = entries
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "validate.configmaps.v1.core",
            "validate.ingresses.v1.networking.k8s.io"
        ]
    );
    let [maps, ingresses] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    for entry in [maps, ingresses] {
        assert_eq!(entry["clientConfig"]["url"], url.as_str());
        let selected = &entry["namespaceSelector"]["matchExpressions"][0];
        assert_eq!(
            selected,
            &json!({ "key": "kubernetes.io/metadata.name", "operator": "In", "values": [stage.label] })
        );
    }
    assert_eq!(
        maps["rules"],
        json!([{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"], "scope": "Namespaced" }])
    );
    assert_eq!(ingresses["rules"][0]["operations"], json!(["DELETE"]));
    assert_eq!(
        (&ingresses["timeoutSeconds"], &ingresses["failurePolicy"]),
        (&json!(7), &json!("Ignore"))
    );
    for gvk in ["v1.ConfigMap", "networking.k8s.io/v1.Ingress"] {
        operator.wait_log(gvk, |line| line.message() == format!("validates {gvk}"));
    }
}

/// HX-20, HX-21: what the hook is asked, and what it is not.
#[test]
fn the_hook_of_such_a_binding_sees_its_objects_as_they_would_be() {
    let stage = Stage::new("asked");
    let stage = validating(
        stage,
        "maps",
        "configmaps",
        &json!(true),
        &refusing("not this map"),
    );
    let more = json!({ "operations": ["DELETE"], "errors": { "from": "marked" } });
    let stage = validating(
        stage,
        "ingresses",
        "ing",
        &more,
        "echo 'FAIL: stays' >&2; exit 1",
    );
    let _operator = stage.start();

    let answer = stage.create("a", &json!({ "k": "v" }));
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert_eq!(
        message(&answer),
        "admission webhook \"validate.configmaps.v1.core\" denied the request: not this map"
    );
    // The review is known by the name of the binding, and sees its objects and those it includes as they would be.
    let text = std::fs::read_to_string(stage.env.path().join("maps.json")).unwrap();
    let context = serde_json::from_str::<Value>(&text).unwrap()[0].take();
    assert_eq!(
        (&context["binding"], &context["type"]),
        (&json!("watched"), &json!("Validating"))
    );
    let proposed: Vec<&Value> = context["snapshots"]["watched"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["proposed"] == true)
        .collect();
    assert_eq!(proposed.len(), 1);
    assert_eq!(proposed[0]["object"]["metadata"]["name"], "a");
    assert_eq!(context["snapshots"]["services"], json!([]));
    assert_eq!(context["overlay"]["bindings"], json!(["watched"]));

    let path = format!(
        "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
        stage.label
    );
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "x" }, "spec": { "rules": [{ "host": "a.b" }] },
    });
    assert_eq!(stage.api.create(&path, &ingress).status, 201);
    let kept = stage.api.delete(&format!("{path}/x"));
    assert_eq!(kept.status, 403, "{}", kept.text());
    assert!(
        message(&kept).ends_with("denied the request: stays"),
        "{}",
        message(&kept)
    );
    // HX-21: nobody opted in for Services.
    let service = json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } });
    let path = format!("/api/v1/namespaces/{}/services", stage.label);
    assert_eq!(stage.api.create(&path, &service).status, 201);
}

/// Two hooks that validate one kind share an entry; each is asked, and the first refusal counts.
#[test]
fn every_hook_of_a_kind_is_asked_until_one_refuses() {
    let stage = Stage::new("shared");
    let stage = validating(
        stage,
        "one",
        "ConfigMap",
        &json!(true),
        &allowing("one was asked"),
    );
    let two = format!(
        "if grep -q '\"name\":\"bad\"' \"$BINDING_CONTEXT_PATH\"; then {}\nelse {}\nfi",
        refusing("two refuses"),
        allowing("two was asked")
    );
    let stage = validating(stage, "two", "cm", &json!(true), &two);
    let _operator = stage.start();
    assert_eq!(derived(&stage).len(), 1);
    let good = stage.create("good", &json!({}));
    assert_eq!(good.status, 201, "{}", good.text());
    let mut connection = stage.connect();
    let mut ask = |name: &str| {
        let answer = connection
            .post_json(
                "/validate?timeout=10s",
                &review("u", &config_map(name, &json!({}))),
            )
            .unwrap();
        answer.json()["response"].take()
    };
    assert_eq!(
        ask("good"),
        json!({ "uid": "u", "allowed": true, "warnings": ["one was asked", "two was asked"] })
    );
    let refused = ask("bad");
    assert_eq!(
        refused["status"],
        json!({ "code": 403, "message": "two refuses" })
    );
    assert_eq!(refused["warnings"], json!(["one was asked"]));
    // HX-58, before any hook is asked.
    let nameless = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {} });
    let answer = connection
        .post_json("/validate", &review("u", &nameless))
        .unwrap();
    assert_eq!(
        answer.json()["response"]["status"]["message"],
        "metadata.name or metadata.generateName is required"
    );
}

/// HX-02, HX-16: another path, and a kind that nobody validates.
#[test]
fn what_nobody_validates_is_allowed_on_the_shared_path_and_nowhere_else() {
    let stage = Stage::new("unvalidated").flag("--validating-webhook-path=/policies/check");
    let stage = validating(stage, "maps", "ConfigMap", &json!(true), &refusing("no"));
    let _operator = stage.start();
    let mut connection = stage.connect();
    let map = review("u", &config_map("a", &json!({})));
    let mut other = map.clone();
    other["request"]["kind"] =
        json!({ "group": "example.com", "version": "v1", "kind": "ConfigMap" });
    let mut allowed = |path: &str, question: &Value| {
        let answer = connection.post_json(path, question).unwrap();
        assert_eq!(answer.status, 200);
        answer.json()["response"]["allowed"].as_bool().unwrap()
    };
    assert!(!allowed("/policies/check", &map));
    assert!(allowed("/policies/check", &other));
    assert!(!allowed("/validate", &other));
    assert!(!allowed("/hooks/none", &other));
    assert_eq!(stage.create("a", &json!({})).status, 403);
}

/// HX-53, HX-54: no validator at all.
#[test]
fn without_validators_the_shared_path_allows_with_a_warning() {
    let stage = Stage::new("unasked");
    let operator = stage.start();
    let mut connection = stage.connect();
    let question = review("u", &config_map("a", &json!({})));
    let answer = connection.post_json("/validate", &question).unwrap();
    assert_eq!(
        answer.json()["response"],
        json!({ "uid": "u", "allowed": true })
    );
    operator.wait_log("the warning", |line| {
        line.label("level")
            .is_some_and(|level| level.starts_with("warn"))
            && line.contains("no kubernetes binding has webhookValidation")
    });
    let broken = connection
        .request(
            "POST",
            "/validate",
            &[("Content-Type", "application/json")],
            b"{",
        )
        .unwrap();
    assert_eq!(broken.status, 400);
}
