//! Tests of the client against a server that misbehaves on cue.

use std::fs;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Client, Limits, Method, Request};
use super::config::{ClusterConfig, Login, Secret, Source, Token};
use super::error::{Error, Fault};
use super::scripted::{Folder, Server, answer, client, no_limits};

fn fault(error: &Error) -> &Fault {
    match error {
        Error::Transport { fault, .. } => fault,
        other => panic!("not a transport error: {other}"),
    }
}

#[test]
fn a_call_carries_what_it_should_and_nothing_of_the_environment() {
    let server = Server::saying(answer(200, "", "{\"a\":1}"));
    let mut config = ClusterConfig::plain(&server.url());
    config.login = Login {
        token: Some(Token::Fixed(Secret("abc".to_owned()))),
        impersonation: vec![("Impersonate-User".to_owned(), "jane".to_owned())],
        ..Login::default()
    };
    let client = client(config);
    let read: Value = client.get_json("/api/v1/pods?limit=1").unwrap();
    assert_eq!(read, json!({"a": 1}));
    let patch = Request {
        body: Some(("application/merge-patch+json", b"{\"x\":2}")),
        ..Request::new(Method::Patch, "/api/v1/x")
    };
    client.send(&patch).unwrap();
    let delete = Request {
        body: Some(("application/json", b"{}")),
        ..Request::new(Method::Delete, "/api/v1/x")
    };
    client.send(&delete).unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].line, "GET /api/v1/pods?limit=1 HTTP/1.1");
    assert_eq!(seen[0].header("authorization"), Some("Bearer abc"));
    assert_eq!(seen[0].header("impersonate-user"), Some("jane"));
    assert_eq!(seen[0].header("accept"), Some("application/json"));
    assert_eq!(seen[0].header("accept-encoding"), Some("gzip"));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        seen[0].header("user-agent"),
        Some(format!("shell-operator/{version}").as_str())
    );
    assert_eq!(seen[0].header("content-length"), None);
    assert_eq!(seen[1].line, "PATCH /api/v1/x HTTP/1.1");
    assert_eq!(
        seen[1].header("content-type"),
        Some("application/merge-patch+json")
    );
    assert_eq!(seen[1].body, "{\"x\":2}");
    assert_eq!(seen[2].line, "DELETE /api/v1/x HTTP/1.1");
    assert_eq!(seen[2].body, "{}");
}

#[test]
fn calls_reuse_one_connection() {
    let server = Server::saying(answer(200, "", "{}"));
    let client = server.client();
    for _ in 0..50 {
        client.get("/version").unwrap();
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn an_answer_that_is_cut_is_an_error_and_never_a_short_answer() {
    let cut = Server::start(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"items\": [")
            .unwrap();
        false
    });
    let error = cut.client().get("/api/v1/pods").unwrap_err();
    assert_eq!(*fault(&error), Fault::Cut { bytes: 11 }, "{error}");
    assert!(error.retryable());

    let chunked = Server::start(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\n")
            .unwrap();
        false
    });
    let error = chunked.client().get("/api/v1/pods").unwrap_err();
    assert_eq!(*fault(&error), Fault::Cut { bytes: 5 }, "{error}");

    let without_length = Server::start(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"items\": [")
            .unwrap();
        false
    });
    let error = without_length
        .client()
        .get_json::<Value>("/api/v1/pods")
        .unwrap_err();
    assert_eq!(*fault(&error), Fault::Cut { bytes: 11 }, "{error}");

    let silent = Server::start(|_, _| false);
    let error = silent.client().get("/api/v1/pods").unwrap_err();
    assert_eq!(*fault(&error), Fault::Closed, "{error}");
}

#[test]
fn an_endless_answer_ends_at_the_limit() {
    let server = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x10000], b"\r\n".to_vec()].concat();
        while stream.write_all(&chunk).is_ok() {}
        false
    });
    let request = Request {
        limit: Some(1_000_000),
        ..Request::new(Method::Get, "/x")
    };
    let error = server.client().send(&request).unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooLarge {
                limit: 1_000_000,
                ..
            }
        ),
        "{error}"
    );
}

