//! Every type that crosses a thread. No logic.
//!
//! Reading `Event` is reading everything that can wake the main loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::hook::Registry;
use crate::hook::binding::Change;
use crate::hook::context;

/// A kubernetes binding: an index into `registry.hooks` and one into that hook's `config.kubernetes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BindingId {
    pub(crate) hook: usize,
    pub(crate) binding: usize,
}

/// One object as a hook gets to see it, each part JSON text. Shared with the store and never printed: it may be a Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// None when the binding does not keep full objects.
    pub(crate) object: Option<Arc<[u8]>>,
    /// None when the binding has no jqFilter.
    pub(crate) filter_result: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for Item {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Item")
    }
}

/// The objects of a binding at one moment, in their order.
pub(crate) type Snapshot = Vec<Item>;

/// Shown to a hook from the store's own bytes.
impl context::Items for Snapshot {
    fn visit(
        &self,
        each: &mut dyn FnMut(context::Item<'_>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        self.iter().try_for_each(|item| each(item.shown()))
    }
}

impl Item {
    pub(crate) fn shown(&self) -> context::Item<'_> {
        context::Item {
            object: self.object.as_deref(),
            filter_result: self.filter_result.as_deref(),
            proposed: None,
        }
    }
}

/// What a request under review would do to one object. Never printed: it may be a Secret.
#[derive(Clone)]
pub(crate) struct Proposal {
    pub(crate) change: Change,
    /// Group, version and kind as the request has them; the group is empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    /// Empty while the API server has not made one yet.
    pub(crate) name: String,
    /// As it would be; none when it would be gone.
    pub(crate) object: Option<Arc<[u8]>>,
}

/// The objects of a binding as they would be if a proposal were carried out.
#[derive(Default)]
pub(crate) struct Overlaid {
    pub(crate) items: Snapshot,
    /// The binding is about the kind of the request.
    pub(crate) is_concerned: bool,
    /// Which of the items comes from the request.
    pub(crate) proposed: Option<(usize, context::Mark)>,
    /// Namespace and name of the object that would not be there any more.
    pub(crate) removed: Option<(String, String)>,
}

impl From<Snapshot> for Overlaid {
    /// As it is.
    fn from(items: Snapshot) -> Overlaid {
        Overlaid {
            items,
            ..Overlaid::default()
        }
    }
}

impl context::Items for Overlaid {
    fn visit(
        &self,
        each: &mut dyn FnMut(context::Item<'_>) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        self.items.iter().enumerate().try_for_each(|(index, item)| {
            let mark = self.proposed.filter(|(position, _)| *position == index);
            each(context::Item {
                proposed: mark.map(|(_, mark)| mark),
                ..item.shown()
            })
        })
    }
}

/// Which object; hooks of version 0 are told nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// Why the process was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// TERM or INT: stop in order; a second one stops at once.
    Stop,
    /// HUP: read the hooks again, and begin anew with them if they are good.
    Reload,
}

/// Anything that wakes the main loop.
#[derive(Debug)]
pub(crate) enum Event {
    /// A signal arrived. Sent by the signal thread.
    Signal(Signal),
    /// A long-lived thread ended, by returning or by a panic. Sent by `threads::spawn`.
    Exited {
        thread: String,
        panic: Option<String>,
    },
    /// The hooks were read; or why they could not be. Sent once, by the load thread.
    Loaded(Result<Arc<Registry>, String>),
    /// The hooks were read once more because of a HUP: good, or what is wrong with them. Sent by the load thread.
    LoadedAgain(Result<(), String>),
    /// The API server answered for the first time. Sent once, by the connect thread.
    Connected,
    /// An object changed in a way that its binding wants to hear of. Sent by the watch threads, after the store was written.
    Changed {
        binding: BindingId,
        change: Change,
        item: Item,
        key: ObjectKey,
    },
    /// It is time for everything with this crontab. Sent by the schedule thread.
    Tick { crontab: Arc<str> },
    /// The kubernetes bindings of a hook are watched now. Sent by the main queue, before their Synchronization runs.
    KubernetesEnabled { hook: usize },
    /// A hook has come so far that its schedules count. Sent by the main queue.
    SchedulesEnabled { hook: usize },
    /// The first Synchronization of every hook is done, and so is all that stands before it. Sent once, by the main queue.
    Synchronized,
    /// A thread found something that no waiting can mend.
    Failed { reason: String },
}

