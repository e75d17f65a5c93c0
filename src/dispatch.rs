//! From an event to tasks: which hook runs because of it, in which queue.
//!
//! Runs on the main thread and owns one bit a hook: whether its schedules count yet. Pure: no I/O, no lock, no thread; the clock
//! is the caller's. It decides nothing about when a task runs or what it is joined with: that is the queue's business.

use std::sync::Arc;
use std::time::Instant;

use crate::hook::Registry;
use crate::hook::binding::{Change, MAIN_QUEUE};
use crate::message::{BindingId, Item, ObjectChange, ObjectKey, Origin, Task, Work};

/// A task and the name of its queue.
pub(crate) type Queued<'a> = (&'a str, Task);

pub(crate) struct Dispatch {
    registry: Arc<Registry>,
    /// Hooks, by their index, whose schedules count.
    scheduled: Vec<bool>,
}

impl Dispatch {
    pub(crate) fn new(registry: Arc<Registry>) -> Dispatch {
        let scheduled = vec![false; registry.hooks.len()];
        Dispatch {
            registry,
            scheduled,
        }
    }

    /// The names of all queues, each once: main, then the others as they stand in the hooks.
    pub(crate) fn queues(&self) -> Vec<String> {
        let mut names = vec![MAIN_QUEUE.to_owned()];
        for hook in &self.registry.hooks {
            let config = &hook.config;
            let schedules = config.schedules.iter().map(|binding| &binding.queue);
            let kubernetes = config.kubernetes.iter().map(|binding| &binding.queue);
            for name in schedules.chain(kubernetes) {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        names
    }

    /// What the main queue begins with: onStartup runs by their order, then what enables the bindings of each hook, and at last
    /// the word that all of this is done.
    pub(crate) fn first_tasks(&self, now: Instant) -> Vec<Task> {
        let on_startup = self.registry.on_startup();
        let mut tasks: Vec<Task> = on_startup
            .into_iter()
            .map(|hook| Task::run(hook, Origin::OnStartup, None, now))
            .collect();
        for (index, hook) in self.registry.hooks.iter().enumerate() {
            if !hook.config.kubernetes.is_empty() {
                tasks.push(Task::new(index, Work::EnableKubernetes, now));
            }
            if !hook.config.schedules.is_empty() {
                tasks.push(Task::new(index, Work::EnableSchedules, now));
            }
        }
        tasks.push(Task::new(0, Work::Announce, now));
        tasks
    }

    /// The Synchronization runs that do not take their turn in the main queue. The others are queued by the main queue itself,
    /// which puts them before everything else.
    pub(crate) fn kubernetes_enabled(&self, hook: usize, now: Instant) -> Vec<Queued<'_>> {
        let Some(found) = self.registry.hooks.get(hook) else {
            return Vec::new();
        };
        let bindings = found.config.kubernetes.iter().enumerate();
        bindings
            .map(|(index, binding)| (index, binding.synchronization_queue()))
            .filter(|(_, queue)| *queue != MAIN_QUEUE)
            .map(|(index, queue)| {
                (
                    queue,
                    Task::run(hook, Origin::Synchronization(index), None, now),
                )
            })
            .collect()
    }

    /// From now on the ticks of this hook's crontabs count.
    pub(crate) fn schedules_enabled(&mut self, hook: usize) {
        if let Some(scheduled) = self.scheduled.get_mut(hook) {
            *scheduled = true;
        }
    }

    /// One task for every binding with this crontab: hooks in their order, bindings as configured.
    pub(crate) fn tick(&self, crontab: &str, now: Instant) -> Vec<Queued<'_>> {
        let mut queued = Vec::new();
        let hooks = self.registry.hooks.iter().zip(&self.scheduled).enumerate();
        for (hook, (found, _)) in hooks.filter(|(_, (_, scheduled))| **scheduled) {
            for (index, binding) in found.config.schedules.iter().enumerate() {
                if binding.crontab.text() == crontab {
                    let task = Task::run(hook, Origin::Schedule(index), None, now);
                    queued.push((binding.queue.as_str(), task));
                }
            }
        }
        queued
    }

