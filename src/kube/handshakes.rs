//! Tests of TLS: who is trusted, who we are, what is said when it fails, and what happens when certificates rotate.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::client::Client;
use super::config::{ClusterConfig, Secret, Source, Trust};
use super::error::{Error, Fault};
use super::scripted::{Folder, answer, client, no_limits};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

struct Issued {
    certificate: String,
    key: String,
    chain: Vec<CertificateDer<'static>>,
    key_der: PrivateKeyDer<'static>,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Authority {
            pem: certificate.pem(),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    fn issue(&self, names: &[&str], last_year: i32) -> Issued {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            chain: vec![certificate.der().clone()],
            key_der: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        }
    }
}

/// Answers `{}` to every request over TLS; its certificate can be changed while it runs.
struct TlsServer {
    port: u16,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    stop: Arc<AtomicBool>,
    accept: Option<JoinHandle<()>>,
}

fn server_config(issued: &Issued, clients: Option<&Authority>) -> Arc<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der.clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .unwrap();
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    Arc::new(
        builder
            .with_single_cert(issued.chain.clone(), issued.key_der.clone_key())
            .unwrap(),
    )
}

impl TlsServer {
    #[expect(clippy::disallowed_methods, reason = "test support")]
    fn start(first: Arc<ServerConfig>) -> TlsServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = Arc::new(Mutex::new(first));
        let stop = Arc::new(AtomicBool::new(false));
        let (current, ending) = (Arc::clone(&config), Arc::clone(&stop));
        let accept = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ending.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let config = Arc::clone(&current.lock().unwrap());
                serve(stream, config);
            }
        });
        TlsServer {
            port,
            config,
            stop,
            accept: Some(accept),
        }
    }

    fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }
}

/// One request, then the connection is closed, so that a changed certificate is seen by the next call.
fn serve(socket: TcpStream, config: Arc<ServerConfig>) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), socket);
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            // A reset would overtake the alert, so that the client's bytes are read first.
            let _ = stream.sock.shutdown(Shutdown::Write);
            let _ = std::io::copy(&mut stream.sock, &mut std::io::sink());
            return;
        }
        head.push(byte[0]);
    }
    let _ = stream.write_all(&answer(200, "Connection: close\r\n", "{}"));
    stream.conn.send_close_notify();
    let _ = stream.flush();
    let _ = stream.sock.shutdown(Shutdown::Write);
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(accept) = self.accept.take() {
            let _ = accept.join();
        }
    }
}

fn inline(text: &str) -> Source {
    Source::Inline {
        name: "the test".to_owned(),
        bytes: Secret(text.to_owned()),
    }
}

fn trusting(server: &TlsServer, authority: &Authority) -> ClusterConfig {
    let mut config = ClusterConfig::plain(&server.url());
    config.trust = Trust::Authority(inline(&authority.pem));
    config
}

fn failure(config: ClusterConfig) -> (Fault, String) {
    let error = client(config).get("/x").unwrap_err();
    let shown = error.to_string();
    match error {
        Error::Transport { fault, .. } => (fault, shown),
        other => panic!("not a transport error: {other}"),
    }
}

