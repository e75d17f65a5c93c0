//! Tests of the pure parts of suites: reading, comparing, requests.

use serde_json::{Value, json};

use super::check::compare;
use super::convert;
use super::file::{Asked, Suite};
use super::request;
use crate::hook::binding::{AdmissionBinding, Config};
use crate::offline::kinds::Kinds;

fn suite(text: &str) -> Suite {
    Suite::parse(text).unwrap_or_else(|fault| panic!("{fault}\n{text}"))
}

fn differences(expected: &Value, actual: &Value, whole: bool) -> Vec<String> {
    let mut flaws = Vec::new();
    compare("x", expected, Some(actual), whole, &mut flaws);
    flaws.into_iter().map(|flaw| flaw.what).collect()
}

#[test]
fn an_expected_object_names_what_must_be_there_and_null_what_must_not() {
    let actual = json!({"a": {"b": 1, "c": [1, {"d": 2}]}, "e": null});
    let same = |expected: Value| differences(&expected, &actual, false);
    assert_eq!(same(json!({"a": {"b": 1.0}})), Vec::<String>::new());
    assert_eq!(same(json!({"a": {"c": [1, {}]}})), Vec::<String>::new());
    assert_eq!(same(json!({"e": null, "f": null})), Vec::<String>::new());
    assert_eq!(same(json!({"a": {"b": null}})), ["x.a.b"]);
    assert_eq!(same(json!({"a": {"c": [1]}})), ["x.a.c"]);
    assert_eq!(same(json!({"a": {"c": [1, {"d": 3}]}})), ["x.a.c[1].d"]);
    assert_eq!(same(json!({"a": {"b/c": 1}})), ["x.a[\"b/c\"]"]);
    assert_eq!(same(json!({"a": "text"})), ["x.a"]);
    let whole = |expected: Value| differences(&expected, &actual, true);
    assert_eq!(whole(actual.clone()), Vec::<String>::new());
    assert_eq!(whole(json!({"a": {"b": 1, "c": [1, {"d": 2}]}})), ["x.e"]);
}

#[test]
fn what_a_suite_shares_is_laid_under_each_case() {
    let text = "
global:
  env: {A: one, B: two}
  requires: [jq]
  commands: {kubectl: {exit: 1}}
  snapshots:
    pods: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {x: 1}}]
tests:
- name: own
  context: Schedule
  env: {B: three}
  requires: [haproxy]
  commands: {curl: {stdout: hi}}
  snapshots:
    pods: [{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {x: 2}}, {apiVersion: v1, kind: Pod, metadata: {name: b}}]
  expect: {exit: 0}
";
    let suite = suite(text);
    let case = &suite.cases[0];
    assert_eq!(case.line, 9);
    assert_eq!(
        (case.env["A"].as_str(), case.env["B"].as_str()),
        ("one", "three")
    );
    assert_eq!(case.requires, ["jq", "haproxy"]);
    let shims: Vec<&String> = suite.shims.iter().collect();
    assert_eq!(shims, ["curl", "kubectl"]);
    assert_eq!(case.commands["kubectl"].exit, 1);
    let pods = &case.snapshots["pods"];
    assert_eq!((pods.len(), &pods[0]["spec"]["x"]), (2, &json!(2)));
}

#[test]
fn no_text_makes_a_suite_panic() {
    let pieces = [
        "tests:", "- ", "name: x", "[", "{", "\n", " ", "expect:", "&a", "*a", "!!b", "\t",
        "request", ": ", "\u{0}",
    ];
    let mut seed: usize = 7;
    for _ in 0..2_000 {
        let mut text = String::new();
        for _ in 0..12 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(pieces[(seed >> 33) % pieces.len()]);
        }
        let _ = Suite::parse(&text);
    }
}

#[test]
fn a_request_names_the_plural_that_the_api_server_knows() {
    let kinds = Kinds::new(std::iter::empty());
    let asked = |object: &str| {
        let text = format!(
            "tests:\n- name: a\n  request: {{object: {object}}}\n  expect: {{allowed: true}}\n"
        );
        let suite = suite(&text);
        let Asked::Request(request) = &suite.cases[0].asked else {
            panic!("{text}");
        };
        let review = request::review(request, request.object.as_ref(), &kinds);
        let review: Value = serde_json::from_slice(&review).unwrap();
        review["request"].clone()
    };
    for (object, group, plural) in [
        ("{apiVersion: v1, kind: Endpoints}", "", "endpoints"),
        (
            "{apiVersion: networking.k8s.io/v1, kind: Ingress}",
            "networking.k8s.io",
            "ingresses",
        ),
        (
            "{apiVersion: example.com/v1, kind: Policy}",
            "example.com",
            "policies",
        ),
        (
            "{apiVersion: example.com/v1, kind: Gateway}",
            "example.com",
            "gateways",
        ),
    ] {
        let request = asked(object);
        assert_eq!(request["resource"]["group"], group);
        assert_eq!(request["resource"]["resource"], plural);
        assert_eq!(request["requestResource"], request["resource"]);
        assert_eq!(request["oldObject"], Value::Null);
    }
}

#[test]
fn a_rule_that_asks_for_a_request_is_found_by_group_plural_and_operation() {
    let kinds = Kinds::new(std::iter::empty());
    let binding = |rule: &str| -> AdmissionBinding {
        let text = format!(
            "configVersion: v1\nkubernetesValidating: [{{name: a.example.com, rules: [{rule}]}}]"
        );
        let config: Config = crate::hook::config::parse(text.as_bytes()).unwrap().config;
        config.validating[0].clone()
    };
    let suite = suite(
        "tests:\n- name: a\n  request: {object: {apiVersion: v1, kind: Pod}, subResource: status}\n  expect: {allowed: true}\n",
    );
    let Asked::Request(request) = &suite.cases[0].asked else {
        panic!("a request");
    };
    for (resources, is_asked) in [
        ("pods/status", true),
        ("pods/*", true),
        ("'*/*'", true),
        ("pods", false),
        ("'*'", false),
        ("services/status", false),
    ] {
        let rule = format!(
            "{{apiGroups: [''], apiVersions: [v1], resources: [{resources}], operations: [CREATE]}}"
        );
        let found = request::is_asked(request, "", "pods", &binding(&rule), &kinds);
        assert_eq!(found, is_asked, "{resources}");
    }
}

#[test]
fn a_conversion_may_change_neither_number_nor_identity() {
    let object = |version: &str, name: &str| json!({"apiVersion": version, "kind": "A", "metadata": {"name": name}});
    let given = [object("g/v1", "a"), object("g/v1", "b")];
    let made = |objects: &[Value]| {
        let response = json!({"convertedObjects": objects}).to_string();
        convert::converted(response.as_bytes(), &given, "g/v2")
    };
    assert!(made(&[object("g/v2", "a"), object("g/v2", "b")]).is_ok());
    for (objects, told) in [
        (vec![object("g/v2", "a")], "1 objects instead of 2"),
        (
            vec![object("g/v2", "b"), object("g/v2", "a")],
            "changed metadata.name",
        ),
        (
            vec![object("g/v2", "a"), object("g/v1", "b")],
            "'g/v2' is wanted",
        ),
    ] {
        let error = made(&objects).unwrap_err();
        assert!(error.contains(told), "{error}");
    }
    assert_eq!(
        convert::desired("sites.web.example.com", "v1"),
        "web.example.com/v1"
    );
    assert_eq!(convert::desired("sites.web.example.com", "g/v1"), "g/v1");
}
