//! One connection, from its first byte to its close. Runs on the connection's own thread, which owns the stream alone.
//!
//! ```text
//! idle --first byte--> head --screen--> body --respond--> answer --> idle
//! ```
//!
//! Whatever goes wrong ends this connection only. A refused request is answered with its reason where the caller can still
//! read it, and is never served in part. Nothing is kept between two requests but bytes that belong to the next one.

use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use log::{debug, error};

use super::Shared;
use super::budget::Reservation;
use super::chunked::Chunked;
use super::http::{Framing, Head, Peer, Refusal, Request, Response, head_end};
use super::places::{Evicted, Phase, Place};
use super::socket::{READ_SIZE, Socket, Stream, Wake, later};
use super::wire::{Address, Wire};
use crate::review::Afterwards;
use crate::threads::panic_text;

/// A connection that was accepted just before a drain has its first request on the way; a network round trip or two of
/// waiting for it costs nothing, and cutting it would lose a review.
const FIRST_REQUEST_GRACE: Duration = Duration::from_secs(1);

struct Connection {
    stream: Stream,
    /// Bytes read and not yet used. Empty, without an allocation, while the connection is idle.
    buffer: Vec<u8>,
    peer: Arc<Peer>,
    shared: Arc<Shared>,
    place: Place,
    fresh: bool,
}

/// Why a connection ends.
enum End {
    /// There is nobody to answer: the caller left, or was silent, or a drain asked for it.
    Silent,
    Refused(Refusal),
    /// The last answer is written; `unread` says that the caller may still be sending.
    Answered {
        unread: bool,
    },
}

/// Serves `wire` until it ends.
pub(super) fn run(wire: Arc<Wire>, address: Address, shared: &Arc<Shared>, place: Place) {
    let stream = match open(wire, shared) {
        Ok(stream) => stream,
        Err(cause) => {
            shared
                .counts
                .handshakes_failed
                .fetch_add(1, Ordering::Relaxed);
            // Probes of the TCP port and callers without a certificate look like this; at info they would fill the log.
            debug!("connection from {address} to {}: {cause}", shared.name);
            return;
        }
    };
    let peer = Arc::new(Peer {
        address,
        certificate: stream.peer_certificate(),
    });
    let mut connection = Connection {
        stream,
        buffer: Vec::new(),
        peer,
        shared: Arc::clone(shared),
        place,
        fresh: true,
    };
    let end = loop {
        if let Err(end) = connection.exchange() {
            break end;
        }
    };
    // What is left to do is a courtesy, and no reason to keep others out.
    let _ = connection.place.enter(Phase::Unheard);
    let unread = match end {
        End::Silent => false,
        End::Answered { unread } => unread || !connection.buffer.is_empty(),
        End::Refused(refusal) => {
            connection
                .shared
                .counts
                .refused
                .fetch_add(1, Ordering::Relaxed);
            debug!("request from {address} to {}: {refusal}", shared.name);
            // It is closed either way.
            let _ = connection.write(&refusal.response().encode(true, true));
            true
        }
    };
    connection.stream.close(unread);
}

fn open(wire: Arc<Wire>, shared: &Shared) -> io::Result<Stream> {
    let socket = Socket::new(wire, Arc::clone(&shared.stage))?;
    match &shared.tls {
        // The configuration is taken once per connection: a swap never touches a connection that is open.
        Some(current) => Stream::tls(socket, current.config(), shared.limits.handshake),
        None => Ok(Stream::plain(socket)),
    }
}

impl Connection {
    /// One request and its answer. An error is the end of the connection.
    fn exchange(&mut self) -> Result<(), End> {
        let received = self.await_request()?;
        self.enter(Phase::Receiving)?;
        self.stream.limit(
            received
                .checked_add(self.shared.limits.read)
                .unwrap_or(received),
        );
        let head = self.read_head(received)?;
        let with_body = head.method != "HEAD";
        let keep_alive = head.keep_alive;

        let screened = self.guarded(|shared| shared.respond.screen(&head));
        if let Some(response) = screened.transpose() {
            let response = response.unwrap_or_else(|Panicked| panic_response());
            // Its body stays unread, so nothing can follow on this connection.
            let unread = head.framing != Framing::Empty;
            self.enter(Phase::Serving)?;
            return self.answer(&response, with_body, keep_alive && !unread, unread);
        }

        let mut reservation = self.shared.bodies.reserve();
        let body = self.read_body(&head, &mut reservation)?;
        self.release_buffer();
        self.enter(Phase::Serving)?;
        let request = Request { head, body };
        let mut afterwards = Afterwards::default();
        let response = self
            .guarded(|shared| shared.respond.respond(request, &mut afterwards))
            .unwrap_or_else(|Panicked| panic_response());
        drop(reservation);
        self.answer(&response, with_body, keep_alive, false)
    }

    /// Idles until a request begins, and says when that was.
    fn await_request(&mut self) -> Result<Instant, End> {
        self.release_buffer();
        if self.buffer.is_empty() {
            let mut wake = self.stream.wait_idle(later(self.shared.limits.idle), true);
            if self.fresh && matches!(wake, Ok(Wake::Bell)) {
                wake = self.stream.wait_idle(later(FIRST_REQUEST_GRACE), false);
            }
            if !matches!(wake, Ok(Wake::Ready)) {
                return Err(End::Silent);
            }
        }
        self.fresh = false;
        Ok(Instant::now())
    }

