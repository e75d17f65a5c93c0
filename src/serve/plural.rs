//! SO-19: names under `resources` that the API server would never match. Runs on the webhook thread; owns what was found out.
//!
//! A rule matches lower-case plurals only, and a Kind or a short name written there makes a webhook that silently never fires, as
//! some of the original's own examples do. Such a name is resolved through discovery, registered as its plural, and warned
//! about; a name that discovery does not know is warned about with the nearest one it does know.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use log::warn;

use crate::hook::Registry;
use crate::kube::{Client, Discovery, Error, Resource};

/// How often the API server is asked again for names that it did not know: a CRD may come later.
const PACE: Duration = Duration::from_secs(30);

/// What is registered for names as hooks wrote them.
pub(crate) struct Plurals {
    discovery: Discovery,
    /// Names that are not plurals, and the plural to register.
    replaced: BTreeMap<String, String>,
    /// Names that need no further look.
    settled: BTreeSet<String>,
    warned: BTreeSet<String>,
}

impl Plurals {
    pub(crate) fn new(client: Client) -> Plurals {
        Plurals {
            discovery: Discovery::new(client, PACE),
            replaced: BTreeMap::new(),
            settled: BTreeSet::new(),
            warned: BTreeSet::new(),
        }
    }

    /// What to register for a name, with its subresource.
    pub(crate) fn of(&self, written: &str) -> String {
        let (name, subresource) = split(written);
        match (self.replaced.get(name), subresource) {
            (None, _) => written.to_owned(),
            (Some(plural), None) => plural.clone(),
            (Some(plural), Some(subresource)) => format!("{plural}/{subresource}"),
        }
    }

    /// What a kind is, by any of its names.
    pub(crate) fn resolve(&self, name: &str, api_version: Option<&str>) -> Result<Resource, Error> {
        self.discovery.resolve(name, api_version)
    }

    /// Looks at every name that is not settled yet. Discovery that fails changes nothing: names are then taken as written.
    pub(crate) fn learn(&mut self, registry: &Registry) {
        for route in &registry.routes {
            let Some((hook, binding)) = registry.admission(route) else {
                continue;
            };
            for written in binding.rules.iter().flat_map(|rule| &rule.resources) {
                let (name, _) = split(written);
                if name != "*" && !self.settled.contains(name) {
                    self.look(name, &hook.name, &binding.name);
                }
            }
        }
    }

    fn look(&mut self, name: &str, hook: &str, binding: &str) {
        match self.discovery.resolve(name, None) {
            Ok(resource) => {
                self.settled.insert(name.to_owned());
                if resource.plural != name {
                    warn!(
                        hook = hook, binding = binding;
                        "'{name}' under resources is registered as '{0}': the API server matches plurals only, write '{0}'", resource.plural
                    );
                    self.replaced.insert(name.to_owned(), resource.plural);
                }
            }
            Err(Error::UnknownResource(unknown)) => {
                if self.warned.insert(name.to_owned()) {
                    warn!(
                        hook = hook, binding = binding;
                        "the API server knows no resource '{name}', so this webhook is not called for it{}",
                        unknown.hint.map(|hint| format!("; {hint}")).unwrap_or_default()
                    );
                }
            }
            // It is asked again in the next round.
            Err(_) => {}
        }
    }
}

fn split(written: &str) -> (&str, Option<&str>) {
    match written.split_once('/') {
        Some((name, subresource)) => (name, Some(subresource)),
        None => (written, None),
    }
}
