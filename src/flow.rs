//! What runs hooks because something happened: dispatch, queues and schedules, joined for the main loop.
//!
//! Runs on the main thread and owns what the main loop needs to pass an event on. Never blocks: queues and the schedule thread
//! take whatever they are given at once.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};

use crate::dispatch::Dispatch;
use crate::hook::Registry;
use crate::hook::binding::MAIN_QUEUE;
use crate::hook::crontab::Crontab;
use crate::message::{Event, Task, Work};
use crate::queue::{Parts, Queues, Window};
use crate::schedule;

pub(crate) struct Flow {
    registry: Arc<Registry>,
    dispatch: Dispatch,
    queues: Queues,
    schedule: Sender<Crontab>,
    /// First tasks that wait for the API server.
    held: Vec<Task>,
    /// Events so far that queued something.
    count: u64,
}

impl Flow {
    /// Starts the threads, and the main queue with everything that needs no API server: an onStartup hook is run as soon as
    /// hooks are known. From the first hook that watches something, all the rest keeps its place behind it.
    pub(crate) fn start(parts: Parts, stopped: Receiver<Infallible>) -> io::Result<Flow> {
        let registry = Arc::clone(&parts.registry);
        let schedule = schedule::start(&parts.events, stopped)?;
        let dispatch = Dispatch::new(Arc::clone(&registry));
        let queues = Queues::start(parts, &dispatch.queues())?;
        let mut first = dispatch.first_tasks(Instant::now());
        let needs_server = |task: &Task| matches!(task.work, Work::EnableKubernetes);
        let free = first.iter().position(needs_server).unwrap_or(first.len());
        let held = first.split_off(free);
        for task in first {
            queues.push(MAIN_QUEUE, task);
        }
        Ok(Flow {
            registry,
            dispatch,
            queues,
            schedule,
            held,
            count: 0,
        })
    }

    /// The API server answers.
    pub(crate) fn connected(&mut self) {
        let now = Instant::now();
        for mut task in self.held.drain(..) {
            task.queued = now;
            self.queues.push(MAIN_QUEUE, task);
        }
    }

    /// Events about objects, schedules and enabled bindings; others are none of its business.
    pub(crate) fn react(&mut self, event: Event) {
        let now = Instant::now();
        let queued = match event {
            Event::Changed {
                binding,
                change,
                item,
                key,
            } => {
                let queued = self.dispatch.changed(binding, change, item, key, now);
                queued.into_iter().collect()
            }
            Event::Tick { crontab } => self.dispatch.tick(&crontab, now),
            Event::KubernetesEnabled { hook } => self.dispatch.kubernetes_enabled(hook, now),
            Event::SchedulesEnabled { hook } => {
                self.enable_schedules(hook);
                return;
            }
            _ => return,
        };
        self.count = self.count.saturating_add(1);
        for (queue, mut task) in queued {
            if let Work::Run(run) = &mut task.work {
                run.event_id = self.count;
            }
            self.queues.push(queue, task);
        }
    }

    fn enable_schedules(&mut self, hook: usize) {
        self.dispatch.schedules_enabled(hook);
        let Some(hook) = self.registry.hooks.get(hook) else {
            return;
        };
        for binding in &hook.config.schedules {
            // The schedule thread is gone only when the operator stops.
            let _ = self.schedule.send(binding.crontab.clone());
        }
    }

    /// To be called by the clock.
    pub(crate) fn count_long_queues(&mut self) {
        self.queues.count_long();
    }

    /// For people who look inside.
    pub(crate) fn window(&self) -> Window {
        self.queues.window()
    }

    /// No hook is begun any more; those that run go on.
    pub(crate) fn stop(&self) {
        self.queues.stop();
    }

    /// Threads that end after `stop`, each when its hook has ended.
    pub(crate) fn threads(&self) -> impl Iterator<Item = String> {
        self.queues.threads()
    }
}
