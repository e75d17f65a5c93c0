//! From settings to what the webhook threads are asked to do, and their start. Runs on the main thread; makes no call.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Operator, parts};
use crate::hook::Registry;
use crate::kube::Client;
use crate::operation::Perform;
use crate::serve::webhook::{Purpose, Webhook};
use crate::serve::{Listen, webhook};
use crate::settings::{self, Settings};
use crate::threads;

/// The servers that these hooks need.
pub(super) fn purposes(registry: &Registry) -> Vec<Purpose> {
    let converts = |hook: &crate::hook::Hook| !hook.config.conversions.is_empty();
    let admission = registry.is_reviewing().then_some(Purpose::Admission);
    let conversion = registry
        .hooks
        .iter()
        .any(converts)
        .then_some(Purpose::Conversion);
    admission.into_iter().chain(conversion).collect()
}

impl Operator {
    /// Starts the threads that can serve by now. Reviews are answered only when every hook has seen the objects it asked for;
    /// conversions as soon as the API server is reached, because those objects may be ones that have to be converted first.
    pub(super) fn start_serving(&mut self) -> Result<(), String> {
        let Some(registry) = self.registry.clone() else {
            return Ok(());
        };
        for purpose in purposes(&registry) {
            let is_time = match purpose {
                Purpose::Admission => self.is_connected && self.is_synchronized,
                Purpose::Conversion => self.is_connected,
            };
            if is_time && !self.webhooks.contains(&purpose.thread()) {
                self.start_webhook(purpose, &registry)?;
            }
        }
        Ok(())
    }

    fn start_webhook(&mut self, purpose: Purpose, registry: &Arc<Registry>) -> Result<(), String> {
        let Some(monitors) = self.monitors.clone() else {
            return Ok(());
        };
        let overlays = monitors.clone();
        let paces = self
            .paces
            .get_or_insert_with(|| webhook::Paces::new(registry));
        let parts = webhook::Parts {
            client: self.client.clone(),
            registry: Arc::clone(registry),
            paces: paces.clone(),
            executor: self.executor.clone(),
            readiness: Arc::clone(&self.readiness),
            metrics: Arc::clone(&self.metrics),
            snapshots: Arc::new(move |id| monitors.snapshot(id)),
            overlaid: Arc::new(move |id, proposal| overlays.overlaid(id, proposal)),
            operations: Arc::clone(&self.patcher) as Arc<dyn Perform>,
            events: self.events.clone(),
        };
        let plan = plan(&self.settings, &self.client, purpose)?;
        let (webhook, registration) = match purpose {
            Purpose::Admission => {
                let announcement = announcement(&self.settings, plan.address.clone());
                Webhook::admission(parts, plan, announcement)?
            }
            Purpose::Conversion => Webhook::conversion(parts, plan)?,
        };
        let stopped = self.stopped.clone();
        let name = purpose.thread();
        threads::spawn(name, &self.events, move || {
            webhook.run(registration, &stopped);
        })
        .map_err(|error| format!("start the {name} thread: {error}"))?;
        self.webhooks.push(name);
        Ok(())
    }
}

fn announcement(settings: &Settings, address: webhook::Address) -> webhook::Announcement {
    webhook::Announcement {
        configuration_name: settings.registration.configuration_name.clone(),
        address,
        failure_policy: match settings.registration.failure_policy {
            settings::FailurePolicy::Fail => "Fail",
            settings::FailurePolicy::Ignore => "Ignore",
        },
        validation_path: settings.registration.validation_path.clone(),
    }
}

/// What the command line says about one of the servers, with the defaults that depend on the machine and the cluster.
fn plan(settings: &Settings, client: &Client, purpose: Purpose) -> Result<webhook::Plan, String> {
    let (asked, defaults) = match purpose {
        Purpose::Admission => (&settings.admission, settings::ADMISSION_FILES),
        Purpose::Conversion => (&settings.conversion, settings::CONVERSION_FILES),
    };
    let namespace = settings
        .namespace
        .as_deref()
        .or(client.namespace())
        .unwrap_or("default");
    let address = match &asked.url {
        Some(url) => {
            warn_of_port(url, asked.listen.port, purpose);
            webhook::Address::Url(url.clone())
        }
        None => webhook::Address::Service {
            namespace: namespace.to_owned(),
            name: asked.service_name.clone(),
            port: asked.service_port,
        },
    };
    let flag = format!("{}-listen-address", purpose.flags());
    Ok(webhook::Plan {
        source: certificate_source(asked, defaults, namespace, &address),
        address,
        listen: Listen {
            name: purpose.name(),
            address: parts::address(&asked.listen, &flag)?,
            port_flag: purpose.port_flag(),
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
    asked: &settings::Webhook,
    defaults: settings::DefaultFiles,
    namespace: &str,
    address: &webhook::Address,
) -> webhook::Source {
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
            names: address.certificate_names(),
            lifetime: asked.certificate_lifetime,
        },
        client_authorities,
    }
}

/// Behind a proxy the two ports may differ; without one, every call would fail.
fn warn_of_port(url: &str, port: u16, purpose: Purpose) {
    let authority = url.trim_start_matches("https://").split('/').next();
    let named = authority
        .and_then(|authority| authority.rsplit_once(':'))
        .and_then(|(_, port)| port.parse::<u16>().ok())
        .unwrap_or(443);
    if named != port {
        log::warn!(
            "the API server is told to call port {named}, and the operator listens on {port}; \
             unless something forwards it, set {}={named}",
            purpose.port_flag()
        );
    }
}
