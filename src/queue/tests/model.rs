//! A thousand random histories of a small cluster with three hooks and three queues, without threads or time.
//!
//! Real: dispatch, pending tasks, joining, workers. Played: the cluster behind the monitors, and hooks that fail at random. A seed
//! decides everything, so a history that breaks a rule can be repeated.

use std::collections::{BTreeMap, BTreeSet};

use super::super::worker::Attempt;
use super::*;
use crate::dispatch::Dispatch;

const HISTORIES: u64 = 1000;
const STEPS: u64 = 250;

const HOOKS: &[(&str, &str)] = &[
    (
        "a.sh",
        "configVersion: v1
onStartup: 1
schedule: [{name: s, crontab: '* * * * *'}, {name: t, crontab: '* * * * *', queue: x}]
kubernetes:
- {name: a, kind: Pod}
- {name: b, kind: Pod, queue: x}
- {name: c, kind: Pod, queue: x, waitForSynchronization: false}
",
    ),
    (
        "b.sh",
        "configVersion: v1
schedule: [{name: s, crontab: '* * * * *', group: g}]
kubernetes:
- {name: a, kind: Pod, group: g}
- {name: b, kind: Pod, executeHookOnSynchronization: false}
- {name: c, kind: Pod, group: g, queue: w}
- {name: d, kind: Pod, allowFailure: true, queue: x}
- {name: e, kind: Pod, group: h, queue: x, waitForSynchronization: false}
",
    ),
    (
        "c.sh",
        "schedule: [{name: s, crontab: '* * * * *'}]
onKubernetesEvent: [{name: a, kind: Pod, event: [add, update, delete]}]
",
    ),
];

/// SplitMix64: small, and good enough to reach odd corners.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

/// One binding as the cluster sees it.
#[derive(Default)]
struct Watched {
    is_enabled: bool,
    is_open: bool,
    /// The hook has accepted the first list, or wants none.
    is_accepted: bool,
    held: Vec<u64>,
    /// Changes that the hook must still be told of, in order. Empty for groups.
    owed: Vec<u64>,
    /// A group must be run after its last change.
    is_dirty: bool,
}

struct State {
    random: Random,
    watched: BTreeMap<(usize, usize), Watched>,
    next_number: u64,
    /// Ticks that each schedule without a group is still owed, by hook and binding.
    ticks: BTreeMap<(usize, usize), usize>,
    failing: bool,
    events: Vec<(BindingId, u64)>,
}

/// The cluster and the hooks.
struct World {
    registry: Arc<Registry>,
    state: Mutex<State>,
}

impl World {
    fn group(&self, hook: usize, binding: usize) -> Option<&str> {
        let binding = &self.registry.hooks[hook].config.kubernetes[binding];
        binding.group.as_deref()
    }

    /// An object of a random binding changes.
    fn change(&self) {
        let mut state = self.state.lock().unwrap();
        let count = state.watched.len();
        let chosen = state.random.below(count);
        let id = *state.watched.keys().nth(chosen).unwrap();
        let is_grouped = self.group(id.0, id.1).is_some();
        state.next_number += 1;
        let number = state.next_number;
        let watched = state.watched.get_mut(&id).unwrap();
        if !watched.is_enabled {
            return;
        }
        if is_grouped {
            watched.is_dirty = true;
        } else {
            watched.owed.push(number);
        }
        if watched.is_open {
            let (hook, binding) = id;
            state.events.push((BindingId { hook, binding }, number));
        } else {
            watched.held.push(number);
        }
    }

    /// A cause of a run that the hook has accepted.
    fn deliver(&self, state: &mut State, hook: usize, cause: &Cause) {
        match cause.origin {
            Origin::OnStartup | Origin::Synchronization(_) => {}
            Origin::Schedule(binding) => {
                let group = &self.registry.hooks[hook].config.schedules[binding].group;
                if group.is_none() {
                    let owed = state.ticks.get_mut(&(hook, binding)).unwrap();
                    *owed = owed.checked_sub(1).expect("a tick that nobody sent");
                }
            }
            Origin::Change(binding) => {
                let watched = state.watched.get_mut(&(hook, binding)).unwrap();
                if self.group(hook, binding).is_none() {
                    let number = number(cause).unwrap();
                    assert_eq!(watched.owed.first(), Some(&number), "lost, doubled or late");
                    watched.owed.remove(0);
                }
            }
        }
    }

