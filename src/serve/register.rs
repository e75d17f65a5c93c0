//! What we keep in the cluster: one ValidatingWebhookConfiguration and one MutatingWebhookConfiguration, and the calls that make
//! them so; and what any registration is for the webhook thread, which runs all of this. Owns what it found out about names.
//!
//! Every field that the API server would fill in is written out, so that "is it still as we want it?" is plain equality.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use log::{debug, info};
use serde_json::{Value, json};

use super::derived::Validators;
use super::plural::Plurals;
use crate::hook::binding::{AdmissionBinding, AdmissionKind, Rule};
use crate::hook::selector::LabelSelector;
use crate::hook::{Registry, Route};
use crate::kube::{Client, Error, Method, Request};
use crate::review::Paces;

/// How the API server reaches us.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// Through a Service.
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
    /// Directly; no slash at the end.
    Url(String),
}

/// What every entry of the configurations needs besides its binding.
#[derive(Clone, Debug)]
pub(crate) struct Announcement {
    /// The objects are called `<configuration_name>-hooks`.
    pub(crate) configuration_name: String,
    pub(crate) address: Address,
    /// For bindings that do not say.
    pub(crate) failure_policy: &'static str,
    /// The path of reviews that come from kubernetes bindings.
    pub(crate) validation_path: String,
}

impl Address {
    /// The name that callers check our certificate against.
    pub(crate) fn server_name(&self) -> String {
        match self {
            Address::Service {
                namespace, name, ..
            } => format!("{name}.{namespace}.svc"),
            Address::Url(url) => host(url).to_owned(),
        }
    }

    /// Every name that a certificate of ours should bear.
    pub(crate) fn certificate_names(&self) -> Vec<String> {
        match self {
            Address::Service {
                namespace, name, ..
            } => ["", ".cluster.local"]
                .iter()
                .map(|domain| format!("{name}.{namespace}.svc{domain}"))
                .collect(),
            Address::Url(url) => vec![host(url).to_owned()],
        }
    }

    /// Whether a `clientConfig` leads to this operator, under whatever path.
    fn leads_here(&self, client_config: Option<&Value>) -> bool {
        let text = |pointer: &str| client_config?.pointer(pointer)?.as_str();
        match self {
            Address::Service {
                namespace, name, ..
            } => {
                text("/service/namespace") == Some(namespace) && text("/service/name") == Some(name)
            }
            Address::Url(url) => text("/url")
                .and_then(|found| found.strip_prefix(url.as_str()))
                .is_some_and(|path| path.starts_with('/')),
        }
    }
}

/// The host of a URL, without port and brackets.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// What is kept in the cluster so that the API server calls us. Lives on a webhook thread.
pub(crate) trait Registration: Send {
    /// Makes it so for these CAs, whatever it was before.
    fn renew(&mut self, ca_bundle: &str) -> Result<(), NotRegistered>;
}

/// Why the API server does not call us yet.
#[derive(Debug)]
pub(crate) struct NotRegistered {
    pub(crate) reason: String,
    /// The API server asks for this pause.
    pub(crate) at_least: Option<Duration>,
}

/// The webhook configurations, as the registry's routes want them.
pub(crate) struct Configurations {
    client: Client,
    registry: Arc<Registry>,
    announcement: Announcement,
    plurals: Plurals,
    validators: Arc<Validators>,
    /// What hooks of earlier starts had registered was looked at. At most one kind is without hooks, or nothing would be
    /// registered.
    tidied: bool,
}

impl Configurations {
    pub(crate) fn new(
        client: Client,
        registry: &Arc<Registry>,
        announcement: Announcement,
        paces: &Paces,
    ) -> Self {
        let path = &announcement.validation_path;
        Configurations {
            plurals: Plurals::new(client.clone()),
            client,
            registry: Arc::clone(registry),
            validators: Arc::new(Validators::new(registry, path, paces)),
            announcement,
            tidied: false,
        }
    }

    /// What is behind the path that kubernetes bindings share.
    pub(crate) fn validators(&self) -> Arc<Validators> {
        Arc::clone(&self.validators)
    }

    /// Hooks of this kind may have been there at an earlier start. It is looked at once: nobody else registers our address. Rights
    /// for a kind without hooks are not demanded, so failing is no failure.
    fn retire(&mut self, kind: AdmissionKind) {
        if self.tidied {
            return;
        }
        let name = &self.announcement.configuration_name;
        match retire(&self.client, kind, &self.announcement) {
            Ok(true) => {
                info!(configurationName = name.as_str(), kind = kind.as_str(); "webhook configuration emptied: no hook of its kind is left");
            }
            Ok(false) => {}
            Err(error) if error.is_forbidden() => {}
            Err(error) => {
                debug!(configurationName = name.as_str(), kind = kind.as_str(); "cannot look for webhooks of earlier hooks: {error}");
                return;
            }
        }
        self.tidied = true;
    }

