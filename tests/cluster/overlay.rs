//! Snapshots that show the cluster as it would be with the request applied (HX-33…HX-41), through a real API server.
//!
//! The policy here is the one that needs it most: no two Ingresses may have the same host. It looks for a host that is there twice,
//! and need not know what the request does. Every hook writes down the contexts it read, one file for each review.

use serde_json::{Value, json};

use crate::support::stage::message;
use crate::support::{SOON, Stage, wait_for};

/// Refuses a cluster in which a host is there twice.
const HOSTS: &str = r#"
jq -c '.[0].snapshots.ingresses | map(.filterResult) | [.[] | {name, host: .hosts[]}] | group_by(.host) | map(select(length > 1))
  | if length > 0 then {allowed: false, message: "host \(.[0][0].host) is in \(.[0] | map(.name) | join(" and "))"} else {allowed: true} end
' "$BINDING_CONTEXT_PATH" >"$VALIDATING_RESPONSE_PATH"
"#;

/// The paths of all contexts that a hook wrote down begin like this.
fn journal(stage: &Stage<'_>) -> String {
    format!("{}/context", stage.env.path().display())
}

/// A hook with these kubernetes bindings and one admission binding; `more` overrides fields of that.
fn hook<'a>(
    stage: Stage<'a>,
    stem: &str,
    kubernetes: &Value,
    more: &Value,
    body: &str,
) -> Stage<'a> {
    let mut config = json!({ "configVersion": "v1", "kubernetes": kubernetes });
    config["kubernetesValidating"] = json!([stage.binding(stem, more)]);
    // Named after the object and the operation, so that a test finds it.
    let script = format!(
        "#!/bin/sh\nset -eu\nif [ \"${{1:-}}\" = --config ]; then cat <<'CONFIG'\n{config}\nCONFIG\nexit 0; fi\n\
         [ \"$(jq -r '.[0].type' \"$BINDING_CONTEXT_PATH\")\" = Validating ] || exit 0\n\
         cp \"$BINDING_CONTEXT_PATH\" \"{}-{stem}-$(jq -r '.[0].review.request | \"\\(.operation)-\\(.object.metadata.name // .name)\"' \"$BINDING_CONTEXT_PATH\")\"\n{body}",
        journal(&stage)
    );
    stage.script(&format!("{stem}.sh"), &script)
}

/// A binding that only provides a snapshot of this stage's objects.
fn watching(stage: &Stage<'_>, name: &str, api_version: &str, kind: &str, more: &Value) -> Value {
    let mut binding = json!({
        "name": name, "apiVersion": api_version, "kind": kind, "executeHookOnEvent": [], "executeHookOnSynchronization": false,
        "namespace": { "nameSelector": { "matchNames": [stage.label] } },
    });
    for (key, value) in more.as_object().unwrap() {
        binding[key] = value.clone();
    }
    binding
}

fn rules(group: &str, resource: &str) -> Value {
    json!([{ "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE", "UPDATE", "DELETE"] }])
}

fn ingress_rules() -> Value {
    rules("networking.k8s.io", "ingresses")
}

fn hosts_filter() -> Value {
    json!({ "jqFilter": "{name: .metadata.name, hosts: [.spec.rules[].host]}", "keepFullObjectsInMemory": false })
}

fn ingresses(stage: &Stage<'_>) -> String {
    format!(
        "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
        stage.label
    )
}

fn ingress(name: &str, host: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": name },
        "spec": { "rules": [{ "host": host }] },
    })
}

/// What a hook read when it was asked about this.
fn context(stage: &Stage<'_>, stem: &str, what: &str) -> Value {
    let path = format!("{}-{stem}-{what}", journal(stage));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str::<Value>(&text).unwrap()[0].take()
}

