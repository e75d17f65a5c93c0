//! Queues: hooks run one after the other within a queue, and queues beside each other.
//!
//! ```text
//! main loop --push--> pending (lock) --take--> queue:NAME thread: rate limit -> combine -> run -> open gates
//!                                                     ^----------- failed: pause, same task again
//! ```
//! `Queues` is the main loop's handle; `worker` is the thread, `pending` what waits, `combine` and `retry` the pure rules, `run` one
//! execution of a hook. A queue never answers HTTP and never decides what an event means. INVARIANT: pushing never blocks on a hook.

mod combine;
mod pending;
mod retry;
mod run;
#[cfg(test)]
mod tests;
mod view;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use log::{Level, debug, error};

use self::pending::Pending;
use self::run::{Labels, Runner};
use self::worker::Worker;
use crate::executor::Executor;
use crate::hook::{Hook, Registry};
use crate::message::{BindingId, Event, QueueView, Snapshot, Task, Work};
use crate::metrics::{ACTION_SECONDS, Metrics};
use crate::operation::Perform;
use crate::pace::Pace;
use crate::threads;

/// How long queues take to change their lists of tasks. Only this metric can be turned off.
pub(crate) const ACTION_METRIC: &str = "tasks_queue_action_duration_seconds";
/// From so many waiting tasks on, a hook is shown by itself. As in the original.
const LONG: usize = 20;

/// What queues ask of the monitors.
pub(crate) trait Monitors: Send + Sync {
    /// Watches what the kubernetes bindings of a hook name; returns when their objects are known. May be called again.
    fn enable(&self, hook: usize) -> Result<(), String>;
    /// The objects of a binding now.
    fn snapshot(&self, id: BindingId) -> Snapshot;
    /// The same for a run that tells the hook of all objects: what changed before this moment need not be told again.
    fn synchronization(&self, id: BindingId) -> Snapshot;
    /// Lets the events of a binding flow, those held back first.
    fn open(&self, id: BindingId);
}

/// What queues need to work.
pub(crate) struct Parts {
    pub(crate) registry: Arc<Registry>,
    pub(crate) executor: Executor,
    pub(crate) monitors: Arc<dyn Monitors>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Sender<Event>,
    /// Carries out what hooks want changed in the cluster.
    pub(crate) operations: Arc<dyn Perform>,
    pub(crate) proxy_hook_json: bool,
}

/// All queues, as the main loop sees them.
pub(crate) struct Queues {
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
    lanes: BTreeMap<String, Arc<Pending>>,
    paces: Arc<[Pace]>,
    ids: Arc<Ids>,
    /// Queues and hooks that are shown because so many tasks wait, or waited when it was looked last.
    long: BTreeSet<(String, usize)>,
}

impl Queues {
    /// Starts one thread for each name.
    pub(crate) fn start(parts: Parts, names: &[String]) -> io::Result<Queues> {
        let Parts {
            registry,
            executor,
            monitors,
            metrics,
            events,
            operations,
            proxy_hook_json,
        } = parts;
        let queues = Queues {
            paces: registry.hooks.iter().map(pace).collect(),
            lanes: names
                .iter()
                .map(|name| (name.clone(), Arc::new(Pending::new())))
                .collect(),
            registry,
            metrics,
            ids: Arc::default(),
            long: BTreeSet::new(),
        };
        let runner = Arc::new(Runner {
            executor,
            monitors: Arc::clone(&monitors),
            metrics: Arc::clone(&queues.metrics),
            operations,
            proxy_hook_json,
        });
        for (name, pending) in &queues.lanes {
            let worker = Worker {
                queue: name.clone(),
                pending: Arc::clone(pending),
                registry: Arc::clone(&queues.registry),
                metrics: Arc::clone(&queues.metrics),
                ids: Arc::clone(&queues.ids),
                monitors: Arc::clone(&monitors),
                paces: Arc::clone(&queues.paces),
                events: events.clone(),
                runs: Arc::clone(&runner) as Arc<dyn worker::Runs>,
            };
            report_length(&queues.metrics, name, pending);
            threads::spawn(&thread_name(name), &events, move || worker.serve())?;
        }
        Ok(queues)
    }

