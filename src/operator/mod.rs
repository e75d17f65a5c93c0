//! `start`: wiring, start order, event loop, stop order. The story of the program.
//!
//! Runs on the main thread, which owns everything that has to be stopped and never blocks on anything but its events: what takes
//! time (reading hooks, reaching the API server, keeping webhooks) has a thread of its own. So a signal is heard at any moment.

mod apart;
mod examine;
mod inbox;
mod inside;
mod loading;
pub(crate) mod parts;
mod pulse;
mod serving;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use log::{info, warn};

use self::examine::Examination;
use self::inbox::Inbox;
use self::inside::Looking;
use self::loading::{API_SERVER, Source};
use self::parts::KILL_GRACE;
use self::pulse::Pulse;
use crate::executor::{self, Executor};
use crate::flow::Flow;
use crate::hook::Registry;
use crate::hook::binding::MAIN_QUEUE;
use crate::kube::{Client, Discovery, Patcher};
use crate::message::{BindingId, Event, Signal, Snapshot};
use crate::metrics::Metrics;
use crate::monitor::Monitors;
use crate::operation::Perform;
use crate::queue;
use crate::serve::probe::{Probe, Readiness};
use crate::serve::webhook::{self, Purpose};
use crate::serve::{self, Listen, Server};
use crate::settings::{self, Settings};
use crate::threads;

/// How many events may wait for the main loop. Senders block beyond that; the loop never sends to itself.
const EVENTS: usize = 64;
/// How often a kind that the API server does not know may be asked for again: a CRD that comes later is found within this time.
const DISCOVERY_PACE: Duration = Duration::from_secs(5);
/// Probes in flight at the end.
const PROBE_DRAIN: Duration = Duration::from_millis(200);

/// Parts that readiness lists besides those of the webhook thread.
const HOOKS: &str = "hooks";
const FIRST_RUNS: &str = "first-runs";
const FIRST_RUNS_LACK: &str = "onStartup and Synchronization runs are not done yet";
const STOPPING: &str = "stopping";

/// How the process should end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was asked to.
    Asked,
    /// It was asked to begin anew with the hooks as they are now, which were found to be good.
    Again,
    /// It could not go on; the sentence names the thing and the remedy.
    Failed(String),
}

/// What runs, and what stops it.
struct Operator {
    settings: Settings,
    events: Sender<Event>,
    inbox: Inbox,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    executor: Executor,
    client: Client,
    /// What changes objects for hooks.
    patcher: Arc<Patcher>,
    probe: Server,
    looking: Looking,
    source: Source,
    /// Hooks are being read; a HUP meanwhile has them read once more.
    is_reading: bool,
    read_again: bool,
    registry: Option<Arc<Registry>>,
    /// Dropping it stops the waiting threads.
    stop: Option<Sender<Infallible>>,
    stopped: Receiver<Infallible>,
    /// What runs hooks from queues; there when hooks are known.
    flow: Option<Flow>,
    /// What watches the cluster for hooks; there when hooks are known.
    monitors: Option<Monitors>,
    is_connected: bool,
    is_synchronized: bool,
    /// Threads that have ended already: nobody waits for them at the stop.
    ended: BTreeSet<String>,
    /// The webhook threads that run.
    webhooks: Vec<&'static str>,
    /// A CRD has been told to have its objects converted here.
    has_conversions: Arc<AtomicBool>,
    /// Each hook's rate limit for reviews; there when hooks are known.
    paces: Option<webhook::Paces>,
    /// A signal to stop came while stopping.
    is_urged: bool,
}

/// Runs until told to stop.
pub(crate) fn run(settings: Settings) -> End {
    let (events, inbox) = bounded(EVENTS);
    let started = Operator::start(settings, events, inbox);
    match started {
        Ok(operator) => operator.run(),
        Err(reason) => End::Failed(reason),
    }
}

/// Begins anew as a fresh process with the same number, arguments and environment. Returns only if that is impossible. A fresh process
/// cannot inherit a thread that still sends events or a store that still fills. A signal that comes in the few milliseconds before the
/// new one listens acts the default way: TERM ends the process, or is lost if it is the first of its container, and KILL follows.
pub(crate) fn begin_anew() -> String {
    let error = executor::replace_process(&settings::arguments());
    format!("begin anew: {error}")
}

