//! Cases for queues: what is joined and what is not, what a worker does with a task, and a model with random runs.

mod contexts;
mod joining;
mod model;
mod working;

use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_channel::{Receiver, unbounded};

use super::pending::Pending;
use super::run::Labels;
use super::worker::{RunFailure, Runs, Worker};
use super::{Monitors, pace};
use crate::executor::Usage;
use crate::hook::binding::Change;
use crate::hook::{Hook, Registry};
use crate::message::{
    BindingId, Cause, Event, HookRun, Item, ObjectChange, ObjectKey, Origin, Snapshot, Task, Work,
};
use crate::metrics::Metrics;

/// An object that is told apart by its number.
fn told(number: u64) -> Box<ObjectChange> {
    Box::new(ObjectChange {
        change: Change::Modified,
        item: Item {
            object: Some(Arc::from(number.to_string().into_bytes())),
            filter_result: None,
        },
        key: ObjectKey {
            namespace: "n".to_owned(),
            kind: "Pod".to_owned(),
            name: number.to_string(),
        },
    })
}

/// The number of `told`.
fn number(cause: &Cause) -> Option<u64> {
    let told = cause.change.as_ref()?;
    told.key.name.parse().ok()
}

fn run(hook: usize, origin: Origin) -> Task {
    Task::run(hook, origin, None, Instant::now())
}

fn runs(task: &Task) -> &HookRun {
    match &task.work {
        Work::Run(run) => run,
        other => panic!("no run: {other:?}"),
    }
}

type Answer = dyn Fn(usize, &HookRun) -> Result<(), RunFailure> + Send + Sync;

/// Monitors that remember what they were asked, and hooks that do what a closure says.
struct Fake {
    answer: Box<Answer>,
    asked: Mutex<Vec<String>>,
}

impl Fake {
    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

impl Monitors for Fake {
    fn enable(&self, hook: usize) -> Result<(), String> {
        self.note(format!("enable {hook}"));
        Ok(())
    }

    fn snapshot(&self, id: BindingId) -> Snapshot {
        self.note(format!("snapshot {}", id.binding));
        let item = |part: String| Item {
            object: Some(Arc::from(part.into_bytes())),
            filter_result: None,
        };
        vec![item(format!("\"object {}\"", id.binding))]
    }

    fn synchronization(&self, id: BindingId) -> Snapshot {
        self.note(format!("synchronization {}", id.binding));
        Snapshot::new()
    }

    fn open(&self, id: BindingId) {
        self.note(format!("open {}", id.binding));
    }
}

impl Runs for Fake {
    fn run(
        &self,
        index: usize,
        _: &Hook,
        run: &HookRun,
        _: &Labels<'_>,
    ) -> Result<Usage, RunFailure> {
        (self.answer)(index, run).map(|()| Usage::default())
    }
}

/// A worker without a thread, and the events that it sends.
struct Bench {
    worker: Worker,
    fake: Arc<Fake>,
    inbox: Receiver<Event>,
}

fn bench(
    registry: Registry,
    answer: impl Fn(usize, &HookRun) -> Result<(), RunFailure> + Send + Sync + 'static,
) -> Bench {
    let fake = Arc::new(Fake {
        answer: Box::new(answer),
        asked: Mutex::default(),
    });
    let (events, inbox) = unbounded();
    let worker = Worker {
        queue: "main".to_owned(),
        pending: Arc::new(Pending::new()),
        paces: registry.hooks.iter().map(pace).collect(),
        registry: Arc::new(registry),
        metrics: Arc::new(Metrics::new("")),
        ids: Arc::default(),
        monitors: Arc::clone(&fake) as Arc<dyn Monitors>,
        events,
        runs: Arc::clone(&fake) as Arc<dyn Runs>,
    };
    Bench {
        worker,
        fake,
        inbox,
    }
}
