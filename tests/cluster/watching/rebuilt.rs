//! Objects are created, changed and deleted at random while a slow hook writes down what it is told. In the end the hook must
//! know exactly what the cluster has.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Scene, name_of};
use crate::support::stage::config_map;
use crate::support::{Api, ControlPlane, SOON, wait_for};

/// Names that objects may have.
const OBJECTS: u64 = 5000;
/// Clients that change them at the same time.
const CLIENTS: usize = 4;
const DURATION: Duration = Duration::from_secs(30);

/// Times that the API server is killed meanwhile, and how long it is away: long enough that watches notice, and short, because
/// the changes are what the test is about.
const KILLS: usize = 2;
const AWAY: Duration = Duration::from_secs(2);

/// Changes one object in some way. What cannot be done now, such as creating what is there, is left.
fn change_something(api: &Api, maps: &str, step: u64) -> std::io::Result<()> {
    let random = RandomState::new().hash_one(step);
    let name = format!("object-{}", random % OBJECTS);
    let data = json!({ "step": step.to_string(), "random": random.to_string() });
    let (plain, merge) = ("application/json", "application/merge-patch+json");
    let one = format!("{maps}/{name}");
    let (method, path, kind, body) = match random >> 32 & 3 {
        0 => ("DELETE", one.as_str(), plain, String::new()),
        1 | 2 => ("POST", maps, plain, config_map(&name, &data).to_string()),
        _ => (
            "PATCH",
            one.as_str(),
            merge,
            json!({ "data": data }).to_string(),
        ),
    };
    let answer = api.try_ask(method, path, kind, body.as_bytes())?;
    match answer.status {
        200 | 201 | 404 | 409 => Ok(()),
        _ => Err(std::io::Error::other(answer.text())),
    }
}

/// What matters of an object: its version and its content.
fn digest(object: &Value) -> (u64, Value) {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    (version.parse().unwrap(), object["data"].clone())
}

/// The cluster as a hook sees it, from everything that it was told.
fn rebuild(told: &[Value]) -> BTreeMap<String, (u64, Value)> {
    let mut state = BTreeMap::new();
    let mut newest: HashMap<String, u64> = HashMap::new();
    for element in told {
        for item in element["objects"].as_array().into_iter().flatten() {
            let object = &item["object"];
            newest.insert(name_of(object).to_owned(), digest(object).0);
            state.insert(name_of(object).to_owned(), digest(object));
        }
        let Some(event) = element["watchEvent"].as_str() else {
            continue;
        };
        let object = &element["object"];
        let name = name_of(object).to_owned();
        let (version, data) = digest(object);
        let before = newest.insert(name.clone(), version).unwrap_or(0);
        // A delete that was missed is told with the last known state.
        let is_newer = before < version || event == "Deleted" && before == version;
        assert!(is_newer, "{name}: {event} {version} after {before}");
        let was_there = if event == "Deleted" {
            state.remove(&name).is_some()
        } else {
            state.insert(name.clone(), (version, data)).is_some()
        };
        assert_eq!(was_there, event != "Added", "{name}: {event} {version}");
    }
    state
}

/// Insists that the hook `watch` knows what the cluster has; answers how much it was told.
#[track_caller]
fn knows_the_cluster(scene: &Scene<'_>) -> usize {
    scene.create("the-last");
    wait_for("the last event", 3 * SOON, || {
        let events = scene.events("watch");
        events.iter().any(|event| event == "Added the-last")
    });
    let told = scene.told("watch");
    let listed = scene.api.object(&scene.maps());
    let cluster: BTreeMap<String, (u64, Value)> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| (name_of(object).to_owned(), digest(object)))
        .collect();
    assert_eq!(rebuild(&told), cluster);
    told.len()
}

#[test]
fn a_slow_hook_knows_in_the_end_what_the_cluster_has() {
    let plane = ControlPlane::shared();
    let scene = Scene::on(plane, "rebuilt").watching("watch", &json!({}), "sleep 0.2");
    let maps = scene.maps();
    for step in 0..OBJECTS / 4 {
        change_something(&scene.api, &maps, step).unwrap();
    }
    let operator = scene.env.start();
    // Not when it is ready: the changes go on while it lists and synchronizes.
    operator.wait_alive();
    let until = Instant::now() + DURATION;
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let api = plane.api();
                let steps = (0..).take_while(|_| Instant::now() < until);
                steps.for_each(|step| change_something(&api, &maps, step).unwrap());
            });
        }
    });
    let told = knows_the_cluster(&scene);
    assert!(told > 200, "only {told} elements");
}

/// The same while the API server is killed: what happened between its return and the next list has to be found out.
#[test]
fn a_hook_knows_what_the_cluster_has_although_the_api_server_was_killed() {
    let plane = ControlPlane::own();
    let mut scene = Scene::on(&plane, "rebuilt").watching("watch", &json!({}), "sleep 0.05");
    let maps = scene.maps();
    let _operator = scene.start();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let api = plane.api();
                let steps = (0..).take_while(|_| !done.load(Ordering::Relaxed));
                // What fails while the API server is away is left.
                steps.for_each(|step| {
                    if change_something(&api, &maps, step).is_err() {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                });
            });
        }
        for _ in 0..KILLS {
            let told = scene.told("watch").len();
            wait_for("events", SOON, || scene.told("watch").len() > told + 50);
            plane.stop_apiserver();
            std::thread::sleep(AWAY);
            plane.start_apiserver();
        }
        let told = scene.told("watch").len();
        wait_for("events", SOON, || scene.told("watch").len() > told + 50);
        done.store(true, Ordering::Relaxed);
    });
    scene.api = plane.api();
    knows_the_cluster(&scene);
}
