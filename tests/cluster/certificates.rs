//! The serving certificate from files, from a Secret and of the operator's own making: changed while requests come, changed into
//! something unusable, and unusable from the start.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::load::nothing_fails_while;
use crate::support::stage::{Kind, answers};
use crate::support::{Authority, Connection, Identity, Operator, SOON, Stage, Validity, wait_for};

/// The requirement: a changed certificate is served within this time.
const SERVED: Duration = Duration::from_secs(10);

/// A stage whose hook allows, under Fail: whatever goes wrong with TLS is a failed request.
fn allowing(name: &str) -> Stage<'static> {
    let allow = answers(&json!({ "allowed": true }));
    Stage::new(name).hook("allow", Kind::Validating, &json!({}), &allow)
}

/// A certificate for the address of a stage that also bears a name of its own, by which a test knows it when it is served.
fn certificate(stage: &Stage<'_>, authority: &Authority, name: &str) -> Identity {
    let address = stage.address().ip().to_string();
    authority.server(&[&address, name], Validity::Now)
}

/// Whether the certificate with this name is served now, to somebody who trusts only this authority.
fn is_served(stage: &Stage<'_>, authority: &Authority, name: &str) -> bool {
    Connection::tls(stage.address(), name, &authority.pem, None).is_ok()
}

/// A folder like a mounted Secret: names that lead through `..data`, which is swapped.
struct Volume {
    folder: PathBuf,
}

impl Volume {
    fn new(stage: &Stage<'_>, pair: &Identity, authority: &str) -> Volume {
        let folder = stage.env.path().join("certificates");
        fs::create_dir(&folder).unwrap();
        let volume = Volume { folder };
        volume.swap("..1", pair, authority);
        for file in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(format!("..data/{file}"), volume.folder.join(file)).unwrap();
        }
        volume
    }

    /// New content in a new folder, made current in one step.
    fn swap(&self, version: &str, pair: &Identity, authority: &str) {
        let content = self.folder.join(version);
        fs::create_dir(&content).unwrap();
        fs::write(content.join("tls.crt"), &pair.certificate_pem).unwrap();
        fs::write(content.join("tls.key"), &pair.key_pem).unwrap();
        fs::write(content.join("ca.crt"), authority).unwrap();
        let next = self.folder.join("..data_tmp");
        symlink(version, &next).unwrap();
        fs::rename(&next, self.folder.join("..data")).unwrap();
    }

    fn flags<'a>(&self, stage: Stage<'a>) -> Stage<'a> {
        let file = |name: &str| self.folder.join(name).to_string_lossy().into_owned();
        stage
            .flag(&format!(
                "--validating-webhook-server-cert={}",
                file("tls.crt")
            ))
            .flag(&format!(
                "--validating-webhook-server-key={}",
                file("tls.key")
            ))
            .flag(&format!("--validating-webhook-ca={}", file("ca.crt")))
    }
}

#[test]
fn files_are_swapped_under_load_without_a_failed_request() {
    let stage = allowing("swapped");
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let first = certificate(&stage, &old, "first.example.com");
    let volume = Volume::new(&stage, &first, &old.pem);
    let stage = volume.flags(stage);
    let operator = stage.start();
    assert!(is_served(&stage, &old, "first.example.com"));
    nothing_fails_while(&stage, || {
        // Another certificate of the same authority.
        let second = certificate(&stage, &old, "second.example.com");
        volume.swap("..2", &second, &old.pem);
        wait_for("the second certificate", SERVED, || {
            is_served(&stage, &old, "second.example.com")
        });
        // Another authority: the API server must know it before its certificate is served.
        let third = certificate(&stage, &new, "third.example.com");
        volume.swap("..3", &third, &new.pem);
        wait_for("the third certificate", SERVED, || {
            is_served(&stage, &new, "third.example.com")
        });
        wait_for("the old authority to be taken out", SERVED, || {
            stage.ca_bundle().trim() == new.pem.trim()
        });
    });
    // What does not fit together is not used, and the one in use goes on.
    let stray = certificate(&stage, &new, "stray.example.com");
    let broken = Identity {
        certificate_pem: stray.certificate_pem,
        key_pem: first.key_pem,
    };
    volume.swap("..4", &broken, &new.pem);
    operator.wait_log("the warning", |line| {
        line.label("level") == Some("warn")
            && line.contains("tls.key")
            && line.contains("still serving the previous certificate")
    });
    assert!(is_served(&stage, &new, "third.example.com"));
    assert_eq!(operator.readyz().unwrap().status, 200);
    assert_eq!(stage.create("a", &json!({})).status, 201);
}

