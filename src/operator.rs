//! `start`: wiring, start order, event loop, stop order. The story of the program.
//!
//! Runs on the main thread, which owns everything that has to be stopped and never blocks on anything but its events: what takes
//! time (reading hooks, reaching the API server, keeping webhooks) has a thread of its own. So a signal is heard at any moment.

use std::convert::Infallible;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use log::{error, info, warn};

use crate::executor::{Capture, Executor, ExecutorOptions, Inherit};
use crate::hook::{ConfigOutput, Registry};
use crate::kube::{Client, ClusterConfig, ExecRunner, Limits, Wanted};
use crate::message::{Event, Signal};
use crate::metrics::Metrics;
use crate::serve::probe::{Probe, Readiness};
use crate::serve::{self, Listen, Server, webhook};
use crate::settings::{self, Settings};
use crate::threads;

/// How many events may wait for the main loop. Senders block beyond that; the loop never sends to itself.
const EVENTS: usize = 1024;
/// LIMIT: `--config` of a hook. It prints a page of text; a minute covers an interpreter on a slow node that is starting up.
const CONFIG_TIME: Duration = Duration::from_secs(60);
/// LIMIT: output of `--config`. The largest configurations in the wild are some tens of kilobytes.
const CONFIG_OUTPUT: usize = 4 * 1024 * 1024;
/// LIMIT: a kubeconfig's exec plugin may have to talk to an identity provider.
const EXEC_PLUGIN_TIME: Duration = Duration::from_secs(60);
const EXEC_PLUGIN_OUTPUT: usize = 1024 * 1024;
/// Pauses between attempts to reach the API server: it is noticed within three seconds of being back.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// How often it is said again that the API server cannot be reached.
const REMINDER: Duration = Duration::from_secs(60);
/// Between TERM and KILL for the process group of a hook whose time is over.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// Probes in flight at the end.
const PROBE_DRAIN: Duration = Duration::from_millis(200);

/// Parts that readiness lists besides those of the webhook thread.
const HOOKS: &str = "hooks";
const API_SERVER: &str = "api-server";
const STOPPING: &str = "stopping";

/// How the process should end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was asked to.
    Asked,
    /// It could not go on; the sentence names the thing and the remedy.
    Failed(String),
}

/// What runs, and what stops it.
struct Operator {
    settings: Settings,
    events: Sender<Event>,
    inbox: Receiver<Event>,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    executor: Executor,
    client: Client,
    probe: Server,
    registry: Option<Arc<Registry>>,
    /// Dropping it stops the waiting threads.
    stop: Option<Sender<Infallible>>,
    stopped: Receiver<Infallible>,
    /// The webhook thread runs.
    webhook: bool,
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

impl Operator {
    /// Everything that fails here is wrong in a way that waiting does not mend.
    fn start(
        settings: Settings,
        events: Sender<Event>,
        inbox: Receiver<Event>,
    ) -> Result<Operator, String> {
        // First, so that no thread made later takes a signal the default way.
        threads::spawn_signals(&events)
            .map_err(|error| format!("start the signal thread: {error}"))?;
        let hooks_dir = hooks_directory(&settings.hooks_dir)?;
        let executor = executor(&settings, &events)?;
        let client = connect(&settings, &executor)?;
        let readiness = Arc::new(Readiness::waiting_for(&[
            (HOOKS, "being read"),
            (API_SERVER, "not reached yet"),
        ]));
        let metrics = Arc::new(Metrics::new(&settings.metrics_prefix));
        let probe = Server::start(
            Listen {
                name: "probe",
                address: address(&settings.listen, "--listen-address")?,
                port_flag: "--listen-port",
            },
            None,
            serve::Limits::default(),
            Arc::new(Probe::new(Arc::clone(&readiness), Arc::clone(&metrics))),
            &events,
        )
        .map_err(|error| error.to_string())?;
        info!(address:% = probe.address(); "probes and metrics are served");
        load(hooks_dir, settings.skip_broken_hooks, &executor, &events)?;
        let (stop, stopped) = bounded(0);
        Ok(Operator {
            settings,
            events,
            inbox,
            readiness,
            metrics,
            executor,
            client,
            probe,
            registry: None,
            stop: Some(stop),
            stopped,
            webhook: false,
        })
    }

