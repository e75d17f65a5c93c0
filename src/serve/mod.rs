//! Our HTTP/1.1 server: the listener, its limits, its drain. Plain TCP, TLS or a unix socket with the same code.
//!
//! One long-lived thread accepts; every connection has a thread of its own (`connection.rs`) that owns its stream, under a cap.
//! What to answer is somebody else's business, given as a `Respond`. This file never reads a request and never logs one.
//!
//! ```text
//! accept thread --Wire--> connection thread: socket (deadlines, TLS) -> http (grammar) -> Respond -> socket
//! ```

mod admission;
mod budget;
mod caller;
mod certificate;
mod chunked;
mod connection;
mod conversion;
mod conversion_review;
pub(crate) mod debug;
mod definition;
mod derived;
mod dump;
mod http;
pub(crate) mod parameter;
mod places;
mod plural;
pub(crate) mod probe;
mod register;
mod rotation;
mod socket;
pub(crate) mod socket_file;
mod source;
mod tls;
pub(crate) mod webhook;
mod wire;
mod x509;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use log::warn;
use rustix::event::{PollFd, PollFlags};

pub(crate) use self::http::{Head, Request, Response};

use self::budget::Budget;
use self::http::Refusal;
use self::places::Places;
use self::socket::{Bells, READ_SIZE, Stage, Wake, later, wait};
pub(crate) use self::wire::Address;
use self::wire::{Listener, Wire};
use crate::message::Event;
use crate::review::Afterwards;
use crate::threads;

/// LIMIT: stack of a connection's thread. A TLS handshake and a JSON body of serde's full depth fit with room to spare; only
/// touched pages cost memory. Frames of unoptimised builds are several times larger.
const CONNECTION_STACK: usize = if cfg!(debug_assertions) {
    1024 * 1024
} else {
    256 * 1024
};

/// How long accepting rests after the system refused a descriptor: long enough not to spin, short against every deadline.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often a lasting lack of descriptors or threads is worth a line in the log.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// How long threads that were cut get to leave; they only have to notice.
const CUT_TIME: Duration = Duration::from_secs(1);

/// Bounds on what callers can make us hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    /// Bytes of request line and header fields.
    pub(crate) head: usize,
    /// Bytes of one body.
    pub(crate) body: usize,
    /// Bytes of the buffers of all bodies being read or served.
    pub(crate) bodies: usize,
    /// From the first byte of a request to its last.
    pub(crate) read: Duration,
    pub(crate) write: Duration,
    /// Between two requests.
    pub(crate) idle: Duration,
    pub(crate) handshake: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // Three API servers keep up to 26 connections each open; 512 leaves room for six times that, and at some tens
            // of kilobytes each they still cost less than one large body does.
            connections: 512,
            // The API server sends under 1 KiB; a bearer token of a large identity provider adds up to 8.
            head: 16 * 1024,
            // UPDATE carries two objects of up to 3 MiB each, and a mebibyte of JSON around them.
            body: 7 * 1024 * 1024,
            // At least four bodies of the largest size at one time (a growing buffer may be twice its content), or hundreds
            // of the usual 100 KiB.
            bodies: 64 * 1024 * 1024,
            // HX-03, HX-59: ten seconds each.
            read: Duration::from_secs(10),
            write: Duration::from_secs(10),
            // The API server keeps an idle connection for 90 s. Whoever closes first loses requests that are on their way,
            // so it must not be us.
            idle: Duration::from_secs(120),
            // What the API server grants a handshake.
            handshake: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// For requests that carry a whole list: the API server has it converted in one piece. Ten objects of the largest size, or
    /// tens of thousands of usual ones, as much as a hook may answer; two such lists at one time, or many usual requests.
    pub(crate) fn for_lists() -> Limits {
        Limits {
            body: 32 * 1024 * 1024,
            bodies: 128 * 1024 * 1024,
            ..Limits::default()
        }
    }
}

/// Answers requests. Called on connection threads, many at a time; a panic is answered with 500 and ends one connection.
pub(crate) trait Respond: Send + Sync + 'static {
    /// Judges a request by its head before its body is read, so that a caller without permission costs next to nothing.
    /// `None` lets it pass.
    fn screen(&self, head: &Head) -> Option<Response> {
        let _ = head;
        None
    }

    /// What need not be done before the caller has its answer may be left in `afterwards`.
    fn respond(&self, request: Request, afterwards: &mut Afterwards) -> Response;
}

