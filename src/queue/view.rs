//! What a queue looks like from outside: notes about the task being worked on, and words for every task.
//!
//! The queue's thread writes the notes under the lock of `pending`, which for that costs it moments; whoever looks copies indexes and
//! times under the same lock and finds the words afterwards. Nobody who looks can hold up a queue, and nobody sees a task itself.

use std::time::{Duration, Instant};

use super::combine::group;
use super::run::{binding_name, event_name};
use crate::hook::{Hook, Registry};
use crate::message::{HeadState, HeadView, Origin, QueueView, Task, Work};

/// Enough of a task to describe it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    hook: usize,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Run(Origin),
    EnableKubernetes,
    EnableSchedules,
}

/// Notes about the task being worked on.
#[derive(Clone, Debug)]
pub(super) struct Head {
    line: Line,
    queued: Instant,
    state: HeadState,
    since: Instant,
    contexts: usize,
    failures: u32,
    error: Option<String>,
}

/// A queue at one moment.
pub(super) struct Copied {
    pub(super) head: Option<Head>,
    pub(super) waiting: Vec<Line>,
    /// Since when there has been nothing to do.
    pub(super) idle: Instant,
    pub(super) is_stopped: bool,
}

impl Line {
    /// None for the task that is only our own mark in the main queue.
    pub(super) fn of(task: &Task) -> Option<Line> {
        let what = match &task.work {
            Work::Run(run) => What::Run(run.head),
            Work::EnableKubernetes => What::EnableKubernetes,
            Work::EnableSchedules => What::EnableSchedules,
            Work::Announce => return None,
        };
        let hook = task.hook;
        Some(Line { hook, what })
    }

    /// In the form of the original, up to the failures.
    fn describe(self, queue: &str, registry: &Registry) -> String {
        let hook = registry.hooks.get(self.hook);
        let name = hook.map_or("", |hook| hook.name.as_str());
        let origin = match self.what {
            What::Run(origin) => origin,
            What::EnableKubernetes => {
                return format!(
                    "EnableKubernetesBindings:{queue}::{name}:EnableKubernetesBindings"
                );
            }
            What::EnableSchedules => {
                return format!("EnableScheduleBindings:{queue}::{name}:EnableScheduleBindings");
            }
        };
        let mut text = format!("HookRun:{queue}:{}:{name}", event_name(origin));
        if let Some(group) = hook.and_then(|hook| group(hook, origin)) {
            text.push_str(":group=");
            text.push_str(group);
        }
        let binding = self.binding(hook);
        if !binding.is_empty() {
            text.push(':');
            text.push_str(binding);
        }
        text
    }

    /// Start runs have no binding, as in the metrics.
    fn binding(self, hook: Option<&Hook>) -> &str {
        match (self.what, hook) {
            (What::Run(Origin::OnStartup), _) | (_, None) => "",
            (What::Run(origin), Some(hook)) => binding_name(hook, origin),
            (What::EnableKubernetes | What::EnableSchedules, Some(_)) => "",
        }
    }
}

impl Head {
    pub(super) fn of(task: &Task) -> Option<Head> {
        Some(Head {
            line: Line::of(task)?,
            queued: task.queued,
            state: HeadState::Running,
            since: Instant::now(),
            contexts: match &task.work {
                Work::Run(run) => run.causes.len(),
                _ => 0,
            },
            failures: task.failures,
            error: None,
        })
    }

    pub(super) fn enter(&mut self, state: HeadState) {
        self.state = state;
        self.since = Instant::now();
    }

    pub(super) fn joined(&mut self, contexts: usize) {
        self.contexts = contexts;
    }

    pub(super) fn failed(&mut self, failures: u32, error: &str, pause: Duration, by_panic: bool) {
        self.failures = failures;
        self.error = Some(error.to_owned());
        self.enter(HeadState::Paused { pause, by_panic });
    }

    /// It is tried again.
    pub(super) fn again(&mut self) {
        self.queued = Instant::now();
        self.enter(HeadState::Running);
    }

    fn describe(&self, queue: &str, registry: &Registry) -> String {
        let mut text = self.line.describe(queue, registry);
        if self.failures > 0 {
            text.push_str(&format!(":failures {}", self.failures));
        }
        if let Some(error) = &self.error {
            text.push(':');
            text.push_str(error);
        }
        text
    }

    fn view(&self, registry: &Registry) -> HeadView {
        let hook = registry.hooks.get(self.line.hook);
        HeadView {
            hook: hook.map_or_else(String::new, |hook| hook.name.clone()),
            binding: self.line.binding(hook).to_owned(),
            state: self.state,
            since: self.since.elapsed(),
            queued: self.queued.elapsed(),
            contexts: self.contexts,
            failures: self.failures,
            error: self.error.clone(),
        }
    }
}

