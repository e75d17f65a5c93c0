//! List, then watch, for ever: the state machine that keeps a sink equal to what the API server has.
//!
//! ```text
//! Unlisted --list--> Listed(version) --watch--> Listed(newer version) ...
//!    ^                    |
//!    +------- 410 --------+       anything else: wait, then watch on from the same version
//! ```
//!
//! One thread runs one `Watcher` and owns its connection. A connection that breaks, ends or falls silent loses nothing: the
//! next watch begins at the last version that was seen. Only when the server no longer knows that version is everything listed
//! again, and the sink finds out what is new and what is gone. A watcher knows nothing of hooks, keeps no objects and never
//! gives up by itself.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use log::{debug, info, warn};

use super::backoff::{Backoff, Rest, Tempo, jittered};
use super::client::Client;
use super::error::{Call, Error, Fault};
use super::events::{EventKind, Events};
use super::ground::Ground;
use super::list;
use super::object::{Object, type_prefix};
use super::resource::{Resource, query_value};

/// Refusals to go on from a version after which everything is listed again. A server that was restored from a backup may
/// refuse a version for ever.
const REFUSALS: u32 = 5;

/// What a watch is about. Equal selections may share one watch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Selection {
    path: String,
    labels: String,
    fields: String,
    prefix: String,
}

impl Selection {
    /// No namespace means all of them; selectors are in the form of the query parameters, empty for none.
    pub(crate) fn new(
        resource: &Resource,
        namespace: Option<&str>,
        labels: &str,
        fields: &str,
    ) -> Result<Selection, Error> {
        Ok(Selection {
            path: resource.path(namespace, None)?,
            labels: labels.to_owned(),
            fields: fields.to_owned(),
            prefix: type_prefix(&resource.api_version(), &resource.kind),
        })
    }

    pub(super) fn path_with(&self, parameters: &[(&str, &str)]) -> String {
        let selectors = [
            ("labelSelector", self.labels.as_str()),
            ("fieldSelector", self.fields.as_str()),
        ];
        let query: Vec<String> = selectors
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .chain(parameters)
            .map(|(name, value)| format!("{name}={}", query_value(value)))
            .collect();
        if query.is_empty() {
            return self.path.clone();
        }
        format!("{}?{}", self.path, query.join("&"))
    }

    pub(super) fn type_prefix(&self) -> &str {
        &self.prefix
    }

    pub(super) fn call(&self) -> Call {
        Call {
            method: "GET",
            path: self.path.clone(),
        }
    }
}

impl fmt::Display for Selection {
    /// For messages; selectors may hold what does not belong in a log.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.path)
    }
}

/// What happened to an object since the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Difference {
    /// It is new or has changed.
    Put,
    Deleted,
}

/// Receives what a watcher sees.
pub(crate) trait Sink {
    /// False ends the watch.
    fn wanted(&self) -> bool;
    /// A list begins. It may begin again before it has ended.
    fn begin(&mut self);
    /// An object of the list.
    fn item(&mut self, object: &Object<'_>);
    /// The list is complete: what was not in it is gone.
    fn end_of_list(&mut self);
    fn changed(&mut self, difference: Difference, object: &Object<'_>);
    /// Something went wrong; it will be tried again.
    fn failed(&mut self, error: &Error);
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Nothing is known, or something may have been missed.
    Unlisted(Means),
    /// Everything up to this version is known.
    Listed { version: String },
}

/// How a list is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Means {
    /// As events that end with a marked bookmark.
    Stream,
    Pages,
    /// In one answer, when the pages expire faster than they are read.
    Whole,
}

/// Where an attempt failed: a server that cannot be reached is waited for together with all other watches.
pub(super) enum Failure {
    Begin(Error),
    Read(Error),
}

impl Failure {
    fn error(&self) -> &Error {
        match self {
            Failure::Begin(error) | Failure::Read(error) => error,
        }
    }
}

pub(crate) struct Watcher<S> {
    client: Client,
    selection: Selection,
    ground: Arc<Ground>,
    tempo: Tempo,
    rest: Arc<Rest>,
    sink: S,
    state: State,
    /// The means of the next list from scratch.
    means: Means,
    backoff: Backoff,
    /// Failures since something was last received.
    failures: u32,
    refusals: u32,
    /// Lists that were followed by a 410 before anything else.
    expiries: u32,
    absent: Option<Instant>,
    ever_listed: bool,
    said: Option<Instant>,
}

impl<S: Sink> Watcher<S> {
    pub(crate) fn new(
        client: Client,
        selection: Selection,
        ground: Arc<Ground>,
        tempo: Tempo,
        rest: Arc<Rest>,
        sink: S,
    ) -> Watcher<S> {
        Watcher {
            backoff: Backoff::new(tempo.first_pause, tempo.longest_pause),
            client,
            selection,
            ground,
            tempo,
            rest,
            sink,
            state: State::Unlisted(Means::Stream),
            means: Means::Stream,
            failures: 0,
            refusals: 0,
            expiries: 0,
            absent: None,
            ever_listed: false,
            said: None,
        }
    }

