//! The control plane of the harness tried on itself: what the other tests here stand on.

use std::path::Path;

use serde_json::json;

use crate::support::http::get;
use crate::support::{ControlPlane, Env, SOON, Validity, wait_for};

#[test]
fn kubectl_and_namespaces_work() {
    let plane = ControlPlane::shared();
    let (one, two) = (plane.namespace("plane"), plane.namespace("plane"));
    assert_ne!(one.name, two.name);
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "x": "1" },
    });
    one.apply(&map.to_string());
    let path = ["get", "configmap", "a", "-o", "jsonpath={.data.x}"];
    assert_eq!(one.kubectl(&path).ok(), "1");
    let message = two.kubectl(&path).err();
    assert!(message.contains("NotFound"), "{message}");
    let message = one.try_apply("kind: Nonsense").err();
    assert!(message.contains("apiVersion"), "{message}");
}

#[test]
fn rights_of_a_service_account_and_of_a_certificate_are_enforced() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("rights");
    let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] }]);
    let token = namespace.service_account("reader", &rules);
    let env = Env::new();
    namespace.service_account_files(&env.path().join("account"), &token);
    let written = std::fs::read_to_string(env.path().join("account/token")).unwrap();
    assert_eq!(written, token);

    let as_account = env.write("as-account", plane.cluster().token(&token).text());
    let ask =
        |kubeconfig: &Path, kind: &str| plane.kubectl_with(kubeconfig, &["get", kind, "-A"], "");
    ask(&as_account, "pods").ok();
    let message = ask(&as_account, "secrets").err();
    assert!(message.contains("Forbidden"), "{message}");

    let authority = plane.client_authority();
    for (validity, accepted) in [(Validity::Now, true), (Validity::Expired, false)] {
        let identity = authority.client("jane", &["system:masters"], validity);
        let kubeconfig = plane.cluster().client_certificate(&identity).text();
        let path = env.write("as-jane", kubeconfig);
        assert_eq!(ask(&path, "secrets").code == Some(0), accepted);
    }
}

#[test]
fn an_own_api_server_can_be_stopped_and_started() {
    let plane = ControlPlane::own();
    let etcd = plane.etcd();
    let etcd_address = etcd.trim_start_matches("http://").parse().unwrap();
    let namespace = plane.namespace("restart");
    plane.stop_apiserver();
    plane.kubectl(&["get", "namespaces"]).err();
    assert_eq!(get(etcd_address, "/health").unwrap().status, 200);
    plane.start_apiserver();
    namespace
        .kubectl(&["get", "namespace", &namespace.name])
        .ok();
    drop(namespace);
    drop(plane);
    wait_for("etcd to end", SOON, || {
        get(etcd_address, "/health").is_err()
    });
}
