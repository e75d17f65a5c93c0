//! Who may ask (SO-32, AW-53…AW-57, T1): callers that the operator does not know are turned away and start no process.
//!
//! An API server shows a certificate or a token only where its administrator has set that up, so most of this is asked directly; one
//! test has an API server that is set up so.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::support::stage::{Kind, answers, config_map, review};
use crate::support::{
    Answer, Authority, ControlPlane, Identity, Operator, SOON, Stage, TempDir, Validity, wait_for,
};

/// A stage whose hook notes each run.
fn noting<'a>(stage: Stage<'a>) -> Stage<'a> {
    let body = format!(
        "echo run >>{}\n{}",
        stage.env.path().join("runs").display(),
        answers(&json!({ "allowed": true }))
    );
    stage.hook("note", Kind::Validating, &json!({}), &body)
}

fn runs(stage: &Stage<'_>) -> usize {
    let notes = std::fs::read_to_string(stage.env.path().join("runs"));
    notes.unwrap_or_default().lines().count()
}

fn start(stage: &Stage<'_>) -> Operator {
    let operator = stage.env.start();
    operator.wait_ready();
    operator
}

/// Asks the hook with a certificate and with headers. An error is a refusal by TLS.
fn ask(
    stage: &Stage<'_>,
    client: Option<&Identity>,
    headers: &[(&str, &str)],
) -> std::io::Result<Answer> {
    let mut all = vec![("Content-Type", "application/json")];
    all.extend(headers);
    let question = review("u", &config_map("a", &json!({}))).to_string();
    let path = stage.path("note");
    stage
        .try_connect(client)?
        .request("POST", &path, &all, question.as_bytes())
}

#[track_caller]
fn is_served(answer: std::io::Result<Answer>) {
    let answer = answer.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["response"]["allowed"], true);
}

#[test]
fn a_client_ca_refuses_callers_without_and_with_a_foreign_certificate() {
    let stage = noting(Stage::new("client-ca"));
    let (right, other, foreign) = (
        Authority::new("right"),
        Authority::new("other"),
        Authority::new("foreign"),
    );
    // One file may hold several authorities, and there may be several files.
    let third = Authority::new("third");
    let bundle = stage
        .env
        .write("clients.pem", format!("{}{}", right.pem, third.pem));
    let more = stage.env.write("more.pem", &other.pem);
    let stage = stage
        .flag(&format!(
            "--validating-webhook-client-ca={}",
            bundle.display()
        ))
        .flag(&format!(
            "--validating-webhook-client-ca={}",
            more.display()
        ));
    let operator = start(&stage);
    let client = |authority: &Authority, validity| authority.client("apiserver", &[], validity);

    for refused in [
        None,
        Some(client(&foreign, Validity::Now)),
        Some(client(&right, Validity::Expired)),
        Some(right.server(&["127.0.0.1"], Validity::Now)),
    ] {
        let answer = ask(&stage, refused.as_ref(), &[]);
        assert!(answer.is_err(), "{answer:?}");
    }
    assert_eq!(runs(&stage), 0);
    for authority in [&right, &other, &third] {
        is_served(ask(&stage, Some(&client(authority, Validity::Now)), &[]));
    }
    assert_eq!(runs(&stage), 3);
    // Probes need no certificate on their own port.
    assert_eq!(operator.healthz().unwrap().status, 200);
}

#[test]
fn only_certificates_with_an_allowed_name_are_served() {
    let stage = noting(Stage::new("client-name"));
    let authority = Authority::new("right");
    let file = stage.env.write("clients.pem", &authority.pem);
    let stage = stage
        .flag(&format!(
            "--validating-webhook-client-ca={}",
            file.display()
        ))
        .flag("--validating-webhook-client-name=apiserver")
        .flag("--validating-webhook-client-name=front-proxy");
    let _operator = start(&stage);
    let client = |name: &str| authority.client(name, &["apiserver"], Validity::Now);
    for stranger in ["jane", "apiserver2", "Apiserver"] {
        let answer = ask(&stage, Some(&client(stranger)), &[]).unwrap();
        assert_eq!(answer.status, 403, "{stranger}: {}", answer.text());
    }
    assert_eq!(runs(&stage), 0);
    is_served(ask(&stage, Some(&client("apiserver")), &[]));
    is_served(ask(&stage, Some(&client("front-proxy")), &[]));
    assert_eq!(runs(&stage), 2);
}

