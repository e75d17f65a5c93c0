//! Files, directories, standard input, YAML, JSON, lists, recorded reviews; and what is said about everything that is none of these.

use serde_json::json;

use super::{ALLOW, denials, hook, pod, review, show};
use crate::support::{Env, Output};

/// Pipes a text into `review -f -`.
fn piped(env: &Env, text: &str) -> Output {
    env.write("input", text);
    let program = env!("CARGO_BIN_EXE_shell-operator");
    let line = format!("exec {program} review -f - <input");
    let output = env.spawn_program("/bin/sh", &["-c", &line]);
    output.output(std::time::Duration::from_secs(60))
}

#[test]
fn files_and_directories_are_read_in_order_and_at_any_depth() {
    let env = Env::new();
    show(&env, ".name");
    env.write("more/b.yml", pod("b"));
    env.write(
        "more/deep/er/c.json",
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c"}}"#,
    );
    env.write("more/notes.txt", "none of these");
    env.write("more/.hidden.yaml", "none: of these");
    env.write("more/hook.tests.yaml", "none: of these");
    let output = review(&env, &pod("a"), &["more"]);
    assert_eq!(denials(&output), ["a", "b", "c"]);
}

#[test]
fn what_helm_prints_can_be_piped_in_and_the_template_is_named() {
    let env = Env::new();
    show(&env, "\"set spec.containers for \\(.name)\"");
    let output = piped(
        &env,
        &format!(
            "---\n# Source: shop/templates/a.yaml\n{}---\n# Source: shop/templates/b.yaml\n{}",
            pod("a"),
            pod("b")
        ),
    );
    assert_eq!(denials(&output).len(), 2);
    let rows: Vec<&str> = output.stdout.lines().collect();
    assert!(
        rows[0].starts_with("-:6   CREATE Pod default/a"),
        "{}",
        output.stdout
    );
    assert_eq!(rows[1], "    from shop/templates/a.yaml");
    assert!(
        rows[2].starts_with("-:12  CREATE Pod default/b"),
        "{}",
        output.stdout
    );
    assert_eq!(rows[3], "    from shop/templates/b.yaml");
}

#[test]
fn lists_as_kubectl_writes_them_are_taken_apart() {
    let env = Env::new();
    show(&env, "\"\\(.kind.kind) \\(.name)\"");
    let list = json!({
        "apiVersion": "v1", "kind": "List",
        "items": [
            { "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" } },
            { "apiVersion": "v1", "kind": "PodList", "items": [{ "metadata": { "name": "b" } }] },
        ],
    });
    assert_eq!(
        denials(&review(&env, &list.to_string(), &[])),
        ["Secret a", "Pod b"]
    );
}

#[test]
fn recorded_reviews_are_decided_as_they_were_asked() {
    let env = Env::new();
    show(
        &env,
        "\"\\(.operation) \\(.resource.resource)/\\(.subResource) \\(.name) by \\(.userInfo.username), \\(.object.stdin)\"",
    );
    let recorded = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "1", "operation": "CONNECT", "subResource": "exec", "name": "web", "namespace": "shop",
            "kind": { "group": "", "version": "v1", "kind": "PodExecOptions" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "userInfo": { "username": "eve" }, "object": { "kind": "PodExecOptions", "apiVersion": "v1", "stdin": true },
        },
    });
    // Two of them, one after the other, as a recorder writes them.
    let output = piped(&env, &format!("{recorded}\n{recorded}\n"));
    assert_eq!(denials(&output), ["CONNECT pods/exec web by eve, true"; 2]);
    let broken =
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {} });
    let output = review(&env, &broken.to_string(), &[]);
    assert_eq!(output.code, Some(2));
    assert!(
        output
            .stdout
            .contains("AdmissionReview: request.operation must be"),
        "{}",
        output.stdout
    );
}

#[test]
fn a_bad_document_is_named_with_its_place_and_the_others_are_still_decided() {
    let env = Env::new();
    hook(&env, "fine", "kubernetesValidating", &json!({}), ALLOW);
    for (bad, words) in [
        (
            "kind: Pod\n",
            "manifest.yaml:6  CREATE   error    document 2 has no apiVersion",
        ),
        (
            "apiVersion: v1\nkind: [a]\n",
            "document 2 has no kind, which must be a text",
        ),
        ("just words\n", "document 2 has no fields: it is a string"),
        ("a: [1,\n", "document 2: line "),
        ("a: 1\na: 2\n", "duplicate key 'a'"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: y}\n",
            "metadata.name is no text: put it in quotes",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: [1]\n",
            "metadata must be an object",
        ),
    ] {
        let output = review(&env, &format!("{}---\n{bad}", pod("a")), &[]);
        assert_eq!(output.code, Some(2), "{}", output.all());
        let text: String = output
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let words: String = words.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&words), "{words}: {}", output.stdout);
        assert!(
            text.contains("CREATE Pod default/a allowed"),
            "{}",
            output.stdout
        );
    }
}

