//! What a hook is bound to: the reasons to run it, with all defaults filled in.
//!
//! Plain values, made once by `config.rs` (v1) and `v0.rs`, immutable afterwards and shared by `Arc` with every thread. No
//! serde here and no Kubernetes I/O: a binding says what is wanted, other rooms find out how to get it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::crontab::Crontab;
use super::explain::{Errors, Overlay, WebhookValidation};
use super::selector::{FieldRequirement, LabelSelector};
use crate::jq::Filter;

/// The queue of every binding that names none.
pub(crate) const MAIN_QUEUE: &str = "main";

/// The binding name of every onStartup run.
pub(crate) const ON_STARTUP: &str = "onStartup";

/// Everything a hook asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) version: Version,
    pub(crate) rate_limit: Option<RateLimit>,
    /// The order among onStartup hooks; lower runs earlier.
    pub(crate) on_startup: Option<i64>,
    pub(crate) schedules: Vec<ScheduleBinding>,
    pub(crate) kubernetes: Vec<KubernetesBinding>,
    pub(crate) validating: Vec<AdmissionBinding>,
    pub(crate) mutating: Vec<AdmissionBinding>,
    pub(crate) conversions: Vec<ConversionBinding>,
}

/// The version of the configuration decides the shape of binding contexts, and v0 tasks are never combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V0,
    V1,
}

/// How often a hook may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimit {
    /// Zero means no limit.
    pub(crate) interval: Duration,
    /// At least 1.
    pub(crate) burst: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScheduleBinding {
    pub(crate) name: String,
    pub(crate) crontab: Crontab,
    pub(crate) allow_failure: bool,
    /// Own list, then the names that the group adds.
    pub(crate) include_snapshots_from: Vec<String>,
    pub(crate) queue: String,
    pub(crate) group: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KubernetesBinding {
    pub(crate) name: String,
    /// None: the server's preferred version.
    pub(crate) api_version: Option<String>,
    /// A Kind, plural or short name, in any case.
    pub(crate) kind: String,
    pub(crate) changes: Changes,
    pub(crate) execute_on_synchronization: bool,
    pub(crate) wait_for_synchronization: bool,
    pub(crate) keep_full_objects: bool,
    pub(crate) filter: Option<Arc<Filter>>,
    /// Empty: objects of any name.
    pub(crate) names: Vec<String>,
    pub(crate) labels: Option<LabelSelector>,
    pub(crate) fields: Vec<FieldRequirement>,
    pub(crate) namespaces: Namespaces,
    pub(crate) allow_failure: bool,
    pub(crate) include_snapshots_from: Vec<String>,
    /// For Event runs; see `synchronization_queue` for the first run.
    pub(crate) queue: String,
    pub(crate) group: Option<String>,
    /// Changes of these objects are reviewed by this hook, too.
    pub(crate) webhook_validation: Option<WebhookValidation>,
}

impl KubernetesBinding {
    /// Where the Synchronization runs: in the main queue, so that hooks come up one after the other. A binding with a queue of
    /// its own can opt out by `waitForSynchronization: false`; then neither other hooks nor readiness wait for it.
    pub(crate) fn synchronization_queue(&self) -> &str {
        if self.wait_for_synchronization {
            MAIN_QUEUE
        } else {
            &self.queue
        }
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    /// The value of `watchEvent`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "Added",
            Self::Modified => "Modified",
            Self::Deleted => "Deleted",
        }
    }

    /// The value of `resourceEvent` in v0.
    pub(crate) fn as_v0(self) -> &'static str {
        match self {
            Self::Added => "add",
            Self::Modified => "update",
            Self::Deleted => "delete",
        }
    }
}

/// The changes that run the hook. All false: the binding only provides snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Changes {
    pub(crate) added: bool,
    pub(crate) modified: bool,
    pub(crate) deleted: bool,
}

impl Changes {
    pub(crate) const ALL: Changes = Changes {
        added: true,
        modified: true,
        deleted: true,
    };

    pub(crate) fn with(mut self, change: Change) -> Changes {
        match change {
            Change::Added => self.added = true,
            Change::Modified => self.modified = true,
            Change::Deleted => self.deleted = true,
        }
        self
    }