    fn run(mut self) -> End {
        let end = loop {
            // The sender is ours, so the channel cannot be disconnected.
            let Ok(event) = self.inbox.recv() else {
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
            Event::Signal(Signal::Reload) => {
                info!("SIGHUP: hooks are read once, restart to read them again");
            }
            Event::Loaded(loaded) => {
                let registry = loaded?;
                self.hooks_are_loaded(&registry);
                self.registry = Some(registry);
                self.reach_api_server()?;
            }
            Event::Connected => {
                self.readiness.has(API_SERVER);
                self.start_webhooks()?;
                if self.readiness.missing().is_none() {
                    info!("ready");
                }
            }
            Event::Failed { reason } => return Err(reason),
            // Nothing is watched yet.
            Event::Changed { .. } => {}
            Event::Exited { thread, panic } => return self.thread_ended(&thread, panic),
        }
        Ok(None)
    }

    fn hooks_are_loaded(&self, registry: &Registry) {
        if registry.hooks.is_empty() {
            warn!(path:% = self.settings.hooks_dir.display(); "no hooks found; put executable files there");
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
            if wait_for_api_server(&client, &readiness, &stopped) {
                let _ = events.send(Event::Connected);
            }
        })
        .map(drop)
        .map_err(|error| format!("start the connect thread: {error}"))
    }

    fn start_webhooks(&mut self) -> Result<(), String> {
        let Some(registry) = &self.registry else {
            return Ok(());
        };
        if registry.routes.is_empty() {
            return Ok(());
        }
        let parts = webhook::Parts {
            client: self.client.clone(),
            registry: Arc::clone(registry),
            executor: self.executor.clone(),
            readiness: Arc::clone(&self.readiness),
            metrics: Arc::clone(&self.metrics),
            events: self.events.clone(),
        };
        let webhook = webhook::Webhook::new(parts, webhook_plan(&self.settings, &self.client)?)?;
        let stopped = self.stopped.clone();
        threads::spawn("webhook", &self.events, move || webhook.run(&stopped))
            .map_err(|error| format!("start the webhook thread: {error}"))?;
        self.webhook = true;
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
        if let End::Failed(reason) = &end {
            error!("stopping: {reason}");
        } else {
            info!("stopping");
        }
        // Endpoints of the Service are taken out as soon as this is seen.
        self.readiness
            .lacks(STOPPING, "the operator was asked to stop");
        if self.webhook && end == End::Asked {
            // Until that has reached every API server, requests still come here and must be answered.
            self.wait_unless_urged(self.settings.stop.drain_delay);
        }
        // Calls that hang would hold the webhook thread; nothing that is not done by now has to be done.
        self.client.shutdown();
        // The webhook thread closes its listener and answers what is in flight.
        self.stop = None;
        if self.webhook {
            self.wait_for_webhook(self.settings.stop.grace_period);
        }
        // Whatever hook still runs has nobody waiting for it.
        self.executor.stop_all(KILL_GRACE + Duration::from_secs(1));
        self.probe.drain(PROBE_DRAIN);
        info!(seconds:% = began.elapsed().as_secs_f64(); "stopped");
        end
    }

    /// Waits, but not if a second signal comes.
    fn wait_unless_urged(&self, pause: Duration) {
        let until = Instant::now() + pause;
        while let Ok(event) = self.inbox.recv_deadline(until) {
            if matches!(event, Event::Signal(Signal::Stop)) {
                return;
            }
        }
    }