    fn ensure(&self, kind: AdmissionKind, webhooks: &Value) -> Result<(), NotRegistered> {
        let done = ensure(&self.client, kind, &self.announcement, webhooks);
        let done = done.map_err(|error| NotRegistered {
            reason: format!(
                "cannot register {} webhooks: {error}",
                kind.as_str().to_lowercase()
            ),
            at_least: error.retry_after(),
        })?;
        let count = webhooks.as_array().map_or(0, Vec::len);
        let name = format!("{}-hooks", self.announcement.configuration_name);
        match done {
            Ensured::AsItWas => {}
            Ensured::Created => {
                info!(configurationName = name.as_str(), kind = kind.as_str(), webhooks = count; "webhook configuration created");
            }
            Ensured::Restored => {
                info!(configurationName = name.as_str(), kind = kind.as_str(), webhooks = count; "webhook configuration brought up to date");
            }
        }
        Ok(())
    }
}

impl Registration for Configurations {
    fn renew(&mut self, ca_bundle: &str) -> Result<(), NotRegistered> {
        self.plurals.learn(&self.registry);
        let discover = |name: &str, version: Option<&str>| self.plurals.resolve(name, version);
        let not_resolved = |reason| NotRegistered {
            reason,
            at_least: None,
        };
        self.validators.resolve(&discover).map_err(not_resolved)?;
        for kind in [AdmissionKind::Validating, AdmissionKind::Mutating] {
            let mut webhooks = webhooks(
                &self.registry,
                kind,
                &self.announcement,
                &self.plurals,
                ca_bundle,
            );
            if kind == AdmissionKind::Validating {
                webhooks.extend(self.validators.entries(&self.announcement, ca_bundle));
            }
            if webhooks.is_empty() {
                self.retire(kind);
            } else {
                self.ensure(kind, &Value::Array(webhooks))?;
            }
        }
        Ok(())
    }
}

/// What `ensure` found and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ensured {
    AsItWas,
    Created,
    Restored,
}

/// Makes the configuration object of `kind` what it should be. Needs list, create and update, like the original.
fn ensure(
    client: &Client,
    kind: AdmissionKind,
    announcement: &Announcement,
    webhooks: &Value,
) -> Result<Ensured, Error> {
    let place = Place::new(kind, announcement);
    let Some(found) = place.find(client)? else {
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": place.kind,
            "metadata": {"name": place.name},
            "webhooks": webhooks,
        });
        write(client, Method::Post, &place.base, &object)?;
        return Ok(Ensured::Created);
    };
    if found.get("webhooks") == Some(webhooks) {
        return Ok(Ensured::AsItWas);
    }
    place.replace(client, found, webhooks)?;
    Ok(Ensured::Restored)
}

/// Takes the webhooks out of a configuration of ours for which no hook is left, and says whether there were any. The API server
/// would go on calling for hooks that are gone, and be told to deny. One that leads elsewhere belongs to somebody who uses the
/// same name, and stays.
fn retire(
    client: &Client,
    kind: AdmissionKind,
    announcement: &Announcement,
) -> Result<bool, Error> {
    let place = Place::new(kind, announcement);
    let Some(found) = place.find(client)? else {
        return Ok(false);
    };
    let entries = found.get("webhooks").and_then(Value::as_array);
    let is_ours = entries.is_some_and(|entries| {
        let leads_here = |entry: &Value| announcement.address.leads_here(entry.get("clientConfig"));
        !entries.is_empty() && entries.iter().all(leads_here)
    });
    if is_ours {
        place.replace(client, found, &json!([]))?;
    }
    Ok(is_ours)
}

/// Where a configuration object is in the API.
struct Place {
    base: String,
    name: String,
    kind: &'static str,
}

impl Place {
    fn new(kind: AdmissionKind, announcement: &Announcement) -> Place {
        let (plural, kind) = match kind {
            AdmissionKind::Validating => (
                "validatingwebhookconfigurations",
                "ValidatingWebhookConfiguration",
            ),
            AdmissionKind::Mutating => (
                "mutatingwebhookconfigurations",
                "MutatingWebhookConfiguration",
            ),
        };
        Place {
            base: format!("/apis/admissionregistration.k8s.io/v1/{plural}"),
            name: format!("{}-hooks", announcement.configuration_name),
            kind,
        }
    }

    /// A list with a field selector and not a get: the original's RBAC rules grant list, create and update.
    fn find(&self, client: &Client) -> Result<Option<Value>, Error> {
        let Place { base, name, .. } = self;
        let mut list: Value =
            client.get_json(&format!("{base}?fieldSelector=metadata.name%3D{name}"))?;
        let found = list.get_mut("items").and_then(|items| items.get_mut(0));
        Ok(found.map(Value::take))
    }