#[test]
fn a_token_or_password_from_a_file_is_asked_for_and_read_again() {
    let stage = noting(Stage::new("client-token"));
    let file = stage.env.write("callers", "token-1\nuser:pass:word\n");
    let stage = stage.flag(&format!(
        "--validating-webhook-client-auth-file={}",
        file.display()
    ));
    let operator = start(&stage);
    let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
    let wrong = [
        "Bearer token-2".to_owned(),
        "Bearer user:pass:word2".to_owned(),
        "Bearer ".to_owned(),
        basic("user:pass"),
        basic(":"),
        "token-1".to_owned(),
    ];
    let answer = ask(&stage, None, &[]).unwrap();
    assert_eq!(answer.status, 401);
    assert!(answer.header("www-authenticate").is_some());
    for shown in &wrong {
        let answer = ask(&stage, None, &[("Authorization", shown)]).unwrap();
        assert_eq!(answer.status, 401, "{shown}");
    }
    assert_eq!(runs(&stage), 0);
    is_served(ask(&stage, None, &[("Authorization", "Bearer token-1")]));
    is_served(ask(
        &stage,
        None,
        &[("Authorization", &basic("user:pass:word"))],
    ));

    stage.env.write("callers", "token-2\n");
    wait_for("the new token", SOON, || {
        let answer = ask(&stage, None, &[("Authorization", "Bearer token-2")]);
        answer.unwrap().status == 200
    });
    let answer = ask(&stage, None, &[("Authorization", "Bearer token-1")]);
    assert_eq!(answer.unwrap().status, 401);
    // While the file is away, as in the middle of an update, nobody new is known and nobody is forgotten.
    std::fs::remove_file(&file).unwrap();
    is_served(ask(&stage, None, &[("Authorization", "Bearer token-2")]));
    let answer = ask(&stage, None, &[("Authorization", "Bearer token-1")]);
    assert_eq!(answer.unwrap().status, 401);
    operator.wait_log("that the file is away", |line| {
        line.label("level") == Some("warn") && line.contains("callers")
    });
}

/// The three files of AW-54: what the API server shows to which webhook.
fn admission_configuration(folder: &TempDir, user: &Value) -> String {
    let kubeconfig = folder.write(
        "webhooks.kubeconfig",
        json!({
            "apiVersion": "v1", "kind": "Config",
            // AW-56: the fallback for every host.
            "users": [{ "name": "*", "user": user }],
        })
        .to_string(),
    );
    let plugin = |name: &str| {
        json!({
            "name": name,
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": kubeconfig.to_string_lossy(),
            },
        })
    };
    let file = folder.write(
        "admission.json",
        json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
            "plugins": [plugin("ValidatingAdmissionWebhook"), plugin("MutatingAdmissionWebhook")],
        })
        .to_string(),
    );
    format!("--admission-control-config-file={}", file.display())
}

/// AW-54…AW-57: an API server that shows a certificate and a token is served by an operator that asks for both, and the one of the
/// other tests, which shows nothing, is not.
#[test]
fn an_api_server_that_shows_its_certificate_and_token_is_served() {
    let authority = Authority::new("clients");
    let identity = authority.client("apiserver", &[], Validity::Now);
    let folder = TempDir::new();
    let user = json!({
        "client-certificate-data": STANDARD.encode(&identity.certificate_pem),
        "client-key-data": STANDARD.encode(&identity.key_pem),
        "token": "the-token",
    });
    let plane = ControlPlane::own_with(&[&admission_configuration(&folder, &user)]);
    let strict = |stage: &Stage<'_>| {
        let ca = stage.env.write("clients.pem", &authority.pem);
        let callers = stage.env.write("callers", "the-token\n");
        [
            format!("--validating-webhook-client-ca={}", ca.display()),
            format!(
                "--validating-webhook-client-auth-file={}",
                callers.display()
            ),
            "--validating-webhook-client-name=apiserver".to_owned(),
        ]
    };

    let mut shown = Stage::on(&plane, "shown");
    for flag in strict(&shown) {
        shown = shown.flag(&flag);
    }
    let shown = noting(shown);
    let _operator = shown.start();
    let answer = shown.create("a", &json!({}));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(runs(&shown), 1);

    let mut bare = Stage::new("bare");
    for flag in strict(&bare) {
        bare = bare.flag(&flag);
    }
    let bare = noting(bare);
    let _other = start(&bare);
    let answer = wait_for("the refusal", SOON, || {
        let path = format!("{}?dryRun=All", bare.config_maps());
        let answer = bare.api.create(&path, &config_map("a", &json!({})));
        (answer.status != 201).then_some(answer)
    });
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert!(answer.text().contains("failed calling webhook"));
    assert_eq!(runs(&bare), 0);
}
