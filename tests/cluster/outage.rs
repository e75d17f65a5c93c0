//! An API server that is not there: at the start, and for a while later.

use serde_json::json;

use crate::support::stage::{Kind, answers, config_map, review};
use crate::support::{ControlPlane, SOON, Stage, wait_for};

#[test]
fn an_absent_api_server_is_waited_for_and_an_outage_is_survived() {
    let plane = ControlPlane::own();
    let stage = Stage::on(&plane, "outage");
    let allow = answers(&json!({ "allowed": true }));
    let stage = stage.hook("allow", Kind::Validating, &json!({}), &allow);
    plane.stop_apiserver();

    let mut operator = stage.env.start();
    operator.wait_alive();
    let reason = wait_for("the reason", SOON, || {
        let answer = operator.readyz()?;
        let text = answer.text();
        (answer.status == 503 && text.contains(plane.server())).then_some(text)
    });
    assert!(reason.contains("api-server"), "{reason}");
    assert!(operator.is_running());
    plane.start_apiserver();
    operator.wait_ready();
    stage.wait_effective();
    assert_eq!(stage.create("a", &json!({})).status, 201);

    // A later outage is no reason to stop: other API servers may still ask.
    let path = stage.path("allow");
    let mut connection = stage.connect();
    plane.stop_apiserver();
    let question = review("u", &config_map("a", &json!({})));
    let answer = connection.post_json(&path, &question).unwrap();
    assert_eq!(answer.json()["response"]["allowed"], true);
    operator.wait_log("that the registration cannot be looked at", |line| {
        line.label("level") == Some("warn") && line.contains("register")
            || line.contains("still serving the previous certificate")
    });
    assert!(operator.is_running());
    plane.start_apiserver();
    operator.wait_ready();
    // It is kept true again.
    let path = stage.configuration_path(Kind::Validating);
    assert_eq!(stage.api.delete(&path).status, 200);
    wait_for("the registration to be back", SOON, || {
        stage.api.get(&path).status == 200
    });
}