/// Where to listen, and the words for saying that it is impossible.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listen {
    /// Names the threads and appears in log lines.
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// The flag that chooses the port.
    pub(crate) port_flag: &'static str,
}

/// What happened to connections since the start, for the metrics.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Open now.
    pub(crate) open: AtomicUsize,
    pub(crate) panics: AtomicU64,
    /// Turned away because the server was full.
    pub(crate) shed: AtomicU64,
    /// Closed although nothing was wrong with them, because another caller needed the place.
    pub(crate) evicted: AtomicU64,
    /// Requests answered with what was wrong with their HTTP.
    pub(crate) refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
}

/// What the threads of one server share.
struct Shared {
    name: &'static str,
    limits: Limits,
    tls: Option<Arc<tls::Current>>,
    respond: Arc<dyn Respond>,
    counts: Arc<Counts>,
    bodies: Arc<Budget>,
    places: Arc<Places>,
    stage: Arc<Stage>,
}

/// A running server. Dropping it starts a drain without waiting for its end.
pub(crate) struct Server {
    address: Address,
    counts: Arc<Counts>,
    bells: Bells,
    /// Disconnected when the last thread of this server is gone.
    ended: Receiver<Infallible>,
}

impl Server {
    /// Listens and begins to serve. The end of the accept thread is an `Event::Exited`, also when a drain asked for it.
    pub(crate) fn start(
        listen: Listen,
        tls: Option<Arc<tls::Current>>,
        limits: Limits,
        respond: Arc<dyn Respond>,
        events: &Sender<Event>,
    ) -> Result<Server, ServeError> {
        let failed = |cause| ServeError { listen, cause };
        let listener = TcpListener::bind(listen.address).map_err(failed)?;
        let listener = Listener::Tcp(listener);
        Server::serve(listen.name, listener, tls, limits, respond, events).map_err(failed)
    }

    /// The same on a unix socket that is bound already; who may open its file is for the file system to say.
    pub(crate) fn start_unix(
        name: &'static str,
        listener: UnixListener,
        limits: Limits,
        respond: Arc<dyn Respond>,
        events: &Sender<Event>,
    ) -> io::Result<Server> {
        let listener = Listener::Unix(listener);
        Server::serve(name, listener, None, limits, respond, events)
    }

    fn serve(
        name: &'static str,
        listener: Listener,
        tls: Option<Arc<tls::Current>>,
        limits: Limits,
        respond: Arc<dyn Respond>,
        events: &Sender<Event>,
    ) -> io::Result<Server> {
        listener.set_nonblocking()?;
        let address = listener.address()?;
        let (stage, bells) = Stage::new()?;
        let (alive, ended) = crossbeam_channel::bounded(0);
        let counts = Arc::new(Counts::default());
        let shared = Arc::new(Shared {
            name,
            limits,
            tls,
            respond,
            counts: Arc::clone(&counts),
            bodies: Budget::new(limits.bodies),
            places: Places::new(limits.connections, Arc::clone(&counts)),
            stage,
        });
        threads::spawn(&format!("accept:{name}"), events, move || {
            Acceptor {
                listener,
                shared,
                alive,
                admitted: 0,
                complained: None,
            }
            .run();
        })?;
        Ok(Server {
            address,
            counts,
            bells,
            ended,
        })
    }

    /// The address that is really listened on (port 0 asks the system for one).
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Stops: closes the listener and idle connections at once, answers what is in flight (with `Connection: close`) within
    /// `limit`, then cuts what is left and says how many connections that were.
    pub(crate) fn drain(mut self, limit: Duration) -> usize {
        self.bells.drain();
        // Nothing is ever sent: this ends by disconnection or by time.
        let _ = self.ended.recv_timeout(limit);
        let cut = self.counts.open.load(Ordering::Acquire);
        self.bells.cut();
        let _ = self.ended.recv_timeout(CUT_TIME);
        cut
    }
}

