//! What the operator registers: the fields, their order, the names it corrects or refuses; and that it keeps it so.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::stage::{Kind, answers, script, webhooks};
use crate::support::{SOON, Stage, wait_for};

/// The requirement: what was edited or deleted is back within this time.
const BACK: Duration = Duration::from_secs(10);

fn allow() -> String {
    answers(&json!({ "allowed": true }))
}

/// SO-07…SO-17, AW-03…AW-16.
#[test]
fn every_field_is_registered_as_the_hook_says() {
    let stage = Stage::new("fields");
    let rules = json!([
        {
            "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"],
            "resources": ["deployments", "deployments/scale"], "scope": "Namespaced",
        },
        { "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["*/*"] },
    ]);
    let selector = json!({
        "matchLabels": { "a": "b" },
        "matchExpressions": [{ "key": "runlevel", "operator": "NotIn", "values": ["0", "1"] }],
    });
    let in_namespace = json!({ "matchLabels": { &stage.label: "true" } });
    let conditions = json!([{ "name": "named", "expression": "object.metadata.name != 'x'" }]);
    let full = json!({
        "rules": rules, "labelSelector": selector, "failurePolicy": "Ignore",
        "sideEffects": "NoneOnDryRun", "timeoutSeconds": 7, "matchConditions": conditions,
    });
    let mut mutating = full.clone();
    mutating["reinvocationPolicy"] = json!("IfNeeded");
    let stage = stage
        .hook("full", Kind::Validating, &full, &allow())
        .hook("changing", Kind::Mutating, &mutating, &allow())
        .hook("plain", Kind::Validating, &json!({}), &allow());
    let operator = stage.env.start();
    operator.wait_ready();

    let url = |stem: &str| {
        let id = stage.webhook_name(stem).replace('.', "-");
        format!("https://{}/hooks/{stem}-sh/{id}", stage.address())
    };
    let bundle = stage.registered("full")["clientConfig"]["caBundle"].clone();
    let mut all_rules = rules;
    all_rules[1]["scope"] = json!("*");
    let mut expected = json!({
        "name": stage.webhook_name("full"),
        "clientConfig": { "url": url("full"), "caBundle": bundle },
        "rules": all_rules, "failurePolicy": "Ignore", "matchPolicy": "Equivalent",
        "namespaceSelector": in_namespace, "objectSelector": selector,
        "sideEffects": "NoneOnDryRun", "timeoutSeconds": 7,
        "admissionReviewVersions": ["v1", "v1beta1"], "matchConditions": conditions,
    });
    assert_eq!(stage.registered("full"), expected);
    expected["name"] = json!(stage.webhook_name("changing"));
    expected["clientConfig"]["url"] = json!(url("changing"));
    expected["reinvocationPolicy"] = json!("IfNeeded");
    assert_eq!(stage.registered("changing"), expected);
    let plain = stage.registered("plain");
    for (key, value) in [
        ("failurePolicy", json!("Fail")),
        ("sideEffects", json!("None")),
        ("timeoutSeconds", json!(10)),
        ("objectSelector", json!({})),
    ] {
        assert_eq!(plain[key], value, "{key}");
    }
}

/// SO-34 (the flag works), AC-03 (the order is that of the hooks, at every start).
#[test]
fn the_failure_policy_flag_is_a_default_and_the_order_is_always_the_same() {
    let stage = Stage::new("order")
        .hook("c", Kind::Validating, &json!({}), &allow())
        .hook(
            "a",
            Kind::Validating,
            &json!({ "failurePolicy": "Fail" }),
            &allow(),
        )
        .hook("b", Kind::Validating, &json!({}), &allow())
        .flag("--validating-webhook-failure-policy=Ignore");
    let two = json!({
        "configVersion": "v1",
        "kubernetesValidating": [
            stage.binding("second", &json!({})), stage.binding("first", &json!({})),
        ],
    });
    let stage = stage.script("sub/b.sh", &script(&two, &allow()));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let mut operator = stage.env.start();
        operator.wait_ready();
        let configuration = stage.configuration(Kind::Validating);
        let names: Vec<String> = webhooks(&configuration)
            .iter()
            .map(|webhook| webhook["name"].as_str().unwrap().to_owned())
            .collect();
        let expected = ["a", "b", "c", "marker-validating", "second", "first"];
        assert_eq!(names, expected.map(|stem| stage.webhook_name(stem)));
        assert_eq!(stage.registered("a")["failurePolicy"], "Fail");
        assert_eq!(stage.registered("b")["failurePolicy"], "Ignore");
        seen.push((
            configuration["metadata"]["generation"].clone(),
            configuration["metadata"]["resourceVersion"].clone(),
        ));
        operator.term();
        operator.wait_exit(SOON);
    }
    // The second start found everything as it should be, and wrote nothing.
    assert_eq!(seen[0], seen[1]);
}

/// SO-19.
#[test]
fn a_kind_under_resources_is_registered_as_its_plural_with_a_warning() {
    let stage = Stage::new("kinds");
    let rules = json!([{
        "apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["ConfigMap", "deploy/scale", "pods"],
    }]);
    let denial = answers(&json!({ "allowed": false, "message": "caught" }));
    let stage = stage.hook(
        "kind",
        Kind::Validating,
        &json!({ "rules": rules }),
        &denial,
    );
    let operator = stage.start();
    assert_eq!(
        stage.registered("kind")["rules"][0]["resources"],
        json!(["configmaps", "deployments/scale", "pods"])
    );
    for name in ["'ConfigMap'", "'deploy'"] {
        operator.wait_log("the warning", |line| {
            line.label("level") == Some("warn")
                && line.label("hook") == Some("kind.sh")
                && line.contains(name)
        });
    }
    assert!(stage.create("a", &json!({})).text().contains("caught"));
}

/// SO-39: two webhooks that would share a path, or a name, are refused at start.
#[test]
fn duplicates_are_refused_at_start() {
    let duplicate = |first: (&str, &str), second: (&str, &str)| {
        let mut stage = Stage::new("duplicates");
        for (file, name) in [first, second] {
            let mut binding = stage.binding("x", &json!({}));
            binding["name"] = json!(name);
            let config = json!({ "configVersion": "v1", "kubernetesValidating": [binding] });
            stage = stage.script(file, &script(&config, &allow()));
        }
        let mut operator = stage.env.start();
        assert_eq!(operator.wait_exit(SOON).code(), Some(1));
        let lines = operator.into_lines();
        let found = lines
            .iter()
            .find(|line| line.contains("rename one of them"))
            .unwrap_or_else(|| panic!("{lines:#?}"))
            .clone();
        assert_eq!(
            stage
                .api
                .get(&stage.configuration_path(Kind::Validating))
                .status,
            404
        );
        found.message().to_owned()
    };
    let text = duplicate(("a.sh", "one.example.com"), ("b.sh", "one.example.com"));
    assert!(text.contains("a.sh") && text.contains("b.sh"), "{text}");
    let text = duplicate(("a/b.sh", "a.b.example.com"), ("a-b.sh", "a-b.example.com"));
    assert!(text.contains("/hooks/a-b-sh/a-b-example-com"), "{text}");
}

#[test]
fn an_edited_or_deleted_registration_is_back_within_ten_seconds() {
    let stage = Stage::new("kept").hook("allow", Kind::Validating, &json!({}), &allow());
    let operator = stage.start();
    let wanted = Kind::BOTH.map(|kind| webhooks(&stage.configuration(kind)));
    // The operator looks every few seconds, so both configurations are broken at once.
    let is_back = || {
        Kind::BOTH.iter().zip(&wanted).all(|(kind, wanted)| {
            let answer = stage.api.get(&stage.configuration_path(*kind));
            answer.status == 200 && webhooks(&answer.json()) == *wanted
        })
    };
    for kind in Kind::BOTH {
        assert_eq!(
            stage.api.delete(&stage.configuration_path(kind)).status,
            200
        );
    }
    wait_for("deleted registrations to be back", BACK, is_back);

    let edits: [Value; 2] = [
        json!([{ "op": "remove", "path": "/webhooks/0/rules" }]),
        json!([
            { "op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore" },
            { "op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": "" },
            { "op": "add", "path": "/metadata/labels", "value": { "kept": "yes" } },
        ]),
    ];
    for edit in edits {
        for kind in Kind::BOTH {
            let answer = stage.api.json_patch(&stage.configuration_path(kind), &edit);
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        wait_for("edited registrations to be back", BACK, is_back);
    }
    for kind in Kind::BOTH {
        // What is not ours to decide stays.
        let labels = &stage.configuration(kind)["metadata"]["labels"];
        assert_eq!(labels["kept"], "yes");
    }
    assert_eq!(operator.readyz().unwrap().status, 200);
    stage.wait_effective();
}

/// Hooks that are gone must not be called for: the answer would be a denial, of everything they matched.
#[test]
fn a_kind_whose_last_hook_is_gone_is_emptied_and_one_of_somebody_else_is_not() {
    let stage = Stage::new("emptied").hook("allow", Kind::Validating, &json!({}), &allow());
    let mut operator = stage.start();
    operator.term();
    operator.wait_exit(SOON);
    // The marker was the only mutating one.
    std::fs::remove_file(stage.env.hooks_dir().join("marker.sh")).unwrap();
    let mutating = || webhooks(&stage.configuration(Kind::Mutating)).len();
    assert_eq!(mutating(), 1);
    let mut operator = stage.env.start();
    operator.wait_ready();
    let line = operator.wait_log("that it was emptied", |line| {
        line.contains("configuration emptied")
    });
    let path = stage.configuration_path(Kind::Mutating);
    assert_eq!(line.label("configurationName"), path.rsplit('/').next());
    assert_eq!(mutating(), 0);
    assert_eq!(webhooks(&stage.configuration(Kind::Validating)).len(), 1);
    operator.term();
    operator.wait_exit(SOON);

    let path = stage.configuration_path(Kind::Mutating);
    let mut foreign = stage.registered("allow");
    foreign["clientConfig"]["url"] = json!("https://elsewhere.example.com/hooks/a");
    let answer = stage.api.merge(&path, &json!({ "webhooks": [foreign] }));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let operator = stage.env.start();
    operator.wait_ready();
    assert_eq!(mutating(), 1);
}

/// A Service leads to whoever is ready, so nobody may be ready before there is something to lead to.
#[test]
fn it_is_ready_when_it_is_registered_and_not_a_moment_before() {
    let stage = Stage::new("ready").hook("allow", Kind::Validating, &json!({}), &allow());
    let operator = stage.env.start();
    operator.wait_ready();
    let lines = operator.log_lines();
    let said = |text: &str| {
        let has =
            |(at, line): (usize, &crate::support::Line)| (line.message() == text).then_some(at);
        lines.iter().enumerate().filter_map(has).collect::<Vec<_>>()
    };
    let (ready, registered) = (said("ready"), said("webhook configuration created"));
    assert_eq!((ready.len(), registered.len()), (1, 2), "{lines:#?}");
    assert!(registered.iter().all(|at| *at < ready[0]), "{lines:#?}");
}

/// The rights that the original asks for, and those for the Secret of our own certificate, are enough.
#[test]
fn few_rights_are_enough() {
    let stage = Stage::new("rights").hook("allow", Kind::Validating, &json!({}), &allow());
    let token = stage.namespace.service_account(
        "operator",
        &json!([
            {
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": [
                    "validatingwebhookconfigurations", "mutatingwebhookconfigurations",
                ],
                "verbs": ["list", "create", "update"],
            },
            { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "update"] },
        ]),
    );
    let kubeconfig = stage.namespace.plane.cluster().token(&token);
    let file = stage.env.write("few-rights", kubeconfig.text());
    let stage = stage.flag(&format!("--kube-config={}", file.display()));
    let operator = stage.start();
    let loud = |line: &crate::support::Line| {
        matches!(line.label("level"), Some("warn" | "error" | "fatal"))
    };
    assert_eq!(
        operator
            .log_lines()
            .iter()
            .find(|line| loud(line))
            .map(|line| &line.text),
        None
    );
    let path = stage.configuration_path(Kind::Validating);
    assert_eq!(
        stage.api.merge(&path, &json!({ "webhooks": null })).status,
        200
    );
    wait_for("the registration to be back", BACK, || {
        webhooks(&stage.configuration(Kind::Validating)).len() == 2
    });
}
