//! Which watches a binding needs. Pure.
//!
//! One for every pair of a namespace and a name that the binding lists; one for everything when it lists neither.

use std::collections::BTreeSet;

use crate::hook::binding::{KubernetesBinding, Namespaces};
use crate::hook::selector::FieldRequirement;
use crate::kube::{Error, Resource, Selection};

/// Where a binding looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Places {
    /// In these namespaces; None stands for all of them.
    Fixed(Vec<Option<String>>),
    /// In the namespaces that this selector matches at the moment.
    Following(String),
}

pub(super) fn places(binding: &KubernetesBinding) -> Places {
    match &binding.namespaces {
        Namespaces::All => Places::Fixed(vec![None]),
        // The empty name stands for all namespaces in a path, so that the others add nothing.
        Namespaces::Names(names) if names.is_empty() || names.iter().any(String::is_empty) => {
            Places::Fixed(vec![None])
        }
        Namespaces::Names(names) => {
            let names: BTreeSet<&String> = names.iter().collect();
            Places::Fixed(names.into_iter().cloned().map(Some).collect())
        }
        Namespaces::Labels(selector) => Places::Following(selector.to_string()),
    }
}

/// The watches in one place.
pub(super) fn selections(
    binding: &KubernetesBinding,
    resource: &Resource,
    namespace: Option<&str>,
) -> Result<Vec<Selection>, Error> {
    let labels = binding
        .labels
        .as_ref()
        .map_or(String::new(), ToString::to_string);
    let names: BTreeSet<Option<&String>> = if binding.names.is_empty() {
        [None].into()
    } else {
        binding.names.iter().map(Some).collect()
    };
    names
        .into_iter()
        .map(|name| Selection::new(resource, namespace, &labels, &fields(binding, name)))
        .collect()
}

/// Equal requirements in another order give an equal text.
fn fields(binding: &KubernetesBinding, name: Option<&String>) -> String {
    let named = name.map(|name| FieldRequirement {
        field: "metadata.name".to_owned(),
        equal: true,
        value: name.clone(),
    });
    let requirements: BTreeSet<String> = binding
        .fields
        .iter()
        .chain(&named)
        .map(ToString::to_string)
        .collect();
    requirements.into_iter().collect::<Vec<_>>().join(",")
}
