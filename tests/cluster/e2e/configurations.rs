//! The configuration objects themselves: cases 1, 8 and 15 to 22 of the list.

use serde_json::{Value, json};

use super::Case;
use crate::support::stage::{Kind, config_map};
use crate::support::{Answer, SOON, wait_for};

/// The kind of a case, with a webhook of the operator that has a visible effect, and how the effect shows.
fn variant(kind: Kind) -> (&'static str, fn(&Answer) -> bool) {
    match kind {
        Kind::Validating => ("configmaps", |answer| {
            answer.text().contains("unwanted key and value")
        }),
        Kind::Mutating => ("mutate-configmaps-stage-1", |answer| {
            answer.status == 201 && answer.json()["data"]["mutation-stage-1"] == "yes"
        }),
    }
}

impl Case {
    /// Creates, without storing it, a ConfigMap on which both variants have an effect.
    fn try_it(&self) -> Answer {
        let data = json!({ "webhook-e2e-test": "webhook-disallow", "mutation-start": "yes" });
        let path = format!("{}?dryRun=All", self.path("configmaps"));
        self.stage.api.create(&path, &config_map("a", &data))
    }

    /// Waits for the effect, or for its absence. The API server learns of a change within a second or so, and says nowhere when.
    #[track_caller]
    fn wait_effect(&self, shows: fn(&Answer) -> bool, expected: bool) {
        wait_for("the effect to come or go", SOON, || {
            let answer = self.try_it();
            if expected {
                shows(&answer)
            } else {
                answer.status == 201 && !shows(&answer)
            }
        });
    }
}

/// Case 1.
#[test]
fn discovery_lists_the_configurations() {
    let case = Case::new("");
    let api = &case.stage.api;
    let groups = api.object("/apis");
    let group = groups["groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(|group| group["name"] == "admissionregistration.k8s.io")
        .unwrap();
    let v1 = json!({ "groupVersion": "admissionregistration.k8s.io/v1", "version": "v1" });
    assert!(group["versions"].as_array().unwrap().contains(&v1));
    let group = api.object("/apis/admissionregistration.k8s.io");
    assert!(group["versions"].as_array().unwrap().contains(&v1));
    let list = api.object("/apis/admissionregistration.k8s.io/v1");
    for name in [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ] {
        let resources = list["resources"].as_array().unwrap();
        assert!(resources.iter().any(|resource| resource["name"] == name));
    }
}

/// Case 8: the operator has a hook that would forbid to delete webhook configurations and one that would add a label to them. The
/// API server asks neither.
#[test]
fn webhook_configurations_can_neither_be_changed_nor_kept_by_a_webhook() {
    let case = Case::new("");
    for kind in Kind::BOTH {
        for hook in ["add-label", "always-deny"] {
            let (leads_to, _) = variant(kind);
            let webhook = case.webhook("dummy", leads_to, &json!({}));
            let labels = json!({ case.agnhost.selector(): hook });
            let name = format!("dummy-{hook}");
            let path = case.stage.register(kind, &name, &labels, &json!([webhook]));
            let stored = case.stage.api.object(&path);
            assert_eq!(stored["metadata"]["labels"], labels);
            let answer = case.stage.api.delete(&path);
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }
}

#[track_caller]
fn operations_can_be_edited(kind: Kind) {
    let case = Case::new("");
    let (leads_to, shows) = variant(kind);
    let webhook = case.webhook("edited", leads_to, &json!({}));
    let path = case
        .stage
        .register(kind, "edited", &json!({}), &json!([webhook]));
    case.wait_effect(shows, true);

    let mut object = case.stage.api.object(&path);
    object["webhooks"][0]["rules"][0]["operations"] = json!(["UPDATE"]);
    assert_eq!(case.stage.api.replace(&path, &object).status, 200);
    case.wait_effect(shows, false);

    let operations = json!([
        { "op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"] },
    ]);
    assert_eq!(case.stage.api.json_patch(&path, &operations).status, 200);
    case.wait_effect(shows, true);
}

/// Case 15.
#[test]
fn a_validating_webhook_can_be_updated_and_patched() {
    operations_can_be_edited(Kind::Validating);
}

/// Case 16.
#[test]
fn a_mutating_webhook_can_be_updated_and_patched() {
    operations_can_be_edited(Kind::Mutating);
}

#[track_caller]
fn a_collection_can_be_listed_and_deleted(kind: Kind) {
    let case = Case::new("");
    let (leads_to, shows) = variant(kind);
    let labels = json!({ "e2e-list": case.stage.label });
    for number in 0..10 {
        let webhook = case.webhook(&format!("listed-{number}"), leads_to, &json!({}));
        let name = format!("listed-{number}");
        case.stage.register(kind, &name, &labels, &json!([webhook]));
    }
    let path = format!(
        "{}?labelSelector=e2e-list%3D{}",
        kind.path(),
        case.stage.label
    );
    let count = || {
        let list = case.stage.api.object(&path);
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(count(), 10);
    case.wait_effect(shows, true);
    assert_eq!(case.stage.api.delete(&path).status, 200);
    assert_eq!(count(), 0);
    case.wait_effect(shows, false);
}

/// Case 17.
#[test]
fn validating_webhooks_can_be_listed_and_deleted_as_a_collection() {
    a_collection_can_be_listed_and_deleted(Kind::Validating);
}

/// Case 18.
#[test]
fn mutating_webhooks_can_be_listed_and_deleted_as_a_collection() {
    a_collection_can_be_listed_and_deleted(Kind::Mutating);
}

fn condition(name: &str, expression: &str) -> Value {
    json!({ "name": name, "expression": expression })
}

/// Cases 19 and 20.
#[test]
fn match_conditions_are_stored_as_written() {
    let case = Case::new("");
    for kind in Kind::BOTH {
        let (leads_to, _) = variant(kind);
        let first = json!([condition(
            "expression-1",
            "object.metadata.namespace == 'production'"
        )]);
        let more = json!({ "matchConditions": first });
        let webhook = case.webhook("conditions", leads_to, &more);
        let path = case
            .stage
            .register(kind, "conditions", &json!({}), &json!([webhook]));
        let mut object = case.stage.api.object(&path);
        assert_eq!(object["webhooks"][0]["matchConditions"], first);

        let second = json!([
            condition("expression-1", "object.metadata.namespace == 'staging'"),
            condition("expression-2", "object.metadata.name == 'a'"),
        ]);
        object["webhooks"][0]["matchConditions"] = second.clone();
        assert_eq!(case.stage.api.replace(&path, &object).status, 200);
        let object = case.stage.api.object(&path);
        assert_eq!(object["webhooks"][0]["matchConditions"], second);
    }
}

/// Cases 21 and 22.
#[test]
fn match_conditions_that_do_not_compile_are_refused() {
    let case = Case::new("");
    for kind in Kind::BOTH {
        let (leads_to, _) = variant(kind);
        let wrong = json!([condition("invalid-expression-1", "... [] bad expression")]);
        let webhook = case.webhook("wrong", leads_to, &json!({ "matchConditions": wrong }));
        let answer = case
            .stage
            .try_register(kind, "wrong", &json!({}), &json!([webhook]));
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert!(answer.text().contains("compilation failed"));
    }
}