fn names(snapshot: &Value) -> Vec<String> {
    let name = |item: &Value| {
        item["object"]["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    snapshot.as_array().unwrap().iter().map(name).collect()
}

/// HX-34, HX-35, HX-36, HX-39, HX-40: the second of two Ingresses with one host is refused, until the first has another or is gone.
#[test]
fn two_ingresses_with_one_host_are_refused_until_the_first_makes_room() {
    let stage = Stage::new("hosts");
    let kubernetes = json!([watching(
        &stage,
        "ingresses",
        "networking.k8s.io/v1",
        "Ingress",
        &hosts_filter()
    )]);
    let more =
        json!({ "rules": ingress_rules(), "includeSnapshotsFrom": ["ingresses"], "overlay": true });
    let stage = hook(stage, "hosts", &kubernetes, &more, HOSTS);
    let _operator = stage.start();
    let create =
        |name: &str, host: &str| stage.api.create(&ingresses(&stage), &ingress(name, host));

    let first = create("one", "a.example.com");
    assert_eq!(first.status, 201, "{}", first.text());
    // An object that is there may take a moment to reach the snapshot.
    let dry = format!("{}?dryRun=All", ingresses(&stage));
    wait_for("the first Ingress to be in the snapshot", SOON, || {
        stage
            .api
            .create(&dry, &ingress("two", "a.example.com"))
            .status
            == 403
    });
    let second = create("two", "a.example.com");
    assert_eq!(second.status, 403, "{}", second.text());
    let expected = format!(
        "admission webhook \"{}\" denied the request: host a.example.com is in one and two",
        stage.webhook_name("hosts")
    );
    assert_eq!(message(&second), expected);
    // Its own host is no collision with itself: the update replaces and does not add.
    let path = format!("{}/one", ingresses(&stage));
    let labelled = stage
        .api
        .merge(&path, &json!({ "metadata": { "labels": { "a": "b" } } }));
    assert_eq!(labelled.status, 200, "{}", labelled.text());

    let moved = stage.api.merge(
        &path,
        &json!({ "spec": { "rules": [{ "host": "b.example.com" }] } }),
    );
    assert_eq!(moved.status, 200, "{}", moved.text());
    wait_for("the host to be free", SOON, || {
        create("two", "a.example.com").status == 201
    });
    // An update may collide, too, and the way out is a deletion.
    wait_for("the second Ingress to be in the snapshot", SOON, || {
        stage
            .api
            .create(&dry, &ingress("three", "a.example.com"))
            .status
            == 403
    });
    let back = json!({ "spec": { "rules": [{ "host": "a.example.com" }] } });
    assert_eq!(stage.api.merge(&path, &back).status, 403);
    let gone = stage.api.delete(&format!("{}/two", ingresses(&stage)));
    assert_eq!(gone.status, 200, "{}", gone.text());
    let read = context(&stage, "hosts", "DELETE-two");
    assert_eq!(
        read["overlay"],
        json!({ "operation": "DELETE", "bindings": ["ingresses"],
                "removed": [{ "binding": "ingresses", "namespace": stage.label, "name": "two" }] })
    );
    wait_for("the host to be free again", SOON, || {
        stage.api.merge(&path, &back).status == 200
    });
}

/// HX-37, HX-38, HX-41: only the kind of the request is changed, only for this request, and only for those who asked.
#[test]
fn the_other_kinds_the_other_requests_and_the_other_hooks_see_what_there_is() {
    let stage = Stage::new("others");
    let kubernetes = json!([
        watching(
            &stage,
            "maps",
            "v1",
            "ConfigMap",
            &json!({ "nameSelector": { "matchNames": ["seen", "new"] } })
        ),
        watching(&stage, "services", "v1", "Service", &json!({})),
        watching(
            &stage,
            "again",
            "v1",
            "ConfigMap",
            &json!({ "nameSelector": { "matchNames": ["seen", "new"] } })
        ),
    ]);
    let allow = "echo '{\"allowed\": true}' >\"$VALIDATING_RESPONSE_PATH\"";
    let all = json!(["maps", "services", "again"]);
    let stage = hook(
        stage,
        "plain",
        &kubernetes,
        &json!({ "includeSnapshotsFrom": all }),
        allow,
    );
    let stage = hook(
        stage,
        "off",
        &kubernetes,
        &json!({ "includeSnapshotsFrom": all, "overlay": false }),
        allow,
    );
    let one = json!({ "includeSnapshotsFrom": all, "overlay": { "bindings": ["maps"] } });
    let stage = hook(stage, "one", &kubernetes, &one, allow);
    let existing = stage.create("seen", &json!({}));
    assert_eq!(existing.status, 201, "{}", existing.text());
    let _operator = stage.start();
    let path = format!("{}?dryRun=All", stage.config_maps());
    let object = crate::support::stage::config_map("new", &json!({}));
    assert_eq!(stage.api.create(&path, &object).status, 201);

    let read = context(&stage, "one", "CREATE-new");
    let shown = &read["snapshots"];
    assert_eq!(names(&shown["maps"]), ["new", "seen"]);
    assert_eq!(shown["maps"][0]["proposed"], true);
    assert_eq!(shown["maps"][1].get("proposed"), None);
    assert_eq!(names(&shown["again"]), ["seen"]);
    assert_eq!(names(&shown["services"]), [""; 0]);
    assert_eq!(
        read["overlay"],
        json!({ "operation": "CREATE", "bindings": ["maps"], "removed": [] })
    );
    // Without the key, and with it switched off, the file is what it is in the original, byte for byte.
    let bytes = |stem: &str| {
        let text =
            std::fs::read_to_string(format!("{}-{stem}-CREATE-new", journal(&stage))).unwrap();
        let uid = context(&stage, stem, "CREATE-new")["review"]["request"]["uid"].clone();
        text.replace(uid.as_str().unwrap(), "uid")
            .replace(&stage.webhook_name(stem), "name")
    };
    assert_eq!(bytes("plain"), bytes("off"));
    assert!(!bytes("plain").contains("proposed") && !bytes("plain").contains("overlay"));
    assert_eq!(
        names(&context(&stage, "plain", "CREATE-new")["snapshots"]["maps"]),
        ["seen"]
    );
}

/// An update that takes an object out of the selector takes it out of the snapshot; a name still to be made is marked; a
/// subresource changes nothing unless it was asked for.
#[test]
fn selectors_generated_names_and_subresources() {
    let stage = Stage::new("selected");
    let tier = json!({ "labelSelector": { "matchLabels": { "tier": "front" } } });
    let kubernetes = json!([watching(
        &stage,
        "ingresses",
        "networking.k8s.io/v1",
        "Ingress",
        &tier
    )]);
    let allow = "echo '{\"allowed\": true}' >\"$VALIDATING_RESPONSE_PATH\"";
    let mut with_status = ingress_rules();
    with_status[0]["resources"] = json!(["ingresses", "ingresses/status"]);
    let more =
        json!({ "rules": with_status, "includeSnapshotsFrom": ["ingresses"], "overlay": true });
    let stage = hook(stage, "main", &kubernetes, &more, allow);
    let asked = json!({ "rules": with_status, "includeSnapshotsFrom": ["ingresses"], "overlay": { "subresources": ["status"] } });
    let stage = hook(stage, "status", &kubernetes, &asked, allow);
    let mut front = ingress("front", "a.example.com");
    front["metadata"]["labels"] = json!({ "tier": "front" });
    let made = stage.api.create(&ingresses(&stage), &front);
    assert_eq!(made.status, 201, "{}", made.text());
    let _operator = stage.start();

    let path = format!("{}/front", ingresses(&stage));
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } });
    let answer = stage
        .api
        .merge(&format!("{path}/status?dryRun=All"), &status);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let marks = |stem: &str| {
        let read = context(&stage, stem, "UPDATE-front");
        (
            read["snapshots"]["ingresses"][0]["proposed"].clone(),
            read["overlay"]["bindings"].clone(),
        )
    };
    assert_eq!(marks("main"), (Value::Null, json!([])));
    assert_eq!(marks("status"), (json!(true), json!(["ingresses"])));

    let moved = stage.api.merge(
        &format!("{path}?dryRun=All"),
        &json!({ "metadata": { "labels": { "tier": "back" } } }),
    );
    assert_eq!(moved.status, 200, "{}", moved.text());
    let read = context(&stage, "main", "UPDATE-front");
    assert_eq!(read["snapshots"]["ingresses"], json!([]));
    assert_eq!(read["overlay"]["removed"][0]["name"], "front");

    let mut generated = front.clone();
    generated["metadata"] = json!({ "generateName": "made-", "labels": { "tier": "front" } });
    let answer = stage
        .api
        .create(&format!("{}?dryRun=All", ingresses(&stage)), &generated);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let name = answer.json()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    // A validating webhook is asked when the name is made already; only a mutating one sees none.
    let read = context(&stage, "main", &format!("CREATE-{name}"));
    assert_eq!(
        names(&read["snapshots"]["ingresses"]),
        ["front".to_owned(), name]
    );
}

