//! The thread of one queue: takes a task, works on it until it is done, takes the next.
//!
//! Owns the task it works on. A failed task is tried again after a pause, for ever, and everything behind it waits; that is the
//! promise of a queue. A panic fails the task and not the thread. The thread sleeps while there is nothing to do and ends when the
//! queue is stopped, but never in the middle of a hook: whoever stops queues decides how long hooks may go on.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use log::{Level, debug, error, info};

use super::pending::Pending;
use super::run::{Labels, TASK, binding_name};
use super::view::Head;
use super::{Ids, Monitors, announce, report_length, retry, timed};
use crate::executor::Usage;
use crate::hook::binding::{MAIN_QUEUE, Version};
use crate::hook::{Hook, Registry};
use crate::message::{BindingId, Event, HeadState, HookRun, Origin, Task, Work};
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::threads;

/// How a hook is executed; tests have their own way.
pub(super) trait Runs: Send + Sync {
    fn run(
        &self,
        index: usize,
        hook: &Hook,
        run: &HookRun,
        labels: &Labels<'_>,
    ) -> Result<Usage, RunFailure>;
}

/// Why a run did not succeed.
#[derive(Debug)]
pub(super) enum RunFailure {
    /// The operator is stopping.
    Stopped,
    Failed(String),
}

/// How one attempt at a task ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Done,
    /// It has to be tried again. Nothing was said about it yet.
    Failed(String),
    Stopped,
}

pub(super) struct Worker {
    pub(super) queue: String,
    pub(super) pending: Arc<Pending>,
    pub(super) registry: Arc<Registry>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) ids: Arc<Ids>,
    pub(super) monitors: Arc<dyn Monitors>,
    /// One for each hook.
    pub(super) paces: Arc<[Pace]>,
    pub(super) events: Sender<Event>,
    pub(super) runs: Arc<dyn Runs>,
}

impl Worker {
    pub(super) fn serve(&self) {
        while let Some(mut task) = self.pending.take(&self.registry) {
            self.work_off(&mut task);
            timed(&self.metrics, &self.queue, "RemoveFirst", || {
                self.pending.finish();
            });
            report_length(&self.metrics, &self.queue, &self.pending);
        }
    }

    fn work_off(&self, task: &mut Task) {
        loop {
            let attempt = catch_unwind(AssertUnwindSafe(|| self.attempt(task)));
            let by_panic = attempt.is_err();
            let reason = match attempt {
                Ok(Attempt::Done | Attempt::Stopped) => return,
                Ok(Attempt::Failed(reason)) => reason,
                Err(payload) => format!("panic: {}", threads::panic_text(payload.as_ref())),
            };
            let pause = retry::delay(task.failures, random());
            task.failures = task.failures.saturating_add(1);
            self.say_failure(task, &reason, pause);
            self.pending
                .note(|head| head.failed(task.failures, &reason, pause, by_panic));
            if !self.pending.pause(pause) {
                return;
            }
            task.queued = Instant::now();
            self.pending.note(Head::again);
        }
    }

    /// One attempt. Everything a task has gathered, such as what was joined to it, stays in it for the next.
    pub(super) fn attempt(&self, task: &mut Task) -> Attempt {
        let index = task.hook;
        let Some(hook) = self.registry.hooks.get(index) else {
            // Only the announcement belongs to no hook, when there is none.
            if matches!(task.work, Work::Announce) {
                self.tell(Event::Synchronized);
            }
            return Attempt::Done;
        };
        match &mut task.work {
            Work::Run(run) => self.run(index, hook, run, task.queued),
            Work::EnableKubernetes => self.enable(index, hook),
            Work::EnableSchedules => {
                self.tell(Event::SchedulesEnabled { hook: index });
                Attempt::Done
            }
            Work::Announce => {
                self.tell(Event::Synchronized);
                Attempt::Done
            }
        }
    }

