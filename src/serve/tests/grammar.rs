//! The parsers, fed directly: no socket, no server.
//! Tables of what is refused, and mutations of good requests that must never panic and never be read in two ways.
//! The generator is seeded, so a failing round fails again.

use std::sync::Arc;
use std::time::Instant;

use super::Random;
use crate::serve::Address;
use crate::serve::chunked::Chunked;
use crate::serve::http::{Framing, Head, Peer, Refusal, Response, head_end};

const BODY_LIMIT: usize = 1000;

/// What the connection's loop does, over bytes that are all there: the requests, then why it stopped.
fn read_all(mut bytes: &[u8]) -> (Vec<(Head, Vec<u8>)>, Option<Refusal>) {
    let mut requests = Vec::new();
    loop {
        match read_one(bytes) {
            Ok(Some((head, body, used))) => {
                requests.push((head, body));
                bytes = &bytes[used..];
            }
            Ok(None) => return (requests, None),
            Err(refusal) => return (requests, Some(refusal)),
        }
    }
}

fn read_one(bytes: &[u8]) -> Result<Option<(Head, Vec<u8>, usize)>, Refusal> {
    let Some(end) = head_end(bytes, 0)? else {
        return Ok(None);
    };
    let peer = Arc::new(Peer {
        address: Address::Unix,
        certificate: None,
    });
    let head = Head::parse(&bytes[..end], Instant::now(), &peer, BODY_LIMIT)?;
    let rest = &bytes[end..];
    Ok(match head.framing {
        Framing::Empty => Some((head, Vec::new(), end)),
        Framing::Length(length) => rest
            .get(..length)
            .map(|body| (head, body.to_vec(), end + length)),
        Framing::Chunked => {
            let mut decoder = Chunked::new(BODY_LIMIT);
            let mut body = Vec::new();
            let used = decoder.feed(rest, &mut body)?;
            decoder.is_done().then_some((head, body, end + used))
        }
    })
}

fn refusal(bytes: &[u8]) -> Option<Refusal> {
    let (requests, refusal) = read_all(bytes);
    assert!(
        requests.is_empty(),
        "served {:?}",
        String::from_utf8_lossy(bytes)
    );
    refusal
}

#[test]
fn a_request_is_taken_apart_and_not_decoded() {
    let bytes = b"POST /a/%2e%2e//b?timeout=5s&x HTTP/1.1\r\nHost: h\r\nContent-Type:  application/json \r\nContent-Length: 3\r\n\r\nabc";
    let (requests, refusal) = read_all(bytes);
    assert_eq!(refusal, None);
    let [(head, body)] = requests.as_slice() else {
        panic!("one request")
    };
    assert_eq!(
        (head.method.as_str(), head.path.as_str()),
        ("POST", "/a/%2e%2e//b")
    );
    assert_eq!(head.query.as_deref(), Some("timeout=5s&x"));
    assert_eq!(head.header("content-type"), Some("application/json"));
    assert_eq!(head.header("absent"), None);
    assert!(head.keep_alive);
    assert_eq!(body, b"abc");
}

#[test]
fn ambiguous_heads_are_refused() {
    // T14: every line could be read in two ways by two programs.
    for head in [
        "GET / HTTP/1.1\nHost: h\n\n",
        "GET / HTTP/1.1\r\nHost: h\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x3\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1 2\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        "CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a\0b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a\x7fb HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /\u{e4} HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /  HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / a HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.2\r\nHost: h\r\n\r\n",
        "GET /\r\nHost: h\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "\x16\x03\x01",
    ] {
        let refused = refusal(head.as_bytes());
        assert!(
            matches!(refused, Some(Refusal::Malformed(_))),
            "{refused:?} for {head:?}"
        );
    }
}

#[test]
fn bad_chunks_are_refused() {
    for body in [
        "x\r\n",
        "\r\n",
        " 3\r\nabc\r\n",
        "3 \r\nabc\r\n",
        "+3\r\nabc\r\n",
        "0x3\r\nabc\r\n",
        "-1\r\n",
        "3\nabc\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc\n",
        "3;ext=1\r\nabc\r\n",
        "0\r\nTrailer: x\r\n\r\n",
        "0\r\n\n",
        "00000000000000003\r\nabc\r\n",
        "3\r\rabc",
    ] {
        let bytes =
            format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let refused = refusal(bytes.as_bytes());
        assert!(
            matches!(refused, Some(Refusal::Malformed(_))),
            "{refused:?} for {body:?}"
        );
    }
}

#[test]
fn sizes_beyond_the_limit_are_refused_before_they_arrive() {
    let too_large = Some(Refusal::BodyTooLarge { limit: BODY_LIMIT });
    for length in [
        "1001",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999999999",
    ] {
        let bytes = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!(refusal(bytes.as_bytes()), too_large, "{length}");
    }
    for size in ["3e9", "ffffffffffffffff", "8000000000000000", "3e8\r\n"] {
        let filler = "x".repeat(if size.ends_with('\n') { 1000 } else { 0 });
        let bytes = format!(
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{size}{filler}\r\n1"
        );
        assert_eq!(refusal(bytes.as_bytes()), too_large, "{size}");
    }
    let many: String = (0..70).map(|number| format!("H{number}: v\r\n")).collect();
    let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\n{many}\r\n");
    assert_eq!(refusal(bytes.as_bytes()), Some(Refusal::TooManyFields));
    let expects = b"POST / HTTP/1.1\r\nHost: h\r\nExpect: wonders\r\n\r\n";
    assert_eq!(refusal(expects), Some(Refusal::UnknownExpectation));
}