    /// Runs until nobody wants it any more or the client is shut down.
    pub(crate) fn run(mut self) {
        while self.wanted() {
            let outcome = match self.state.clone() {
                State::Unlisted(Means::Stream) if self.ground.streams_lists(&self.client) => {
                    self.stream_list()
                }
                State::Unlisted(Means::Stream) => {
                    self.state = State::Unlisted(Means::Pages);
                    continue;
                }
                State::Unlisted(Means::Pages) => self.list(Some(self.tempo.page)),
                State::Unlisted(Means::Whole) => self.list(None),
                State::Listed { version } => self.follow(&version),
            };
            let Err(failure) = outcome else { continue };
            if matches!(failure.error(), Error::Stopped) || !self.wanted() {
                return;
            }
            self.recover(&failure);
        }
    }

    fn wanted(&self) -> bool {
        !self.rest.is_stopped() && self.sink.wanted()
    }

    fn list(&mut self, page: Option<u32>) -> Result<(), Failure> {
        self.sink.begin();
        let version = list::read(
            &self.client,
            &self.selection,
            page,
            self.tempo.silence,
            &mut self.sink,
        )?;
        self.listed(version);
        Ok(())
    }

    fn listed(&mut self, version: String) {
        self.sink.end_of_list();
        self.ever_listed = true;
        self.works();
        self.state = State::Listed { version };
    }

    /// Asks for the objects as events. Afterwards a watch of its own begins at the version of the closing bookmark: this answer
    /// has another limit for silence, and was asked for so long that it may be quiet for minutes.
    fn stream_list(&mut self) -> Result<(), Failure> {
        let seconds = self.tempo.listing.as_secs().max(1).to_string();
        let path = self.selection.path_with(&[
            ("watch", "1"),
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &seconds),
        ]);
        self.sink.begin();
        let began = Instant::now();
        let stream = self
            .client
            .watch(&path, self.tempo.initial_events)
            .map_err(Failure::Begin)?;
        let mut events = Events::new(stream, &self.selection);
        let endless = |what| Failure::Read(list::not_json(&self.selection, what));
        while let Some(event) = events.next().map_err(Failure::Read)? {
            if !self.wanted() {
                return Err(Failure::Read(Error::Stopped));
            }
            match event.kind {
                EventKind::Put => self.sink.item(&event.object),
                EventKind::Bookmark if event.ends_initial_events() => {
                    let version = event.object.version.into_owned();
                    self.listed(version);
                    return Ok(());
                }
                EventKind::Bookmark | EventKind::Unknown => {}
                // Only a server that does not know streaming lists sends this before the mark.
                EventKind::Deleted => return Err(endless("initial events with a deletion")),
            }
            if began.elapsed() > self.tempo.listing {
                break;
            }
        }
        Err(endless("initial events without their closing mark"))
    }