    fn run(&self, index: usize, hook: &Hook, run: &mut HookRun, queued: Instant) -> Attempt {
        if is_skipped(hook, run.head) {
            debug!(hook = hook.name.as_str(), queue = self.queue.as_str(); "Synchronization is not wanted by the hook");
            self.open(index, hook, run);
            return Attempt::Done;
        }
        // Before joining: what arrives during the wait rides along.
        self.pending.note(|head| head.enter(HeadState::Held));
        if let Some(pace) = self.paces.get(index)
            && !pace.wait().1
        {
            return Attempt::Stopped;
        }
        let (joined, dropped) = timed(&self.metrics, &self.queue, "Filter", || {
            self.pending.combine(index, hook, run)
        });
        let labels = Labels::of(hook, run, &self.queue);
        if !joined.is_empty() {
            report_length(&self.metrics, &self.queue, &self.pending);
            let names: Vec<&str> = joined
                .iter()
                .map(|origin| binding_name(hook, *origin))
                .collect();
            info!(
                hook = labels.hook, queue = labels.queue, count = joined.len(), dropped = dropped,
                message = names.join(", ").as_str(); "Binding contexts from are dropped from queue"
            );
        }
        if self.pending.is_stopped() {
            return Attempt::Stopped;
        }
        self.metrics.add(
            "task_wait_in_queue_seconds_total",
            &labels.for_metrics(),
            queued.elapsed().as_secs_f64(),
        );
        labels.say(Level::Info, "Execute hook");
        self.pending.note(|head| head.enter(HeadState::Running));
        let started = Instant::now();
        let result = self.runs.run(index, hook, run, &labels);
        self.judge(index, hook, run, result, started.elapsed())
    }

    fn judge(
        &self,
        index: usize,
        hook: &Hook,
        run: &HookRun,
        result: Result<Usage, RunFailure>,
        elapsed: Duration,
    ) -> Attempt {
        let labels = Labels::of(hook, run, &self.queue);
        let counted = labels.for_metrics();
        let (attempt, success, errors, allowed) = match result {
            Ok(usage) => {
                self.count_usage(&counted, usage);
                labels.say(Level::Info, "Hook executed successfully");
                (Attempt::Done, 1.0, 0.0, 0.0)
            }
            Err(RunFailure::Stopped) => {
                info!(hook = labels.hook, queue = labels.queue; "hook is ended, the operator is stopping");
                return Attempt::Stopped;
            }
            Err(RunFailure::Failed(reason)) if allows_failure(hook, run.head) => {
                info!(
                    hook = labels.hook, binding = labels.binding, event = labels.event, "event.id":% = labels.event_id,
                    queue = labels.queue, task = TASK, "task.id":% = labels.task_id, error = reason.as_str();
                    "Hook failed, but allowed to fail"
                );
                (Attempt::Done, 0.0, 0.0, 1.0)
            }
            Err(RunFailure::Failed(reason)) => (Attempt::Failed(reason), 0.0, 1.0, 0.0),
        };
        let metrics = &self.metrics;
        metrics.observe("hook_run_seconds", &counted, elapsed.as_secs_f64());
        metrics.add("hook_run_success_total", &counted, success);
        metrics.add("hook_run_errors_total", &counted, errors);
        metrics.add("hook_run_allowed_errors_total", &counted, allowed);
        if attempt == Attempt::Done {
            self.open(index, hook, run);
        }
        attempt
    }

    fn count_usage(&self, labels: &[(&str, &str)], usage: Usage) {
        for (name, time) in [
            ("hook_run_user_cpu_seconds", usage.user),
            ("hook_run_sys_cpu_seconds", usage.system),
        ] {
            self.metrics.observe(name, labels, time.as_secs_f64());
        }
        if let Some(kib) = usage.most_memory {
            let bytes = f64::from(kib) * 1024.0;
            self.metrics.set("hook_run_max_rss_bytes", labels, bytes);
        }
    }

    /// The hook knows of all objects now: from here on it is told of changes.
    fn open(&self, index: usize, hook: &Hook, run: &HookRun) {
        for binding in &run.opens {
            info!(
                hook = hook.name.as_str(), binding = binding_name(hook, Origin::Change(*binding)), queue = self.queue.as_str();
                "Unlock kubernetes.Event tasks"
            );
            self.monitors.open(BindingId {
                hook: index,
                binding: *binding,
            });
        }
    }

