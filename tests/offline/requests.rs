//! The request that is made of a manifest: operation, user, namespace, subresource, dry run; and what a hook may do with it.

use serde_json::json;

use super::{ALLOW, denials, hook, pod, review, show, show_with};
use crate::support::Env;

#[test]
fn the_request_is_what_the_flags_say() {
    let env = Env::new();
    let user = "\"\\(.userInfo.username) \\(.userInfo.groups | join(\",\"))\"";
    show(&env, user);
    let said = |more: &[&str]| denials(&review(&env, &pod("a"), more)).join(" ");
    assert_eq!(
        said(&[]),
        "kubernetes-admin system:masters,system:authenticated"
    );
    assert_eq!(said(&["--user", "eve"]), "eve system:authenticated");
    assert_eq!(
        said(&["--user=eve", "--groups", "a,b", "--groups=c"]),
        "eve a,b,c,system:authenticated"
    );
    assert_eq!(
        said(&["--user", "system:serviceaccount:ci:robot"]),
        "system:serviceaccount:ci:robot system:serviceaccounts,system:serviceaccounts:ci,system:authenticated"
    );
    show(
        &env,
        "\"\\(.operation) \\(.namespace) \\(.dryRun) \\(.options.kind) \\(.options.dryRun) \\(.object == null) \\(.oldObject == null)\"",
    );
    assert_eq!(
        said(&[]),
        "CREATE default false CreateOptions null false true"
    );
    assert_eq!(
        said(&["--dry-run", "--namespace", "shop"]),
        "CREATE shop true CreateOptions [\"All\"] false true"
    );
    assert_eq!(
        said(&["--operation", "delete"]),
        "DELETE default false DeleteOptions null true false"
    );
}

#[test]
fn an_update_knows_the_object_as_it_was() {
    let env = Env::new();
    show(
        &env,
        "\"\\(.operation) from \\(.oldObject.spec.nodeName) to \\(.object.spec.nodeName), \\(.object.metadata.uid)\"",
    );
    env.write("old.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: default, uid: u1}\nspec: {nodeName: one}\n");
    let new = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {nodeName: two}\n";
    for flag in ["--old", "--objects"] {
        let output = review(&env, new, &[flag, "old.yaml"]);
        assert_eq!(denials(&output), ["UPDATE from one to two, u1"]);
    }
    // The second of two documents about one object changes the first.
    let both = format!("{}---\n{new}", pod("a"));
    assert_eq!(
        denials(&review(&env, &both, &[]))[1],
        "UPDATE from null to two, null"
    );
    let output = review(&env, new, &["--operation", "UPDATE"]);
    assert_eq!(output.code, Some(2));
    assert!(
        output.stdout.contains("give it with --old or --objects"),
        "{}",
        output.stdout
    );
}

#[test]
fn a_part_of_an_object_is_requested_in_the_kind_that_it_has() {
    let env = Env::new();
    show(
        &env,
        "\"\\(.operation) \\(.kind.kind) \\(.resource.resource)/\\(.subResource) \\(.object.kind) \\(.object.spec.replicas)\"",
    );
    let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3}\n";
    let said = |manifest: &str, subresource: &str| {
        let output = review(
            &env,
            manifest,
            &["--subresource", subresource, "--objects", "manifest.yaml"],
        );
        denials(&output).join(" ")
    };
    assert_eq!(said(web, "scale"), "UPDATE Scale deployments/scale Scale 3");
    assert_eq!(
        said(web, "status"),
        "UPDATE Deployment deployments/status Deployment 3"
    );
    assert_eq!(
        said(&pod("a"), "exec"),
        "CONNECT PodExecOptions pods/exec PodExecOptions null"
    );
    assert_eq!(
        said(&pod("a"), "eviction"),
        "CREATE Eviction pods/eviction Eviction null"
    );
    for (subresource, words) in [
        (
            "scale",
            "pods have no subresource 'scale'; known: attach, binding",
        ),
        (
            "binding",
            "give the AdmissionReview of such a request with -f",
        ),
    ] {
        let output = review(&env, &pod("a"), &["--subresource", subresource]);
        assert_eq!(output.code, Some(2));
        assert!(output.stdout.contains(words), "{}", output.stdout);
    }
}

