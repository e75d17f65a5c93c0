//! Monitors: every kubernetes binding with its watches, shared where they are equal.
//!
//! ```text
//! binding --plan--> selections --group equal ones--> watch thread --writer--> store --view per binding--> gate --> Event
//! ```
//!
//! `enable` is called by the main queue, one hook after the other. The first call plans the bindings of all hooks, so that equal
//! watches are found and share one connection, one list and one copy of every object; their events begin only when their own
//! hook is enabled. A binding whose kind appears later gets watches of its own then. Snapshots are read by any thread.

mod binding;
mod error;
mod gate;
mod namespaces;
pub(crate) mod overlay;
mod plan;
mod progress;
mod store;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::Sender;
use log::warn;

use self::binding::{Feed, Monitor, Name, Part};
pub(crate) use self::error::EnableError;
use self::gate::Phase;
use self::namespaces::Follower;
use self::plan::Places;
use self::progress::Stage;
use self::store::Store;
use self::writer::Writer;
use crate::hook::Registry;
use crate::hook::binding::KubernetesBinding;
use crate::kube::{Client, Discovery, Ground, Resource, Selection, Sink, Tempo, Watcher};
use crate::message::{BindingId, Event, Operations, Overlaid, Proposal, Snapshot, SnapshotView};
use crate::metrics::Metrics;
use crate::threads;

/// All monitors. Clones share them.
#[derive(Clone)]
pub(crate) struct Monitors {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    discovery: Arc<Discovery>,
    registry: Arc<Registry>,
    events: Sender<Event>,
    metrics: Arc<Metrics>,
    ground: Arc<Ground>,
    tempo: Tempo,
    monitors: Mutex<HashMap<BindingId, Arc<Monitor>>>,
    /// Held while watches are planned, so that two calls do not plan the same ones.
    planning: Mutex<()>,
    /// Every thread that was started and may still run.
    feeds: Mutex<Vec<Feed>>,
    stopped: AtomicBool,
}

/// A binding that needs watches.
struct Wanted {
    monitor: Arc<Monitor>,
    binding: KubernetesBinding,
    resource: Resource,
}

impl Monitors {
    /// Starts nothing yet.
    pub(crate) fn new(
        client: Client,
        discovery: Arc<Discovery>,
        registry: Arc<Registry>,
        events: Sender<Event>,
        metrics: Arc<Metrics>,
    ) -> Monitors {
        Monitors::with_tempo(
            client,
            discovery,
            registry,
            events,
            metrics,
            Tempo::default(),
        )
    }

    pub(crate) fn with_tempo(
        client: Client,
        discovery: Arc<Discovery>,
        registry: Arc<Registry>,
        events: Sender<Event>,
        metrics: Arc<Metrics>,
        tempo: Tempo,
    ) -> Monitors {
        Monitors {
            shared: Arc::new(Shared {
                client,
                discovery,
                registry,
                events,
                metrics,
                ground: Arc::default(),
                tempo,
                monitors: Mutex::default(),
                planning: Mutex::default(),
                feeds: Mutex::default(),
                stopped: AtomicBool::new(false),
            }),
        }
    }

    /// Makes sure that everything the hook's kubernetes bindings name is watched, and waits until all of it is listed. What
    /// changes after that is kept back until `open`. May be called again after an error.
    pub(crate) fn enable(&self, hook: usize) -> Result<(), EnableError> {
        let shared = &self.shared;
        shared.plan(hook)?;
        let monitors = shared.monitors_of(hook);
        for monitor in &monitors {
            shared.wait_for_lists(monitor)?;
        }
        for monitor in &monitors {
            if let Some((object, reason)) = monitor.failure() {
                return Err(EnableError::Filter {
                    binding: monitor.name.debug.clone(),
                    object,
                    reason,
                });
            }
        }
        for monitor in &monitors {
            monitor.lock();
        }
        Ok(())
    }