/// An entry in a queue.
#[derive(Debug)]
pub(crate) struct Task {
    /// Index into `registry.hooks`; without meaning for `Work::Announce`.
    pub(crate) hook: usize,
    pub(crate) work: Work,
    /// When it was queued, or queued again after a failure.
    pub(crate) queued: Instant,
    /// How often it has failed.
    pub(crate) failures: u32,
}

impl Task {
    pub(crate) fn new(hook: usize, work: Work, now: Instant) -> Task {
        Task {
            hook,
            work,
            queued: now,
            failures: 0,
        }
    }

    /// A run of a hook for one reason.
    pub(crate) fn run(
        hook: usize,
        origin: Origin,
        change: Option<Box<ObjectChange>>,
        now: Instant,
    ) -> Task {
        let opens = match origin {
            Origin::Synchronization(binding) => vec![binding],
            _ => Vec::new(),
        };
        let run = HookRun {
            task_id: 0,
            event_id: 0,
            head: origin,
            causes: vec![Cause { origin, change }],
            opens,
        };
        Task::new(hook, Work::Run(run), now)
    }
}

/// What a task is to do.
#[derive(Debug)]
pub(crate) enum Work {
    Run(HookRun),
    /// Watch what the hook's kubernetes bindings name, then queue their Synchronization.
    EnableKubernetes,
    EnableSchedules,
    /// Everything queued at the start is done: tell the main loop.
    Announce,
}

/// One run of a hook, perhaps joined from several tasks.
#[derive(Debug)]
pub(crate) struct HookRun {
    /// For the log: which task this is, counted from 1 when it is queued. That of the first of the joined tasks.
    pub(crate) task_id: u64,
    /// For the log: the event behind the task, counted from 1; several tasks may come from one. 0 for the start of a hook.
    pub(crate) event_id: u64,
    /// What the first of the joined tasks came from. It decides labels and whether a failure is allowed, also when its own
    /// cause was dropped in favour of a later one of its group.
    pub(crate) head: Origin,
    /// Why the hook is run: one binding context each, in order. At least one.
    pub(crate) causes: Vec<Cause>,
    /// Kubernetes bindings whose events may flow once this run has succeeded.
    pub(crate) opens: Vec<usize>,
}

/// The kind of a run and the binding behind it, as an index into the hook's `schedules` or `kubernetes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    OnStartup,
    Schedule(usize),
    Synchronization(usize),
    Change(usize),
}

/// One reason to run a hook. What the hook sees of the cluster besides is read when it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) origin: Origin,
    /// Only for `Origin::Change`, and not when the binding has a group: such a run tells nothing about the object.
    pub(crate) change: Option<Box<ObjectChange>>,
}

/// What happened to an object, frozen at the time of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectChange {
    pub(crate) change: Change,
    pub(crate) item: Item,
    pub(crate) key: ObjectKey,
}

/// A queue as a person who looks inside sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueView {
    pub(crate) name: String,
    /// In the words of the original.
    pub(crate) status: String,
    /// A description of every task, the one being worked on first.
    pub(crate) tasks: Vec<String>,
    pub(crate) head: Option<HeadView>,
}

/// The task that a queue is working on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeadView {
    pub(crate) hook: String,
    /// Empty when no binding is behind it.
    pub(crate) binding: String,
    pub(crate) state: HeadState,
    /// For how long it has been in this state.
    pub(crate) since: Duration,
    /// How long ago it was queued, or queued again after a failure.
    pub(crate) queued: Duration,
    /// Binding contexts that the run has; several when tasks were joined.
    pub(crate) contexts: usize,
    pub(crate) failures: u32,
    pub(crate) error: Option<String>,
}

/// What happens to the first task of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadState {
    /// The hook is being run, or its bindings are being enabled.
    Running,
    /// It waits until `executionMinInterval` allows the next run.
    Held,
    /// It failed and waits for its next attempt, so long in all.
    Paused { pause: Duration, by_panic: bool },
}

/// What happened to the objects of a binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operations {
    /// Objects now.
    pub(crate) count: usize,
    pub(crate) added: u64,
    pub(crate) modified: u64,
    pub(crate) deleted: u64,
    /// How often the last object was deleted.
    pub(crate) cleaned: u64,
}

/// The objects of one binding, and what happened to them since the start and since somebody looked last.
#[derive(Debug)]
pub(crate) struct SnapshotView {
    pub(crate) binding: String,
    pub(crate) objects: Snapshot,
    pub(crate) since_start: Operations,
    pub(crate) since_last: Operations,
}
