//! What the operator keeps in the CRD: the fields, that they stay so, and that a CRD which is not there holds up nobody.

use std::time::Duration;

use serde_json::{Value, json};

use super::Converting;
use crate::support::stage::{Kind, answers};
use crate::support::{Operator, SOON, repository, wait_for};

/// The requirement: what was edited is back, and a CRD that came is patched, within this time.
const BACK: Duration = Duration::from_secs(10);

/// How often the operator said that it changed a CRD.
fn changes(operator: &Operator) -> usize {
    let said = "conversion of the CustomResourceDefinition brought up to date";
    let lines = operator.log_lines();
    lines.iter().filter(|line| line.message() == said).count()
}

#[test]
fn an_edited_conversion_is_back_within_ten_seconds_and_the_rest_is_left_alone() {
    let world = Converting::usual("edited");
    world.make_crd("v1");
    let operator = world.start();
    let wanted = world.crd()["spec"]["conversion"].clone();
    let url = format!(
        "https://{}:9681/{}",
        world.stage.env.address(),
        world.crd_name()
    );
    let bundle = wanted["webhook"]["clientConfig"]["caBundle"].clone();
    assert_eq!(
        wanted,
        json!({ "strategy": "Webhook", "webhook": {
            "clientConfig": { "url": url, "caBundle": bundle },
            "conversionReviewVersions": ["v1", "v1beta1"],
        } })
    );
    let service = json!({ "namespace": "n", "name": "s", "port": 1, "path": "/x" });
    let edits: [Value; 3] = [
        json!({ "strategy": "None", "webhook": null }),
        json!({ "webhook": { "clientConfig": { "url": null, "service": service } } }),
        json!({ "webhook": { "conversionReviewVersions": ["v1beta1"], "clientConfig": { "caBundle": null } } }),
    ];
    for edit in edits {
        let mut versions = world.crd()["spec"]["versions"].clone();
        versions[0]["schema"]["openAPIV3Schema"]["description"] = json!(edit.to_string());
        let patch = json!({
            "metadata": { "labels": { "kept": "yes" } },
            "spec": { "conversion": edit, "versions": versions },
        });
        let answer = world.stage.api.merge(&world.crd_path(), &patch);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_ne!(answer.json()["spec"]["conversion"], wanted);
        wait_for("the conversion to be back", BACK, || {
            world.crd()["spec"]["conversion"] == wanted
        });
        let crd = world.crd();
        assert_eq!(crd["spec"]["versions"], versions);
        assert_eq!(crd["metadata"]["labels"]["kept"], "yes");
    }
    assert_eq!(operator.readyz().unwrap().status, 200);
}

#[test]
fn a_missing_crd_holds_up_nobody_and_is_patched_when_it_comes() {
    let world = Converting::usual("missing");
    let denial = answers(&json!({ "allowed": false, "message": "caught" }));
    world.stage.env.write_hook(
        "deny.sh",
        &crate::support::stage::script(
            &json!({
                "configVersion": "v1",
                Kind::Validating.section(): [world.stage.binding("deny", &json!({}))],
            }),
            &denial,
        ),
    );
    // Ready, and what else there is works.
    let operator = world.stage.start();
    assert!(
        world
            .stage
            .create("a", &json!({}))
            .text()
            .contains("caught")
    );
    operator.wait_log("the warning", |line| {
        line.label("level") == Some("warn") && line.contains(&world.crd_name())
    });
    world.make_crd("v1");
    wait_for("the CRD to be patched", BACK, || {
        world.crd()["spec"]["conversion"]["strategy"] == "Webhook"
    });
    world.wait_registered();
    world.create("a", "v1alpha1");
    assert_eq!(
        world.get("a", "v1")["spec"],
        world.object("a", "v1")["spec"]
    );
    let warned = operator.log_lines();
    let warned = warned
        .iter()
        .filter(|line| line.contains("there is no CustomResourceDefinition"));
    assert_eq!(warned.count(), 1);
}

#[test]
fn the_printed_definition_is_taken_by_the_api_server() {
    let readme = std::fs::read_to_string(repository().join("hooks/README.md")).unwrap();
    let (_, rest) = readme
        .split_once("<!-- crd: crontabs -->\n```yaml\n")
        .unwrap();
    let (definition, _) = rest.split_once("\n```\n").unwrap();
    let world = Converting::new("printed");
    let file = world.stage.env.write("crd.yaml", definition);
    let file = file.display().to_string();
    let output = world
        .stage
        .namespace
        .kubectl(&["create", "--dry-run=server", "-f", &file]);
    assert!(output.ok().contains("created"));
}

/// The API server cannot call, which is said once; that the registration is as it should be does not make it well.
#[test]
fn a_missing_service_is_complained_about_once_and_never_called_well() {
    let mut world = Converting::usual("no-service");
    world.make_crd("v1");
    world.stage.env = world
        .stage
        .env
        .clone()
        .flag("--conversion-webhook-service-name=not-there")
        .env("CONVERSION_WEBHOOK_URL", "");
    let operator = world.stage.env.start();
    let is_set = || world.crd()["spec"]["conversion"]["strategy"] == "Webhook";
    wait_for("the CRD to be patched", SOON, is_set);
    // Each of these takes a look at everything.
    for _ in 0..2 {
        let edit = json!({ "spec": { "conversion": { "strategy": "None", "webhook": null } } });
        assert_eq!(world.stage.api.merge(&world.crd_path(), &edit).status, 200);
        wait_for("the conversion to be back", BACK, is_set);
    }
    let lines = operator.log_lines();
    let said = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(
        (said("there is no Service"), said("well again")),
        (1, 0),
        "{lines:#?}"
    );
}

