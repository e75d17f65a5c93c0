//! TLS over real sockets: client certificates, swapping under load, many idle connections.
//! Also what is said about bad certificate material, and how files are followed through the kubelet's link swap.
//! The caller is rustls too; black-box tests bring other implementations.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::authority::{Authority, Pair};
use super::{Bench, Caller, PATIENCE, dial, wait_until};
use crate::serve::tls::{self, Current, Material, Pem};
use crate::serve::{Limits, x509};

fn pem(from: &str, text: &str) -> Pem {
    Pem {
        from: from.to_owned(),
        bytes: text.as_bytes().to_vec(),
    }
}

fn material(pair: &Pair, client_authorities: &[&str]) -> Material {
    Material {
        certificate: pem("tls.crt", &pair.certificate),
        key: pem("tls.key", &pair.key),
        client_authorities: client_authorities
            .iter()
            .map(|text| pem("ca.crt", text))
            .collect(),
    }
}

fn current(pair: &Pair, client_authorities: &[&str]) -> Arc<Current> {
    Current::new(tls::build(&material(pair, client_authorities)).unwrap())
}

type Secure = Caller<StreamOwned<ClientConnection, TcpStream>>;

fn connect(bench: &Bench, config: &Arc<ClientConfig>) -> Secure {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::clone(config), name).unwrap();
    Caller::new(StreamOwned::new(connection, dial(bench.address())))
}