    /// Puts a task at the end of a queue.
    pub(crate) fn push(&self, queue: &str, mut task: Task) {
        let Some(pending) = self.lanes.get(queue) else {
            error!(queue = queue; "Possible bug!!! Got task for queue but queue is not created yet.");
            return;
        };
        let hook = self.registry.hooks.get(task.hook);
        if let Some(hook) = hook {
            announce(hook, &mut task, queue, &self.ids);
        }
        let merged = timed(&self.metrics, queue, "AddLast", || {
            pending.push(task, &self.registry)
        });
        if merged > 0 {
            let name = hook.map_or("", |hook| hook.name.as_str());
            self.metrics.add(
                "d8_telemetry_{PREFIX}tasks_queue_compaction_operations_total",
                &[("queue_name", queue), ("hook", name)],
                1.0,
            );
            debug!(hook = name, queue = queue, count = merged; "tasks of a long queue are joined");
        }
        report_length(&self.metrics, queue, pending);
    }

    /// Shows the hooks whose tasks pile up, and those whose tasks have become fewer again.
    pub(crate) fn count_long(&mut self) {
        let mut counts: BTreeMap<(String, usize), usize> = BTreeMap::new();
        for shown in std::mem::take(&mut self.long) {
            counts.insert(shown, 0);
        }
        for (queue, pending) in &self.lanes {
            for (hook, count) in pending.runs_by_hook() {
                if count > LONG {
                    self.long.insert((queue.clone(), hook));
                    counts.insert((queue.clone(), hook), count);
                }
            }
        }
        for ((queue, hook), count) in counts {
            let Some(hook) = self.registry.hooks.get(hook) else {
                continue;
            };
            self.metrics.set(
                "d8_telemetry_{PREFIX}tasks_queue_compaction_tasks_by_hook",
                &[("queue_name", &queue), ("hook", &hook.name)],
                u32::try_from(count).unwrap_or(u32::MAX).into(),
            );
        }
    }

    /// A handle for people who look inside.
    pub(crate) fn window(&self) -> Window {
        Window {
            registry: Arc::clone(&self.registry),
            lanes: self.lanes.clone(),
        }
    }

    /// No task is begun any more; hooks that run go on.
    pub(crate) fn stop(&self) {
        for pending in self.lanes.values() {
            pending.stop();
        }
        for pace in &*self.paces {
            pace.stop();
        }
    }

    /// The threads behind the queues.
    pub(crate) fn threads(&self) -> impl Iterator<Item = String> {
        self.lanes.keys().map(|name| thread_name(name))
    }
}

/// Shows all queues to any thread, without holding up any of them.
pub(crate) struct Window {
    registry: Arc<Registry>,
    lanes: BTreeMap<String, Arc<Pending>>,
}

impl Window {
    /// By name.
    pub(crate) fn queues(&self) -> Vec<QueueView> {
        let lanes = self.lanes.iter();
        lanes
            .map(|(name, pending)| pending.copy().view(name, &self.registry))
            .collect()
    }
}

fn thread_name(queue: &str) -> String {
    format!("queue:{queue}")
}

/// How often a hook may run.
fn pace(hook: &Hook) -> Pace {
    let limit = hook.config.rate_limit;
    let (interval, burst) =
        limit.map_or((Duration::ZERO, 1), |limit| (limit.interval, limit.burst));
    Pace::every(interval, burst)
}

/// The numbers of tasks, over all queues.
#[derive(Default)]
struct Ids(AtomicU64);

/// Gives a run its number, and says that it is queued.
fn announce(hook: &Hook, task: &mut Task, queue: &str, ids: &Ids) {
    if let Work::Run(run) = &mut task.work {
        run.task_id = ids.0.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        Labels::of(hook, run, queue).say(Level::Info, "queue task");
    }
}

/// Does something with the tasks of a queue, and notes how long it took. The names of actions are the original's.
fn timed<T>(metrics: &Metrics, queue: &str, action: &str, act: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = act();
    metrics.observe_within(
        ACTION_SECONDS,
        ACTION_METRIC,
        &[("queue_name", queue), ("queue_action", action)],
        began.elapsed().as_secs_f64(),
    );
    result
}

/// Both ends of a queue report its length, so the last to write may hold an old number: each looks again after writing.
fn report_length(metrics: &Metrics, queue: &str, pending: &Pending) {
    let mut length = pending.len();
    loop {
        let shown = u32::try_from(length).unwrap_or(u32::MAX);
        metrics.set("tasks_queue_length", &[("queue", queue)], f64::from(shown));
        let now = pending.len();
        if now == length {
            return;
        }
        length = now;
    }
}
