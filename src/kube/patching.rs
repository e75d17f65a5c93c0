//! Tests of object operations against a server that misbehaves on cue; what a real one does is tested on a real one.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{Client, Limits};
use super::config::ClusterConfig;
use super::patcher::Patcher;
use super::scripted::{Seen, Server, answer, no_limits};
use crate::operation::{Order, Perform, Scope, Undone};

const MAP: &str = "/api/v1/namespaces/n/configmaps/a";

/// A server that knows ConfigMaps and Secrets; everything else about them is the script's.
fn server(script: impl Fn(&Seen, &mut TcpStream) -> bool + Send + Sync + 'static) -> Server {
    Server::start(move |seen, stream| {
        let entry = |plural: &str, kind: &str| json!({ "resource": plural, "responseKind": { "kind": kind }, "scope": "Namespaced", "singularResource": "", "verbs": ["get"] });
        let items = match seen.path() {
            "/api" => json!([{ "metadata": { "name": "" }, "versions": [{
                "version": "v1", "resources": [entry("configmaps", "ConfigMap"), entry("secrets", "Secret")] }] }]),
            "/apis" => json!([]),
            _ => return script(seen, stream),
        };
        let list = json!({ "kind": "APIGroupDiscoveryList", "items": items }).to_string();
        stream.write_all(&answer(200, "", &list)).is_ok()
    })
}

fn patcher(server: &Server, limits: Limits) -> Patcher {
    let no_plugin = Arc::new(|_: &_| Err("no plugin".to_owned()));
    let client = Client::new(ClusterConfig::plain(&server.url()), limits, no_plugin).unwrap();
    Patcher::new(client, Duration::from_secs(600))
}

fn order(file: &str) -> Order<'_> {
    Order {
        file: file.as_bytes(),
        scope: Scope::All,
        until: None,
        hook: "hook.sh",
        binding: "b",
    }
}

