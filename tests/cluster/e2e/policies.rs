//! What validating hooks refuse: cases 2, 3, 4, 5, 10, 13 and 14 of the list.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Case, accepted, any_version, denied, pod};
use crate::support::stage::{Kind, config_map, message};
use crate::support::{SOON, wait_for};

const UNWANTED: &str = "the configmap contains unwanted key and value";

fn disallowed() -> Value {
    json!({ "webhook-e2e-test": "webhook-disallow" })
}

/// Case 2, all but the hook that hangs.
#[test]
fn pods_and_config_maps_are_denied_on_creation_and_change() {
    let case = Case::new("true");
    let api = &case.stage.api;
    // Without a CA the API server cannot call it, and under Ignore that does not matter.
    let mut broken = case.webhook(
        "broken",
        "configmaps",
        &json!({ "failurePolicy": "Ignore" }),
    );
    broken["clientConfig"]
        .as_object_mut()
        .unwrap()
        .remove("caBundle");
    case.stage
        .register(Kind::Validating, "broken", &json!({}), &json!([broken]));

    let bad = pod("disallowed-pod", &disallowed(), "webhook-disallow");
    let answer = case.create("pods", &bad);
    denied(&answer, "the pod contains unwanted container name");
    denied(&answer, "the pod contains unwanted label");

    denied(
        &case.create("configmaps", &config_map("bad", &disallowed())),
        UNWANTED,
    );
    let good = config_map("allowed", &json!({ "mutate": "no" }));
    accepted(&case.create("configmaps", &good));
    let path = format!("{}/allowed", case.path("configmaps"));
    denied(
        &api.replace(&path, &config_map("allowed", &disallowed())),
        UNWANTED,
    );
    denied(
        &api.strategic(&path, &json!({ "data": disallowed() })),
        UNWANTED,
    );

    let skipped = format!("{}-skip", case.stage.label);
    let labels = json!({ case.agnhost.selector(): "true", "skip-webhook-admission": "yes" });
    case.stage.make_namespace(&skipped, &labels);
    let path = format!("/api/v1/namespaces/{skipped}/configmaps");
    accepted(&api.create(&path, &config_map("bad", &disallowed())));
}

/// Case 2, the hook that hangs. The case expects a deadline of the API server; the operator answers before it, and says which hook
/// took longer than which limit.
#[test]
fn a_hook_that_hangs_is_denied_and_the_pod_is_not_there() {
    let case = Case::new("pods");
    let labels = json!({ "webhook-e2e-test": "wait-forever" });
    let answer = case.create("pods", &pod("to-hang", &labels, "example"));
    let text = message(&answer);
    assert!(text.contains("webhook"), "{text}");
    assert!(
        text.contains("pods.sh") && text.contains("time limit"),
        "{text}"
    );
    let path = format!("{}/to-hang", case.path("pods"));
    assert_eq!(case.stage.api.get(&path).status, 404);
}

/// Case 3.
#[test]
fn attaching_to_a_pod_is_denied() {
    let case = Case::new("pods-attach");
    accepted(&case.create("pods", &pod("to-be-attached-pod", &json!({}), "container1")));
    let output = case
        .stage
        .namespace
        .kubectl(&["attach", "to-be-attached-pod", "-i", "-c", "container1"])
        .err();
    let expected = "attaching to pod 'to-be-attached-pod' is not allowed";
    assert!(output.contains(expected), "{output}");
}

/// Case 4.
#[test]
fn a_custom_resource_is_denied_on_creation_change_and_deletion() {
    let case = Case::new("custom-resource");
    let api = &case.stage.api;
    let (path, _) = case.custom_resource(&json!([any_version("v1", true)]));
    let path = path.replace("VERSION", "v1");
    let unwanted = "the custom resource contains unwanted data";
    let bad = case.custom_object("bad", &disallowed());
    denied(&api.create(&path, &bad), unwanted);

    let nondeletable = json!({ "webhook-e2e-test": "webhook-nondeletable" });
    accepted(&api.create(&path, &case.custom_object("kept", &nondeletable)));
    let kept = format!("{path}/kept");
    let reason = "the custom resource cannot be deleted because it contains unwanted key and value";
    denied(&api.delete(&kept), reason);
    denied(
        &api.merge(&kept, &json!({ "data": disallowed() })),
        unwanted,
    );
    let allowed = json!({ "data": { "webhook-e2e-test": "webhook-allow" } });
    accepted(&api.merge(&kept, &allowed));
    accepted(&api.delete(&kept));
}