    fn read_head(&mut self, received: Instant) -> Result<Head, End> {
        let limits = self.shared.limits;
        let mut scanned = 0;
        let length = loop {
            let end = head_end(&self.buffer, scanned).map_err(End::Refused)?;
            // A complete head is measured too: one that arrives in a single read is no shorter for it.
            if end.unwrap_or(self.buffer.len()) > limits.head {
                return Err(End::Refused(Refusal::HeadTooLarge { limit: limits.head }));
            }
            if let Some(length) = end {
                break length;
            }
            scanned = self.buffer.len();
            self.fill()?;
        };
        let rest = self.buffer.split_off(length);
        let head = mem::replace(&mut self.buffer, rest);
        Head::parse(&head, received, &self.peer, limits.body).map_err(End::Refused)
    }

    /// Reads once into the buffer.
    fn fill(&mut self) -> Result<(), End> {
        let mut chunk = [0; READ_SIZE];
        let length = self.read(&mut chunk, self.buffer.is_empty())?;
        self.buffer
            .extend_from_slice(chunk.get(..length).unwrap_or_default());
        Ok(())
    }

    /// Reads at least one byte. Silence is answered only when something of a request was there: `nothing_yet` says not.
    fn read(&mut self, into: &mut [u8], nothing_yet: bool) -> Result<usize, End> {
        match self.stream.read(into) {
            Ok(0) => Err(End::Silent),
            Ok(length) => Ok(length),
            Err(error) if error.kind() == io::ErrorKind::TimedOut && !nothing_yet => {
                Err(End::Refused(Refusal::TooSlow))
            }
            Err(_) => Err(End::Silent),
        }
    }

    /// Reads the body, which grows with what arrives and not with what was announced.
    fn read_body(&mut self, head: &Head, reservation: &mut Reservation) -> Result<Vec<u8>, End> {
        if head.expects_continue && self.buffer.is_empty() {
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")?;
            self.stream.limit(
                head.received
                    .checked_add(self.shared.limits.read)
                    .unwrap_or(head.received),
            );
        }
        match head.framing {
            Framing::Empty => Ok(Vec::new()),
            Framing::Length(length) => self.read_length(length, reservation),
            Framing::Chunked => self.read_chunked(reservation),
        }
    }

    fn read_length(
        &mut self,
        length: usize,
        reservation: &mut Reservation,
    ) -> Result<Vec<u8>, End> {
        let rest = self.buffer.split_off(length.min(self.buffer.len()));
        let mut body = mem::replace(&mut self.buffer, rest);
        let mut chunk = [0; READ_SIZE];
        while body.len() < length {
            let wanted = length.saturating_sub(body.len()).min(READ_SIZE);
            let got = self.read(chunk.get_mut(..wanted).unwrap_or_default(), false)?;
            body.extend_from_slice(chunk.get(..got).unwrap_or_default());
            reservation.grow_to(body.capacity()).map_err(End::Refused)?;
        }
        Ok(body)
    }

    fn read_chunked(&mut self, reservation: &mut Reservation) -> Result<Vec<u8>, End> {
        let mut decoder = Chunked::new(self.shared.limits.body);
        let mut body = Vec::new();
        let used = decoder
            .feed(&self.buffer, &mut body)
            .map_err(End::Refused)?;
        self.buffer = self.buffer.split_off(used);
        let mut chunk = [0; READ_SIZE];
        while !decoder.is_done() {
            let got = self.read(&mut chunk, false)?;
            let got = chunk.get(..got).unwrap_or_default();
            let used = decoder.feed(got, &mut body).map_err(End::Refused)?;
            self.buffer
                .extend_from_slice(got.get(used..).unwrap_or_default());
            reservation.grow_to(body.capacity()).map_err(End::Refused)?;
        }
        Ok(body)
    }

    /// Calls into another room. Its panic is counted and becomes an answer, and does not leave this connection.
    fn guarded<T>(&self, call: impl FnOnce(&Shared) -> T) -> Result<T, Panicked> {
        catch_unwind(AssertUnwindSafe(|| call(&self.shared))).map_err(|payload| {
            self.shared.counts.panics.fetch_add(1, Ordering::Relaxed);
            error!(
                "a request to {} caused a panic: {}",
                self.shared.name,
                panic_text(payload.as_ref())
            );
            Panicked
        })
    }

    fn answer(
        &mut self,
        response: &Response,
        with_body: bool,
        keep_alive: bool,
        unread: bool,
    ) -> Result<(), End> {
        let close = response.close || !keep_alive || self.shared.stage.is_draining();
        self.write(&response.encode(with_body, close))?;
        if close {
            return Err(End::Answered { unread });
        }
        self.enter(Phase::Idle)
    }

    /// Says what this connection is doing; a connection that has to make room for another ends.
    fn enter(&self, phase: Phase) -> Result<(), End> {
        self.place.enter(phase).map_err(|Evicted| End::Silent)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.stream.limit(later(self.shared.limits.write));
        self.stream.write(bytes).map_err(|_| End::Silent)
    }

    /// An idle connection must cost little, and there may be hundreds: gives back what a request made the buffer grow to.
    fn release_buffer(&mut self) {
        self.buffer.shrink_to_fit();
    }
}

/// Somebody else's code panicked; the log has the words.
struct Panicked;

fn panic_response() -> Response {
    Response {
        close: true,
        ..Response::text(500, "internal error\n")
    }
}