#[test]
fn a_self_managed_certificate_is_renewed_under_load_without_a_failed_request() {
    // Renewed after 13 s, and for 2 s before and after the switch both authorities are registered.
    let stage = allowing("renewed").flag("--validating-webhook-certificate-lifetime=20s");
    let operator = stage.start();
    let path = format!(
        "/api/v1/namespaces/{}/secrets/shell-operator-validating-svc-tls",
        stage.label
    );
    let served = || stage.api.object(&path)["data"]["tls.crt"].clone();
    let (first, first_bundle) = (served(), stage.ca_bundle());
    let authorities = |bundle: &str| bundle.matches("BEGIN CERTIFICATE").count();
    assert_eq!(authorities(&first_bundle), 1);
    nothing_fails_while(&stage, || {
        wait_for("both authorities to be registered", SOON, || {
            let bundle = stage.ca_bundle();
            authorities(&bundle) == 2 && bundle.contains(first_bundle.trim())
        });
        wait_for("the certificate to be changed", SOON, || served() != first);
        wait_for("the old authority to be taken out", SOON, || {
            let bundle = stage.ca_bundle();
            authorities(&bundle) == 1 && bundle != first_bundle
        });
    });
    let metrics = operator.http_get(9115, "/metrics").unwrap().text();
    let expiry = metrics
        .lines()
        .find(|line| line.contains("webhook_certificate_expiry_seconds"));
    assert!(expiry.is_some(), "{metrics}");
}

/// Replicas take turns in nothing: they share the Secret, so that the one registered authority vouches for all of them.
#[test]
fn replicas_share_one_certificate_and_one_registration() {
    let stage = allowing("replicas");
    let _operator = stage.start();
    let written = stage.configuration(Kind::Validating)["metadata"]["resourceVersion"].clone();
    // The second listens elsewhere and is registered under the same address, as behind a Service.
    let other = allowing("replica");
    let listens_at = other.address();
    let url = format!("https://{}", stage.address());
    let hooks = stage.env.hooks_dir();
    let second = other
        .env("SHELL_OPERATOR_HOOKS_DIR", &hooks.to_string_lossy())
        .env("SHELL_OPERATOR_NAMESPACE", &stage.label)
        .env("VALIDATING_WEBHOOK_CONFIGURATION_NAME", &stage.label)
        .env("VALIDATING_WEBHOOK_URL", &url);
    let replica = second.env.start();
    replica.wait_ready();
    let name = stage.address().ip().to_string();
    assert!(Connection::tls(listens_at, &name, &stage.ca_bundle(), None).is_ok());
    let now = stage.configuration(Kind::Validating)["metadata"]["resourceVersion"].clone();
    assert_eq!(now, written, "the second found everything as it should be");
}

/// What a Secret of type `kubernetes.io/tls` holds.
fn secret(pair: &Identity, authority: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "serving" },
        "data": {
            "tls.crt": STANDARD.encode(&pair.certificate_pem),
            "tls.key": STANDARD.encode(&pair.key_pem),
            "ca.crt": STANDARD.encode(authority),
        },
    })
}