fn failed(undone: Result<(), Undone>) -> String {
    match undone {
        Err(Undone::Failed(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn status(code: u16, reason: &str, headers: &str) -> Vec<u8> {
    let body = json!({ "kind": "Status", "reason": reason, "message": "marker-of-the-server" });
    answer(code, headers, &body.to_string())
}

/// What was asked about objects: method and path.
fn asked(server: &Server) -> Vec<String> {
    let seen = server.seen().into_iter();
    seen.filter(|seen| seen.path().contains("/namespaces/"))
        .map(|seen| seen.line.trim_end_matches(" HTTP/1.1").to_owned())
        .collect()
}

const CREATE_OR_UPDATE: &str = r#"{"operation":"CreateOrUpdate","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n"}}}"#;
const FILTER: &str = r#"{"operation":"JQPatch","kind":"ConfigMap","namespace":"n","name":"a","jqFilter":".data.x = \"1\""}"#;
const MERGE: &str = r#"{"operation":"MergePatch","kind":"ConfigMap","namespace":"n","name":"a","mergePatch":{"data":{"x":"1"}}}"#;

fn object(version: usize) -> String {
    json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "a", "namespace": "n", "resourceVersion": version.to_string(), "uid": "u" } })
    .to_string()
}

/// A server whose object changes after every look, until the given change gets through.
fn stormy(accepted: usize) -> Server {
    let puts = AtomicUsize::new(0);
    server(move |seen, stream| {
        let count = puts.load(Ordering::SeqCst);
        let words = match seen.line.split(' ').next().unwrap() {
            "POST" => status(409, "AlreadyExists", ""),
            "GET" => answer(200, "", &object(count)),
            _ if count == accepted => {
                assert!(
                    seen.body
                        .contains(&format!("\"resourceVersion\":\"{count}\""))
                );
                answer(200, "", "{}")
            }
            _ => {
                puts.fetch_add(1, Ordering::SeqCst);
                status(409, "Conflict", "")
            }
        };
        stream.write_all(&words).is_ok()
    })
}

#[test]
fn a_conflict_is_tried_again_with_the_object_as_it_is_by_then() {
    for (operation, before) in [(CREATE_OR_UPDATE, 1), (FILTER, 0)] {
        let server = stormy(3);
        patcher(&server, no_limits())
            .perform(&order(operation))
            .unwrap();
        assert_eq!(asked(&server).len(), before + 8, "{:?}", asked(&server));
    }
}

#[test]
fn a_storm_of_conflicts_ends_after_four_attempts() {
    for operation in [CREATE_OR_UPDATE, FILTER] {
        let server = stormy(usize::MAX);
        let error = failed(patcher(&server, no_limits()).perform(&order(operation)));
        assert!(
            error.contains("changed by others during each of 4 attempts"),
            "{error}"
        );
        let puts = asked(&server)
            .iter()
            .filter(|line| line.starts_with("PUT"))
            .count();
        assert_eq!(puts, 4);
    }
}

#[test]
fn an_object_that_is_deleted_between_two_calls_is_created_after_all() {
    let posts = AtomicUsize::new(0);
    let server = server(move |seen, stream| {
        let first = seen.line.starts_with("POST") && posts.fetch_add(1, Ordering::SeqCst) == 0;
        let words = match seen.line.split(' ').next().unwrap() {
            "POST" if first => status(409, "AlreadyExists", ""),
            "POST" => answer(201, "", "{}"),
            _ => status(404, "NotFound", ""),
        };
        stream.write_all(&words).is_ok()
    });
    patcher(&server, no_limits())
        .perform(&order(CREATE_OR_UPDATE))
        .unwrap();
    let collection = MAP.trim_end_matches("/a");
    let expected = [
        format!("POST {collection}"),
        format!("GET {MAP}"),
        format!("POST {collection}"),
    ];
    assert_eq!(asked(&server), expected);
}

#[test]
fn the_server_may_ask_for_patience() {
    let calls = AtomicUsize::new(0);
    let server = server(move |_, stream| {
        let words = match calls.fetch_add(1, Ordering::SeqCst) {
            0 => status(429, "TooManyRequests", "Retry-After: 1\r\n"),
            _ => answer(200, "", "{}"),
        };
        stream.write_all(&words).is_ok()
    });
    patcher(&server, no_limits())
        .perform(&order(MERGE))
        .unwrap();
    assert_eq!(asked(&server).len(), 2);
}

#[test]
fn patience_ends_with_the_time_of_the_run_and_with_reason() {
    for (pause, until) in [
        (600, None),
        (5, Some(Instant::now() + Duration::from_secs(3))),
    ] {
        let server = server(move |_, stream| {
            let words = status(429, "TooManyRequests", &format!("Retry-After: {pause}\r\n"));
            stream.write_all(&words).is_ok()
        });
        let order = Order {
            until,
            ..order(MERGE)
        };
        let error = failed(patcher(&server, no_limits()).perform(&order));
        assert!(error.contains("429 TooManyRequests"), "{error}");
        assert_eq!(asked(&server).len(), 1);
    }
}

#[test]
fn a_failed_operation_does_not_hold_up_the_others_and_each_is_named() {
    let server = server(|seen, stream| {
        let words = if seen.path().ends_with('a') {
            status(404, "NotFound", "")
        } else {
            answer(200, "", "{}")
        };
        stream.write_all(&words).is_ok()
    });
    let other = MERGE.replace("\"a\"", "\"b\"");
    let file = format!("{MERGE}{other}{MERGE}");
    let error = failed(patcher(&server, no_limits()).perform(&order(&file)));
    let expected = format!(
        "2 errors occurred:\n\t* Filter object ConfigMap/n/a: document 1, MergePatch: PATCH {MAP}: 404 NotFound: marker-of-the-server\n\
         \t* Filter object ConfigMap/n/a: document 3, MergePatch: PATCH {MAP}: 404 NotFound: marker-of-the-server\n\n"
    );
    assert_eq!(error, expected);
    assert_eq!(asked(&server).len(), 3);
    // The error of a run stays short, however many there are.
    let error = failed(patcher(&server, no_limits()).perform(&order(&MERGE.repeat(1000))));
    assert!(error.starts_with("1000 errors occurred:\n"), "{error}");
    assert_eq!(error.lines().count(), 13, "{error}");
    assert!(error.contains("\t* 990 more, each in the log\n"), "{error}");
}

/// T16.
#[test]
fn what_a_server_says_about_a_secret_is_not_repeated() {
    let server = server(|_, stream| stream.write_all(&status(422, "Invalid", "")).is_ok());
    let secret = MERGE.replace("ConfigMap", "Secret");
    let error = failed(patcher(&server, no_limits()).perform(&order(&secret)));
    assert!(error.contains("422 Invalid"), "{error}");
    assert!(!error.contains("marker"), "{error}");
}

#[test]
fn a_server_that_cuts_every_answer_is_not_asked_a_thousand_times() {
    let server = server(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\"");
        false
    });
    let error = failed(patcher(&server, no_limits()).perform(&order(&MERGE.repeat(1000))));
    assert!(error.starts_with("3 errors occurred:\n"), "{error}");
    assert!(error.contains("cut after 4 bytes"), "{error}");
    assert!(
        error.contains("997 operations are not tried: the API server does not answer"),
        "{error}"
    );
}

