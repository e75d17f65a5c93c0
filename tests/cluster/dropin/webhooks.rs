//! Examples 204 and 206: webhooks with certificates that the user brings, behind a Service, as a chart sets them up.

use serde_json::{Value, json};

use super::{Layout, in_both_layouts, install, wait_said, with_tools};
use crate::support::{Authority, Connection, Identity, SOON, Stage, Validity, wait_for};

in_both_layouts!(validating_webhook, mutating_webhook);

/// A stage with the hooks of a fixture and the CRD that they are about.
fn stage(name: &str, fixture: &str, layout: Layout) -> Stage<'static> {
    let mut stage = Stage::new(name);
    install(&stage.env, fixture, layout);
    stage.env = with_tools(stage.env.clone(), stage.namespace.plane);
    stage
        .namespace
        .apply(&stage.namespace.crd("crontabs", "CronTab"));
    wait_for("the resource to be served", SOON, || {
        stage.api.get(&crontabs(&stage)).status == 200
    });
    stage
}

fn crontabs(stage: &Stage<'_>) -> String {
    let name = &stage.label;
    format!("/apis/{name}.example.com/v1/namespaces/{name}/crontabs")
}

fn crontab(stage: &Stage<'_>, name: &str, spec: &Value) -> String {
    let version = format!("{}.example.com/v1", stage.label);
    json!({ "apiVersion": version, "kind": "CronTab", "metadata": { "name": name }, "spec": spec })
        .to_string()
}

/// The address of the Service that `behind_a_service` made.
fn service_address(stage: &Stage<'_>) -> String {
    let path = format!("/api/v1/namespaces/{}/services/hooks", stage.label);
    let service = stage.api.object(&path);
    service["spec"]["clusterIP"].as_str().unwrap().to_owned()
}

/// The three files of a chart's Secret.
fn with_files(stage: Stage<'static>, pair: &Identity, authority: &Authority) -> Stage<'static> {
    let files = [
        (
            "VALIDATING_WEBHOOK_SERVER_CERT",
            "tls.crt",
            &pair.certificate_pem,
        ),
        ("VALIDATING_WEBHOOK_SERVER_KEY", "tls.key", &pair.key_pem),
        ("VALIDATING_WEBHOOK_CA", "ca.crt", &authority.pem),
    ];
    files
        .into_iter()
        .fold(stage, |stage, (variable, name, pem)| {
            let path = stage.env.write(&format!("validating-certs/{name}"), pem);
            stage.env(variable, &path.to_string_lossy())
        })
}

/// 204: the user reads the hook's message, and the kubelet finds the port alive.
fn validating_webhook(layout: Layout) {
    let stage = stage("validating", "204-validating-webhook", layout).behind_a_service();
    let address = service_address(&stage);
    let authority = Authority::new("chart");
    let name = format!("hooks.{}.svc", stage.label);
    let pair = authority.server(&[&name, &address], Validity::Now);
    let stage = with_files(stage, &pair, &authority);
    let operator = stage.start();

    let refused = stage
        .namespace
        .try_apply(&crontab(&stage, "a", &json!({ "image": "web:1" })));
    let wanted = format!(
        "admission webhook \"private-registry.{}.example.com\" denied the request: \
         Only images of registry.example.com are allowed, not web:1",
        stage.label
    );
    let words = refused.err();
    assert!(words.contains(&wanted), "{words}");
    wait_said(&operator, "private-registry.sh", "asked about web:1");
    let image = json!({ "image": "registry.example.com/web:1" });
    stage.namespace.apply(&crontab(&stage, "a", &image));
    wait_said(
        &operator,
        "private-registry.sh",
        "asked about registry.example.com/web:1",
    );

    let to = format!("{address}:443").parse().unwrap();
    let mut connection = Connection::tls(to, &name, &authority.pem, None).unwrap();
    let answer = connection.request("GET", "/healthz", &[], b"").unwrap();
    assert_eq!(answer.status, 200);
}

/// 206: the object is stored with the change that the hook wrote as base64.
fn mutating_webhook(layout: Layout) {
    let stage = stage("mutating", "206-mutating-webhook", layout);
    let _operator = stage.start();
    stage
        .namespace
        .apply(&crontab(&stage, "a", &json!({ "cron": "* * * * *" })));
    let stored = stage.api.object(&format!("{}/a", crontabs(&stage)));
    assert_eq!(
        stored["spec"],
        json!({ "cron": "* * * * *", "replicas": 3 })
    );
    stage
        .namespace
        .apply(&crontab(&stage, "b", &json!({ "replicas": 1 })));
    let stored = stage.api.object(&format!("{}/b", crontabs(&stage)));
    assert_eq!(stored["spec"], json!({ "replicas": 1 }));
}
