//! `scripts/bench admission`: what the operator adds to the bare cost of running a hook.
//!
//! Floor and operator are measured in one run, in turns, with the same hook and the same number of callers, so that the ratio means
//! something on any machine. Floor: write the input file and the empty file for the answer, which a hook is
//! promised, start the hook, wait, read the answer; no server. Callers speak TLS with
//! keep-alive to the operator's own port; the API server is there (a real one) but takes no part.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// The least a hook can do.
pub(crate) const HOOK: &str = r#"#!/bin/sh
if [ "$1" = --config ]; then
cat <<'CONFIG'
configVersion: v1
kubernetesValidating:
- name: NAME.bench.example.com
  rules:
  - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
  namespace: {labelSelector: {matchLabels: {bench: "never"}}}
CONFIG
exit 0
fi
echo '{"allowed":true}' > "$VALIDATING_RESPONSE_PATH"
"#;

/// How long the calls of one measurement took.
pub(crate) struct Figures {
    latencies: Vec<Duration>,
    pub(crate) elapsed: Duration,
}

impl Figures {
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let position = (last as f64 * share).round() as usize;
        self.latencies[position]
    }

    pub(crate) fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64()
    }

    fn merge(mut self, other: Figures) -> Figures {
        self.latencies.extend(other.latencies);
        self.latencies.sort();
        self.elapsed += other.elapsed;
        self
    }
}

