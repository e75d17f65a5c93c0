//! One run of a hook from a queue: its binding contexts, its process, what it left behind.
//!
//! Runs on the queue's thread. Snapshots are read here, at the moment of execution, one copy of each binding for the whole run,
//! and streamed to the file from the bytes of the store. Never retries and never decides what a failure means.

use std::io::{self, Write};
use std::sync::Arc;

use log::{Level, log, warn};

use super::Monitors;
use super::combine::group;
use super::worker::{RunFailure, Runs};
use crate::executor::{Executor, Failure, Outcome, Run, RunKind, Stream, Usage};
use crate::hook::Hook;
use crate::hook::binding::{ON_STARTUP, Version};
use crate::hook::context::{self, BindingContext, Reason, write_contexts};
use crate::hook::metric::Batch;
use crate::logger::HookLog;
use crate::message::{BindingId, Cause, HookRun, Origin, Snapshot};
use crate::metrics::Metrics;
use crate::operation::{Order, Perform, Scope, Undone};

/// What the original calls a task that runs a hook.
pub(super) const TASK: &str = "HookRun";

/// Who a run is, in logs and metrics: the first of the tasks that were joined.
#[derive(Clone, Copy)]
pub(super) struct Labels<'a> {
    pub(super) hook: &'a str,
    pub(super) binding: &'a str,
    pub(super) event: &'static str,
    pub(super) queue: &'a str,
    pub(super) task_id: u64,
    pub(super) event_id: u64,
    head: Origin,
}

impl<'a> Labels<'a> {
    pub(super) fn of(hook: &'a Hook, run: &HookRun, queue: &'a str) -> Labels<'a> {
        Labels {
            hook: &hook.name,
            binding: binding_name(hook, run.head),
            event: event_name(run.head),
            queue,
            task_id: run.task_id,
            event_id: run.event_id,
            head: run.head,
        }
    }

    /// Logs a line about the task.
    pub(super) fn say(&self, level: Level, text: &str) {
        log!(
            level,
            hook = self.hook, binding = self.binding, event = self.event, "event.id":% = self.event_id,
            queue = self.queue, task = TASK, "task.id":% = self.task_id; "{text}"
        );
    }

    /// As metrics are labelled in the original: start runs have neither binding nor queue.
    pub(super) fn for_metrics(&self) -> [(&'static str, &'a str); 3] {
        let (binding, queue) = match self.head {
            Origin::OnStartup => ("", ""),
            _ => (self.binding, self.queue),
        };
        [("hook", self.hook), ("binding", binding), ("queue", queue)]
    }
}

/// Runs hooks as processes.
pub(super) struct Runner {
    pub(super) executor: Executor,
    pub(super) monitors: Arc<dyn Monitors>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) operations: Arc<dyn Perform>,
    pub(super) proxy_hook_json: bool,
}

impl Runs for Runner {
    fn run(
        &self,
        index: usize,
        hook: &Hook,
        run: &HookRun,
        labels: &Labels<'_>,
    ) -> Result<Usage, RunFailure> {
        let mut output = HookLog::new(
            self.proxy_hook_json,
            &[
                ("hook", labels.hook),
                ("binding", labels.binding),
                ("event", labels.event),
                ("event.id", &labels.event_id.to_string()),
                ("queue", labels.queue),
                ("task", TASK),
                ("task.id", &labels.task_id.to_string()),
            ],
        );
        let mut write_input = |file: &mut dyn Write| {
            let copies = Copies::read(self.monitors.as_ref(), index, hook, run);
            write_causes(file, hook, &run.causes, &copies)
        };
        let outcome = self.executor.run(Run {
            hook_name: &hook.name,
            path: &hook.path,
            kind: RunKind::Other,
            write_input: &mut write_input,
            deadline: None,
            output: &mut |stream, text| match stream {
                Stream::Stdout => output.stdout(text),
                Stream::Stderr => output.stderr(text),
            },
        });
        output.finish();
        let outcome = outcome.map_err(|error| {
            self.change_despite_failure(&error.patches.0, labels);
            match error.failure {
                Failure::Stopped => RunFailure::Stopped,
                _ => RunFailure::Failed(error.to_string()),
            }
        })?;
        self.apply(&outcome, labels)?;
        Ok(outcome.usage)
    }
}

impl Runner {
    /// What a hook asked for by the files it left. All of them are read before anything is done. An error fails the run.
    fn apply(&self, outcome: &Outcome, labels: &Labels<'_>) -> Result<(), RunFailure> {
        let metrics = Batch::parse(&outcome.metrics).map_err(|error| {
            self.change_despite_failure(&outcome.patches, labels);
            RunFailure::Failed(error.to_string())
        })?;
        self.change_objects(&outcome.patches, Scope::All, labels)?;
        metrics.apply(labels.hook, &self.metrics);
        Ok(())
    }

    /// A hook that failed may have left operations that are meant for that case.
    fn change_despite_failure(&self, file: &[u8], labels: &Labels<'_>) {
        let changed = self.change_objects(file, Scope::DespiteFailure, labels);
        if let Err(RunFailure::Failed(reason)) = changed {
            warn!(hook = labels.hook, binding = labels.binding, queue = labels.queue, error = reason.as_str();
                "object operations of a failed run are not all carried out");
        }
    }