#[test]
fn a_generated_name_is_there_when_the_object_is_validated() {
    let env = Env::new();
    show(&env, "\"\\(.name) \\(.object.metadata.name)\"");
    let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: job-}\n";
    let output = review(&env, job, &[]);
    assert_eq!(denials(&output), ["job-xxxxx job-xxxxx"]);
    assert!(
        output.stdout.contains("CREATE Job default/job-*  denied"),
        "{}",
        output.stdout
    );
}

#[test]
fn labels_of_an_unknown_namespace_are_asked_for() {
    let env = Env::new();
    let selector =
        json!({ "namespace": { "labelSelector": { "matchLabels": { "tier": "paid" } } } });
    show_with(&env, &selector, ".name");
    let output = review(&env, &pod("a"), &["--namespace", "shop"]);
    assert_eq!(output.code, Some(0), "{}", output.all());
    assert!(
        output
            .stdout
            .contains("note: namespace 'shop' is not known"),
        "{}",
        output.stdout
    );
    let namespace =
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {tier: paid}}\n";
    env.write("namespace.yaml", namespace);
    for flag in ["--objects", "-f"] {
        let output = review(
            &env,
            &pod("a"),
            &["--namespace", "shop", flag, "namespace.yaml"],
        );
        assert!(
            denials(&output).contains(&"a".to_owned()),
            "{}",
            output.all()
        );
        assert!(!output.stdout.contains("note:"), "{}", output.all());
    }
    let by_name = json!({ "namespace": { "labelSelector": { "matchLabels": { "kubernetes.io/metadata.name": "shop" } } } });
    show_with(&env, &by_name, ".name");
    let output = review(&env, &pod("a"), &["--namespace", "shop"]);
    assert_eq!(denials(&output), ["a"]);
    assert!(!output.stdout.contains("note:"), "{}", output.all());
}

#[test]
fn a_condition_on_what_only_a_cluster_knows_is_not_judged() {
    let env = Env::new();
    let expression = "authorizer.group('').resource('pods').check('delete').allowed()";
    show_with(
        &env,
        &json!({ "matchConditions": [{ "name": "may", "expression": expression }] }),
        ".name",
    );
    let output = review(&env, &pod("a"), &[]);
    assert_eq!(output.code, Some(2), "{}", output.all());
    assert!(
        output.stdout.contains("cannot be judged without a cluster"),
        "{}",
        output.all()
    );
}

#[test]
fn a_hook_that_fails_denies_and_what_it_printed_is_shown() {
    let env = Env::new();
    hook(
        &env,
        "crash",
        "kubernetesValidating",
        &json!({}),
        "echo looking; echo 'cannot go on' >&2; exit 3",
    );
    let output = review(&env, &pod("a"), &[]);
    assert_eq!(
        denials(&output),
        ["Shell-operator hook 'crash.sh' error: exit code 3."]
    );
    for line in ["    | looking", "    | cannot go on"] {
        assert!(output.stdout.contains(line), "{}", output.stdout);
    }
    hook(
        &env,
        "crash",
        "kubernetesValidating",
        &json!({ "timeoutSeconds": 1 }),
        "exec sleep 600",
    );
    let output = review(&env, &pod("a"), &[]);
    assert_eq!(
        denials(&output),
        ["Shell-operator hook 'crash.sh' error: killed after 0.9 s, its time limit."]
    );
    assert_eq!(std::fs::read_dir(env.tmp_dir()).unwrap().count(), 0);
}

