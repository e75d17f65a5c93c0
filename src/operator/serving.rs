//! From settings to what the webhook thread is asked to do. Runs once, on the main thread; makes no call.

use std::path::{Path, PathBuf};

use super::parts;
use crate::kube::Client;
use crate::serve::{Listen, webhook};
use crate::settings::{self, Settings};

/// What the command line says about webhooks, with the defaults that depend on the machine and the cluster.
pub(super) fn plan(settings: &Settings, client: &Client) -> Result<webhook::Plan, String> {
    let asked = &settings.admission;
    let namespace = settings
        .namespace
        .as_deref()
        .or(client.namespace())
        .unwrap_or("default");
    let address = match &asked.url {
        Some(url) => {
            warn_of_port(url, asked.listen.port);
            webhook::Address::Url(url.clone())
        }
        None => webhook::Address::Service {
            namespace: namespace.to_owned(),
            name: asked.service_name.clone(),
            port: asked.service_port,
        },
    };
    let announcement = webhook::Announcement {
        configuration_name: settings.registration.configuration_name.clone(),
        address,
        failure_policy: match settings.registration.failure_policy {
            settings::FailurePolicy::Fail => "Fail",
            settings::FailurePolicy::Ignore => "Ignore",
        },
    };
    Ok(webhook::Plan {
        source: certificate_source(settings, namespace, &announcement),
        announcement,
        listen: Listen {
            name: "admission",
            address: parts::address(&asked.listen, "--validating-webhook-listen-address")?,
            port_flag: "--validating-webhook-listen-port",
        },
        caller_names: asked.client_names.clone(),
        caller_file: asked.client_auth_file.clone(),
        max_hooks: usize::from(asked.max_hooks),
        proxy_hook_json: settings.log.proxy_hook_json,
        drain_limit: settings.stop.grace_period,
    })
}

/// Files if any is named or lies where the original looks, else a Secret if one is named, else a certificate of our own.
fn certificate_source(
    settings: &Settings,
    namespace: &str,
    announcement: &webhook::Announcement,
) -> webhook::Source {
    let asked = &settings.admission;
    let defaults = settings::ADMISSION_FILES;
    let client_authorities = asked.client_cas.clone();
    let named = asked.server_cert.is_some() || asked.server_key.is_some() || asked.ca.is_some();
    let lying = [defaults.server_cert, defaults.server_key, defaults.ca]
        .iter()
        .any(|path| Path::new(path).exists());
    if let Some(secret) = &asked.tls_secret
        && !named
    {
        return webhook::Source::Secret {
            place: webhook::SecretPlace {
                namespace: secret
                    .namespace
                    .clone()
                    .unwrap_or_else(|| namespace.to_owned()),
                name: secret.name.clone(),
            },
            client_authorities,
        };
    }
    if named || lying {
        let path = |given: &Option<PathBuf>, default: &str| {
            given.clone().unwrap_or_else(|| default.into())
        };
        return webhook::Source::Files {
            files: webhook::Files {
                certificate: path(&asked.server_cert, defaults.server_cert),
                key: path(&asked.server_key, defaults.server_key),
                client_authorities,
            },
            ca: path(&asked.ca, defaults.ca),
        };
    }
    webhook::Source::SelfManaged {
        place: webhook::SecretPlace {
            namespace: namespace.to_owned(),
            name: format!("{}-tls", asked.service_name),
        },
        wish: webhook::Wish {
            names: announcement.certificate_names(),
            lifetime: asked.certificate_lifetime,
        },
        client_authorities,
    }
}

/// Behind a proxy the two ports may differ; without one, every call would fail.
fn warn_of_port(url: &str, port: u16) {
    let authority = url.trim_start_matches("https://").split('/').next();
    let named = authority
        .and_then(|authority| authority.rsplit_once(':'))
        .and_then(|(_, port)| port.parse::<u16>().ok())
        .unwrap_or(443);
    if named != port {
        log::warn!(
            "the API server is told to call port {named}, and the operator listens on {port}; \
             unless something forwards it, set --validating-webhook-listen-port={named}"
        );
    }
}
