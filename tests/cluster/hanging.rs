//! Hooks that do not end, or that leave something behind: the caller is answered in time, and nothing of them lives on (T6, T7,
//! T8).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::stage::{Kind, answers, config_map, review};
use crate::support::{Stage, wait_for};

/// The requirement: an answer before this time, which is also the limit of the webhook.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The requirement: no process is alive this long after the answer.
const GONE: Duration = Duration::from_secs(5);

/// Hooks that never answer, each more stubborn than the one before.
const HANGING: [(&str, &str); 5] = [
    ("plain", "sleep 1000"),
    (
        "stubborn",
        "trap '' TERM; sleep 1000; sleep 1000; sleep 1000",
    ),
    ("parent", "sleep 300 & sleep 1000"),
    ("escapee", "setsid sleep 300 & sleep 1000"),
    (
        "deaf-escapee",
        "setsid sh -c \"trap '' TERM; sleep 300; sleep 300\" & trap '' TERM; sleep 300; sleep 1000",
    ),
];

fn for_two_seconds() -> Value {
    json!({ "timeoutSeconds": TIMEOUT.as_secs(), "failurePolicy": "Ignore" })
}

#[test]
fn a_hanging_hook_is_answered_for_in_time_and_leaves_nothing() {
    let mut stage = Stage::new("hanging");
    for (stem, body) in HANGING {
        let body = format!("{}{body}", answers(&json!({ "allowed": true })));
        stage = stage.hook(stem, Kind::Validating, &for_two_seconds(), &body);
    }
    let operator = stage.env.start();
    operator.wait_ready();
    // Measured where the API server measures: from the request to the answer on an open connection.
    let mut callers: Vec<_> = HANGING
        .iter()
        .map(|(stem, _)| (*stem, stage.connect(), stage.path(stem)))
        .collect();
    std::thread::scope(|scope| {
        for (stem, connection, path) in &mut callers {
            scope.spawn(move || {
                let question = review(stem, &config_map("a", &json!({})));
                let asked = Instant::now();
                let answer = connection.post_json(&format!("{path}?timeout=2s"), &question);
                let elapsed = asked.elapsed();
                let response = answer.unwrap().json()["response"].clone();
                assert_eq!(response["allowed"], false, "{stem}: {response}");
                assert_eq!(response["status"]["code"], 500);
                assert_eq!(
                    response["status"]["message"],
                    format!(
                        "Shell-operator hook '{stem}.sh' error: killed after 1.8 s, its time limit."
                    )
                );
                assert!(elapsed < TIMEOUT, "{stem}: {elapsed:?}");
            });
        }
    });
    wait_for("the end of everything the hooks started", GONE, || {
        operator.offspring().is_empty()
    });
    wait_for("the last zombie to be reaped", GONE, || {
        operator.children().is_empty()
    });
}

/// The same through the API server: what the user reads is our text, and not that of a deadline. The policy is Ignore, and still
/// nothing passes.
#[test]
fn kubectl_names_the_hanging_hook_and_its_limit() {
    let stage = Stage::new("kubectl-hang");
    let stage = stage.hook("slow", Kind::Validating, &for_two_seconds(), "sleep 1000");
    let operator = stage.start();
    let shown = stage.kubectl_create("a").err();
    let name = stage.webhook_name("slow");
    assert_eq!(
        shown.trim(),
        format!(
            "error: failed to create configmap: admission webhook \"{name}\" denied the request: \
             Shell-operator hook 'slow.sh' error: killed after 1.8 s, its time limit."
        )
    );
    wait_for("the end of the hook", GONE, || {
        operator.offspring().is_empty()
    });
}

/// T7, T8: a hook that ends and leaves a process behind, which keeps its output open, is answered for at once; the process is
/// ended, and a hundred of them cost nothing in the end.
#[test]
fn what_a_hook_leaves_behind_delays_nobody_and_is_ended() {
    let allow = answers(&json!({ "allowed": true }));
    let mut stage = Stage::new("leftovers");
    let leaving = [("behind", "sleep 300 &"), ("away", "setsid sleep 300 &")];
    for (stem, body) in leaving {
        stage = stage.hook(
            stem,
            Kind::Validating,
            &json!({}),
            &format!("{allow}{body}"),
        );
    }
    let operator = stage.env.start();
    operator.wait_ready();
    let mut connection = stage.connect();
    let mut ask = |stem: &str| {
        let question = review("u", &config_map("a", &json!({})));
        let asked = Instant::now();
        let answer = connection.post_json(&stage.path(stem), &question).unwrap();
        assert_eq!(answer.json()["response"]["allowed"], true);
        asked.elapsed()
    };
    let nobody_is_left = || operator.offspring().is_empty();
    for (stem, _) in leaving {
        let elapsed = ask(stem);
        assert!(elapsed < TIMEOUT, "{stem}: {elapsed:?}");
        wait_for("the end of what was left behind", GONE, nobody_is_left);
    }
    let (threads, descriptors) = (operator.threads(), operator.fds());
    for _ in 0..50 {
        for (stem, _) in leaving {
            ask(stem);
        }
    }
    wait_for("the end of all that was left behind", GONE, nobody_is_left);
    wait_for("threads and descriptors to be given back", GONE, || {
        operator.threads() <= threads + 1 && operator.fds() <= descriptors + 1
    });
}
