//! Configuration version 1: from wire values to bindings, with defaults and the checks across fields.
//!
//! Runs on the main thread at start, only on trees that fit the schema. The wire types of `wire.rs` end here: everything after
//! this file sees bindings. Admission bindings have their own rules, in `admission.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::admission;
use super::binding::{
    AdmissionKind, Change, Changes, Config, ConversionBinding, ConversionRule, KubernetesBinding,
    MAIN_QUEUE, Namespaces, RateLimit, ScheduleBinding, Version,
};
use super::config::Findings;
use super::conversion;
use super::crontab::Crontab;
use super::explain;
use super::selector::{
    FieldRequirement, LabelOperator, LabelRequirement, LabelSelector, subdomain_problem,
};
use super::wire::{
    Wire, WireConversion, WireFields, WireKubernetes, WireLabels, WireNamespace, WireSchedule,
    WireSettings,
};
use crate::duration;
use crate::jq::Filter;
use crate::yaml::{Node, Step};

/// Turns a tree that fits the v1 schema into a configuration.
pub(super) fn convert(root: &Node, findings: &mut Findings<'_>) -> Option<Config> {
    // The schema has been checked, so this can fail only where the schema and these types disagree.
    let wire: Wire = serde_json::from_value(root.to_value())
        .map_err(|error| findings.error(&[], format!("config unmarshal: {error}")))
        .ok()?;
    let mut config = Config::empty(Version::V1);
    config.rate_limit = wire.settings.map(|wire| settings(&wire, findings));
    config.on_startup = wire.on_startup;
    for (index, item) in wire.kubernetes.into_iter().enumerate() {
        config.kubernetes.push(kubernetes(item, index, findings));
    }
    let names: Vec<String> = config
        .kubernetes
        .iter()
        .map(|binding| binding.name.clone())
        .collect();
    for (index, binding) in config.kubernetes.iter().enumerate() {
        for problem in snapshot_problems(&names, &binding.include_snapshots_from) {
            findings.error(
                &[
                    Step::Key("kubernetes"),
                    Step::Index(index),
                    Step::Key("includeSnapshotsFrom"),
                ],
                format!("invalid kubernetes config [{index}]: includeSnapshots {problem}"),
            );
        }
    }
    check_reviewed(&config.kubernetes, &names, findings);
    for (index, item) in wire.schedule.into_iter().enumerate() {
        check_snapshots(
            "schedule",
            index,
            &names,
            &item.include_snapshots_from,
            findings,
        );
        config.schedules.extend(schedule(item, index, findings));
    }
    config.validating = admission::convert_all(
        wire.kubernetes_validating,
        AdmissionKind::Validating,
        &names,
        findings,
    );
    config.mutating = admission::convert_all(
        wire.kubernetes_mutating,
        AdmissionKind::Mutating,
        &names,
        findings,
    );
    for (index, item) in wire
        .kubernetes_custom_resource_conversion
        .into_iter()
        .enumerate()
    {
        let section = "kubernetesCustomResourceConversion";
        check_snapshots(
            section,
            index,
            &names,
            &item.include_snapshots_from,
            findings,
        );
        config.conversions.push(conversion(item, index, findings));
    }
    Some(config)
}

/// The reviews of a binding are known by its name, which nothing else may have then.
fn check_reviewed(bindings: &[KubernetesBinding], names: &[String], findings: &mut Findings<'_>) {
    for (index, binding) in bindings.iter().enumerate() {
        let same = names.iter().filter(|name| **name == binding.name).count();
        if binding.webhook_validation.is_none() || same < 2 {
            continue;
        }
        let at = [
            Step::Key("kubernetes"),
            Step::Index(index),
            Step::Key("webhookValidation"),
        ];
        let text = format!(
            "invalid kubernetes config [{index}]: webhookValidation: there are {same} '{}' binding names",
            binding.name
        );
        findings.error_with_hint(
            &at,
            text,
            Some("give each binding a name of its own".to_owned()),
        );
    }
}

/// Unlike the original, one of the two keys is enough: the interval defaults to no limit, the burst to one.
fn settings(wire: &WireSettings, findings: &mut Findings<'_>) -> RateLimit {
    let interval = match wire.execution_min_interval.as_deref().map(duration::parse) {
        None => Duration::ZERO,
        Some(Ok(interval)) => interval,
        Some(Err(error)) => {
            findings.error(
                &[Step::Key("settings"), Step::Key("executionMinInterval")],
                format!("executionMinInterval is invalid: {error}"),
            );
            Duration::ZERO
        }
    };
    let burst = wire.execution_burst.unwrap_or(1).max(1);
    let burst = u32::try_from(burst).unwrap_or_else(|_error| {
        findings.error(
            &[Step::Key("settings"), Step::Key("executionBurst")],
            format!("executionBurst is invalid: {burst} is out of range"),
        );
        1
    });
    RateLimit { interval, burst }
}

