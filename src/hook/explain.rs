//! The keys about how a review is shown to its hook and explained to its user: `overlay`, `errors` and `webhookValidation`.
//!
//! What they mean, their wire types, and the way from one to the other with the checks across fields. Runs on the main thread at
//! start, only on trees that fit the schema. It judges nothing at the time of a review: `review` and `monitor` do what is asked for here.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::binding::FailurePolicy;
use super::config::Findings;
use crate::yaml::Step;

/// LIMIT: how much of a hook's own words a denial shows unless it says otherwise: a dozen lines, which a terminal shows at once.
const SHOWN_LENGTH: usize = 1024;
/// LIMIT: the most that may be asked for; the API server passes a message on whole, and users read it in one line of an error.
const LONGEST_SHOWN: i64 = 16 * 1024;

/// Which snapshots of a review show the cluster with the request applied.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Overlay {
    /// None: all of them.
    pub(crate) bindings: Option<Vec<String>>,
    /// Requests for these subresources count as well; all of them bring the whole object.
    pub(crate) subresources: Vec<String>,
}

/// What a user reads of a hook that failed, and how it is cleaned. The default shows nothing that the hook printed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Errors {
    pub(crate) from: ErrorSource,
    pub(crate) filters: Filters,
    /// In bytes. None: a message of the response file is passed on whole.
    pub(crate) max_length: Option<usize>,
}

/// Where the words for a denial may come from; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum ErrorSource {
    #[default]
    Response,
    /// Lines on stderr that the hook marked for the user.
    Marked,
    /// The end of stderr, whatever it is.
    Tail,
}

/// HX-44: the filters of a result are chosen by its phase.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Filters {
    pub(crate) by_phase: BTreeMap<String, Vec<TextFilter>>,
    /// For every other phase, and for none.
    pub(crate) otherwise: Vec<TextFilter>,
}

impl Filters {
    pub(crate) fn always(filters: Vec<TextFilter>) -> Filters {
        Filters {
            by_phase: BTreeMap::new(),
            otherwise: filters,
        }
    }

    pub(crate) fn of(&self, phase: Option<&str>) -> &[TextFilter] {
        phase
            .and_then(|phase| self.by_phase.get(phase))
            .unwrap_or(&self.otherwise)
    }
}

/// What can be taken out of a text; `review/clean.rs` does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFilter {
    Ansi,
    Timestamps,
    Pids,
    Paths,
    Haproxy,
}

impl TextFilter {
    /// Those that suit the output of any program.
    pub(crate) const PLAIN: [TextFilter; 4] = [
        TextFilter::Ansi,
        TextFilter::Timestamps,
        TextFilter::Pids,
        TextFilter::Paths,
    ];
}

/// HX-18: a review of the objects that a kubernetes binding watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebhookValidation {
    /// Never empty.
    pub(crate) operations: Vec<String>,
    /// 1 to 30.
    pub(crate) timeout_seconds: u8,
    /// None: the operator's default applies.
    pub(crate) failure_policy: Option<FailurePolicy>,
    pub(crate) errors: Errors,
}

