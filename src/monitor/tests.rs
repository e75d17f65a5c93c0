//! Tests of monitors against a small API server with config maps and namespaces.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use serde_json::{Value, json};

use super::*;
use crate::hook::binding::Change;
use crate::hook::{Hook, config};
use crate::kube::scripted::{Seen, Server, answer, begin, chunk, end};
use crate::message::Item;

/// LIMIT: how long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// The objects of a cluster and everything that happened to them.
#[derive(Default)]
struct World {
    state: Mutex<State>,
    changed: Condvar,
    closing: AtomicBool,
}

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<(String, String, String), Value>,
    log: Vec<(u64, &'static str, Value)>,
    /// Versions before this one have expired.
    compacted: u64,
    /// Watches that run are cut when this changes.
    era: u64,
    /// Answered to everything but discovery, when it is not 0.
    refusal: u16,
    /// Custom resources are known.
    widgets: bool,
}

impl World {
    fn put(&self, kind: &str, namespace: &str, name: &str, body: Value) {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let version = state.version;
        let mut object = body;
        object["kind"] = json!(kind);
        object["apiVersion"] = json!("v1");
        object["metadata"]["name"] = json!(name);
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        let known = state.objects.insert(key, object.clone());
        let what = if known.is_some() { "MODIFIED" } else { "ADDED" };
        state.log.push((version, what, object));
        self.changed.notify_all();
    }

    fn map(&self, namespace: &str, name: &str, value: &str) {
        self.put("ConfigMap", namespace, name, json!({"data": {"v": value}}));
    }

    fn remove(&self, kind: &str, namespace: &str, name: &str) {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let version = state.version;
        let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        let mut object = state.objects.remove(&key).unwrap();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        state.log.push((version, "DELETED", object));
        self.changed.notify_all();
    }

    /// Cuts all watches and forgets what happened until now.
    fn compact(&self) {
        let mut state = self.state.lock().unwrap();
        state.compacted = state.version;
        state.era += 1;
        self.changed.notify_all();
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    fn serve(&self, seen: &Seen, stream: &mut TcpStream) -> bool {
        let path = seen.path();
        if path == "/api" || path == "/apis" {
            return stream
                .write_all(&answer(200, "", &self.discovery(path)))
                .is_ok();
        }
        let refusal = self.state.lock().unwrap().refusal;
        let (kind, namespace) = match path.split('/').collect::<Vec<_>>()[..] {
            ["", "api", "v1", "configmaps"] => ("ConfigMap", ""),
            ["", "api", "v1", "secrets"] => ("Secret", ""),
            ["", "api", "v1", "namespaces"] => ("Namespace", ""),
            ["", "api", "v1", "namespaces", namespace, "configmaps"] => ("ConfigMap", namespace),
            ["", "apis", "x.io", "v1", "widgets"] => ("Widget", ""),
            _ => return stream.write_all(&answer(404, "", "{}")).is_ok(),
        };
        if refusal != 0 {
            return stream.write_all(&answer(refusal, "", "{}")).is_ok();
        }
        let filter = Picked::new(seen, kind, namespace);
        if seen.is_watch() {
            self.watch(seen, &filter, stream)
        } else {
            self.list(&filter, stream)
        }
    }

    fn discovery(&self, root: &str) -> String {
        let resource = |kind: &str, plural: &str, scope: &str| json!({"resource": plural, "responseKind": {"kind": kind}, "scope": scope, "verbs": ["list", "watch"]});
        let widgets = self.state.lock().unwrap().widgets;
        let items = match (root, widgets) {
            ("/api", _) => {
                json!([{"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [
                    resource("ConfigMap", "configmaps", "Namespaced"),
                    resource("Secret", "secrets", "Namespaced"),
                    resource("Namespace", "namespaces", "Cluster")
                ]}]}])
            }
            (_, true) => json!([{"metadata": {"name": "x.io"}, "versions": [
                {"version": "v1", "resources": [resource("Widget", "widgets", "Namespaced")]}
            ]}]),
            _ => json!([]),
        };
        json!({"kind": "APIGroupDiscoveryList", "items": items}).to_string()
    }

    fn list(&self, picked: &Picked, stream: &mut TcpStream) -> bool {
        let state = self.state.lock().unwrap();
        let items: Vec<&Value> = state
            .objects
            .values()
            .filter(|object| picked.has(object))
            .collect();
        let body =
            json!({"metadata": {"resourceVersion": state.version.to_string()}, "items": items});
        stream
            .write_all(&answer(200, "", &body.to_string()))
            .is_ok()
    }

    fn watch(&self, seen: &Seen, picked: &Picked, stream: &mut TcpStream) -> bool {
        let mut from: u64 = seen.parameter("resourceVersion").unwrap().parse().unwrap();
        let mut state = self.state.lock().unwrap();
        let era = state.era;
        begin(stream);
        if from < state.compacted {
            let status = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}});
            return chunk(stream, &format!("{status}\n")) && end(stream);
        }
        loop {
            for (version, what, object) in &state.log {
                // An object that stops matching looks deleted.
                let what = match (picked.has(object), *what) {
                    (true, what) => what,
                    (false, "MODIFIED") if picked.is_about(object) => "DELETED",
                    _ => continue,
                };
                if *version > from {
                    let line = json!({"type": what, "object": object});
                    if !chunk(stream, &format!("{line}\n")) {
                        return false;
                    }
                }
            }
            from = from.max(state.version);
            state = self
                .changed
                .wait_timeout(state, Duration::from_millis(50))
                .unwrap()
                .0;
            if state.era != era || self.closing.load(Ordering::SeqCst) {
                return false;
            }
        }
    }
}