/// Runs `work` `total` times on `callers` threads. What they need first is made before the clock starts.
fn measure<C: Send>(
    callers: usize,
    total: usize,
    make: impl Fn(usize) -> C,
    work: impl Fn(&mut C, usize) + Sync,
) -> Figures {
    let next = AtomicUsize::new(0);
    let made: Vec<C> = (0..callers).map(make).collect();
    let start = Instant::now();
    let mut latencies: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = made
            .into_iter()
            .map(|mut own| {
                let (next, work) = (&next, &work);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    loop {
                        let call = next.fetch_add(1, Ordering::Relaxed);
                        if call >= total {
                            return seen;
                        }
                        let begin = Instant::now();
                        work(&mut own, call);
                        seen.push(begin.elapsed());
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let elapsed = start.elapsed();
    latencies.sort();
    Figures { latencies, elapsed }
}

/// The bare cost: no server, no operator.
pub(crate) fn floor(hook: &Path, folder: &Path, callers: usize, total: usize) -> Figures {
    let context = format!(
        "[{{\"binding\":\"b\",\"type\":\"Validating\",\"review\":{}}}]",
        review("0")
    );
    measure(
        callers,
        total,
        |caller| {
            let own = folder.join(format!("floor-{caller}"));
            fs::create_dir_all(&own).unwrap();
            own
        },
        |own: &mut PathBuf, call| {
            let (input, output) = (
                own.join(format!("{call}.json")),
                own.join(format!("{call}.out")),
            );
            fs::write(&input, &context).unwrap();
            // The hook's contract: the file for its answer is there, and empty.
            fs::write(&output, b"").unwrap();
            let status = Command::new(hook)
                .env("BINDING_CONTEXT_PATH", &input)
                .env("VALIDATING_RESPONSE_PATH", &output)
                .status()
                .unwrap();
            assert!(status.success());
            assert!(fs::read_to_string(&output).unwrap().contains("true"));
            fs::remove_file(input).unwrap();
            fs::remove_file(output).unwrap();
        },
    )
}

/// Calls of the operator's webhook port: `callers` connections, each with one review under way at any time. One thread serves
/// all of them, as load generators do: callers share the processors with what they measure, and a thread for each would have the
/// kernel spend its time on them.
pub(crate) fn served(target: &Target, callers: usize, total: usize) -> Figures {
    let mut connections: Vec<TlsStream> = (0..callers).map(|_| target.connect()).collect();
    let mut under_way: Vec<Option<(usize, Instant)>> = vec![None; callers];
    let mut latencies = Vec::with_capacity(total);
    let mut sent = 0;
    let start = Instant::now();
    for (connection, call) in connections.iter_mut().zip(&mut under_way) {
        if sent < total {
            *call = Some((sent, Instant::now()));
            target.ask(connection, sent);
            sent += 1;
        }
    }
    while latencies.len() < total {
        for place in readable(&connections, &under_way) {
            let (call, begun) = under_way[place].take().unwrap();
            target.check_answer(&mut connections[place], call);
            latencies.push(begun.elapsed());
            if sent < total {
                under_way[place] = Some((sent, Instant::now()));
                target.ask(&mut connections[place], sent);
                sent += 1;
            }
        }
    }
    let elapsed = start.elapsed();
    latencies.sort();
    Figures { latencies, elapsed }
}

/// The connections whose answer has begun to arrive. A single one need not be asked: reading it waits.
fn readable(connections: &[TlsStream], under_way: &[Option<(usize, Instant)>]) -> Vec<usize> {
    let waiting: Vec<usize> = (0..connections.len())
        .filter(|place| under_way[*place].is_some())
        .collect();
    if waiting.len() == 1 {
        return waiting;
    }
    let mut polled: Vec<PollFd<'_>> = waiting
        .iter()
        .map(|place| PollFd::new(connections[*place].get_ref(), PollFlags::IN))
        .collect();
    poll(&mut polled, None).unwrap();
    let arrived = waiting
        .iter()
        .zip(&polled)
        .filter(|(_, polled)| !polled.revents().is_empty());
    arrived.map(|(place, _)| *place).collect()
}

pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// Where to call and whom to trust.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
    /// A review with `CALL_MARK` in the place of the call's number.
    body: String,
    tls: Arc<ClientConfig>,
}

/// A NUL is nowhere else in a review.
const CALL_MARK: char = '\0';

impl Target {
    pub(crate) fn new(address: SocketAddr, path: &str, ca_pem: &str) -> Target {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Target {
            address,
            path: path.to_owned(),
            body: review(&CALL_MARK.to_string()),
            tls: Arc::new(tls),
        }
    }

    pub(crate) fn connect(&self) -> TlsStream {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let name = ServerName::from(self.address.ip());
        let session = ClientConnection::new(Arc::clone(&self.tls), name).unwrap();
        let mut stream = StreamOwned::new(session, socket);
        // The connection is kept for all reviews, so its handshake is no part of any.
        stream.conn.complete_io(&mut stream.sock).unwrap();
        stream
    }

    /// Sends one review over a kept connection.
    fn ask(&self, stream: &mut TlsStream, call: usize) {
        let body = self.body.replace(CALL_MARK, &call.to_string());
        let length = body.len();
        let request = format!(
            "POST {}?timeout=10s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}",
            self.path,
        );
        stream.write_all(request.as_bytes()).unwrap();
    }

    /// The answer must allow and carry the uid of the question.
    fn check_answer(&self, stream: &mut TlsStream, call: usize) {
        let answer = read_answer(stream);
        assert!(
            answer.contains(&format!("\"uid\":\"u-{call}\"")),
            "{answer}"
        );
        assert!(answer.contains("\"allowed\":true"), "{answer}");
    }
}

/// The body of one answer. An answer comes in one piece nearly always, so it is looked at again from the start when it does not: the
/// caller shares the processors with what it measures, and must cost little.
fn read_answer(stream: &mut TlsStream) -> String {
    let mut received = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = stream.read(&mut chunk).unwrap();
        assert!(count > 0, "the connection was closed in an answer");
        received.extend_from_slice(&chunk[..count]);
        let text = std::str::from_utf8(&received).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        if length.is_some_and(|length| body.len() >= length.parse().unwrap()) {
            return body.to_owned();
        }
    }
}

/// A review of about one kilobyte, as a small ConfigMap makes it.
fn review(call: &str) -> String {
    let value = "x".repeat(512);
    format!(
        r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{{"uid":"u-{call}","kind":{{"group":"","version":"v1","kind":"ConfigMap"}},"resource":{{"group":"","version":"v1","resource":"configmaps"}},"name":"c","namespace":"default","operation":"CREATE","userInfo":{{"username":"admin","groups":["system:masters"]}},"object":{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c","namespace":"default"}},"data":{{"k":"{value}"}}}},"oldObject":null,"dryRun":false,"options":null}}}}"#
    )
}

/// Floor and operator in turns, so that a busy moment of the machine hits both.
pub(crate) fn in_turns(
    turns: usize,
    mut floor: impl FnMut() -> Figures,
    mut served: impl FnMut() -> Figures,
) -> (Figures, Figures) {
    let (mut floors, mut ours) = (floor(), served());
    for _ in 1..turns {
        floors = floors.merge(floor());
        ours = ours.merge(served());
    }
    (floors, ours)
}
