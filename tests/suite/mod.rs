//! `shell-operator test` from outside: suites beside hooks, what they can expect, and how failures are told.
//!
//! The hook of most tests does what its object says, so that a suite of one line shows one thing.

mod formats;
mod gate;
mod rounds;
mod strict;

use std::path::PathBuf;

use crate::support::{Env, Output, repository};

/// Does what `data.do` of the object says; without it the request is allowed.
const OBEDIENT: &str = r#"#!/bin/sh
if [ "${1:-}" = --config ]; then
  cat <<'YAML'
configVersion: v1
onStartup: 1
schedule: [{name: nightly, crontab: "0 3 * * *", includeSnapshotsFrom: [maps]}]
kubernetes:
- {name: maps, apiVersion: v1, kind: ConfigMap, jqFilter: .metadata.name}
kubernetesValidating:
- name: judge.example.com
  includeSnapshotsFrom: [maps]
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE, UPDATE, DELETE]}]
kubernetesMutating:
- name: change.example.com
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
YAML
  exit 0
fi
answer() { printf '%s' "$1" >"$VALIDATING_RESPONSE_PATH"; }
what=$(jq -r '.[0].review.request.object.data.do // .[0].review.request.oldObject.data.do // ""' "$BINDING_CONTEXT_PATH")
case $what in
deny) answer '{"allowed": false, "message": "not here"}' ;;
teapot) answer '{"allowed": false, "status": {"code": 418, "message": "short", "reason": "Stout"}}' ;;
warn) answer '{"allowed": true, "warnings": ["first", "second one"]}' ;;
audit) answer '{"allowed": true, "auditAnnotations": {"a": "b", "c": "d"}}' ;;
crash) echo 'it broke' >&2; exit 3 ;;
silent) ;;
hang) sleep 1000 ;;
count) jq '.[0].snapshots.maps | {allowed: false, message: (map(.filterResult) | join(","))}' "$BINDING_CONTEXT_PATH" >"$VALIDATING_RESPONSE_PATH" ;;
who) jq '.[0].review.request | {allowed: false, message: "\(.userInfo.username) \(.operation) \(.resource.resource) \(.subResource // "-") \(.dryRun) \(.options.kind)"}' \
  "$BINDING_CONTEXT_PATH" >"$VALIDATING_RESPONSE_PATH" ;;
variable) answer "{\"allowed\": false, \"message\": \"$GREETING\"}" ;;
random) answer "{\"allowed\": false, \"message\": \"$$\"}" ;;
command) pods=$(kubectl get pods -n shop); answer "{\"allowed\": false, \"message\": \"$pods$?\"}" ;;
piped) yes | head -c 200000 | kubectl apply -f - >/dev/null && answer '{"allowed": true}' ;;
label) answer '{"allowed": true, "patch": [{"op": "add", "path": "/metadata/labels", "value": {"team": "a"}}]}' ;;
append) answer '{"allowed": true, "patch": [{"op": "add", "path": "/data/list", "value": "'"$(jq -r '.[0].review.request.object.data.list // ""' "$BINDING_CONTEXT_PATH")"'x"}]}' ;;
record) answer '{"allowed": true}'
  echo '{"name": "seen", "action": "add", "value": 2, "labels": {"a": "b"}}' >"$METRICS_PATH"
  echo '{"operation": "CreateOrUpdate", "object": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"}}}' >"$KUBERNETES_PATCH_PATH" ;;