/// Which hook the first runs are at: all of them are in the main queue, one after the other.
fn first_runs(queues: &queue::Window) -> String {
    let all = queues.queues();
    let main = all.iter().find(|queue| queue.name == MAIN_QUEUE);
    match main.and_then(|queue| queue.head.as_ref()) {
        Some(head) if head.failures > 0 => format!(
            "{FIRST_RUNS_LACK}: {} has failed {} times and is tried again",
            head.hook, head.failures
        ),
        Some(head) => format!("{FIRST_RUNS_LACK}: now {}", head.hook),
        None => FIRST_RUNS_LACK.to_owned(),
    }
}

fn is_stop(event: &Event) -> bool {
    matches!(event, Event::Signal(Signal::Stop))
}

impl Operator {
    /// Everything that fails here is wrong in a way that waiting does not mend.
    fn start(
        settings: Settings,
        events: Sender<Event>,
        inbox: Receiver<Event>,
    ) -> Result<Operator, String> {
        // First, so that no thread made later takes a signal the default way.
        let (_, signals) = threads::spawn_signals(&events)
            .map_err(|error| format!("start the signal thread: {error}"))?;
        let hooks_dir = parts::hooks_directory(&settings.hooks_dir)?;
        let executor = parts::executor(&settings, &events)?;
        let client = parts::connect(&settings, &executor)?;
        let readiness = Arc::new(Readiness::waiting_for(&[
            (HOOKS, "being read"),
            (API_SERVER, "not reached yet"),
            (FIRST_RUNS, FIRST_RUNS_LACK),
        ]));
        let metrics = parts::metrics(&settings);
        let client = parts::observed(&client, &metrics);
        let patching = parts::connect_patcher(&settings, &executor)?;
        let patching = parts::observed(&patching, &metrics);
        let probe = Server::start(
            Listen {
                name: "probe",
                address: parts::address(&settings.listen, "--listen-address")?,
                port_flag: "--listen-port",
            },
            None,
            serve::Limits::default(),
            Arc::new(Probe::new(Arc::clone(&readiness), Arc::clone(&metrics))),
            &events,
        )
        .map_err(|error| error.to_string())?;
        info!(address:% = probe.address(); "probes and metrics are served");
        let looking = Looking::start(&settings, &readiness, &events)?;
        let source = Source {
            directory: hooks_dir,
            skip_broken: settings.skip_broken_hooks,
            examination: Examination::new(&settings),
        };
        loading::load(source.clone(), &executor, &events)?;
        let evaluate = apart::evaluator(&executor)?;
        let (stop, stopped) = bounded(0);
        Ok(Operator {
            settings,
            events,
            inbox: Inbox {
                events: inbox,
                signals,
            },
            readiness,
            metrics,
            executor,
            client,
            patcher: Arc::new(Patcher::new(patching, DISCOVERY_PACE, evaluate)),
            probe,
            looking,
            source,
            is_reading: true,
            read_again: false,
            registry: None,
            stop: Some(stop),
            stopped,
            flow: None,
            monitors: None,
            is_connected: false,
            is_synchronized: false,
            ended: BTreeSet::new(),
            webhooks: Vec::new(),
            has_conversions: Arc::default(),
            paces: None,
            is_urged: false,
        })
    }

    fn run(mut self) -> End {
        let mut pulse = Pulse::start(&self.metrics);
        let end = loop {
            // The sender is ours, so the channel cannot be disconnected.
            let Some(event) = pulse.next_event(&self.inbox, self.flow.as_mut()) else {
                break End::Asked;
            };
            match self.react(event) {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                Err(reason) => break End::Failed(reason),
            }
        };
        self.stop(end)
    }

