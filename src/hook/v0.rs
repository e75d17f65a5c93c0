//! Configuration version 0, which has no `configVersion`: from wire values to bindings.
//!
//! Runs on the main thread at start, only on trees that fit the v0 schema. The same bindings come out as for v1; what v0 does
//! not have gets the value that gives the old behaviour.

use serde::Deserialize;

use super::binding::{
    Change, Changes, Config, KubernetesBinding, MAIN_QUEUE, Namespaces, ScheduleBinding, Version,
};
use super::config::Findings;
use super::crontab::Crontab;
use super::v1::{compile, non_empty, selector};
use super::wire::WireLabels;
use crate::yaml::{Node, Step};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    on_startup: Option<i64>,
    #[serde(default)]
    schedule: Vec<WireSchedule>,
    #[serde(default)]
    on_kubernetes_event: Vec<WireEvent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSchedule {
    #[serde(default)]
    name: String,
    #[serde(default)]
    crontab: String,
    #[serde(default)]
    allow_failure: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireEvent {
    #[serde(default)]
    name: String,
    #[serde(default)]
    event: Vec<String>,
    #[serde(default)]
    kind: String,
    selector: Option<WireLabels>,
    #[serde(default)]
    object_name: String,
    namespace_selector: Option<WireNamespaces>,
    #[serde(default)]
    jq_filter: String,
    #[serde(default)]
    allow_failure: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireNamespaces {
    #[serde(default)]
    match_names: Vec<String>,
    #[serde(default)]
    any: bool,
}

/// Turns a tree that fits the v0 schema into a configuration.
pub(super) fn convert(root: &Node, findings: &mut Findings<'_>) -> Option<Config> {
    let wire: Wire = serde_json::from_value(root.to_value())
        .map_err(|error| findings.error(&[], format!("config unmarshal: {error}")))
        .ok()?;
    let mut config = Config::empty(Version::V0);
    config.on_startup = wire.on_startup;
    for (index, item) in wire.schedule.into_iter().enumerate() {
        match Crontab::parse(&item.crontab) {
            Ok(crontab) => config.schedules.push(ScheduleBinding {
                name: non_empty(item.name).unwrap_or_else(|| "schedule".to_owned()),
                crontab,
                allow_failure: item.allow_failure,
                include_snapshots_from: Vec::new(),
                queue: MAIN_QUEUE.to_owned(),
                group: None,
            }),
            Err(error) => findings.error(
                &[
                    Step::Key("schedule"),
                    Step::Index(index),
                    Step::Key("crontab"),
                ],
                format!("invalid schedule config [{index}]: crontab is invalid: {error}"),
            ),
        }
    }
    for (index, item) in wire.on_kubernetes_event.into_iter().enumerate() {
        config.kubernetes.push(kubernetes(item, index, findings));
    }
    Some(config)
}

fn kubernetes(wire: WireEvent, index: usize, findings: &mut Findings<'_>) -> KubernetesBinding {
    let at = |key| {
        [
            Step::Key("onKubernetesEvent"),
            Step::Index(index),
            Step::Key(key),
        ]
    };
    if wire.kind.is_empty() {
        // The original finds out when it asks the API server, and retries for ever.
        let text = format!("invalid onKubernetesEvent config [{index}]: kind is required");
        findings.error(&at("kind"), text);
    }
    // Unlike in v1, no events means none: the hook is then never run for this binding.
    let mut changes = Changes::default();
    for name in &wire.event {
        match name.as_str() {
            "add" => changes = changes.with(Change::Added),
            "update" => changes = changes.with(Change::Modified),
            "delete" => changes = changes.with(Change::Deleted),
            other => findings.error(&at("event"), format!("event '{other}' is unsupported")),
        }
    }
    let filter = compile(&wire.jq_filter).unwrap_or_else(|error| {
        let text = format!(
            "invalid onKubernetesEvent config [{index}] jqFilter: compile jqFilter: {error}"
        );
        findings.error(&at("jqFilter"), text);
        None
    });
    let labels = wire.selector.and_then(|wire| {
        selector(wire)
            .map_err(|error| {
                let text = format!(
                    "invalid onKubernetesEvent config [{index}]: selector is invalid: {error}"
                );
                findings.error(&at("selector"), text);
            })
            .ok()
    });
    KubernetesBinding {
        name: non_empty(wire.name).unwrap_or_else(|| "onKubernetesEvent".to_owned()),
        api_version: None,
        kind: wire.kind,
        changes,
        execute_on_synchronization: false,
        wait_for_synchronization: true,
        // A v0 context holds the object's name and no more.
        keep_full_objects: false,
        filter,
        names: non_empty(wire.object_name).into_iter().collect(),
        labels,
        fields: Vec::new(),
        namespaces: match wire.namespace_selector {
            Some(wire) if !wire.any && !wire.match_names.is_empty() => {
                Namespaces::Names(wire.match_names)
            }
            _ => Namespaces::All,
        },
        allow_failure: wire.allow_failure,
        include_snapshots_from: Vec::new(),
        queue: MAIN_QUEUE.to_owned(),
        group: None,
        webhook_validation: None,
    }
}
