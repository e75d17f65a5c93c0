//! Callers that mean harm, or are broken, against the real program: each is refused or cut off, memory stays bounded, nothing is
//! started for them, and other callers notice nothing (HX-62, T13, T14).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::stage::{Kind, answers, config_map, review};
use crate::support::{Connection, Operator, SOON, Stage, wait_for};

/// The requirement: how much memory all of this together may cost.
const GROWTH_KIB: u64 = 30 * 1024;
/// The limits for reading a request are 10 s; a caller that is slower is cut off by then, with some room for a busy machine.
const CUT_OFF: Duration = Duration::from_secs(20);
/// When a silent connection is given up by itself. Whoever is answered before that did not wait for it.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

struct Victim {
    stage: Stage<'static>,
    operator: Operator,
    path: String,
    bundle: String,
}

impl Victim {
    /// `shell` is run before the operator takes the shell's place.
    fn start(name: &str, shell: &str) -> Victim {
        let stage = Stage::new(name);
        let body = format!(
            "echo run >>{}\n{}",
            stage.env.path().join("runs").display(),
            answers(&json!({ "allowed": true }))
        );
        let stage = stage
            .hook("note", Kind::Validating, &json!({}), &body)
            // The allocator of the tests' C library keeps freed memory for each of many threads; the image has another one.
            .env("MALLOC_ARENA_MAX", "2");
        let program = env!("CARGO_BIN_EXE_shell-operator");
        let script = format!("{shell} exec {program} start");
        let operator = stage.env.spawn_program("sh", &["-c", &script]);
        operator.wait_ready();
        Victim {
            path: stage.path("note"),
            bundle: stage.ca_bundle(),
            stage,
            operator,
        }
    }

    fn connect(&self) -> std::io::Result<Connection> {
        let address = self.stage.address();
        Connection::tls(address, &address.ip().to_string(), &self.bundle, None)
    }

    fn runs(&self) -> usize {
        let notes = std::fs::read_to_string(self.stage.env.path().join("runs"));
        notes.unwrap_or_default().lines().count()
    }

    fn ask(&self) -> std::io::Result<bool> {
        let question = review("u", &config_map("a", &json!({})));
        let answer = self.connect()?.post_json(&self.path, &question)?;
        Ok(answer.status == 200 && answer.json()["response"]["allowed"] == true)
    }

    /// Sends bytes as they are and answers the status, or 0 for a closed connection.
    fn send(&self, bytes: &[u8]) -> u16 {
        let mut connection = self.connect().unwrap();
        // It may be cut off while it still sends.
        let _ = connection.send(bytes);
        connection.answer().map_or(0, |answer| answer.status)
    }

    fn head(&self, lines: &str) -> String {
        format!(
            "POST {} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{lines}\r\n",
            self.path
        )
    }
}

/// What is sent, and the statuses that are right; 0 is a closed connection.
fn malformed(victim: &Victim) -> Vec<(&'static str, Vec<u8>, &'static [u16])> {
    let body = review("u", &config_map("a", &json!({}))).to_string();
    let length = body.len();
    let with = |lines: &str, body: &str| [victim.head(lines).as_bytes(), body.as_bytes()].concat();
    let one = format!("Content-Length: {length}\r\n");
    let bare_lf = victim.head(&one).replace("\r\n", "\n") + &body;
    let refused: &[u16] = &[400, 0];
    let mut cases: Vec<(&'static str, Vec<u8>, &'static [u16])> = vec![
        (
            "two lengths",
            with(&format!("{one}Content-Length: 5\r\n"), &body),
            refused,
        ),
        (
            "a length and chunks",
            with(&format!("{one}Transfer-Encoding: chunked\r\n"), &body),
            refused,
        ),
        ("bare LF", bare_lf.into_bytes(), refused),
        (
            "a negative length",
            with("Content-Length: -1\r\n", ""),
            refused,
        ),
        (
            "a length that overflows",
            with("Content-Length: 99999999999999999999999\r\n", ""),
            &[400, 413, 0],
        ),
        (
            "a folded field",
            with(&format!("{one}X-Folded: a\r\n b\r\n"), &body),
            refused,
        ),
        (
            "a space before the colon",
            with(&format!("Content-Length : {length}\r\n"), &body),
            refused,
        ),
        (
            "a chunk size that is no number",
            with("Transfer-Encoding: chunked\r\n", "zz\r\nabc\r\n0\r\n\r\n"),
            refused,
        ),
        (
            "an unknown transfer encoding",
            with("Transfer-Encoding: gzip\r\n", &body),
            &[400, 501, 0],
        ),
        ("no HTTP at all", b"hello\r\n\r\n".to_vec(), refused),
        (
            "a NUL in a field",
            with(&format!("{one}X: a\0b\r\n"), &body),
            refused,
        ),
    ];
    cases.extend(oversized(victim));
    cases
}