#[test]
fn a_server_is_believed_by_its_authority_its_name_and_its_dates() {
    let ours = Authority::new();
    let theirs = Authority::new();
    let server = TlsServer::start(server_config(&ours.issue(&["127.0.0.1"], 2999), None));
    client(trusting(&server, &ours)).get("/x").unwrap();

    let (fault, shown) = failure(trusting(&server, &theirs));
    assert!(matches!(fault, Fault::UnknownAuthority { .. }), "{shown}");
    assert!(
        shown.contains("the certificate authority in the test"),
        "{shown}"
    );

    *server.config.lock().unwrap() =
        server_config(&ours.issue(&["kubernetes", "10.0.0.1"], 2999), None);
    let (fault, shown) = failure(trusting(&server, &ours));
    assert_eq!(
        fault,
        Fault::NameMismatch {
            asked: "127.0.0.1".to_owned(),
            presented: "kubernetes, 10.0.0.1".to_owned()
        },
        "{shown}"
    );
    let mut named = trusting(&server, &ours);
    named.tls_server_name = Some("kubernetes".to_owned());
    client(named.clone()).get("/x").unwrap();
    named.tls_server_name = Some("elsewhere".to_owned());
    let (_, shown) = failure(named);
    assert!(shown.contains("not for \"elsewhere\""), "{shown}");

    *server.config.lock().unwrap() = server_config(&ours.issue(&["127.0.0.1"], 2001), None);
    let (fault, shown) = failure(trusting(&server, &ours));
    assert!(matches!(fault, Fault::CertificateExpired { .. }), "{shown}");
    assert!(shown.contains("2001-01-01T00:00:00Z"), "{shown}");

    let mut anyone = trusting(&server, &theirs);
    anyone.trust = Trust::DangerAnyone;
    client(anyone).get("/x").unwrap();
}

#[test]
fn a_plain_port_is_not_taken_for_a_tls_port() {
    let ours = Authority::new();
    let plain = super::scripted::Server::saying(answer(400, "", "no"));
    let mut config = ClusterConfig::plain(&format!("https://{}", plain.address));
    config.trust = Trust::Authority(inline(&ours.pem));
    let error = client(config)
        .send(&super::client::Request {
            deadline: Some(std::time::Duration::from_secs(2)),
            ..super::client::Request::new(super::client::Method::Get, "/x")
        })
        .unwrap_err();
    assert!(error.retryable(), "{error}");
}

