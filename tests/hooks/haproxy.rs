//! `hooks/haproxy/ingress.py` by itself: snapshots in, an answer or marked lines out, with the real `haproxy` of Debian (HX-26…HX-32,
//! HX-42…HX-52). What the operator makes of the marks is tested with a cluster.

use std::process::Command;

use serde_json::{Value, json};

use super::{Finished, Workplace, hooks, run};

fn hook() -> Command {
    assert!(
        Command::new("haproxy").arg("-v").output().is_ok(),
        "these tests need the program haproxy; on Debian: apt-get install haproxy"
    );
    let mut command = Command::new("python3");
    command.arg(hooks().join("haproxy/ingress.py"));
    command
}

fn ingress(name: &str, host: &str, service: &str, annotations: &Value) -> Value {
    json!({
        "namespace": "shop", "name": name, "annotations": annotations,
        "rules": [{ "host": host, "http": { "paths": [
            { "path": "/", "pathType": "Prefix", "backend": { "service": { "name": service, "port": { "number": 80 } } } },
        ] } }],
    })
}

fn service(port: &Value) -> Value {
    json!({ "namespace": "shop", "name": "api", "ip": "10.0.0.1", "ports": [{ "name": "http", "port": port }] })
}

/// A review of this cluster, as it would be.
fn context(ingresses: &[Value], services: &[Value]) -> String {
    let items = |objects: &[Value]| -> Value {
        objects
            .iter()
            .map(|object| json!({ "filterResult": object }))
            .collect()
    };
    let snapshots =
        json!({ "ingresses": items(ingresses), "services": items(services), "slices": [] });
    json!([{ "binding": "ingress.haproxy.example.com", "type": "Validating", "snapshots": snapshots }]).to_string()
}

fn judge(command: Command, ingresses: &[Value], services: &[Value]) -> Finished {
    run(command, &context(ingresses, services))
}

/// The phase and the marked lines of a hook that failed.
fn refusal(finished: &Finished) -> (String, String) {
    assert_eq!(
        (finished.status, finished.answer.as_str()),
        (Some(1), ""),
        "{finished:?}"
    );
    let mut phase = "";
    let mut text = Vec::new();
    for line in finished
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("FAIL["))
    {
        let (name, rest) = line.split_once("]: ").unwrap();
        phase = name;
        text.push(rest);
    }
    (phase.to_owned(), text.join("\n"))
}

#[track_caller]
fn allowed(finished: &Finished) -> Value {
    assert_eq!(finished.status, Some(0), "{finished:?}");
    serde_json::from_str(&finished.answer).unwrap()
}

/// HX-26, HX-32, HX-47.
#[test]
fn a_good_cluster_passes_all_phases_in_their_order() {
    let good = [ingress("web", "a.example.com", "api", &json!({}))];
    let finished = judge(hook(), &good, &[service(&json!(80))]);
    assert_eq!(allowed(&finished)["allowed"], true);
    assert_eq!(
        finished.stderr,
        "PHASE: render\nPHASE: syntax\nPHASE: tests\n"
    );
    let empty = judge(hook(), &[], &[]);
    assert_eq!(allowed(&empty)["allowed"], true);
}

/// HX-27, HX-29, HX-42: and what HAProxy 2.6 would take without a word.
#[test]
fn what_cannot_be_rendered_is_told_in_one_sentence() {
    let annotated = |key: &str, value: &str| {
        let key = format!("haproxy.example.com/{key}");
        ingress("web", "a.b", "api", &json!({ key: value }))
    };
    let plain = ingress("web", "a.b", "api", &json!({}));
    let twin = ingress("other", "a.b", "api", &json!({}));
    let whole = [service(&json!(80))];
    let cases: [(&[Value], &[Value], &str); 6] = [
        (std::slice::from_ref(&plain), &[], "Service 'api' not found"),
        (
            std::slice::from_ref(&plain),
            &[service(&json!(81))],
            "Service 'api' has no port '80'",
        ),
        (
            std::slice::from_ref(&plain),
            &[service(&json!(80.0))],
            "port 80.0 of Service 'api' is not a whole number",
        ),
        (
            &[plain.clone(), twin],
            &whole,
            "host 'a.b' with path '/' is in Ingress 'other' and in Ingress 'web'",
        ),
        (
            &[annotated("maxconn", "abc")],
            &whole,
            "annotation haproxy.example.com/maxconn of Ingress 'web' is not a number",
        ),
        (
            &[annotated("balance", "roundrobin\n  server evil 1.2.3.4:80")],
            &whole,
            "annotation haproxy.example.com/balance of Ingress 'web' has characters that HAProxy would misread",
        ),
    ];
    for (ingresses, services, text) in cases {
        let said = refusal(&judge(hook(), ingresses, services));
        assert_eq!(said, ("render".to_owned(), text.to_owned()));
    }
}