/// What a request is about.
struct Picked {
    kind: String,
    namespace: String,
    label: Option<(String, String)>,
    name: Option<String>,
}

impl Picked {
    fn new(seen: &Seen, kind: &str, namespace: &str) -> Picked {
        let pair = |parameter: &str| {
            let (key, value) = seen.parameter(parameter)?.split_once("%3D")?;
            Some((key.to_owned(), value.to_owned()))
        };
        Picked {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            label: pair("labelSelector"),
            name: pair("fieldSelector").map(|(_, name)| name),
        }
    }

    fn is_about(&self, object: &Value) -> bool {
        let meta = &object["metadata"];
        object["kind"] == json!(self.kind)
            && (self.namespace.is_empty() || meta["namespace"] == json!(self.namespace))
            && self
                .name
                .as_ref()
                .is_none_or(|name| meta["name"] == json!(name))
    }

    fn has(&self, object: &Value) -> bool {
        self.is_about(object)
            && self
                .label
                .as_ref()
                .is_none_or(|(key, value)| object["metadata"]["labels"][key] == json!(value))
    }
}

/// Hooks with their monitors on a world of their own.
struct Rig {
    world: Arc<World>,
    server: Server,
    monitors: Monitors,
    metrics: Arc<Metrics>,
    events: Receiver<Event>,
}

impl Rig {
    /// One hook for every text, which is its list of kubernetes bindings.
    fn new(hooks: &[&str]) -> Rig {
        let world = Arc::new(World::default());
        let serving = Arc::clone(&world);
        let server = Server::start(move |seen, stream| serving.serve(seen, stream));
        let (sender, events) = bounded(1000);
        let client = server.client();
        let metrics = Arc::new(Metrics::new("p_"));
        let hooks = hooks.iter().enumerate().map(|(index, bindings)| Hook {
            name: format!("hook-{index}.sh"),
            path: "/hook".into(),
            config: config::parse(format!("configVersion: v1\nkubernetes:\n{bindings}").as_bytes())
                .unwrap()
                .config,
        });
        let registry = Registry {
            hooks: hooks.collect(),
            ..Registry::default()
        };
        let moment = Duration::from_millis(20);
        let tempo = Tempo {
            first_pause: moment,
            longest_pause: moment,
            first_probe: moment,
            longest_probe: moment,
            spread: moment,
            ..Tempo::default()
        };
        let monitors = Monitors::with_tempo(
            client.clone(),
            Arc::new(Discovery::new(client, Duration::ZERO)),
            Arc::new(registry),
            sender,
            Arc::clone(&metrics),
            tempo,
        );
        Rig {
            world,
            server,
            monitors,
            metrics,
            events,
        }
    }

    fn enable(&self, hook: usize) {
        self.monitors.enable(hook).unwrap();
    }

    fn ready(&self, hook: usize) {
        self.enable(hook);
        for binding in 0..self.monitors.shared.registry.hooks[hook]
            .config
            .kubernetes
            .len()
        {
            self.monitors.synchronization(id(hook, binding));
            self.monitors.open(id(hook, binding));
        }
    }

