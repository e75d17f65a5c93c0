//! A `Monitor`: the watches of one kubernetes binding, and how far the binding has come.
//!
//! Made when a hook is enabled. Watch threads report to it, queues and reviews read through it. Its one lock guards the list of
//! views, which only changes for bindings that follow namespaces by labels; it is taken before a store's lock, never after.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use log::error;

use super::gate::Phase;
use super::overlay::{self, Unfit, Watched};
use super::progress::Progress;
use super::store::{self, Key, Store, Wishes};
use crate::hook::binding::KubernetesBinding;
use crate::jq::{self, Filter};
use crate::kube::{Resource, Rest};
use crate::message::{
    BindingId, Event, Item, Operations, Overlaid, Proposal, Snapshot, SnapshotView,
};
use crate::metrics::{EVENT_SECONDS, Metrics};

/// The name of a binding that has none.
const UNNAMED: &str = "kubernetes";

pub(super) struct Monitor {
    pub(super) id: BindingId,
    pub(super) name: Name,
    pub(super) kind: String,
    resource: Resource,
    pub(super) filter: Option<Arc<Filter>>,
    binding: KubernetesBinding,
    metrics: Arc<Metrics>,
    parts: Mutex<Parts>,
}

/// What the binding is called in logs, errors and metrics.
pub(super) struct Name {
    pub(super) hook: String,
    pub(super) binding: String,
    pub(super) queue: String,
    /// `kubernetes[0]` or `kubernetes[0]{name}`, as the original's errors have it.
    pub(super) debug: String,
}

struct Parts {
    phase: Phase,
    views: Vec<Part>,
    /// The list of namespaces, for a binding that follows them.
    namespaces: Option<Feed>,
}

/// One watch of this binding and the binding's place in its store.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) store: Arc<Store>,
    pub(super) view: usize,
    pub(super) feed: Feed,
    /// Set when the watch is there because this namespace matches.
    pub(super) namespace: Option<String>,
}

/// The thread behind a store, as others see it.
#[derive(Clone, Default)]
pub(super) struct Feed {
    pub(super) rest: Arc<Rest>,
    pub(super) progress: Arc<Progress>,
}

impl Feed {
    pub(super) fn stop(&self) {
        self.rest.stop();
        self.progress.stop();
    }
}

impl Name {
    pub(super) fn new(hook: &str, index: usize, binding: &KubernetesBinding) -> Name {
        let debug = if binding.name == UNNAMED {
            format!("kubernetes[{index}]")
        } else {
            format!("kubernetes[{index}]{{{}}}", binding.name)
        };
        Name {
            hook: hook.to_owned(),
            binding: binding.name.clone(),
            queue: binding.queue.clone(),
            debug,
        }
    }

    fn labels(&self) -> [(&str, &str); 3] {
        [
            ("hook", &self.hook),
            ("binding", &self.binding),
            ("queue", &self.queue),
        ]
    }
}

impl Monitor {
    pub(super) fn new(
        id: BindingId,
        name: Name,
        binding: &KubernetesBinding,
        resource: &Resource,
        metrics: Arc<Metrics>,
    ) -> Monitor {
        Monitor {
            id,
            name,
            kind: resource.kind.clone(),
            resource: resource.clone(),
            filter: binding.filter.clone(),
            binding: binding.clone(),
            metrics,
            parts: Mutex::new(Parts {
                phase: Phase::Idle,
                views: Vec::new(),
                namespaces: None,
            }),
        }
    }

    pub(super) fn wishes(&self) -> Wishes {
        Wishes {
            binding: self.id,
            kind: self.kind.clone(),
            changes: self.binding.changes,
            full_objects: self.binding.keep_full_objects,
            filtered: self.filter.is_some(),
        }
    }

    pub(super) fn add(&self, part: Part) {
        self.locked().views.push(part);
    }

    pub(super) fn follow_namespaces(&self, feed: Feed) {
        self.locked().namespaces = Some(feed);
    }

    /// Forgets the objects of a namespace that no longer matches. Nobody is told about them.
    pub(super) fn leave_namespace(&self, namespace: &str) {
        self.locked()
            .views
            .retain(|part| part.namespace.as_deref() != Some(namespace));
        self.show_objects();
    }

    pub(super) fn namespaces(&self) -> Option<Feed> {
        self.locked().namespaces.clone()
    }

    pub(super) fn feeds(&self) -> Vec<Feed> {
        let parts = self.locked();
        parts.views.iter().map(|part| part.feed.clone()).collect()
    }

    pub(super) fn phase(&self) -> Phase {
        self.locked().phase
    }

    /// An object that the filter fails on, which keeps the binding from being enabled.
    pub(super) fn failure(&self) -> Option<(String, String)> {
        let parts = self.locked();
        parts
            .views
            .iter()
            .find_map(|part| part.store.failure(part.view))
    }

    /// The first lists are complete: from now on changes are events.
    pub(super) fn lock(&self) {
        let mut parts = self.locked();
        if parts.phase == Phase::Idle {
            parts.phase = Phase::Locked;
            for part in &parts.views {
                part.store.lock_gate(part.view);
            }
        }
    }