/// HX-33: two requests at the same time do not see each other. Each hook waits until the other has read its context, too.
#[test]
fn two_requests_at_the_same_time_do_not_see_each_other() {
    let stage = Stage::new("together");
    let kubernetes = json!([watching(
        &stage,
        "ingresses",
        "networking.k8s.io/v1",
        "Ingress",
        &json!({})
    )]);
    let more =
        json!({ "rules": ingress_rules(), "includeSnapshotsFrom": ["ingresses"], "overlay": true });
    let met = format!(
        "tries=0\nuntil [ -e '{0}-met-CREATE-one' ] && [ -e '{0}-met-CREATE-two' ]; do tries=$((tries + 1)); [ $tries -lt 80 ] || exit 1; sleep 0.1; done\n\
         echo '{{\"allowed\": true}}' >\"$VALIDATING_RESPONSE_PATH\"",
        journal(&stage)
    );
    let stage = hook(stage, "met", &kubernetes, &more, &met);
    let _operator = stage.start();
    let plane = stage.namespace.plane;
    let path = ingresses(&stage);
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let (api, path) = (plane.api(), &path);
            scope.spawn(move || {
                let answer = api.create(path, &ingress(name, "same.example.com"));
                assert_eq!(answer.status, 201, "{}", answer.text());
            });
        }
    });
    for name in ["one", "two"] {
        let read = context(&stage, "met", &format!("CREATE-{name}"));
        assert_eq!(names(&read["snapshots"]["ingresses"]), [name]);
    }
}