#[test]
fn rules_and_versions_that_do_not_fit_are_told_when_the_crd_is_there() {
    let world = Converting::new("misfits").hook(
        "half",
        &[("v1alpha1", "v1"), ("v1", "v1alpha1"), ("v1", "v2")],
        super::CONVERT,
    );
    world.make_crd("v1");
    let operator = world.start();
    for text in [
        "the conversion from v1 to v2 is of no use",
        "no conversion leads from v1 to v1beta1",
        "no conversion leads from v1beta1 to v1",
    ] {
        operator.wait_log(text, |line| {
            line.label("level") == Some("warn")
                && line.label("hook") == Some("half.sh")
                && line.contains(text)
        });
    }
}

#[test]
fn a_second_start_changes_nothing() {
    let world = Converting::usual("again");
    world.make_crd("v1");
    let mut operator = world.start();
    assert_eq!(changes(&operator), 1);
    operator.term();
    operator.wait_exit(SOON);
    let keeps = |operator: &Operator| {
        let lines = operator.log_lines();
        lines
            .iter()
            .any(|line| line.contains("keep their conversion"))
    };
    assert!(keeps(&operator));
    let written = world.crd()["metadata"]["resourceVersion"].clone();
    let operator = world.start();
    assert_eq!(changes(&operator), 0);
    assert_eq!(world.crd()["metadata"]["resourceVersion"], written);
    // Where there is no CRD, none keeps anything.
    let world = Converting::usual("nothing-kept");
    let mut operator = world.stage.env.start();
    operator.wait_ready();
    operator.term();
    operator.wait_exit(SOON);
    assert!(!keeps(&operator));
}

/// Two ways to change a CRD are tried, so the rights of the original are enough, and so is the right to patch. Through a Service.
#[test]
fn few_rights_and_a_service_are_enough() {
    for verb in ["update", "patch"] {
        let mut world = Converting::usual("conversion-rights");
        world.make_crd("v1");
        let service = world.stage.api.create(
            &format!("/api/v1/namespaces/{}/services", world.stage.label),
            &json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": "converter" },
                "spec": { "ports": [{ "port": 443 }] },
            }),
        );
        assert_eq!(service.status, 201, "{}", service.text());
        let service = service.json();
        let address = service["spec"]["clusterIP"].as_str().unwrap();
        let token = world.stage.namespace.service_account(
            "operator",
            &json!([
                {
                    "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
                    "verbs": ["get", verb],
                },
                { "apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "update"] },
            ]),
        );
        let kubeconfig = world.stage.namespace.plane.cluster().token(&token);
        let file = world.stage.env.write("few-rights", kubeconfig.text());
        // The stage's own webhooks would need more rights.
        std::fs::remove_file(world.stage.env.hooks_dir().join("marker.sh")).unwrap();
        world.stage.env = world
            .stage
            .env
            .clone()
            .flag(&format!("--kube-config={}", file.display()))
            .flag("--conversion-webhook-service-name=converter")
            .flag("--conversion-webhook-listen-port=443")
            .flag(&format!("--conversion-webhook-listen-address={address}"))
            .env("CONVERSION_WEBHOOK_URL", "");
        let operator = world.start();
        let target =
            world.crd()["spec"]["conversion"]["webhook"]["clientConfig"]["service"].clone();
        let path = format!("/{}", world.crd_name());
        assert_eq!(
            target,
            json!({ "namespace": world.stage.label, "name": "converter", "port": 443, "path": path })
        );
        world.create("a", "v1alpha1");
        assert_eq!(
            world.get("a", "v1")["spec"],
            world.object("a", "v1")["spec"],
            "{verb}"
        );
        assert_eq!(operator.readyz().unwrap().status, 200);
    }
}

#[test]
fn the_certificate_is_renewed_and_the_crd_follows() {
    // Renewed after 13 s, and for 2 s before and after the switch both authorities are registered.
    let mut world = Converting::usual("conversion-renewed");
    let lifetime = "--conversion-webhook-certificate-lifetime=20s";
    world.stage.env = world.stage.env.clone().flag(lifetime);
    world.make_crd("v1");
    let _operator = world.start();
    world.create("a", "v1alpha1");
    let first = world.bundle();
    let authorities = |bundle: &str| bundle.matches("BEGIN CERTIFICATE").count();
    let is_read = || world.get("a", "v1beta1")["spec"].is_object();
    wait_for("both authorities to be registered", SOON, || {
        is_read() && authorities(&world.bundle()) == 2
    });
    wait_for("the old authority to be taken out", SOON, || {
        let bundle = world.bundle();
        is_read() && authorities(&bundle) == 1 && bundle != first
    });
}