#[test]
fn output_of_a_hook_that_does_not_fail_is_shown_only_when_asked_for() {
    let env = Env::new();
    hook(
        &env,
        "chatty",
        "kubernetesValidating",
        &json!({}),
        &format!("echo hello; {ALLOW}"),
    );
    let quiet = review(&env, &pod("a"), &[]);
    assert!(!quiet.stdout.contains("hello"), "{}", quiet.stdout);
    for flag in ["--verbose", "-v"] {
        let output = review(&env, &pod("a"), &[flag]);
        assert!(output.stdout.contains("    | hello\n"), "{}", output.stdout);
    }
    assert_eq!(quiet.code, Some(0));
    assert!(
        quiet.stdout.ends_with(" s)\n") && quiet.stdout.contains("1 object, 1 answer: all allowed"),
        "{}",
        quiet.stdout
    );
}

#[test]
fn what_a_hook_wants_changed_is_checked_and_not_done() {
    let env = Env::new();
    let change =
        |operation: &str| format!("printf '{operation}' >\"$KUBERNETES_PATCH_PATH\"; {ALLOW}");
    let good = r#"{"operation": "Delete", "kind": "Pod", "name": "x", "namespace": "y"}"#;
    hook(
        &env,
        "eager",
        "kubernetesValidating",
        &json!({}),
        &change(good),
    );
    assert_eq!(review(&env, &pod("a"), &[]).code, Some(0));
    hook(
        &env,
        "eager",
        "kubernetesValidating",
        &json!({}),
        &change(r#"{"operation": "Destroy"}"#),
    );
    let output = review(&env, &pod("a"), &[]);
    assert_eq!(
        denials(&output),
        ["Shell-operator hook 'eager.sh' error: its object operations failed."]
    );
}

#[test]
fn a_patch_is_shown_and_a_broken_one_denies() {
    let env = Env::new();
    let patch = |operations: &str| {
        format!(
            "printf '{{\"allowed\": true, \"patch\": \"%s\"}}' \"$(printf '%s' '{operations}' | base64 -w0)\" >\"$VALIDATING_RESPONSE_PATH\""
        )
    };
    hook(
        &env,
        "label",
        "kubernetesMutating",
        &json!({}),
        &patch(r#"[{"op": "add", "path": "/metadata/labels", "value": {"team": "a"}}]"#),
    );
    let output = review(&env, &pod("a"), &[]);
    assert_eq!(output.code, Some(0), "{}", output.all());
    assert!(
        output.stdout.contains("changed  label.policy.example.com"),
        "{}",
        output.stdout
    );
    assert!(
        output
            .stdout
            .contains("    + metadata.labels: {\"team\":\"a\"}\n"),
        "{}",
        output.stdout
    );
    hook(
        &env,
        "label",
        "kubernetesMutating",
        &json!({}),
        &patch(r#"[{"op": "add", "path": "/a/b/c", "value": 1}]"#),
    );
    let output = review(&env, &pod("a"), &[]);
    assert_eq!(
        denials(&output),
        ["Shell-operator hook 'label.sh' error: invalid response."]
    );
    assert!(
        output
            .stdout
            .contains("the parent of the path does not exist"),
        "{}",
        output.stdout
    );
}

#[test]
fn colour_is_for_terminals_and_stdout_may_be_gone() {
    let env = Env::new();
    hook(&env, "fine", "kubernetesValidating", &json!({}), ALLOW);
    env.write("manifest.yaml", pod("a"));
    let program = env!("CARGO_BIN_EXE_shell-operator");
    let terminal = |before: &str| {
        let line = format!("{before} script -qec '{program} review -f manifest.yaml' /dev/null");
        env.spawn_program("/bin/sh", &["-c", &line])
            .output(std::time::Duration::from_secs(60))
            .stdout
    };
    assert!(
        terminal("").contains("\u{1b}[32mallowed"),
        "{}",
        terminal("")
    );
    assert!(
        !terminal("NO_COLOR=1").contains('\u{1b}'),
        "{}",
        terminal("NO_COLOR=1")
    );
    let closed = format!("{program} review -f manifest.yaml >&-");
    let output = env
        .spawn_program("/bin/sh", &["-c", &closed])
        .output(std::time::Duration::from_secs(60));
    assert_eq!(output.code, Some(0), "{}", output.all());
}
