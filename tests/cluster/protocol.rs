//! The webhook port as a caller sees it that is not the API server: versions, paths, methods, and what is refused without a
//! process. Asked directly, over TLS, with the CA that was registered.

use serde_json::{Value, json};

use crate::support::stage::{Kind, answers, config_map, review};
use crate::support::{Operator, Stage};

/// A stage with a hook `note` that notes each run in a file and allows.
fn noting(name: &str, more: &Value) -> (Stage<'static>, Operator) {
    let stage = Stage::new(name);
    let body = format!(
        "echo run >>{}\n{}",
        stage.env.path().join("runs").display(),
        answers(&json!({ "allowed": true, "warnings": ["seen"] }))
    );
    let stage = stage.hook("note", Kind::Validating, more, &body);
    let operator = stage.env.start();
    operator.wait_ready();
    (stage, operator)
}

fn runs(stage: &Stage<'_>) -> usize {
    let notes = std::fs::read_to_string(stage.env.path().join("runs"));
    notes.unwrap_or_default().lines().count()
}

/// HX-13, AW-47, AW-66, AW-67.
#[test]
fn a_review_is_answered_in_the_version_it_came_in() {
    let (stage, _operator) = noting("versions", &json!({}));
    let path = stage.path("note");
    let mut connection = stage.connect();
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let mut question = review("uid-1", &config_map("a", &json!({})));
        question["apiVersion"] = json!(version);
        let answer = connection.post_json(&path, &question).unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let expected = json!({
            "apiVersion": version, "kind": "AdmissionReview",
            "response": { "uid": "uid-1", "allowed": true, "warnings": ["seen"] },
        });
        assert_eq!(answer.json(), expected);
    }
}

/// SO-39: our path, the original's, and neither.
#[test]
fn a_webhook_has_its_own_path_and_the_originals() {
    let (stage, _operator) = noting("paths", &json!({}));
    let question = review("uid-1", &config_map("a", &json!({})));
    let id = stage.webhook_name("note").replace('.', "-");
    assert_eq!(stage.path("note"), format!("/hooks/note-sh/{id}"));
    let mut connection = stage.connect();
    for path in [
        format!("/hooks/note-sh/{id}"),
        format!("/hooks/{id}"),
        format!("/hooks/{id}?timeout=10s"),
        format!("//hooks///{id}/"),
    ] {
        let answer = connection.post_json(&path, &question).unwrap();
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.json()["response"]["allowed"], true, "{path}");
    }
    // A 404 would let the request pass under Ignore, so it is denied, with a text that names the path.
    for path in [
        "/hooks/other",
        "/",
        "/hooks/note-sh/other",
        "/../etc/passwd",
    ] {
        let answer = connection.post_json(path, &question).unwrap();
        assert_eq!(answer.status, 200, "{path}");
        let response = answer.json()["response"].clone();
        assert_eq!(response["allowed"], false, "{path}");
        let text = response["status"]["message"].as_str().unwrap();
        let last = path.rsplit('/').next().unwrap();
        assert!(
            text.contains("no hook found") && text.contains(last),
            "{text}"
        );
    }
    assert_eq!(runs(&stage), 4);
}

/// HX-08, HX-09, AW-61…AW-64.
#[test]
fn what_is_no_review_is_refused_without_a_process() {
    let (stage, _operator) = noting("refused", &json!({}));
    let path = stage.path("note");
    let good = review("u", &config_map("a", &json!({}))).to_string();
    let json = ("Content-Type", "application/json");
    let other_kind = good.replace("AdmissionReview", "ConversionReview");
    let other_version = good.replace("k8s.io/v1", "k8s.io/v2");
    let nested = format!("{{\"request\":{}", "[".repeat(200_000));
    let cases: [(&str, Option<&str>, &str, u16); 10] = [
        ("GET", None, "", 405),
        ("PUT", Some("application/json"), &good, 405),
        ("DELETE", None, "", 405),
        ("POST", None, &good, 415),
        ("POST", Some("text/plain"), &good, 415),
        ("POST", Some("application/json"), "", 400),
        ("POST", Some("application/json"), "{\"kind\": ", 400),
        ("POST", Some("application/json"), &other_kind, 400),
        ("POST", Some("application/json"), &other_version, 400),
        ("POST", Some("application/json"), &nested, 400),
    ];
    for (method, media_type, body, expected) in cases {
        let headers: Vec<_> = media_type
            .map(|value| ("Content-Type", value))
            .into_iter()
            .collect();
        let answer = stage
            .connect()
            .request(method, &path, &headers, body.as_bytes())
            .unwrap();
        assert_eq!(
            answer.status, expected,
            "{method} {media_type:?} {body:.60}"
        );
        assert_eq!(answer.header("retry-after"), None);
    }
    // An unreadable body on an unknown path is nobody's review.
    let answer = stage
        .connect()
        .request("POST", "/elsewhere", &[json], b"{}")
        .unwrap();
    assert_eq!(answer.status, 404);
    for path in ["/healthz", "/readyz"] {
        let answer = stage.connect().request("GET", path, &[], b"").unwrap();
        assert_eq!((answer.status, answer.text().trim()), (200, "ok"), "{path}");
    }
    assert_eq!(runs(&stage), 0);
    let charset = ("Content-Type", "application/json; charset=utf-8");
    let answer = stage
        .connect()
        .request("POST", &path, &[charset], good.as_bytes())
        .unwrap();
    assert_eq!(answer.status, 200);
    assert_eq!(runs(&stage), 1);
}

/// HX-55…HX-58.
#[test]
fn an_object_without_a_name_is_denied_without_a_process_where_that_is_asked_for() {
    let (stage, _operator) = noting("structure", &json!({ "validateStructure": true }));
    let path = stage.path("note");
    let mut connection = stage.connect();
    let mut ask = |meta: Value| {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": meta });
        let answer = connection.post_json(&path, &review("u", &object)).unwrap();
        answer.json()["response"].clone()
    };
    let refused = ask(json!({ "labels": { "a": "b" } }));
    assert_eq!(refused["allowed"], false);
    assert_eq!(
        refused["status"]["message"],
        "metadata.name or metadata.generateName is required"
    );
    assert_eq!(runs(&stage), 0);
    assert_eq!(ask(json!({ "generateName": "a-" }))["allowed"], true);
    assert_eq!(ask(json!({ "name": "a" }))["allowed"], true);
    assert_eq!(runs(&stage), 2);
}