    /// The objects of a binding now. Empty before it is enabled, which can only be seen by reviews.
    pub(crate) fn snapshot(&self, id: BindingId) -> Snapshot {
        match self.shared.enabled(id) {
            Some(monitor) => monitor.read(false),
            None => Vec::new(),
        }
    }

    /// The objects of a binding as they would be if a request were carried out. The error says why that cannot be shown.
    pub(crate) fn overlaid(&self, id: BindingId, proposal: &Proposal) -> Result<Overlaid, String> {
        match self.shared.enabled(id) {
            Some(monitor) => monitor
                .overlaid(proposal)
                .map_err(|unfit| unfit.to_string()),
            None => Ok(Overlaid::default()),
        }
    }

    /// The objects of a binding for its Synchronization run. Events that were kept back until now are dropped in the same
    /// moment, since the snapshot has them.
    pub(crate) fn synchronization(&self, id: BindingId) -> Snapshot {
        match self.shared.enabled(id) {
            Some(monitor) => monitor.read(true),
            None => Vec::new(),
        }
    }

    /// The objects of every kubernetes binding of a hook, for a person who looks inside; none of a binding that is not enabled yet.
    pub(crate) fn views(&self, hook: usize) -> Vec<SnapshotView> {
        let bindings = self.shared.registry.hooks.get(hook);
        let bindings = bindings.map_or(&[][..], |hook| &hook.config.kubernetes);
        let monitors = self.shared.monitors_of(hook);
        let view = |(index, binding): (usize, &KubernetesBinding)| {
            let mut enabled = monitors.iter();
            let enabled = enabled
                .find(|monitor| monitor.id.binding == index && monitor.phase() != Phase::Idle);
            enabled.map_or_else(
                || SnapshotView {
                    binding: binding.name.clone(),
                    objects: Vec::new(),
                    since_start: Operations::default(),
                    since_last: Operations::default(),
                },
                |monitor| monitor.view(),
            )
        };
        bindings.iter().enumerate().map(view).collect()
    }

    /// Lets a binding's events through: first those that were kept back. Waits while the main loop is busy, so the main loop
    /// itself must never call this.
    pub(crate) fn open(&self, id: BindingId) {
        if let Some(monitor) = self.shared.enabled(id) {
            monitor.open(|event| self.shared.events.send(event).is_ok());
        }
    }

    /// Ends all watches, and everyone who waits for a list. Threads that are sending end when the receiver is dropped.
    pub(crate) fn stop(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        for feed in self.shared.feeds().iter() {
            feed.stop();
        }
        self.shared.client.stop_watches();
    }
}

