//! What honest callers rely on: keep-alive, pipelining, HEAD, 100-continue, and a drain that loses nothing.
//! Runs over real sockets; a request that is being served is held by the test itself, so no test guesses how long
//! something takes.

use std::time::Duration;

use super::{Bench, PATIENCE};
use crate::message::Event;
use crate::serve::Limits;

#[test]
fn one_connection_serves_many_requests() {
    let bench = Bench::plain();
    let mut caller = bench.connect();
    for number in 0..100 {
        let path = format!("/a/{number}?timeout=10s");
        let answer = caller.get(&path);
        assert_eq!(answer.body, format!("GET /a/{number} timeout=10s 0"));
        assert!(!answer.head.contains("Connection:"), "{}", answer.head);
    }
    bench.open(1);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let bench = Bench::plain();
    let mut caller = bench.connect();
    caller.send(
        b"POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab\
          POST /2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
          GET /3 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(caller.answer().body, "POST /1 - 2");
    assert_eq!(caller.answer().body, "POST /2 - 3");
    let last = caller.answer();
    assert_eq!(last.body, "GET /3 - 0");
    assert!(last.head.contains("Connection: close"));
    assert_eq!(caller.until_closed(), "");
}

#[test]
fn head_is_told_the_length_and_gets_no_body() {
    let bench = Bench::plain();
    let mut caller = bench.connect();
    caller.send(b"HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = caller.head();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Length: 11\r\n"), "{head}");
    assert_eq!(caller.get("/y").body, "GET /y - 0");
}

#[test]
fn an_expectation_is_met_before_the_body_is_sent() {
    let bench = Bench::plain();
    let mut caller = bench.connect();
    for _ in 0..2 {
        caller.send(
            b"POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
        );
        assert_eq!(caller.head(), "HTTP/1.1 100 Continue\r\n\r\n");
        caller.send(b"abc");
        assert_eq!(caller.answer().body, "POST /x - 3");
    }
}

#[test]
fn version_1_0_is_answered_once() {
    let bench = Bench::plain();
    let answer = bench.exchange(b"GET /x HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("GET /x - 0"), "{answer}");
}

#[test]
fn a_redirect_never_leaves() {
    let bench = Bench::plain();
    assert_eq!(bench.connect().get("/redirect").status, 500);
}

#[test]
fn an_idle_connection_outlives_the_request_limit_and_ends_at_its_own() {
    // The 90 s of the API server's pool are under the idle limit; the request limit starts with a request's first byte.
    assert!(Limits::default().idle > Duration::from_secs(91));
    let limits = Limits {
        read: Duration::from_millis(500),
        idle: Duration::from_secs(3),
        ..Limits::default()
    };
    let bench = Bench::start(limits, None);
    let mut caller = bench.connect();
    assert_eq!(caller.get("/").status, 200);
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(caller.get("/").status, 200);
    assert_eq!(caller.until_closed(), "");
}

#[test]
fn a_drain_answers_what_runs_and_closes_what_idles() {
    let bench = Bench::plain();
    let mut idle = bench.connect();
    assert_eq!(idle.get("/").status, 200);
    let mut running = bench.connect();
    running.send(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut half = bench.connect();
    half.send(b"POST /half HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na");
    bench.begun.recv_timeout(PATIENCE).unwrap();
    bench.open(3);

    let address = bench.address();
    let Bench {
        server,
        events,
        go_on,
        ..
    } = bench;
    let cut = std::thread::scope(|scope| {
        let drain = scope.spawn(move || server.drain(PATIENCE));
        assert_eq!(idle.until_closed(), "");
        half.send(b"b");
        let answer = half.answer();
        assert_eq!(answer.body, "POST /half - 2");
        assert!(answer.head.contains("Connection: close"), "{}", answer.head);
        // The accept thread has ended, so nobody listens any more.
        let Event::Exited { thread, panic } = events.recv_timeout(PATIENCE).unwrap() else {
            panic!("exited")
        };
        assert_eq!((thread.as_str(), panic), ("accept:test", None));
        assert!(std::net::TcpStream::connect(address).is_err());
        assert!(!drain.is_finished());
        go_on.send(()).unwrap();
        let answer = running.answer();
        assert_eq!(answer.body, "waited");
        assert!(answer.head.contains("Connection: close"), "{}", answer.head);
        drain.join().unwrap()
    });
    assert_eq!(cut, 0);
}

#[test]
fn a_drain_is_bounded_and_counts_what_it_cut() {
    let bench = Bench::plain();
    let mut half = bench.connect();
    half.send(b"GET /half");
    let mut running = bench.connect();
    running.send(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    bench.begun.recv_timeout(PATIENCE).unwrap();
    bench.open(2);
    let Bench { server, go_on, .. } = bench;
    assert_eq!(server.drain(Duration::from_millis(100)), 2);
    assert_eq!(half.until_closed(), "");
    go_on.send(()).unwrap();
    assert_eq!(running.until_closed(), "", "nothing is said after the cut");
}

#[test]
fn a_connection_made_just_before_a_drain_gets_its_first_answer() {
    let bench = Bench::plain();
    let mut fresh = bench.connect();
    bench.open(1);
    let Bench { server, events, .. } = bench;
    let cut = std::thread::scope(|scope| {
        let drain = scope.spawn(move || server.drain(PATIENCE));
        // The listener is gone, so the drain has begun.
        events.recv_timeout(PATIENCE).unwrap();
        assert_eq!(fresh.get("/first").body, "GET /first - 0");
        assert_eq!(fresh.until_closed(), "");
        drain.join().unwrap()
    });
    assert_eq!(cut, 0);
}