/// HX-01.
#[test]
fn a_secret_is_waited_for_and_followed() {
    let stage = allowing("secret").flag("--validating-webhook-tls-secret=serving");
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let operator = stage.env.start();
    wait_for("the missing Secret as the reason", SOON, || {
        let answer = operator.readyz()?;
        (answer.status == 503 && answer.text().contains("serving")).then_some(())
    });
    let secrets = format!("/api/v1/namespaces/{}/secrets", stage.label);
    let first = certificate(&stage, &old, "first.example.com");
    let answer = stage.api.create(&secrets, &secret(&first, &old.pem));
    assert_eq!(answer.status, 201, "{}", answer.text());
    operator.wait_ready();
    stage.wait_effective();

    let second = certificate(&stage, &new, "second.example.com");
    let path = format!("{secrets}/serving");
    let change = |pair: &Identity, authority: &str| {
        let answer = stage.api.merge(&path, &secret(pair, authority));
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    change(&second, &new.pem);
    wait_for("the second certificate", SERVED, || {
        is_served(&stage, &new, "second.example.com")
    });
    assert_eq!(stage.create("a", &json!({})).status, 201);

    let broken = Identity {
        certificate_pem: first.certificate_pem,
        key_pem: second.key_pem,
    };
    change(&broken, &old.pem);
    operator.wait_log("the warning", |line| {
        line.label("level") == Some("warn")
            && line.contains("Secret")
            && line.contains("still serving the previous certificate")
    });
    assert!(is_served(&stage, &new, "second.example.com"));
}

/// Starts with these files, which cannot be served with, and answers what it said at its end.
fn refused(pair: &Identity, authority: &str) -> String {
    let stage = allowing("refused");
    let volume = Volume::new(&stage, pair, authority);
    let stage = volume.flags(stage);
    let mut operator = stage.env.start();
    assert_eq!(operator.wait_exit(SOON).code(), Some(1));
    let lines = operator.into_lines();
    let complaint = |line: &&crate::support::Line| line.is_stderr || line.contains("stopping:");
    lines
        .iter()
        .filter(complaint)
        .map(|line| line.text.clone())
        .collect()
}

/// HX-07.
#[test]
fn an_empty_certificate_or_key_ends_the_start_with_its_name() {
    let authority = Authority::new("good");
    let good = authority.server(&["127.0.0.1"], Validity::Now);
    let empty = |certificate: bool| Identity {
        certificate_pem: if certificate {
            String::new()
        } else {
            good.certificate_pem.clone()
        },
        key_pem: if certificate {
            good.key_pem.clone()
        } else {
            String::new()
        },
    };
    let text = refused(&empty(true), &authority.pem);
    assert!(
        text.contains("certificate") && text.contains("tls.crt"),
        "{text}"
    );
    assert!(!text.contains("tls.key"), "{text}");
    let text = refused(&empty(false), &authority.pem);
    assert!(text.contains("key") && text.contains("tls.key"), "{text}");
    assert!(!text.contains("tls.crt"), "{text}");
}

/// The API server takes any bundle, and then every call fails. So the operator looks itself, before it registers.
#[test]
fn a_ca_that_did_not_sign_the_certificate_is_never_registered() {
    let stage = allowing("unsigned");
    let (right, wrong) = (Authority::new("right"), Authority::new("wrong"));
    let pair = certificate(&stage, &right, "first.example.com");
    let volume = Volume::new(&stage, &pair, &wrong.pem);
    let stage = volume.flags(stage);
    let mut operator: Operator = stage.env.start();
    let reason = wait_for("the reason", SOON, || {
        let answer = operator.readyz()?;
        let text = answer.text();
        (answer.status == 503 && text.contains("ca.crt")).then_some(text)
    });
    let address = stage.address().ip().to_string();
    assert!(reason.contains(&address), "for whom: {reason}");
    for kind in Kind::BOTH {
        assert_eq!(stage.api.get(&stage.configuration_path(kind)).status, 404);
    }
    assert!(operator.is_running());
    volume.swap("..2", &pair, &right.pem);
    operator.wait_ready();
    stage.wait_effective();
}