impl Copied {
    pub(super) fn view(&self, name: &str, registry: &Registry) -> QueueView {
        let head = self.head.iter().map(|head| head.describe(name, registry));
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|line| line.describe(name, registry));
        QueueView {
            name: name.to_owned(),
            status: self.status(),
            tasks: head.chain(waiting).collect(),
            head: self.head.as_ref().map(|head| head.view(registry)),
        }
    }

    fn status(&self) -> String {
        let Some(head) = &self.head else {
            if self.is_stopped {
                return "stop".to_owned();
            }
            return format!("waiting for task {}s", self.idle.elapsed().as_secs());
        };
        match head.state {
            HeadState::Running | HeadState::Held => "run first task".to_owned(),
            HeadState::Paused { pause, by_panic } => {
                let why = if by_panic { "panic" } else { "fail" };
                let left = pause.saturating_sub(head.since.elapsed());
                let (pause, left) = (in_tenths(pause), in_tenths(left));
                format!("sleep after {why} for {pause} ({left} left of {pause} delay)")
            }
        }
    }
}

/// Seconds as Go prints them, cut to tenths: `5s`, `6.3s`. Pauses are never longer than a minute.
fn in_tenths(duration: Duration) -> String {
    let tenths = duration.as_millis() / 100;
    match tenths % 10 {
        0 => format!("{}s", tenths / 10),
        tenth => format!("{}.{tenth}s", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> Registry {
        Registry::of(&[(
            "dir/a.sh",
            "configVersion: v1\nonStartup: 1\nschedule: [{name: tick, crontab: '* * * * *', group: g}]\n\
             kubernetes: [{name: pods, kind: Pod}]\n",
        )])
    }

    /// 8.2 of the original's behaviour: the line of a task.
    #[test]
    fn every_task_is_described_in_the_form_of_the_original() {
        let registry = registry();
        let now = Instant::now();
        let run = |origin| Task::run(0, origin, None, now);
        for (task, expected) in [
            (run(Origin::OnStartup), "HookRun:main:onStartup:dir/a.sh"),
            (
                run(Origin::Schedule(0)),
                "HookRun:main:schedule:dir/a.sh:group=g:tick",
            ),
            (
                run(Origin::Synchronization(0)),
                "HookRun:main:kubernetes:dir/a.sh:pods",
            ),
            (
                run(Origin::Change(0)),
                "HookRun:main:kubernetes:dir/a.sh:pods",
            ),
            (
                Task::new(0, Work::EnableKubernetes, now),
                "EnableKubernetesBindings:main::dir/a.sh:EnableKubernetesBindings",
            ),
            (
                Task::new(0, Work::EnableSchedules, now),
                "EnableScheduleBindings:main::dir/a.sh:EnableScheduleBindings",
            ),
        ] {
            let line = Line::of(&task).unwrap();
            assert_eq!(line.describe("main", &registry), expected);
        }
        assert!(Line::of(&Task::new(0, Work::Announce, now)).is_none());
    }

    #[test]
    fn a_head_that_failed_tells_how_often_and_why_and_how_long_it_waits() {
        let registry = registry();
        let task = Task::run(0, Origin::Change(0), None, Instant::now());
        let mut head = Head::of(&task).unwrap();
        let copied = |head: &Head| Copied {
            head: Some(head.clone()),
            waiting: Vec::new(),
            idle: Instant::now(),
            is_stopped: false,
        };
        assert_eq!(copied(&head).view("q", &registry).status, "run first task");
        head.failed(
            3,
            "dir/a.sh FAILED: boom",
            Duration::from_millis(6300),
            false,
        );
        let view = copied(&head).view("q", &registry);
        assert_eq!(
            view.tasks,
            ["HookRun:q:kubernetes:dir/a.sh:pods:failures 3:dir/a.sh FAILED: boom"]
        );
        assert!(
            view.status.starts_with("sleep after fail for 6.3s ("),
            "{}",
            view.status
        );
        assert!(
            view.status.ends_with("s left of 6.3s delay)"),
            "{}",
            view.status
        );
        head.again();
        let view = copied(&head).view("q", &registry);
        assert_eq!(view.status, "run first task");
        assert_eq!(view.head.unwrap().failures, 3);
    }

    #[test]
    fn seconds_are_written_as_go_writes_them() {
        for (milliseconds, expected) in [(0, "0s"), (5000, "5s"), (6349, "6.3s"), (32000, "32s")] {
            assert_eq!(in_tenths(Duration::from_millis(milliseconds)), expected);
        }
    }
}