/// A gzip of spaces that grows about 158 times: one literal, then copies of 258 bytes in 13 bits each.
fn bomb(copies: usize) -> Vec<u8> {
    let mut bits: Vec<bool> = vec![true, true, false];
    let mut code = |value: u32, length: u32| {
        bits.extend((0..length).rev().map(|bit| value >> bit & 1 == 1));
    };
    code(0x30 + u32::from(b' '), 8);
    for _ in 0..copies {
        code(0b1100_0101, 8);
        code(0, 5);
    }
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    bytes.extend(bits.chunks(8).map(|chunk| {
        chunk
            .iter()
            .enumerate()
            .map(|(place, bit)| u8::from(*bit) << place)
            .sum::<u8>()
    }));
    bytes
}

#[test]
fn gzip_is_read_and_a_bomb_of_it_is_bounded() {
    let small = [
        0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03, 0xab, 0x56, 0x4a, 0x54, 0xb2,
        0x32, 0xac, 0x05, 0x00, 0xaf, 0xac, 0x1b, 0x56, 0x07, 0x00, 0x00, 0x00,
    ];
    let compressed = |body: &[u8]| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    };
    let server = Server::saying(compressed(&small));
    assert_eq!(server.client().get("/x").unwrap(), b"{\"a\":1}");

    // 150 KB that would become 24 MB.
    let server = Server::saying(compressed(&bomb(93_000)));
    let request = Request {
        limit: Some(1_000_000),
        ..Request::new(Method::Get, "/x")
    };
    let error = server.client().send(&request).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");

    let server = Server::saying(compressed(&small[..20]));
    let error = server.client().get("/x").unwrap_err();
    assert!(matches!(fault(&error), Fault::Cut { .. }), "{error}");
}

#[test]
fn an_answer_that_is_not_json_is_refused_with_its_call() {
    let server = Server::saying(answer(
        200,
        "Content-Type: text/html\r\n",
        "<html>hello</html>",
    ));
    let error = server
        .client()
        .get_json::<Value>("/version?x=y")
        .unwrap_err();
    assert!(matches!(error, Error::NotJson { .. }));
    let shown = error.to_string();
    assert!(shown.starts_with("GET /version: the answer is not the expected JSON"));
    assert!(!shown.contains("x=y"), "the query is not shown: {shown}");
}

#[test]
fn an_answer_that_is_not_http_is_refused() {
    let server = Server::saying("SSH-2.0-OpenSSH_9.2\r\n\r\n");
    let error = server.client().get("/x").unwrap_err();
    assert!(matches!(fault(&error), Fault::Protocol(_)), "{error}");
}

#[test]
fn too_many_requests_carry_their_waiting_time() {
    let server = Server::saying(answer(
        429,
        "Retry-After: 7\r\n",
        r#"{"kind":"Status","reason":"TooManyRequests","message":"later"}"#,
    ));
    let client = server.client();
    let error = client.get("/x").unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    assert_eq!(error.code(), Some(429));
    assert!(error.retryable());
    client.get("/x").unwrap_err();
    assert_eq!(
        server.connections.load(Ordering::SeqCst),
        1,
        "an error that was read to its end leaves the connection usable"
    );
}

#[test]
fn a_redirect_is_refused_and_nothing_follows_it() {
    let elsewhere = Server::saying(answer(200, "", "{}"));
    let location = format!("Location: {}/x?token=abc\r\n", elsewhere.url());
    let server = Server::saying(answer(307, &location, ""));
    let error = server.client().get("/x").unwrap_err();
    assert!(matches!(error, Error::Redirect { code: 307, .. }));
    assert!(!error.retryable());
    let shown = error.to_string();
    assert!(shown.contains(&elsewhere.url()) && shown.contains("refused"));
    assert!(!shown.contains("token=abc"), "{shown}");
    assert_eq!(elsewhere.connections.load(Ordering::SeqCst), 0);
}