    fn change_objects(
        &self,
        file: &[u8],
        scope: Scope,
        labels: &Labels<'_>,
    ) -> Result<(), RunFailure> {
        let order = Order {
            file,
            scope,
            until: None,
            hook: labels.hook,
            binding: labels.binding,
        };
        self.operations
            .perform(&order)
            .map_err(|undone| match undone {
                Undone::Stopped => RunFailure::Stopped,
                Undone::Failed(reason) => RunFailure::Failed(reason),
            })
    }
}

/// The kind of binding, as hooks write it in their configuration.
pub(super) fn event_name(origin: Origin) -> &'static str {
    match origin {
        Origin::OnStartup => "onStartup",
        Origin::Schedule(_) => "schedule",
        Origin::Synchronization(_) | Origin::Change(_) => "kubernetes",
    }
}

pub(super) fn binding_name(hook: &Hook, origin: Origin) -> &str {
    let config = &hook.config;
    let name = match origin {
        Origin::OnStartup => Some(ON_STARTUP),
        Origin::Schedule(binding) => config
            .schedules
            .get(binding)
            .map(|found| found.name.as_str()),
        Origin::Synchronization(binding) | Origin::Change(binding) => config
            .kubernetes
            .get(binding)
            .map(|found| found.name.as_str()),
    };
    name.unwrap_or_default()
}

/// The objects of every binding that a run shows, all from one moment, by the binding's index.
pub(super) struct Copies(Vec<(usize, Snapshot)>);

static NO_OBJECTS: Snapshot = Vec::new();

impl Copies {
    pub(super) fn read(
        monitors: &dyn Monitors,
        index: usize,
        hook: &Hook,
        run: &HookRun,
    ) -> Copies {
        let mut copies = Copies(Vec::new());
        let id = |binding| BindingId {
            hook: index,
            binding,
        };
        for binding in &run.opens {
            copies.add(*binding, || monitors.synchronization(id(*binding)));
        }
        for cause in &run.causes {
            for name in included(hook, cause.origin) {
                if let Some(binding) = named(hook, name) {
                    copies.add(binding, || monitors.snapshot(id(binding)));
                }
            }
        }
        copies
    }

    fn add(&mut self, binding: usize, read: impl FnOnce() -> Snapshot) {
        if !self.0.iter().any(|(known, _)| *known == binding) {
            self.0.push((binding, read()));
        }
    }

    fn of(&self, binding: usize) -> &Snapshot {
        let found = self.0.iter().find(|(known, _)| *known == binding);
        found.map_or(&NO_OBJECTS, |(_, copy)| copy)
    }
}

/// The names of the snapshots that a run for this reason shows.
fn included(hook: &Hook, origin: Origin) -> &[String] {
    let config = &hook.config;
    let names = match origin {
        Origin::OnStartup => None,
        Origin::Schedule(binding) => config
            .schedules
            .get(binding)
            .map(|found| &found.include_snapshots_from),
        Origin::Synchronization(binding) | Origin::Change(binding) => config
            .kubernetes
            .get(binding)
            .map(|found| &found.include_snapshots_from),
    };
    names.map_or(&[], Vec::as_slice)
}

fn named(hook: &Hook, name: &str) -> Option<usize> {
    let mut bindings = hook.config.kubernetes.iter();
    bindings.position(|binding| binding.name == name)
}

pub(super) fn write_causes(
    file: &mut dyn Write,
    hook: &Hook,
    causes: &[Cause],
    copies: &Copies,
) -> io::Result<()> {
    let snapshots: Vec<Vec<context::Snapshot<'_>>> = causes
        .iter()
        .map(|cause| {
            let names = included(hook, cause.origin).iter();
            names
                .map(|name| context::Snapshot {
                    name,
                    items: named(hook, name).map_or(&NO_OBJECTS, |binding| copies.of(binding)),
                })
                .collect()
        })
        .collect();
    let contexts: Vec<BindingContext<'_>> = causes
        .iter()
        .zip(&snapshots)
        .map(|(cause, snapshots)| BindingContext {
            reason: reason(hook, cause, copies),
            snapshots,
            overlay: None,
        })
        .collect();
    write_contexts(file, &contexts)
}

fn reason<'a>(hook: &'a Hook, cause: &'a Cause, copies: &'a Copies) -> Reason<'a> {
    let binding = binding_name(hook, cause.origin);
    if hook.config.version == Version::V0 {
        return match &cause.change {
            Some(told) => Reason::V0Event {
                binding,
                change: told.change,
                namespace: &told.key.namespace,
                kind: &told.key.kind,
                name: &told.key.name,
            },
            None => Reason::V0 { binding },
        };
    }
    if let Some(group) = group(hook, cause.origin) {
        return Reason::Group { binding, group };
    }
    match (cause.origin, &cause.change) {
        (Origin::OnStartup, _) => Reason::OnStartup,
        (Origin::Synchronization(index), _) => Reason::Synchronization {
            binding,
            objects: copies.of(index),
        },
        (Origin::Change(_), Some(told)) => Reason::Event {
            binding,
            change: told.change,
            item: told.item.shown(),
        },
        // A change without its object cannot be: `dispatch` leaves it out for groups only.
        (Origin::Schedule(_) | Origin::Change(_), _) => Reason::Schedule { binding },
    }
}
