//! Which kinds there are: those of Kubernetes itself (`table.rs`), and those that CustomResourceDefinitions among the manifests make.
//!
//! Stands in for the discovery of an API server. Made once on the main thread, read by all workers. A kind that is in neither place is
//! not guessed: plural and scope decide whether a webhook is asked, and a wrong guess would be a wrong verdict.

mod table;

use std::cmp::Reverse;

use serde_json::Value;

use crate::kube::{Resource, ResourceMap};

/// What an API server would know.
pub(super) struct Kinds {
    resources: Vec<Resource>,
    map: ResourceMap,
    /// Group and plural of custom resources whose versions differ in nothing but their name.
    plain: Vec<(String, String)>,
}

/// Group, version and kind, as requests name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gvk {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

impl Gvk {
    /// From the two fields of an object.
    pub(super) fn new(api_version: &str, kind: &str) -> Gvk {
        let (group, version) = split_api_version(api_version);
        Gvk {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        }
    }

    pub(super) fn of(resource: &Resource) -> Gvk {
        Gvk {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
        }
    }
}

/// Group, which is empty for the core, and version.
pub(super) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

impl Kinds {
    /// The built-in kinds and those of these CustomResourceDefinitions.
    pub(super) fn new<'a>(definitions: impl Iterator<Item = &'a Value>) -> Kinds {
        let mut resources: Vec<Resource> = table::BUILT_IN.lines().filter_map(built_in).collect();
        let mut plain = Vec::new();
        for definition in definitions {
            let (versions, is_plain) = custom(definition);
            // A definition that is given twice is the later one.
            if let Some(first) = versions.first() {
                let (group, plural) = (first.group.clone(), first.plural.clone());
                resources.retain(|known| known.group != group || known.plural != plural);
                plain.retain(|known| *known != (group.clone(), plural.clone()));
                if is_plain {
                    plain.push((group, plural));
                }
            }
            resources.extend(versions);
        }
        Kinds {
            map: ResourceMap::new(resources.clone(), Vec::new()),
            resources,
            plain,
        }
    }

    /// The resource of objects with this apiVersion and kind.
    pub(super) fn of_object(&self, gvk: &Gvk) -> Option<&Resource> {
        self.resources.iter().find(|resource| {
            resource.kind == gvk.kind
                && resource.version == gvk.version
                && resource.group == gvk.group
        })
    }

    /// The resource of this name in an AdmissionReview.
    pub(super) fn named(&self, group: &str, version: &str, plural: &str) -> Option<&Resource> {
        self.resources.iter().find(|resource| {
            resource.plural == plural && resource.version == version && resource.group == group
        })
    }

    /// By kind, plural, singular or short name, as hooks write it.
    pub(super) fn lookup(&self, name: &str, api_version: Option<&str>) -> Option<&Resource> {
        self.map.lookup(name, api_version).ok()
    }

    /// What the API server takes for the same resource in another version or group, the resource itself left out.
    pub(super) fn equivalents<'a>(
        &'a self,
        resource: &'a Resource,
    ) -> impl Iterator<Item = &'a Resource> {
        // Of all built-in kinds only this one is still served by two groups.
        let is_event = |known: &Resource| {
            known.plural == "events" && matches!(&*known.group, "" | "events.k8s.io")
        };
        self.resources.iter().filter(move |known| {
            let same = known.plural == resource.plural && known.group == resource.group;
            *known != resource && (same || (is_event(known) && is_event(resource)))
        })
    }

    /// Whether an object becomes one of another version by changing its apiVersion alone.
    pub(super) fn converts_plainly(&self, resource: &Resource) -> bool {
        let is_it = |(group, plural): &(String, String)| {
            *group == resource.group && *plural == resource.plural
        };
        self.plain.iter().any(is_it)
    }
}

