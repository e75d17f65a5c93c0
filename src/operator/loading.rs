//! The two things that a start waits for: what hooks say to `--config`, and the first answer of the API server.
//!
//! Each has a thread of its own that ends when it is done, so that the main loop hears signals meanwhile. HUP has the hooks read once
//! more, beside those that run: only if all of them are good does the operator begin anew.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use log::{error, info, warn};

use super::examine::Examination;
use super::{End, Operator, parts};
use crate::executor::{Capture, Executor};
use crate::hook::{ConfigOutput, Hook, Registry};
use crate::kube::Client;
use crate::message::Event;
use crate::serve::probe::Readiness;
use crate::threads;

/// LIMIT: `--config` of a hook. It prints a page of text; a minute covers an interpreter on a slow node that is starting up.
const CONFIG_TIME: Duration = Duration::from_secs(60);
/// LIMIT: output of `--config`. The largest configurations in the wild are some tens of kilobytes.
const CONFIG_OUTPUT: usize = 4 * 1024 * 1024;
/// Pauses between attempts to reach the API server: it is noticed within three seconds of being back.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);
/// How often it is said again that the API server cannot be reached.
const REMINDER: Duration = Duration::from_secs(60);

/// What readiness calls the API server.
pub(super) const API_SERVER: &str = "api-server";

/// Where hooks are, and what happens to broken ones.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) directory: PathBuf,
    pub(super) skip_broken: bool,
    pub(super) examination: Examination,
}

impl Operator {
    /// HUP: has the hooks read beside those that run.
    pub(super) fn read_hooks_again(&mut self) -> Result<(), String> {
        self.read_again = self.is_reading;
        if self.is_reading {
            info!("SIGHUP: hooks are being read; they are read once more after that");
            return Ok(());
        }
        info!("SIGHUP: hooks are read again; those that run go on meanwhile");
        self.is_reading = true;
        load_again(self.source.clone(), &self.executor, &self.events)
    }

    /// Broken hooks change nothing. With good ones everything ends in order and begins anew: new bindings get a Synchronization,
    /// old ones one more, and nothing of the former hooks is left to mix with them.
    pub(super) fn hooks_were_read_again(
        &mut self,
        checked: Result<(), String>,
    ) -> Result<Option<End>, String> {
        self.is_reading = false;
        if self.read_again {
            self.read_hooks_again()?;
            return Ok(None);
        }
        match checked {
            Ok(()) => Ok(Some(End::Again)),
            Err(reason) => {
                error!(error = reason.as_str(); "SIGHUP: the hooks as they are now cannot be used, the former ones go on; mend them and send SIGHUP again");
                Ok(None)
            }
        }
    }
}

/// Starts the thread that asks every hook for its configuration.
pub(super) fn load(
    source: Source,
    executor: &Executor,
    events: &Sender<Event>,
) -> Result<(), String> {
    let executor = executor.clone();
    let sender = events.clone();
    spawn_load(events, move || {
        let loaded = read(&source, &executor).map(Arc::new);
        let _ = sender.send(Event::Loaded(loaded));
    })
}

/// The same while hooks run, to see whether the operator could begin anew with what is there now.
pub(super) fn load_again(
    source: Source,
    executor: &Executor,
    events: &Sender<Event>,
) -> Result<(), String> {
    let executor = executor.clone();
    let sender = events.clone();
    spawn_load(events, move || {
        let checked = parts::hooks_directory(&source.directory)
            .and_then(|_| read(&source, &executor))
            .map(drop);
        let _ = sender.send(Event::LoadedAgain(checked));
    })
}

fn spawn_load(events: &Sender<Event>, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    threads::spawn("load", events, body)
        .map(drop)
        .map_err(|error| format!("start the load thread: {error}"))
}

fn read(source: &Source, executor: &Executor) -> Result<Registry, String> {
    let run_config = |hook: &Path| {
        let captured = executor
            .capture(&Capture {
                program: hook,
                args: &["--config"],
                env: &[],
                cwd: Some(&source.directory),
                input: None,
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
    let examine = |hook: &Hook| {
        let directory = &source.directory;
        source.examination.examine(hook, directory, executor)
    };
    Registry::load_examined(&source.directory, &run_config, &examine, source.skip_broken)
        .map_err(|error| error.to_string())
}

/// Asks until the API server answers. False: told to stop first.
pub(super) fn wait_for_api_server(
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
