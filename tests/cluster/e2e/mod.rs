//! The 23 cases of Kubernetes' own admission webhook tests (`[sig-api-machinery] AdmissionWebhook`), with `hooks/agnhost` in place
//! of the webhook server of those tests. The numbers in comments are those of the list that the cases were taken from.
//!
//! One operator serves them all. What keeps the cases apart is the label of their namespaces, whose value chooses a hook. Where a
//! case edits a webhook configuration, it edits one written by hand that leads to the same operator: its own the operator restores.

/// The configuration objects themselves.
mod configurations;
/// What mutating hooks make of objects.
mod mutations;
/// What validating hooks refuse.
mod policies;

use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::support::stage::{Kind, config_map, webhooks};
use crate::support::{Answer, Operator, SOON, Stage, repository, wait_for};

/// The operator with all hooks of `hooks/agnhost`. It ends with the test process.
struct Agnhost {
    stage: Stage<'static>,
    operator: Operator,
}

fn agnhost() -> &'static Agnhost {
    static AGNHOST: OnceLock<Agnhost> = OnceLock::new();
    AGNHOST.get_or_init(|| {
        let stage = Stage::new("agnhost");
        let hooks = repository().join("hooks/agnhost");
        let (selector, group) = (
            format!("{}-hook", stage.label),
            format!("{}.example.com", stage.label),
        );
        let stage = stage
            .env("AGNHOST_SELECTOR_LABEL", &selector)
            .env("AGNHOST_CUSTOM_GROUP", &group)
            .env("SHELL_OPERATOR_HOOKS_DIR", &hooks.to_string_lossy());
        let operator = stage.env.start();
        operator.wait_ready();
        let agnhost = Agnhost { stage, operator };
        agnhost.wait_effective();
        agnhost
    })
}

impl Agnhost {
    /// The label that chooses a hook.
    fn selector(&self) -> String {
        format!("{}-hook", self.stage.label)
    }

    fn group(&self) -> String {
        format!("{}.example.com", self.stage.label)
    }

    /// Waits until the API server calls both configurations: one hook denies and one adds a label.
    fn wait_effective(&self) {
        for (hook, sign) in [("always-deny", "denied"), ("add-label", "added-label")] {
            let namespace = format!("{}-{hook}", self.stage.label);
            self.stage
                .make_namespace(&namespace, &json!({ self.selector(): hook }));
            let path = format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All");
            wait_for("the registration to be effective", SOON, || {
                let answer = self
                    .stage
                    .api
                    .create(&path, &config_map("sign", &json!({})));
                answer.text().contains(sign)
            });
        }
    }

    /// How the API server reaches one webhook of the operator.
    fn client_config(&self, name: &str) -> Value {
        let name = format!("{name}.agnhost.example.com");
        Kind::BOTH
            .iter()
            .flat_map(|kind| webhooks(&self.stage.configuration(*kind)))
            .find(|webhook| webhook["name"] == name.as_str())
            .unwrap_or_else(|| panic!("{name} is not registered"))["clientConfig"]
            .clone()
    }
}

/// One case: a namespace of its own, for which the operator runs one hook.
struct Case {
    stage: Stage<'static>,
    agnhost: &'static Agnhost,
}

impl Case {
    /// A case whose namespace chooses a hook; `true` chooses all that do not hinder each other, the empty text none.
    fn new(hook: &str) -> Case {
        let agnhost = agnhost();
        let stage = if hook.is_empty() {
            Stage::new("case")
        } else {
            Stage::labelled("case", &agnhost.selector(), hook)
        };
        Case { stage, agnhost }
    }

    /// The path of a kind of the core group.
    fn path(&self, plural: &str) -> String {
        format!("/api/v1/namespaces/{}/{plural}", self.stage.label)
    }

    #[track_caller]
    fn create(&self, plural: &str, object: &Value) -> Answer {
        self.stage.api.create(&self.path(plural), object)
    }

    /// Makes a CRD in the group that the hooks are asked about and answers the path of its objects, per version, when it works.
    #[track_caller]
    fn custom_resource(&self, versions: &Value) -> (String, String) {
        // Letters only: the name of the stage is unique and may stand in a plural.
        let plural = format!("{}s", self.stage.label);
        let group = self.agnhost.group();
        let crd = format!("{plural}.{group}");
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let kind = self.stage.label.replace('-', "");
        let answer = self.stage.api.create(
            crds,
            &json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": { "name": crd },
                "spec": {
                    "group": group, "scope": "Namespaced", "versions": versions,
                    "names": { "plural": plural, "singular": self.stage.label, "kind": kind },
                },
            }),
        );
        assert_eq!(answer.status, 201, "{}", answer.text());
        let namespace = &self.stage.label;
        wait_for("the CRD to be served", SOON, || {
            let path = format!("/apis/{group}/v1/namespaces/{namespace}/{plural}");
            self.stage.api.get(&path).status == 200
        });
        (
            format!("/apis/{group}/VERSION/namespaces/{namespace}/{plural}"),
            format!("{crds}/{crd}"),
        )
    }

    /// An object of that CRD.
    fn custom_object(&self, name: &str, data: &Value) -> Value {
        json!({
            "apiVersion": format!("{}/v1", self.agnhost.group()),
            "kind": self.stage.label.replace('-', ""),
            "metadata": { "name": name }, "data": data,
        })
    }

    /// A webhook written by hand, for ConfigMaps of this namespace, that leads to one of the operator's.
    fn webhook(&self, name: &str, leads_to: &str, more: &Value) -> Value {
        let mut webhook = json!({
            "name": format!("{name}.{}.example.com", self.stage.label),
            "clientConfig": self.agnhost.client_config(leads_to),
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"],
                "resources": ["configmaps"], "operations": ["CREATE"],
            }],
            "namespaceSelector": { "matchLabels": { &self.stage.label: "true" } },
            "sideEffects": "None", "admissionReviewVersions": ["v1", "v1beta1"],
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            webhook[key] = value.clone();
        }
        webhook
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.agnhost.operator.log_lines();
            for line in from.iter().filter(|line| line.contains(&self.stage.label)) {
                eprintln!("{}", line.text);
            }
        }
    }
}

/// A pod with one container.
fn pod(name: &str, labels: &Value, container: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": labels },
        "spec": { "containers": [{ "name": container, "image": "pause" }] },
    })
}

#[track_caller]
fn denied(answer: &Answer, text: &str) {
    let message = crate::support::stage::message(answer);
    assert!(
        answer.status >= 400 && message.contains("denied the request") && message.contains(text),
        "{}",
        answer.text()
    );
}

#[track_caller]
fn accepted(answer: &Answer) {
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
}

/// A version of a CRD that takes any content.
fn any_version(name: &str, storage: bool) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": { "openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        } },
    })
}