    fn enable(&self, index: usize, hook: &Hook) -> Attempt {
        let label = [("hook", hook.name.as_str())];
        info!(hook = hook.name.as_str(), queue = self.queue.as_str(); "Enable kubernetes binding for hook");
        let started = Instant::now();
        let enabled = self.monitors.enable(index);
        let metrics = &self.metrics;
        metrics.set(
            "hook_enable_kubernetes_bindings_seconds",
            &label,
            started.elapsed().as_secs_f64(),
        );
        let (success, errors) = if enabled.is_ok() {
            (1.0, 0.0)
        } else {
            (0.0, 1.0)
        };
        metrics.set("hook_enable_kubernetes_bindings_success", &label, success);
        metrics.add(
            "hook_enable_kubernetes_bindings_errors_total",
            &label,
            errors,
        );
        if let Err(reason) = enabled {
            return if self.pending.is_stopped() {
                Attempt::Stopped
            } else {
                Attempt::Failed(reason)
            };
        }
        info!(hook = hook.name.as_str(), queue = self.queue.as_str(); "Kubernetes bindings for hook are enabled successfully");
        // First the event: a binding that synchronizes in another queue must stand there before any of its events.
        self.tell(Event::KubernetesEnabled { hook: index });
        let now = Instant::now();
        let mut tasks = Vec::new();
        for (binding, of) in hook.config.kubernetes.iter().enumerate() {
            if of.synchronization_queue() == MAIN_QUEUE {
                let origin = Origin::Synchronization(binding);
                let mut task = Task::run(index, origin, None, now);
                announce(hook, &mut task, MAIN_QUEUE, &self.ids);
                tasks.push(task);
            }
        }
        timed(&self.metrics, &self.queue, "AddFirst", || {
            self.pending.push_first(tasks);
        });
        Attempt::Done
    }

    fn say_failure(&self, task: &Task, reason: &str, pause: Duration) {
        let hook = self.registry.hooks.get(task.hook);
        let (queue, failed) = (self.queue.as_str(), task.failures);
        let seconds = pause.as_secs_f64();
        match (&task.work, hook) {
            (Work::Run(run), Some(hook)) => {
                let labels = Labels::of(hook, run, queue);
                error!(
                    hook = labels.hook, binding = labels.binding, event = labels.event, "event.id":% = labels.event_id,
                    queue = queue, task = TASK, "task.id":% = labels.task_id,
                    failedCount = failed, delay = seconds, error = reason; "Hook failed. Will retry after delay."
                );
            }
            (Work::EnableKubernetes, Some(hook)) => error!(
                hook = hook.name.as_str(), queue = queue, task = "EnableKubernetesBindings",
                failedCount = failed, delay = seconds, error = reason; "Enable Kubernetes binding for hook failed. Will retry after delay."
            ),
            _ => {
                error!(queue = queue, failedCount = failed, delay = seconds, error = reason; "task failed, will retry after delay")
            }
        }
    }

    /// The main loop may have ended: then nobody needs to know.
    fn tell(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

/// Version 0 has no Synchronization, and version 1 may do without.
fn is_skipped(hook: &Hook, head: Origin) -> bool {
    let Origin::Synchronization(binding) = head else {
        return false;
    };
    let binding = hook.config.kubernetes.get(binding);
    hook.config.version == Version::V0
        || binding.is_some_and(|binding| !binding.execute_on_synchronization)
}

fn allows_failure(hook: &Hook, head: Origin) -> bool {
    let config = &hook.config;
    match head {
        Origin::OnStartup => false,
        Origin::Schedule(binding) => config
            .schedules
            .get(binding)
            .is_some_and(|found| found.allow_failure),
        Origin::Synchronization(binding) | Origin::Change(binding) => config
            .kubernetes
            .get(binding)
            .is_some_and(|found| found.allow_failure),
    }
}

/// A number that differs from one call to the next; the standard library seeds every hasher anew.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