    fn follow(&mut self, version: &str) -> Result<(), Failure> {
        let seconds = jittered(self.tempo.served).as_secs().max(1).to_string();
        let path = self.selection.path_with(&[
            ("watch", "1"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", &seconds),
        ]);
        let began = Instant::now();
        let stream = self
            .client
            .watch(&path, self.tempo.silence)
            .map_err(Failure::Begin)?;
        let mut events = Events::new(stream, &self.selection);
        let mut received = false;
        loop {
            let next = events.next();
            let proven = received || began.elapsed() >= self.tempo.too_short;
            let event = match next {
                Ok(Some(event)) => event,
                Ok(None) if proven => {
                    self.works();
                    return Ok(());
                }
                Ok(None) => return Err(Failure::Read(events.cut())),
                Err(error) => {
                    if proven && matches!(error, Error::Transport { .. }) {
                        self.works();
                    }
                    return Err(Failure::Read(error));
                }
            };
            received = true;
            self.works();
            self.expiries = 0;
            if !self.wanted() {
                return Ok(());
            }
            match event.kind {
                EventKind::Put => self.sink.changed(Difference::Put, &event.object),
                EventKind::Deleted => self.sink.changed(Difference::Deleted, &event.object),
                EventKind::Bookmark => {}
                EventKind::Unknown => {
                    debug!(watch:% = self.selection; "an event of an unknown type is passed over");
                }
            }
            if !event.object.version.is_empty() {
                self.state = State::Listed {
                    version: event.object.version.into_owned(),
                };
            }
        }
    }

    /// Something was received in order: earlier failures are over.
    fn works(&mut self) {
        self.backoff.reset();
        self.failures = 0;
        self.refusals = 0;
        self.absent = None;
        if self.said.take().is_some() {
            info!(watch:% = self.selection; "the watch works again");
        }
    }

    /// Decides from where to go on, and waits as long as is fitting.
    fn recover(&mut self, failure: &Failure) {
        if self.falls_back(failure) {
            return;
        }
        let error = failure.error();
        self.sink.failed(error);
        // A connection that broke after it had worked is made anew at once; so is one that the server had closed while it was
        // idle in the pool.
        let mut at_once = self.failures == 0
            && match failure {
                Failure::Read(error) => matches!(error, Error::Transport { .. }),
                Failure::Begin(Error::Transport { fault, .. }) => *fault == Fault::Closed,
                Failure::Begin(_) => false,
            };
        self.failures += 1;
        let listed = matches!(self.state, State::Listed { .. });
        if error.is_gone() {
            debug!(watch:% = self.selection; "everything is listed again: {error}");
            self.state = State::Unlisted(if listed { self.means } else { Means::Whole });
            self.expiries += 1;
            at_once = self.expiries == 1;
        } else if error.is_not_found() {
            self.is_absent();
        } else if listed && is_refusal(error) {
            self.refusals += 1;
            if self.refusals >= REFUSALS {
                self.state = State::Unlisted(self.means);
            }
        }
        if !at_once {
            self.pause(failure);
        }
    }

    fn pause(&mut self, failure: &Failure) {
        let error = failure.error();
        self.complain(error);
        if matches!(failure, Failure::Begin(Error::Transport { .. })) {
            let probe = || Ground::answers(&self.client);
            self.ground.outage.wait(&self.rest, &self.tempo, &probe);
            return;
        }
        // An expired version after a list that went well: the list has reset the pauses, but the server is in trouble.
        let growth = 2u32.saturating_pow(self.expiries);
        let mut pause = self.backoff.pause().saturating_mul(growth);
        pause = pause.min(self.tempo.longest_pause);
        if error.is_unauthorized() {
            pause = pause.min(self.tempo.login_pause);
        }
        if self.ground.outage.is_settling(&self.tempo) {
            pause = pause.min(jittered(self.tempo.longest_probe));
        }
        self.rest.sleep(error.retry_after().unwrap_or(pause));
    }

    /// True if the streaming list is given up and nothing else is wrong.
    fn falls_back(&mut self, failure: &Failure) -> bool {
        if self.state != State::Unlisted(Means::Stream) {
            return false;
        }
        match failure {
            Failure::Begin(error) if matches!(error.code(), Some(400 | 405 | 406 | 422)) => {
                self.ground.cannot_stream();
            }
            Failure::Read(Error::NotJson { .. }) => {}
            Failure::Read(Error::Transport {
                fault: Fault::Timeout(_),
                ..
            }) => {}
            _ => return false,
        }
        self.means = Means::Pages;
        self.state = State::Unlisted(Means::Pages);
        debug!(watch:% = self.selection; "no streaming list here, a plain one is asked for");
        true
    }

    /// The resource is not there. When that lasts, its objects are gone too.
    fn is_absent(&mut self) {
        self.state = State::Unlisted(self.means);
        let since = *self.absent.get_or_insert_with(Instant::now);
        if self.ever_listed && since.elapsed() >= self.tempo.absence {
            self.sink.begin();
            self.sink.end_of_list();
            self.absent = Some(Instant::now());
        }
    }

    /// Says what is wrong, but not every time.
    fn complain(&mut self, error: &Error) {
        let due = |said: Instant| said.elapsed() >= self.tempo.reminder;
        if self.said.is_none_or(due) {
            warn!(watch:% = self.selection; "Watch Failed: {error}; it is tried again");
            self.said = Some(Instant::now());
        }
    }
}

/// The server has something against this very question, unlike one that is overloaded, starting, or does not know us.
fn is_refusal(error: &Error) -> bool {
    error
        .code()
        .is_some_and(|code| !matches!(code, 401 | 403 | 429 | 503))
}