    /// One event. Some: the end of the loop.
    fn react(&mut self, event: Event) -> Result<Option<End>, String> {
        match event {
            Event::Signal(Signal::Stop) => return Ok(Some(End::Asked)),
            Event::Signal(Signal::Reload) => self.read_hooks_again()?,
            Event::LoadedAgain(checked) => return self.hooks_were_read_again(checked),
            Event::Loaded(loaded) => {
                let registry = loaded?;
                self.hooks_are_loaded(&registry);
                self.start_flow(&registry)?;
                self.registry = Some(registry);
                self.reach_api_server()?;
                self.is_reading = false;
                if self.read_again {
                    self.read_hooks_again()?;
                }
            }
            Event::Connected => {
                self.readiness.has(API_SERVER);
                self.is_connected = true;
                if let Some(flow) = &mut self.flow {
                    flow.connected();
                }
                self.start_serving()?;
            }
            Event::Synchronized => {
                self.readiness.has(FIRST_RUNS);
                self.is_synchronized = true;
                self.start_serving()?;
            }
            event @ (Event::Changed { .. }
            | Event::Tick { .. }
            | Event::KubernetesEnabled { .. }
            | Event::SchedulesEnabled { .. }) => {
                if let Some(flow) = &mut self.flow {
                    flow.react(event);
                }
            }
            Event::Failed { reason } => return Err(reason),
            Event::Exited { thread, panic } => {
                self.ended.insert(thread.clone());
                return self.thread_ended(&thread, panic);
            }
        }
        Ok(None)
    }

    fn hooks_are_loaded(&self, registry: &Registry) {
        if registry.hooks.is_empty() {
            warn!(path:% = self.settings.hooks_dir.display(); "no hooks found; put executable files there");
        }
        for purpose in serving::purposes(registry) {
            purpose.expect(&self.readiness);
        }
        let broken: Vec<String> = registry
            .broken
            .iter()
            .map(|hook| format!("{}: {}", hook.name, hook.error))
            .collect();
        if broken.is_empty() {
            self.readiness.has(HOOKS);
        } else {
            self.readiness.lacks(HOOKS, &broken.join("; "));
        }
    }

    /// Starts the thread that waits for the API server, for as long as it takes.
    fn reach_api_server(&self) -> Result<(), String> {
        let client = self.client.clone();
        let readiness = Arc::clone(&self.readiness);
        let events = self.events.clone();
        let stopped = self.stopped.clone();
        threads::spawn("connect", &self.events, move || {
            if loading::wait_for_api_server(&client, &readiness, &stopped) {
                let _ = events.send(Event::Connected);
            }
        })
        .map(drop)
        .map_err(|error| format!("start the connect thread: {error}"))
    }

    fn start_flow(&mut self, registry: &Arc<Registry>) -> Result<(), String> {
        let monitors = Monitors::new(
            self.client.clone(),
            Arc::new(Discovery::new(self.client.clone(), DISCOVERY_PACE)),
            Arc::clone(registry),
            self.events.clone(),
            Arc::clone(&self.metrics),
        );
        let parts = queue::Parts {
            registry: Arc::clone(registry),
            executor: self.executor.clone(),
            monitors: Arc::new(monitors.clone()),
            metrics: Arc::clone(&self.metrics),
            events: self.events.clone(),
            operations: Arc::clone(&self.patcher) as Arc<dyn Perform>,
            proxy_hook_json: self.settings.log.proxy_hook_json,
        };
        let flow = Flow::start(parts, self.stopped.clone())
            .map_err(|error| format!("start the queues: {error}"))?;
        self.looking.show(registry, flow.window(), monitors.clone());
        let queues = flow.window();
        self.readiness
            .explain(FIRST_RUNS, Arc::new(move || first_runs(&queues)));
        self.flow = Some(flow);
        self.monitors = Some(monitors);
        Ok(())
    }

    /// A long-lived thread that ends by itself leaves a process that only looks alive: better to end in order and be restarted.
    fn thread_ended(&self, thread: &str, panic: Option<String>) -> Result<Option<End>, String> {
        match panic {
            Some(panic) => Err(format!("thread '{thread}' panicked: {panic}")),
            None if matches!(thread, "load" | "connect") => Ok(None),
            None => Err(format!("thread '{thread}' ended unexpectedly")),
        }
    }