    fn wait_for_webhook(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while let Ok(event) = self.inbox.recv_deadline(until) {
            match event {
                Event::Exited { thread, .. } if thread == "webhook" => return,
                Event::Signal(Signal::Stop) => return,
                _ => {}
            }
        }
        warn!(
            "requests in flight were not answered within {} s",
            limit.as_secs()
        );
    }
}

/// The hooks directory as an absolute path. An empty directory is a mistake in every case that was seen; one that holds other
/// files, such as a README, is taken as meant.
fn hooks_directory(path: &Path) -> Result<PathBuf, String> {
    if path.as_os_str().is_empty() {
        return Err("hooks directory: path is required but not set; name it with --hooks-dir or SHELL_OPERATOR_HOOKS_DIR".to_owned());
    }
    let absolute = std::path::absolute(path)
        .map_err(|error| format!("hooks directory: '{}': {error}", path.display()))?;
    let shown = absolute.display();
    let mut entries = match std::fs::read_dir(&absolute) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(format!(
                "hooks directory: path '{shown}' not exist; create it or name another with --hooks-dir"
            ));
        }
        Err(error) => {
            return Err(format!(
                "hooks directory: path '{shown}' cannot be read: {error}; name a readable directory with --hooks-dir"
            ));
        }
    };
    if entries.next().is_none() {
        return Err(format!(
            "hooks directory: '{shown}' is empty; put executable hooks into it or name another with --hooks-dir"
        ));
    }
    Ok(absolute)
}

pub(crate) fn executor(settings: &Settings, events: &Sender<Event>) -> Result<Executor, String> {
    let options = ExecutorOptions {
        tmp_dir: settings.tmp_dir.clone(),
        keep_tmp_files: settings.debug.keep_tmp_files,
        inherit: Inherit::All,
        kill_grace: KILL_GRACE,
        adopt_orphans: true,
    };
    Executor::start(options, events).map_err(|error| error.to_string())
}

/// The client; makes no call yet.
pub(crate) fn connect(settings: &Settings, executor: &Executor) -> Result<Client, String> {
    let kube = &settings.kube;
    let wanted = Wanted {
        kube_config: kube.config.as_deref(),
        context: kube.context.as_deref(),
        server: kube.server.as_deref(),
        service_account_dir: &kube.service_account_dir,
    };
    let config =
        ClusterConfig::load(&wanted, &settings::variable).map_err(|error| error.to_string())?;
    let limits = Limits {
        qps: kube.qps,
        burst: kube.burst,
        deadline: Duration::from_secs(30),
    };
    Client::new(config, limits, exec_runner(executor)).map_err(|error| error.to_string())
}

/// Runs a kubeconfig's exec plugin: processes are the executor's business, not the client's.
fn exec_runner(executor: &Executor) -> ExecRunner {
    let executor = executor.clone();
    Arc::new(move |command| {
        let args: Vec<&str> = command.args.iter().map(String::as_str).collect();
        let captured = executor
            .capture(&Capture {
                program: Path::new(&command.command),
                args: &args,
                env: &command.env,
                cwd: None,
                limit: EXEC_PLUGIN_TIME,
                max_output: EXEC_PLUGIN_OUTPUT,
            })
            .map_err(|error| error.to_string())?;
        if captured.exit.is_success() {
            Ok(captured.stdout)
        } else {
            Err(format!("{}: {}", captured.exit, captured.stderr))
        }
    })
}

/// Starts the thread that asks every hook for its configuration.
fn load(
    hooks_dir: PathBuf,
    skip_broken: bool,
    executor: &Executor,
    events: &Sender<Event>,
) -> Result<(), String> {
    let executor = executor.clone();
    let sender = events.clone();
    threads::spawn("load", events, move || {
        let run_config = |hook: &Path| {
            let captured = executor
                .capture(&Capture {
                    program: hook,
                    args: &["--config"],
                    env: &[],
                    cwd: Some(&hooks_dir),
                    limit: CONFIG_TIME,
                    max_output: CONFIG_OUTPUT,
                })
                .map_err(|error| error.to_string())?;
            let failed = !captured.exit.is_success();
            Ok(ConfigOutput {
                stdout: captured.stdout,
                stderr: captured.stderr.into_bytes(),
                failure: failed.then(|| captured.exit.to_string()),
            })
        };
        let loaded = Registry::load(&hooks_dir, &run_config, skip_broken)
            .map(Arc::new)
            .map_err(|error| error.to_string());
        let _ = sender.send(Event::Loaded(loaded));
    })
    .map(drop)
    .map_err(|error| format!("start the load thread: {error}"))
}

