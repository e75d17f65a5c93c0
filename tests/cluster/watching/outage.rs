//! An API server that is killed and comes back, with its history or without.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Scene, metric, names};
use crate::support::{Connection, ControlPlane, wait_for};

/// The requirement: from the return of the API server until a hook hears of the first change.
const HEARD: Duration = Duration::from_secs(5);

/// How long the API server is away, three times in a row.
const AWAY: [Duration; 3] = [
    Duration::from_secs(20),
    Duration::from_secs(20),
    Duration::from_secs(20),
];

/// Objects that are made just before the API server is killed.
const BEFORE: usize = 5;

/// Watches of one hook that has many.
const MANY: usize = 50;

/// Plain lists after a return, at most: the test's own, one that is needed, and one that came while the server was not ready.
const LISTS: f64 = 3.0;
/// Watches, streaming lists among them, that were begun: one or two of the API server itself, which watches a ConfigMap, one of
/// ours that goes on, one that was told that its version is too old, one that lists, and some that came too early.
const WATCHES: f64 = 8.0;

#[test]
fn an_api_server_that_is_killed_and_returns_costs_no_event_and_doubles_none() {
    let plane = ControlPlane::own();
    let mut scene = Scene::on(&plane, "killed").watching("watch", &json!({}), "");
    let _operator = scene.start();
    let mut expected = Vec::new();
    for (round, away) in AWAY.into_iter().enumerate() {
        for number in 0..BEFORE {
            scene.create(&format!("before-{round}-{number}"));
            expected.push(format!("Added before-{round}-{number}"));
        }
        plane.stop_apiserver();
        // The length of the outage is what the requirement is about.
        std::thread::sleep(away);
        plane.start_apiserver();
        // The connection of before is dead.
        scene.api = plane.api();
        let first = format!("after-{round}");
        scene.create(&first);
        scene.wait_event_for("watch", &format!("Added {first}"), HEARD);
        let (lists, watches) = requests(&scene);
        assert!(
            lists <= LISTS && watches <= WATCHES,
            "a storm: {lists} lists, {watches} watches"
        );
        // What was there before the outage is still known for what it is.
        scene.change(
            &format!("before-{round}-0"),
            &json!({ "data": { "x": "1" } }),
        );
        scene.delete(&format!("before-{round}-1"));
        scene.wait_event("watch", &format!("Deleted before-{round}-1"));
        expected.push(format!("Added {first}"));
        expected.push(format!("Modified before-{round}-0"));
        expected.push(format!("Deleted before-{round}-1"));
    }
    let mut events = scene.events("watch");
    events.sort();
    expected.sort();
    assert_eq!(events, expected);
    assert_eq!(
        scene.told("watch").len(),
        expected.len() + 1,
        "one Synchronization"
    );
}

/// A hook with fifty different watches: all of them go on in time, and the API server is not asked more often than is needed.
#[test]
fn fifty_watches_do_not_storm_an_api_server_that_returns() {
    let plane = ControlPlane::own();
    let scene = Scene::on(&plane, "fifty");
    let bindings: Vec<Value> = (0..MANY)
        .map(|number| {
            scene.binding(&json!({
                "name": format!("maps-{number}"),
                "labelSelector": { "matchLabels": { "number": number.to_string() } },
                "executeHookOnSynchronization": false,
            }))
        })
        .collect();
    let config = json!({ "configVersion": "v1", "kubernetes": bindings });
    let mut scene = scene.hook("watch", &config, "");
    let _operator = scene.start();
    plane.stop_apiserver();
    // Long enough that pauses which grow would have grown.
    std::thread::sleep(Duration::from_secs(8));
    plane.start_apiserver();
    scene.api = plane.api();
    let returned = Instant::now();
    for number in 0..MANY {
        let labels = json!({ "number": number.to_string() });
        scene.create_with(&format!("map-{number}"), &labels, &json!({}));
    }
    wait_for("all events", HEARD, || scene.events("watch").len() >= MANY);
    assert!(returned.elapsed() < HEARD, "{:?}", returned.elapsed());
    let (lists, watches) = requests(&scene);
    let many = f64::from(u32::try_from(MANY).unwrap());
    assert!(
        lists <= LISTS + many && watches <= WATCHES + 3.0 * many,
        "a storm: {lists} lists, {watches} watches"
    );
    let mut events = scene.events("watch");
    events.sort();
    let mut expected: Vec<String> = (0..MANY).map(|n| format!("Added map-{n}")).collect();
    expected.sort();
    assert_eq!(events, expected);
}

/// Requests for ConfigMaps since the API server has started: lists and watches.
fn requests(scene: &Scene<'_>) -> (f64, f64) {
    // One of our own shows that the counter counts what it should.
    scene.api.object(&scene.maps());
    let of_maps = |counter, verb| {
        let labels = ["resource=\"configmaps\"", "scope=\"namespace\"", verb];
        metric(&scene.api, counter, &labels)
    };
    let lists = of_maps("apiserver_request_total", "verb=\"LIST\"");
    assert!(lists >= 1.0, "the API server does not count lists");
    // A watch is counted when it has ended.
    let ended = of_maps("apiserver_request_total", "verb=\"WATCH\"");
    let open = of_maps("apiserver_longrunning_requests", "verb=\"WATCH\"");
    assert!(open >= 1.0, "the API server does not count watches");
    (lists, ended + open)
}

/// etcd, asked directly: the API server is away.
fn etcd(plane: &ControlPlane, path: &str, question: &Value) -> Value {
    let address = plane.etcd().trim_start_matches("http://").parse().unwrap();
    let mut connection = Connection::plain(address).unwrap();
    let answer = connection.post_json(path, question).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[test]
fn a_history_that_is_gone_is_made_up_for_by_a_list_and_deletes_are_found_out() {
    let plane = ControlPlane::own();
    let scene = Scene::on(&plane, "compacted");
    let config = json!({ "configVersion": "v1", "kubernetes": [
        scene.binding(&json!({ "includeSnapshotsFrom": ["maps"] })),
    ] });
    let mut scene = scene.hook("watch", &config, "");
    for name in ["changed", "kept", "lost"] {
        scene.create_with(name, &json!({}), &json!({ "of": name }));
    }
    let _operator = scene.start();
    scene.change("changed", &json!({ "data": { "of": "something else" } }));
    scene.wait_event("watch", "Modified changed");

    plane.stop_apiserver();
    let path = format!("/registry/configmaps/{}/lost", scene.namespace.name);
    let deleted = etcd(
        &plane,
        "/v3/kv/deleterange",
        &json!({ "key": STANDARD.encode(path) }),
    );
    assert_eq!(deleted["deleted"], "1", "{deleted}");
    let revision = &deleted["header"]["revision"];
    etcd(
        &plane,
        "/v3/kv/compaction",
        &json!({ "revision": revision, "physical": true }),
    );
    plane.start_apiserver();
    scene.api = plane.api();

    scene.wait_event_for("watch", "Deleted lost", HEARD);
    scene.create("new");
    scene.wait_event_for("watch", "Added new", HEARD);
    assert_eq!(
        scene.events("watch"),
        ["Modified changed", "Deleted lost", "Added new"]
    );
    let told = scene.told("watch");
    assert_eq!(
        told[2]["object"]["data"]["of"], "lost",
        "its last known state"
    );
    assert_eq!(names(&told[2]["snapshots"]["maps"]), ["changed", "kept"]);
}
