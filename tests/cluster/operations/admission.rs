//! Operations of admission hooks: carried out before the answer, never in a dry run, and a failure refuses the request.

use serde_json::{Value, json};

use crate::support::stage::{Kind, answers, config_map, message};
use crate::support::{SOON, Stage, wait_for};

/// What a hook does that answers this and writes these operations.
fn with_operations(answer: &Value, operations: &str) -> String {
    format!(
        "{}\ncat >\"$KUBERNETES_PATCH_PATH\" <<'OPERATIONS'\n{operations}\nOPERATIONS\n",
        answers(answer)
    )
}

/// A change of the ConfigMap `counter` in the namespace of the stage.
fn change(stage: &Stage<'_>, name: &str) -> String {
    json!({
        "operation": "MergePatch", "kind": "ConfigMap", "namespace": stage.label, "name": name,
        "mergePatch": { "data": { "seen": "yes" } },
    })
    .to_string()
}

/// For one of several hooks, by the label of the object.
fn only(case: &str) -> Value {
    json!({ "labelSelector": { "matchLabels": { "case": case } } })
}

fn asks(case: &str) -> Value {
    let mut object = config_map(case, &json!({}));
    object["metadata"]["labels"] = json!({ "case": case });
    object
}

/// AW-34.
#[test]
fn a_dry_run_changes_nothing_whatever_the_hook_writes() {
    let stage = Stage::new("dry-operations");
    let body = with_operations(&json!({ "allowed": true }), &change(&stage, "counter"));
    let stage = stage.hook("change", Kind::Validating, &only("change"), &body);
    let operator = stage.start();
    let path = stage.config_maps();
    let counter = stage.api.create(&path, &config_map("counter", &json!({})));
    assert_eq!(counter.status, 201, "{}", counter.text());
    let seen = || stage.api.object(&format!("{path}/counter"))["data"]["seen"] == "yes";
    let dry = stage
        .api
        .create(&format!("{path}?dryRun=All"), &asks("change"));
    assert_eq!(dry.status, 201, "{}", dry.text());
    operator.wait_log("the dry run", |line| {
        line.message() == "dry run: object operations are not carried out"
    });
    assert!(!seen());
    let real = stage.api.create(&path, &asks("change"));
    assert_eq!(real.status, 201, "{}", real.text());
    assert!(seen(), "the change is made before the answer");
}

#[test]
fn operations_that_fail_refuse_the_request() {
    let stage = Stage::new("failed-operations");
    let allow = json!({ "allowed": true });
    let absent = with_operations(&allow, &change(&stage, "absent"));
    let bad = with_operations(&allow, "operation: Destroy");
    let denied = with_operations(
        &json!({ "allowed": false, "message": "no" }),
        &change(&stage, "counter"),
    );
    let marked = change(&stage, "counter").replacen('{', "{\"ignoreHookError\":true,", 1);
    let failing = format!(
        "{}exit 3\n",
        with_operations(&allow, &marked.replace("seen", "failed"))
    );
    // One call a minute beyond the first two: the third has no turn before the review has to be answered.
    let slow = with_operations(&allow, &change(&stage, "counter").repeat(20));
    let stage = stage
        .hook("absent", Kind::Validating, &only("absent"), &absent)
        .hook("bad", Kind::Validating, &only("bad"), &bad)
        .hook("denied", Kind::Validating, &only("denied"), &denied)
        .hook("failing", Kind::Validating, &only("failing"), &failing)
        .hook(
            "slow",
            Kind::Validating,
            &{
                let mut more = only("slow");
                more["timeoutSeconds"] = json!(3);
                more
            },
            &slow,
        )
        .env("OBJECT_PATCHER_KUBE_CLIENT_QPS", "0.02")
        .env("OBJECT_PATCHER_KUBE_CLIENT_BURST", "10");
    let operator = stage.start();
    let path = stage.config_maps();
    let counter = stage.api.create(&path, &config_map("counter", &json!({})));
    assert_eq!(counter.status, 201, "{}", counter.text());
    for (case, expected) in [
        (
            "absent",
            "Shell-operator hook 'absent.sh' error: its object operations failed.",
        ),
        (
            "bad",
            "Shell-operator hook 'bad.sh' error: its object operations failed.",
        ),
        ("denied", "denied the request: no"),
        (
            "failing",
            "Shell-operator hook 'failing.sh' error: exit code 3.",
        ),
        ("slow", "Shell-operator hook 'slow.sh' error: "),
    ] {
        let answer = stage.api.create(&path, &asks(case));
        assert!(
            message(&answer).contains(expected),
            "{case}: {}",
            answer.text()
        );
    }
    let data = stage.api.object(&format!("{path}/counter"))["data"].clone();
    assert_eq!(data, json!({ "seen": "yes", "failed": "yes" }));
    operator.wait_log("the reason", |line| {
        line.label("hook") == Some("bad.sh")
            && line.contains("can't validate document 1: operation \\\"Destroy\\\" is not one of")
    });
    operator.wait_log("the lack of time", |line| {
        line.label("hook") == Some("slow.sh")
            && line.contains("no turn under the limit of calls per second")
    });
}

/// Whatever made the run fail: the hook was ended at its deadline, or what it left beside its operations cannot be read.
#[test]
fn a_review_that_fails_in_any_way_still_makes_the_marked_changes() {
    let mut stage = Stage::new("marked-reviews");
    let allow = json!({ "allowed": true });
    let cases = [
        ("late", "exec sleep 60"),
        ("killed", "kill -s KILL $$"),
        ("answer", "echo nonsense >\"$ADMISSION_RESPONSE_PATH\""),
        ("metrics", "echo nonsense >\"$METRICS_PATH\""),
    ];
    for (case, more) in cases {
        let plain = change(&stage, "counter").replace("seen", "plain");
        let marked = change(&stage, "counter").replace("seen", case).replacen(
            '{',
            "{\"ignoreHookError\":true,",
            1,
        );
        let body = format!(
            "{}{more}\n",
            with_operations(&allow, &format!("{plain}\n{marked}"))
        );
        let mut fields = only(case);
        fields["timeoutSeconds"] = json!(2);
        stage = stage.hook(case, Kind::Validating, &fields, &body);
    }
    let _operator = stage.start();
    let path = stage.config_maps();
    let counter = stage.api.create(&path, &config_map("counter", &json!({})));
    assert_eq!(counter.status, 201, "{}", counter.text());
    for (case, _) in cases {
        let answer = stage.api.create(&path, &asks(case));
        let expected = format!("Shell-operator hook '{case}.sh' error: ");
        assert!(
            message(&answer).contains(&expected),
            "{case}: {}",
            answer.text()
        );
        wait_for("the marked change", SOON, || {
            stage.api.object(&format!("{path}/counter"))["data"][case] == "yes"
        });
    }
    let data = &stage.api.object(&format!("{path}/counter"))["data"];
    assert!(data.get("plain").is_none(), "{data}");
}