    /// The stop order, with the reason for each step.
    fn stop(mut self, end: End) -> End {
        let began = Instant::now();
        // Why it could not go on is said once, by `main`.
        match end {
            End::Again => info!("stopping, to begin anew with the hooks as they are now"),
            _ => info!("stopping"),
        }
        // Endpoints of the Service are taken out as soon as this is seen.
        let reason = match end {
            End::Again => "reloading hooks",
            _ => "the operator was asked to stop",
        };
        self.readiness.lacks(STOPPING, reason);
        // A hook that is not begun now need not be ended later. Those that run have from here on until the end of the grace period.
        if let Some(flow) = &self.flow {
            flow.stop();
        }
        let mut awaited = self.awaited();
        if !self.webhooks.is_empty() && matches!(end, End::Asked | End::Again) {
            // Until that has reached every API server, requests still come here and must be answered.
            self.wait_unless_urged(&mut awaited, self.settings.stop.drain_delay);
        }
        // No more events: nobody would run a hook for them.
        if let Some(monitors) = &self.monitors {
            monitors.stop();
        }
        // Calls that hang would hold the webhook thread; nothing that is not done by now has to be done.
        self.client.shutdown();
        // The webhook thread closes its listener and answers what is in flight; schedules end.
        self.stop = None;
        self.wait_for_ends(&mut awaited, self.settings.stop.grace_period);
        // A hook that ended in time has had its changes made until here.
        self.patcher.stop();
        // Whatever hook still runs has had its time.
        self.executor.stop_all(KILL_GRACE + Duration::from_secs(1));
        self.looking.stop(PROBE_DRAIN);
        self.probe.drain(PROBE_DRAIN);
        let is_last = end != End::Again;
        if is_last && self.webhooks.contains(&Purpose::Admission.thread()) {
            let name = &self.settings.registration.configuration_name;
            info!(
                "the webhook configurations {name}-hooks stay in the cluster, for the next start; delete them if there is none"
            );
        }
        if is_last && self.has_conversions.load(Ordering::Relaxed) {
            info!(
                "the CustomResourceDefinitions keep their conversion, which needs an operator to answer"
            );
        }
        info!(seconds:% = began.elapsed().as_secs_f64(); "stopped");
        let urged = || self.inbox.waiting().any(|event| is_stop(&event));
        if end == End::Again && (self.is_urged || urged()) {
            return End::Asked;
        }
        end
    }

    /// The threads that end in order: the webhook threads, and each queue when its hook has ended.
    fn awaited(&self) -> BTreeSet<String> {
        let queues = self.flow.iter().flat_map(Flow::threads);
        let webhooks = self.webhooks.iter().map(|&name| name.to_owned());
        queues
            .chain(webhooks)
            .filter(|thread| !self.ended.contains(thread))
            .collect()
    }

    /// Waits, but not if a second signal comes. Threads that end meanwhile need not be waited for later.
    fn wait_unless_urged(&mut self, awaited: &mut BTreeSet<String>, pause: Duration) {
        let until = Instant::now() + pause;
        while let Ok(event) = self.inbox.next(until) {
            match event {
                Event::Exited { thread, .. } => {
                    awaited.remove(&thread);
                }
                Event::Signal(Signal::Stop) => {
                    self.is_urged = true;
                    return;
                }
                _ => {}
            }
        }
    }

    /// Waits for threads to end; a second signal means at once.
    fn wait_for_ends(&mut self, awaited: &mut BTreeSet<String>, limit: Duration) {
        let until = Instant::now() + limit;
        while !awaited.is_empty() {
            match self.inbox.next(until) {
                Ok(Event::Exited { thread, .. }) => {
                    awaited.remove(&thread);
                }
                Ok(Event::Signal(Signal::Stop)) => {
                    self.is_urged = true;
                    return;
                }
                Ok(_) => {}
                Err(_) => {
                    let names: Vec<&str> = awaited.iter().map(String::as_str).collect();
                    warn!(
                        "hooks or requests of these threads did not end within {} s and are ended now: {}",
                        limit.as_secs(),
                        names.join(", ")
                    );
                    return;
                }
            }
        }
    }
}

/// Queues know the monitors by what they ask of them.
impl queue::Monitors for Monitors {
    fn enable(&self, hook: usize) -> Result<(), String> {
        Monitors::enable(self, hook).map_err(|error| error.to_string())
    }

    fn snapshot(&self, id: BindingId) -> Snapshot {
        Monitors::snapshot(self, id)
    }

    fn synchronization(&self, id: BindingId) -> Snapshot {
        Monitors::synchronization(self, id)
    }

    fn open(&self, id: BindingId) {
        Monitors::open(self, id);
    }
}