/// A key that is `true`, `false`, or an object that says more.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Switch<T> {
    Plain(bool),
    Detailed(T),
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireOverlay {
    bindings: Option<Vec<String>>,
    subresources: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireErrors {
    from: WireSource,
    filters: Option<WireFilters>,
    max_length: Option<i64>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireSource {
    #[default]
    Response,
    Marked,
    Tail,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireFilters {
    Always(Vec<WireFilter>),
    ByPhase(BTreeMap<String, Vec<WireFilter>>),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WireFilter {
    Ansi,
    Timestamps,
    Pids,
    Paths,
    Haproxy,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireValidation {
    operations: Option<Vec<String>>,
    timeout_seconds: Option<i64>,
    failure_policy: Option<String>,
    errors: Option<WireErrors>,
}

/// `included` are the snapshots that the binding will have, with those of its group.
pub(super) fn overlay(
    wire: Option<Switch<WireOverlay>>,
    included: &[String],
    at: &[Step<'_>],
    findings: &mut Findings<'_>,
) -> Option<Overlay> {
    let wire = match wire? {
        Switch::Plain(false) => return None,
        Switch::Plain(true) => WireOverlay::default(),
        Switch::Detailed(wire) => wire,
    };
    for name in wire.bindings.iter().flatten() {
        if !included.contains(name) {
            let text = format!("overlay.bindings: '{name}' is no snapshot of this binding");
            let hint = "name it under includeSnapshotsFrom, too".to_owned();
            findings.error_with_hint(at, text, Some(hint));
        }
    }
    if wire.bindings.is_none() && included.is_empty() {
        let text = "overlay has no effect: this binding has no snapshots".to_owned();
        let hint = "name kubernetes bindings under includeSnapshotsFrom".to_owned();
        findings.warn(at, text, Some(hint));
    }
    if wire.subresources.iter().any(|name| name == "scale") {
        let text = "overlay.subresources: 'scale' cannot be shown: its requests bring a Scale and not the object".to_owned();
        findings.error(at, text);
    }
    Some(Overlay {
        bindings: wire.bindings,
        subresources: wire.subresources,
    })
}

pub(super) fn errors(
    wire: Option<WireErrors>,
    at: &[Step<'_>],
    findings: &mut Findings<'_>,
) -> Errors {
    let Some(wire) = wire else {
        return Errors::default();
    };
    let from = match wire.from {
        WireSource::Response => ErrorSource::Response,
        WireSource::Marked => ErrorSource::Marked,
        WireSource::Tail => ErrorSource::Tail,
    };
    let filters = match wire.filters {
        Some(WireFilters::Always(filters)) => Filters::always(read(&filters)),
        Some(WireFilters::ByPhase(by_phase)) => Filters {
            otherwise: Vec::new(),
            by_phase: by_phase
                .into_iter()
                .map(|(phase, filters)| (phase, read(&filters)))
                .collect(),
        },
        // What a process prints is full of what says nothing to a user; what a hook says on purpose is not.
        None if from == ErrorSource::Tail => Filters::always(TextFilter::PLAIN.to_vec()),
        None => Filters::default(),
    };
    let max_length = match wire.max_length {
        None => SHOWN_LENGTH,
        Some(length) => {
            let fitting = usize::try_from(length).ok();
            let fitting = fitting.filter(|_| (1..=LONGEST_SHOWN).contains(&length));
            fitting.unwrap_or_else(|| {
                let text = format!(
                    "errors.maxLength is invalid: {length} is not between 1 and {LONGEST_SHOWN}"
                );
                findings.error(at, text);
                SHOWN_LENGTH
            })
        }
    };
    Errors {
        from,
        filters,
        max_length: Some(max_length),
    }
}

fn read(filters: &[WireFilter]) -> Vec<TextFilter> {
    let meant = |filter: &WireFilter| match filter {
        WireFilter::Ansi => TextFilter::Ansi,
        WireFilter::Timestamps => TextFilter::Timestamps,
        WireFilter::Pids => TextFilter::Pids,
        WireFilter::Paths => TextFilter::Paths,
        WireFilter::Haproxy => TextFilter::Haproxy,
    };
    filters.iter().map(meant).collect()
}

/// HX-17, HX-18. `names` are those of all kubernetes bindings; the reviews of this one are known by its name.
pub(super) fn webhook_validation(
    wire: Option<Switch<WireValidation>>,
    index: usize,
    findings: &mut Findings<'_>,
) -> Option<WebhookValidation> {
    let at = [
        Step::Key("kubernetes"),
        Step::Index(index),
        Step::Key("webhookValidation"),
    ];
    let wire = match wire? {
        Switch::Plain(false) => return None,
        Switch::Plain(true) => WireValidation::default(),
        Switch::Detailed(wire) => wire,
    };
    let operations = wire.operations.filter(|list| !list.is_empty());
    let default = || vec!["CREATE".to_owned(), "UPDATE".to_owned()];
    Some(WebhookValidation {
        operations: operations.unwrap_or_else(default),
        timeout_seconds: super::admission::timeout(
            wire.timeout_seconds,
            "kubernetes",
            index,
            findings,
        ),
        failure_policy: wire.failure_policy.map(|policy| match policy.as_str() {
            "Ignore" => FailurePolicy::Ignore,
            _ => FailurePolicy::Fail,
        }),
        errors: errors(wire.errors, &at, findings),
    })
}
