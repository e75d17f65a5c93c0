//! Example 210: a custom resource in three versions, converted by one hook in bash and one in Python, behind a Service and with
//! certificates that the user brings.

use serde_json::{Value, json};

use super::{Layout, Scenario, in_both_layouts};
use crate::support::{Authority, SOON, Validity, wait_for};

in_both_layouts!(conversion_webhook);

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Makes the Service and has the operator listen at its address, with certificates from files.
fn behind_a_service(mut scenario: Scenario) -> Scenario {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "conversion" },
        "spec": { "ports": [{ "port": 443 }] },
    });
    scenario.create(&scenario.path("services"), &service);
    let made = scenario.api.object(&scenario.path("services/conversion"));
    let address = made["spec"]["clusterIP"].as_str().unwrap();
    let authority = Authority::new("chart");
    let name = format!("conversion.{}.svc", scenario.namespace.name);
    let pair = authority.server(&[&name, address], Validity::Now);
    for (variable, file, pem) in [
        (
            "CONVERSION_WEBHOOK_SERVER_CERT",
            "tls.crt",
            &pair.certificate_pem,
        ),
        ("CONVERSION_WEBHOOK_SERVER_KEY", "tls.key", &pair.key_pem),
        ("CONVERSION_WEBHOOK_CA", "ca.crt", &authority.pem),
    ] {
        let path = scenario.env.write(&format!("conversion-certs/{file}"), pem);
        scenario = scenario.env(variable, &path.to_string_lossy());
    }
    scenario
        .env("CONVERSION_WEBHOOK_SERVICE_NAME", "conversion")
        .env("CONVERSION_WEBHOOK_LISTEN_ADDRESS", address)
        .env("CONVERSION_WEBHOOK_LISTEN_PORT", "443")
}

/// The CRD with three versions, of which the last one is stored; answers its API path.
fn make_crd(scenario: &Scenario) -> String {
    let mut crd: Value =
        serde_json::from_str(&scenario.namespace.crd("crontabs", "CronTab")).unwrap();
    let stored = crd["spec"]["versions"][0].clone();
    let versions = ["v1alpha1", "v1beta1", "v1"].map(|name| {
        let mut version = stored.clone();
        version["name"] = json!(name);
        version["storage"] = json!(name == "v1");
        version
    });
    crd["spec"]["versions"] = json!(versions);
    scenario.namespace.apply(&crd.to_string());
    format!("{CRDS}/{}", crd["metadata"]["name"].as_str().unwrap())
}

/// 210: every version can be written and read as any other one; what a hook says against it reaches the user.
fn conversion_webhook(layout: Layout) {
    let scenario = behind_a_service(
        Scenario::new("210-conversion-webhook", layout).env("PYTHONDONTWRITEBYTECODE", "1"),
    );
    let name = scenario.namespace.name.clone();
    let crd = make_crd(&scenario);
    let _operator = scenario.start();
    let conversion = scenario.api.object(&crd)["spec"]["conversion"].clone();
    assert_eq!(conversion["strategy"], "Webhook");
    let service = &conversion["webhook"]["clientConfig"]["service"];
    assert_eq!(service["path"], format!("/crontabs.{name}.example.com"));

    let object = |version: &str, object: &str, spec: &Value| {
        let version = format!("{name}.example.com/{version}");
        json!({ "apiVersion": version, "kind": "CronTab", "metadata": { "name": object }, "spec": spec })
    };
    let read = |version: &str, object: &str| {
        let path =
            format!("/apis/{name}.example.com/{version}/namespaces/{name}/crontabs/{object}");
        scenario.api.object(&path)["spec"].clone()
    };
    let never = object("v1alpha1", "never", &json!({ "schedule": "never" }));
    let refusal = "a schedule that never comes cannot be converted";
    // The API server needs a moment to learn of the webhook; nothing is stored unconverted meanwhile.
    let path = format!("/apis/{name}.example.com/v1alpha1/namespaces/{name}/crontabs?dryRun=All");
    wait_for("the first conversion", SOON, || {
        scenario.api.create(&path, &never).text().contains(refusal)
    });
    let words = scenario.namespace.try_apply(&never.to_string()).err();
    assert!(words.contains(refusal), "{words}");

    let alpha = object("v1alpha1", "old", &json!({ "schedule": "5 4" }));
    scenario.namespace.apply(&alpha.to_string());
    assert_eq!(read("v1alpha1", "old"), json!({ "schedule": "5 4" }));
    assert_eq!(
        read("v1beta1", "old"),
        json!({ "schedule": { "minute": "5", "hour": "4" } })
    );
    assert_eq!(
        read("v1", "old"),
        json!({ "timetable": { "minute": "5", "hour": "4" } })
    );

    let timetable = json!({ "timetable": { "minute": "1", "hour": "2" } });
    scenario
        .namespace
        .apply(&object("v1", "new", &timetable).to_string());
    assert_eq!(read("v1alpha1", "new"), json!({ "schedule": "1 2" }));
}
