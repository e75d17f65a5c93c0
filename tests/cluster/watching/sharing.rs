//! Hooks that want the same objects share a watch, and hooks that share a queue share nothing else.

use serde_json::json;

use super::{Scene, metric};
use crate::support::{ControlPlane, SOON, wait_for};

const HOOKS: usize = 10;
/// Objects for each of the hooks that share a queue; far more than the hundred at which a queue is compacted.
const FLOOD: usize = 150;

/// The kind is one that nobody else watches: the API server counts by kind only.
#[test]
fn ten_hooks_with_the_same_selector_open_one_watch() {
    let plane = ControlPlane::shared();
    let mut scene = Scene::on(plane, "shared");
    let binding = scene.binding(&json!({ "apiVersion": "apps/v1", "kind": "ControllerRevision" }));
    let config = json!({ "configVersion": "v1", "kubernetes": [binding] });
    for number in 0..HOOKS {
        scene = scene.hook(&format!("hook-{number}"), &config, "");
    }
    let watches = || {
        let labels = ["resource=\"controllerrevisions\"", "verb=\"WATCH\""];
        metric(&scene.api, "apiserver_longrunning_requests", &labels)
    };
    assert_eq!(watches(), 0.0);
    let _operator = scene.start();
    let create = |name: &str| {
        let path = format!(
            "/apis/apps/v1/namespaces/{}/controllerrevisions",
            scene.namespace.name
        );
        let object = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": { "name": name }, "revision": 1, "data": {},
        });
        assert_eq!(scene.api.create(&path, &object).status, 201);
    };
    for name in ["a", "b", "c"] {
        create(name);
        for number in 0..HOOKS {
            scene.wait_event(&format!("hook-{number}"), &format!("Added {name}"));
        }
        wait_for("one watch", SOON, || watches() == 1.0);
    }
    for number in 0..HOOKS {
        let events = scene.events(&format!("hook-{number}"));
        assert_eq!(events, ["Added a", "Added b", "Added c"]);
    }
}

#[test]
fn hooks_that_are_flooded_in_one_queue_get_exactly_their_own() {
    let plane = ControlPlane::shared();
    let mut scene = Scene::on(plane, "flooded");
    let owners = ["ann", "bob", "cid"];
    for owner in owners {
        let more = json!({
            "name": owner, "queue": "busy", "labelSelector": { "matchLabels": { "owner": owner } },
        });
        // Slow enough that the queue grows.
        scene = scene.watching(owner, &more, "sleep 0.3");
    }
    let _operator = scene.start();
    for number in 0..FLOOD {
        for owner in owners {
            let name = format!("{owner}-{number}");
            scene.create_with(&name, &json!({ "owner": owner }), &json!({}));
        }
    }
    for owner in owners {
        let told = wait_for(&format!("everything of {owner}"), 3 * SOON, || {
            Some(scene.told(owner)).filter(|told| told.len() > FLOOD)
        });
        assert!(told.iter().all(|element| element["binding"] == owner));
        let expected: Vec<String> = (0..FLOOD)
            .map(|number| format!("Added {owner}-{number}"))
            .collect();
        assert_eq!(scene.events(owner), expected, "its own, in order, once");
    }
}
