//! Kinds, rights and credentials that come and go while the operator runs: it waits for them, says so without flooding its log,
//! and goes on without a restart.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Scene, names};
use crate::support::{ControlPlane, Operator, SOON, wait_for};

/// A watch goes on for up to 30 s, and the pauses after a refusal grow up to 30 s.
const PATIENCE: Duration = Duration::from_secs(75);
/// Lines about one trouble that lasts for about a minute.
const FEW: usize = 8;
/// The requirement: events go on within this time although the token was replaced.
const HEARD: Duration = Duration::from_secs(5);

/// A kind of the scene's own.
struct Widgets {
    crd: String,
    group: String,
    path: String,
}

impl Widgets {
    fn of(scene: &Scene<'_>) -> Widgets {
        let group = format!("{}.example.com", scene.namespace.name);
        Widgets {
            crd: scene.namespace.crd("widgets", "Widget"),
            path: format!(
                "/apis/{group}/v1/namespaces/{}/widgets",
                scene.namespace.name
            ),
            group,
        }
    }

    fn binding(&self, scene: &Scene<'_>) -> Value {
        scene.binding(&json!({
            "name": "widgets", "apiVersion": format!("{}/v1", self.group), "kind": "Widget",
        }))
    }

    /// Makes one as soon as the API server takes it: it serves a new kind after a moment.
    #[track_caller]
    fn create(&self, scene: &Scene<'_>, name: &str) {
        let object = json!({
            "apiVersion": format!("{}/v1", self.group), "kind": "Widget", "metadata": { "name": name },
        });
        wait_for("the widget to be taken", SOON, || {
            scene.api.create(&self.path, &object).status == 201
        });
    }

    #[track_caller]
    fn remove_kind(&self, scene: &Scene<'_>) {
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let crd = format!("{crds}/widgets.{}", self.group);
        scene.api.delete(&crd);
        wait_for("the end of the kind", SOON, || {
            scene.api.get(&crd).status == 404 && scene.api.get(&self.path).status == 404
        });
    }
}

/// Log lines above `info` that hold all these words.
fn complaints(operator: &Operator, words: &[&str]) -> usize {
    operator
        .log_lines()
        .iter()
        .filter(|line| matches!(line.label("level"), Some("error" | "warn" | "warning")))
        .filter(|line| words.iter().all(|word| line.contains(word)))
        .count()
}

#[test]
fn a_kind_that_is_removed_takes_its_objects_along_and_works_again_when_it_is_back() {
    let scene = Scene::on(ControlPlane::shared(), "removed");
    let widgets = Widgets::of(&scene);
    let asking = scene.binding(&json!({ "includeSnapshotsFrom": ["widgets"] }));
    let config = json!({
        "configVersion": "v1", "kubernetes": [widgets.binding(&scene), asking],
    });
    let scene = scene.hook("watch", &config, "");
    scene.namespace.apply(&widgets.crd);
    widgets.create(&scene, "one");
    widgets.create(&scene, "two");
    let operator = scene.start();
    let snapshot_at = |name: &str| {
        scene.create(name);
        scene.wait_event("watch", &format!("Added {name}"));
        let told = scene.told("watch");
        let asked = told.iter().rfind(|element| element["binding"] == "maps");
        let snapshot = &asked.unwrap()["snapshots"]["widgets"];
        names(snapshot).join(" ")
    };
    assert_eq!(snapshot_at("first"), "one two");
    widgets.remove_kind(&scene);
    scene.wait_event_for("watch", "Deleted one", PATIENCE);
    scene.wait_event_for("watch", "Deleted two", PATIENCE);
    assert_eq!(snapshot_at("second"), "");
    scene.namespace.apply(&widgets.crd);
    widgets.create(&scene, "three");
    scene.wait_event_for("watch", "Added three", PATIENCE);
    assert_eq!(snapshot_at("third"), "three");
    let said = complaints(&operator, &["widgets"]);
    assert!(said <= FEW, "{said} lines about the missing kind");
}

