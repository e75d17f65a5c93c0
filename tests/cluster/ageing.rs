//! Connections that the API server keeps: it holds up to 25 idle ones per server for 90 s and expects that they work.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::stage::{Kind, answers, config_map, review};
use crate::support::{Connection, Operator, SOON, Stage, wait_for};

fn started(name: &str) -> (Stage<'static>, Operator) {
    let body = format!("sleep 0.3\n{}", answers(&json!({ "allowed": true })));
    let stage = Stage::new(name).hook("allow", Kind::Validating, &json!({}), &body);
    let operator = stage.env.start();
    operator.wait_ready();
    (stage, operator)
}

#[track_caller]
fn is_answered(connection: &mut Connection, path: &str, uid: &str) {
    let question = review(uid, &config_map("a", &json!({})));
    let answer = connection.post_json(path, &question).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let response = &answer.json()["response"];
    assert_eq!(response["uid"], uid);
    assert_eq!(response["allowed"], true, "{response}");
}

/// The API server gives a connection up after 90 s. Whoever closes it before loses requests that are on their way. The wait is the
/// requirement itself; this module's name lets it begin early, while other tests run.
#[test]
fn a_connection_idle_for_89_seconds_is_reused() {
    let (stage, _operator) = started("idle");
    let path = stage.path("allow");
    let mut connection = stage.connect();
    is_answered(&mut connection, &path, "before");
    std::thread::sleep(Duration::from_secs(89));
    is_answered(&mut connection, &path, "after");
}

/// Three API servers with 26 connections each, and as many calls at once as one of them keeps connections.
#[test]
fn idle_connections_take_nothing_from_25_parallel_calls() {
    let (stage, operator) = started("many");
    let path = stage.path("allow");
    let bundle = stage.ca_bundle();
    let name = stage.address().ip().to_string();
    let connect = || Connection::tls(stage.address(), &name, &bundle, None).unwrap();
    let mut idle: Vec<Connection> = (0..78).map(|_| connect()).collect();
    for connection in &mut idle {
        let answer = connection.request("GET", "/healthz", &[], b"").unwrap();
        assert_eq!(answer.status, 200);
    }
    let mut calling: Vec<Connection> = (0..25).map(|_| connect()).collect();
    let asked = Instant::now();
    std::thread::scope(|scope| {
        for (number, connection) in calling.iter_mut().enumerate() {
            let path = &path;
            scope.spawn(move || is_answered(connection, path, &format!("call-{number}")));
        }
    });
    // One after the other they would take 7.5 s and more.
    let elapsed = asked.elapsed();
    assert!(elapsed < Duration::from_secs(7), "{elapsed:?}");
    for (number, connection) in idle.iter_mut().enumerate() {
        if number % 13 == 0 {
            is_answered(connection, &path, &format!("idle-{number}"));
        } else {
            let answer = connection.request("GET", "/healthz", &[], b"").unwrap();
            assert_eq!(answer.status, 200, "{number}");
        }
    }
    drop((idle, calling));
    wait_for("the connections to be given up", SOON, || {
        operator.fds() < 60
    });
}