/// A custom resource whose plural nobody would guess.
#[test]
fn a_custom_resource_with_an_irregular_plural_is_overlaid() {
    let stage = Stage::new("mice");
    let crd: Value = serde_json::from_str(&stage.namespace.crd("mice", "Mouse")).unwrap();
    stage.namespace.apply(&crd.to_string());
    let group = crd["spec"]["group"].as_str().unwrap().to_owned();
    let version = crd["spec"]["versions"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let api_version = format!("{group}/{version}");
    let kubernetes = json!([watching(&stage, "mice", &api_version, "Mouse", &json!({}))]);
    let mut wanted = rules(&group, "mice");
    wanted[0]["apiVersions"] = json!([version]);
    let more = json!({ "rules": wanted, "includeSnapshotsFrom": ["mice"], "overlay": true });
    let allow = "echo '{\"allowed\": true}' >\"$VALIDATING_RESPONSE_PATH\"";
    let stage = hook(stage, "mice", &kubernetes, &more, allow);
    let _operator = stage.start();
    let path = format!("/apis/{api_version}/namespaces/{}/mice", stage.label);
    let mouse =
        json!({ "apiVersion": api_version, "kind": "Mouse", "metadata": { "name": "jerry" } });
    let made = stage.api.create(&path, &mouse);
    assert_eq!(made.status, 201, "{}", made.text());
    let read = context(&stage, "mice", "CREATE-jerry");
    assert_eq!(names(&read["snapshots"]["mice"]), ["jerry"]);
    assert_eq!(read["snapshots"]["mice"][0]["proposed"], true);
    let gone = stage.api.delete(&format!("{path}/jerry"));
    assert_eq!(gone.status, 200, "{}", gone.text());
    assert_eq!(
        context(&stage, "mice", "DELETE-jerry")["snapshots"]["mice"],
        json!([])
    );
}

/// Before the name is made there is only its beginning, which may be somebody's name: nobody is replaced.
#[test]
fn a_mutating_hook_sees_an_object_whose_name_is_still_to_be_made() {
    let stage = Stage::new("unnamed");
    let kept = json!({ "labelSelector": { "matchLabels": { "kept": "yes" } } });
    let mut more = stage.binding(
        "unnamed",
        &json!({ "includeSnapshotsFrom": ["maps"], "overlay": true }),
    );
    more["labelSelector"] = json!({ "matchLabels": { "kept": "yes" } });
    let config = json!({
        "configVersion": "v1", "kubernetes": [watching(&stage, "maps", "v1", "ConfigMap", &kept)], "kubernetesMutating": [more],
    });
    let body = format!(
        "cp \"$BINDING_CONTEXT_PATH\" '{}-unnamed-CREATE'\necho '{{\"allowed\": true}}' >\"$VALIDATING_RESPONSE_PATH\"",
        journal(&stage)
    );
    let stage = stage.script("unnamed.sh", &crate::support::stage::script(&config, &body));
    let mut object = crate::support::stage::config_map("web", &json!({}));
    object["metadata"]["labels"] = json!({ "kept": "yes" });
    assert_eq!(stage.api.create(&stage.config_maps(), &object).status, 201);
    let _operator = stage.start();
    object["metadata"] = json!({ "generateName": "web", "labels": { "kept": "yes" } });
    let answer = stage.api.create(&stage.config_maps(), &object);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let read = context(&stage, "unnamed", "CREATE");
    let maps = &read["snapshots"]["maps"];
    assert_eq!(maps.as_array().unwrap().len(), 2, "{maps}");
    assert_eq!(maps[0]["object"]["metadata"]["name"], "web");
    assert_eq!(
        (&maps[1]["proposed"], &maps[1]["generated"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(maps[1]["object"]["metadata"]["generateName"], "web");
}
