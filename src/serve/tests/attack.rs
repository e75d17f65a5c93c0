//! What hostile or broken callers send (T13, T14), over real sockets against a whole server.
//! Each must be answered or cut, cost little, and leave other callers alone; most tests prove the last by calling meanwhile.
//! Time limits are shortened here where a test has to see them pass.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Bench, LARGE, PATIENCE};
use crate::serve::Limits;

/// Limits so short that a test can wait for them.
fn hasty() -> Limits {
    Limits {
        read: Duration::from_millis(700),
        write: Duration::from_millis(700),
        ..Limits::default()
    }
}

#[test]
fn malformed_requests_get_their_status_and_are_closed() {
    let bench = Bench::plain();
    let mut other = bench.connect();
    let huge_field = format!(
        "GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n",
        "x".repeat(40_000)
    );
    let endless_head = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}", "x".repeat(40_000));
    let just_too_large = format!(
        "GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n",
        "x".repeat(16 * 1024 - 31)
    );
    let announced = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 8388608\r\n\r\n".to_owned();
    let table: [(&str, u16); 14] = [
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("GET / HTTP/1.1\nHost: h\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", 400),
        (
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
        ),
        ("GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/9.9\r\nHost: h\r\n\r\n", 400),
        ("\x16\x03\x01\x02", 400),
        ("POST / HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n", 417),
        (&announced, 413),
        (&huge_field, 431),
        (&endless_head, 431),
    ];
    for (bytes, status) in table {
        let answer = bench.exchange(bytes.as_bytes());
        let shown: String = bytes.chars().take(80).collect();
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{shown:?} got {answer:?}"
        );
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer:?}");
        assert_eq!(
            answer.matches("HTTP/1.1 ").count(),
            1,
            "the rest was served as a second request: {answer:?}"
        );
        assert_eq!(other.get("/other").status, 200);
    }
    // One byte below the limit is still a head.
    let largest = just_too_large.replacen("xx", "x", 1);
    assert_eq!(
        (just_too_large.len(), largest.len()),
        (16 * 1024 + 1, 16 * 1024)
    );
    assert!(
        bench
            .exchange(just_too_large.as_bytes())
            .starts_with("HTTP/1.1 431 ")
    );
    let mut caller = bench.connect();
    caller.send(largest.as_bytes());
    assert_eq!(caller.answer().status, 200);
}

#[test]
fn eight_requests_of_the_largest_length_do_not_end_the_server() {
    let bench = Bench::plain();
    for _ in 0..8 {
        let answer = bench.exchange(
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\n",
        );
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer:?}");
    }
    bench.serves();
    assert_eq!(bench.server.counts().refused.load(Ordering::SeqCst), 8);
}

#[test]
fn bodies_up_to_seven_mebibytes_are_served_and_larger_ones_refused() {
    let bench = Bench::plain();
    let size = 7 * 1024 * 1024;
    let mut caller = bench.connect();
    caller
        .send(format!("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n").as_bytes());
    caller.send(&vec![b'x'; size]);
    assert_eq!(caller.answer().body, format!("POST /a - {size}"));
    // The same in chunks, and one byte more than that.
    let chunk = [b"10000\r\n".as_slice(), &vec![b'x'; 0x10000], b"\r\n"].concat();
    for (last, status) in [("0\r\n\r\n", 200), ("1\r\nx\r\n0\r\n\r\n", 413)] {
        caller.send(b"POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..size / 0x10000 {
            caller.send(&chunk);
        }
        caller.send(last.as_bytes());
        assert_eq!(caller.answer().status, status);
    }
}

#[test]
fn endless_chunks_are_refused_and_the_answer_is_readable() {
    let bench = Bench::plain();
    let mut caller = bench.connect();
    caller.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [b"10000\r\n".as_slice(), &vec![b'x'; 0x10000], b"\r\n"].concat();
    let sent = std::iter::from_fn(|| caller.stream.write_all(&chunk).ok())
        .take(1000)
        .count();
    assert!(sent >= 112, "refused before the limit: {sent}");
    assert!(caller.until_closed().starts_with("HTTP/1.1 413 "));
    bench.serves();
}