#[test]
fn nothing_runs_when_one_document_is_bad() {
    let server = server(|_, stream| stream.write_all(&answer(200, "", "{}")).is_ok());
    let file = format!(
        "{MERGE}{MERGE}{}",
        r#"{"operation":"Delete","kind":"ConfigMap"}"#
    );
    let error = failed(patcher(&server, no_limits()).perform(&order(&file)));
    assert_eq!(
        error,
        "object patch file: can't validate document 3 (Delete ConfigMap): name is required"
    );
    assert_eq!(server.seen().len(), 0);
}

#[test]
fn a_failed_run_changes_only_what_asked_for_it_and_a_dry_run_nothing() {
    let server = server(|_, stream| stream.write_all(&answer(200, "", "{}")).is_ok());
    let patcher = patcher(&server, no_limits());
    let despite = MERGE
        .replace("\"a\"", "\"b\"")
        .replacen('{', "{\"ignoreHookError\":true,", 1);
    let file = format!("{MERGE}{despite}");
    for (scope, count) in [
        (Scope::Check, 0),
        (Scope::DespiteFailure, 1),
        (Scope::All, 3),
    ] {
        patcher
            .perform(&Order {
                scope,
                ..order(&file)
            })
            .unwrap();
        assert_eq!(asked(&server).len(), count, "{scope:?}");
    }
    assert!(asked(&server)[0].ends_with("/b"));
}

/// AW: the answer to a review has a deadline, and so have the changes before it.
#[test]
fn operations_end_with_the_time_of_the_run() {
    let server = server(|_, stream| stream.write_all(&answer(200, "", "{}")).is_ok());
    let slow = Limits {
        qps: 0.001,
        burst: 4,
        deadline: Duration::from_secs(20),
    };
    let patcher = patcher(&server, slow);
    let began = Instant::now();
    let until = Some(began + Duration::from_millis(500));
    let file = MERGE.repeat(5);
    let error = failed(patcher.perform(&Order {
        until,
        ..order(&file)
    }));
    assert!(
        error.contains("no turn under the limit of calls per second"),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(10));
    let until = Some(began);
    let error = failed(patcher.perform(&Order {
        until,
        ..order(&file)
    }));
    assert!(error.contains("there was no time to check it"), "{error}");
    assert_eq!(asked(&server).len(), 2);
    patcher.stop();
    assert_eq!(patcher.perform(&order(&file)), Err(Undone::Stopped));
}

#[test]
fn the_limit_of_calls_holds_and_a_stop_ends_the_wait() {
    let server = server(|_, stream| stream.write_all(&answer(200, "", "{}")).is_ok());
    let slow = Limits {
        qps: 0.001,
        burst: 4,
        deadline: Duration::from_secs(20),
    };
    let patcher = patcher(&server, slow);
    let file = MERGE.repeat(5);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| patcher.perform(&order(&file)));
        while asked(&server).len() < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        patcher.stop();
        assert_eq!(run.join().unwrap(), Err(Undone::Stopped));
    });
    assert_eq!(asked(&server).len(), 2);
}

