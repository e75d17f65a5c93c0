//! Snapshots without a watch: what the kubernetes bindings of hooks would hold of a cluster that is known from files.
//!
//! Made once on the main thread for the bindings that reviews ask for: selectors and filters are applied to every object then, and a
//! snapshot is a choice among the results. Workers only read. INVARIANT: a snapshot with an object that the filter fails on is never
//! shown; the operator would not have enabled that binding either.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::cluster::{Cluster, Held, Time, labels};
use super::kinds::Kinds;
use crate::hook::Registry;
use crate::hook::binding::{AdmissionKind, KubernetesBinding, Namespaces};
use crate::jq::Input;
use crate::kube::Resource;
use crate::message::{BindingId, Item, Overlaid, Proposal, Snapshot};
use crate::monitor::overlay::{self, Key, Watched};

/// What every binding sees.
#[derive(Default)]
pub(super) struct Views {
    views: HashMap<BindingId, Result<View, String>>,
}

/// What one binding sees.
struct View {
    binding: KubernetesBinding,
    resource: Resource,
    seen: Vec<Seen>,
    /// The namespaces that its labels choose.
    followed: BTreeSet<String>,
}

/// An object as a binding shows it, for as long as it is there.
struct Seen {
    time: Time,
    key: Key,
    /// Or why the filter makes nothing of it.
    item: Result<Item, String>,
}

impl Views {
    pub(super) fn new(registry: &Registry, cluster: &Cluster, kinds: &Kinds) -> Views {
        let mut views = HashMap::new();
        for (hook_index, hook) in registry.hooks.iter().enumerate() {
            let kinds_of_review = [AdmissionKind::Validating, AdmissionKind::Mutating];
            let reviews = kinds_of_review.map(|kind| hook.config.admission(kind));
            let wanted: Vec<&String> = reviews
                .into_iter()
                .flatten()
                .flat_map(|review| &review.include_snapshots_from)
                .collect();
            for (index, binding) in hook.config.kubernetes.iter().enumerate() {
                if !wanted.contains(&&binding.name) {
                    continue;
                }
                let id = BindingId {
                    hook: hook_index,
                    binding: index,
                };
                views.insert(id, view(binding, cluster, kinds));
            }
        }
        Views { views }
    }

    /// Why the objects of a binding cannot be shown to a manifest.
    pub(super) fn failure(&self, id: BindingId, manifest: usize) -> Option<&str> {
        let reason = match self.views.get(&id)? {
            Err(reason) => Some(reason),
            Ok(view) => view
                .seen
                .iter()
                .filter(|seen| seen.time.includes(manifest))
                .find_map(|seen| seen.item.as_ref().err()),
        };
        reason.map(String::as_str)
    }

    /// The objects of a binding as a manifest sees them.
    pub(super) fn snapshot(&self, id: BindingId, manifest: usize) -> Snapshot {
        let items = self.items(id, manifest);
        items.into_iter().map(|(_, item)| item).collect()
    }

    /// The same as they would be if a request were carried out.
    pub(super) fn overlaid(
        &self,
        id: BindingId,
        manifest: usize,
        proposal: &Proposal,
    ) -> Result<Overlaid, String> {
        let Some(Ok(view)) = self.views.get(&id) else {
            return Ok(Overlaid::default());
        };
        let watched = Watched {
            binding: &view.binding,
            group: &view.resource.group,
            version: &view.resource.version,
            kind: &view.resource.kind,
            namespaced: view.resource.namespaced,
            follows: &|namespace| view.followed.contains(namespace),
        };
        overlay::overlaid(self.items(id, manifest), &watched, proposal)
            .map_err(|unfit| unfit.to_string())
    }

    fn items(&self, id: BindingId, manifest: usize) -> Vec<(Key, Item)> {
        let Some(Ok(view)) = self.views.get(&id) else {
            return Vec::new();
        };
        let seen = view.seen.iter();
        seen.filter(|seen| seen.time.includes(manifest))
            .filter_map(|seen| Some((seen.key.clone(), seen.item.as_ref().ok()?.clone())))
            .collect()
    }
}