/// Case 5.
#[test]
fn a_fail_closed_webhook_that_cannot_be_called_rejects_everything() {
    let case = Case::new("");
    let mut broken = case.webhook("broken", "configmaps", &json!({ "failurePolicy": "Fail" }));
    broken["clientConfig"]
        .as_object_mut()
        .unwrap()
        .remove("caBundle");
    case.stage
        .register(Kind::Validating, "broken", &json!({}), &json!([broken]));
    let answer = wait_for("the rejection", SOON, || {
        let path = format!("{}?dryRun=All", case.path("configmaps"));
        let answer = case.stage.api.create(&path, &config_map("foo", &json!({})));
        (answer.status >= 400).then_some(answer)
    });
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert_eq!(answer.json()["reason"], "InternalError");
}

/// Case 10.
#[test]
fn a_crd_is_denied_by_its_label() {
    let case = Case::new("");
    let answer = case.stage.api.create(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        &json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("denied.{}", case.agnhost.group()),
                "labels": { case.agnhost.selector(): "crd", "webhook-e2e-test": "webhook-disallow" },
            },
            "spec": {
                "group": case.agnhost.group(), "scope": "Namespaced",
                "names": { "plural": "denied", "kind": "Denied" },
                "versions": [any_version("v1", true)],
            },
        }),
    );
    denied(&answer, "the crd contains unwanted label");
}

/// Case 13: a hook that takes 5 s, and webhooks that wait for it for a different time. Where the case expects that the API server
/// gives up, the operator answers before it does. So under Ignore, where the case expects that the request passes, it is denied
/// here: a hook that did not decide never lets anything pass.
#[test]
fn a_timeout_is_honoured() {
    std::thread::scope(|scope| {
        for (timeout, policy, is_accepted) in [
            (Some(1), "Fail", false),
            (Some(1), "Ignore", false),
            (Some(10), "Fail", true),
            // The API server's default is 10.
            (None, "Fail", true),
        ] {
            scope.spawn(move || {
                let case = Case::new("");
                // The API server must know the webhook before it is timed: this one denies at once.
                let (timed, sign) = (
                    json!({ "timeoutSeconds": timeout, "failurePolicy": policy }),
                    json!({ "objectSelector": { "matchLabels": { "sign": "yes" } } }),
                );
                let mut timed = case.webhook("delay", "always-allow-delay", &timed);
                timed["objectSelector"] = json!({ "matchLabels": { "sign": "no" } });
                let sign = case.webhook("sign", "always-deny", &sign);
                case.stage
                    .register(Kind::Validating, "delay", &json!({}), &json!([timed, sign]));
                let create = |value: &str| {
                    let mut map = config_map("slow", &json!({}));
                    map["metadata"]["labels"] = json!({ "sign": value });
                    case.create("configmaps", &map)
                };
                wait_for("the webhook", SOON, || {
                    create("yes").status == 403 || {
                        accepted(
                            &case
                                .stage
                                .api
                                .delete(&format!("{}/slow", case.path("configmaps"))),
                        );
                        false
                    }
                });
                let answer = create("no");
                if is_accepted {
                    accepted(&answer);
                } else {
                    denied(&answer, "always-allow-delay.sh");
                    denied(&answer, "killed after 0.9 s, its time limit");
                }
            });
        }
    });
}

/// Case 14, behind a real Service.
#[test]
fn a_restarted_operator_is_called_at_the_same_address() {
    let stage = crate::support::Stage::new("restart").behind_a_service();
    let more = json!({ "failurePolicy": "Fail" });
    let answer = crate::support::stage::answers(&json!({ "allowed": true }));
    let stage = stage.hook("allow", Kind::Validating, &more, &answer);
    let mut operator = stage.start();
    let service = &stage.registered("allow")["clientConfig"]["service"];
    assert_eq!(service["namespace"], stage.label.as_str());
    assert_eq!(service["port"], 443);
    accepted(&stage.create("before", &json!({})));
    operator.term();
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
    let answer = stage.create("between", &json!({}));
    assert_eq!(answer.status, 500, "{}", answer.text());

    let _operator = stage.env.start();
    wait_for(
        "a ConfigMap to be accepted",
        Duration::from_secs(30),
        || stage.create("after", &json!({})).status == 201,
    );
}
