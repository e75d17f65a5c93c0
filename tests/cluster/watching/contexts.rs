//! What a hook is told, for every sort of binding, from the objects in the cluster to the file that the hook reads.

use serde_json::{Value, json};

use super::{Scene, name_of, names};
use crate::support::{ControlPlane, SOON, wait_for};

fn scene(name: &str) -> Scene<'static> {
    Scene::on(ControlPlane::shared(), name)
}

/// A hook `watch` with these kubernetes bindings, each of which may override fields of `Scene::binding`.
fn with_bindings(scene: Scene<'static>, bindings: &[Value]) -> Scene<'static> {
    let bindings: Vec<Value> = bindings.iter().map(|more| scene.binding(more)).collect();
    let config = json!({ "configVersion": "v1", "kubernetes": bindings });
    scene.hook("watch", &config, "")
}

/// An element without the objects in it, which differ from one run to the next.
fn shape(element: &Value) -> Value {
    let mut element = element.clone();
    let names = |items: &Value| json!(names(items));
    if let Some(objects) = element.get_mut("objects") {
        *objects = names(objects);
    }
    if let Some(object) = element.get_mut("object") {
        *object = json!(name_of(object));
    }
    if let Some(snapshots) = element.get_mut("snapshots").and_then(Value::as_object_mut) {
        for (_, items) in snapshots.iter_mut() {
            *items = names(items);
        }
    }
    element
}

fn shapes(told: &[Value]) -> Vec<Value> {
    told.iter().map(shape).collect()
}

#[test]
fn objects_that_are_there_are_told_first_and_changes_one_by_one() {
    let scene = scene("changes");
    scene.create("b");
    scene.create("a");
    let scene = with_bindings(scene, &[json!({})]);
    let _operator = scene.start();
    let first = &scene.wait_told("watch", 1)[0];
    assert_eq!(
        shape(first),
        json!({ "binding": "maps", "type": "Synchronization", "objects": ["a", "b"] })
    );
    let object = &first["objects"][0]["object"];
    assert_eq!(object["kind"], "ConfigMap", "a listed object has its kind");
    assert_eq!(object["apiVersion"], "v1");
    assert!(first["objects"][0].get("filterResult").is_none());

    scene.create("c");
    scene.change("a", &json!({ "data": { "x": "1" } }));
    scene.delete("b");
    let told = scene.wait_told("watch", 4);
    let event = |event: &str, name: &str| json!({ "binding": "maps", "type": "Event", "watchEvent": event, "object": name });
    assert_eq!(
        shapes(&told[1..]),
        [
            event("Added", "c"),
            event("Modified", "a"),
            event("Deleted", "b")
        ]
    );
    assert_eq!(told[2]["object"]["data"], json!({ "x": "1" }));
    for (run, elements) in scene.runs("watch").iter().enumerate() {
        assert!(!elements.is_empty(), "run {run}");
    }
}

#[test]
fn a_filter_decides_what_is_a_change_and_its_result_is_told() {
    let scene = scene("filter");
    scene.create_with("a", &json!({}), &json!({ "x": "1" }));
    let more = json!({ "jqFilter": ".data", "keepFullObjectsInMemory": false, "includeSnapshotsFrom": ["maps"] });
    let scene = with_bindings(scene, &[more]);
    let _operator = scene.start();
    scene.change("a", &json!({ "metadata": { "labels": { "not": "seen" } } }));
    scene.change("a", &json!({ "data": { "x": "2" } }));
    scene.create("b");
    assert_eq!(
        scene.wait_told("watch", 3),
        [
            json!({ "binding": "maps", "type": "Synchronization",
                "objects": [{ "filterResult": { "x": "1" } }],
                "snapshots": { "maps": [{ "filterResult": { "x": "1" } }] } }),
            json!({ "binding": "maps", "type": "Event", "watchEvent": "Modified",
                "filterResult": { "x": "2" }, "snapshots": scene.told("watch")[1]["snapshots"] }),
            json!({ "binding": "maps", "type": "Event", "watchEvent": "Added", "filterResult": null,
                "snapshots": { "maps": [{ "filterResult": { "x": "2" } }, { "filterResult": null }] } }),
        ]
    );
}

#[test]
fn a_group_is_told_without_objects_and_with_the_snapshots_of_all_its_bindings() {
    let labelled = |name: &str| json!({ "name": name, "group": "pair", "labelSelector": { "matchLabels": { "side": name } } });
    let scene = scene("group");
    scene.create_with("l", &json!({ "side": "left" }), &json!({}));
    let scene = with_bindings(scene, &[labelled("left"), labelled("right")]);
    let _operator = scene.start();
    // Both first runs are one: the queue joins neighbours of the same group.
    assert_eq!(
        shapes(&scene.wait_told("watch", 1)),
        [
            json!({ "binding": "right", "type": "Group", "groupName": "pair",
            "snapshots": { "left": ["l"], "right": [] } })
        ]
    );
    scene.create_with("r", &json!({ "side": "right" }), &json!({}));
    assert_eq!(
        shapes(&scene.wait_told("watch", 2)[1..]),
        [
            json!({ "binding": "right", "type": "Group", "groupName": "pair",
            "snapshots": { "left": ["l"], "right": ["r"] } })
        ]
    );
    scene.delete("l");
    assert_eq!(
        shapes(&scene.wait_told("watch", 3)[2..]),
        [
            json!({ "binding": "left", "type": "Group", "groupName": "pair",
            "snapshots": { "left": [], "right": ["r"] } })
        ]
    );
}

#[test]
fn a_hook_that_wants_no_synchronization_is_told_of_changes_only() {
    let scene = scene("unsynchronized");
    scene.create("there");
    let more = json!({ "executeHookOnSynchronization": false, "executeHookOnEvent": ["Added", "Deleted"] });
    let scene = with_bindings(scene, &[more]);
    let _operator = scene.start();
    scene.change("there", &json!({ "data": { "x": "1" } }));
    scene.create("new");
    scene.delete("there");
    scene.wait_event("watch", "Deleted there");
    assert_eq!(scene.events("watch"), ["Added new", "Deleted there"]);
    assert_eq!(scene.told("watch").len(), 2);
}

#[test]
fn a_schedule_is_told_with_the_snapshots_of_its_moment() {
    let scene = scene("scheduled");
    scene.create("a");
    let binding =
        scene.binding(&json!({ "executeHookOnSynchronization": false, "executeHookOnEvent": [] }));
    let config = json!({
        "configVersion": "v1", "onStartup": 1, "kubernetes": [binding],
        "schedule": [{ "name": "tick", "crontab": "* * * * * *", "includeSnapshotsFrom": ["maps"] }],
    });
    let scene = scene.hook("watch", &config, "");
    let _operator = scene.start();
    let told = scene.wait_told("watch", 2);
    assert_eq!(told[0], json!({ "binding": "onStartup" }));
    let tick = |names: &[&str]| json!({ "binding": "tick", "type": "Schedule", "snapshots": { "maps": names } });
    assert_eq!(shape(&told[1]), tick(&["a"]));
    scene.create("b");
    wait_for("a tick with both", SOON, || {
        scene.told("watch").last().map(shape) == Some(tick(&["a", "b"]))
    });
}

#[test]
fn selectors_by_label_field_and_name_choose_the_objects() {
    let scene = scene("selected");
    let binding = |name: &str, key: &str, selector: Value| {
        scene.binding(&json!({ "name": name, key: selector, "queue": name }))
    };
    let field = |operator: &str, value: &str| json!({ "matchExpressions": [{ "field": "metadata.name", "operator": operator, "value": value }] });
    let expression = json!({ "matchExpressions": [{ "key": "color", "operator": "In", "values": ["red", "blue"] }] });
    let config = json!({ "configVersion": "v1", "kubernetes": [
        binding("by-label", "labelSelector", json!({ "matchLabels": { "color": "red" } })),
        binding("by-expression", "labelSelector", expression),
        binding("by-field", "fieldSelector", field("Equals", "a")),
        binding("by-other-field", "fieldSelector", field("NotEquals", "a")),
        binding("by-name", "nameSelector", json!({ "matchNames": ["a", "c"] })),
    ] });
    let scene = scene.hook("watch", &config, "");
    for (name, color) in [("a", "red"), ("b", "blue"), ("c", "green")] {
        scene.create_with(name, &json!({ "color": color }), &json!({}));
    }
    let _operator = scene.start();
    let told = scene.wait_told("watch", 5);
    let chosen: Vec<(&str, Vec<&str>)> = told
        .iter()
        .map(|element| {
            (
                element["binding"].as_str().unwrap(),
                names(&element["objects"]),
            )
        })
        .collect();
    // The API server adds a ConfigMap to namespaces only through a controller, which does not run here.
    assert_eq!(
        chosen,
        [
            ("by-label", vec!["a"]),
            ("by-expression", vec!["a", "b"]),
            ("by-field", vec!["a"]),
            ("by-other-field", vec!["b", "c"]),
            ("by-name", vec!["a", "c"]),
        ]
    );
    // An object that begins or ceases to match has come or gone for the binding.
    scene.change(
        "c",
        &json!({ "metadata": { "labels": { "color": "red" } } }),
    );
    scene.change(
        "a",
        &json!({ "metadata": { "labels": { "color": "green" } } }),
    );
    let of = |binding: &str| -> Vec<String> {
        let told = scene.told("watch");
        let own = told.iter().filter(|element| element["binding"] == binding);
        own.filter_map(super::event).collect()
    };
    for (binding, expected) in [
        ("by-label", ["Added c", "Deleted a"].as_slice()),
        ("by-expression", &["Added c", "Deleted a"]),
        ("by-field", &["Modified a"]),
        ("by-other-field", &["Modified c"]),
        // It is two watches, one for each name.
        ("by-name", &["Modified a", "Modified c"]),
    ] {
        wait_for(&format!("the events of {binding}"), SOON, || {
            let mut events = of(binding);
            if binding == "by-name" {
                events.sort();
            }
            events == expected
        });
    }
}

#[test]
fn namespaces_that_begin_and_cease_to_match_come_and_go_without_events() {
    let scene = scene("following");
    let label = scene.namespace.name.clone();
    let namespace = |suffix: &str, labels: Value| {
        let name = format!("{label}-{suffix}");
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
        assert_eq!(scene.api.create("/api/v1/namespaces", &object).status, 201);
        name
    };
    let create = |namespace: &str, name: &str| {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        assert_eq!(scene.api.create(&path, &map).status, 201);
    };
    let relabel = |namespace: &str, value: Value| {
        let path = format!("/api/v1/namespaces/{namespace}");
        let patch = json!({ "metadata": { "labels": { &label: value } } });
        assert_eq!(scene.api.merge(&path, &patch).status, 200);
    };
    let first = namespace("first", json!({ &label: "yes" }));
    let second = namespace("second", json!({}));
    create(&first, "a");
    create(&second, "b");
    let binding = json!({
        "name": "maps", "apiVersion": "v1", "kind": "ConfigMap",
        "namespace": { "labelSelector": { "matchLabels": { &label: "yes" } } },
        "includeSnapshotsFrom": ["maps"],
    });
    let ticks = json!({ "name": "tick", "crontab": "* * * * * *", "queue": "ticks", "includeSnapshotsFrom": ["maps"] });
    let config = json!({ "configVersion": "v1", "kubernetes": [binding], "schedule": [ticks] });
    scene.write_hook("watch", &config, "");
    let _operator = scene.start();
    let told = scene.wait_told("watch", 1);
    assert_eq!(names(&told[0]["objects"]), ["a"]);
    let wait_snapshot = |expected: &[&str]| {
        wait_for(&format!("a snapshot of {expected:?}"), SOON, || {
            let told = scene.told("watch");
            told.last()
                .map(|last| names(&last["snapshots"]["maps"]) == expected)
                == Some(true)
        });
    };
    relabel(&second, json!("yes"));
    wait_snapshot(&["a", "b"]);
    assert!(scene.events("watch").is_empty(), "it came silently");
    create(&second, "c");
    scene.wait_event("watch", "Added c");
    relabel(&first, Value::Null);
    wait_snapshot(&["b", "c"]);
    create(&first, "unseen");
    create(&second, "seen");
    scene.wait_event("watch", "Added seen");
    assert_eq!(scene.events("watch"), ["Added c", "Added seen"]);
}

#[test]
fn a_kind_without_a_version_is_watched_in_the_preferred_one() {
    let scene = scene("preferred");
    let mut crd: Value = serde_json::from_str(&scene.namespace.crd("gadgets", "Gadget")).unwrap();
    // The kind has to be unique too: without a version it is looked for in all groups.
    let kind = format!("Gadget{}", scene.namespace.name.replace('-', ""));
    crd["spec"]["names"]["kind"] = json!(kind);
    crd["spec"]["names"]["shortNames"] = json!([format!("{}gg", scene.namespace.name)]);
    let mut old = crd["spec"]["versions"][0].clone();
    old["name"] = json!("v1beta1");
    old["storage"] = json!(false);
    crd["spec"]["versions"]
        .as_array_mut()
        .unwrap()
        .insert(0, old);
    scene.namespace.apply(&crd.to_string());
    let group = format!("{}.example.com", scene.namespace.name);
    let path = |version: &str| {
        format!(
            "/apis/{group}/{version}/namespaces/{}/gadgets",
            scene.namespace.name
        )
    };
    let create = |version: &str, name: &str| {
        let object = json!({ "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": { "name": name } });
        wait_for("the gadget to be taken", SOON, || {
            scene.api.create(&path(version), &object).status == 201
        });
    };
    create("v1beta1", "a");
    let config = json!({ "configVersion": "v1", "kubernetes": [
        { "name": "any", "kind": kind.to_lowercase(),
          "namespace": { "nameSelector": { "matchNames": [scene.namespace.name] } } },
        { "name": "old", "kind": kind, "apiVersion": format!("{group}/v1beta1"),
          "namespace": { "nameSelector": { "matchNames": [scene.namespace.name] } } },
    ] });
    scene.write_hook("watch", &config, "");
    let _operator = scene.start();
    let told = scene.wait_told("watch", 2);
    let version = |element: &Value| element["objects"][0]["object"]["apiVersion"].clone();
    assert_eq!(version(&told[0]), format!("{group}/v1"));
    assert_eq!(version(&told[1]), format!("{group}/v1beta1"));
    let answer = scene.api.delete(&format!("{}/a", path("v1")));
    assert_eq!(answer.status, 200);
    let told = scene.wait_told("watch", 4);
    assert_eq!(told[2]["watchEvent"], "Deleted");
    assert_eq!(told[3]["watchEvent"], "Deleted");
}

#[test]
fn a_hook_without_a_config_version_is_told_in_the_old_form() {
    let scene = scene("old-form");
    let config = json!({ "onKubernetesEvent": [{
        "name": "maps", "kind": "configmap", "event": ["add", "update", "delete"],
        "namespaceSelector": { "matchNames": [scene.namespace.name] },
    }] });
    let scene = scene.hook("watch", &config, "");
    scene.create("there");
    let _operator = scene.start();
    scene.create("a");
    scene.change("a", &json!({ "data": { "x": "1" } }));
    scene.delete("a");
    let event = |event: &str| {
        json!({ "binding": "maps", "resourceEvent": event, "resourceNamespace": scene.namespace.name,
            "resourceKind": "ConfigMap", "resourceName": "a" })
    };
    let told = scene.wait_told("watch", 3);
    assert_eq!(told, [event("add"), event("update"), event("delete")]);
}
