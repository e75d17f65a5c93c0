//! A validating hook that knows the objects which are there already, through the snapshot of another binding.

use serde_json::{Value, json};

use crate::support::stage::{Kind, config_map, message, script};
use crate::support::{Answer, SOON, Stage, wait_for};

/// Refuses a host that another object has. The snapshot holds the names and hosts of all objects.
const POLICY: &str = r#"
jq -c '
  .[0] as $asked
  | $asked.review.request.object as $object
  | [ $asked.snapshots.hosts[].filterResult
      | select(.host == $object.data.host and .name != $object.metadata.name) ]
  | if length == 0 then { allowed: true }
    else { allowed: false, message: ("host \($object.data.host) belongs to \(.[0].name)") } end
' "$BINDING_CONTEXT_PATH" >"$VALIDATING_RESPONSE_PATH"
"#;

fn stage() -> Stage<'static> {
    let stage = Stage::new("hosts");
    let config = json!({
        "configVersion": "v1",
        "kubernetes": [{
            "name": "hosts", "apiVersion": "v1", "kind": "ConfigMap",
            "namespace": { "nameSelector": { "matchNames": [stage.label] } },
            "jqFilter": "{ name: .metadata.name, host: .data.host }",
            "keepFullObjectsInMemory": false, "executeHookOnSynchronization": false,
            "executeHookOnEvent": [],
        }],
        Kind::Validating.section(): [
            stage.binding("unique", &json!({ "includeSnapshotsFrom": ["hosts"] })),
        ],
    });
    stage.script("unique.sh", &script(&config, POLICY))
}

fn with_host(name: &str, host: &str) -> Value {
    config_map(name, &json!({ "host": host }))
}

#[test]
fn a_second_object_with_the_same_host_is_refused() {
    let stage = stage();
    let maps = stage.config_maps();
    assert_eq!(
        stage
            .api
            .create(&maps, &with_host("old", "a.example.com"))
            .status,
        201
    );
    let _operator = stage.start();
    let try_out = |object: &Value| stage.api.create(&format!("{maps}?dryRun=All"), object);
    let refused = |answer: Answer, owner: &str| {
        let text = message(&answer);
        answer.status == 403 && text.ends_with(&format!("belongs to {owner}"))
    };
    // What was there before the operator.
    assert!(refused(try_out(&with_host("new", "a.example.com")), "old"));
    // What came after.
    assert_eq!(
        stage
            .api
            .create(&maps, &with_host("new", "b.example.com"))
            .status,
        201
    );
    wait_for("the host to be taken", SOON, || {
        refused(try_out(&with_host("newer", "b.example.com")), "new")
    });
    // A change of an object is judged too, but not against itself.
    let stolen = json!({ "data": { "host": "a.example.com" } });
    assert!(refused(
        stage.api.merge(&format!("{maps}/new"), &stolen),
        "old"
    ));
    let harmless = json!({ "metadata": { "labels": { "x": "y" } } });
    assert_eq!(
        stage.api.merge(&format!("{maps}/new"), &harmless).status,
        200
    );
    // A host that is given up is free.
    assert_eq!(stage.api.delete(&format!("{maps}/old")).status, 200);
    wait_for("the host to be free", SOON, || {
        try_out(&with_host("newer", "a.example.com")).status == 201
    });
}
