//! The tasks that wait in one queue, behind one lock.
//!
//! The main loop pushes, the queue's thread takes; both hold the lock for moments only, so neither waits for a hook. That a push
//! lands here and not in a channel is what bounds a queue behind a hook that hangs: it is compacted while nobody takes from it.
//! The task being worked on is not in here, so nothing can be joined to it behind its back; only notes about it are, for people
//! who look inside.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::combine;
use super::view::{Copied, Head, Line};
use crate::hook::{Hook, Registry};
use crate::message::{HookRun, Origin, Task, Work};

/// So many tasks of one hook, in a queue longer than that, are joined. As in the original.
const LONG: usize = 100;

pub(super) struct Pending {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    tasks: VecDeque<Task>,
    /// How many movable tasks of each hook are waiting.
    movable: HashMap<usize, usize>,
    is_busy: bool,
    is_stopped: bool,
    /// What is told of the task being worked on.
    head: Option<Head>,
    /// When the last task was done.
    idle: Instant,
}

impl Pending {
    pub(super) fn new() -> Pending {
        Pending {
            state: Mutex::new(State {
                tasks: VecDeque::new(),
                movable: HashMap::new(),
                is_busy: false,
                is_stopped: false,
                head: None,
                idle: Instant::now(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Puts a task at the end, and answers how many tasks a compaction then made fewer.
    pub(super) fn push(&self, task: Task, registry: &Registry) -> usize {
        let mut state = self.locked();
        let merged = state.push(task, registry);
        self.changed.notify_all();
        merged
    }

    /// Puts tasks before everything that waits, in their order. They are never movable: only first lists of objects go here.
    pub(super) fn push_first(&self, tasks: Vec<Task>) {
        let mut state = self.locked();
        for task in tasks.into_iter().rev() {
            state.tasks.push_front(task);
        }
        self.changed.notify_all();
    }

    /// The next task, as soon as there is one. None: stopped. The caller is busy with it until it calls `finish`.
    pub(super) fn take(&self, registry: &Registry) -> Option<Task> {
        let mut state = self.locked();
        loop {
            if state.is_stopped {
                return None;
            }
            if let Some(task) = state.pop(registry) {
                state.is_busy = true;
                state.head = Head::of(&task);
                return Some(task);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn finish(&self) {
        let mut state = self.locked();
        state.is_busy = false;
        state.head = None;
        state.idle = Instant::now();
    }

    /// Notes something about the task being worked on.
    pub(super) fn note(&self, change: impl FnOnce(&mut Head)) {
        if let Some(head) = &mut self.locked().head {
            change(head);
        }
    }

    /// What there is to see. Copies indexes and times only, so that the lock is held for moments however long the queue is.
    pub(super) fn copy(&self) -> Copied {
        let state = self.locked();
        Copied {
            head: state.head.clone(),
            waiting: state.tasks.iter().filter_map(Line::of).collect(),
            idle: state.idle,
            is_stopped: state.is_stopped,
        }
    }

    /// Joins the tasks directly behind the one that is about to run.
    pub(super) fn combine(
        &self,
        index: usize,
        hook: &Hook,
        run: &mut HookRun,
    ) -> (Vec<Origin>, usize) {
        let mut state = self.locked();
        let waiting = state.tasks.len();
        let combined = combine::combine(index, hook, run, &mut state.tasks);
        if let Some(head) = &mut state.head {
            head.joined(run.causes.len());
        }
        if state.tasks.len() < waiting {
            state.count_again(index, hook);
        }
        combined
    }

    /// Waits, whatever is pushed meanwhile. False: stopped.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.locked();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.is_stopped || left.is_zero() {
                return !state.is_stopped;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Tasks in the queue, with the one being worked on.
    pub(super) fn len(&self) -> usize {
        let state = self.locked();
        state.tasks.len() + usize::from(state.is_busy)
    }

    /// How many runs of each hook are waiting.
    pub(super) fn runs_by_hook(&self) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        for task in &self.locked().tasks {
            if matches!(task.work, Work::Run(_)) {
                *counts.entry(task.hook).or_default() += 1;
            }
        }
        counts
    }

    /// Nothing is taken any more.
    pub(super) fn stop(&self) {
        self.locked().is_stopped = true;
        self.changed.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.locked().is_stopped
    }

    /// A poisoned lock only means that a thread panicked between two changes; each leaves the tasks whole.
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, task: Task, registry: &Registry) -> usize {
        let (index, hook) = (task.hook, registry.hooks.get(task.hook));
        let movable = hook.filter(|hook| combine::is_movable(hook, &task));
        self.tasks.push_back(task);
        let Some(hook) = movable else {
            return 0;
        };
        let count = self.movable.entry(index).or_default();
        *count += 1;
        if *count < LONG || self.tasks.len() <= LONG {
            return 0;
        }
        *count = 1;
        combine::compact(index, hook, &mut self.tasks)
    }

    fn pop(&mut self, registry: &Registry) -> Option<Task> {
        let task = self.tasks.pop_front()?;
        let hook = registry.hooks.get(task.hook);
        if hook.is_some_and(|hook| combine::is_movable(hook, &task))
            && let Some(count) = self.movable.get_mut(&task.hook)
        {
            *count = count.saturating_sub(1);
        }
        Some(task)
    }

    fn count_again(&mut self, index: usize, hook: &Hook) {
        let is_movable = |task: &&Task| task.hook == index && combine::is_movable(hook, task);
        let count = self.tasks.iter().filter(is_movable).count();
        self.movable.insert(index, count);
    }
}