#[test]
fn a_server_that_never_answers_is_left_at_the_deadline() {
    let server = Server::start(|_, stream| {
        let _ = stream.read(&mut [0]);
        false
    });
    let request = Request {
        deadline: Some(Duration::from_millis(300)),
        ..Request::new(Method::Get, "/x")
    };
    let start = Instant::now();
    let error = server.client().send(&request).unwrap_err();
    assert!(matches!(fault(&error), Fault::Timeout(_)), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_server_that_drips_is_left_at_the_deadline() {
    let server = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    });
    let request = Request {
        deadline: Some(Duration::from_millis(300)),
        ..Request::new(Method::Get, "/x")
    };
    let start = Instant::now();
    let error = server.client().send(&request).unwrap_err();
    assert!(matches!(fault(&error), Fault::Timeout(_)), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn nobody_listening_and_an_unknown_host_are_told_apart() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let error = client(ClusterConfig::plain(&format!("http://{address}")))
        .get("/x")
        .unwrap_err();
    assert_eq!(*fault(&error), Fault::Refused, "{error}");
    assert!(error.retryable());
    let error = client(ClusterConfig::plain("http://no-such-host.invalid"))
        .get("/x")
        .unwrap_err();
    assert_eq!(*fault(&error), Fault::HostNotFound, "{error}");
}

#[test]
fn a_401_makes_the_token_file_be_read_again_and_the_call_be_tried_once_more() {
    let server = Server::start(|seen, stream| {
        let accepted = seen.header("authorization") == Some("Bearer new");
        let code = if accepted { 200 } else { 401 };
        stream.write_all(&answer(code, "", "{}")).is_ok()
    });
    let folder = Folder::new();
    let path = folder.write("token", "old");
    let mut config = ClusterConfig::plain(&server.url());
    config.login.token = Some(Token::File(path.clone()));
    let client = client(config);
    let error = client.get("/x").unwrap_err();
    assert!(error.is_unauthorized());
    assert_eq!(server.seen().len(), 1, "the same token is not tried twice");
    fs::write(&path, "new").unwrap();
    client.get("/x").unwrap();
    client.watch("/x?watch=1", Duration::from_secs(5)).unwrap();
    assert_eq!(server.seen().len(), 4);
}

#[test]
fn a_401_makes_a_plugin_run_again_and_the_call_be_tried_once_more() {
    let server = Server::start(|seen, stream| {
        let accepted = seen.header("authorization") == Some("Bearer t1");
        let code = if accepted { 200 } else { 401 };
        stream.write_all(&answer(code, "", "{}")).is_ok()
    });
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let folder = Folder::new();
    let file = folder.write(
        "config",
        &format!(
            "current-context: c\nclusters: [{{name: k, cluster: {{server: '{}'}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nusers: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: p, interactiveMode: Never}}}}}}]\n",
            server.url()
        ),
    );
    let config = super::kubeconfig::load(&[file], None, &[]).unwrap();
    let client = Client::new(
        config,
        no_limits(),
        Arc::new(move |_| {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            Ok(format!(
                r#"{{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{{"token":"t{number}","expirationTimestamp":"2999-01-01T00:00:00Z"}}}}"#
            )
            .into_bytes())
        }),
    )
    .unwrap();
    assert_eq!(
        runs.load(Ordering::SeqCst),
        0,
        "nothing runs before the first call"
    );
    client.get("/x").unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[test]
fn a_401_after_a_client_certificate_rotated_is_tried_once_more() {
    let server = Server::start(|seen, stream| {
        let code = if seen.line.contains("/later") {
            401
        } else {
            200
        };
        stream.write_all(&answer(code, "", "{}")).is_ok()
    });
    let folder = Folder::new();
    let certificate = folder.write("tls.crt", "one");
    let key = folder.write("tls.key", "one");
    let mut config = ClusterConfig::plain(&server.url());
    config.login.certificate = Some((Source::File(certificate.clone()), Source::File(key)));
    let client = client(config);
    client.get("/x").unwrap();
    assert!(client.get("/later").unwrap_err().is_unauthorized());
    assert_eq!(
        server.seen().len(),
        2,
        "the same certificate is not tried twice"
    );
    fs::write(&certificate, "another").unwrap();
    assert!(client.get("/later").unwrap_err().is_unauthorized());
    assert_eq!(server.seen().len(), 4);
}

#[test]
fn ten_thousand_connections_leave_no_descriptor() {
    let server = Server::start(|_, stream| {
        let _ = stream.write_all(&answer(200, "Connection: close\r\n", "{}"));
        false
    });
    let client = server.client();
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    for _ in 0..100 {
        client.get("/x").unwrap();
    }
    // Other tests of this process open descriptors of their own at the same time, a few hundred at most.
    let before = open();
    for _ in 0..10_000 {
        client.get("/x").unwrap();
    }
    assert!(server.connections.load(Ordering::SeqCst) >= 10_000);
    let after = open();
    assert!(after < before + 500, "{before} before, {after} after");
}

#[test]
fn a_watch_ends_when_the_connection_falls_silent_and_goes_on_while_it_drips() {
    let server = Server::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..10 {
            let _ = stream.write_all(b"3\r\n{}\n\r\n");
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = stream.read(&mut [0]);
        false
    });
    let client = server.client();
    let mut watch = client
        .watch("/x?watch=1", Duration::from_millis(600))
        .unwrap();
    let mut text = String::new();
    let error = watch.read_to_string(&mut text).unwrap_err();
    let error = watch.failure(error);
    assert_eq!(text, "{}\n".repeat(10));
    assert_eq!(
        *fault(&error),
        Fault::Timeout("the connection fell silent"),
        "{error}"
    );
    assert_eq!(server.seen()[0].header("accept-encoding"), Some("identity"));
}

#[test]
fn shutdown_ends_a_blocked_watch_a_blocked_call_and_a_waiting_one() {
    let server = Server::start(|_, stream| {
        let _ =
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
        let _ = stream.read(&mut [0]);
        false
    });
    // One turn for the call and one for the first of those that wait.
    let limits = Limits {
        qps: 0.001,
        burst: 2,
        deadline: Duration::from_secs(60),
    };
    let no_plugin = Arc::new(|_: &_| Err("no plugin".to_owned()));
    let client = Client::new(ClusterConfig::plain(&server.url()), limits, no_plugin).unwrap();
    let started = std::sync::Barrier::new(4);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut watch = client.watch("/w", Duration::from_secs(60)).unwrap();
            watch.read_exact(&mut [0]).unwrap();
            started.wait();
            let error = watch.read(&mut [0]).unwrap_err();
            watch.failure(error)
        });
        let call = scope.spawn(|| {
            let mut stream = client.stream(&Request::new(Method::Get, "/c")).unwrap();
            stream.read_exact(&mut [0]).unwrap();
            started.wait();
            let error = stream.read(&mut [0]).unwrap_err();
            stream.failure(error)
        });
        let waiting = scope.spawn(|| {
            let _first = client.stream(&Request::new(Method::Get, "/s")).unwrap();
            started.wait();
            client.get("/s").unwrap_err()
        });
        started.wait();
        client.shutdown();
        for thread in [watch, call, waiting] {
            let error = thread.join().unwrap();
            assert!(matches!(error, Error::Stopped), "{error}");
        }
    });
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(matches!(client.get("/x").unwrap_err(), Error::Stopped));
}

#[test]
fn stopping_the_watches_leaves_short_calls_alone() {
    let server = Server::start(|seen, stream| {
        if seen.line.contains("/w") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let _ = stream.read(&mut [0]);
            return false;
        }
        stream.write_all(&answer(200, "", "{}")).is_ok()
    });
    let client = server.client();
    let mut watch = client.watch("/w", Duration::from_secs(60)).unwrap();
    client.stop_watches();
    watch.read(&mut [0]).unwrap_err();
    client.get("/x").unwrap();
    client.watch("/w", Duration::from_secs(60)).err().unwrap();
}

#[test]
fn an_observer_sees_every_call_without_its_query() {
    let server = Server::saying(answer(404, "", "{}"));
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let client = server.client().with_observer(Arc::new(move |call| {
        log.lock()
            .unwrap()
            .push((call.method, call.path.to_owned(), call.code));
    }));
    client.get("/x?secret=1").unwrap_err();
    assert_eq!(*seen.lock().unwrap(), [("GET", "/x".to_owned(), Some(404))]);
}