    /// A run shows the state of all bindings of its groups, so none of them is dirty after it.
    fn clean(&self, state: &mut State, hook: usize, run: &HookRun) {
        let groups: BTreeSet<&str> = run
            .causes
            .iter()
            .filter_map(|cause| {
                super::super::combine::group(&self.registry.hooks[hook], cause.origin)
            })
            .collect();
        for ((owner, binding), watched) in &mut state.watched {
            if *owner == hook
                && self
                    .group(hook, *binding)
                    .is_some_and(|group| groups.contains(group))
            {
                watched.is_dirty = false;
            }
        }
    }
}

impl Monitors for World {
    fn enable(&self, hook: usize) -> Result<(), String> {
        let mut state = self.state.lock().unwrap();
        if state.failing && state.random.below(4) == 0 {
            return Err("the API server is away".to_owned());
        }
        for ((owner, _), watched) in &mut state.watched {
            watched.is_enabled |= *owner == hook;
        }
        Ok(())
    }

    fn snapshot(&self, _: BindingId) -> Snapshot {
        Snapshot::new()
    }

    fn synchronization(&self, _: BindingId) -> Snapshot {
        Snapshot::new()
    }

    fn open(&self, id: BindingId) {
        let mut state = self.state.lock().unwrap();
        let watched = state.watched.get_mut(&(id.hook, id.binding)).unwrap();
        assert!(watched.is_accepted, "opened without a run: {id:?}");
        watched.is_open = true;
        let held = std::mem::take(&mut watched.held);
        state
            .events
            .extend(held.into_iter().map(|number| (id, number)));
    }
}

impl Runs for World {
    fn run(
        &self,
        hook: usize,
        of: &Hook,
        run: &HookRun,
        _: &Labels<'_>,
    ) -> Result<Usage, RunFailure> {
        let mut state = self.state.lock().unwrap();
        assert!(!run.causes.is_empty());
        for binding in &run.opens {
            // The list is read now: what it holds need not be told.
            let watched = state.watched.get_mut(&(hook, *binding)).unwrap();
            let held = std::mem::take(&mut watched.held);
            watched.owed.retain(|number| !held.contains(number));
        }
        for cause in &run.causes {
            if let Origin::Change(binding) = cause.origin {
                let watched = &state.watched[&(hook, binding)];
                assert!(
                    watched.is_open && watched.is_accepted,
                    "before its first list"
                );
            }
        }
        let is_failing = state.failing && state.random.below(3) == 0;
        let is_allowed = match run.head {
            Origin::Synchronization(binding) | Origin::Change(binding) => {
                of.config.kubernetes[binding].allow_failure
            }
            _ => false,
        };
        if is_failing && !is_allowed {
            return Err(RunFailure::Failed("at random".to_owned()));
        }
        for binding in &run.opens {
            state
                .watched
                .get_mut(&(hook, *binding))
                .unwrap()
                .is_accepted = true;
        }
        self.clean(&mut state, hook, run);
        for cause in &run.causes {
            self.deliver(&mut state, hook, cause);
        }
        if is_failing {
            return Err(RunFailure::Failed("at random".to_owned()));
        }
        Ok(Usage::default())
    }
}

/// The world, its queues, and the main loop.
struct Model {
    world: Arc<World>,
    dispatch: Dispatch,
    inbox: Receiver<Event>,
    /// Each with the task that it has to try again.
    workers: Vec<(Worker, Option<Task>)>,
}

impl Model {
    fn new(seed: u64) -> Model {
        let registry = Arc::new(Registry::of(HOOKS));
        let mut watched = BTreeMap::new();
        let mut ticks = BTreeMap::new();
        for (hook, found) in registry.hooks.iter().enumerate() {
            for (binding, kubernetes) in found.config.kubernetes.iter().enumerate() {
                let is_accepted = !kubernetes.execute_on_synchronization;
                let watched_now = Watched {
                    is_accepted,
                    ..Watched::default()
                };
                watched.insert((hook, binding), watched_now);
            }
            for binding in 0..found.config.schedules.len() {
                ticks.insert((hook, binding), 0);
            }
        }
        let world = Arc::new(World {
            registry: Arc::clone(&registry),
            state: Mutex::new(State {
                random: Random(seed),
                watched,
                next_number: 0,
                ticks,
                failing: true,
                events: Vec::new(),
            }),
        });
        let dispatch = Dispatch::new(Arc::clone(&registry));
        let (events, inbox) = unbounded();
        let metrics = Arc::new(Metrics::new(""));
        let worker = |queue: &String| Worker {
            queue: queue.clone(),
            pending: Arc::new(Pending::new()),
            paces: registry.hooks.iter().map(pace).collect(),
            registry: Arc::clone(&registry),
            metrics: Arc::clone(&metrics),
            ids: Arc::default(),
            monitors: Arc::clone(&world) as Arc<dyn Monitors>,
            events: events.clone(),
            runs: Arc::clone(&world) as Arc<dyn Runs>,
        };
        let workers = dispatch
            .queues()
            .iter()
            .map(worker)
            .map(|worker| (worker, None))
            .collect();
        Model {
            world,
            dispatch,
            inbox,
            workers,
        }
    }