fn view(binding: &KubernetesBinding, cluster: &Cluster, kinds: &Kinds) -> Result<View, String> {
    let Some(resource) = kinds.lookup(&binding.kind, binding.api_version.as_deref()) else {
        return Err(format!(
            "binding '{}': there is no kind '{}' in Kubernetes; give the CustomResourceDefinition that makes it with --objects",
            binding.name, binding.kind
        ));
    };
    let mut chosen: Vec<&Held> = cluster
        .held
        .iter()
        .filter(|held| selects(binding, resource, cluster, held))
        .collect();
    // The order of a watch; without full objects that of one text, in which a slash stands behind the namespace.
    let slash = if binding.keep_full_objects { "\0" } else { "/" };
    chosen.sort_by_key(|held| {
        let identity = &held.identity;
        format!("{}{slash}{}", identity.namespace, identity.name)
    });
    let shown = chosen.into_iter().map(|held| Seen {
        time: held.time,
        key: Key::new(&held.identity.namespace, &held.identity.name),
        item: item(binding, resource, kinds, held),
    });
    let followed = match &binding.namespaces {
        Namespaces::Labels(selector) => cluster
            .namespaces()
            .filter(|(_, labels)| selector.matches(labels))
            .map(|(name, _)| name.clone())
            .collect(),
        Namespaces::All | Namespaces::Names(_) => BTreeSet::new(),
    };
    Ok(View {
        binding: binding.clone(),
        resource: resource.clone(),
        seen: shown.collect(),
        followed,
    })
}

/// Whether a watch of this binding would see the object.
fn selects(
    binding: &KubernetesBinding,
    resource: &Resource,
    cluster: &Cluster,
    held: &Held,
) -> bool {
    let identity = &held.identity;
    identity.kind == resource.kind
        && identity.group == resource.group
        && (binding.names.is_empty() || binding.names.contains(&identity.name))
        && in_namespaces(&binding.namespaces, cluster, &identity.namespace)
        && (binding.labels.as_ref()).is_none_or(|wanted| wanted.matches(&labels(&held.object)))
        && binding.fields.iter().all(|wanted| {
            let value = match wanted.field.as_str() {
                "metadata.name" => identity.name.clone(),
                "metadata.namespace" => identity.namespace.clone(),
                field => text_at(&held.object, field),
            };
            (value == wanted.value) == wanted.equal
        })
}

fn in_namespaces(namespaces: &Namespaces, cluster: &Cluster, namespace: &str) -> bool {
    match namespaces {
        Namespaces::All => true,
        Namespaces::Names(names) => {
            let is_it = |name: &String| name.is_empty() || name == namespace;
            names.is_empty() || names.iter().any(is_it)
        }
        Namespaces::Labels(selector) => {
            let labels = cluster.namespace_labels(namespace);
            labels.is_some_and(|labels| selector.matches(labels))
        }
    }
}

