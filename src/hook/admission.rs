//! `kubernetesValidating` and `kubernetesMutating`: from wire values to bindings, and the checks that the API server would make.
//!
//! Runs on the main thread at start. The original checks only validating bindings; a mutating one with a bad name would spoil
//! the registration of all the others, so both are checked here, with the words of Kubernetes. What the API server accepts
//! although it can never match is a warning.

use serde::Deserialize;
use serde_json::Value;

use super::binding::{
    AdmissionBinding, AdmissionKind, FailurePolicy, ReinvocationPolicy, Rule, SideEffects,
};
use super::config::Findings;
use super::explain::{self, Switch, WireErrors, WireOverlay};
use super::name::webhook_id;
use super::selector::{LabelSelector, go_strings, subdomain_problem};
use super::v1::{check_snapshots, non_empty, selector};
use super::wire::WireLabels;
use crate::yaml::Step;

/// What a webhook without `timeoutSeconds` gets, and the range that the API server allows.
const DEFAULT_TIMEOUT_SECONDS: u8 = 10;
const TIMEOUT_SECONDS: std::ops::RangeInclusive<u8> = 1..=30;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wire {
    name: String,
    #[serde(default)]
    include_snapshots_from: Vec<String>,
    #[serde(default)]
    group: String,
    #[serde(default)]
    rules: Vec<WireRule>,
    failure_policy: Option<WireFailurePolicy>,
    label_selector: Option<WireLabels>,
    namespace: Option<WireNamespace>,
    side_effects: Option<WireSideEffects>,
    timeout_seconds: Option<i64>,
    #[serde(default)]
    match_conditions: Vec<Value>,
    reinvocation_policy: Option<WireReinvocationPolicy>,
    #[serde(default)]
    validate_structure: bool,
    overlay: Option<Switch<WireOverlay>>,
    errors: Option<WireErrors>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRule {
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    operations: Vec<String>,
    scope: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireNamespace {
    label_selector: WireLabels,
}

#[derive(Deserialize)]
enum WireFailurePolicy {
    Ignore,
    Fail,
}

#[derive(Deserialize)]
enum WireSideEffects {
    None,
    NoneOnDryRun,
}

#[derive(Deserialize)]
enum WireReinvocationPolicy {
    Never,
    IfNeeded,
}

/// Turns one section into bindings.
pub(super) fn convert_all(
    items: Vec<Wire>,
    kind: AdmissionKind,
    kubernetes_names: &[String],
    findings: &mut Findings<'_>,
) -> Vec<AdmissionBinding> {
    let section = kind.section();
    let mut bindings: Vec<AdmissionBinding> = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let wanted = &item.include_snapshots_from;
        check_snapshots(section, index, kubernetes_names, wanted, findings);
        let binding = convert(item, kind, index, kubernetes_names, findings);
        check_name(&binding.name, section, index, findings);
        if bindings.iter().any(|other| other.name == binding.name) {
            let text = format!(
                "webhooks[{index}].name: Duplicate value: {:?}",
                binding.name
            );
            findings.error(&at(section, index, "name"), text);
        }
        for (number, rule) in binding.rules.iter().enumerate() {
            check_rule(rule, section, index, number, findings);
        }
        if binding.rules.is_empty() {
            let text = format!(
                "{section} '{}' has no rules: the API server never calls it",
                binding.name
            );
            findings.warn(&[Step::Key(section), Step::Index(index)], text, None);
        }
        bindings.push(binding);
    }
    bindings
}

fn convert(
    wire: Wire,
    kind: AdmissionKind,
    index: usize,
    kubernetes_names: &[String],
    findings: &mut Findings<'_>,
) -> AdmissionBinding {
    let section = kind.section();
    if wire.reinvocation_policy.is_some() && kind == AdmissionKind::Validating {
        // AW-16: a well-known article sets it there, and the API server would drop it in silence.
        findings.error_with_hint(
            &at(section, index, "reinvocationPolicy"),
            format!("{section}.reinvocationPolicy is a forbidden property"),
            Some("only mutating webhooks are called again; validating ones see the final object once".to_owned()),
        );
    }
    let mut select = |wire: Option<WireLabels>, key: &str, name: &str| -> Option<LabelSelector> {
        selector(wire?)
            .map_err(|error| {
                let text =
                    format!("invalid {section} config [{index}]: {name} is invalid: {error}");
                findings.error(&at(section, index, key), text);
            })
            .ok()
    };
    let object_selector = select(wire.label_selector, "labelSelector", "labelSelector");
    let namespace = wire.namespace.map(|namespace| namespace.label_selector);
    let namespace_selector = select(namespace, "namespace", "namespace.labelSelector");
    let place = at(section, index, "overlay");
    // A group may add any of them.
    let included = if wire.group.is_empty() {
        &wire.include_snapshots_from
    } else {
        kubernetes_names
    };
    let overlay = explain::overlay(wire.overlay, included, &place, findings);
    AdmissionBinding {
        timeout_seconds: timeout(wire.timeout_seconds, section, index, findings),
        name: wire.name,
        include_snapshots_from: wire.include_snapshots_from,
        group: non_empty(wire.group),
        rules: wire
            .rules
            .into_iter()
            .map(|rule| Rule {
                api_groups: rule.api_groups,
                api_versions: rule.api_versions,
                resources: rule.resources,
                operations: rule.operations,
                scope: rule.scope,
            })
            .collect(),
        failure_policy: wire.failure_policy.map(|policy| match policy {
            WireFailurePolicy::Ignore => FailurePolicy::Ignore,
            WireFailurePolicy::Fail => FailurePolicy::Fail,
        }),
        object_selector,
        namespace_selector,
        side_effects: match wire.side_effects {
            None | Some(WireSideEffects::None) => SideEffects::None,
            Some(WireSideEffects::NoneOnDryRun) => SideEffects::NoneOnDryRun,
        },
        match_conditions: wire.match_conditions,
        reinvocation_policy: wire.reinvocation_policy.map(|policy| match policy {
            WireReinvocationPolicy::Never => ReinvocationPolicy::Never,
            WireReinvocationPolicy::IfNeeded => ReinvocationPolicy::IfNeeded,
        }),
        validate_structure: wire.validate_structure,
        overlay,
        errors: explain::errors(wire.errors, &at(section, index, "errors"), findings),
    }
}

pub(super) fn timeout(
    wire: Option<i64>,
    section: &str,
    index: usize,
    findings: &mut Findings<'_>,
) -> u8 {
    let Some(seconds) = wire else {
        return DEFAULT_TIMEOUT_SECONDS;
    };
    match u8::try_from(seconds) {
        Ok(seconds) if TIMEOUT_SECONDS.contains(&seconds) => seconds,
        _ => {
            let text = format!(
                "webhooks[{index}].timeoutSeconds: Invalid value: {seconds}: the timeout value must be between 1 and 30 seconds"
            );
            findings.error(&at(section, index, "timeoutSeconds"), text);
            DEFAULT_TIMEOUT_SECONDS
        }
    }
}

/// A webhook name must be a DNS name of at least three segments.
fn check_name(name: &str, section: &str, index: usize, findings: &mut Findings<'_>) {
    let field = format!("webhooks[{index}].name");
    let text = if name.is_empty() {
        format!("{field}: Required value")
    } else if let Some(problem) = subdomain_problem(name) {
        format!("{field}: Invalid value: {name:?}: {problem}")
    } else if name.split('.').count() < 3 {
        format!(
            "{field}: Invalid value: {name:?}: should be a domain with at least three segments separated by dots"
        )
    } else {
        return;
    };
    let hint = format!("write for example `{}`", corrected(name));
    findings.error_with_hint(&at(section, index, "name"), text, Some(hint));
}

/// A name near the one that was written, that would be accepted: `myCrdValidator` becomes `my-crd-validator.example.com`.
fn corrected(name: &str) -> String {
    let mut segments: Vec<String> = name
        .split('.')
        .map(|segment| webhook_id(segment).replace('/', "-"))
        .map(|segment| segment.trim_matches('-').to_owned())
        .filter(|segment| !segment.is_empty())
        .collect();
    if segments.is_empty() {
        segments.push("policy".to_owned());
    }
    if segments.len() < 3 {
        segments.extend(["example".to_owned(), "com".to_owned()]);
    }
    segments.join(".")
}

fn check_rule(
    rule: &Rule,
    section: &str,
    index: usize,
    number: usize,
    findings: &mut Findings<'_>,
) {
    let path = [
        Step::Key(section),
        Step::Index(index),
        Step::Key("rules"),
        Step::Index(number),
    ];
    let mut error = |key: &str, text: String| {
        let [a, b, c, d] = path;
        let text = format!("webhooks[{index}].rules[{number}].{key}{text}");
        let key = key.split('[').next().unwrap_or(key);
        findings.error(&[a, b, c, d, Step::Key(key)], text);
    };
    for (key, go_type, values, what) in [
        (
            "operations",
            "v1.OperationType",
            &rule.operations,
            "operations",
        ),
        ("apiGroups", "string", &rule.api_groups, "API groups"),
        ("apiVersions", "string", &rule.api_versions, "API versions"),
    ] {
        if values.len() > 1 && values.iter().any(|value| value == "*") {
            let shown = go_strings(values).replacen("string", go_type, 1);
            error(
                key,
                format!(
                    ": Invalid value: {shown}: if '*' is present, must not specify other {what}"
                ),
            );
        }
    }
    for (position, version) in rule.api_versions.iter().enumerate() {
        if version.is_empty() {
            error(
                &format!("apiVersions[{position}]"),
                ": Required value".to_owned(),
            );
        }
    }
    check_resources(&rule.resources, &mut error);
    for resource in &rule.resources {
        if let Some(plural) = plural_of_kind(resource) {
            let [a, b, c, d] = path;
            findings.warn(
                &[a, b, c, d, Step::Key("resources")],
                format!("{section}.rules.resources has '{resource}', but the API server matches lower-case plurals only"),
                Some(format!("a Kind under `resources`: did you mean `{plural}`?")),
            );
        }
    }
}

/// Kubernetes' rules for wildcards among resources and subresources.
fn check_resources(resources: &[String], error: &mut dyn FnMut(&str, String)) {
    let mut whole: Vec<&str> = Vec::new(); // x of x/*
    let mut everywhere: Vec<&str> = Vec::new(); // y of */y
    for (position, resource) in resources.iter().enumerate() {
        let key = format!("resources[{position}]");
        if resource.is_empty() {
            error(&key, ": Required value".to_owned());
            continue;
        }
        let Some((name, sub)) = resource.split_once('/') else {
            continue;
        };
        if whole.contains(&name) {
            error(
                &key,
                format!(
                    ": Invalid value: {resource:?}: if '{name}/*' is present, must not specify {resource}"
                ),
            );
        }
        if everywhere.contains(&sub) {
            error(
                &key,
                format!(
                    ": Invalid value: {resource:?}: if '*/{sub}' is present, must not specify {resource}"
                ),
            );
        }
        if sub == "*" {
            whole.push(name);
        }
        if name == "*" {
            everywhere.push(sub);
        }
    }
    let has = |wanted: &str| resources.iter().any(|resource| resource == wanted);
    let shown = go_strings(resources);
    if resources.len() > 1 && has("*/*") {
        error(
            "resources",
            format!(
                ": Invalid value: {shown}: if '*/*' is present, must not specify other resources"
            ),
        );
    }
    let plain = |resource: &String| resource != "*" && !resource.contains('/');
    if has("*") && resources.iter().any(plain) {
        error(
            "resources",
            format!(
                ": Invalid value: {shown}: if '*' is present, must not specify other resources without subresources"
            ),
        );
    }
}

/// Kinds that people write in lower case under `resources`, which looks right and never matches.
const SINGULARS: &[&str] = &[
    "pod",
    "service",
    "secret",
    "configmap",
    "namespace",
    "node",
    "deployment",
    "daemonset",
    "statefulset",
    "replicaset",
    "job",
    "cronjob",
    "ingress",
    "serviceaccount",
    "persistentvolume",
    "persistentvolumeclaim",
    "role",
    "rolebinding",
    "clusterrole",
    "clusterrolebinding",
    "networkpolicy",
    "customresourcedefinition",
    "endpoint",
    "event",
    "storageclass",
    "horizontalpodautoscaler",
    "poddisruptionbudget",
];

/// SO-19: the plural that was probably meant, if this is a Kind and not a plural. A real plural is never capitalised.
fn plural_of_kind(resource: &str) -> Option<String> {
    let (name, sub) = match resource.split_once('/') {
        Some((name, sub)) => (name, Some(sub)),
        None => (resource, None),
    };
    let lower = name.to_lowercase();
    if lower == name && !SINGULARS.contains(&name) {
        return None;
    }
    let plural = plural(&lower);
    Some(match sub {
        Some(sub) => format!("{plural}/{sub}"),
        None => plural,
    })
}

fn plural(word: &str) -> String {
    let vowel_before_y = ["ay", "ey", "oy", "uy"]
        .iter()
        .any(|end| word.ends_with(end));
    // `Endpoints` and `Pods` are plurals already, `Ingress` and `StorageClass` are not.
    if word.ends_with('s') && !word.ends_with("ss") {
        return word.to_owned();
    }
    match word.strip_suffix('y') {
        Some(stem) if !vowel_before_y => format!("{stem}ies"),
        _ if ["ss", "x", "ch", "sh"]
            .iter()
            .any(|end| word.ends_with(end)) =>
        {
            format!("{word}es")
        }
        _ => format!("{word}s"),
    }
}

fn at<'a>(section: &'a str, index: usize, key: &'a str) -> [Step<'a>; 3] {
    [Step::Key(section), Step::Index(index), Step::Key(key)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_a_plural() {
        for (written, expected) in [
            ("CronTab", Some("crontabs")),
            ("MyCustomResource", Some("mycustomresources")),
            ("NetworkPolicy", Some("networkpolicies")),
            ("Ingress", Some("ingresses")),
            ("Gateway", Some("gateways")),
            ("Pods", Some("pods")),
            ("Pod/status", Some("pods/status")),
            ("deployment", Some("deployments")),
            ("deployments", None),
            ("crontabs", None),
            ("*", None),
            ("*/*", None),
            ("pods/exec", None),
        ] {
            assert_eq!(plural_of_kind(written).as_deref(), expected, "{written}");
        }
    }

    #[test]
    fn a_corrected_name_is_accepted() {
        for (written, expected) in [
            ("myCrdValidator", "my-crd-validator.example.com"),
            ("snapshots", "snapshots.example.com"),
            ("a.b", "a.b.example.com"),
            ("Policy.Example.COM", "policy.example.c-o-m"),
            ("under_score.example.com", "under-score.example.com"),
            ("", "policy.example.com"),
            ("...", "policy.example.com"),
        ] {
            assert_eq!(corrected(written), expected);
            assert_eq!(subdomain_problem(expected), None);
        }
    }
}
