//! A snapshot as it would be: what a binding would see if a request under review were carried out. Pure.
//!
//! Runs on the thread of whoever decides the review, over a list of pointers that nobody else has, and owns nothing: when the
//! answer is given, the list is dropped and the store is as it was (HX-33, HX-38). It judges a proposed object by the binding's
//! own selectors, as the API server would for the watch, and runs the binding's filter on it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

pub(crate) use super::store::Key;

use super::store;
use crate::hook::binding::{Change, KubernetesBinding, Namespaces};
use crate::hook::context::Mark;
use crate::jq::Input;
use crate::message::{Item, Overlaid, Proposal};

/// A binding as it is watched: what its kind turned out to be.
pub(crate) struct Watched<'a> {
    pub(crate) binding: &'a KubernetesBinding,
    /// Empty for the core group.
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespaced: bool,
    /// Whether a namespace is one of those that match the binding's labels; asked only where it has such.
    pub(crate) follows: &'a dyn Fn(&str) -> bool,
}

/// Why a snapshot cannot be shown as it would be. The object itself is never quoted: it may be a Secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    Object { binding: String },
    Filter { binding: String },
}

impl fmt::Display for Unfit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Object { binding } => {
                write!(
                    out,
                    "overlay of '{binding}': the object of the request is not a well-formed resource"
                )
            }
            Unfit::Filter { binding } => write!(
                out,
                "overlay of '{binding}': its jqFilter fails on the object of the request; try it with jq on that object"
            ),
        }
    }
}

/// What selectors look at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Proposed {
    metadata: ProposedNames,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ProposedNames {
    name: Option<String>,
    generate_name: Option<String>,
    namespace: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

/// The snapshot with the proposal applied. Another kind leaves it as it is (HX-37); the version may differ, because the API server
/// stores one object for all of them. Only pointers are copied.
pub(crate) fn overlaid(
    mut items: Vec<(Key, Item)>,
    watched: &Watched<'_>,
    proposal: &Proposal,
) -> Result<Overlaid, Unfit> {
    let full_objects = watched.binding.keep_full_objects;
    let concerned = watched.group == proposal.group && watched.kind == proposal.kind;
    let mut added = None;
    let mut removed = None;
    if concerned {
        let replaced = take_out(&mut items, watched, proposal);
        added = addition(watched, proposal)?;
        match &added {
            Some((key, item, _)) => items.push((key.clone(), item.clone())),
            None => removed = replaced,
        }
    }
    store::sort(&mut items, full_objects);
    // The prefix of a name that is still to be made may be the name of another; the added one is the last of equals.
    let proposed = added.and_then(|(key, _, mark)| {
        let position = items.iter().rposition(|(known, _)| *known == key)?;
        Some((position, mark))
    });
    Ok(Overlaid {
        items: items.into_iter().map(|(_, item)| item).collect(),
        is_concerned: concerned,
        proposed,
        removed: removed.map(|key| {
            let (namespace, name) = key.parts();
            (namespace.to_owned(), name.to_owned())
        }),
    })
}

/// Takes the object out that the request is about, if it is there. Namespace and name are enough: of one kind there is one such
/// object at a time, also when the watch still shows a predecessor with another uid.
fn take_out(
    items: &mut Vec<(Key, Item)>,
    watched: &Watched<'_>,
    proposal: &Proposal,
) -> Option<Key> {
    if proposal.name.is_empty() {
        return None;
    }
    let key = Key::new(place(watched, &proposal.namespace), &proposal.name);
    let position = items.iter().position(|(known, _)| *known == key)?;
    // The order does not matter here: all is sorted at the end.
    Some(items.swap_remove(position).0)
}

fn place<'a>(watched: &Watched<'_>, namespace: &'a str) -> &'a str {
    // The API server gives a Namespace its own name as the namespace of the request.
    if watched.namespaced { namespace } else { "" }
}

/// The object of the request as an item, if the binding would see it.
fn addition(
    watched: &Watched<'_>,
    proposal: &Proposal,
) -> Result<Option<(Key, Item, Mark)>, Unfit> {
    let binding = watched.binding;
    let Some(object) = &proposal.object else {
        return Ok(None);
    };
    if proposal.change == Change::Deleted {
        return Ok(None);
    }
    let unreadable = || Unfit::Object {
        binding: binding.name.clone(),
    };
    let proposed: Proposed = serde_json::from_slice(object).map_err(|_error| unreadable())?;
    let ProposedNames {
        name,
        generate_name,
        namespace,
        labels,
    } = proposed.metadata;
    let name = name
        .or_else(|| Some(proposal.name.clone()))
        .filter(|name| !name.is_empty());
    let generated = name.is_none();
    let name = name.or(generate_name).unwrap_or_default();
    let namespace = namespace.unwrap_or_else(|| proposal.namespace.clone());
    let namespace = place(watched, &namespace);
    let selected = in_place(watched, namespace)
        && (binding.names.is_empty() || binding.names.contains(&name))
        && binding
            .labels
            .as_ref()
            .is_none_or(|selector| selector.matches(&labels.unwrap_or_default()))
        && has_fields(binding, object, namespace, &name).ok_or_else(unreadable)?;
    if !selected {
        return Ok(None);
    }
    let filter_result = filtered(binding, object)?;
    let item = Item {
        object: binding.keep_full_objects.then(|| Arc::clone(object)),
        filter_result,
    };
    let mark = Mark {
        generated,
        version_mismatch: watched.version != proposal.version,
    };
    Ok(Some((Key::new(namespace, &name), item, mark)))
}

fn in_place(watched: &Watched<'_>, namespace: &str) -> bool {
    match &watched.binding.namespaces {
        Namespaces::All => true,
        // The empty name stands for all namespaces, as for the watch.
        Namespaces::Names(names) => {
            names.is_empty()
                || names
                    .iter()
                    .any(|name| name.is_empty() || name == namespace)
        }
        Namespaces::Labels(_) => (watched.follows)(namespace),
    }
}

/// Whether the fields compare; None if the object cannot be read. A field that is not there counts as empty, as it does for the
/// API server.
fn has_fields(
    binding: &KubernetesBinding,
    object: &[u8],
    namespace: &str,
    name: &str,
) -> Option<bool> {
    if binding.fields.is_empty() {
        return Some(true);
    }
    let object: Value = serde_json::from_slice(object).ok()?;
    Some(binding.fields.iter().all(|requirement| {
        let text = match requirement.field.as_str() {
            // Not in the object yet while it is being created.
            "metadata.name" => name.to_owned(),
            "metadata.namespace" => namespace.to_owned(),
            field => field_text(&object, field),
        };
        (text == requirement.value) == requirement.equal
    }))
}

fn field_text(object: &Value, field: &str) -> String {
    let mut value = Some(object);
    for part in field.split('.') {
        value = value.and_then(|value| value.get(part));
    }
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

fn filtered(binding: &KubernetesBinding, object: &[u8]) -> Result<Option<Arc<[u8]>>, Unfit> {
    let Some(filter) = &binding.filter else {
        return Ok(None);
    };
    let result = Input::read(object).and_then(|input| filter.apply_to(&input));
    let result = result.map_err(|_error| Unfit::Filter {
        binding: binding.name.clone(),
    })?;
    Ok(Some(result.to_string().into_bytes().into()))
}

#[cfg(test)]
mod tests;