/// A line of the table.
fn built_in(line: &str) -> Option<Resource> {
    let mut fields = line.split(' ');
    let mut next = || Some(fields.next()?.trim_matches('-').to_owned());
    let (group, version, plural, kind) = (next()?, next()?, next()?, next()?);
    let (short_names, scope, subresources) = (next()?, next()?, next()?);
    let list = |words: &str| -> Vec<String> {
        let words = words.split(',').filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    Some(Resource {
        singular: kind.to_ascii_lowercase(),
        namespaced: scope == "n",
        short_names: list(&short_names),
        subresources: list(&subresources),
        verbs: vec!["list".to_owned()],
        group,
        version,
        plural,
        kind,
    })
}

/// The versions that a CustomResourceDefinition serves, the preferred one first, and whether they differ in nothing but their name.
fn custom(definition: &Value) -> (Vec<Resource>, bool) {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
    let (Some(group), Some(plural), Some(kind)) = (
        text("/spec/group"),
        text("/spec/names/plural"),
        text("/spec/names/kind"),
    ) else {
        return (Vec::new(), false);
    };
    let short_names = definition.pointer("/spec/names/shortNames");
    let short_names = short_names.and_then(Value::as_array).into_iter().flatten();
    let short_names: Vec<String> = short_names
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    let singular = text("/spec/names/singular").map_or_else(|| kind.to_lowercase(), str::to_owned);
    let versions = definition
        .pointer("/spec/versions")
        .and_then(Value::as_array);
    let mut resources: Vec<Resource> = versions
        .into_iter()
        .flatten()
        .filter(|version| version.get("served").and_then(Value::as_bool) == Some(true))
        .filter_map(|version| {
            let subresources = version.get("subresources").and_then(Value::as_object);
            Some(Resource {
                group: group.to_owned(),
                version: version.get("name")?.as_str()?.to_owned(),
                plural: plural.to_owned(),
                singular: singular.clone(),
                kind: kind.to_owned(),
                short_names: short_names.clone(),
                namespaced: text("/spec/scope") == Some("Namespaced"),
                verbs: vec!["list".to_owned()],
                subresources: subresources
                    .map(|names| names.keys().cloned().collect())
                    .unwrap_or_default(),
            })
        })
        .collect();
    resources.sort_by_key(|resource| Reverse(rank(&resource.version)));
    let strategy = text("/spec/conversion/strategy").unwrap_or("None");
    (resources, strategy == "None")
}

/// How much the API server prefers a version: `v2` over `v1`, both over `v3beta1`, and anything that is no version last.
fn rank(version: &str) -> (u8, u64, u64) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|letter: char| !letter.is_ascii_digit());
        let (major, rest) = rest.split_at(digits.unwrap_or(rest.len()));
        let major: u64 = major.parse().ok()?;
        let (stage, minor) = match rest {
            "" => return Some((3, major, 0)),
            rest => rest
                .strip_prefix("beta")
                .map(|minor| (2, minor))
                .or_else(|| rest.strip_prefix("alpha").map(|minor| (1, minor)))?,
        };
        Some((stage, major, minor.parse().ok()?))
    };
    parsed().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crontabs(strategy: &str) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {
                "group": "stable.example.com", "scope": "Namespaced",
                "names": {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"]},
                "conversion": {"strategy": strategy},
                "versions": [
                    {"name": "v1beta1", "served": true},
                    {"name": "v1", "served": true, "subresources": {"status": {}, "scale": {}}},
                    {"name": "v2", "served": false},
                ],
            },
        })
    }

    #[test]
    fn built_in_kinds_are_known_with_plural_scope_and_subresources() {
        let kinds = Kinds::new([].into_iter());
        let lines = table::BUILT_IN.lines().count();
        assert_eq!(kinds.resources.len(), lines);
        let known = |api_version: &str, kind: &str| kinds.of_object(&Gvk::new(api_version, kind));
        let policy = known("networking.k8s.io/v1", "NetworkPolicy").unwrap();
        assert_eq!(
            (&*policy.plural, policy.namespaced),
            ("networkpolicies", true)
        );
        let pod = known("v1", "Pod").unwrap();
        assert!(pod.subresources.iter().any(|name| name == "exec"));
        assert!(!known("v1", "Namespace").unwrap().namespaced);
        assert!(known("extensions/v1beta1", "Ingress").is_none());
        assert_eq!(kinds.lookup("deploy", None).unwrap().plural, "deployments");
        assert_eq!(kinds.lookup("hpa", None).unwrap().version, "v2");
    }

    #[test]
    fn a_definition_makes_kinds_of_the_versions_that_it_serves() {
        let definition = crontabs("None");
        let kinds = Kinds::new([&definition, &definition].into_iter());
        let v1 = kinds.of_object(&Gvk::new("stable.example.com/v1", "CronTab"));
        let v1 = v1.unwrap();
        assert_eq!(v1.subresources, ["scale", "status"]);
        assert!(
            kinds
                .of_object(&Gvk::new("stable.example.com/v2", "CronTab"))
                .is_none()
        );
        assert_eq!(kinds.lookup("ct", None), Some(v1));
        let others: Vec<&str> = kinds.equivalents(v1).map(|other| &*other.version).collect();
        assert_eq!(others, ["v1beta1"]);
        assert!(kinds.converts_plainly(v1));
        assert!(!Kinds::new([&crontabs("Webhook")].into_iter()).converts_plainly(v1));
    }

    #[test]
    fn events_are_the_only_built_in_kind_of_two_groups() {
        let kinds = Kinds::new([].into_iter());
        let event = kinds.of_object(&Gvk::new("v1", "Event")).unwrap();
        let others: Vec<&str> = kinds
            .equivalents(event)
            .map(|other| &*other.group)
            .collect();
        assert_eq!(others, ["events.k8s.io"]);
        let pod = kinds.of_object(&Gvk::new("v1", "Pod")).unwrap();
        assert_eq!(kinds.equivalents(pod).count(), 0);
    }

    #[test]
    fn versions_are_preferred_as_kubernetes_prefers_them() {
        let mut versions = ["v1beta1", "v2", "foo", "v1", "v10alpha1", "v2beta2", "v10"];
        versions.sort_by_key(|version| Reverse(rank(version)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta2", "v1beta1", "v10alpha1", "foo"]
        );
    }
}