*) case $(jq -r '.[0].type // .[0].binding' "$BINDING_CONTEXT_PATH") in
  Validating | Mutating) answer '{"allowed": true}' ;;
  *) jq -c '.[0] | {name: "told", action: "set", value: 1,
       labels: {binding, type: (.type // ""), seen: ([(.objects // [])[], .object // empty, (.snapshots.maps // [])[]] | length | tostring),
                filter: (.filterResult // "")}}' "$BINDING_CONTEXT_PATH" >"$METRICS_PATH" ;;
  esac ;;
esac
"#;

/// An environment with the obedient hook and this suite.
fn suite(cases: &str) -> Env {
    let env = Env::new().hook("judge.sh", OBEDIENT);
    env.write("hooks/judge.tests.yaml", cases);
    env
}

/// A suite of one validating case about an object that says what to do.
fn one(what: &str, expect: &str) -> String {
    case("judge.example.com", what, expect)
}

fn case(binding: &str, what: &str, expect: &str) -> String {
    format!(
        "tests:\n- name: the case\n  binding: {binding}\n  request: {{object: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: x, namespace: shop}}, data: {{do: {what}}}}}}}\n  expect: {expect}\n"
    )
}

#[track_caller]
fn passes(cases: &str) {
    let output = suite(cases).run(&["test"]);
    assert_eq!(output.code, Some(0), "{cases}\n{}", output.all());
}

/// The case fails, and says this.
#[track_caller]
fn fails(cases: &str, told: &[&str]) -> String {
    let output: Output = suite(cases).run(&["test"]);
    assert_eq!(output.code, Some(1), "{cases}\n{}", output.all());
    for text in told {
        let all = output.all();
        assert!(all.contains(text), "{text:?} is not in\n{all}");
    }
    output.stdout
}

fn examples() -> PathBuf {
    repository().join("hooks/examples")
}

#[test]
fn the_suites_of_the_examples_pass() {
    let env = Env::new();
    let output = env.run(&["test", &examples().to_string_lossy()]).ok();
    for hook in [
        "convert-sites.sh",
        "default-resources.py",
        "require-owner.sh",
        "warn-latest-tag.sh",
    ] {
        assert!(output.contains(hook), "{output}");
    }
    assert!(output.contains(" 0 failed, 0 skipped"), "{output}");
}

#[test]
fn a_failure_says_where_it_is_written_what_was_expected_what_came_and_what_the_hook_printed() {
    let script = OBEDIENT.replace("deny) ", "deny) echo 'looked it up' >&2; ");
    let env = Env::new().hook("judge.sh", &script);
    let cases = one("deny", "{allowed: false, message: not there}");
    env.write("hooks/judge.tests.yaml", format!("# a comment\n\n{cases}"));
    let output = env.run(&["test"]);
    assert_eq!(output.code, Some(1));
    for text in [
        "  FAIL the case (",
        "      hooks/judge.tests.yaml:4\n",
        "message:\n        expected \"not there\"\n        got      \"not here\"\n",
        "stderr of the hook:\n        looked it up\n",
        "0 passed, 1 failed, 0 skipped in ",
    ] {
        assert!(output.stdout.contains(text), "{text:?}\n{}", output.stdout);
    }
    assert!(output.stdout.is_ascii(), "{}", output.stdout);
}

#[test]
fn every_expectation_of_a_request_can_hold_and_can_fail() {
    let judge = "judge.example.com";
    let change = "change.example.com";
    #[rustfmt::skip]
    let table = [
        (judge, "deny", "{allowed: false}", "{allowed: true}", "denied: \"not here\""),
        (judge, "allow", "{allowed: true}", "{allowed: false}", "got      allowed"),
        (judge, "deny", "{message: not here}", "{message: not}", "expected \"not\""),
        (judge, "deny", "{message: /^not/}", "{message: /^here/}", "expected /^here/"),
        (judge, "deny", "{code: 403}", "{code: 404}", "got      403"),
        (judge, "teapot", "{code: 418, message: short, reason: Stout}", "{allowed: false, reason: Other}", "reason"),
        (judge, "warn", "{warnings: 2}", "{warnings: 0}", "2 (\"first; second one\")"),
        (judge, "warn", "{warnings: [first, /one$/]}", "{warnings: [first, other]}", "warnings[1]"),
        (judge, "audit", "{auditAnnotations: {a: b}}", "{auditAnnotations: {a: c}}", "auditAnnotations.a"),
        (change, "label", "{patched: {metadata: {labels: {team: a}}}}", "{patched: {metadata: {labels: {team: b}}}}", "patched.metadata.labels.team"),
        (change, "label", "{patched: {spec: null}}", "{patched: {metadata: {name: null}}}", "patched.metadata.name"),
        (change, "label",
            "{patchedExactly: {apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: shop, labels: {team: a}}, data: {do: label}}}",
            "{patchedExactly: {apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: shop}, data: {do: label}}}", "patched.metadata.labels"),
        (change, "label", "{patch: [{op: add, path: /metadata/labels, value: {team: a}}]}", "{patch: []}", "expected 0 items"),
        (change, "label", "{idempotent: true}", "{idempotent: true, under: 1us}", "time"),
        (change, "allow", "{idempotent: true}", "{patched: {a: b}, idempotent: true}", "patched.a"),
        (judge, "deny", "{allowed: false, deterministic: 5}", "{allowed: true, deterministic: 5}", "verdict"),
        (judge, "deny", "{allowed: false, under: 30s}", "{allowed: false, under: 1us}", "less than 1"),
        (judge, "crash", "{exit: 3, stderr: it broke}", "{exit: 4}", "exit status 3"),
        (judge, "crash", "{allowed: false, code: 500}", "{allowed: false}", "exit status 3"),
        (judge, "record", "{metrics: [{name: seen, value: 2, labels: {a: b}}]}", "{metrics: []}", "metrics"),
        (judge, "record", "{operations: [{operation: CreateOrUpdate, kind: Secret, namespace: shop, object: {apiVersion: v1}}]}",
            "{operations: [{operation: Delete}]}", "operations[0].operation"),
    ];
    for (binding, what, holds, breaks, told) in table {
        passes(&case(binding, what, holds));
        fails(&case(binding, what, breaks), &[told]);
    }
}

#[test]
fn what_differs_between_runs_or_changes_again_is_found() {
    let told = fails(
        &one("random", "{allowed: false, deterministic: true}"),
        &["run 2 differs at run.answer"],
    );
    assert!(!told.contains("run 3"), "{told}");
    fails(
        &case("change.example.com", "append", "{idempotent: true}"),
        &[
            "second run: patched.data.list",
            "expected \"x\"",
            "got      \"xx\"",
        ],
    );
}

#[test]
fn a_hook_that_did_not_decide_fails_its_case_even_if_the_request_would_be_denied() {
    for (what, told) in [
        ("crash", "exit status 3"),
        ("silent", "the response file is empty"),
    ] {
        fails(&one(what, "{allowed: false}"), &[told]);
    }
    let slow = OBEDIENT.replace(
        "- name: judge.example.com",
        "- name: judge.example.com\n  timeoutSeconds: 1",
    );
    let env = Env::new().hook("judge.sh", &slow);
    env.write("hooks/judge.tests.yaml", one("hang", "{allowed: false}"));
    let output = env.run(&["test"]);
    assert_eq!(output.code, Some(1));
    assert!(
        output.stdout.contains("timed out after"),
        "{}",
        output.stdout
    );
}

#[test]
fn a_request_is_what_the_api_server_would_send() {
    passes(&one(
        "who",
        "{message: jane CREATE configmaps - false CreateOptions}",
    ));
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {do: who}}";
    passes(&format!(
        "tests:\n- name: the case\n  binding: judge.example.com\n  request: {{operation: DELETE, oldObject: {object}, dryRun: true, userInfo: {{username: joe}}}}\n  expect: {{message: joe DELETE configmaps - true DeleteOptions}}\n"
    ));
    // What no rule asks for would never reach the hook.
    fails(
        "tests:\n- name: the case\n  binding: judge.example.com\n  request: {object: {apiVersion: v1, kind: Secret, metadata: {name: x}}}\n  expect: {allowed: true}\n",
        &["no rule of judge.example.com asks for CREATE of secrets"],
    );
}

#[test]
fn snapshots_are_filtered_sorted_and_shared() {
    let map = |name: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: n}}}}")
    };
    let shared = format!(
        "global: {{snapshots: {{maps: [{}, {}]}}}}\n",
        map("b"),
        map("a")
    );
    let cases = one("count", "{message: 'a,b'}");
    passes(&format!("{shared}{cases}"));
    let own = format!(
        "{cases}  snapshots: {{maps: [{}, {}]}}\n",
        map("c"),
        map("a")
    );
    passes(&format!("{shared}{}", own.replace("'a,b'", "'a,b,c'")));
}