    /// Labels, annotations and the resourceVersion stay: somebody else may manage them, and a concurrent change must conflict.
    fn replace(&self, client: &Client, mut object: Value, webhooks: &Value) -> Result<(), Error> {
        if let Some(fields) = object.as_object_mut() {
            fields.insert("webhooks".to_owned(), webhooks.clone());
            fields.insert(
                "apiVersion".to_owned(),
                json!("admissionregistration.k8s.io/v1"),
            );
            fields.insert("kind".to_owned(), json!(self.kind));
        }
        let path = format!("{}/{}", self.base, self.name);
        write(client, Method::Put, &path, &object)
    }
}

/// Creates or replaces an object.
pub(super) fn write(
    client: &Client,
    method: Method,
    path: &str,
    object: &Value,
) -> Result<(), Error> {
    let body = object.to_string();
    let request = Request {
        body: Some(("application/json", body.as_bytes())),
        ..Request::new(method, path)
    };
    client.send(&request).map(drop)
}

/// The `webhooks` list of `kind`, in hook order and then in configuration order (AC-03).
fn webhooks(
    registry: &Registry,
    kind: AdmissionKind,
    announcement: &Announcement,
    plurals: &Plurals,
    ca_bundle: &str,
) -> Vec<Value> {
    let entries = registry
        .routes
        .iter()
        .filter(|route| route.kind == kind)
        .filter_map(|route| {
            let (_, binding) = registry.admission(route)?;
            Some(entry(route, binding, announcement, plurals, ca_bundle))
        });
    entries.collect()
}

fn entry(
    route: &Route,
    binding: &AdmissionBinding,
    announcement: &Announcement,
    plurals: &Plurals,
    ca_bundle: &str,
) -> Value {
    let failure_policy = binding
        .failure_policy
        .map_or(announcement.failure_policy, |policy| policy.as_str());
    let mut entry = json!({
        "name": binding.name,
        "clientConfig": client_config(&announcement.address, &route.path, ca_bundle),
        "rules": binding.rules.iter().map(|written| rule(written, plurals)).collect::<Vec<_>>(),
        "failurePolicy": failure_policy,
        // SO-11: not configurable.
        "matchPolicy": "Equivalent",
        "namespaceSelector": selector(binding.namespace_selector.as_ref()),
        "objectSelector": selector(binding.object_selector.as_ref()),
        "sideEffects": binding.side_effects.as_str(),
        "timeoutSeconds": binding.timeout_seconds,
        "admissionReviewVersions": ["v1", "v1beta1"],
    });
    if let Some(fields) = entry.as_object_mut() {
        if !binding.match_conditions.is_empty() {
            fields.insert(
                "matchConditions".to_owned(),
                Value::Array(binding.match_conditions.clone()),
            );
        }
        // AW-16: the field exists for mutating webhooks only.
        if route.kind == AdmissionKind::Mutating {
            let policy = binding
                .reinvocation_policy
                .map_or("Never", |policy| policy.as_str());
            fields.insert("reinvocationPolicy".to_owned(), json!(policy));
        }
    }
    entry
}

pub(super) fn client_config(address: &Address, path: &str, ca_bundle: &str) -> Value {
    let bundle = BASE64_STANDARD.encode(ca_bundle);
    match address {
        Address::Service {
            namespace,
            name,
            port,
        } => json!({
            "caBundle": bundle,
            "service": {"namespace": namespace, "name": name, "port": port, "path": path},
        }),
        Address::Url(url) => json!({"caBundle": bundle, "url": format!("{url}{path}")}),
    }
}

fn rule(rule: &Rule, plurals: &Plurals) -> Value {
    json!({
        "apiGroups": rule.api_groups,
        "apiVersions": rule.api_versions,
        "resources": rule.resources.iter().map(|name| plurals.of(name)).collect::<Vec<_>>(),
        "operations": rule.operations,
        "scope": rule.scope.as_deref().unwrap_or("*"),
    })
}

/// The API server stores an absent selector as an empty one.
fn selector(selector: Option<&LabelSelector>) -> Value {
    selector.map_or_else(|| json!({}), LabelSelector::to_json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_url_is_what_a_certificate_names() {
        let cases = [
            ("https://hooks.example.com:9680/x", "hooks.example.com"),
            ("https://127.0.0.1:9680", "127.0.0.1"),
            ("https://[::1]:9680/a", "::1"),
            ("https://name", "name"),
        ];
        for (url, expected) in cases {
            assert_eq!(host(url), expected, "{url}");
        }
    }
}
