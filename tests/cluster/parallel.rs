//! Many reviews at once: each gets its own answer, and a stop answers those that are running.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::stage::{Kind, answers, config_map, review};
use crate::support::{Connection, SOON, Stage, wait_for};

/// Every answer is made from its question alone.
const ECHO: &str = r#"
jq -c '.[0].review.request
  | {allowed: (.object.data.number | tonumber % 2 == 0), message: .name, warnings: [.uid]}
' "$BINDING_CONTEXT_PATH" >"$ADMISSION_RESPONSE_PATH"
"#;

/// SO-40, HX-05.
#[test]
fn two_hundred_parallel_reviews_get_their_own_answers() {
    let more = json!({ "timeoutSeconds": 30 });
    let stage = Stage::new("parallel").hook("echo", Kind::Validating, &more, ECHO);
    let operator = stage.env.start();
    operator.wait_ready();
    let path = stage.path("echo");
    let bundle = stage.ca_bundle();
    let name = stage.address().ip().to_string();
    let mut callers: Vec<Connection> = (0..200)
        .map(|_| Connection::tls(stage.address(), &name, &bundle, None).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for (number, connection) in callers.iter_mut().enumerate() {
            let path = &path;
            scope.spawn(move || {
                let (uid, name) = (format!("uid-{number}"), format!("map-{number}"));
                let object = config_map(&name, &json!({ "number": number.to_string() }));
                let answer = connection.post_json(path, &review(&uid, &object)).unwrap();
                let mut expected = json!({
                    "uid": uid, "allowed": number % 2 == 0, "warnings": [uid],
                });
                if number % 2 == 1 {
                    expected["status"] = json!({ "code": 403, "message": name });
                }
                assert_eq!(answer.json()["response"], expected);
            });
        }
    });
}

/// HX-06: whoever has asked is answered, and the exit code is 0.
#[test]
fn reviews_that_run_at_a_stop_are_answered() {
    let body = format!("sleep 2\n{}", answers(&json!({ "allowed": true })));
    let stage = Stage::new("stop").hook("slow", Kind::Validating, &json!({}), &body);
    let mut operator = stage.env.start();
    operator.wait_ready();
    let path = stage.path("slow");
    let mut callers: Vec<Connection> = (0..20).map(|_| stage.connect()).collect();
    let mut idle = stage.connect();
    std::thread::scope(|scope| {
        for (number, connection) in callers.iter_mut().enumerate() {
            let path = &path;
            scope.spawn(move || {
                let uid = format!("uid-{number}");
                let question = review(&uid, &config_map("a", &json!({})));
                let answer = connection.post_json(path, &question).unwrap();
                assert_eq!(answer.json()["response"]["uid"], uid.as_str());
                assert_eq!(answer.json()["response"]["allowed"], true);
                assert_eq!(answer.header("connection"), Some("close"));
            });
        }
        wait_for("all hooks to run", SOON, || {
            operator.offspring().len() >= 20
        });
        operator.term();
    });
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
    // An idle connection was closed, not answered.
    assert!(idle.request("GET", "/healthz", &[], b"").is_err());
    assert!(operator.offspring().is_empty());
}

/// Endpoints of a Service follow readiness with a delay, and until then requests come.
#[test]
fn after_a_stop_was_asked_for_it_is_not_ready_and_still_serves() {
    let allow = answers(&json!({ "allowed": true }));
    let stage = Stage::new("drain")
        .hook("allow", Kind::Validating, &json!({}), &allow)
        .env("SHELL_OPERATOR_STOP_DRAIN_DELAY", "3s");
    let mut operator = stage.start();
    let path = stage.path("allow");
    let mut kept = stage.connect();
    operator.term();
    wait_for("it to be not ready", Duration::from_secs(2), || {
        operator.readyz().is_some_and(|answer| answer.status == 503)
    });
    assert_eq!(operator.healthz().unwrap().status, 200);
    let question = review("u", &config_map("a", &json!({})));
    for connection in [&mut kept, &mut stage.connect()] {
        let answer = connection.post_json(&path, &question).unwrap();
        assert_eq!(answer.json()["response"]["allowed"], true);
    }
    assert_eq!(stage.create("a", &json!({})).status, 201);
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
}

/// More reviews than can be decided in time: each caller is told, and none waits for longer than its webhook does.
#[test]
fn what_cannot_be_decided_in_time_is_denied_with_a_clear_answer() {
    let body = format!("sleep 1\n{}", answers(&json!({ "allowed": true })));
    let more = json!({ "timeoutSeconds": 3 });
    let stage = Stage::new("overload")
        .hook("slow", Kind::Validating, &more, &body)
        .flag("--validating-webhook-max-hooks=1");
    let operator = stage.env.start();
    operator.wait_ready();
    let path = stage.path("slow");
    let mut callers: Vec<Connection> = (0..30).map(|_| stage.connect()).collect();
    let asked = Instant::now();
    let responses: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> = callers
            .iter_mut()
            .enumerate()
            .map(|(number, connection)| {
                let path = &path;
                scope.spawn(move || {
                    let question = review(&number.to_string(), &config_map("a", &json!({})));
                    let answer = connection.post_json(path, &question).unwrap();
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    answer.json()["response"].clone()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let elapsed = asked.elapsed();
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
    let (decided, refused): (Vec<_>, Vec<_>) = responses
        .into_iter()
        .partition(|response| response["allowed"] == true);
    assert!(!decided.is_empty());
    assert!(refused.len() > 20, "{refused:?}");
    for response in refused {
        let text = response["status"]["message"].as_str().unwrap();
        assert!(text.contains("slow.sh"), "{text}");
        let says_why = ["too many requests", "no answer within", "time limit"];
        assert!(says_why.iter().any(|why| text.contains(why)), "{text}");
    }
    wait_for("it to be idle", SOON, || operator.offspring().is_empty());
    let question = review("later", &config_map("a", &json!({})));
    let answer = stage.connect().post_json(&path, &question).unwrap();
    assert_eq!(answer.json()["response"]["allowed"], true);
}
