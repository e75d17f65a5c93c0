//! Tests of the server with real sockets on loopback: a small client, certificates, and a `Respond` that can misbehave.
//!
//! `grammar` feeds the pure parsers, `attack` is what hostile callers send, `traffic` what honest ones do, `secure` is TLS.

mod attack;
mod authority;
mod grammar;
mod secure;
mod traffic;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};

use super::http::{Head, Request, Response};
use super::{Limits, Listen, Respond, Server, tls};
use crate::message::Event;
use crate::review::Afterwards;

/// More than the socket buffers of both ends can hold, so that a caller who does not read makes the server wait.
const LARGE: usize = 24_000_000;

/// No test waits longer than this for anything; a healthy one waits for milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// A xorshift generator: the same seed gives the same mutations on every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }
}

/// Answers with what it was asked: `METHOD path query body-length`. Some paths do something else.
struct Echo {
    /// `/wait` says that it has begun, and answers when it is told to.
    begun: Sender<()>,
    go_on: Receiver<()>,
}

impl Respond for Echo {
    fn screen(&self, head: &Head) -> Option<Response> {
        match head.path.as_str() {
            "/forbidden" => Some(Response::text(403, "no\n")),
            "/screen-panic" => panic!("screened"),
            _ => None,
        }
    }

    fn respond(&self, request: Request, _afterwards: &mut Afterwards) -> Response {
        let Request { head, body } = request;
        match head.path.as_str() {
            "/panic" => panic!("asked for"),
            "/redirect" => Response::text(302, "elsewhere"),
            "/wait" => {
                self.begun.send(()).unwrap();
                let _ = self.go_on.recv();
                Response::text(200, "waited")
            }
            "/large" => Response::json(200, vec![b'x'; LARGE]),
            path => Response::text(
                200,
                format!(
                    "{} {path} {} {}",
                    head.method,
                    head.query.as_deref().unwrap_or("-"),
                    body.len()
                ),
            ),
        }
    }
}

/// A server under test, with the other ends of its channels.
struct Bench {
    server: Server,
    events: Receiver<Event>,
    begun: Receiver<()>,
    go_on: Sender<()>,
}

impl Bench {
    fn start(limits: Limits, tls: Option<Arc<tls::Current>>) -> Bench {
        let (begun_sender, begun) = crossbeam_channel::unbounded();
        let (go_on, go_on_receiver) = crossbeam_channel::unbounded();
        let (event_sender, events) = crossbeam_channel::unbounded();
        let listen = Listen {
            name: "test",
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            port_flag: "--listen-port",
        };
        let echo = Arc::new(Echo {
            begun: begun_sender,
            go_on: go_on_receiver,
        });
        let server = Server::start(listen, tls, limits, echo, &event_sender).unwrap();
        Bench {
            server,
            events,
            begun,
            go_on,
        }
    }

    fn plain() -> Bench {
        Bench::start(Limits::default(), None)
    }

    fn address(&self) -> SocketAddr {
        self.server.address().tcp()
    }

    fn connect(&self) -> Caller<TcpStream> {
        Caller::new(dial(self.address()))
    }

    /// Sends `bytes` on a connection of its own and returns everything that came back until the server closed it.
    fn exchange(&self, bytes: &[u8]) -> String {
        let mut caller = self.connect();
        // The server may have refused and closed before everything was sent.
        let _ = caller.stream.write_all(bytes);
        caller.until_closed()
    }

    /// Proves that the server serves.
    fn serves(&self) {
        let mut caller = self.connect();
        assert_eq!(caller.get("/fine").body, "GET /fine - 0");
    }

    /// Waits until so many connections are open.
    fn open(&self, wanted: usize) {
        let counts = self.server.counts();
        wait_until(|| counts.open.load(std::sync::atomic::Ordering::SeqCst) == wanted);
    }
}

fn dial(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn wait_until(condition: impl Fn() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(std::time::Instant::now() < end, "waited in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A client that reads one answer at a time.
struct Caller<S> {
    stream: S,
    unread: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl<S: Read + Write> Caller<S> {
    fn new(stream: S) -> Caller<S> {
        Caller {
            stream,
            unread: Vec::new(),
        }
    }

    fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        self.answer()
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        self.stream.flush().unwrap();
    }

    fn answer(&mut self) -> Answer {
        let head = self.head();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |length| length.parse().unwrap());
        while self.unread.len() < length {
            self.fill();
        }
        let rest = self.unread.split_off(length);
        let body = String::from_utf8(std::mem::replace(&mut self.unread, rest)).unwrap();
        Answer { status, head, body }
    }

    fn head(&mut self) -> String {
        let end = loop {
            match self
                .unread
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            {
                Some(at) => break at + 4,
                None => self.fill(),
            }
        };
        let rest = self.unread.split_off(end);
        String::from_utf8(std::mem::replace(&mut self.unread, rest)).unwrap()
    }

    fn fill(&mut self) {
        let mut chunk = [0; 4096];
        let length = self.stream.read(&mut chunk).unwrap();
        assert!(
            length > 0,
            "closed after {:?}",
            String::from_utf8_lossy(&self.unread)
        );
        self.unread.extend_from_slice(&chunk[..length]);
    }

    /// Everything until the server closes.
    fn until_closed(&mut self) -> String {
        let mut all = std::mem::take(&mut self.unread);
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(length) => all.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("not closed: {error}"),
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }
}
