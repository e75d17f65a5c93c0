//! Examples 101, 102, 104, 105, 106 and 230: hooks that watch pods, namespaces, Secrets, custom resources, Events and ConfigMaps,
//! and act with kubectl.

use serde_json::{Value, json};

use super::{Layout, Scenario, in_both_layouts, said, wait_said};
use crate::support::{SOON, wait_for};

in_both_layouts!(
    monitor_pods,
    monitor_namespaces,
    secret_copier,
    custom_resource,
    monitor_events,
    configmap_python,
);

/// 101: only new pods are told of; those that were there come together, once.
fn monitor_pods(layout: Layout) {
    let scenario = Scenario::new("101-monitor-pods", layout);
    let pods = scenario.path("pods");
    let pod = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
            "spec": {
                "automountServiceAccountToken": false,
                "containers": [{ "name": "web", "image": "web:1" }],
            },
        })
    };
    scenario.create(&pods, &pod("old"));
    let operator = scenario.start();
    wait_said(&operator, "pods.sh", "pods at the start: 1");
    scenario.create(&pods, &pod("first"));
    wait_said(&operator, "pods.sh", "pod first was Added");
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    scenario.change(&format!("{pods}/first"), &labels);
    scenario.delete(&format!("{pods}/old?gracePeriodSeconds=0"));
    scenario.create(&pods, &pod("second"));
    let line = wait_said(&operator, "pods.sh", "pod second was Added");
    assert_eq!(line.label("binding"), Some("new pods"));
    // Neither the change nor the deletion before it was told.
    assert_eq!(
        said(&operator, "pods.sh"),
        [
            "pods at the start: 1",
            "pod first was Added",
            "pod second was Added"
        ]
    );
}

/// 102: two bindings on one kind; what the filter does not see is no change.
fn monitor_namespaces(layout: Layout) {
    let scenario = Scenario::new("102-monitor-namespaces", layout);
    let operator = scenario.start();
    let hook = "namespaces.sh";
    wait_said(&operator, hook, "come-and-go: 0 at the start");
    wait_said(&operator, hook, "labels: 0 at the start");
    let name = format!("{}-watched", scenario.namespace.name);
    let path = format!("/api/v1/namespaces/{name}");
    let labels = json!({ "scenario": scenario.namespace.name, "colour": "red" });
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels },
    });
    scenario.create("/api/v1/namespaces", &namespace);
    wait_said(&operator, hook, &format!("namespace {name} added"));
    let annotations = json!({ "metadata": { "annotations": { "seen": "by nobody" } } });
    scenario.change(&path, &annotations);
    let colour = |colour: &str| json!({ "metadata": { "labels": { "colour": colour } } });
    scenario.change(&path, &colour("green"));
    wait_said(
        &operator,
        hook,
        &format!("namespace {name} has colour green"),
    );
    // There is no controller that would finish the deletion.
    scenario.delete(&path);
    let mut finished = scenario.api.object(&path);
    finished["spec"]["finalizers"] = json!([]);
    let answer = scenario.api.replace(&format!("{path}/finalize"), &finished);
    assert_eq!(answer.status, 200, "{}", answer.text());
    wait_said(&operator, hook, &format!("namespace {name} deleted"));
    let told = said(&operator, hook);
    let about = |what: &str| told.iter().filter(|line| line.contains(what)).count();
    assert_eq!((about("has colour"), about(&name)), (1, 3), "{told:?}");
}

/// 104: Secrets are copied by kubectl into namespaces with a label, by four hooks without an extension; one of them may fail.
fn secret_copier(layout: Layout) {
    let scenario = Scenario::new("104-secret-copier", layout);
    let target = |name: &str| {
        let name = format!("{}-{name}", scenario.namespace.name);
        let labels = json!({ "copies-from": scenario.namespace.name });
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels },
        });
        scenario.create("/api/v1/namespaces", &namespace);
        format!("/api/v1/namespaces/{name}/secrets/password")
    };
    let is = |copy: &str, value: &str| {
        wait_for(&format!("{value} in {copy}"), SOON, || {
            let answer = scenario.api.get(copy);
            answer.status == 200 && answer.json()["data"]["value"] == value
        });
    };
    let first = target("first");
    let operator = scenario.start();
    // It fails as long as somebody has not switched it on, and nobody waits for it.
    let failed = operator.wait_log("the failure", |line| {
        line.message() == "Hook failed, but allowed to fail"
    });
    assert_eq!(failed.label("hook"), Some("repair"));

    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "password", "labels": { "secret-copier": "yes" } },
        "data": { "value": "bWFya2VyLW9uZQ==" },
    });
    scenario.create(&scenario.path("secrets"), &secret);
    is(&first, "bWFya2VyLW9uZQ==");
    let second = target("second");
    is(&second, "bWFya2VyLW9uZQ==");
    let changed = json!({ "data": { "value": "bWFya2VyLXR3bw==" } });
    scenario.change(&scenario.path("secrets/password"), &changed);
    is(&first, "bWFya2VyLXR3bw==");
    is(&second, "bWFya2VyLXR3bw==");

    // The schedule makes good what somebody has spoilt.
    let switch =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "copier-switch" } });
    scenario.create(&scenario.path("configmaps"), &switch);
    scenario.change(&first, &json!({ "data": { "value": "c3BvaWx0" } }));
    is(&first, "bWFya2VyLXR3bw==");
    scenario.delete(&scenario.path("configmaps/copier-switch"));

    scenario.delete(&scenario.path("secrets/password"));
    for copy in [&first, &second] {
        wait_for("the copy to go", SOON, || {
            scenario.api.get(copy).status == 404
        });
    }
    let leaked = |text: &str| operator.log_lines().iter().any(|line| line.contains(text));
    assert!(!leaked("marker-") && !leaked("bWFya2Vy"));
}

