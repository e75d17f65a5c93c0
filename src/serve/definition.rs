//! What we keep in CustomResourceDefinitions: `spec.conversion`, and nothing else of them. Runs on the conversion webhook thread.
//!
//! A CRD that is not there yet is waited for without holding up anything: it is looked for at every round, and what else there is
//! to do goes on. It owns which CRDs are missed, so that each is complained about once.

use std::collections::{BTreeMap, BTreeSet};

use log::{info, warn};
use serde_json::{Value, json};

use super::conversion::path;
use super::register::{Address, NotRegistered, Registration, client_config, write};
use crate::hook::{Registry, conversion};
use crate::kube::{Client, Error, Method, Request, Resource};

/// The path of one CRD.
fn path_of(name: &str) -> Result<String, Error> {
    let definitions = Resource {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
        ..Resource::default()
    };
    definitions.path(None, Some(name))
}

/// The CRDs that hooks convert.
pub(crate) struct Definitions {
    client: Client,
    address: Address,
    /// Each with the first hook that names it.
    names: BTreeMap<String, String>,
    missing: BTreeSet<String>,
}

impl Definitions {
    pub(crate) fn new(client: Client, registry: &Registry, address: Address) -> Definitions {
        let first_hook = |chains: &conversion::Chains| {
            let step = chains.steps.first()?;
            Some(registry.hooks.get(step.hook)?.name.clone())
        };
        let names = conversion::chains(&registry.hooks)
            .iter()
            .map(|(name, chains)| (name.clone(), first_hook(chains).unwrap_or_default()))
            .collect();
        Definitions {
            client,
            address,
            names,
            missing: BTreeSet::new(),
        }
    }

    /// One CRD. A missing one is no failure: who waits for its objects waits for it as well.
    fn renew_one(&mut self, name: &str, hook: &str, ca_bundle: &str) -> Result<(), Error> {
        let found: Value = match self.client.get_json(&path_of(name)?) {
            Ok(found) => found,
            Err(error) if error.is_not_found() => {
                if self.missing.insert(name.to_owned()) {
                    warn!(hook = hook, crd = name; "there is no CustomResourceDefinition {name} yet; its objects are converted when it is there");
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.missing.remove(name);
        let wanted = json!({
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": client_config(&self.address, &path(name), ca_bundle),
                "conversionReviewVersions": ["v1", "v1beta1"],
            },
        });
        if found.pointer("/spec/conversion") == Some(&wanted) {
            return Ok(());
        }
        match patch(&self.client, name, &wanted) {
            // The original asks for `get` and `update` only.
            Err(error) if error.is_forbidden() => replace(&self.client, name, found, wanted)?,
            done => done?,
        }
        info!(hook = hook, crd = name; "conversion of the CustomResourceDefinition brought up to date");
        Ok(())
    }
}

impl Registration for Definitions {
    /// One CRD that cannot be changed does not keep the others from being changed.
    fn renew(&mut self, ca_bundle: &str) -> Result<(), NotRegistered> {
        let mut result = Ok(());
        for (name, hook) in self.names.clone() {
            if let Err(error) = self.renew_one(&name, &hook, ca_bundle) {
                result = result.and(Err(NotRegistered {
                    reason: format!("cannot set the conversion of {name}: {error}"),
                    at_least: error.retry_after(),
                }));
            }
        }
        result
    }
}

/// Changes these fields and leaves the rest to whoever else writes at this moment.
fn patch(client: &Client, name: &str, wanted: &Value) -> Result<(), Error> {
    let mut conversion = wanted.clone();
    if let Some(target) = conversion
        .pointer_mut("/webhook/clientConfig")
        .and_then(Value::as_object_mut)
    {
        // A patch merges: the other way to reach a webhook must be taken out.
        let other = if target.contains_key("url") {
            "service"
        } else {
            "url"
        };
        target.insert(other.to_owned(), Value::Null);
    }
    let body = json!({"spec": {"conversion": conversion}}).to_string();
    let path = path_of(name)?;
    let request = Request {
        body: Some(("application/merge-patch+json", body.as_bytes())),
        ..Request::new(Method::Patch, &path)
    };
    client.send(&request).map(drop)
}

/// The whole object as it was read, with its `resourceVersion`: a concurrent change makes a conflict and is not lost.
fn replace(client: &Client, name: &str, mut object: Value, wanted: Value) -> Result<(), Error> {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("conversion".to_owned(), wanted);
    }
    write(client, Method::Put, &path_of(name)?, &object)
}