/// The value of a field as field selectors compare it; what is not there is empty.
fn text_at(object: &Value, field: &str) -> String {
    let mut value = object;
    for key in field.split('.') {
        match value.get(key) {
            Some(inner) => value = inner,
            None => return String::new(),
        }
    }
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn item(
    binding: &KubernetesBinding,
    resource: &Resource,
    kinds: &Kinds,
    held: &Held,
) -> Result<Item, String> {
    let mut object = held.object.clone();
    if kinds.converts_plainly(resource)
        && let Some(version) = object.get_mut("apiVersion")
    {
        *version = resource.api_version().into();
    }
    let text = object.to_string().into_bytes();
    let filtered = binding.filter.as_ref().map(|filter| {
        let input = Input::read(&text)?;
        filter.apply_to(&input)
    });
    let filter_result = match filtered {
        None => None,
        Some(Ok(value)) => Some(value.to_string().into_bytes().into()),
        Some(Err(_)) => {
            let identity = &held.identity;
            return Err(format!(
                "binding '{}': its jqFilter fails on {} {}/{}; try it with jq on that object",
                binding.name, identity.kind, identity.namespace, identity.name
            ));
        }
    };
    Ok(Item {
        object: binding.keep_full_objects.then(|| text.into()),
        filter_result,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::cluster::Identity;
    use super::*;

    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        let objects = [
            (
                "Namespace",
                "",
                "shop",
                json!({"metadata": {"name": "shop", "labels": {"team": "a"}}}),
            ),
            (
                "Pod",
                "shop",
                "web",
                json!({"metadata": {"labels": {"app": "web"}}, "status": {"phase": "Running"}}),
            ),
            (
                "Pod",
                "shop",
                "job",
                json!({"metadata": {"labels": {"app": "job"}}, "status": {"phase": "Failed"}}),
            ),
            (
                "Pod",
                "other",
                "web",
                json!({"metadata": {"labels": {"app": "web"}}}),
            ),
            ("Service", "shop", "web", json!({})),
        ];
        for (kind, namespace, name, object) in objects {
            let identity = Identity {
                group: String::new(),
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            let mut object = object;
            object["metadata"]["name"] = name.into();
            object["metadata"]["namespace"] = namespace.into();
            cluster.put(identity, Some(object), 0);
        }
        cluster
    }

    /// The names of what a binding with these keys sees, or why it sees nothing.
    fn check(keys: &str, expected: &[&str]) {
        let config = format!(
            "configVersion: v1\nkubernetes:\n- name: seen\n  {keys}\n\
             kubernetesValidating:\n- name: a.example.com\n  includeSnapshotsFrom: [seen]\n"
        );
        let registry = Registry::of(&[("hook.sh", &config)]);
        let kinds = Kinds::new([].into_iter());
        let views = Views::new(&registry, &cluster(), &kinds);
        let id = BindingId {
            hook: 0,
            binding: 0,
        };
        let shown: Vec<String> = views
            .snapshot(id, 0)
            .iter()
            .map(|item| {
                let text = item.filter_result.as_deref().or(item.object.as_deref());
                let value: Value = serde_json::from_slice(text.unwrap()).unwrap();
                let name = |key: &str| value["metadata"][key].as_str().unwrap_or("").to_owned();
                value.as_str().map_or_else(
                    || format!("{}/{}", name("namespace"), name("name")),
                    str::to_owned,
                )
            })
            .collect();
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        let failure = views.failure(id, 0).into_iter();
        assert_eq!(
            shown.into_iter().chain(failure).collect::<Vec<_>>(),
            expected,
            "{keys}"
        );
    }

    #[test]
    fn a_binding_sees_what_its_selectors_choose() {
        check("kind: po", &["other/web", "shop/job", "shop/web"]);
        check(
            "kind: Pod\n  nameSelector: {matchNames: [web]}",
            &["other/web", "shop/web"],
        );
        check(
            "kind: Pod\n  labelSelector: {matchLabels: {app: job}}",
            &["shop/job"],
        );
        check(
            "kind: Pod\n  namespace: {nameSelector: {matchNames: [other]}}",
            &["other/web"],
        );
        check(
            "kind: Pod\n  namespace: {labelSelector: {matchLabels: {team: a}}}",
            &["shop/job", "shop/web"],
        );
        check(
            "kind: Pod\n  fieldSelector: {matchExpressions: [{field: status.phase, operator: NotEquals, value: Failed}]}",
            &["other/web", "shop/web"],
        );
        check("kind: Deployment", &[]);
    }

    #[test]
    fn a_filter_shows_what_it_makes_of_an_object() {
        check(
            "kind: Pod\n  jqFilter: .metadata.name\n  keepFullObjectsInMemory: false",
            &["web", "job", "web"],
        );
        check(
            "kind: Service\n  jqFilter: error",
            &[
                "binding 'seen': its jqFilter fails on Service shop/web; try it with jq on that object",
            ],
        );
    }

    #[test]
    fn a_kind_that_nobody_knows_is_not_an_empty_snapshot() {
        check(
            "kind: CronTab",
            &[
                "binding 'seen': there is no kind 'CronTab' in Kubernetes; give the CustomResourceDefinition that makes it with --objects",
            ],
        );
    }
}
