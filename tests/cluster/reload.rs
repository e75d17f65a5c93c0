//! HUP with webhooks: the operator begins anew, and the API server asks the hooks as they are now.

use rustix::process::Signal;
use serde_json::json;

use crate::support::stage::{Kind, answers, message, script, webhooks};
use crate::support::{SOON, Stage, wait_for};

#[test]
fn after_hup_the_api_server_asks_the_new_hooks_and_the_former_ones_are_unregistered() {
    let allow = answers(&json!({ "allowed": true }));
    let stage = Stage::new("hup").hook("former", Kind::Validating, &json!({}), &allow);
    let operator = stage.start();
    let pid = operator.pid();
    assert_eq!(stage.create("before", &json!({})).status, 201);

    let deny = answers(&json!({ "allowed": false, "message": "says the new hook" }));
    let config = json!({ "configVersion": "v1", "kubernetesValidating": [stage.binding("added", &json!({}))] });
    stage.env.write_hook("added.sh", &script(&config, &deny));
    std::fs::remove_file(stage.env.hooks_dir().join("former.sh")).unwrap();
    operator.signal(Signal::HUP);
    operator.wait_log("the orderly stop", |line| {
        line.message().starts_with("stopping, to begin anew")
    });
    let mut count = 0;
    wait_for("the denial of the new hook", SOON, || {
        count += 1;
        let answer = stage.create(&format!("after-{count}"), &json!({}));
        // The former hooks answer, then for a moment nobody does, and then the new ones.
        message(&answer).contains("says the new hook")
    });
    operator.wait_ready();
    let configuration = stage.configuration(Kind::Validating);
    let registered = webhooks(&configuration);
    let has = |stem: &str| {
        let name = stage.webhook_name(stem);
        registered.iter().any(|webhook| webhook["name"] == name)
    };
    assert!(has("added") && !has("former"), "{registered:?}");
    assert_eq!(operator.pid(), pid);
}