/// Asks until the API server answers. False: told to stop first.
fn wait_for_api_server(
    client: &Client,
    readiness: &Readiness,
    stopped: &Receiver<Infallible>,
) -> bool {
    let mut pause = FIRST_PAUSE;
    let mut said: Option<Instant> = None;
    loop {
        let reason = match client.get("/version") {
            Ok(_) => {
                info!(server = client.server(); "the API server answers");
                return true;
            }
            Err(error) => error.to_string(),
        };
        readiness.lacks(API_SERVER, &reason);
        if said.is_none_or(|said| said.elapsed() >= REMINDER) {
            warn!(server = client.server(); "waiting for the API server: {reason}");
            said = Some(Instant::now());
        }
        if !matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
            return false;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The address to listen on; host names are looked up.
fn address(listen: &settings::Listen, flag: &str) -> Result<SocketAddr, String> {
    let asked = (listen.address.as_str(), listen.port);
    asked
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next())
        .ok_or_else(|| {
            format!(
                "'{}' is no address of this machine; give an IP address with {flag}",
                listen.address
            )
        })
}

/// What the command line says about webhooks, with the defaults that depend on the machine and the cluster.
fn webhook_plan(settings: &Settings, client: &Client) -> Result<webhook::Plan, String> {
    let asked = &settings.admission;
    let namespace = settings
        .namespace
        .as_deref()
        .or(client.namespace())
        .unwrap_or("default");
    let address = match &asked.url {
        Some(url) => webhook::Address::Url(url.clone()),
        None => webhook::Address::Service {
            namespace: namespace.to_owned(),
            name: asked.service_name.clone(),
            port: asked.service_port,
        },
    };
    let announcement = webhook::Announcement {
        configuration_name: settings.registration.configuration_name.clone(),
        address,
        failure_policy: match settings.registration.failure_policy {
            settings::FailurePolicy::Fail => "Fail",
            settings::FailurePolicy::Ignore => "Ignore",
        },
    };
    Ok(webhook::Plan {
        source: certificate_source(settings, namespace, &announcement),
        announcement,
        listen: Listen {
            name: "admission",
            address: self::address(&asked.listen, "--validating-webhook-listen-address")?,
            port_flag: "--validating-webhook-listen-port",
        },
        caller_names: asked.client_names.clone(),
        caller_file: asked.client_auth_file.clone(),
        max_hooks: usize::from(asked.max_hooks),
        proxy_hook_json: settings.log.proxy_hook_json,
        drain_limit: settings.stop.grace_period,
    })
}

/// Files if any is named or lies where the original looks, else a Secret if one is named, else a certificate of our own.
fn certificate_source(
    settings: &Settings,
    namespace: &str,
    announcement: &webhook::Announcement,
) -> webhook::Source {
    let asked = &settings.admission;
    let defaults = settings::ADMISSION_FILES;
    let client_authorities = asked.client_cas.clone();
    let named = asked.server_cert.is_some() || asked.server_key.is_some() || asked.ca.is_some();
    let lying = [defaults.server_cert, defaults.server_key, defaults.ca]
        .iter()
        .any(|path| Path::new(path).exists());
    if let Some(secret) = &asked.tls_secret
        && !named
    {
        return webhook::Source::Secret {
            place: webhook::SecretPlace {
                namespace: secret
                    .namespace
                    .clone()
                    .unwrap_or_else(|| namespace.to_owned()),
                name: secret.name.clone(),
            },
            client_authorities,
        };
    }
    if named || lying {
        let path = |given: &Option<PathBuf>, default: &str| {
            given.clone().unwrap_or_else(|| default.into())
        };
        return webhook::Source::Files {
            files: webhook::Files {
                certificate: path(&asked.server_cert, defaults.server_cert),
                key: path(&asked.server_key, defaults.server_key),
                client_authorities,
            },
            ca: path(&asked.ca, defaults.ca),
        };
    }
    webhook::Source::SelfManaged {
        place: webhook::SecretPlace {
            namespace: namespace.to_owned(),
            name: format!("{}-tls", asked.service_name),
        },
        wish: webhook::Wish {
            names: announcement.certificate_names(),
            lifetime: asked.certificate_lifetime,
        },
        client_authorities,
    }
}
