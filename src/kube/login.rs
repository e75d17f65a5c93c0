//! A user of a kubeconfig: what it proves itself with, whom it impersonates, which plugin it runs.
//!
//! Pure; runs once at start. It turns the wire form into a `Login` and refuses what a service cannot honour, with the
//! remedy. It runs no plugin and opens no connection.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::config::{Login, Secret, Source, Token};
use super::credential::{ExecCommand, ExecVersion};
use super::error::Error;
use super::kubeconfig::{Cluster, Entry, Exec, User, beside, filled, source};

pub(super) fn login(
    entry: &Entry<User>,
    name: &str,
    cluster: &Entry<Cluster>,
    cluster_name: &str,
) -> Result<Login, Error> {
    let user = &entry.value;
    let wrong =
        |why: String| Error::Config(format!("user {name:?} in {}: {why}", entry.file.display()));
    let token = match (
        filled(user.token_file.as_deref()),
        filled(user.token.as_deref()),
    ) {
        (Some(path), _) => Some(Token::File(beside(&entry.file, path))),
        (None, Some(token)) => Some(Token::Fixed(Secret(token.to_owned()))),
        (None, None) => None,
    };
    let basic = filled(user.username.as_deref()).map(|username| {
        let password = user.password.clone().unwrap_or_default();
        (username.to_owned(), Secret(password))
    });
    if token.is_some() && basic.is_some() {
        return Err(wrong(
            "a token and a user name exclude each other; remove one".to_owned(),
        ));
    }
    let exec = match &user.exec {
        Some(exec) => Some(exec_command(exec, entry, cluster, cluster_name).map_err(wrong)?),
        None => None,
    };
    let login = Login {
        token,
        basic,
        certificate: client_certificate(entry, name).map_err(wrong)?,
        exec,
        impersonation: impersonation(user).map_err(wrong)?,
    };
    if let Some(provider) = &user.auth_provider {
        return Err(wrong(format!(
            "the auth-provider {:?} is no longer supported by Kubernetes; use an exec plugin",
            provider.name
        )));
    }
    Ok(login)
}

fn client_certificate(entry: &Entry<User>, name: &str) -> Result<Option<(Source, Source)>, String> {
    let user = &entry.value;
    let certificate = source(
        &entry.file,
        user.client_certificate_data.as_deref(),
        user.client_certificate.as_deref(),
        &format!("client-certificate-data of user {name:?}"),
    )?;
    let key = source(
        &entry.file,
        user.client_key_data.as_deref(),
        user.client_key.as_deref(),
        &format!("client-key-data of user {name:?}"),
    )?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err("it has a client-certificate but no client-key".to_owned()),
        (None, Some(_)) => Err("it has a client-key but no client-certificate".to_owned()),
    }
}

/// The headers that ask the server to treat us as someone else.
fn impersonation(user: &User) -> Result<Vec<(String, String)>, String> {
    let mut headers = Vec::new();
    if let Some(name) = filled(user.impersonate.as_deref()) {
        headers.push(("Impersonate-User".to_owned(), name.to_owned()));
    }
    if let Some(uid) = filled(user.as_uid.as_deref()) {
        headers.push(("Impersonate-Uid".to_owned(), uid.to_owned()));
    }
    for group in user.as_groups.iter().flatten() {
        headers.push(("Impersonate-Group".to_owned(), group.clone()));
    }
    for (key, values) in user.as_user_extra.iter().flatten() {
        for value in values {
            headers.push((
                format!("Impersonate-Extra-{}", header_key(key)),
                value.clone(),
            ));
        }
    }
    match headers.first() {
        Some((first, _)) if first != "Impersonate-User" => {
            Err("as-uid, as-groups and as-user-extra need as".to_owned())
        }
        _ => Ok(headers),
    }
}

/// Header names hold few characters; Kubernetes undoes percent encoding in the key of an extra.
fn header_key(key: &str) -> String {
    let mut encoded = String::new();
    for byte in key.to_ascii_lowercase().bytes() {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn exec_command(
    exec: &Exec,
    entry: &Entry<User>,
    cluster: &Entry<Cluster>,
    cluster_name: &str,
) -> Result<ExecCommand, String> {
    let version = match exec.api_version.as_deref() {
        Some("client.authentication.k8s.io/v1") => ExecVersion::V1,
        Some("client.authentication.k8s.io/v1beta1") => ExecVersion::V1Beta1,
        other => {
            return Err(format!(
                "the exec plugin has apiVersion {:?}; use client.authentication.k8s.io/v1 (and a plugin that knows it)",
                other.unwrap_or_default()
            ));
        }
    };
    if exec.interactive_mode.as_deref() == Some("Always") {
        return Err(format!(
            "the exec plugin {:?} needs a terminal (interactiveMode: Always) and a service has none; use a plugin that works without",
            exec.command
        ));
    }
    // Only a command with a slash is a path; a bare name is looked up in PATH.
    let command = if exec.command.contains('/') {
        beside(&entry.file, &exec.command).display().to_string()
    } else {
        exec.command.clone()
    };
    let shown = exec
        .provide_cluster_info
        .unwrap_or(false)
        .then(|| cluster_for_plugin(cluster, cluster_name))
        .transpose()?;
    Ok(ExecCommand::new(
        command,
        exec.args.clone().unwrap_or_default(),
        exec.env
            .iter()
            .flatten()
            .map(|variable| (variable.name.clone(), variable.value.clone()))
            .collect(),
        version,
        shown,
        exec.install_hint.clone(),
    ))
}

/// The cluster as a plugin gets to see it (`provideClusterInfo`).
fn cluster_for_plugin(entry: &Entry<Cluster>, name: &str) -> Result<Value, String> {
    let cluster = &entry.value;
    let mut shown = serde_json::Map::new();
    let mut put = |key: &str, value: Option<&str>| {
        if let Some(value) = filled(value) {
            shown.insert(key.to_owned(), Value::from(value));
        }
    };
    put("server", cluster.server.as_deref());
    put("tls-server-name", cluster.tls_server_name.as_deref());
    put("proxy-url", cluster.proxy_url.as_deref());
    let authority = source(
        &entry.file,
        cluster.certificate_authority_data.as_deref(),
        cluster.certificate_authority.as_deref(),
        &format!("certificate-authority-data of cluster {name:?}"),
    )?;
    if let Some(authority) = authority {
        let bytes = authority.read().map_err(|error| error.to_string())?;
        put("certificate-authority-data", Some(&STANDARD.encode(bytes)));
    }
    if cluster.insecure_skip_tls_verify == Some(true) {
        shown.insert("insecure-skip-tls-verify".to_owned(), Value::from(true));
    }
    let extension = cluster
        .extensions
        .iter()
        .flatten()
        .find(|extension| extension.name == "client.authentication.k8s.io/exec");
    if let Some(config) = extension.and_then(|extension| extension.extension.clone()) {
        shown.insert("config".to_owned(), config);
    }
    Ok(Value::Object(shown))
}