/// HX-30: the words are HAProxy's; the operator takes the rest away.
#[test]
fn what_haproxy_does_not_take_is_refused_in_its_own_words() {
    let odd = ingress(
        "web",
        "a.b",
        "api",
        &json!({ "haproxy.example.com/balance": "bogus" }),
    );
    let (phase, text) = refusal(&judge(hook(), &[odd], &[service(&json!(80))]));
    assert_eq!(phase, "syntax");
    assert!(
        text.contains("[ALERT]") && text.contains("balance only supports 'roundrobin'"),
        "{text}"
    );
}

/// A hook with other tests than the shipped ones.
fn with_tests(place: &Workplace, tests: &Value) -> Command {
    let mut command = hook();
    command.env(
        "HAPROXY_TESTS",
        place.write("tests.json", &tests.to_string()),
    );
    command
}

/// HX-31, HX-47, HX-50.
#[test]
fn failed_tests_are_counted_named_and_described() {
    let place = Workplace::new();
    let broken = json!({ "ingresses": [ingress("w", "a.b", "gone", &json!({}))] });
    let tests = json!({
        "good": { "assertions": [{ "type": "contains", "pattern": "mode http" }] },
        "limits": { "assertions": [
            { "type": "contains", "pattern": "maxconn 5", "description": "servers are limited" },
            { "type": "match_count", "pattern": "^backend ", "count": 9, "description": "nine backends" },
        ] },
        "missing": { "fixtures": broken, "assertions": [{ "type": "haproxy_valid" }] },
    });
    let good = [ingress("web", "a.b", "api", &json!({}))];
    let said = refusal(&judge(
        with_tests(&place, &tests),
        &good,
        &[service(&json!(80))],
    ));
    let text = "2 of 3 tests failed\n\
                test 'limits': servers are limited: 'maxconn 5' is not there\n\
                test 'limits': nine backends: '^backend ' is there 2 times and not 9\n\
                test 'missing': render: Service 'gone' not found";
    assert_eq!(said, ("tests".to_owned(), text.to_owned()));
    // A render error comes first, and no test is run.
    let unrendered = refusal(&judge(with_tests(&place, &tests), &good, &[]));
    assert_eq!(unrendered.0, "render");
}

/// A program `haproxy` of our own before the real one in PATH. It says when it begins and when it ends.
fn with_shim(place: &Workplace, command: &mut Command, body: &str) -> std::path::PathBuf {
    let journal = place.write("journal", "");
    let text = format!(
        "#!/bin/sh\necho begin >>'{0}'\n{body}\necho end >>'{0}'\n",
        journal.display()
    );
    let shim = place.write("bin/haproxy", &text);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&shim, mode).unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env(
        "PATH",
        format!("{}:{path}", shim.parent().unwrap().display()),
    );
    journal
}

fn valid_tests(count: usize) -> Value {
    let test = json!({ "assertions": [{ "type": "haproxy_valid" }] });
    let named = (0..count).map(|number| (format!("test {number}"), test.clone()));
    Value::Object(named.collect())
}

/// HX-48, HX-51.
#[test]
fn tests_run_one_after_the_other() {
    let place = Workplace::new();
    let mut command = with_tests(&place, &valid_tests(4));
    let journal = with_shim(&place, &mut command, "sleep 0.05");
    allowed(&judge(command, &[], &[]));
    let noted = std::fs::read_to_string(journal).unwrap();
    // Once for the configuration itself, once for each test, and never two at a time.
    assert_eq!(noted, "begin\nend\n".repeat(5));
}

/// HX-49, HX-52.
#[test]
fn tests_that_take_too_long_are_cancelled_and_the_request_is_denied() {
    let place = Workplace::new();
    let mut command = with_tests(&place, &valid_tests(3));
    // The check of the configuration itself is quick; the first test hangs.
    let hangs = format!(
        "[ \"$(wc -l <'{0}')\" -lt 2 ] || exec sleep 60",
        place.0.join("journal").display()
    );
    with_shim(&place, &mut command, &hangs);
    command.env("HAPROXY_TEST_SECONDS", "1");
    let said = refusal(&judge(command, &[], &[]));
    let text = "tests did not end within 1 s; test 'test 0' was cancelled";
    assert_eq!(said, ("tests".to_owned(), text.to_owned()));
    let shipped = std::fs::read_to_string(hooks().join("haproxy/ingress.py")).unwrap();
    assert!(
        shipped.contains("\nTEST_SECONDS = 60\n") && shipped.contains("\nCHECK_SECONDS = 30\n")
    );
}

#[test]
fn warnings_are_passed_on_and_a_missing_program_is_told() {
    let place = Workplace::new();
    let mut command = with_tests(&place, &json!({}));
    let warn = "echo '[WARNING]  (1) : config : parsing [haproxy.cfg:3] : it is old' >&2";
    with_shim(&place, &mut command, warn);
    assert_eq!(
        allowed(&judge(command, &[], &[]))["warnings"],
        json!(["it is old"])
    );
    let mut command = Command::new(std::fs::canonicalize("/usr/bin/python3").unwrap());
    command
        .arg(hooks().join("haproxy/ingress.py"))
        .env("PATH", "/nonexistent");
    let (phase, text) = refusal(&judge(command, &[], &[]));
    assert_eq!(phase, "setup");
    assert!(text.contains("haproxy is not installed"), "{text}");
}
