//! The cluster as far as it is known: what `--objects` holds, and what the manifests make of it one after the other.
//!
//! Every manifest sees the cluster as it is when its turn comes: with the manifests before it applied as they are written, without
//! itself and those behind it. Made on the main thread; read by all workers, who change nothing.

use std::collections::BTreeMap;

use serde_json::Value;

use super::kinds::{Gvk, Kinds};
use super::manifest::Manifest;

/// What an API server sets on every namespace.
pub(super) const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) type Labels = BTreeMap<String, String>;

/// Which object, whatever its version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    pub(super) group: String,
    pub(super) kind: String,
    /// Empty for objects outside of namespaces.
    pub(super) namespace: String,
    pub(super) name: String,
}

/// An object for as long as it is there.
pub(super) struct Held {
    pub(super) identity: Identity,
    pub(super) object: Value,
    pub(super) time: Time,
}

/// For which manifests something is there.
#[derive(Clone, Copy)]
pub(super) struct Time {
    /// The first manifest that sees it, and the first that does not any more.
    from: usize,
    until: usize,
}

/// All objects of all moments.
#[derive(Default)]
pub(super) struct Cluster {
    pub(super) held: Vec<Held>,
    /// The one that is there now, while the cluster is being made.
    latest: BTreeMap<Identity, usize>,
    namespaces: BTreeMap<String, Labels>,
}

impl Time {
    pub(super) fn includes(self, manifest: usize) -> bool {
        self.from <= manifest && manifest < self.until
    }
}

impl Cluster {
    /// What is there before the first manifest. Objects of unknown kinds are taken to be where their namespace says.
    pub(super) fn new(objects: &[Manifest], kinds: &Kinds, namespace: &str) -> Cluster {
        let mut cluster = Cluster::default();
        for manifest in objects {
            let gvk = Gvk::new(manifest.text("/apiVersion"), manifest.text("/kind"));
            let is_namespaced = kinds.of_object(&gvk).map(|resource| resource.namespaced);
            let namespace = match (is_namespaced, manifest.text("/metadata/namespace")) {
                (Some(false), _) => "",
                (Some(true), "") => namespace,
                (_, named) => named,
            };
            let identity = Identity {
                group: gvk.group,
                kind: gvk.kind,
                namespace: namespace.to_owned(),
                name: manifest.text("/metadata/name").to_owned(),
            };
            cluster.put(identity, Some(manifest.object.clone()), 0);
        }
        cluster
    }

    /// The object is this one, or gone, for manifests from this number on.
    pub(super) fn put(&mut self, identity: Identity, object: Option<Value>, from: usize) {
        if let Some(index) = self.latest.remove(&identity)
            && let Some(former) = self.held.get_mut(index)
        {
            former.time.until = from;
        }
        let Some(object) = object else {
            return;
        };
        if identity.group.is_empty() && identity.kind == "Namespace" {
            let mut labels = labels(&object);
            labels.insert(NAME_LABEL.to_owned(), identity.name.clone());
            self.namespaces.insert(identity.name.clone(), labels);
        }
        self.latest.insert(identity.clone(), self.held.len());
        self.held.push(Held {
            identity,
            object,
            time: Time {
                from,
                until: usize::MAX,
            },
        });
    }

    /// The object as it is while the cluster is being made.
    pub(super) fn find(&self, identity: &Identity) -> Option<&Value> {
        let held = self.held.get(*self.latest.get(identity)?)?;
        Some(&held.object)
    }

    /// The labels of a namespace; none if it is not known. A namespace among the manifests is known to all of them, since whoever
    /// applies them tries again until it is there.
    pub(super) fn namespace_labels(&self, namespace: &str) -> Option<&Labels> {
        self.namespaces.get(namespace)
    }

    /// All known namespaces with their labels.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = (&String, &Labels)> {
        self.namespaces.iter()
    }
}

/// The labels of an object.
pub(super) fn labels(object: &Value) -> Labels {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let texts = labels.into_iter().flatten();
    texts
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str) -> Identity {
        Identity {
            group: String::new(),
            kind: "Service".to_owned(),
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        }
    }

    fn seen(cluster: &Cluster, manifest: usize) -> Vec<u64> {
        let held = cluster.held.iter();
        let seen = held.filter(|held| held.time.includes(manifest));
        seen.filter_map(|held| held.object.as_u64()).collect()
    }

    #[test]
    fn a_manifest_sees_those_before_it_and_neither_itself_nor_those_behind_it() {
        let mut cluster = Cluster::default();
        cluster.put(service("a"), Some(json!(1)), 0);
        cluster.put(service("b"), Some(json!(2)), 1);
        cluster.put(service("a"), Some(json!(3)), 2);
        cluster.put(service("b"), None, 3);
        assert_eq!(seen(&cluster, 0), [1]);
        assert_eq!(seen(&cluster, 1), [1, 2]);
        assert_eq!(seen(&cluster, 2), [2, 3]);
        assert_eq!(seen(&cluster, 3), [3]);
        assert_eq!(cluster.find(&service("a")), Some(&json!(3)));
        assert_eq!(cluster.find(&service("b")), None);
    }

    #[test]
    fn a_namespace_bears_its_name_as_a_label() {
        let mut cluster = Cluster::default();
        let identity = Identity {
            group: String::new(),
            kind: "Namespace".to_owned(),
            namespace: String::new(),
            name: "shop".to_owned(),
        };
        let object = json!({"metadata": {"name": "shop", "labels": {"tier": "front"}}});
        cluster.put(identity, Some(object), 0);
        let labels = cluster.namespace_labels("shop").unwrap();
        assert_eq!(labels.get("tier").map(String::as_str), Some("front"));
        assert_eq!(labels.get(NAME_LABEL).map(String::as_str), Some("shop"));
        assert!(cluster.namespace_labels("other").is_none());
    }
}