/// The finalizer of a foreground deletion goes when all that the object owned is gone.
#[test]
fn a_foreground_deletion_waits_for_this_object_and_not_for_another_of_its_name() {
    let looks = AtomicUsize::new(0);
    let server = server(move |seen, stream| {
        let words = if seen.line.starts_with("DELETE") {
            assert!(seen.body.contains("\"propagationPolicy\":\"Foreground\""));
            answer(200, "", &object(1))
        } else if looks.fetch_add(1, Ordering::SeqCst) == 0 {
            answer(200, "", &object(2))
        } else {
            answer(200, "", &object(3).replace("\"u\"", "\"v\""))
        };
        stream.write_all(&words).is_ok()
    });
    let file = r#"{"operation":"Delete","kind":"ConfigMap","namespace":"n","name":"a"}"#;
    patcher(&server, no_limits()).perform(&order(file)).unwrap();
    assert_eq!(
        asked(&server),
        [
            format!("DELETE {MAP}"),
            format!("GET {MAP}"),
            format!("GET {MAP}")
        ]
    );
}

/// What cannot be read is never taken for good news, nor for a version.
#[test]
fn an_answer_that_cannot_be_read_fails_its_operation() {
    let unnamed = r#"{"kind":"ConfigMap","metadata":{"uid":"u"}}"#;
    let unversioned = r#"{"kind":"ConfigMap","metadata":{"name":"a"}}"#;
    let delete = r#"{"operation":"Delete","kind":"ConfigMap","namespace":"n","name":"a"}"#;
    let cases = [
        (
            CREATE_OR_UPDATE,
            vec!["<html>", "{}", "[]", "", unversioned],
            "GET",
        ),
        (delete, vec!["<html>", "{}", "[]", "", unnamed], "DELETE"),
        (
            delete,
            vec!["<html>", "{}", "[]", unnamed, r#"{"kind":"Status"}"#],
            "GET",
        ),
    ];
    for (operation, answers, last) in cases {
        for body in answers {
            let server = server(move |seen, stream| {
                let words = match seen.line.split(' ').next().unwrap() {
                    "POST" => status(409, "AlreadyExists", ""),
                    method if method == last => answer(200, "", body),
                    _ => answer(200, "", &object(1)),
                };
                stream.write_all(&words).is_ok()
            });
            let error = failed(patcher(&server, no_limits()).perform(&order(operation)));
            assert!(
                error.contains("neither the object nor a Status"),
                "{body}: {error}"
            );
            let asked = asked(&server);
            assert!(asked.last().unwrap().starts_with(last), "{body}: {asked:?}");
        }
    }
}

#[test]
fn a_kind_with_namespaces_needs_one() {
    let server = server(|_, stream| stream.write_all(&answer(200, "", "{}")).is_ok());
    let patcher = patcher(&server, no_limits());
    let without = |text: &str| {
        text.replace("\"namespace\":\"n\",", "")
            .replace(",\"namespace\":\"n\"", "")
    };
    for file in [CREATE_OR_UPDATE, FILTER, MERGE] {
        let error = failed(patcher.perform(&order(&without(file))));
        assert!(
            error.contains("objects of this kind have a namespace"),
            "{error}"
        );
    }
    // The original finds nothing under such a path, and to delete nothing is no failure.
    for file in [
        r#"{"operation":"Delete","kind":"ConfigMap","name":"a"}"#.to_owned(),
        without(MERGE).replacen('{', "{\"ignoreMissingObject\":true,", 1),
    ] {
        patcher.perform(&order(&file)).unwrap();
    }
    assert_eq!(asked(&server), [""; 0]);
}

#[test]
fn an_unknown_kind_fails_its_operation_alone() {
    let server = server(|_, stream| stream.write_all(&answer(200, "", "{}")).is_ok());
    let file = format!("{}{MERGE}", MERGE.replace("ConfigMap", "Gadget"));
    let error = failed(patcher(&server, no_limits()).perform(&order(&file)));
    assert!(
        error.starts_with(
            "1 error occurred:\n\t* Filter object Gadget/n/a: document 1, MergePatch: "
        ),
        "{error}"
    );
    assert_eq!(asked(&server).len(), 1);
}