/// 105: a custom resource by its group, version and kind.
fn custom_resource(layout: Layout) {
    let scenario = Scenario::new("105-crd-simple", layout);
    let crontabs = make_crontabs(&scenario, "v1");
    create_crontab(&scenario, &crontabs, "old", "0 * * * *");
    let operator = scenario.start();
    let hook = "crontabs.sh";
    wait_said(&operator, hook, "crontabs at the start: old");
    create_crontab(&scenario, &crontabs, "new", "1 * * * *");
    wait_said(&operator, hook, "crontab new Added: 1 * * * *");
    let later = json!({ "spec": { "cron": "2 * * * *" } });
    scenario.change(&format!("{crontabs}/new"), &later);
    wait_said(&operator, hook, "crontab new Modified: 2 * * * *");
    scenario.delete(&format!("{crontabs}/new"));
    wait_said(&operator, hook, "crontab new Deleted: 2 * * * *");
}

/// 106: Events picked by a field selector. A hook that asks for a version which is not served waits, and the other works.
fn monitor_events(layout: Layout) {
    let scenario = Scenario::new("106-monitor-events", layout);
    let operator = scenario.env.start();
    let (events, old) = ("10-events.sh", "20-events-v1beta1.sh");
    for attempt in [1, 2] {
        operator.wait_log("the old version is not there", |line| {
            line.message() == "Enable Kubernetes binding for hook failed. Will retry after delay."
                && line.label("hook") == Some(old)
                && line.contains("'events.k8s.io/v1beta1' kind 'Event'")
                && line.json.as_ref().unwrap()["failedCount"] == attempt
        });
    }
    let name = &scenario.namespace.name;
    let create = |namespace: &str, note: &str| {
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": { "generateName": "e-", "namespace": namespace },
            "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "action": "Test",
            "reason": "Tried", "note": note,
            "reportingController": "example.com/test", "reportingInstance": "test-1",
            "regarding": { "kind": "Namespace", "name": name, "namespace": namespace },
        });
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        scenario.create(&path, &event);
    };
    let note = format!("of another namespace, from {name}");
    create("default", &note);
    create(name, "of this one");
    wait_said(&operator, events, "event Added Tried: of this one");
    assert!(!operator.log_lines().iter().any(|line| line.contains(&note)));
    assert_eq!(said(&operator, old), [""; 0]);
}

/// 230: ConfigMaps in Python, with the module beside the hook.
fn configmap_python(layout: Layout) {
    let scenario =
        Scenario::new("230-configmap-python", layout).env("PYTHONDONTWRITEBYTECODE", "1");
    let maps = scenario.path("configmaps");
    let map = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "labels": { "part": "python" } },
            "data": { "b": "2", "a": "1" },
        })
    };
    scenario.create(&maps, &map("old"));
    let operator = scenario.start();
    let hook = "configmaps.py";
    wait_said(&operator, hook, "maps at the start: old");
    scenario.create(&maps, &map("new"));
    let line = wait_said(&operator, hook, "map seen").json.unwrap();
    assert_eq!(
        (&line["hook_name"], &line["hook_keys"]),
        (&json!("new"), &json!(["a", "b"]))
    );
    scenario.delete(&format!("{maps}/old"));
    let line = wait_said(&operator, hook, "map gone");
    assert_eq!(line.label("level"), Some("warn"));
    assert_eq!(line.label("hook_name"), Some("old"));
}

/// Makes the CRD of crontabs in a group of the scenario's own, with one version; answers the API path of the objects.
pub(super) fn make_crontabs(scenario: &Scenario, version: &str) -> String {
    let mut crd: Value =
        serde_json::from_str(&scenario.namespace.crd("crontabs", "CronTab")).unwrap();
    crd["spec"]["versions"][0]["name"] = json!(version);
    scenario.namespace.apply(&crd.to_string());
    let name = &scenario.namespace.name;
    let path = format!("/apis/{name}.example.com/{version}/namespaces/{name}/crontabs");
    wait_for("the resource to be served", SOON, || {
        scenario.api.get(&path).status == 200
    });
    path
}

pub(super) fn create_crontab(scenario: &Scenario, path: &str, name: &str, cron: &str) {
    let version = path
        .trim_start_matches("/apis/")
        .split("/namespaces")
        .next()
        .unwrap();
    let object = json!({
        "apiVersion": version, "kind": "CronTab", "metadata": { "name": name }, "spec": { "cron": cron },
    });
    // What was just made may not be served by every part of the API server at once.
    wait_for("the object to be taken", SOON, || {
        scenario.api.create(path, &object).status == 201
    });
}