#[test]
fn persistence_follows_version_and_connection() {
    let check = |version: &str, connection: &str, expected: bool| {
        let bytes = format!("GET / {version}\r\nHost: h\r\n{connection}\r\n");
        let (requests, _) = read_all(bytes.as_bytes());
        assert_eq!(requests[0].0.keep_alive, expected, "{bytes:?}");
    };
    check("HTTP/1.1", "", true);
    check("HTTP/1.1", "Connection: keep-alive\r\n", true);
    check("HTTP/1.1", "Connection: Close\r\n", false);
    check("HTTP/1.1", "Connection: te, close\r\n", false);
    check("HTTP/1.1", "Connection: te\r\nConnection: close\r\n", false);
    check("HTTP/1.0", "", false);
    check("HTTP/1.0", "Connection: keep-alive\r\n", false);
}

#[test]
fn no_answer_is_a_redirect() {
    // CVE-2020-8561: the API server would follow it.
    for status in [0, 100, 199, 301, 302, 307, 399, 600, 999] {
        let bytes = Response::text(status, "x").encode(true, false);
        assert!(bytes.starts_with(b"HTTP/1.1 500 "), "{status}");
    }
    let bytes = Response::text(404, "gone").encode(false, true);
    let expected = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 4\r\nConnection: close\r\n\r\n";
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
}

#[test]
fn chunks_decode_the_same_however_they_arrive() {
    let wire = b"5\r\nhello\r\n00A\r\n0123456789\r\n1\r\n!\r\n0\r\n\r\nGET";
    for portion in 1..=wire.len() {
        let mut decoder = Chunked::new(BODY_LIMIT);
        let mut body = Vec::new();
        let mut used = 0;
        for bytes in wire.chunks(portion) {
            used += decoder.feed(bytes, &mut body).unwrap();
            if decoder.is_done() {
                break;
            }
        }
        assert_eq!(body, b"hello0123456789!", "portions of {portion}");
        assert_eq!(&wire[used..], b"GET", "portions of {portion}");
    }
}

#[test]
fn chunk_decoding_is_linear() {
    // A million chunks of one byte: quadratic work would take hours, linear work takes milliseconds.
    let wire = "1\r\nx\r\n".repeat(1_000_000) + "0\r\n\r\n";
    let mut decoder = Chunked::new(1_000_000);
    let mut body = Vec::new();
    assert_eq!(decoder.feed(wire.as_bytes(), &mut body), Ok(wire.len()));
    assert_eq!(body.len(), 1_000_000);
}

#[test]
fn mutated_requests_never_panic_and_never_become_two_things() {
    let seeds: [&[u8]; 4] = [
        b"POST /hook/name?timeout=10s HTTP/1.1\r\nHost: a.b.svc\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\nUser-Agent: kube-probe/1.36\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.0\r\n\r\n",
    ];
    let pieces: [&[u8]; 12] = [
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b"Content-Length: 1\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"0\r\n\r\n",
        b"GET /c HTTP/1.1\r\nHost: h\r\n\r\n",
        b"\xff",
    ];
    let mut random = Random::new(42);
    let mut accepted = 0;
    for round in 0..20_000 {
        let mut bytes = seeds[random.below(seeds.len())].to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() + 1);
            match random.below(4) {
                0 => bytes.truncate(at),
                1 => drop(bytes.splice(at..at, pieces[random.below(pieces.len())].iter().copied())),
                2 if at < bytes.len() => bytes[at] = u8::try_from(random.below(256)).unwrap(),
                _ if at < bytes.len() => drop(bytes.remove(at)),
                _ => {}
            }
        }
        let (requests, _) = read_all(&bytes);
        accepted += requests.len();
        for (head, body) in &requests {
            check_unambiguous(head, body, round);
        }
        // Reading in portions must end where reading at once ends.
        let from_start = head_end(&bytes, 0);
        let cut = random.below(bytes.len() + 1);
        if let Ok(None) = head_end(&bytes[..cut], 0) {
            assert_eq!(head_end(&bytes, cut), from_start, "round {round}");
        }
    }
    assert!(
        accepted > 1000,
        "the mutations are too wild to prove anything: {accepted}"
    );
}

/// A request that was accepted, written in the one canonical way, is the same request and nothing beside it.
fn check_unambiguous(head: &Head, body: &[u8], round: usize) {
    assert!(
        head.path.starts_with('/') && head.path.bytes().all(|byte| byte.is_ascii_graphic()),
        "round {round}"
    );
    assert!(
        head.header("content-length").is_none() || head.header("transfer-encoding").is_none(),
        "round {round}"
    );
    let query = head
        .query
        .as_ref()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let mut canonical = format!(
        "{} {}{query} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        head.method,
        head.path,
        body.len()
    )
    .into_bytes();
    canonical.extend_from_slice(body);
    let (requests, refusal) = read_all(&canonical);
    assert_eq!((requests.len(), refusal), (1, None), "round {round}");
    let (again, same_body) = &requests[0];
    assert_eq!(
        (&again.method, &again.path, &again.query),
        (&head.method, &head.path, &head.query),
        "round {round}"
    );
    assert_eq!(same_body, body, "round {round}");
}