/// The same for what is well-formed and too much.
fn oversized(victim: &Victim) -> [(&'static str, Vec<u8>, &'static [u16]); 3] {
    let with = |lines: &str, body: &str| [victim.head(lines).as_bytes(), body.as_bytes()].concat();
    [
        (
            "a large head",
            with(&format!("X: {}\r\n", "a".repeat(20 * 1024)), ""),
            &[431, 0],
        ),
        (
            "a body of 8 MiB",
            with(
                &format!("Content-Length: {}\r\n", 8 << 20),
                &"a".repeat(8 << 20),
            ),
            &[413, 0],
        ),
        (
            "200 000 brackets",
            with("Content-Length: 200000\r\n", &"[".repeat(200_000)),
            &[400],
        ),
    ]
}

/// Sends chunks without an end and answers the status that stops it, or 0.
fn endless_chunks(victim: &Victim) -> u16 {
    let mut connection = victim.connect().unwrap();
    let head = victim.head("Transfer-Encoding: chunked\r\n");
    let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x10000));
    let begun = Instant::now();
    let mut result = connection.send(head.as_bytes());
    while result.is_ok() {
        assert!(begun.elapsed() < CUT_OFF, "it is taken without an end");
        result = connection.send(chunk.as_bytes());
    }
    connection.answer().map_or(0, |answer| answer.status)
}

/// Sends a byte from time to time and answers whether it is cut off.
fn is_cut_off(victim: &Victim, start: &str, drop: &[u8]) -> bool {
    let mut connection = victim.connect().unwrap();
    connection.send(start.as_bytes()).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < CUT_OFF {
        std::thread::sleep(Duration::from_millis(500));
        if connection.send(drop).is_err() {
            return true;
        }
    }
    false
}

/// Ends the bystander also when the test fails: the scope would wait for it for ever.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn malformed_requests_are_refused_and_hurt_nobody() {
    let victim = Victim::start("attack", "");
    assert!(victim.ask().unwrap());
    let memory = victim.operator.rss_kib();
    let (is_over, others) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let bystander = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                assert!(victim.ask().unwrap(), "another caller was hurt");
                others.fetch_add(1, Ordering::AcqRel);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let over = Over(&is_over);
        let slow_head = scope.spawn(|| is_cut_off(&victim, "POST / HTTP/1.1\r\nX: ", b"a"));
        let slow_body = scope.spawn(|| {
            let head = victim.head("Content-Length: 1000\r\n");
            is_cut_off(&victim, &head, b" ")
        });
        for (name, bytes, expected) in malformed(&victim) {
            let status = victim.send(&bytes);
            assert!(expected.contains(&status), "{name}: {status}");
        }
        let status = endless_chunks(&victim);
        assert!([413, 0].contains(&status), "endless chunks: {status}");
        // As many at once as the budget for bodies surely allows.
        let large: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| endless_chunks(&victim)))
            .collect();
        for thread in large {
            thread.join().unwrap();
        }
        assert!(slow_head.join().unwrap(), "a slow head was endured");
        assert!(slow_body.join().unwrap(), "a slow body was endured");
        drop(over);
        bystander.join().unwrap();
    });
    let grown = victim.operator.rss_kib().saturating_sub(memory);
    assert!(grown < GROWTH_KIB, "grown by {grown} KiB");
    // Only the bystander and the first question started a hook.
    assert_eq!(victim.runs(), others.into_inner() + 1);
}

/// More callers than descriptors: what cannot be accepted waits or is turned away, and when they are gone all is as before.
#[test]
fn running_out_of_descriptors_is_survived() {
    let mut victim = Victim::start("descriptors", "ulimit -n 64;");
    assert!(victim.ask().unwrap());
    let address = victim.stage.address();
    let hoard: Vec<_> = (0..120)
        .filter_map(|_| std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok())
        .collect();
    assert!(hoard.len() > 64);
    wait_for("it to run out of descriptors", SOON, || {
        victim.operator.fds() >= 60
    });
    assert!(victim.operator.is_running());
    drop(hoard);
    wait_for("it to serve again", SOON, || {
        matches!(victim.ask(), Ok(true))
    });
    assert_eq!(victim.operator.healthz().unwrap().status, 200);
    assert_eq!(victim.stage.create("a", &json!({})).status, 201);
}

/// Connecting needs no permission, so whoever connects and says nothing must not keep the API server out, not even until a limit on
/// handshakes has passed. Some are silent from the start, some after a handshake, some in the middle of a request.
#[test]
fn as_many_silent_connections_as_there_may_be_keep_nobody_out() {
    /// The limit, and some more that take the places of the first.
    const SILENT: usize = 512 + 40;
    let victim = Victim::start("silent", "");
    assert!(victim.ask().unwrap());
    let address = victim.stage.address();
    let mut shaken: Vec<Connection> = (0..40).map(|_| victim.connect().unwrap()).collect();
    for half in shaken.iter_mut().take(20) {
        half.send(b"POST / HTTP/1.1\r\n").unwrap();
    }
    let hoard: Vec<_> = (0..SILENT)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    wait_for("all places to be taken", SOON, || {
        victim.operator.threads() > 512
    });
    for _ in 0..5 {
        let begun = Instant::now();
        assert!(victim.ask().unwrap());
        assert!(begun.elapsed() < HANDSHAKE_LIMIT, "{:?}", begun.elapsed());
    }
    assert_eq!(victim.stage.create("a", &json!({})).status, 201);
    assert!(victim.operator.threads() < 512 + 40);
    drop(hoard);
}
