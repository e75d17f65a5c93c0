//! What we keep in CustomResourceDefinitions: `spec.conversion`, and nothing else of them. Runs on the conversion webhook thread.
//!
//! A CRD that is not there yet is waited for without holding up anything: it is looked for every second, and what else there is
//! to do goes on. It owns which CRDs are missed and which do not fit the rules of hooks, so that each is complained about once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{info, warn};
use serde_json::{Value, json};

use super::conversion::path;
use super::register::{Address, NotRegistered, Registration, client_config, write};
use crate::hook::Registry;
use crate::hook::conversion::{self, Chains};
use crate::kube::{Client, Error, Method, Request, Resource};

/// LIMIT: missing CRDs that are looked for at once. One look a second, and the client makes five calls a second by default.
const LOOKED_FOR: usize = 3;

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
    wanted: BTreeMap<String, Wanted>,
    missing: BTreeSet<String>,
    /// The missing CRD that was looked for last; the next in line comes first then.
    looked_for: String,
    /// For those who say at the end what stays.
    has_any: Arc<AtomicBool>,
}

/// What hooks say about a CRD.
struct Wanted {
    /// The first hook that names it.
    hook: String,
    chains: Chains,
    /// What does not fit, as it was said.
    misfits: Vec<String>,
}

impl Definitions {
    pub(crate) fn new(
        client: Client,
        registry: &Registry,
        address: Address,
        has_any: Arc<AtomicBool>,
    ) -> Definitions {
        let first_hook = |chains: &Chains| {
            let step = chains.steps.first()?;
            Some(registry.hooks.get(step.hook)?.name.clone())
        };
        let wanted = conversion::chains(&registry.hooks)
            .into_iter()
            .map(|(name, chains)| {
                let hook = first_hook(&chains).unwrap_or_default();
                let misfits = Vec::new();
                let wanted = Wanted {
                    hook,
                    chains,
                    misfits,
                };
                (name, wanted)
            })
            .collect();
        Definitions {
            client,
            address,
            wanted,
            missing: BTreeSet::new(),
            looked_for: String::new(),
            has_any,
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
        self.warn_of_misfits(name, &found);
        let wanted = json!({
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": client_config(&self.address, &path(name), ca_bundle),
                "conversionReviewVersions": ["v1", "v1beta1"],
            },
        });
        if found.pointer("/spec/conversion") == Some(&wanted) {
            self.has_any.store(true, Ordering::Relaxed);
            return Ok(());
        }
        match patch(&self.client, name, &wanted) {
            // The original asks for `get` and `update` only.
            Err(error) if error.is_forbidden() => replace(&self.client, name, found, wanted)?,
            done => done?,
        }
        self.has_any.store(true, Ordering::Relaxed);
        info!(hook = hook, crd = name; "conversion of the CustomResourceDefinition brought up to date");
        Ok(())
    }
}

impl Definitions {
    /// Rules that the CRD has no use for, and versions that no rule leads to: nothing else tells before somebody's request fails.
    fn warn_of_misfits(&mut self, name: &str, crd: &Value) {
        let Some(wanted) = self.wanted.get_mut(name) else {
            return;
        };
        let versions: Vec<&Value> = crd
            .pointer("/spec/versions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .collect();
        let named = |flag: &str| -> Vec<&str> {
            let has = |version: &&&Value| version.get(flag) == Some(&Value::Bool(true));
            let chosen = versions.iter().filter(has);
            chosen
                .filter_map(|version| version.get("name")?.as_str())
                .collect()
        };
        let stored = named("storage");
        let Some(stored) = stored.first() else {
            return;
        };
        let misfits = wanted.chains.misfits(&named("served"), stored);
        for misfit in misfits.iter().filter(|it| !wanted.misfits.contains(it)) {
            warn!(hook = wanted.hook.as_str(), crd = name; "{name}: {misfit}");
        }
        wanted.misfits = misfits;
    }
}

impl Registration for Definitions {
    /// One CRD that cannot be changed does not keep the others from being changed.
    fn renew(&mut self, ca_bundle: &str) -> Result<(), NotRegistered> {
        let mut result = Ok(());
        let names = self.wanted.iter();
        let names: Vec<(String, String)> = names
            .map(|(name, wanted)| (name.clone(), wanted.hook.clone()))
            .collect();
        for (name, hook) in names {
            if let Err(error) = self.renew_one(&name, &hook, ca_bundle) {
                result = result.and(Err(NotRegistered {
                    reason: format!("cannot set the conversion of {name}: {error}"),
                    at_least: error.retry_after(),
                }));
            }
        }
        result
    }

    /// Looks for missing CRDs, a few at once and each in its turn.
    fn has_appeared(&mut self) -> bool {
        let later = self.missing.iter().filter(|&name| *name > self.looked_for);
        let sooner = self.missing.iter().filter(|&name| *name <= self.looked_for);
        let chosen: Vec<String> = later.chain(sooner).take(LOOKED_FOR).cloned().collect();
        if let Some(last) = chosen.last() {
            self.looked_for.clone_from(last);
        }
        let is_there =
            |name: &String| path_of(name).is_ok_and(|path| self.client.get(&path).is_ok());
        chosen.iter().any(is_there)
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