fn schedule(
    wire: WireSchedule,
    index: usize,
    findings: &mut Findings<'_>,
) -> Option<ScheduleBinding> {
    let crontab = Crontab::parse(&wire.crontab)
        .map_err(|error| {
            findings.error(
                &[
                    Step::Key("schedule"),
                    Step::Index(index),
                    Step::Key("crontab"),
                ],
                format!("invalid schedule config [{index}]: crontab is invalid: {error}"),
            );
        })
        .ok()?;
    Some(ScheduleBinding {
        name: or_default(wire.name, "schedule"),
        crontab,
        allow_failure: wire.allow_failure,
        include_snapshots_from: wire.include_snapshots_from,
        queue: or_default(wire.queue, MAIN_QUEUE),
        group: non_empty(wire.group),
    })
}

fn kubernetes(
    wire: WireKubernetes,
    index: usize,
    findings: &mut Findings<'_>,
) -> KubernetesBinding {
    check_kubernetes(&wire, index, findings);
    let at = |key| [Step::Key("kubernetes"), Step::Index(index), Step::Key(key)];
    let filter = compile(&wire.jq_filter).unwrap_or_else(|error| {
        let text =
            format!("invalid kubernetes config [{index}] jqFilter: compile jqFilter: {error}");
        findings.error(&at("jqFilter"), text);
        None
    });
    let labels = wire.label_selector.and_then(|wire| {
        selector(wire)
            .map_err(|error| {
                let text = format!(
                    "invalid kubernetes config [{index}]: labelSelector is invalid: {error}"
                );
                findings.error(&at("labelSelector"), text);
            })
            .ok()
    });
    let namespaces = wire
        .namespace
        .map_or(Namespaces::All, |wire| namespaces(wire, index, findings));
    let changes = wire
        .execute_hook_on_event
        .or(wire.watch_event)
        .map_or(Changes::ALL, |names| changes(&names));
    KubernetesBinding {
        name: or_default(wire.name, "kubernetes"),
        api_version: non_empty(wire.api_version),
        kind: wire.kind,
        changes,
        execute_on_synchronization: wire.execute_hook_on_synchronization.unwrap_or(true),
        // It can be turned off only for bindings that have a queue of their own.
        wait_for_synchronization: wire.wait_for_synchronization.unwrap_or(true)
            || wire.queue.is_empty(),
        keep_full_objects: wire.keep_full_objects_in_memory.unwrap_or(true),
        filter,
        names: wire
            .name_selector
            .map_or_else(Vec::new, |wire| wire.match_names),
        labels,
        fields: wire.field_selector.map_or_else(Vec::new, fields),
        namespaces,
        allow_failure: wire.allow_failure,
        include_snapshots_from: wire.include_snapshots_from,
        queue: or_default(wire.queue, MAIN_QUEUE),
        group: non_empty(wire.group),
        webhook_validation: explain::webhook_validation(wire.webhook_validation, index, findings),
    }
}

fn check_kubernetes(wire: &WireKubernetes, index: usize, findings: &mut Findings<'_>) {
    let at = |key| [Step::Key("kubernetes"), Step::Index(index), Step::Key(key)];
    if wire.api_version.matches('/').count() > 1 {
        let text = format!("invalid kubernetes config [{index}]: apiVersion is invalid");
        findings.error(&at("apiVersion"), text);
    }
    let named = wire
        .name_selector
        .as_ref()
        .is_some_and(|names| !names.match_names.is_empty());
    let by_field = wire.field_selector.as_ref().is_some_and(|fields| {
        fields
            .match_expressions
            .iter()
            .any(|expression| expression.field == "metadata.name")
    });
    if named && by_field {
        let text = format!(
            "invalid kubernetes config [{index}]: fieldSelector 'metadata.name' and nameSelector.matchNames are mutually exclusive"
        );
        findings.error(&at("fieldSelector"), text);
    }
}

fn namespaces(wire: WireNamespace, index: usize, findings: &mut Findings<'_>) -> Namespaces {
    let at = [
        Step::Key("kubernetes"),
        Step::Index(index),
        Step::Key("namespace"),
    ];
    let Some(labels) = wire.label_selector else {
        // No names restrict nothing, as for objects.
        return match wire.name_selector {
            Some(names) if !names.match_names.is_empty() => Namespaces::Names(names.match_names),
            _ => Namespaces::All,
        };
    };
    if wire.name_selector.is_some() {
        let text = format!(
            "kubernetes config [{index}]: namespace.nameSelector is ignored beside namespace.labelSelector"
        );
        findings.warn(&at, text, None);
    }
    match selector(labels) {
        Ok(selector) => Namespaces::Labels(selector),
        Err(error) => {
            let text = format!(
                "invalid kubernetes config [{index}]: namespace.labelSelector is invalid: {error}"
            );
            findings.error(&at, text);
            Namespaces::All
        }
    }
}

