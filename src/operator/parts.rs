//! From settings to the parts that the operator is made of: hooks directory, executor, client, addresses. Every error here is one
//! that waiting does not mend, so it names the thing and the remedy.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::executor::{Capture, Executor, ExecutorOptions, Inherit};
use crate::kube::{self, Client, ClusterConfig, ExecRunner, Limits, Observation, Wanted};
use crate::message::Event;
use crate::metrics::{EVENT_SECONDS, Metrics};
use crate::queue;
use crate::settings::{self, Settings};

/// LIMIT: a kubeconfig's exec plugin may have to talk to an identity provider.
const EXEC_PLUGIN_TIME: Duration = Duration::from_secs(60);
const EXEC_PLUGIN_OUTPUT: usize = 1024 * 1024;
/// Between TERM and KILL for the process group of a hook whose time is over.
pub(super) const KILL_GRACE: Duration = Duration::from_secs(2);

/// The hooks directory as an absolute path. An empty directory is a mistake in every case that was seen; one that holds other
/// files, such as a README, is taken as meant.
pub(super) fn hooks_directory(path: &Path) -> Result<PathBuf, String> {
    if path.as_os_str().is_empty() {
        return Err("hooks directory: path is required but not set; name it with --hooks-dir or SHELL_OPERATOR_HOOKS_DIR".to_owned());
    }
    let absolute = std::path::absolute(path)
        .map_err(|error| format!("hooks directory: '{}': {error}", path.display()))?;
    let shown = absolute.display();
    let mut entries = match std::fs::read_dir(&absolute) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(format!(
                "hooks directory: path '{shown}' not exist; create it or name another with --hooks-dir"
            ));
        }
        Err(error) => {
            return Err(format!(
                "hooks directory: path '{shown}' cannot be read: {error}; name a readable directory with --hooks-dir"
            ));
        }
    };
    if entries.next().is_none() {
        return Err(format!(
            "hooks directory: '{shown}' is empty; put executable hooks into it or name another with --hooks-dir"
        ));
    }
    Ok(absolute)
}

pub(crate) fn executor(settings: &Settings, events: &Sender<Event>) -> Result<Executor, String> {
    let options = ExecutorOptions {
        tmp_dir: settings.tmp_dir.clone(),
        keep_tmp_files: settings.debug.keep_tmp_files,
        inherit: inherited(&settings.hook_variables),
        kill_grace: KILL_GRACE,
        adopt_orphans: true,
    };
    Executor::start(options, events).map_err(|error| error.to_string())
}

/// T3: hooks get all of our environment, as in the original, unless it is said which part.
fn inherited(names: &[String]) -> Inherit {
    if names.is_empty() {
        return Inherit::All;
    }
    let given = names
        .iter()
        .filter_map(|name| Some((name.into(), settings::variable(name)?.into())));
    Inherit::Only(given.collect())
}

/// The client; makes no call yet.
pub(crate) fn connect(settings: &Settings, executor: &Executor) -> Result<Client, String> {
    let limits = Limits {
        qps: settings.kube.qps,
        burst: settings.kube.burst,
        deadline: kube::DEADLINE,
    };
    connect_with(settings, executor, limits)
}

/// The client for what hooks want changed. It has connections of its own, because at the stop it is needed longer than the other.
pub(super) fn connect_patcher(settings: &Settings, executor: &Executor) -> Result<Client, String> {
    let limits = Limits {
        qps: settings.object_patcher.qps,
        burst: settings.object_patcher.burst,
        deadline: settings.object_patcher.timeout,
    };
    connect_with(settings, executor, limits)
}

fn connect_with(
    settings: &Settings,
    executor: &Executor,
    limits: Limits,
) -> Result<Client, String> {
    let kube = &settings.kube;
    let wanted = Wanted {
        kube_config: kube.config.as_deref(),
        context: kube.context.as_deref(),
        server: kube.server.as_deref(),
        service_account_dir: &kube.service_account_dir,
    };
    let config =
        ClusterConfig::load(&wanted, &settings::variable).map_err(|error| error.to_string())?;
    Client::new(config, limits, exec_runner(executor)).map_err(|error| error.to_string())
}

/// The registry of metrics.
pub(super) fn metrics(settings: &Settings) -> Arc<Metrics> {
    let metrics =
        Metrics::new(&settings.metrics_prefix).keeping_ungrouped(settings.keep_ungrouped_metrics);
    Arc::new(if settings.queue_actions_metrics {
        metrics
    } else {
        metrics.without(queue::ACTION_METRIC)
    })
}

