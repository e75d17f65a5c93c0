//! The world of a webhook test: a namespace of the control plane, an `Env` whose operator serves hooks for that namespace and for
//! nobody else, and a fast client of the API server.
//!
//! Everything carries one unique word (`label`): the namespace's name, a label on it which hooks select by, and the name of the
//! webhook configurations. So stages run side by side, and a webhook whose operator is gone disturbs nobody. The configurations
//! are removed at the end, also when a test panics.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::control_plane::unique;
use super::{
    Answer, Api, Connection, ControlPlane, Env, Identity, Namespace, Operator, Output, SOON,
    wait_for,
};

/// Where the operator serves webhooks unless a flag says otherwise.
pub(crate) const WEBHOOK_PORT: u16 = 9680;
/// The same for conversion.
pub(crate) const CONVERSION_PORT: u16 = 9681;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

/// The two kinds of webhook configurations, as in their plural names and in the hook's sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Validating,
    Mutating,
}

impl Kind {
    pub(crate) const BOTH: [Kind; 2] = [Kind::Validating, Kind::Mutating];

    pub(crate) fn section(self) -> &'static str {
        match self {
            Kind::Validating => "kubernetesValidating",
            Kind::Mutating => "kubernetesMutating",
        }
    }

    pub(crate) fn object_kind(self) -> &'static str {
        match self {
            Kind::Validating => "ValidatingWebhookConfiguration",
            Kind::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// The API path of all such configurations.
    pub(crate) fn path(self) -> String {
        format!("{GROUP}/{}s", self.object_kind().to_lowercase())
    }

    fn marker(self) -> &'static str {
        match self {
            Kind::Validating => "marker-validating",
            Kind::Mutating => "marker-mutating",
        }
    }
}

pub(crate) struct Stage<'a> {
    pub(crate) namespace: Namespace<'a>,
    pub(crate) api: Api,
    /// The unique word.
    pub(crate) label: String,
    pub(crate) env: Env,
    /// API paths of what the test registered by hand.
    registered: Mutex<Vec<String>>,
}

impl Stage<'static> {
    pub(crate) fn new(name: &str) -> Stage<'static> {
        Stage::on(ControlPlane::shared(), name)
    }

    /// One whose namespace has one more label from its first moment: the copy of it that the API server looks at follows a change
    /// only after a while, but a namespace that is missing in it is looked up.
    pub(crate) fn labelled(name: &str, key: &str, value: &str) -> Stage<'static> {
        Stage::with_label(ControlPlane::shared(), name, Some((key, value)))
    }
}