    fn push(&self, queue: &str, task: Task) {
        let found = self
            .workers
            .iter()
            .find(|(worker, _)| worker.queue == queue);
        let (worker, _) = found.expect("a queue that nobody made");
        worker.pending.push(task, &worker.registry);
    }

    /// What the main loop does with everything that has happened.
    fn pump(&mut self) {
        let now = Instant::now();
        while let Ok(event) = self.inbox.try_recv() {
            match event {
                Event::KubernetesEnabled { hook } => {
                    for (queue, task) in self.dispatch.kubernetes_enabled(hook, now) {
                        self.push(queue, task);
                    }
                }
                Event::SchedulesEnabled { hook } => self.dispatch.schedules_enabled(hook),
                _ => {}
            }
        }
        let events = std::mem::take(&mut self.world.state.lock().unwrap().events);
        for (id, number) in events {
            let told = *told(number);
            let queued = self
                .dispatch
                .changed(id, told.change, told.item, told.key, now);
            let (queue, task) = queued.unwrap();
            self.push(queue, task);
        }
    }

    fn tick(&self) {
        for (queue, task) in self.dispatch.tick("* * * * *", Instant::now()) {
            let Origin::Schedule(binding) = runs(&task).head else {
                panic!("a tick makes schedule runs");
            };
            let schedule = &self.world.registry.hooks[task.hook].config.schedules[binding];
            if schedule.group.is_none() {
                let mut state = self.world.state.lock().unwrap();
                *state.ticks.get_mut(&(task.hook, binding)).unwrap() += 1;
            }
            self.push(queue, task);
        }
    }

    /// One attempt by one queue. False: it had nothing to do.
    fn work(&mut self, index: usize) -> bool {
        let (worker, unfinished) = &mut self.workers[index];
        let mut task = match unfinished.take() {
            Some(task) => task,
            None if worker.pending.len() == 0 => return false,
            None => worker.pending.take(&worker.registry).unwrap(),
        };
        match worker.attempt(&mut task) {
            Attempt::Done => worker.pending.finish(),
            Attempt::Failed(_) => *unfinished = Some(task),
            Attempt::Stopped => panic!("nobody stops it"),
        }
        true
    }

    fn play(&mut self) {
        for task in self.dispatch.first_tasks(Instant::now()) {
            self.push("main", task);
        }
        for _ in 0..STEPS {
            let (step, queue) = {
                let random = &mut self.world.state.lock().unwrap().random;
                (random.below(10), random.below(self.workers.len()))
            };
            match step {
                0..=4 => self.world.change(),
                5 => self.tick(),
                6 => {
                    // A flood, so that queues are compacted.
                    for _ in 0..40 {
                        self.world.change();
                    }
                }
                _ => {
                    self.work(queue);
                }
            }
            self.pump();
        }
        self.world.state.lock().unwrap().failing = false;
        while (0..self.workers.len()).any(|index| self.work(index)) {
            self.pump();
        }
    }

    fn check_that_nothing_is_owed(&self) {
        let state = self.world.state.lock().unwrap();
        for (id, watched) in &state.watched {
            assert!(watched.is_enabled && watched.is_open, "{id:?}");
            assert!(watched.owed.is_empty(), "{id:?}: {:?}", watched.owed);
            assert!(!watched.is_dirty, "{id:?}: no run after the last change");
        }
        assert!(state.ticks.values().all(|owed| *owed == 0));
    }
}

#[test]
fn no_event_runs_before_its_first_list_and_every_context_arrives_once_in_a_thousand_histories() {
    for seed in 0..HISTORIES {
        let history = std::panic::catch_unwind(|| {
            let mut model = Model::new(seed);
            model.play();
            model.check_that_nothing_is_owed();
        });
        assert!(history.is_ok(), "history {seed}");
    }
}