    pub(crate) fn contains(self, change: Change) -> bool {
        match change {
            Change::Added => self.added,
            Change::Modified => self.modified,
            Change::Deleted => self.deleted,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Namespaces {
    All,
    Names(Vec<String>),
    /// The namespaces that match at the moment; they come and go.
    Labels(LabelSelector),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AdmissionKind {
    Validating,
    Mutating,
}

impl AdmissionKind {
    /// The value of `type` in the binding context.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "Validating",
            Self::Mutating => "Mutating",
        }
    }

    /// The section of the configuration.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Self::Validating => "kubernetesValidating",
            Self::Mutating => "kubernetesMutating",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdmissionBinding {
    pub(crate) name: String,
    pub(crate) include_snapshots_from: Vec<String>,
    /// Only adds snapshots; it never makes the hook run with type `Group`.
    pub(crate) group: Option<String>,
    pub(crate) rules: Vec<Rule>,
    /// None: the operator's default applies.
    pub(crate) failure_policy: Option<FailurePolicy>,
    pub(crate) object_selector: Option<LabelSelector>,
    pub(crate) namespace_selector: Option<LabelSelector>,
    pub(crate) side_effects: SideEffects,
    /// 1 to 30.
    pub(crate) timeout_seconds: u8,
    /// Passed on to the API server as written.
    pub(crate) match_conditions: Vec<Value>,
    /// Only ever set for mutating bindings.
    pub(crate) reinvocation_policy: Option<ReinvocationPolicy>,
    /// Refuse objects without a name before the hook is run.
    pub(crate) validate_structure: bool,
    /// Whether snapshots show the cluster as it would be.
    pub(crate) overlay: Option<Overlay>,
    pub(crate) errors: Errors,
}

impl KubernetesBinding {
    /// What reviews of this binding's objects are, if it has any: known by its own name, and with the snapshots of its objects
    /// and of those that it includes, all of them as they would be.
    pub(crate) fn review(&self) -> Option<AdmissionBinding> {
        let wanted = self.webhook_validation.as_ref()?;
        let mut included = vec![self.name.clone()];
        for name in &self.include_snapshots_from {
            if !included.contains(name) {
                included.push(name.clone());
            }
        }
        Some(AdmissionBinding {
            name: self.name.clone(),
            include_snapshots_from: included,
            group: None,
            rules: Vec::new(),
            failure_policy: wanted.failure_policy,
            object_selector: None,
            namespace_selector: None,
            side_effects: SideEffects::None,
            timeout_seconds: wanted.timeout_seconds,
            match_conditions: Vec::new(),
            reinvocation_policy: None,
            validate_structure: true,
            overlay: Some(Overlay::default()),
            errors: wanted.errors.clone(),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) api_groups: Vec<String>,
    pub(crate) api_versions: Vec<String>,
    pub(crate) resources: Vec<String>,
    pub(crate) operations: Vec<String>,
    pub(crate) scope: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailurePolicy {
    Ignore,
    Fail,
}

impl FailurePolicy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "Ignore",
            Self::Fail => "Fail",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SideEffects {
    None,
    NoneOnDryRun,
}

impl SideEffects {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::NoneOnDryRun => "NoneOnDryRun",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReinvocationPolicy {
    Never,
    IfNeeded,
}

impl ReinvocationPolicy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Never => "Never",
            Self::IfNeeded => "IfNeeded",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversionBinding {
    pub(crate) name: String,
    pub(crate) crd_name: String,
    pub(crate) rules: Vec<ConversionRule>,
    pub(crate) include_snapshots_from: Vec<String>,
    pub(crate) group: Option<String>,
}

/// Versions as written in the hook, with or without a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ConversionRule {
    pub(crate) from: String,
    pub(crate) to: String,
}

impl Config {
    /// A configuration that asks for nothing.
    pub(crate) fn empty(version: Version) -> Config {
        Config {
            version,
            rate_limit: None,
            on_startup: None,
            schedules: Vec::new(),
            kubernetes: Vec::new(),
            validating: Vec::new(),
            mutating: Vec::new(),
            conversions: Vec::new(),
        }
    }

    pub(crate) fn admission(&self, kind: AdmissionKind) -> &[AdmissionBinding] {
        match kind {
            AdmissionKind::Validating => &self.validating,
            AdmissionKind::Mutating => &self.mutating,
        }
    }

    /// Gives every binding with a group the snapshots of all kubernetes bindings of that group, in configuration order,
    /// behind the names it asked for itself.
    pub(super) fn expand_groups(&mut self) {
        let members: Vec<(String, String)> = self
            .kubernetes
            .iter()
            .filter_map(|binding| Some((binding.group.clone()?, binding.name.clone())))
            .collect();
        let expand = |group: &Option<String>, names: &mut Vec<String>| {
            for (member_group, name) in &members {
                if group.as_ref() == Some(member_group) && !names.contains(name) {
                    names.push(name.clone());
                }
            }
        };
        for binding in &mut self.kubernetes {
            expand(&binding.group, &mut binding.include_snapshots_from);
        }
        for binding in &mut self.schedules {
            expand(&binding.group, &mut binding.include_snapshots_from);
        }
        for binding in self.validating.iter_mut().chain(&mut self.mutating) {
            expand(&binding.group, &mut binding.include_snapshots_from);
        }
        for binding in &mut self.conversions {
            expand(&binding.group, &mut binding.include_snapshots_from);
        }
    }

    /// One line for the log, with the words of the original.
    pub(crate) fn summary(&self) -> String {
        let mut parts = Vec::new();
        if let Some(order) = self.on_startup {
            parts.push(format!("OnStartup:{order}"));
        }
        let crontabs: Vec<String> = self
            .schedules
            .iter()
            .map(|binding| format!("'{}'", binding.crontab))
            .collect();
        let kinds: Vec<String> = self
            .kubernetes
            .iter()
            .map(|binding| binding.kind.clone())
            .collect();
        let crds: Vec<String> = self
            .conversions
            .iter()
            .map(|binding| binding.crd_name.clone())
            .collect();
        for (title, names) in [
            ("Schedules", crontabs),
            ("Watch k8s kinds", kinds),
            ("Validate k8s kinds", resources(&self.validating)),
            ("Mutate k8s kinds", resources(&self.mutating)),
            ("Conversion for crds", crds),
        ] {
            if !names.is_empty() {
                parts.push(format!("{title}: {}", names.join(", ")));
            }
        }
        if let Some(limit) = self.rate_limit {
            parts.push(format!("Rate: {:?}/{}", limit.interval, limit.burst));
        }
        parts.join(", ")
    }
}

/// The resources of all rules, each once, in configuration order.
fn resources(bindings: &[AdmissionBinding]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for resource in bindings
        .iter()
        .flat_map(|binding| &binding.rules)
        .flat_map(|rule| &rule.resources)
    {
        if !names.contains(resource) {
            names.push(resource.clone());
        }
    }
    names
}