    /// Sends what was kept back, in order, and lets everything through after that.
    pub(super) fn open(&self, mut send: impl FnMut(Event) -> bool) {
        let views = {
            let mut parts = self.locked();
            parts.phase = Phase::Open;
            parts.views.clone()
        };
        for part in views {
            loop {
                let events = part.store.open_gate(part.view);
                if events.is_empty() {
                    break;
                }
                for event in events {
                    if !send(event) {
                        return;
                    }
                }
            }
        }
    }

    /// The first list of a view is complete. Its gate takes the state of the binding: a namespace that begins to match after
    /// the binding was opened is open, and its objects were taken in silently.
    pub(super) fn complete(&self, store: &Store, view: usize) {
        let errors = {
            let parts = self.locked();
            store.complete(view, parts.phase)
        };
        for reason in errors {
            self.filter_failed(&reason);
        }
        self.show_objects();
    }

    /// Reads all views, sorted as the original sorts.
    pub(super) fn read(&self, synchronization: bool) -> Snapshot {
        let (mut items, several) = self.read_keyed(synchronization);
        if several || !self.binding.keep_full_objects {
            store::sort(&mut items, self.binding.keep_full_objects);
        }
        items.into_iter().map(|(_, item)| item).collect()
    }

    /// The same as it would be if a request were carried out.
    pub(super) fn overlaid(&self, proposal: &Proposal) -> Result<Overlaid, Unfit> {
        let (items, _) = self.read_keyed(false);
        let follows = |namespace: &str| {
            let parts = self.locked();
            let mut views = parts.views.iter();
            views.any(|part| part.namespace.as_deref() == Some(namespace))
        };
        let watched = Watched {
            binding: &self.binding,
            group: &self.resource.group,
            version: &self.resource.version,
            kind: &self.resource.kind,
            namespaced: self.resource.namespaced,
            follows: &follows,
        };
        overlay::overlaid(items, &watched, proposal)
    }

    /// The items of all views, and whether there are several, which are not in order then.
    fn read_keyed(&self, synchronization: bool) -> (Vec<(Key, Item)>, bool) {
        let mut items: Vec<(Key, Item)> = Vec::new();
        let parts = self.locked();
        for part in &parts.views {
            part.store.read(part.view, synchronization, &mut items);
        }
        (items, parts.views.len() > 1)
    }

    /// Everything about the binding's objects, for a person who looks inside. Resets what is counted since the last look.
    pub(super) fn view(&self) -> SnapshotView {
        let views = self.locked().views.clone();
        let mut since_start = Operations::default();
        let mut since_last = Operations::default();
        for part in &views {
            let (start, last) = part.store.operations(part.view);
            add(&mut since_start, start);
            add(&mut since_last, last);
        }
        SnapshotView {
            binding: self.name.binding.clone(),
            objects: self.read(false),
            since_start,
            since_last,
        }
    }

    /// Shows how many objects a snapshot would have.
    pub(super) fn show_objects(&self) {
        let objects: usize = {
            let parts = self.locked();
            let counts = parts.views.iter().map(|part| part.store.count(part.view));
            counts.sum()
        };
        let objects = u32::try_from(objects).unwrap_or(u32::MAX);
        self.metrics
            .set("kube_snapshot_objects", &self.name.labels(), objects.into());
    }

    pub(super) fn filter_took(&self, seconds: f64) {
        self.metrics.observe_within(
            EVENT_SECONDS,
            "kube_jq_filter_duration_seconds",
            &self.name.labels(),
            seconds,
        );
    }

    pub(super) fn event_took(&self, seconds: f64) {
        self.metrics.observe_within(
            EVENT_SECONDS,
            "kube_event_duration_seconds",
            &self.name.labels(),
            seconds,
        );
    }

    /// The words for a failed filter. jq quotes what it failed on, and no object gets into a log: many kinds hold secrets.
    pub(super) fn filter_error(&self, error: &jq::Error) -> String {
        match error {
            jq::Error::Syntax(_)
            | jq::Error::Undefined(_)
            | jq::Error::TooDeep
            | jq::Error::Unsafe(_) => error.to_string(),
            jq::Error::Input(_) | jq::Error::Run(_) => format!(
                "the filter failed on a {}; try it with jq on that object, whose content is not shown here",
                self.kind
            ),
        }
    }

    pub(super) fn filter_failed(&self, reason: &str) {
        let Name {
            hook,
            binding,
            queue,
            debug,
        } = &self.name;
        error!(hook = hook.as_str(), binding = binding.as_str(), queue = queue.as_str();
            "handleWatchEvent: applyFilter error: {debug}: jqFilter: {reason}");
    }

    fn locked(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sums up what happened in several namespaces.
fn add(sum: &mut Operations, part: Operations) {
    sum.count += part.count;
    sum.added += part.added;
    sum.modified += part.modified;
    sum.deleted += part.deleted;
    sum.cleaned += part.cleaned;
}
