//! What is counted: the operator's own metrics and those of hooks, each on a page of its own.
//!
//! Any thread records; the probe server's connection threads render. One lock for each page, never held across I/O. Written here
//! and not taken from a crate because names must stay as they are (a crate that renames `…_errors` to `…_errors_total` breaks
//! dashboards), label sets are not known before the first use, and series of hooks go away again. `page` holds the series.

mod ignored;
mod page;
mod process;
mod text;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use self::ignored::Ignored;
use self::page::{Bounds, Kind, Page, Target};
use self::text::shown_name;

/// Upper bounds for durations of hook runs, in seconds: from a shell script that only writes a line to a job of minutes.
pub(crate) const RUN_SECONDS: &[f64] = &[
    0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0,
];

/// Upper bounds for what happens to one object on its way to a queue and for one call to the API server, in seconds.
pub(crate) const EVENT_SECONDS: &[f64] = &[
    0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];

/// Upper bounds for what a queue does with its list of tasks, in seconds: from a push to the compaction of thousands.
pub(crate) const ACTION_SECONDS: &[f64] = &[
    0.0, 0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02,
    0.05, 0.1, 0.2, 0.5,
];

/// Stands for the configured prefix inside of a name.
const PREFIX: &str = "{PREFIX}";
/// The label that says which hook a metric came from.
const HOOK: &str = "hook";

/// One change that a hook asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    /// Empty only for `Change::Expire`.
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) group: Option<String>,
    pub(crate) change: Change,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// To a counter.
    Add(f64),
    /// Of a gauge.
    Set(f64),
    /// In a histogram with these upper bounds, in rising order.
    Observe { value: f64, bounds: Vec<f64> },
    /// Removes everything that was recorded in the group.
    Expire,
}

/// Everything that is counted. Shared by `Arc`.
#[derive(Debug)]
pub(crate) struct Metrics {
    prefix: String,
    keeps_ungrouped: bool,
    /// Names that nobody wants to see.
    silent: Vec<&'static str>,
    own: Mutex<Page>,
    hooks: Mutex<Page>,
}

impl Metrics {
    /// `prefix` is put before every name given to the recording functions.
    pub(crate) fn new(prefix: &str) -> Self {
        Metrics {
            prefix: prefix.to_owned(),
            keeps_ungrouped: false,
            silent: Vec::new(),
            own: Mutex::new(Page::of_our_own()),
            hooks: Mutex::new(Page::of_hooks()),
        }
    }

    /// With true, metrics of hooks that name no group stay for ever and their counters go on, as in releases of the original
    /// before 1.9. Otherwise the hook's name is their group.
    pub(crate) fn keeping_ungrouped(self, keeps_ungrouped: bool) -> Self {
        Metrics {
            keeps_ungrouped,
            ..self
        }
    }