impl Shared {
    /// Starts the watches of all bindings that have none and whose kind is known. An error is returned only if it concerns
    /// this hook; the others' come up when it is their turn.
    fn plan(self: &Arc<Self>, hook: usize) -> Result<(), EnableError> {
        let _planning = self.planning.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fixed = Vec::new();
        let mut following: BTreeMap<String, Vec<Wanted>> = BTreeMap::new();
        let mut first_error = None;
        for id in self.unplanned() {
            match self.want(id) {
                Ok(wanted) => match plan::places(&wanted.binding) {
                    Places::Fixed(places) => fixed.push((wanted, places)),
                    Places::Following(labels) => following.entry(labels).or_default().push(wanted),
                },
                Err(error) if id.hook == hook && first_error.is_none() => first_error = Some(error),
                Err(_) => {}
            }
        }
        let batch = fixed
            .iter()
            .flat_map(|(wanted, places)| {
                let places = places.iter();
                places.map(move |place| (wanted, place.as_deref()))
            })
            .collect();
        self.start_watches(batch, None)
            .map_err(EnableError::Thread)?;
        self.keep(fixed.iter().map(|(wanted, _)| &wanted.monitor));
        for (labels, wanted) in following {
            let monitors: Vec<Arc<Monitor>> = wanted
                .iter()
                .map(|wanted| Arc::clone(&wanted.monitor))
                .collect();
            self.follow_namespaces(&labels, wanted)
                .map_err(EnableError::Thread)?;
            self.keep(monitors.iter());
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Waits for the first lists of a binding. One that failed before is tried again at once.
    fn wait_for_lists(&self, monitor: &Monitor) -> Result<(), EnableError> {
        // The namespaces first: their list decides which watches there are.
        if let Some(feed) = monitor.namespaces() {
            self.wait_for_list(monitor, &feed)?;
        }
        for feed in monitor.feeds() {
            self.wait_for_list(monitor, &feed)?;
        }
        Ok(())
    }

    fn wait_for_list(&self, monitor: &Monitor, feed: &Feed) -> Result<(), EnableError> {
        if feed.progress.try_again() {
            feed.rest.urge();
        }
        match feed.progress.wait() {
            Stage::Listing | Stage::Listed => Ok(()),
            Stage::Failed(reason) => Err(EnableError::List {
                binding: monitor.name.debug.clone(),
                reason,
            }),
            Stage::Stopped if self.stopped.load(Ordering::SeqCst) => Err(EnableError::Stopped),
            // The watch of a namespace that has just stopped matching.
            Stage::Stopped => Ok(()),
        }
    }

    fn unplanned(&self) -> Vec<BindingId> {
        let monitors = self.monitors();
        let hooks = self.registry.hooks.iter().enumerate();
        hooks
            .flat_map(|(hook, loaded)| {
                let bindings = 0..loaded.config.kubernetes.len();
                bindings.map(move |binding| BindingId { hook, binding })
            })
            .filter(|id| !monitors.contains_key(id))
            .collect()
    }

    /// Finds out what a binding is about.
    fn want(&self, id: BindingId) -> Result<Wanted, EnableError> {
        let (hook, binding) = self.binding(id).ok_or(EnableError::Stopped)?;
        let name = Name::new(hook, id.binding, binding);
        let resource = self
            .discovery
            .resolve(&binding.kind, binding.api_version.as_deref())
            .map_err(|error| EnableError::Kind {
                binding: name.debug.clone(),
                api_version: binding.api_version.clone().unwrap_or_default(),
                kind: binding.kind.clone(),
                error: Box::new(error),
            })?;
        if !resource.namespaced && plan::places(binding) != Places::Fixed(vec![None]) {
            return Err(EnableError::NoNamespaces {
                binding: name.debug,
                kind: resource.kind,
            });
        }
        // Here, so that a wrong name is the trouble of its own hook only.
        if let Places::Fixed(places) = plan::places(binding) {
            for place in &places {
                plan::selections(binding, &resource, place.as_deref()).map_err(|error| {
                    EnableError::List {
                        binding: name.debug.clone(),
                        reason: error.to_string(),
                    }
                })?;
            }
        }
        let metrics = Arc::clone(&self.metrics);
        Ok(Wanted {
            monitor: Arc::new(Monitor::new(id, name, binding, &resource, metrics)),
            binding: binding.clone(),
            resource,
        })
    }

    fn binding(&self, id: BindingId) -> Option<(&str, &KubernetesBinding)> {
        let hook = self.registry.hooks.get(id.hook)?;
        Some((&hook.name, hook.config.kubernetes.get(id.binding)?))
    }

    /// Starts the watches of bindings in places; equal ones are one. `namespace` is set when the watches depend on it.
    fn start_watches(
        &self,
        batch: Vec<(&Wanted, Option<&str>)>,
        namespace: Option<&str>,
    ) -> io::Result<Vec<Feed>> {
        let mut groups: BTreeMap<Selection, (String, Vec<Arc<Monitor>>)> = BTreeMap::new();
        for (wanted, place) in batch {
            let selections = plan::selections(&wanted.binding, &wanted.resource, place)
                .map_err(io::Error::other)?;
            for selection in selections {
                let plural = wanted.resource.plural.clone();
                let group = groups.entry(selection).or_insert((plural, Vec::new()));
                group.1.push(Arc::clone(&wanted.monitor));
            }
        }
        let mut feeds = Vec::new();
        for (selection, (plural, monitors)) in groups {
            let feed = Feed::default();
            let store = Arc::new(Store::new(monitors.iter().map(|monitor| monitor.wishes())));
            for (view, monitor) in monitors.iter().enumerate() {
                monitor.add(Part {
                    store: Arc::clone(&store),
                    view,
                    feed: feed.clone(),
                    namespace: namespace.map(str::to_owned),
                });
            }
            let writer = Writer::new(
                store,
                monitors,
                Arc::clone(&feed.progress),
                self.events.clone(),
                Arc::clone(&self.metrics),
            );
            feeds.push(feed.clone());
            if let Err(error) = self.start_watch(&plural, selection, &feed, writer) {
                // Whoever asked will ask for all of them again.
                feeds.iter().for_each(Feed::stop);
                return Err(error);
            }
        }
        Ok(feeds)
    }

    fn start_watch(
        &self,
        plural: &str,
        selection: Selection,
        feed: &Feed,
        sink: impl Sink + Send + 'static,
    ) -> io::Result<()> {
        let watcher = Watcher::new(
            self.client.clone(),
            selection,
            Arc::clone(&self.ground),
            self.tempo,
            Arc::clone(&feed.rest),
            sink,
        );
        let mut feeds = self.feeds();
        feeds.retain(|feed| !feed.rest.is_stopped());
        feeds.push(feed.clone());
        drop(feeds);
        if self.stopped.load(Ordering::SeqCst) {
            feed.stop();
        }
        let name = format!("watch:{plural}");
        threads::spawn_while_needed(&name, &self.events, move || watcher.run()).map(drop)
    }

    fn follow_namespaces(self: &Arc<Self>, labels: &str, wanted: Vec<Wanted>) -> io::Result<()> {
        let resource = Resource {
            version: "v1".to_owned(),
            plural: "namespaces".to_owned(),
            kind: "Namespace".to_owned(),
            ..Resource::default()
        };
        let feed = Feed::default();
        for wanted in &wanted {
            wanted.monitor.follow_namespaces(feed.clone());
        }
        let selection = Selection::new(&resource, None, labels, "").map_err(io::Error::other)?;
        let follower = Follower::new(Arc::clone(self), feed.clone(), wanted);
        self.start_watch("namespaces", selection, &feed, follower)
    }

    fn keep<'a>(&self, monitors: impl Iterator<Item = &'a Arc<Monitor>>) {
        let mut kept = self.monitors();
        for monitor in monitors {
            kept.insert(monitor.id, Arc::clone(monitor));
        }
    }

    /// The monitors of a hook, in the order of its bindings.
    fn monitors_of(&self, hook: usize) -> Vec<Arc<Monitor>> {
        let mut monitors: Vec<Arc<Monitor>> = self
            .monitors()
            .values()
            .filter(|monitor| monitor.id.hook == hook)
            .cloned()
            .collect();
        monitors.sort_by_key(|monitor| monitor.id.binding);
        monitors
    }

    /// The monitor of a binding that was enabled. The lack of one is told, since it means an empty snapshot.
    fn enabled(&self, id: BindingId) -> Option<Arc<Monitor>> {
        let monitor = self.monitors().get(&id).cloned();
        let enabled = monitor.filter(|monitor| monitor.phase() != Phase::Idle);
        if enabled.is_none() {
            let (hook, binding) = self.binding(id)?;
            let binding = binding.name.as_str();
            warn!(hook = hook, binding = binding; "no monitor for configured kubernetes binding, snapshot is empty");
            self.metrics.add(
                "binding_monitor_missing_total",
                &[("binding", binding)],
                1.0,
            );
        }
        enabled
    }

    fn monitors(&self) -> std::sync::MutexGuard<'_, HashMap<BindingId, Arc<Monitor>>> {
        self.monitors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn feeds(&self) -> std::sync::MutexGuard<'_, Vec<Feed>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