/// Counts every call to the API server under the names of the original.
pub(super) fn observed(client: &Client, metrics: &Arc<Metrics>) -> Client {
    observed_as("main", client, metrics)
}

/// The same for a client with another purpose, which the label `component` tells; the original has `object_patcher`.
pub(super) fn observed_as(
    component: &'static str,
    client: &Client,
    metrics: &Arc<Metrics>,
) -> Client {
    let component = ("component", component);
    let metrics = Arc::clone(metrics);
    client.with_observer(Arc::new(move |call: &Observation<'_>| {
        let url = template(call.path);
        let labels = [component, ("verb", call.method), ("url", url.as_str())];
        let prefix = "kubernetes_client_";
        metrics.observe_within(
            EVENT_SECONDS,
            &format!("{prefix}request_latency_seconds"),
            &labels,
            call.latency.as_secs_f64(),
        );
        let [_, without_component @ ..] = labels;
        metrics.observe_within(
            EVENT_SECONDS,
            &format!("{prefix}rate_limiter_latency_seconds"),
            &without_component,
            call.waited.as_secs_f64(),
        );
        let code = call
            .code
            .map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let labels = [
            component,
            ("code", code.as_str()),
            ("method", call.method),
            ("host", call.host),
        ];
        metrics.add(&format!("{prefix}request_result_total"), &labels, 1.0);
    }))
}

/// The subresources that a change can go to; custom resources have the first two.
const KNOWN_SUBRESOURCES: [&str; 7] = [
    "status",
    "scale",
    "approval",
    "ephemeralcontainers",
    "eviction",
    "finalize",
    "resize",
];

/// A path without the names in it, so that there are as many series as kinds and not as many as objects.
fn template(path: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    let version = if path.starts_with("/apis/") { 3 } else { 2 };
    let mut resource = version + 1;
    if parts.get(resource) == Some(&"namespaces") && parts.len() > resource + 2 {
        if let Some(namespace) = parts.get_mut(resource + 1) {
            *namespace = "{namespace}";
        }
        resource += 2;
    }
    if let Some(name) = parts.get_mut(resource + 1) {
        *name = "{name}";
    }
    // A hook names subresources, and may name a new one every time.
    let subresource = resource + 2;
    parts.truncate(subresource + 1);
    if let Some(name) = parts.get_mut(subresource)
        && !KNOWN_SUBRESOURCES.contains(name)
    {
        *name = "{subresource}";
    }
    parts.join("/")
}

/// Runs a kubeconfig's exec plugin: processes are the executor's business, not the client's.
fn exec_runner(executor: &Executor) -> ExecRunner {
    let executor = executor.clone();
    Arc::new(move |command| {
        let args: Vec<&str> = command.args.iter().map(String::as_str).collect();
        let captured = executor
            .capture(&Capture {
                program: Path::new(&command.command),
                args: &args,
                env: &command.env,
                cwd: None,
                limit: EXEC_PLUGIN_TIME,
                max_output: EXEC_PLUGIN_OUTPUT,
            })
            .map_err(|error| error.to_string())?;
        if captured.exit.is_success() {
            Ok(captured.stdout)
        } else {
            Err(format!("{}: {}", captured.exit, captured.stderr))
        }
    })
}

/// The address to listen on; host names are looked up.
pub(super) fn address(listen: &settings::Listen, flag: &str) -> Result<SocketAddr, String> {
    let asked = (listen.address.as_str(), listen.port);
    asked
        .to_socket_addrs()
        .ok()
        .and_then(|mut found| found.next())
        .ok_or_else(|| {
            format!(
                "'{}' is no address of this machine; give an IP address with {flag}",
                listen.address
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_out_of_the_label() {
        let cases = [
            ("/version", "/version"),
            ("/api/v1/pods", "/api/v1/pods"),
            ("/api/v1/namespaces/n", "/api/v1/namespaces/{name}"),
            (
                "/api/v1/namespaces/n/secrets/s",
                "/api/v1/namespaces/{namespace}/secrets/{name}",
            ),
            (
                "/apis/apps/v1/namespaces/n/deployments/d/status",
                "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/status",
            ),
            (
                "/apis/apps/v1/namespaces/n/deployments/d/nonsense-17",
                "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/{subresource}",
            ),
            (
                "/api/v1/namespaces/n/pods/p/status/more/17",
                "/api/v1/namespaces/{namespace}/pods/{name}/status",
            ),
            ("/api/v1/nodes/n/17", "/api/v1/nodes/{name}/{subresource}"),
        ];
        for (path, expected) in cases {
            assert_eq!(template(path), expected);
        }
    }
}