    /// What is recorded under this name is dropped.
    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.silent.push(name);
        self
    }

    /// Adds to a counter; adding 0 makes the series visible.
    pub(crate) fn add(&self, name: &str, labels: &[(&str, &str)], amount: f64) {
        self.record(name, labels, Kind::Counter, &[], |series| {
            series.add(amount);
        });
    }

    /// Sets a counter that somebody else counts.
    pub(crate) fn total(&self, name: &str, labels: &[(&str, &str)], total: f64) {
        self.record(name, labels, Kind::Counter, &[], |series| series.set(total));
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.record(name, labels, Kind::Gauge, &[], |series| series.set(value));
    }

    /// Records one observation in a histogram with the bounds of `RUN_SECONDS`.
    pub(crate) fn observe(&self, name: &str, labels: &[(&str, &str)], observed: f64) {
        self.observe_within(RUN_SECONDS, name, labels, observed);
    }

    /// As `observe`, with other bounds. Those of the first observation under a name stay.
    pub(crate) fn observe_within(
        &self,
        bounds: &'static [f64],
        name: &str,
        labels: &[(&str, &str)],
        observed: f64,
    ) {
        self.record(name, labels, Kind::Histogram, bounds, |series| {
            series.observe(observed);
        });
    }

    /// Applies what one run of a hook asked for, as a whole: nobody sees a page with half of it. What was recorded under the groups
    /// it names is replaced. Answers what could not be done; the rest was.
    pub(crate) fn apply(&self, hook: &str, operations: &[Operation]) -> Vec<Ignored> {
        let group_of = |operation: &Operation| {
            let named = operation.group.clone();
            named.or_else(|| (!self.keeps_ungrouped).then(|| hook.to_owned()))
        };
        let groups: BTreeSet<String> = operations.iter().filter_map(group_of).collect();
        let mut page = locked(&self.hooks);
        page.expire(&groups);
        let mut ignored = Vec::new();
        for operation in operations {
            let group = group_of(operation);
            if operation.change == Change::Expire {
                page.expire(&group.into_iter().collect());
            } else if let Err(reason) = self.apply_one(&mut page, hook, operation, group) {
                ignored.push(reason);
            }
        }
        page.forget_empty();
        ignored
    }

    fn apply_one(
        &self,
        page: &mut Page,
        hook: &str,
        operation: &Operation,
        group: Option<String>,
    ) -> Result<(), Ignored> {
        let name = operation.name.replacen(PREFIX, &self.prefix, 1);
        let name = shown_name(&name, true);
        let shown: Vec<(Cow<'_, str>, &str)> = operation
            .labels
            .iter()
            .map(|(name, value)| (shown_label(name), value.as_str()))
            .filter(|(name, _)| name != HOOK)
            .collect();
        let mut labels: Vec<(&str, &str)> = shown
            .iter()
            .map(|(name, value)| (name.as_ref(), *value))
            .collect();
        labels.push((HOOK, hook));
        let target = |kind, bounds| Target {
            name: &name,
            labels: &labels,
            kind,
            bounds,
            group,
        };
        let none = Cow::Borrowed(&[] as &[f64]);
        match &operation.change {
            Change::Add(amount) => page
                .series(target(Kind::Counter, none))
                .map(|mut series| series.add(*amount)),
            Change::Set(value) => page
                .series(target(Kind::Gauge, none))
                .map(|mut series| series.set(*value)),
            Change::Observe { value, bounds } => page
                .series(target(Kind::Histogram, Cow::Owned(bounds.clone())))
                .map(|mut series| series.observe(*value)),
            Change::Expire => Ok(()),
        }
    }

    /// The operator's own metrics, in the Prometheus text format, sorted by name and labels.
    pub(crate) fn render(&self) -> String {
        let mut text = locked(&self.own).render();
        process::render(&mut text);
        text
    }

    /// The metrics of hooks, likewise.
    pub(crate) fn render_hooks(&self) -> String {
        locked(&self.hooks).render()
    }

    fn record(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        kind: Kind,
        bounds: &'static [f64],
        change: impl FnOnce(&mut page::SeriesRef<'_>),
    ) {
        if self.silent.contains(&name) {
            return;
        }
        let name = if name.contains(PREFIX) {
            name.replacen(PREFIX, &self.prefix, 1)
        } else {
            format!("{}{name}", self.prefix)
        };
        let target = Target {
            name: &name,
            labels,
            kind,
            bounds: Bounds::Borrowed(bounds),
            group: None,
        };
        // Our own names have one type each and few series: what cannot be recorded is a mistake that the tests show.
        if let Ok(mut series) = locked(&self.own).series(target) {
            change(&mut series);
        }
    }
}

/// A label name as it is shown. What is reserved must be asked of this one: `9_name__` is shown as `__name__`.
pub(crate) fn shown_label(name: &str) -> Cow<'_, str> {
    shown_name(name, false)
}

/// A poisoned lock only means that a recording thread panicked; the numbers are still the best there are.
fn locked(page: &Mutex<Page>) -> MutexGuard<'_, Page> {
    page.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