fn changes(names: &[String]) -> Changes {
    let known = [Change::Added, Change::Modified, Change::Deleted];
    known
        .into_iter()
        .filter(|change| names.iter().any(|name| name == change.as_str()))
        .fold(Changes::default(), Changes::with)
}

fn fields(wire: WireFields) -> Vec<FieldRequirement> {
    wire.match_expressions
        .into_iter()
        .map(|expression| FieldRequirement {
            equal: !matches!(expression.operator.as_str(), "!=" | "NotEquals"),
            field: expression.field,
            value: expression.value,
        })
        .collect()
}

/// Unlike the original, a name that no CRD can have is an error here: it would be waited for in vain.
fn conversion(
    wire: WireConversion,
    index: usize,
    findings: &mut Findings<'_>,
) -> ConversionBinding {
    let section = "kubernetesCustomResourceConversion";
    let at = [Step::Key(section), Step::Index(index)];
    let name = wire.crd_name.as_str();
    if subdomain_problem(name).is_some() || !name.contains('.') {
        findings.error_with_hint(
            &[at[0], at[1], Step::Key("crdName")],
            format!("invalid {section} config [{index}]: crdName is invalid: {name:?}"),
            Some("write the CRD's name, <plural>.<group>".to_owned()),
        );
    }
    let group = conversion::group(name);
    for (number, rule) in wire.conversions.iter().enumerate() {
        let bare = |version| conversion::bare(group, version);
        let (from, to) = (bare(&rule.from_version), bare(&rule.to_version));
        let problem = if from == to {
            "leads nowhere: both versions are the same"
        } else if from.contains('/') || to.contains('/') {
            "is never used: its versions are not of the CRD's group"
        } else {
            continue;
        };
        let text = format!(
            "{section} config [{index}]: conversion from '{}' to '{}' {problem}",
            rule.from_version, rule.to_version
        );
        let place = [at[0], at[1], Step::Key("conversions"), Step::Index(number)];
        findings.warn(&place, text, None);
    }
    ConversionBinding {
        name: wire.name,
        crd_name: wire.crd_name,
        rules: wire
            .conversions
            .into_iter()
            .map(|rule| ConversionRule {
                from: rule.from_version,
                to: rule.to_version,
            })
            .collect(),
        include_snapshots_from: wire.include_snapshots_from,
        group: non_empty(wire.group),
    }
}

/// An empty text is no filter.
pub(super) fn compile(text: &str) -> Result<Option<Arc<Filter>>, crate::jq::Error> {
    if text.is_empty() {
        return Ok(None);
    }
    Filter::compile(text).map(|filter| Some(Arc::new(filter)))
}

/// A selector, or what the API server would say against it.
pub(super) fn selector(wire: WireLabels) -> Result<LabelSelector, String> {
    let mut selector = LabelSelector {
        match_labels: wire.match_labels,
        match_expressions: Vec::new(),
    };
    for expression in wire.match_expressions {
        let operator = LabelOperator::parse(&expression.operator).ok_or_else(|| {
            format!(
                "{:?} is not a valid label selector operator",
                expression.operator
            )
        })?;
        selector.match_expressions.push(LabelRequirement {
            key: expression.key,
            operator,
            values: expression.values,
        });
    }
    match selector.problem() {
        Some(problem) => Err(problem),
        None => Ok(selector),
    }
}

/// Checks `includeSnapshotsFrom` of anything but a kubernetes binding.
pub(super) fn check_snapshots(
    section: &str,
    index: usize,
    names: &[String],
    wanted: &[String],
    findings: &mut Findings<'_>,
) {
    for problem in snapshot_problems(names, wanted) {
        findings.error(
            &[
                Step::Key(section),
                Step::Index(index),
                Step::Key("includeSnapshotsFrom"),
            ],
            format!(
                "invalid {section} config [{index}]: includeSnapshotsFrom is invalid: {problem}"
            ),
        );
    }
}

/// Every wanted name must be the name of exactly one kubernetes binding.
fn snapshot_problems(names: &[String], wanted: &[String]) -> Vec<String> {
    wanted
        .iter()
        .filter_map(
            |want| match names.iter().filter(|name| *name == want).count() {
                0 => Some(format!("'{want}' binding name not found")),
                1 => None,
                count => Some(format!("there are {count} '{want}' binding names")),
            },
        )
        .collect()
}

fn or_default(text: String, default: &str) -> String {
    if text.is_empty() {
        default.to_owned()
    } else {
        text
    }
}

pub(super) fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
