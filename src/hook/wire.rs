//! What may be written in configuration version 1, field by field.
//!
//! Only types for serde, filled on the main thread at start and taken apart at once by `v1.rs`; no defaults with a meaning and
//! no checks. Admission bindings have theirs in `admission.rs`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::admission;
use super::explain::{Switch, WireValidation};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Wire {
    pub(super) settings: Option<WireSettings>,
    pub(super) on_startup: Option<i64>,
    #[serde(default)]
    pub(super) schedule: Vec<WireSchedule>,
    #[serde(default)]
    pub(super) kubernetes: Vec<WireKubernetes>,
    #[serde(default)]
    pub(super) kubernetes_validating: Vec<admission::Wire>,
    #[serde(default)]
    pub(super) kubernetes_mutating: Vec<admission::Wire>,
    #[serde(default)]
    pub(super) kubernetes_custom_resource_conversion: Vec<WireConversion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireSettings {
    pub(super) execution_min_interval: Option<String>,
    pub(super) execution_burst: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireSchedule {
    #[serde(default)]
    pub(super) name: String,
    pub(super) crontab: String,
    #[serde(default)]
    pub(super) allow_failure: bool,
    #[serde(default)]
    pub(super) include_snapshots_from: Vec<String>,
    #[serde(default)]
    pub(super) queue: String,
    #[serde(default)]
    pub(super) group: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireKubernetes {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) execute_hook_on_event: Option<Vec<String>>,
    pub(super) watch_event: Option<Vec<String>>,
    pub(super) execute_hook_on_synchronization: Option<bool>,
    pub(super) wait_for_synchronization: Option<bool>,
    pub(super) keep_full_objects_in_memory: Option<bool>,
    #[serde(default)]
    pub(super) jq_filter: String,
    pub(super) name_selector: Option<WireNames>,
    pub(super) label_selector: Option<WireLabels>,
    pub(super) field_selector: Option<WireFields>,
    pub(super) namespace: Option<WireNamespace>,
    #[serde(default)]
    pub(super) allow_failure: bool,
    #[serde(default)]
    pub(super) include_snapshots_from: Vec<String>,
    #[serde(default)]
    pub(super) queue: String,
    #[serde(default)]
    pub(super) group: String,
    pub(super) webhook_validation: Option<Switch<WireValidation>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireNames {
    pub(super) match_names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireLabels {
    #[serde(default)]
    pub(super) match_labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) match_expressions: Vec<WireLabelExpression>,
}

#[derive(Deserialize)]
pub(super) struct WireLabelExpression {
    #[serde(default)]
    pub(super) key: String,
    #[serde(default)]
    pub(super) operator: String,
    #[serde(default)]
    pub(super) values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireFields {
    pub(super) match_expressions: Vec<WireFieldExpression>,
}

#[derive(Deserialize)]
pub(super) struct WireFieldExpression {
    pub(super) field: String,
    pub(super) operator: String,
    pub(super) value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireNamespace {
    pub(super) name_selector: Option<WireNames>,
    pub(super) label_selector: Option<WireLabels>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireConversion {
    pub(super) name: String,
    pub(super) crd_name: String,
    pub(super) conversions: Vec<WireConversionRule>,
    #[serde(default)]
    pub(super) include_snapshots_from: Vec<String>,
    #[serde(default)]
    pub(super) group: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireConversionRule {
    pub(super) from_version: String,
    pub(super) to_version: String,
}