    /// The next event: `hook.binding Change namespace/name object filterResult`, a dash for what is absent.
    fn next(&self) -> String {
        shown(&self.events.recv_timeout(PATIENCE).unwrap())
    }

    fn expect(&self, expected: &[&str]) {
        for event in expected {
            assert_eq!(self.next(), *event);
        }
    }

    fn snapshot(&self, hook: usize, binding: usize) -> Vec<String> {
        self.monitors
            .snapshot(id(hook, binding))
            .iter()
            .map(item)
            .collect()
    }

    /// Waits until a snapshot is as expected.
    fn until(&self, hook: usize, binding: usize, expected: &[&str]) {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let found = self.snapshot(hook, binding);
            if found == expected {
                return;
            }
            assert!(
                std::time::Instant::now() < end,
                "{found:?} is not {expected:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The requests for objects.
    fn asked(&self) -> Vec<Seen> {
        let mut seen = self.server.seen();
        seen.retain(|seen| seen.path().matches('/').count() > 1);
        seen
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.monitors.stop();
        self.world.closing.store(true, Ordering::SeqCst);
        self.world.changed.notify_all();
    }
}

fn id(hook: usize, binding: usize) -> BindingId {
    BindingId { hook, binding }
}

fn item(item: &Item) -> String {
    let object = item.object.as_ref().map_or("-".to_owned(), |text| {
        let object: Value = serde_json::from_slice(text).unwrap();
        let meta = &object["metadata"];
        let value = object["data"]["v"].as_str().unwrap_or_default();
        let namespace = meta["namespace"].as_str().unwrap_or_default();
        format!("{namespace}/{}={value}", meta["name"].as_str().unwrap())
    });
    let result = item
        .filter_result
        .as_ref()
        .map_or("-", |text| std::str::from_utf8(text).unwrap());
    format!("{object} {result}")
}

fn shown(event: &Event) -> String {
    match event {
        Event::Changed {
            binding,
            change,
            item: what,
            key,
        } => format!(
            "{}.{} {} {}/{}/{} {}",
            binding.hook,
            binding.binding,
            change.as_str(),
            key.namespace,
            key.kind,
            key.name,
            item(what)
        ),
        other => panic!("{other:?}"),
    }
}

const MAPS: &str = "- {name: maps, kind: ConfigMap}\n";

#[test]
fn a_binding_gets_its_objects_and_then_their_changes() {
    let rig = Rig::new(&[MAPS]);
    rig.world.map("b", "one", "1");
    rig.world.map("a", "two", "2");
    rig.enable(0);
    let objects = rig.monitors.synchronization(id(0, 0));
    assert_eq!(
        objects.iter().map(item).collect::<Vec<_>>(),
        ["a/two=2 -", "b/one=1 -"]
    );
    rig.monitors.open(id(0, 0));
    rig.world.map("a", "new", "3");
    rig.world.map("b", "one", "4");
    rig.world.remove("ConfigMap", "a", "two");
    rig.expect(&[
        "0.0 Added a/ConfigMap/new a/new=3 -",
        "0.0 Modified b/ConfigMap/one b/one=4 -",
        "0.0 Deleted a/ConfigMap/two a/two=2 -",
    ]);
    assert_eq!(rig.snapshot(0, 0), ["a/new=3 -", "b/one=4 -"]);
    let page = rig.metrics.render();
    for line in [
        "p_kube_snapshot_objects{hook=\"hook-0.sh\",binding=\"maps\",queue=\"main\"} 2",
        "p_kube_event_duration_seconds_count{hook=\"hook-0.sh\",binding=\"maps\",queue=\"main\"} ",
        "p_kube_event_duration_seconds_bucket{hook=\"hook-0.sh\",binding=\"maps\",queue=\"main\",le=\"0.001\"}",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

#[test]
fn ten_hooks_with_the_same_selector_share_one_watch_and_one_copy() {
    let rig = Rig::new(&[MAPS; 10]);
    rig.world.map("a", "one", "1");
    for hook in 0..10 {
        rig.ready(hook);
    }
    rig.world.map("a", "two", "2");
    let mut events: Vec<String> = (0..10).map(|_| rig.next()).collect();
    events.sort();
    for (hook, event) in events.iter().enumerate() {
        assert_eq!(*event, format!("{hook}.0 Added a/ConfigMap/two a/two=2 -"));
    }
    let asked = rig.asked();
    assert_eq!(asked.len(), 2, "one list, one watch: {asked:?}");
    let text = |hook| {
        rig.monitors.snapshot(id(hook, 0))[0]
            .object
            .clone()
            .unwrap()
    };
    assert!(Arc::ptr_eq(&text(0), &text(9)));
}

#[test]
fn bindings_that_differ_do_not_share() {
    let rig = Rig::new(&[
        "- {name: a, kind: ConfigMap}\n- {name: b, kind: cm, labelSelector: {matchLabels: {x: w}}}\n- {name: c, kind: ConfigMap, namespace: {nameSelector: {matchNames: [k, m]}}, nameSelector: {matchNames: [p, q]}}\n- {name: d, kind: ConfigMap, fieldSelector: {matchExpressions: [{field: metadata.namespace, operator: NotEquals, value: z}]}}\n",
    ]);
    // Short names are not known to this server.
    let error = rig.monitors.enable(0).unwrap_err().to_string();
    assert!(error.starts_with("kubernetes[1]{b}: Cannot get GroupVersionResource info for apiVersion '' kind 'cm' from api-server. Possibly CRD is not created before informers are started. Error was: "), "{error}");
    let rig = Rig::new(&[
        "- {name: a, kind: ConfigMap}\n- {name: b, kind: configmaps, labelSelector: {matchLabels: {x: w}}}\n- {name: c, kind: ConfigMap, namespace: {nameSelector: {matchNames: [k, m]}}, nameSelector: {matchNames: [p, q]}}\n- {name: d, kind: configmap, fieldSelector: {matchExpressions: [{field: metadata.namespace, operator: NotEquals, value: z}]}}\n",
    ]);
    rig.enable(0);
    let mut lists: Vec<String> = rig
        .asked()
        .into_iter()
        .filter(|seen| !seen.is_watch())
        .map(|seen| {
            seen.line
                .replace("&limit=500 HTTP/1.1", "")
                .replace("?limit=500 HTTP/1.1", "")
        })
        .collect();
    lists.sort();
    assert_eq!(
        lists,
        [
            "GET /api/v1/configmaps",
            "GET /api/v1/configmaps?fieldSelector=metadata.namespace%21%3Dz",
            "GET /api/v1/configmaps?labelSelector=x%3Dw",
            "GET /api/v1/namespaces/k/configmaps?fieldSelector=metadata.name%3Dp",
            "GET /api/v1/namespaces/k/configmaps?fieldSelector=metadata.name%3Dq",
            "GET /api/v1/namespaces/m/configmaps?fieldSelector=metadata.name%3Dp",
            "GET /api/v1/namespaces/m/configmaps?fieldSelector=metadata.name%3Dq",
        ]
    );
}

#[test]
fn a_change_that_the_filter_does_not_show_is_no_event() {
    let rig = Rig::new(&[
        "- {name: f, kind: ConfigMap, jqFilter: .data.v}\n- {name: nil, kind: ConfigMap, jqFilter: .nothing, keepFullObjectsInMemory: false}\n- {name: p, kind: ConfigMap, keepFullObjectsInMemory: false, executeHookOnEvent: [Deleted]}\n",
    ]);
    rig.world.map("a", "one", "1");
    rig.ready(0);
    assert_eq!(rig.snapshot(0, 0), ["a/one=1 \"1\""]);
    assert_eq!(
        rig.snapshot(0, 1),
        ["- null"],
        "null is a result like any other"
    );
    assert_eq!(rig.snapshot(0, 2), ["- -"]);
    rig.world.put(
        "ConfigMap",
        "a",
        "one",
        json!({"data": {"v": "1"}, "immutable": true}),
    );
    rig.world.map("a", "one", "2");
    rig.world.put(
        "ConfigMap",
        "a",
        "one",
        json!({"data": {"v": "2", "w": "3"}}),
    );
    rig.world.remove("ConfigMap", "a", "one");
    rig.expect(&[
        "0.0 Modified a/ConfigMap/one a/one=2 \"2\"",
        "0.0 Deleted a/ConfigMap/one a/one=2 \"2\"",
        "0.1 Deleted a/ConfigMap/one - null",
        "0.2 Deleted a/ConfigMap/one - -",
    ]);
    assert_eq!(rig.asked().len(), 2, "one list, one watch");
    let page = rig.metrics.render();
    assert!(
        page.contains("p_kube_jq_filter_duration_seconds_bucket"),
        "{page}"
    );
}

#[test]
fn the_snapshot_has_the_new_object_although_there_was_no_event() {
    let rig = Rig::new(&["- {name: f, kind: ConfigMap, jqFilter: .data.w}\n"]);
    rig.world.map("a", "one", "1");
    rig.ready(0);
    rig.world.map("a", "one", "2");
    rig.until(0, 0, &["a/one=2 null"]);
    assert!(rig.events.try_recv().is_err());
}

#[test]
fn a_filter_that_fails_keeps_the_hook_from_being_enabled_until_it_works() {
    let rig = Rig::new(&[
        "- {name: f, kind: ConfigMap, jqFilter: '.data.v | tonumber'}\n",
        "- {name: s, kind: Secret, jqFilter: '.data.v | tonumber'}\n",
        MAPS,
    ]);
    rig.world.map("a", "bad", "x");
    rig.world.map("a", "good", "1");
    rig.world
        .put("Secret", "a", "hidden", json!({"data": {"v": "TOPSECRET"}}));
    let error = rig.monitors.enable(0).unwrap_err().to_string();
    assert!(
        error.starts_with("apply filter for 'kubernetes[0]{f}/bad': jqFilter: "),
        "{error}"
    );
    let error = rig.monitors.enable(1).unwrap_err().to_string();
    assert!(
        error.contains("hidden") && !error.contains("TOPSECRET"),
        "{error}"
    );
    rig.enable(2);
    assert_eq!(rig.snapshot(0, 0), [""; 0]);
    rig.world.map("a", "bad", "2");
    let end = std::time::Instant::now() + PATIENCE;
    while rig.monitors.enable(0).is_err() {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(rig.snapshot(0, 0), ["a/bad=2 2", "a/good=1 1"]);
    // Later such an object is left as it was, and its event is dropped.
    rig.monitors.open(id(0, 0));
    rig.world.map("a", "good", "y");
    rig.world.map("a", "bad", "3");
    rig.expect(&["0.0 Modified a/ConfigMap/bad a/bad=3 3"]);
    rig.world.remove("ConfigMap", "a", "good");
    rig.expect(&["0.0 Deleted a/ConfigMap/good a/good=y 1"]);
}

#[test]
fn events_wait_for_the_synchronization_and_none_is_lost_or_doubled() {
    let rig = Rig::new(&[MAPS]);
    rig.world.map("a", "one", "1");
    rig.enable(0);
    rig.world.map("a", "one", "2");
    rig.until(0, 0, &["a/one=2 -"]);
    assert_eq!(rig.monitors.synchronization(id(0, 0)).len(), 1);
    rig.world.map("a", "two", "3");
    rig.until(0, 0, &["a/one=2 -", "a/two=3 -"]);
    // The run failed: the next one reads again.
    assert_eq!(rig.monitors.synchronization(id(0, 0)).len(), 2);
    rig.world.map("a", "one", "4");
    rig.world.remove("ConfigMap", "a", "two");
    rig.until(0, 0, &["a/one=4 -"]);
    assert!(rig.events.try_recv().is_err(), "still locked");
    rig.monitors.open(id(0, 0));
    rig.world.map("a", "three", "5");
    rig.expect(&[
        "0.0 Modified a/ConfigMap/one a/one=4 -",
        "0.0 Deleted a/ConfigMap/two a/two=3 -",
        "0.0 Added a/ConfigMap/three a/three=5 -",
    ]);
}

#[test]
fn an_expired_watch_tells_what_was_missed_and_nothing_twice() {
    let rig = Rig::new(&[
        MAPS,
        "- {name: slim, kind: ConfigMap, jqFilter: .data.v, keepFullObjectsInMemory: false}\n",
    ]);
    for name in ["gone", "same", "other"] {
        rig.world.map("a", name, "1");
    }
    rig.ready(0);
    rig.ready(1);
    // All of this happens unseen: the watch is cut and its version has expired.
    rig.world.change(|state| {
        state.compacted = state.version + 10;
        state.era += 1;
        state.version += 10;
        state.objects.retain(|key, _| key.2 != "gone");
        let version = state.version;
        for object in state.objects.values_mut() {
            if object["metadata"]["name"] == "other" {
                object["data"]["v"] = json!("2");
                object["metadata"]["resourceVersion"] = json!(version.to_string());
            }
        }
    });
    rig.world.changed.notify_all();
    rig.expect(&[
        "0.0 Modified a/ConfigMap/other a/other=2 -",
        "1.0 Modified a/ConfigMap/other - \"2\"",
        "0.0 Deleted a/ConfigMap/gone a/gone=1 -",
        "1.0 Deleted a/ConfigMap/gone - \"1\"",
    ]);
    rig.world.map("a", "late", "3");
    rig.expect(&["0.0 Added a/ConfigMap/late a/late=3 -"]);
    let page = rig.metrics.render();
    assert!(
        page.contains("p_kubernetes_client_watch_errors_total{error_type=\"expired\"} 1"),
        "{page}"
    );
}

#[test]
fn a_compaction_alone_is_no_event() {
    let rig = Rig::new(&[MAPS]);
    rig.world.map("a", "one", "1");
    rig.ready(0);
    rig.world.map("a", "two", "1");
    rig.expect(&["0.0 Added a/ConfigMap/two a/two=1 -"]);
    rig.world.compact();
    rig.world.map("a", "three", "1");
    rig.expect(&["0.0 Added a/ConfigMap/three a/three=1 -"]);
}

#[test]
fn namespaces_that_come_and_go_do_so_silently() {
    let binding =
        "- {name: maps, kind: ConfigMap, namespace: {labelSelector: {matchLabels: {env: prod}}}}\n";
    let rig = Rig::new(&[binding, binding]);
    let label = |name: &str, env: &str| {
        rig.world.put(
            "Namespace",
            "",
            name,
            json!({"metadata": {"labels": {"env": env}}}),
        );
    };
    label("one", "prod");
    label("two", "test");
    rig.world.map("one", "a", "1");
    rig.world.map("two", "b", "2");
    rig.ready(0);
    rig.ready(1);
    assert_eq!(rig.snapshot(0, 0), ["one/a=1 -"]);
    label("two", "prod");
    rig.until(0, 0, &["one/a=1 -", "two/b=2 -"]);
    rig.until(1, 0, &["one/a=1 -", "two/b=2 -"]);
    assert!(
        rig.events.try_recv().is_err(),
        "objects that were there are no events"
    );
    rig.world.map("two", "c", "3");
    rig.expect(&[
        "0.0 Added two/ConfigMap/c two/c=3 -",
        "1.0 Added two/ConfigMap/c two/c=3 -",
    ]);
    label("one", "test");
    rig.until(0, 0, &["two/b=2 -", "two/c=3 -"]);
    rig.world.map("one", "a", "9");
    rig.world.map("two", "d", "4");
    rig.expect(&["0.0 Added two/ConfigMap/d two/d=4 -"]);
    let watches = rig.asked().into_iter().filter(Seen::is_watch).count();
    assert!(
        (3..=4).contains(&watches),
        "shared by both hooks: {watches}"
    );
    rig.world.remove("Namespace", "", "two");
    rig.until(0, 0, &[]);
    let page = rig.metrics.render();
    assert!(
        page.contains(
            "p_kube_snapshot_objects{hook=\"hook-0.sh\",binding=\"maps\",queue=\"main\"} 0"
        ),
        "{page}"
    );
}

#[test]
fn snapshots_are_sorted_as_the_original_sorts() {
    let rig = Rig::new(&[
        "- {name: full, kind: ConfigMap}\n- {name: slim, kind: ConfigMap, keepFullObjectsInMemory: false, jqFilter: '.metadata.namespace + \" \" + .metadata.name'}\n- {name: two, kind: ConfigMap, namespace: {nameSelector: {matchNames: [a-b, a]}}, nameSelector: {matchNames: [z, 'y']}}\n",
    ]);
    for (namespace, name) in [
        ("a", "z"),
        ("a-b", "y"),
        ("a", "y.1"),
        ("b", "a"),
        ("a", "y"),
    ] {
        rig.world.map(namespace, name, "");
    }
    rig.enable(0);
    assert_eq!(
        rig.snapshot(0, 0),
        ["a/y= -", "a/y.1= -", "a/z= -", "a-b/y= -", "b/a= -"]
    );
    assert_eq!(
        rig.snapshot(0, 1),
        [
            "- \"a-b y\"",
            "- \"a y\"",
            "- \"a y.1\"",
            "- \"a z\"",
            "- \"b a\""
        ],
        "as one text, a dash sorts before a slash"
    );
    assert_eq!(rig.snapshot(0, 2), ["a/y= -", "a/z= -", "a-b/y= -"]);
}

#[test]
fn a_hook_is_not_enabled_while_its_objects_cannot_be_listed() {
    let rig = Rig::new(&[MAPS]);
    rig.world.change(|state| state.refusal = 403);
    let error = rig.monitors.enable(0).unwrap_err().to_string();
    assert!(
        error
            .starts_with("kubernetes[0]{maps}: list existing objects: GET /api/v1/configmaps: 403"),
        "{error}"
    );
    rig.monitors.enable(0).unwrap_err();
    rig.world.change(|state| state.refusal = 0);
    rig.enable(0);
}

#[test]
fn a_kind_that_appears_later_is_found_and_names_are_hinted_at() {
    let rig = Rig::new(&[
        "- {name: w, apiVersion: x.io/v1, kind: Widget}\n",
        "- {kind: ConfgMap}\n",
        "- {name: ns, kind: Namespace, namespace: {nameSelector: {matchNames: [x]}}}\n",
    ]);
    let error = rig.monitors.enable(0).unwrap_err().to_string();
    assert!(error.contains("kubernetes[0]{w}: Cannot get GroupVersionResource info for apiVersion 'x.io/v1' kind 'Widget'"), "{error}");
    let error = rig.monitors.enable(1).unwrap_err().to_string();
    assert!(
        error.contains("kubernetes[0]:") && error.contains("did you mean \"ConfigMap\""),
        "{error}"
    );
    let error = rig.monitors.enable(2).unwrap_err().to_string();
    assert!(error.contains("remove 'namespace'"), "{error}");
    rig.world.change(|state| state.widgets = true);
    rig.world.put("Widget", "a", "one", json!({}));
    rig.enable(0);
    assert_eq!(rig.snapshot(0, 0), ["a/one= -"]);
}

#[test]
fn a_snapshot_before_the_hook_is_enabled_is_empty_and_counted() {
    let rig = Rig::new(&[MAPS, MAPS]);
    rig.world.map("a", "one", "1");
    rig.enable(0);
    assert!(rig.monitors.snapshot(id(1, 0)).is_empty());
    assert!(rig.monitors.snapshot(id(7, 7)).is_empty());
    let page = rig.metrics.render();
    assert!(
        page.contains("p_binding_monitor_missing_total{binding=\"maps\"} 1"),
        "{page}"
    );
    rig.enable(1);
    assert_eq!(rig.snapshot(1, 0).len(), 1);
}

#[test]
fn a_hook_without_kubernetes_bindings_needs_no_cluster() {
    let rig = Rig::new(&[MAPS]);
    rig.world.change(|state| state.refusal = 500);
    rig.monitors.enable(5).unwrap();
}

#[test]
fn stopping_ends_the_wait_for_a_list() {
    let rig = Rig::new(&[MAPS]);
    std::thread::scope(|scope| {
        let state = rig.world.state.lock().unwrap();
        let waiting = scope.spawn(|| rig.monitors.enable(0));
        rig.monitors.stop();
        drop(state);
        let error = waiting.join().unwrap();
        assert!(error.is_err() || rig.events.is_empty());
    });
}

#[test]
fn a_full_channel_holds_no_lock() {
    let rig = Rig::new(&[MAPS]);
    rig.ready(0);
    for number in 0..1200 {
        rig.world.map("a", &format!("m{number:04}"), "1");
    }
    // The main loop does not read. The watch waits, and snapshots can be read all the same.
    let end = std::time::Instant::now() + PATIENCE;
    while rig.snapshot(0, 0).len() < 1000 {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(Duration::from_millis(5));
    }
    for number in 0..1200 {
        let event = rig.next();
        assert!(
            event.contains(&format!("m{number:04}")) && event.contains(Change::Added.as_str()),
            "{event}"
        );
    }
}