impl<'a> Stage<'a> {
    pub(crate) fn on(plane: &'a ControlPlane, name: &str) -> Stage<'a> {
        Stage::with_label(plane, name, None)
    }

    fn with_label(plane: &'a ControlPlane, name: &str, more: Option<(&str, &str)>) -> Stage<'a> {
        let label = unique(name);
        let api = plane.api();
        let env = Env::new();
        let url = format!("https://{}:{WEBHOOK_PORT}", env.address());
        let conversion_url = format!("https://{}:{CONVERSION_PORT}", env.address());
        let env = env
            .kubeconfig(&plane.admin())
            .env("SHELL_OPERATOR_NAMESPACE", &label)
            .env("VALIDATING_WEBHOOK_CONFIGURATION_NAME", &label)
            .env("VALIDATING_WEBHOOK_URL", &url)
            .env("CONVERSION_WEBHOOK_URL", &conversion_url)
            // Nothing but the API server of the tests has to learn that it stops.
            .env("SHELL_OPERATOR_STOP_DRAIN_DELAY", "0s");
        let stage = Stage {
            namespace: Namespace {
                plane,
                name: label.clone(),
            },
            api,
            label,
            env,
            registered: Mutex::default(),
        };
        let mut labels = json!({ &stage.label: "true" });
        if let Some((key, value)) = more {
            labels[key] = json!(value);
        }
        stage.make_namespace(&stage.label, &labels);
        let marker = stage.marker_hook();
        stage.env.write_hook("marker.sh", &marker);
        stage
    }

    /// One more namespace.
    #[track_caller]
    pub(crate) fn make_namespace(&self, name: &str, labels: &Value) {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels },
        });
        let answer = self.api.create("/api/v1/namespaces", &namespace);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }

    // ---- hooks ----

    /// The full name of a webhook.
    pub(crate) fn webhook_name(&self, stem: &str) -> String {
        format!("{stem}.{}.example.com", self.label)
    }

    /// A hook `<stem>.sh` with one webhook `<stem>` for ConfigMaps of this namespace. `more` overrides fields of the binding;
    /// `body` is sh.
    pub(crate) fn hook(self, stem: &str, kind: Kind, more: &Value, body: &str) -> Self {
        let config = json!({
            "configVersion": "v1",
            kind.section(): [self.binding(stem, more)],
        });
        self.script(&format!("{stem}.sh"), &script(&config, body))
    }

    /// A hook as it is.
    pub(crate) fn script(self, file: &str, script: &str) -> Self {
        self.env.write_hook(file, script);
        self
    }

    /// What `hook` declares.
    pub(crate) fn binding(&self, stem: &str, more: &Value) -> Value {
        let mut binding = json!({
            "name": self.webhook_name(stem),
            "namespace": { "labelSelector": { "matchLabels": { &self.label: "true" } } },
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"],
            }],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            binding[key] = value.clone();
        }
        binding
    }

    /// Denies ConfigMaps that carry a label of its own, anywhere: shows when a registration has reached the API server, which no
    /// field of the API tells.
    fn marker_hook(&self) -> String {
        let mut config = json!({ "configVersion": "v1" });
        for kind in Kind::BOTH {
            let mut binding = self.binding(kind.marker(), &json!({}));
            binding["labelSelector"] = json!({ "matchLabels": { &self.label: kind.marker() } });
            binding.as_object_mut().unwrap().remove("namespace");
            config[kind.section()] = json!([binding]);
        }
        script(
            &config,
            r#"echo '{"allowed": false, "message": "marker"}' >"$VALIDATING_RESPONSE_PATH""#,
        )
    }

    // ---- the operator ----

    /// Registers through a Service instead of by address: the Service gets a loopback address of the control plane's range, and
    /// the operator listens there.
    #[track_caller]
    pub(crate) fn behind_a_service(self) -> Self {
        let answer = self.api.create(
            &format!("/api/v1/namespaces/{}/services", self.label),
            &json!({
                "apiVersion": "v1", "kind": "Service", "metadata": { "name": "hooks" },
                "spec": { "ports": [{ "port": 443 }] },
            }),
        );
        assert_eq!(answer.status, 201, "{}", answer.text());
        let service = answer.json();
        let address = service["spec"]["clusterIP"].as_str().unwrap();
        self.env("VALIDATING_WEBHOOK_URL", "")
            .env("VALIDATING_WEBHOOK_SERVICE_NAME", "hooks")
            .env("VALIDATING_WEBHOOK_LISTEN_ADDRESS", address)
            .env("VALIDATING_WEBHOOK_LISTEN_PORT", "443")
    }

    pub(crate) fn env(mut self, key: &str, value: &str) -> Self {
        self.env = self.env.clone().env(key, value);
        self
    }

    pub(crate) fn flag(mut self, flag: &str) -> Self {
        self.env = self.env.clone().flag(flag);
        self
    }

    /// Starts the operator and waits until the API server calls it.
    #[track_caller]
    pub(crate) fn start(&self) -> Operator {
        let operator = self.env.start();
        operator.wait_ready();
        self.wait_effective();
        operator
    }

    /// Waits until the API server calls both configurations.
    #[track_caller]
    pub(crate) fn wait_effective(&self) {
        for kind in Kind::BOTH {
            let mut object = config_map("marker", &json!({}));
            object["metadata"]["labels"] = json!({ &self.label: kind.marker() });
            wait_for("the registration to be effective", SOON, || {
                let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
                self.api.create(path, &object).text().contains("marker\"")
            });
        }
    }

    /// Where the operator serves webhooks.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.env.address(), WEBHOOK_PORT)
    }

    /// A connection to the operator as the API server makes it.
    #[track_caller]
    pub(crate) fn connect(&self) -> Connection {
        self.try_connect(None).unwrap()
    }

    /// The same with a client certificate, which may be refused.
    pub(crate) fn try_connect(&self, client: Option<&Identity>) -> std::io::Result<Connection> {
        let address = self.address();
        Connection::tls(
            address,
            &address.ip().to_string(),
            &self.ca_bundle(),
            client,
        )
    }

    // ---- the registration ----

    /// The API path of the operator's own configuration.
    pub(crate) fn configuration_path(&self, kind: Kind) -> String {
        format!("{}/{}-hooks", kind.path(), self.label)
    }

    /// The operator's own configuration.
    #[track_caller]
    pub(crate) fn configuration(&self, kind: Kind) -> Value {
        self.api.object(&self.configuration_path(kind))
    }

    /// One webhook of the operator's own configurations.
    #[track_caller]
    pub(crate) fn registered(&self, stem: &str) -> Value {
        let name = self.webhook_name(stem);
        Kind::BOTH
            .iter()
            .flat_map(|kind| webhooks(&self.configuration(*kind)))
            .find(|webhook| webhook["name"] == name.as_str())
            .unwrap_or_else(|| panic!("{name} is not registered"))
    }

    /// The path under which the API server calls a webhook.
    #[track_caller]
    pub(crate) fn path(&self, stem: &str) -> String {
        let client_config = &self.registered(stem)["clientConfig"];
        let url = client_config["url"].as_str().unwrap();
        let at = url.find("/hooks/").unwrap();
        url[at..].to_owned()
    }

    /// The CAs that the API server was told to trust.
    #[track_caller]
    pub(crate) fn ca_bundle(&self) -> String {
        let configuration = self.configuration(Kind::Validating);
        let bundle = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
        let pem = STANDARD.decode(bundle.as_str().unwrap()).unwrap();
        String::from_utf8(pem).unwrap()
    }

    /// Registers webhooks by hand; answers the API path of the configuration. It is removed with the stage.
    #[track_caller]
    pub(crate) fn register(
        &self,
        kind: Kind,
        name: &str,
        labels: &Value,
        webhooks: &Value,
    ) -> String {
        let answer = self.try_register(kind, name, labels, webhooks);
        assert_eq!(answer.status, 201, "{}", answer.text());
        format!("{}/{name}-{}", kind.path(), self.label)
    }

    /// The same where it may be refused.
    pub(crate) fn try_register(
        &self,
        kind: Kind,
        name: &str,
        labels: &Value,
        webhooks: &Value,
    ) -> Answer {
        let name = format!("{name}-{}", self.label);
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind.object_kind(),
            "metadata": { "name": name, "labels": labels }, "webhooks": webhooks,
        });
        let path = format!("{}/{name}", kind.path());
        self.registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(path);
        self.api.create(&kind.path(), &object)
    }

    // ---- objects ----

    /// The API path of ConfigMaps of the stage.
    pub(crate) fn config_maps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.label)
    }

    /// Asks the API server to create a ConfigMap.
    #[track_caller]
    pub(crate) fn create(&self, name: &str, data: &Value) -> Answer {
        self.api
            .create(&self.config_maps(), &config_map(name, data))
    }

    /// Creates a ConfigMap by kubectl, as a user sees it.
    pub(crate) fn kubectl_create(&self, name: &str) -> Output {
        self.namespace.kubectl(&["create", "configmap", name])
    }

    fn remove_configurations(&self) {
        let by_hand = std::mem::take(
            &mut *self
                .registered
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        let own = Kind::BOTH.map(|kind| self.configuration_path(kind));
        for path in own.into_iter().chain(by_hand) {
            // It may never have been made, and the control plane may be down.
            let _ = self.api.try_ask("DELETE", &path, "application/json", b"");
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.remove_configurations();
    }
}

/// A hook: what it prints for `--config`, and what it does, in sh.
pub(crate) fn script(config: &Value, body: &str) -> String {
    format!(
        "#!/bin/sh\nif [ \"$1\" = --config ]; then\ncat <<'CONFIG'\n{config}\nCONFIG\nexit 0\nfi\n{body}\n"
    )
}

/// What a hook does that answers this.
pub(crate) fn answers(answer: &Value) -> String {
    format!("cat >\"$VALIDATING_RESPONSE_PATH\" <<'ANSWER'\n{answer}\nANSWER\n")
}

pub(crate) fn config_map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

/// An AdmissionReview about the creation of an object.
pub(crate) fn review(uid: &str, object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid, "operation": "CREATE",
            "kind": { "group": "", "version": "v1", "kind": "ConfigMap" },
            "resource": { "group": "", "version": "v1", "resource": "configmaps" },
            "name": object["metadata"]["name"], "namespace": "default",
            "userInfo": { "username": "test" }, "object": object, "oldObject": null,
            "dryRun": false, "options": null,
        },
    })
}

/// The webhooks of a configuration object.
pub(crate) fn webhooks(configuration: &Value) -> Vec<Value> {
    configuration["webhooks"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// The message of a Status that the API server answered.
#[track_caller]
pub(crate) fn message(answer: &Answer) -> String {
    answer.json()["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
