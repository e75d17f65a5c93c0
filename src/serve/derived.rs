//! HX-17…HX-21: reviews that come from `kubernetes` bindings with `webhookValidation`. Their rules are found by discovery, so that a
//! binding and its rule cannot drift, and all of them are asked on one path and told apart by the kind of the object.
//!
//! The webhook thread finds out what the kinds are and registers them; connection threads look up whom to ask. The one lock guards
//! what was found out. Nobody is asked, and nothing allowed, for a kind that is not known yet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use log::info;
use serde_json::{Value, json};

use super::register::{Announcement, client_config};
use crate::hook::Registry;
use crate::hook::binding::{KubernetesBinding, Namespaces};
use crate::hook::selector::LabelSelector;
use crate::kube::{Error, Resource};
use crate::review::{Paces, Question, Webhook};

/// The label that the API server itself gives every namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Finds a kind by any of its names and perhaps its version.
pub(crate) type Discover<'a> = &'a dyn Fn(&str, Option<&str>) -> Result<Resource, Error>;

/// The reviews of all bindings that ask for them.
pub(crate) struct Validators {
    path: String,
    validators: Vec<Validator>,
    /// What the kinds turned out to be, in the order of the validators; fewer while some are not known yet.
    resources: Mutex<Vec<Resource>>,
}

struct Validator {
    hook: String,
    binding: KubernetesBinding,
    operations: Vec<String>,
    webhook: Arc<Webhook>,
}

/// Whom to ask about a request on the shared path.
pub(crate) enum Asked {
    /// HX-53: no hook wants to validate anything.
    NoValidators,
    /// What the kinds are is not known yet.
    NotYet,
    /// All of them, in this order; none for a kind that nobody validates (HX-16).
    These(Vec<Arc<Webhook>>),
}

