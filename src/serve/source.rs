//! Where the serving certificate comes from: files, a Secret that somebody else keeps, or one of our own. Runs on the webhook
//! thread, which asks again at every round; whatever comes back is compared by content, so that a swapped symlink, an edited
//! Secret and a renewal are all the same event.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::certificate::{self, Wish};
use super::register;
use super::tls::{self, Files, Material, Pem};
use crate::kube::{Client, Method};

/// How often files and Secrets are looked at: a change is served within ten seconds.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// What is served, and what callers must trust for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) material: Material,
    /// CAs for `caBundle`.
    pub(crate) bundle: Pem,
}

/// One of the three ways.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Files {
        files: Files,
        ca: PathBuf,
    },
    /// `tls.crt`, `tls.key` and `ca.crt` of a Secret that somebody else keeps.
    Secret {
        place: SecretPlace,
        client_authorities: Vec<PathBuf>,
    },
    /// Made and renewed by us, kept in a Secret.
    SelfManaged {
        place: SecretPlace,
        wish: Wish,
        client_authorities: Vec<PathBuf>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct SecretPlace {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl std::fmt::Display for SecretPlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Secret {}/{}", self.namespace, self.name)
    }
}

impl Source {
    /// How long to wait between two looks.
    pub(crate) fn poll_interval(&self) -> Duration {
        match self {
            Source::SelfManaged { wish, .. } => {
                certificate::poll_interval(wish.lifetime).min(POLL_INTERVAL)
            }
            Source::Files { .. } | Source::Secret { .. } => POLL_INTERVAL,
        }
    }

    /// What should be served now. Errors are sentences that name the file or Secret.
    pub(crate) fn load(&self, client: &Client) -> Result<Offer, String> {
        match self {
            Source::Files { files, ca } => Ok(Offer {
                material: files.load().map_err(|error| error.to_string())?,
                bundle: tls::read("CA", ca).map_err(|error| error.to_string())?,
            }),
            Source::Secret {
                place,
                client_authorities,
            } => {
                let found = fetch(client, place)?.ok_or_else(|| {
                    format!(
                        "{place} does not exist; create it with the keys tls.crt, tls.key and ca.crt"
                    )
                })?;
                offer(place, &found.content, client_authorities)
            }
            Source::SelfManaged {
                place,
                wish,
                client_authorities,
            } => {
                let content = keep(client, place, wish)?;
                offer(place, &content, client_authorities)
            }
        }
    }
}

/// A Secret as it is in the cluster.
struct Found {
    /// Decoded; values that are no UTF-8 are left out.
    content: BTreeMap<String, String>,
    object: Value,
}

fn fetch(client: &Client, place: &SecretPlace) -> Result<Option<Found>, String> {
    let path = format!(
        "/api/v1/namespaces/{}/secrets/{}",
        place.namespace, place.name
    );
    let object: Value = match client.get_json(&path) {
        Ok(object) => object,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(format!("{place}: {error}")),
    };
    let entries = object.get("data").and_then(Value::as_object);
    let content = entries
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let bytes = BASE64_STANDARD.decode(value.as_str()?).ok()?;
            Some((key.clone(), String::from_utf8(bytes).ok()?))
        })
        .collect();
    Ok(Some(Found { content, object }))
}

/// Brings the self-managed Secret to the state it should be in, and returns its content.
fn keep(
    client: &Client,
    place: &SecretPlace,
    wish: &Wish,
) -> Result<BTreeMap<String, String>, String> {
    let found = fetch(client, place)?;
    let stored = found
        .as_ref()
        .and_then(|found| certificate::from_secret(&found.content));
    let next = certificate::advance(stored.as_ref(), wish, Timestamp::now()).map_err(|error| {
        format!(
            "cannot make a certificate for {}: {error}",
            wish.names.join(", ")
        )
    })?;
    let Some(next) = next else {
        return Ok(found.map(|found| found.content).unwrap_or_default());
    };
    let content = certificate::to_secret(&next);
    match write(client, place, found.as_ref(), &content) {
        Ok(()) => Ok(content),
        // Another replica was faster: what it wrote is as good as ours.
        Err(error) if error.is_conflict() || error.is_already_exists() => fetch(client, place)?
            .map(|found| found.content)
            .ok_or_else(|| format!("{place} was deleted while it was written")),
        Err(error) => Err(format!("{place}: {error}")),
    }
}

fn write(
    client: &Client,
    place: &SecretPlace,
    found: Option<&Found>,
    content: &BTreeMap<String, String>,
) -> Result<(), crate::kube::Error> {
    let encoded: BTreeMap<&String, String> = content
        .iter()
        .map(|(key, value)| (key, BASE64_STANDARD.encode(value)))
        .collect();
    let base = format!("/api/v1/namespaces/{}/secrets", place.namespace);
    match found {
        None => {
            let object = json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": place.name,
                    "namespace": place.namespace,
                    "labels": {"app.kubernetes.io/managed-by": "shell-operator"},
                },
                // Not kubernetes.io/tls: the API server would refuse to change the type of one that exists.
                "type": "Opaque",
                "data": encoded,
            });
            register::write(client, Method::Post, &base, &object)
        }
        Some(found) => {
            let mut object = found.object.clone();
            if let Some(fields) = object.as_object_mut() {
                fields.insert("data".to_owned(), json!(encoded));
            }
            register::write(
                client,
                Method::Put,
                &format!("{base}/{}", place.name),
                &object,
            )
        }
    }
}

/// The offer that a Secret's content makes.
fn offer(
    place: &SecretPlace,
    content: &BTreeMap<String, String>,
    client_authorities: &[PathBuf],
) -> Result<Offer, String> {
    let pem = |key: &str| Pem {
        from: format!("{key} of {place}"),
        bytes: content.get(key).cloned().unwrap_or_default().into_bytes(),
    };
    let mut bundle = pem("ca.crt");
    if let Some(stored) = certificate::from_secret(content) {
        bundle.bytes = stored.bundle().into_bytes();
    }
    let client_authorities = client_authorities
        .iter()
        .map(|path| tls::read("client CA", path).map_err(|error| error.to_string()))
        .collect::<Result<_, _>>()?;
    Ok(Offer {
        material: Material {
            certificate: pem("tls.crt"),
            key: pem("tls.key"),
            client_authorities,
        },
        bundle,
    })
}