#[test]
fn variables_and_commands_are_replaced_for_the_hook() {
    let cases = one("variable", "{message: hello}");
    passes(&format!("{cases}  env: {{GREETING: hello}}\n"));
    let cases = one(
        "command",
        "{message: two pods7, calls: [kubectl get pods -n shop]}",
    );
    let commands = "  commands: {kubectl: {exit: 7, stdout: two pods}}\n";
    passes(&format!("{cases}{commands}"));
    fails(
        &format!("{cases}{commands}").replace("-n shop]", "-n other]"),
        &["calls[0]"],
    );
    // What is piped into a command is read, or the hook would be ended by a broken pipe.
    let piped = one("piped", "{allowed: true, calls: [kubectl apply -f -]}");
    passes(&format!("{piped}  commands: {{kubectl: {{}}}}\n"));
}

#[test]
fn a_command_that_the_suite_replaces_may_not_be_called_by_a_case_without_it() {
    let with = one("allow", "{allowed: true}");
    let with = format!("{with}  commands: {{kubectl: {{stdout: x}}}}\n");
    let without = one("command", "{message: /./}").replace("the case", "another");
    let cases = format!("{with}{}", without.replace("tests:\n", ""));
    fails(
        &cases,
        &[
            "only calls that the case has",
            "kubectl get pods -n shop",
            "1 passed, 1 failed",
        ],
    );
}

#[test]
fn other_bindings_are_told_what_happened() {
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: n}}";
    let told = |context: &str, labels: &str, more: &str| {
        passes(&format!(
            "tests:\n- name: the case\n  context: {context}\n  expect: {{metrics: [{{name: told, labels: {labels}}}]}}\n{more}"
        ));
    };
    let snapshot = format!("  snapshots: {{maps: [{map}]}}\n");
    told("OnStartup", "{binding: onStartup, seen: '0'}", "");
    told(
        "Schedule",
        "{binding: nightly, type: Schedule, seen: '1'}",
        &snapshot,
    );
    told(
        "Synchronization",
        "{binding: maps, type: Synchronization, seen: '1'}",
        &snapshot,
    );
    told(
        &format!("{{type: Synchronization, objects: [{map}, {map}]}}"),
        "{binding: maps, seen: '2'}",
        "",
    );
    told(
        &format!("{{type: Event, watchEvent: Added, object: {map}}}"),
        "{binding: maps, type: Event, seen: '1', filter: a}",
        "",
    );
}
