//! Which binding of the hook a case is about, and the objects that it sees.
//!
//! Pure but for jq filters, which run here as a watch would run them, so that `filterResult` is what the hook would get. What does not
//! fit the hook's configuration is a mistake in the suite and names its line.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::fields::{Fault, Read};
use super::file::{Asked, TestCase};
use crate::hook::binding::{AdmissionKind, Config, ConversionRule, KubernetesBinding};
use crate::hook::did_you_mean;
use crate::message::{Item, Snapshot};

/// The binding that a case is about, as an index into its section of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    OnStartup,
    Schedule(usize),
    Kubernetes(usize),
    Admission(AdmissionKind, usize),
    Conversion(usize),
}

/// The objects of each kubernetes binding, by its index.
pub(super) type Snapshots = HashMap<usize, Snapshot>;

/// Finds the binding: the one that the case names, or the only one that there is.
pub(super) fn aim(case: &TestCase, config: &Config) -> Read<Aim> {
    let admission = |kind: AdmissionKind| {
        let bindings = config.admission(kind).iter().enumerate();
        bindings.map(move |(index, binding)| (binding.name.as_str(), Aim::Admission(kind, index)))
    };
    let (candidates, what): (Vec<(&str, Aim)>, &str) = match &case.asked {
        Asked::OnStartup if config.on_startup.is_some() => return Ok(Aim::OnStartup),
        Asked::OnStartup => (Vec::new(), "onStartup"),
        Asked::Request(_) => (
            admission(AdmissionKind::Validating)
                .chain(admission(AdmissionKind::Mutating))
                .collect(),
            "kubernetesValidating or kubernetesMutating",
        ),
        Asked::Schedule => {
            let bindings = config.schedules.iter().enumerate();
            let named = bindings.map(|(i, binding)| (binding.name.as_str(), Aim::Schedule(i)));
            (named.collect(), "schedule")
        }
        Asked::Synchronization(_) | Asked::Event(..) => {
            let bindings = config.kubernetes.iter().enumerate();
            let named = bindings.map(|(i, binding)| (binding.name.as_str(), Aim::Kubernetes(i)));
            (named.collect(), "kubernetes")
        }
        Asked::Conversion { .. } => {
            let bindings = config.conversions.iter().enumerate();
            let named = bindings.map(|(i, binding)| (binding.name.as_str(), Aim::Conversion(i)));
            (named.collect(), "kubernetesCustomResourceConversion")
        }
    };
    choose(case, &candidates, what)
}

fn choose(case: &TestCase, candidates: &[(&str, Aim)], what: &str) -> Read<Aim> {
    let names: Vec<&str> = candidates.iter().map(|(name, _)| *name).collect();
    let Some((wanted, line)) = &case.binding else {
        return match candidates {
            [] => Err(Fault::new(case.line, format!("the hook has no {what}"))),
            [(_, only)] => Ok(*only),
            _ => Err(Fault::new(
                case.line,
                format!("name the `binding` of the case: {}", names.join(", ")),
            )),
        };
    };
    let found: Vec<Aim> = candidates
        .iter()
        .filter(|(name, _)| name == wanted)
        .map(|(_, aim)| *aim)
        .collect();
    match found.as_slice() {
        [only] => Ok(*only),
        [] => {
            let hint = did_you_mean(wanted, names.iter().copied());
            let hint = hint.unwrap_or_else(|| format!("it has: {}", names.join(", ")));
            let text = format!("the hook has no {what} binding {wanted:?}; {hint}");
            Err(Fault::new(*line, text))
        }
        _ => Err(Fault::new(
            *line,
            format!("the hook has {wanted:?} as validating and as mutating binding; rename one"),
        )),
    }
}

/// The rule of a conversion binding that a case means; versions may be written with their group or without.
pub(super) fn rule<'a>(
    rules: &'a [ConversionRule],
    from: &str,
    to: &str,
    line: u64,
) -> Read<&'a ConversionRule> {
    let bare = |version: &str| version.rsplit('/').next().unwrap_or_default().to_owned();
    let is_meant =
        |rule: &&ConversionRule| bare(&rule.from) == bare(from) && bare(&rule.to) == bare(to);
    rules.iter().find(is_meant).ok_or_else(|| {
        let known: Vec<String> = rules
            .iter()
            .map(|rule| format!("{} to {}", rule.from, rule.to))
            .collect();
        let text = format!(
            "the binding has no conversion from {from} to {to}; it has: {}",
            known.join(", ")
        );
        Fault::new(line, text)
    })
}

/// The objects of a case as the hook gets to see them.
pub(super) fn snapshots(case: &TestCase, config: &Config) -> Read<Snapshots> {
    let mut snapshots = Snapshots::new();
    let names = || {
        config
            .kubernetes
            .iter()
            .map(|binding| binding.name.as_str())
    };
    for (name, objects) in &case.snapshots {
        let line = case.snapshot_lines.get(name).copied();
        let line = line.unwrap_or(case.line);
        let Some(index) = names().position(|known| known == name) else {
            let hint = did_you_mean(name, names()).unwrap_or_default();
            let text = format!("snapshots: the hook has no kubernetes binding {name:?}; {hint}");
            return Err(Fault::new(line, text.trim_end_matches([' ', ';'])));
        };
        if let Some(binding) = config.kubernetes.get(index) {
            let items = items(objects, binding);
            snapshots.insert(index, items.map_err(|text| Fault::new(line, text))?);
        }
    }
    Ok(snapshots)
}

/// In the order of a snapshot: by namespace, then by name.
pub(super) fn items(objects: &[Value], binding: &KubernetesBinding) -> Result<Snapshot, String> {
    let text = |object: &Value, path: &str| {
        let found = object.pointer(path).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let mut sorted: Vec<&Value> = objects.iter().collect();
    sorted.sort_by_cached_key(|object| {
        (
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        )
    });
    sorted
        .into_iter()
        .map(|object| item(object, binding))
        .collect()
}

pub(super) fn item(object: &Value, binding: &KubernetesBinding) -> Result<Item, String> {
    let bytes = |value: &Value| -> Arc<[u8]> { value.to_string().into_bytes().into() };
    let filter_result = match &binding.filter {
        None => None,
        Some(filter) => match filter.apply(object) {
            Ok(result) => Some(bytes(&result)),
            Err(error) => {
                return Err(format!(
                    "jqFilter of the binding {:?}: {error}",
                    binding.name
                ));
            }
        },
    };
    Ok(Item {
        object: binding.keep_full_objects.then(|| bytes(object)),
        filter_result,
    })
}
