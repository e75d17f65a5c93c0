//! What mutating hooks make of objects: cases 6, 7, 9, 11, 12 and 23 of the list.

use serde_json::json;

use super::{Case, accepted, any_version, pod};
use crate::support::stage::config_map;
use crate::support::{SOON, wait_for};

/// Case 6.
#[test]
fn two_webhooks_change_a_config_map_one_after_the_other() {
    let case = Case::new("mutate-configmaps");
    let map = config_map("to-be-mutated", &json!({ "mutation-start": "yes" }));
    let answer = case.create("configmaps", &map);
    accepted(&answer);
    let expected =
        json!({ "mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes" });
    assert_eq!(answer.json()["data"], expected);
}

/// Case 7.
#[test]
fn a_pod_is_changed_and_defaults_are_applied_afterwards() {
    let case = Case::new("mutate-pods");
    let answer = case.create("pods", &pod("webhook-to-be-mutated", &json!({}), "example"));
    accepted(&answer);
    let spec = answer.json()["spec"].clone();
    let added = &spec["initContainers"][0];
    assert_eq!(added["name"], "webhook-added-init-container");
    assert_eq!(added["terminationMessagePolicy"], "File", "{added}");
}

/// Case 9.
#[test]
fn a_custom_resource_is_changed() {
    let case = Case::new("mutate-custom-resource");
    let (path, _) = case.custom_resource(&json!([any_version("v1", true)]));
    let object = case.custom_object("a", &json!({ "mutation-start": "yes" }));
    let answer = case
        .stage
        .api
        .create(&path.replace("VERSION", "v1"), &object);
    accepted(&answer);
    let expected =
        json!({ "mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes" });
    assert_eq!(answer.json()["data"], expected);
}

/// Case 11.
#[test]
fn a_custom_resource_is_changed_also_when_another_version_is_stored() {
    let case = Case::new("mutate-custom-resource");
    let (path, crd) =
        case.custom_resource(&json!([any_version("v1", true), any_version("v2", false)]));
    let object = case.custom_object("a", &json!({ "mutation-start": "yes" }));
    let api = &case.stage.api;
    accepted(&api.create(&path.replace("VERSION", "v1"), &object));

    let versions = json!([any_version("v1", false), any_version("v2", true)]);
    accepted(&api.merge(&crd, &json!({ "spec": { "versions": versions } })));
    wait_for("the other version to be stored", SOON, || {
        api.object(&crd)["status"]["storedVersions"] == json!(["v1", "v2"])
    });
    let operations = json!([{ "op": "add", "path": "/dummy", "value": "test" }]);
    let answer = api.json_patch(&format!("{}/a", path.replace("VERSION", "v2")), &operations);
    accepted(&answer);
    let changed = answer.json();
    assert_eq!(changed["dummy"], "test");
    for key in ["mutation-start", "mutation-stage-1", "mutation-stage-2"] {
        assert_eq!(changed["data"][key], "yes", "{changed}");
    }
}

/// Case 12.
#[test]
fn what_the_schema_does_not_know_is_pruned_after_the_change() {
    let case = Case::new("mutate-custom-resource");
    let text = json!({ "type": "string" });
    let known = json!({ "mutation-start": text, "mutation-stage-1": text });
    let (path, _) = case.custom_resource(&json!([{
        "name": "v1", "served": true, "storage": true,
        "schema": { "openAPIV3Schema": {
            "type": "object",
            "properties": { "data": { "type": "object", "properties": known } },
        } },
    }]));
    let object = case.custom_object("a", &json!({ "mutation-start": "yes" }));
    let answer = case
        .stage
        .api
        .create(&path.replace("VERSION", "v1"), &object);
    accepted(&answer);
    let expected = json!({ "mutation-start": "yes", "mutation-stage-1": "yes" });
    assert_eq!(answer.json()["data"], expected);
}

/// Case 23.
#[test]
fn a_match_condition_keeps_one_name_out() {
    let case = Case::new("mutate-configmaps");
    let start = json!({ "mutation-start": "yes" });
    let skipped = case.create("configmaps", &config_map("skip-me", &start));
    accepted(&skipped);
    assert_eq!(skipped.json()["data"], start);
    let other = case.create("configmaps", &config_map("other", &start));
    accepted(&other);
    assert_eq!(other.json()["data"]["mutation-stage-2"], "yes");
}