#[test]
fn a_head_or_body_that_drips_is_cut_by_the_deadline() {
    // HX-62, with a shorter limit: every byte comes in time, the whole does not.
    let bench = Bench::start(hasty(), None);
    for start in [
        "",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n",
    ] {
        let begun = Instant::now();
        let mut caller = bench.connect();
        caller
            .stream
            .set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        caller.send(start.as_bytes());
        let drip = if start.is_empty() { b"G" } else { b"0" };
        let mut answer = [0; 1000];
        let length = loop {
            assert!(begun.elapsed() < PATIENCE, "still held");
            let _ = caller.stream.write_all(drip);
            match caller.stream.read(&mut answer) {
                Ok(length) => break length,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
        };
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
        bench.serves();
    }
}

#[test]
fn a_caller_that_does_not_read_is_cut_by_the_deadline() {
    let bench = Bench::start(hasty(), None);
    let mut caller = bench.connect();
    caller.send(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
    bench.open(1);
    bench.open(0);
    assert!(caller.until_closed().len() < LARGE);
}

#[test]
fn a_half_sent_request_does_not_hold_others_up() {
    let bench = Bench::plain();
    let mut slow = bench.connect();
    slow.send(b"POST /slow HTTP/1.1\r\nHo");
    bench.serves();
    slow.send(b"st: h\r\nContent-Length: 2\r\n\r\na");
    bench.serves();
    slow.send(b"b");
    assert_eq!(slow.answer().body, "POST /slow - 2");
}

fn room_for(connections: usize) -> Limits {
    Limits {
        connections,
        ..Limits::default()
    }
}

#[test]
fn connections_beyond_those_being_served_are_told_so() {
    let bench = Bench::start(room_for(2), None);
    let (mut first, mut second) = (bench.connect(), bench.connect());
    for caller in [&mut first, &mut second] {
        caller.send(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
        bench.begun.recv_timeout(PATIENCE).unwrap();
    }
    let answer = bench.exchange(b"");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer:?}");
    assert!(
        !answer.contains("Retry-After"),
        "the API server would run the hook again: {answer:?}"
    );
    assert_eq!(bench.server.counts().shed.load(Ordering::SeqCst), 1);
    for _ in 0..2 {
        bench.go_on.send(()).unwrap();
    }
    assert_eq!(first.answer().body, "waited");
    assert_eq!(second.answer().body, "waited");
    assert_eq!(bench.server.counts().evicted.load(Ordering::SeqCst), 0);
    drop(first);
    bench.open(1);
    bench.serves();
}

/// Silence, half a request and an idle connection keep nobody out, in this order; a request that is served is never lost.
#[test]
fn whoever_is_not_being_served_makes_room_when_it_is_full() {
    let bench = Bench::start(room_for(4), None);
    let mut served = bench.connect();
    served.send(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    bench.begun.recv_timeout(PATIENCE).unwrap();
    let mut idle = bench.connect();
    assert_eq!(idle.get("/").status, 200);
    let mut silent = bench.connect();
    bench.open(3);
    let mut half = bench.connect();
    half.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n1");
    bench.open(4);

    let evicted = || bench.server.counts().evicted.load(Ordering::SeqCst);
    // Each of them stays, and is idle afterwards.
    let mut guests = Vec::new();
    for (number, gone) in [&mut silent, &mut half, &mut idle].into_iter().enumerate() {
        let mut guest = bench.connect();
        assert_eq!(guest.get("/").status, 200);
        guests.push(guest);
        assert_eq!(gone.until_closed(), "");
        assert_eq!(evicted(), u64::try_from(number).unwrap() + 1);
    }
    let mut guest = bench.connect();
    assert_eq!(guest.get("/").status, 200);
    assert_eq!(guests[0].until_closed(), "");
    bench.go_on.send(()).unwrap();
    assert_eq!(served.answer().body, "waited");
    assert_eq!(bench.server.counts().shed.load(Ordering::SeqCst), 0);
}

#[test]
fn the_sum_of_all_bodies_is_bounded() {
    // What counts is the buffer, which may be twice as large as its content: the first always fits, both never do.
    let bench = Bench::start(
        Limits {
            bodies: 1_250_000,
            ..Limits::default()
        },
        None,
    );
    let large = [
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1300000\r\n\r\n".as_slice(),
        &[b'x'; 1_300_000],
    ]
    .concat();
    let mut holding = bench.connect();
    holding.send(b"POST /wait HTTP/1.1\r\nHost: h\r\nContent-Length: 600000\r\n\r\n");
    holding.send(&[b'x'; 600_000]);
    bench.begun.recv_timeout(PATIENCE).unwrap();
    let answer = bench.exchange(&large);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer:?}");
    bench.serves();
    bench.go_on.send(()).unwrap();
    assert_eq!(holding.answer().body, "waited");
    // What was taken has been given back, also by the refused one.
    holding.send(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 600000\r\n\r\n");
    holding.send(&[b'x'; 600_000]);
    assert_eq!(holding.answer().body, "POST /a - 600000");
}

#[test]
fn a_panic_is_answered_and_the_server_lives() {
    let bench = Bench::plain();
    let mut other = bench.connect();
    for path in ["/panic", "/screen-panic"] {
        let answer = bench.exchange(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer:?}");
        assert!(
            !answer.contains("asked for"),
            "the words belong into the log: {answer:?}"
        );
        assert_eq!(other.get("/").status, 200);
    }
    assert_eq!(bench.server.counts().panics.load(Ordering::SeqCst), 2);
    assert!(bench.events.is_empty());
}

#[test]
fn a_screened_request_is_answered_before_its_body() {
    let bench = Bench::plain();
    let mut caller = bench.connect();
    // Nothing of the body is ever sent, and no permission to send it is given.
    caller.send(b"POST /forbidden HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5000000\r\n\r\n");
    let answer = caller.answer();
    assert_eq!(answer.status, 403);
    assert!(answer.head.contains("Connection: close"));
    drop(caller);
    let mut caller = bench.connect();
    assert_eq!(caller.get("/forbidden").status, 403);
    assert_eq!(caller.get("/fine").status, 200);
}

#[test]
fn a_port_that_is_taken_is_named_with_the_remedy() {
    let bench = Bench::plain();
    let address = bench.address();
    let listen = crate::serve::Listen {
        name: "second",
        address,
        port_flag: "--listen-port",
    };
    let (begun, _) = crossbeam_channel::unbounded();
    let (_, go_on) = crossbeam_channel::unbounded();
    let echo = std::sync::Arc::new(super::Echo { begun, go_on });
    let (events, _receiver) = crossbeam_channel::unbounded();
    let error = crate::serve::Server::start(listen, None, Limits::default(), echo, &events)
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot listen on {address}: address already in use; stop the other process or choose another port with --listen-port"
        )
    );
}