impl Validators {
    pub(crate) fn new(registry: &Registry, path: &str, paces: &Paces) -> Validators {
        let mut validators = Vec::new();
        for (index, hook) in registry.hooks.iter().enumerate() {
            for binding in &hook.config.kubernetes {
                let (Some(wanted), Some(review)) = (&binding.webhook_validation, binding.review())
                else {
                    continue;
                };
                validators.push(Validator {
                    hook: hook.name.clone(),
                    binding: binding.clone(),
                    operations: wanted.operations.clone(),
                    webhook: Arc::new(Webhook::of_watched(index, hook, review, paces)),
                });
            }
        }
        Validators {
            path: path.to_owned(),
            validators,
            resources: Mutex::default(),
        }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn asked(&self, question: &Question) -> Asked {
        if self.validators.is_empty() {
            return Asked::NoValidators;
        }
        let resources = self.known();
        if resources.len() < self.validators.len() {
            return Asked::NotYet;
        }
        let kind = &question.kind;
        let fits = |(validator, resource): &(&Validator, &Resource)| {
            let same = resource.group == kind.group
                && resource.version == kind.version
                && resource.kind == kind.kind;
            same && validator.operations.contains(&question.operation)
        };
        let fitting = self.validators.iter().zip(resources.iter()).filter(fits);
        Asked::These(
            fitting
                .map(|(validator, _)| Arc::clone(&validator.webhook))
                .collect(),
        )
    }

    /// Finds out what the kinds are; once they are known, they stay. The error names the first that is not.
    pub(crate) fn resolve(&self, discover: Discover<'_>) -> Result<(), String> {
        let known = self.known().len();
        for validator in self.validators.iter().skip(known) {
            let binding = &validator.binding;
            let found = discover(&binding.kind, binding.api_version.as_deref());
            let resource = found.map_err(|error| {
                format!(
                    "webhookValidation of binding '{}' of hook '{}': {error}",
                    binding.name, validator.hook
                )
            })?;
            info!(
                hook = validator.hook.as_str(), binding = binding.name.as_str(), operations = validator.operations.join(",");
                "validates {}", resource.gvk()
            );
            self.known().push(resource);
        }
        Ok(())
    }

    /// The entries for the webhook configuration, one for each kind in one version: the API server converts objects for each.
    pub(crate) fn entries(&self, announcement: &Announcement, ca_bundle: &str) -> Vec<Value> {
        let resources = self.known();
        let mut kinds: BTreeMap<String, (&Resource, Vec<&Validator>)> = BTreeMap::new();
        for (validator, resource) in self.validators.iter().zip(resources.iter()) {
            let group = if resource.group.is_empty() {
                "core"
            } else {
                &resource.group
            };
            let name = format!("validate.{}.{}.{group}", resource.plural, resource.version);
            let kind = kinds.entry(name).or_insert((resource, Vec::new()));
            kind.1.push(validator);
        }
        let entry = |(name, (resource, validators)): (&String, &(&Resource, Vec<&Validator>))| {
            let config = client_config(&announcement.address, &self.path, ca_bundle);
            self::entry(name, resource, validators, announcement, &config)
        };
        kinds.iter().map(entry).collect()
    }

    fn known(&self) -> MutexGuard<'_, Vec<Resource>> {
        self.resources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One entry for all bindings of a kind: it asks whenever one of them wants to be asked, waits as long as the most patient, and
/// refuses when it cannot ask unless all of them let pass.
fn entry(
    name: &str,
    resource: &Resource,
    validators: &[&Validator],
    announcement: &Announcement,
    client_config: &Value,
) -> Value {
    let mut operations: Vec<&String> = Vec::new();
    for operation in validators.iter().flat_map(|one| &one.operations) {
        if !operations.contains(&operation) {
            operations.push(operation);
        }
    }
    let policy = |one: &&Validator| {
        let policy = one.webhook.binding.failure_policy;
        policy.map_or(announcement.failure_policy, |policy| policy.as_str())
    };
    let may_pass = validators.iter().all(|one| policy(one) == "Ignore");
    let timeouts = validators
        .iter()
        .map(|one| one.webhook.binding.timeout_seconds);
    json!({
        "name": name,
        "clientConfig": client_config,
        "rules": [{
            "apiGroups": [resource.group],
            "apiVersions": [resource.version],
            "resources": [resource.plural],
            "operations": operations,
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        }],
        "failurePolicy": if may_pass { "Ignore" } else { "Fail" },
        "matchPolicy": "Equivalent",
        "namespaceSelector": shared(validators, |binding| namespace_selector(&binding.namespaces)),
        "objectSelector": shared(validators, |binding| {
            binding.labels.as_ref().map_or_else(|| json!({}), LabelSelector::to_json)
        }),
        "sideEffects": "None",
        "timeoutSeconds": timeouts.max().unwrap_or(10),
        "admissionReviewVersions": ["v1", "v1beta1"],
    })
}

/// A selector that all bindings have, or none: the API server cannot tell them apart on one path.
fn shared(validators: &[&Validator], selector: impl Fn(&KubernetesBinding) -> Value) -> Value {
    let mut selectors = validators.iter().map(|one| selector(&one.binding));
    let Some(first) = selectors.next() else {
        return json!({});
    };
    if selectors.all(|other| other == first) {
        first
    } else {
        json!({})
    }
}

fn namespace_selector(namespaces: &Namespaces) -> Value {
    match namespaces {
        Namespaces::All => json!({}),
        Namespaces::Names(names) if names.iter().any(String::is_empty) => json!({}),
        Namespaces::Names(names) => json!({
            "matchExpressions": [{ "key": NAMESPACE_NAME, "operator": "In", "values": names }],
        }),
        Namespaces::Labels(selector) => selector.to_json(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::webhook::Address;

    fn validators(hooks: &[(&str, &str)]) -> Validators {
        let registry = Registry::of(hooks);
        Validators::new(&registry, "/validate", &Paces::new(&registry))
    }

    fn resource(group: &str, version: &str, plural: &str, kind: &str) -> Resource {
        Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced: true,
            ..Resource::default()
        }
    }

    fn discover(name: &str, _version: Option<&str>) -> Result<Resource, Error> {
        Ok(match name {
            "ingresses" | "Ingress" => resource("networking.k8s.io", "v1", "ingresses", "Ingress"),
            _ => resource("", "v1", "services", "Service"),
        })
    }

    fn question(group: &str, kind: &str, operation: &str) -> Question {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": { "uid": "u", "operation": operation, "kind": { "group": group, "version": "v1", "kind": kind } },
        });
        Question::parse(review.to_string().into_bytes()).unwrap()
    }

    /// The hooks that would be asked.
    fn hooks(validators: &Validators, question: &Question) -> Vec<String> {
        match validators.asked(question) {
            Asked::These(webhooks) => webhooks
                .iter()
                .map(|webhook| webhook.target.hook.clone())
                .collect(),
            Asked::NoValidators => vec!["nobody".to_owned()],
            Asked::NotYet => vec!["not yet".to_owned()],
        }
    }

    const INGRESSES: &str = "configVersion: v1\nkubernetes:\n- name: ingresses\n  kind: ingresses\n  webhookValidation: true\n- name: services\n  kind: Service\n";
    const DELETED: &str = "configVersion: v1\nkubernetes:\n- name: ingresses\n  kind: Ingress\n  namespace: {nameSelector: {matchNames: [a]}}\n  webhookValidation: {operations: [DELETE], timeoutSeconds: 20, failurePolicy: Ignore}\n";

    #[test]
    fn who_opted_in_is_asked_about_its_kind_and_operations_hx_16_to_hx_21() {
        let validators = validators(&[("a.sh", INGRESSES), ("b.sh", DELETED)]);
        let ask = |group, kind, operation| hooks(&validators, &question(group, kind, operation));
        assert_eq!(ask("networking.k8s.io", "Ingress", "CREATE"), ["not yet"]);
        validators.resolve(&discover).unwrap();
        assert_eq!(ask("networking.k8s.io", "Ingress", "CREATE"), ["a.sh"]);
        assert_eq!(ask("networking.k8s.io", "Ingress", "UPDATE"), ["a.sh"]);
        assert_eq!(ask("networking.k8s.io", "Ingress", "DELETE"), ["b.sh"]);
        // HX-21: watched, but not opted in. HX-16: nobody validates it.
        assert_eq!(ask("", "Service", "CREATE"), [""; 0]);
        assert_eq!(ask("other.example.com", "Ingress", "CREATE"), [""; 0]);
    }

    #[test]
    fn without_any_validator_nobody_is_asked_hx_53() {
        let validators = validators(&[("a.sh", "configVersion: v1\nonStartup: 1\n")]);
        assert_eq!(
            hooks(&validators, &question("", "Pod", "CREATE")),
            ["nobody"]
        );
    }

    #[test]
    fn a_kind_that_is_not_known_is_not_allowed_in_silence() {
        let validators = validators(&[("a.sh", INGRESSES)]);
        let unknown = |_: &str, _: Option<&str>| Err(Error::Stopped);
        let error = validators.resolve(&unknown).unwrap_err();
        assert!(
            error.starts_with("webhookValidation of binding 'ingresses' of hook 'a.sh': "),
            "{error}"
        );
        let asked = question("networking.k8s.io", "Ingress", "CREATE");
        assert_eq!(hooks(&validators, &asked), ["not yet"]);
    }

    #[test]
    fn bindings_of_one_kind_share_an_entry_hx_19() {
        let validators = validators(&[("a.sh", INGRESSES), ("b.sh", DELETED)]);
        validators.resolve(&discover).unwrap();
        let announcement = Announcement {
            configuration_name: "x".to_owned(),
            address: Address::Url("https://h:1".to_owned()),
            failure_policy: "Fail",
            validation_path: "/validate".to_owned(),
        };
        let entries = validators.entries(&announcement, "ca");
        let [entry] = entries.as_slice() else {
            panic!("{entries:?}")
        };
        assert_eq!(entry["name"], "validate.ingresses.v1.networking.k8s.io");
        assert_eq!(entry["clientConfig"]["url"], "https://h:1/validate");
        assert_eq!(
            entry["rules"],
            json!([{ "apiGroups": ["networking.k8s.io"], "apiVersions": ["v1"], "resources": ["ingresses"],
                     "operations": ["CREATE", "UPDATE", "DELETE"], "scope": "Namespaced" }])
        );
        assert_eq!(
            (&entry["timeoutSeconds"], &entry["failurePolicy"]),
            (&json!(20), &json!("Fail"))
        );
        // One of them wants all namespaces.
        assert_eq!(entry["namespaceSelector"], json!({}));
        let alone = self::validators(&[("b.sh", DELETED)]);
        alone.resolve(&discover).unwrap();
        let entries = alone.entries(&announcement, "ca");
        assert_eq!(entries[0]["failurePolicy"], "Ignore");
        assert_eq!(
            entries[0]["namespaceSelector"]["matchExpressions"][0],
            json!({ "key": NAMESPACE_NAME, "operator": "In", "values": ["a"] })
        );
    }
}