    /// The monitor has already seen to it that the binding wants this change and that its Synchronization is done.
    pub(crate) fn changed(
        &self,
        id: BindingId,
        change: Change,
        item: Item,
        key: ObjectKey,
        now: Instant,
    ) -> Option<Queued<'_>> {
        let hook = self.registry.hooks.get(id.hook)?;
        let binding = hook.config.kubernetes.get(id.binding)?;
        let told = binding
            .group
            .is_none()
            .then(|| Box::new(ObjectChange { change, item, key }));
        let task = Task::run(id.hook, Origin::Change(id.binding), told, now);
        Some((&binding.queue, task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Cause;

    fn dispatch(hooks: &[(&str, &str)]) -> Dispatch {
        Dispatch::new(Arc::new(Registry::of(hooks)))
    }

    /// `hook:work` for every task, with the hook's name.
    fn shown(dispatch: &Dispatch, tasks: &[Task]) -> Vec<String> {
        let name = |task: &Task| dispatch.registry.hooks[task.hook].name.clone();
        tasks
            .iter()
            .map(|task| match &task.work {
                Work::Run(run) => format!("{} {:?}", name(task), run.head),
                Work::Announce => "announce".to_owned(),
                other => format!("{} {other:?}", name(task)),
            })
            .collect()
    }

    fn queued(dispatch: &Dispatch, queued: Vec<Queued<'_>>) -> Vec<(String, String)> {
        queued
            .into_iter()
            .map(|(queue, task)| (queue.to_owned(), shown(dispatch, &[task]).remove(0)))
            .collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |text: &str| text.to_owned();
        let pairs = expected.iter();
        pairs.map(|(one, two)| (owned(one), owned(two))).collect()
    }

    const PODS: &str = "configVersion: v1\nkubernetes: [{kind: Pod}]\n";

    #[test]
    fn the_main_queue_begins_with_start_runs_and_then_enables_hook_by_hook() {
        let both = "configVersion: v1\nonStartup: 10\nkubernetes: [{kind: Pod}]\nschedule: [{crontab: '* * * * *'}]\n";
        let dispatch = dispatch(&[
            ("a.sh", both),
            ("b.sh", PODS),
            ("c.sh", "configVersion: v1\nonStartup: 1\n"),
            ("d.sh", "configVersion: v1\nonStartup: 10\n"),
            ("e.sh", "schedule: [{crontab: '@hourly'}]\n"),
        ]);
        let tasks = dispatch.first_tasks(Instant::now());
        assert_eq!(
            shown(&dispatch, &tasks),
            [
                "c.sh OnStartup",
                "a.sh OnStartup",
                "d.sh OnStartup",
                "a.sh EnableKubernetes",
                "a.sh EnableSchedules",
                "b.sh EnableKubernetes",
                "e.sh EnableSchedules",
                "announce",
            ]
        );
    }

    #[test]
    fn queue_names_are_shared_by_all_hooks() {
        let dispatch = dispatch(&[
            (
                "a.sh",
                "configVersion: v1\nkubernetes: [{kind: Pod, queue: x}, {kind: Pod, queue: w}]\nschedule: [{crontab: '* * * * *', queue: z}]\n",
            ),
            (
                "b.sh",
                "configVersion: v1\nkubernetes: [{kind: Pod, queue: w}, {kind: Pod, queue: main}]\n",
            ),
        ]);
        assert_eq!(dispatch.queues(), ["main", "z", "x", "w"]);
    }

    #[test]
    fn a_tick_reaches_every_enabled_binding_with_that_very_text() {
        let two = "configVersion: v1\nschedule:\n- {name: a, crontab: '* * * * *', queue: x}\n- {name: b, crontab: '*/5 * * * *'}\n- {name: c, crontab: '* * * * *'}\n";
        let one = "configVersion: v1\nschedule: [{crontab: '* * * * *'}]\n";
        let mut dispatch = dispatch(&[("a.sh", two), ("b.sh", one), ("c.sh", one)]);
        let now = Instant::now();
        assert!(dispatch.tick("* * * * *", now).is_empty(), "none enabled");
        dispatch.schedules_enabled(2);
        dispatch.schedules_enabled(0);
        dispatch.schedules_enabled(99);
        assert_eq!(
            queued(&dispatch, dispatch.tick("* * * * *", now)),
            pairs(&[
                ("x", "a.sh Schedule(0)"),
                ("main", "a.sh Schedule(2)"),
                ("main", "c.sh Schedule(0)"),
            ])
        );
        assert!(dispatch.tick("*  * * * *", now).is_empty(), "other text");
    }

    #[test]
    fn only_bindings_that_opted_out_synchronize_outside_of_main() {
        let dispatch = dispatch(&[(
            "a.sh",
            "configVersion: v1\nkubernetes:\n- {kind: Pod, queue: x}\n- {kind: Pod, queue: x, waitForSynchronization: false}\n- {kind: Pod, waitForSynchronization: false}\n- {kind: Pod, queue: w, waitForSynchronization: false}\n",
        )]);
        let now = Instant::now();
        assert_eq!(
            queued(&dispatch, dispatch.kubernetes_enabled(0, now)),
            pairs(&[
                ("x", "a.sh Synchronization(1)"),
                ("w", "a.sh Synchronization(3)"),
            ])
        );
        assert!(dispatch.kubernetes_enabled(1, now).is_empty(), "no hook");
    }

    #[test]
    fn a_change_goes_to_the_queue_of_its_binding_and_groups_forget_the_object() {
        let dispatch = dispatch(&[(
            "a.sh",
            "configVersion: v1\nkubernetes: [{name: a, kind: Pod, queue: x}, {name: b, kind: Pod, group: g}]\n",
        )]);
        let item = Item {
            object: Some(Arc::from(*b"{}")),
            filter_result: None,
        };
        let key = ObjectKey {
            namespace: "n".to_owned(),
            kind: "Pod".to_owned(),
            name: "p".to_owned(),
        };
        let causes = |hook, binding| {
            let id = BindingId { hook, binding };
            let changed = dispatch.changed(
                id,
                Change::Modified,
                item.clone(),
                key.clone(),
                Instant::now(),
            );
            changed.map(|(queue, task)| match task.work {
                Work::Run(run) => (queue.to_owned(), run.causes),
                other => panic!("{other:?}"),
            })
        };
        let told = ObjectChange {
            change: Change::Modified,
            item: item.clone(),
            key: key.clone(),
        };
        let cause = |binding, change: Option<ObjectChange>| Cause {
            origin: Origin::Change(binding),
            change: change.map(Box::new),
        };
        assert_eq!(
            causes(0, 0),
            Some(("x".to_owned(), vec![cause(0, Some(told))]))
        );
        assert_eq!(
            causes(0, 1),
            Some(("main".to_owned(), vec![cause(1, None)]))
        );
        assert_eq!((causes(0, 2), causes(1, 0)), (None, None));
    }
}