/// The first thing that goes wrong when calling: the handshake, or, as TLS 1.3 tells a client late, the answer.
fn call(bench: &Bench, config: &Arc<ClientConfig>) -> Result<u8, std::io::Error> {
    use std::io::{Read, Write};
    let mut caller = connect(bench, config);
    caller
        .stream
        .write_all(b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
    let mut first = [0; 1];
    caller.stream.read_exact(&mut first)?;
    Ok(first[0])
}

#[test]
fn tls_speaks_http_1_1_and_says_goodbye() {
    let authority = Authority::new();
    let bench = Bench::start(Limits::default(), Some(current(&authority.server(), &[])));
    let config = authority.trusting(None);
    let mut caller = connect(&bench, &config);
    for number in 0..5 {
        assert_eq!(
            caller.get(&format!("/{number}")).body,
            format!("GET /{number} - 0")
        );
    }
    assert_eq!(
        caller.stream.conn.alpn_protocol(),
        Some(b"http/1.1".as_slice())
    );
    caller.send(b"GET /last HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    assert_eq!(caller.answer().status, 200);
    // Without a close notification rustls would report an unexpected end here.
    assert_eq!(caller.until_closed(), "");
    let size = 1_000_000;
    let mut caller = connect(&bench, &config);
    caller
        .send(format!("POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n").as_bytes());
    caller.send(&vec![b'x'; size]);
    assert_eq!(caller.answer().body, format!("POST /b - {size}"));
    assert_eq!(caller.get("/large").body.len(), super::LARGE);
}

#[test]
fn version_1_2_is_still_served() {
    let authority = Authority::new();
    let bench = Bench::start(Limits::default(), Some(current(&authority.server(), &[])));
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
        .unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut caller = connect(&bench, &Arc::new(config));
    assert_eq!(caller.get("/old").body, "GET /old - 0");
}

#[test]
fn only_the_right_client_certificate_is_served() {
    // T1, AW-57: without, foreign, made for servers, right.
    let authority = Authority::new();
    let foreign = Authority::new();
    let bench = Bench::start(
        Limits::default(),
        Some(current(
            &authority.server(),
            &[&foreign.pem, &authority.pem],
        )),
    );
    assert!(call(&bench, &authority.trusting(None)).is_err());
    let stranger = Authority::new().client("kube-apiserver");
    assert!(call(&bench, &authority.trusting(Some(&stranger))).is_err());
    assert!(call(&bench, &authority.trusting(Some(&authority.server()))).is_err());
    // Counted when the connection is closed, a moment after its caller has learnt of it.
    let counts = bench.server.counts();
    wait_until(|| counts.handshakes_failed.load(Ordering::SeqCst) == 3);
    assert_eq!(
        call(
            &bench,
            &authority.trusting(Some(&authority.client("kube-apiserver")))
        )
        .unwrap(),
        b'H'
    );
    assert_eq!(
        call(&bench, &authority.trusting(Some(&foreign.client("other")))).unwrap(),
        b'H'
    );
}

#[test]
fn the_client_certificate_reaches_the_responder() {
    struct Names;
    impl crate::serve::Respond for Names {
        fn respond(
            &self,
            request: crate::serve::Request,
            _afterwards: &mut crate::review::Afterwards,
        ) -> crate::serve::Response {
            let certificate = request.head.peer.certificate.clone().unwrap();
            crate::serve::Response::text(
                200,
                x509::read(&certificate).unwrap().common_name.unwrap(),
            )
        }
    }
    let authority = Authority::new();
    let (events, _receiver) = crossbeam_channel::unbounded();
    let listen = crate::serve::Listen {
        name: "names",
        address: ([127, 0, 0, 1], 0).into(),
        port_flag: "--port",
    };
    let tls = current(&authority.server(), &[&authority.pem]);
    let server = crate::serve::Server::start(
        listen,
        Some(tls),
        Limits::default(),
        Arc::new(Names),
        &events,
    )
    .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let config = authority.trusting(Some(&authority.client("kube-apiserver")));
    let connection = ClientConnection::new(config, name).unwrap();
    let mut caller = Caller::new(StreamOwned::new(connection, dial(server.address().tcp())));
    assert_eq!(caller.get("/").body, "kube-apiserver");
}

#[test]
fn a_handshake_that_does_not_come_is_cut() {
    let limits = Limits {
        handshake: std::time::Duration::from_secs(1),
        ..Limits::default()
    };
    let authority = Authority::new();
    let bench = Bench::start(limits, Some(current(&authority.server(), &[])));
    let mut silent = bench.connect();
    assert_eq!(silent.until_closed(), "");
    // Plain HTTP on a TLS port gets an alert, not an answer.
    assert!(
        !bench
            .exchange(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            .contains("HTTP/1.1")
    );
    assert_eq!(
        connect(&bench, &authority.trusting(None)).get("/a").status,
        200
    );
}

#[test]
fn seventy_eight_idle_connections_leave_room_for_twenty_five_callers() {
    let authority = Authority::new();
    let bench = Bench::start(Limits::default(), Some(current(&authority.server(), &[])));
    let config = authority.trusting(None);
    let mut idle: Vec<Secure> = (0..78).map(|_| connect(&bench, &config)).collect();
    for caller in &mut idle {
        assert_eq!(caller.get("/idle").status, 200);
    }
    std::thread::scope(|scope| {
        for number in 0..25 {
            let (bench, config) = (&bench, &config);
            scope.spawn(move || {
                let mut caller = connect(bench, config);
                for round in 0..4 {
                    let body = "x".repeat(number * 10 + round);
                    caller.send(format!("POST /{number} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
                    assert_eq!(caller.answer().body, format!("POST /{number} - {}", body.len()));
                }
            });
        }
    });
    for caller in &mut idle {
        assert_eq!(caller.get("/again").status, 200);
    }
}

#[test]
fn swapping_the_certificate_under_load_fails_no_request() {
    let authority = Authority::new();
    let (old, new) = (authority.server(), authority.server());
    let tls = current(&old, &[]);
    let bench = Bench::start(Limits::default(), Some(Arc::clone(&tls)));
    let config = authority.trusting(None);
    let leaf = |pair: &Pair| CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
    let served = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let mut kept = connect(&bench, &config);
    assert_eq!(kept.get("/").status, 200);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (bench, config, served, stop) = (&bench, &config, &served, &stop);
            scope.spawn(move || {
                let mut caller = connect(bench, config);
                while !stop.load(Ordering::SeqCst) {
                    // Half of the workers use one connection, the others a new one each time.
                    if worker % 2 == 0 {
                        caller = connect(bench, config);
                    }
                    assert_eq!(caller.get("/load").status, 200);
                    served.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for swap in 1..=6 {
            wait_until(|| served.load(Ordering::SeqCst) >= swap * 100);
            let pair = if swap % 2 == 0 { &old } else { &new };
            tls.replace(tls::build(&material(pair, &[])).unwrap());
        }
        tls.replace(tls::build(&material(&new, &[])).unwrap());
        stop.store(true, Ordering::SeqCst);
    });
    assert!(served.load(Ordering::SeqCst) >= 500);
    let mut caller = connect(&bench, &config);
    assert_eq!(caller.get("/").status, 200);
    assert_eq!(
        caller.stream.conn.peer_certificates().unwrap()[0],
        leaf(&new)
    );
    // A connection from before the swap lives on with what it began with.
    assert_eq!(kept.get("/").status, 200);
    assert_eq!(kept.stream.conn.peer_certificates().unwrap()[0], leaf(&old));
}

#[test]
fn taking_out_a_client_ca_shuts_its_callers_out() {
    let (authority, partner) = (Authority::new(), Authority::new());
    let pair = authority.server();
    let tls = current(&pair, &[&authority.pem, &partner.pem]);
    let bench = Bench::start(Limits::default(), Some(Arc::clone(&tls)));
    let config = authority.trusting(Some(&partner.client("partner")));
    assert_eq!(call(&bench, &config).unwrap(), b'H');
    tls.replace(tls::build(&material(&pair, &[&authority.pem])).unwrap());
    assert!(call(&bench, &config).is_err());
}

#[test]
fn a_drain_closes_idle_tls_connections_and_answers_the_running_one() {
    let authority = Authority::new();
    let bench = Bench::start(Limits::default(), Some(current(&authority.server(), &[])));
    let config = authority.trusting(None);
    let mut idle = connect(&bench, &config);
    assert_eq!(idle.get("/").status, 200);
    let mut running = connect(&bench, &config);
    running.send(b"GET /wait HTTP/1.1\r\nHost: h\r\n\r\n");
    bench.begun.recv_timeout(PATIENCE).unwrap();
    let Bench { server, go_on, .. } = bench;
    let cut = std::thread::scope(|scope| {
        let drain = scope.spawn(move || server.drain(PATIENCE));
        assert_eq!(idle.until_closed(), "");
        go_on.send(()).unwrap();
        assert!(running.answer().head.contains("Connection: close"));
        drain.join().unwrap()
    });
    assert_eq!(cut, 0);
}

#[test]
fn what_is_wrong_with_the_material_is_named() {
    // HX-07.
    let authority = Authority::new();
    let (pair, other) = (authority.server(), authority.server());
    let check = |certificate: &str, key: &str, authorities: &[&str], expected: &str| {
        let pair = Pair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        let error = tls::build(&material(&pair, authorities))
            .err()
            .map(|error| error.to_string());
        assert!(
            error
                .as_ref()
                .is_some_and(|error| error.starts_with(expected)),
            "{error:?}, not {expected:?}"
        );
    };
    check("", &pair.key, &[], "certificate tls.crt is empty");
    check(
        &pair.certificate,
        " \n",
        &[],
        "private key tls.key is empty",
    );
    check(&pair.key, &pair.key, &[], "no certificate found in tls.crt");
    check(
        &pair.certificate,
        &pair.certificate,
        &[],
        "no private key found in tls.key",
    );
    check(
        &pair.certificate,
        &other.key,
        &[],
        "private key tls.key does not belong to certificate tls.crt",
    );
    check(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        &pair.key,
        &[],
        "certificate tls.crt is not usable: ",
    );
    check(
        "-----BEGIN CERTIFICATE-----\n",
        &pair.key,
        &[],
        "certificate tls.crt is not usable: ",
    );
    check(
        &pair.certificate,
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        &[],
        "private key tls.key is not usable: ",
    );
    check(
        &pair.certificate,
        &pair.key,
        &["nothing"],
        "no client CA certificate found in ca.crt",
    );
    check(
        &pair.certificate,
        &pair.key,
        &[&authority.pem, ""],
        "no client CA certificate found in ca.crt",
    );
    let identity = tls::build(&material(&pair, &[])).unwrap();
    assert!(identity.not_after > identity.not_before);
}

#[test]
fn secrets_do_not_show_in_debug_output() {
    let pair = Authority::new().server();
    let shown = format!("{:?}", material(&pair, &[]));
    assert!(
        !shown.contains("PRIVATE") && shown.contains("tls.key"),
        "{shown}"
    );
}