/// The accept thread.
struct Acceptor {
    listener: Listener,
    shared: Arc<Shared>,
    alive: Sender<Infallible>,
    /// Numbers the connections.
    admitted: u64,
    complained: Option<Instant>,
}

impl Acceptor {
    fn run(mut self) {
        loop {
            let listener = PollFd::new(&self.listener, PollFlags::IN);
            match wait(
                listener,
                self.shared.stage.drain_bell(),
                later(COMPLAINT_INTERVAL),
            ) {
                Ok(Wake::Ready) => self.accept(),
                Ok(Wake::Late) => {}
                Ok(Wake::Bell) => break,
                Err(error) => self.rest(&error),
            }
        }
        // Connections that the system has accepted for us already would be reset by closing the listener.
        while let Ok((wire, address)) = self.listener.accept() {
            self.admit(wire, address);
        }
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((wire, address)) => self.admit(wire, address),
            Err(error) => match error.kind() {
                // The caller left between the two calls.
                io::ErrorKind::WouldBlock
                | io::ErrorKind::Interrupted
                | io::ErrorKind::ConnectionAborted => {}
                _ => self.rest(&error),
            },
        }
    }

    /// INVARIANT: no error ends accepting. Out of descriptors is a state that passes; the waiting callers stay queued.
    fn rest(&mut self, error: &io::Error) {
        self.complain(&format!("cannot accept connections: {error}; trying on"));
        let nothing = PollFd::new(&self.listener, PollFlags::empty());
        // A bell is seen by the caller's next wait.
        let _ = wait(nothing, self.shared.stage.drain_bell(), later(ACCEPT_PAUSE));
    }

    fn admit(&mut self, wire: Wire, address: Address) {
        let wire = Arc::new(wire);
        self.admitted = self.admitted.wrapping_add(1);
        let Some(place) = self.shared.places.take(self.admitted, &wire, &self.alive) else {
            self.shed("every connection is being served");
            if self.shared.tls.is_none() {
                turn_away(&wire);
            }
            return;
        };
        let shared = Arc::clone(&self.shared);
        let started = threads::spawn_short(
            &format!("conn:{}", shared.name),
            CONNECTION_STACK,
            move || connection::run(wire, address, &shared, place),
        );
        if let Err(error) = started {
            self.shed(&format!("cannot start a thread: {error}"));
        }
    }

    fn shed(&mut self, why: &str) {
        self.shared.counts.shed.fetch_add(1, Ordering::Relaxed);
        let limit = self.shared.limits.connections;
        self.complain(&format!("turning connections away: {why} (limit {limit})"));
    }

    /// Logs, but not at the pace of a flood.
    fn complain(&mut self, what: &str) {
        if self
            .complained
            .is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL)
        {
            self.complained = Some(Instant::now());
            warn!("{}: {what}", self.shared.name);
        }
    }
}

/// Answers 503 without waiting for anything: the accept thread has no time to give to a caller it has no room for.
fn turn_away(mut wire: &Wire) {
    let answer = Refusal::TooManyConnections.response().encode(true, true);
    // Best effort by intention; the connection is dropped in any case. Reading what has arrived avoids a reset.
    let _ = wire.prepare();
    let _ = wire.write_all(&answer);
    let _ = wire.shutdown(Shutdown::Write);
    let _ = wire.read(&mut [0; READ_SIZE]);
}

/// The server could not start.
#[derive(Debug)]
pub(crate) struct ServeError {
    listen: Listen,
    cause: io::Error,
}

impl fmt::Display for ServeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Listen {
            address, port_flag, ..
        } = self.listen;
        write!(out, "cannot listen on {address}: ")?;
        match self.cause.kind() {
            io::ErrorKind::AddrInUse => write!(
                out,
                "address already in use; stop the other process or choose another port with {port_flag}"
            ),
            io::ErrorKind::PermissionDenied => write!(
                out,
                "permission denied; choose a port above 1023 with {port_flag} or grant the process CAP_NET_BIND_SERVICE"
            ),
            io::ErrorKind::AddrNotAvailable => {
                write!(
                    out,
                    "this machine has no such address; listen on one of its own or on 0.0.0.0"
                )
            }
            _ => write!(out, "{}; check the address and {port_flag}", self.cause),
        }
    }
}

impl std::error::Error for ServeError {}