#[test]
fn a_mistake_in_the_call_ends_with_2_and_names_the_remedy() {
    let env = Env::new();
    hook(&env, "fine", "kubernetesValidating", &json!({}), ALLOW);
    env.write("manifest.yaml", pod("a"));
    env.write("bytes.yaml", [0xff, 0xfe, 0x00]);
    env.write("broken.yaml", "a: [");
    std::fs::create_dir(env.path().join("empty")).unwrap();
    for (arguments, words) in [
        (&["review"][..], "review needs manifests"),
        (
            &["review", "-f", "nowhere.yaml"],
            "'nowhere.yaml' cannot be read",
        ),
        (
            &["review", "-f", "empty"],
            "directory 'empty' holds no file that ends in .yaml, .yml or .json",
        ),
        (&["review", "-f", "bytes.yaml"], "'bytes.yaml' is no text"),
        (
            &["review", "-f", "manifest.yaml", "--objects", "broken.yaml"],
            "objects: broken.yaml:1: document 1: line 1",
        ),
        (
            &["review", "-f", "manifest.yaml", "--old", "nowhere"],
            "'nowhere' cannot be read",
        ),
        (
            &["review", "-f", "manifest.yaml", "--operation", "patch"],
            "expected CREATE, UPDATE, DELETE or CONNECT",
        ),
        (
            &["review", "-f", "manifest.yaml", "-o", "html"],
            "expected text, json",
        ),
        (
            &["review", "-f", "manifest.yaml", "--hooks-dir", "nowhere"],
            "not exist; name the directory of your hooks with --hooks-dir",
        ),
        (
            &["review", "-f", "manifest.yaml", "--hooks-dir", "empty"],
            "no hook in 'empty' has kubernetesValidating",
        ),
        (
            &["review", "-f", "manifest.yaml", "--kube-config", "x"],
            "does not belong to `review`",
        ),
        (
            &["review", "-f", "manifest.yaml", "--objcets", "x"],
            "did you mean --objects?",
        ),
    ] {
        let output = env.run(arguments);
        assert_eq!(output.code, Some(2), "{arguments:?}: {}", output.all());
        assert!(
            output.stderr.starts_with("Error: ") && output.stderr.contains(words),
            "{arguments:?}: {}",
            output.all()
        );
        assert_eq!(output.stdout, "", "{arguments:?}");
    }
}

#[test]
fn a_condition_that_could_not_be_registered_is_an_error_of_the_hook() {
    let env = Env::new();
    let binding =
        json!({ "matchConditions": [{ "name": "odd", "expression": "object.metadata ==" }] });
    hook(&env, "odd", "kubernetesValidating", &binding, ALLOW);
    let output = review(&env, &pod("a"), &[]);
    assert_eq!(output.code, Some(2));
    assert!(
        output.stderr.contains(
            "hook 'odd.sh': webhook 'odd.policy.example.com': matchConditions 'odd': line 1"
        ),
        "{}",
        output.stderr
    );
}

#[test]
fn a_kind_that_nobody_knows_is_not_guessed() {
    let env = Env::new();
    show(&env, "\"\\(.resource.resource) in \\(.namespace)\"");
    let tab = "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: a}\n";
    let output = review(&env, tab, &[]);
    assert_eq!(output.code, Some(2));
    assert!(
        output
            .stdout
            .contains("give the CustomResourceDefinition with -f or --objects"),
        "{}",
        output.stdout
    );
    assert_eq!(review(&env, tab, &["--allow-unjudged"]).code, Some(0));
    let definition = env.write("definition.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
        metadata: {name: tabs.stable.example.com}\nspec: {group: stable.example.com, scope: Cluster, \
        names: {plural: tabs, kind: CronTab}, versions: [{name: v1, served: true, storage: true}]}\n");
    let definition = definition.to_string_lossy();
    assert_eq!(
        denials(&review(&env, tab, &["--objects", &definition])),
        ["tabs in null"]
    );
}