#[test]
fn a_client_certificate_is_shown_and_a_wrong_one_is_found_before_connecting() {
    let ours = Authority::new();
    let theirs = Authority::new();
    let server = TlsServer::start(server_config(
        &ours.issue(&["127.0.0.1"], 2999),
        Some(&ours),
    ));
    let (fault, shown) = failure(trusting(&server, &ours));
    assert!(
        matches!(fault, Fault::ClientCertificateRefused { .. }),
        "{shown}"
    );
    let good = ours.issue(&["jane"], 2999);
    let mut config = trusting(&server, &ours);
    config.login.certificate = Some((inline(&good.certificate), inline(&good.key)));
    client(config.clone()).get("/x").unwrap();

    let stranger = theirs.issue(&["jane"], 2999);
    config.login.certificate = Some((inline(&stranger.certificate), inline(&stranger.key)));
    let (fault, shown) = failure(config.clone());
    assert!(
        matches!(fault, Fault::ClientCertificateRefused { .. }),
        "{shown}"
    );

    for (certificate, key, expected) in [
        (
            &good.certificate,
            &stranger.key,
            "does not belong to the key",
        ),
        (&String::new(), &good.key, "holds no certificate"),
        (&good.certificate, &String::new(), "holds no private key"),
    ] {
        config.login.certificate = Some((inline(certificate), inline(key)));
        let run = Arc::new(|_: &_| Err("no plugin".to_owned()));
        let error = Client::new(config.clone(), no_limits(), run).err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn an_authority_that_cannot_be_read_is_named() {
    let folder = Folder::new();
    for (name, content, expected) in [
        ("empty.crt", "", "it holds no certificate"),
        ("text.crt", "hello", "it holds no certificate"),
        (
            "broken.crt",
            "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n",
            "cannot be parsed",
        ),
        (
            "cut.crt",
            "-----BEGIN CERTIFICATE-----\naGVsbG8=\n",
            "it is not PEM",
        ),
    ] {
        let path = folder.write(name, content);
        let mut config = ClusterConfig::plain("https://127.0.0.1:1");
        config.trust = Trust::Authority(Source::File(path));
        let run = Arc::new(|_: &_| Err("no plugin".to_owned()));
        let error = Client::new(config, no_limits(), run)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains(name) && error.contains(expected), "{error}");
    }
}

#[test]
fn rotated_certificates_are_used_at_once_when_the_old_ones_fail() {
    let old = Authority::new();
    let new = Authority::new();
    let folder = Folder::new();
    let bundle = folder.write("ca.crt", &old.pem);
    let first = old.issue(&["jane"], 2999);
    let certificate = folder.write("tls.crt", &first.certificate);
    let key = folder.write("tls.key", &first.key);
    let server = TlsServer::start(server_config(&old.issue(&["127.0.0.1"], 2999), Some(&old)));
    let mut config = ClusterConfig::plain(&server.url());
    config.trust = Trust::Authority(Source::File(bundle.clone()));
    config.login.certificate = Some((Source::File(certificate.clone()), Source::File(key.clone())));
    let client = client(config);
    client.get("/x").unwrap();

    *server.config.lock().unwrap() = server_config(&new.issue(&["127.0.0.1"], 2999), Some(&new));
    client.get("/x").unwrap_err();
    fs::write(&bundle, "half").unwrap();
    client.get("/x").unwrap_err();
    let second = new.issue(&["jane"], 2999);
    fs::write(&bundle, &new.pem).unwrap();
    fs::write(&certificate, &second.certificate).unwrap();
    fs::write(&key, &second.key).unwrap();
    client.get("/x").unwrap();
}

#[test]
fn a_plugin_may_grant_a_client_certificate() {
    let ours = Authority::new();
    let server = TlsServer::start(server_config(
        &ours.issue(&["127.0.0.1"], 2999),
        Some(&ours),
    ));
    let folder = Folder::new();
    let authority = folder.write("ca.crt", &ours.pem);
    let file = folder.write(
        "config",
        &format!(
            "current-context: c\nclusters: [{{name: k, cluster: {{server: '{}', certificate-authority: '{}'}}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\nusers: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1beta1, command: p}}}}}}]\n",
            server.url(),
            authority.display()
        ),
    );
    let config = super::kubeconfig::load(&[file], None, &[]).unwrap();
    let granted = ours.issue(&["jane"], 2999);
    let client = Client::new(
        config,
        no_limits(),
        Arc::new(move |_| {
            Ok(serde_json::json!({
                "kind": "ExecCredential",
                "apiVersion": "client.authentication.k8s.io/v1beta1",
                "status": {"clientCertificateData": granted.certificate, "clientKeyData": granted.key},
            })
            .to_string()
            .into_bytes())
        }),
    )
    .unwrap();
    client.get("/x").unwrap();
    client.get("/x").unwrap();
}

/// Understands `CONNECT`, then carries bytes both ways until one side ends.
#[expect(clippy::disallowed_methods, reason = "test support")]
fn proxy(target: u16) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            near.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let mut far = TcpStream::connect(("127.0.0.1", target)).unwrap();
        near.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").unwrap();
        let (mut near_in, mut far_out) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let up = std::thread::spawn(move || std::io::copy(&mut near_in, &mut far_out));
        let _ = std::io::copy(&mut far, &mut near);
        let _ = near.shutdown(Shutdown::Both);
        let _ = up.join();
        String::from_utf8(head).unwrap()
    });
    (port, thread)
}

#[test]
fn a_proxy_carries_tls_to_the_server_it_was_not_told_the_name_of() {
    let ours = Authority::new();
    let server = TlsServer::start(server_config(&ours.issue(&["kubernetes"], 2999), None));
    let (port, thread) = proxy(server.port);
    let mut config = trusting(&server, &ours);
    config.proxy = Some(format!("http://u:p@127.0.0.1:{port}"));
    config.tls_server_name = Some("kubernetes".to_owned());
    client(config).get("/x").unwrap();
    let head = thread.join().unwrap();
    assert!(
        head.starts_with(&format!("CONNECT 127.0.0.1:{} HTTP/1.1", server.port)),
        "{head}"
    );
    assert!(head.contains("Proxy-Authorization: Basic dTpw"), "{head}");
}