#[test]
fn a_kind_that_comes_later_is_waited_for_while_other_hooks_work() {
    let scene = Scene::on(ControlPlane::shared(), "later");
    let widgets = Widgets::of(&scene);
    let config = json!({ "configVersion": "v1", "kubernetes": [widgets.binding(&scene)] });
    // Hooks are enabled in the order of their names, and the main queue waits for the one that cannot be enabled.
    let scene = scene
        .watching("a-early", &json!({ "queue": "early" }), "")
        .hook("b-late", &config, "");
    let operator = scene.env.start();
    let line = operator.wait_log("that the kind is missing", |line| {
        line.contains("Enable Kubernetes binding for hook failed") && line.contains("Widget")
    });
    assert!(
        line.contains("Possibly CRD is not created"),
        "{}",
        line.text
    );
    scene.create("a");
    scene.wait_event("a-early", "Added a");
    assert_eq!(
        operator.readyz().unwrap().status,
        503,
        "one hook still waits"
    );
    scene.namespace.apply(&widgets.crd);
    widgets.create(&scene, "one");
    operator.wait_ready_for(PATIENCE);
    widgets.create(&scene, "two");
    scene.wait_event("b-late", "Added two");
    assert_eq!(names(&scene.told("b-late")[0]["objects"]), ["one"]);
}

/// The rules of a service account that may watch ConfigMaps.
fn may_watch() -> Value {
    json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"] }])
}

#[test]
fn rights_may_be_missing_at_start_and_taken_away_later() {
    let plane = ControlPlane::shared();
    let scene = Scene::on(plane, "rights").watching("watch", &json!({}), "");
    let token = scene.namespace.service_account("watcher", &json!([]));
    let scene = scene.kubeconfig(&plane.cluster().token(&token));
    let role = |verbs: &Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "watcher" },
            "rules": [{ "apiGroups": [""], "resources": ["configmaps"], "verbs": verbs }],
        })
        .to_string()
    };
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "watcher" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "watcher" },
        "subjects": [{ "kind": "ServiceAccount", "name": "watcher", "namespace": scene.namespace.name }],
    });
    let operator = scene.env.start();
    let line = operator.wait_log("that a right is missing", |line| {
        line.contains("Enable Kubernetes binding for hook failed")
    });
    assert!(
        line.contains("forbidden") && line.contains("configmaps"),
        "{}",
        line.text
    );

    let granted = role(&json!(["get", "list", "watch"]));
    scene.namespace.apply(&granted);
    scene.namespace.apply(&binding.to_string());
    operator.wait_ready_for(PATIENCE);
    scene.create("a");
    scene.wait_event("watch", "Added a");

    scene.namespace.apply(&role(&json!(["get"])));
    operator.wait_log_for("that the right was taken away", PATIENCE, |line| {
        line.contains("forbidden") && !line.contains("Enable Kubernetes binding")
    });
    scene.create("b");
    scene.namespace.apply(&granted);
    scene.wait_event_for("watch", "Added b", PATIENCE);
    assert_eq!(scene.events("watch"), ["Added a", "Added b"]);
    let said = complaints(&operator, &["forbidden"]);
    assert!(said <= FEW, "{said} lines about the missing right");
}

#[test]
fn a_rotated_token_is_used_in_time_when_the_old_one_is_refused() {
    let plane = ControlPlane::shared();
    let scene = Scene::on(plane, "rotated").watching("watch", &json!({}), "");
    scene.namespace.service_account("watcher", &may_watch());
    // A token lives no longer than the object it is bound to.
    let bound_token = |secret: &str| {
        scene
            .namespace
            .kubectl(&["create", "secret", "generic", secret])
            .ok();
        let bound = ["--bound-object-kind=Secret", "--bound-object-name", secret];
        scene.namespace.token("watcher", &bound)
    };
    let (old, new) = (bound_token("old"), bound_token("new"));
    let file = scene.env.write("token", &old);
    let scene = scene.kubeconfig(&plane.cluster().token_file(&file));
    let _operator = scene.start();
    scene.create("first");
    scene.wait_event("watch", "Added first");

    scene.env.write("token", &new);
    scene.namespace.kubectl(&["delete", "secret", "old"]).ok();
    let with_old = scene
        .env
        .write("with-old", plane.cluster().token(&old).text());
    wait_for("the old token to be refused", PATIENCE, || {
        let output = plane.kubectl_with(&with_old, &["get", "--raw", "/apis"], "");
        output.stderr.contains("Unauthorized")
    });
    // Until the watch that began with the old token has surely ended, and then some.
    let until = Instant::now() + Duration::from_secs(40);
    let mut number = 0;
    while Instant::now() < until {
        scene.create(&format!("next-{number}"));
        scene.wait_event_for("watch", &format!("Added next-{number}"), HEARD);
        number += 1;
        // A pace that asks often enough and leaves the cluster to others.
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(scene.events("watch").len(), number + 1, "each once");
}
