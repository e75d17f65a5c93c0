//! Flags and environment -> `Settings`. The only reader of the process's arguments and, beside `kube/config.rs`, of its environment.
//!
//! ```text
//! arguments -> command line (flags taken out by the table, words read by argh) -> Command
//!                  |                                                                 ^
//!                  +-> flag > non-empty variable > default, one `set` per flag ------+
//! ```
//!
//! Runs once, on the main thread, before anything else. Nothing here does I/O; values are checked for their form only, whether a
//! path exists is for the room that opens it. What a flag is called, which variable stands for it and what its default is, stands
//! in one place: the tables of `flag.rs` and `webhook.rs`.

mod argument;
mod command;
mod error;
mod flag;
mod help;
mod look;
mod report;
mod review;
mod testing;
#[cfg(test)]
mod tests;
mod value;
mod webhook;

use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;

pub(crate) use command::{Command, arguments, decides, parse_process, variable};
pub(crate) use flag::DEFAULT_DEBUG_SOCKET;
pub(crate) use help::{version, version_text};
pub(crate) use look::{Form, Look, Looking};
pub(crate) use report::ReportForm;
pub(crate) use review::Reviewing;
pub(crate) use testing::Testing;

/// Where the original looks for the admission certificate when nothing names one. A file lying there is used; if there is none,
/// the operator makes its own certificate.
pub(crate) const ADMISSION_FILES: DefaultFiles = DefaultFiles {
    server_cert: "/validating-certs/tls.crt",
    server_key: "/validating-certs/tls.key",
    ca: "/validating-certs/ca.crt",
};

/// The same for conversion.
pub(crate) const CONVERSION_FILES: DefaultFiles = DefaultFiles {
    server_cert: "/conversion-certs/tls.crt",
    server_key: "/conversion-certs/tls.key",
    ca: "/conversion-certs/ca.crt",
};

/// The three files of a serving certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DefaultFiles {
    pub(crate) server_cert: &'static str,
    pub(crate) server_key: &'static str,
    pub(crate) ca: &'static str,
}

/// Everything the operator can be told from outside. `Default` is empty, not sensible: the defaults stand in the table of flags.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    /// Searched for hooks. May be relative.
    pub(crate) hooks_dir: PathBuf,
    pub(crate) tmp_dir: PathBuf,
    /// Metrics and probes.
    pub(crate) listen: Listen,
    /// Put before the names of the operator's own metrics.
    pub(crate) metrics_prefix: String,
    /// Metrics of hooks without a group stay and add up.
    pub(crate) keep_ungrouped_metrics: bool,
    /// Time what queues do with their tasks.
    pub(crate) queue_actions_metrics: bool,
    /// The namespace of the operator's Service, for webhooks.
    pub(crate) namespace: Option<String>,
    /// Variables that hooks inherit; empty for all.
    pub(crate) hook_variables: Vec<String>,
    /// Start with the good hooks when some are broken.
    pub(crate) skip_broken_hooks: bool,
    /// What happens to hooks whose own tests fail.
    pub(crate) test_hooks: TestHooks,
    pub(crate) stop: Stop,
    pub(crate) kube: Kube,
    pub(crate) object_patcher: ObjectPatcher,
    pub(crate) log: Log,
    pub(crate) registration: Registration,
    pub(crate) admission: Webhook,
    pub(crate) conversion: Webhook,
    pub(crate) debug: Debug,
    /// What was given and has no effect, a sentence each; to be logged once the logger runs.
    pub(crate) warnings: Vec<String>,
}

/// Where a server listens. The address is an IP address without brackets or a host name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Listen {
    pub(crate) address: String,
    /// 0 lets the system choose.
    pub(crate) port: u16,
}

/// How long stopping may take.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stop {
    /// Reviews are still served for this long after a stop was asked for, while endpoints are taken out of the Service.
    pub(crate) drain_delay: Duration,
    /// A running hook may go on for this long before its process group is ended.
    pub(crate) grace_period: Duration,
}

/// How the API server is reached.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kube {
    /// A kubeconfig file; without it `KUBECONFIG`, `~/.kube/config` and the service account are tried, in this order.
    pub(crate) config: Option<PathBuf>,
    pub(crate) context: Option<String>,
    pub(crate) server: Option<String>,
    /// Calls per second; infinite for no limit.
    pub(crate) qps: f64,
    pub(crate) burst: u32,
    /// Where token, CA and namespace of the service account are mounted.
    pub(crate) service_account_dir: PathBuf,
}

/// Limits of the second client, which carries out what hooks ask for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObjectPatcher {
    /// Calls per second; infinite for no limit.
    pub(crate) qps: f64,
    pub(crate) burst: u32,
    pub(crate) timeout: Duration,
}

/// What the log shows and how.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Log {
    pub(crate) level: LevelFilter,
    pub(crate) format: LogFormat,
    /// Leaves the time out of text lines; JSON lines always carry it, as in the original.
    pub(crate) no_time: bool,
    /// Hook output is collected into whole JSON values, arrays too.
    pub(crate) proxy_hook_json: bool,
}

impl Default for Log {
    fn default() -> Log {
        Log {
            level: LevelFilter::Off,
            format: LogFormat::Json,
            no_time: false,
            proxy_hook_json: false,
        }
    }
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Json,
    Text,
}

/// The webhook configuration objects kept in the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Registration {
    /// The objects are called `<configuration_name>-hooks`.
    pub(crate) configuration_name: String,
    /// For hooks that do not set `failurePolicy`.
    pub(crate) failure_policy: FailurePolicy,
    /// The path of reviews that come from kubernetes bindings.
    pub(crate) validation_path: String,
}

/// Whether `start` runs the tests that lie beside hooks, and what it makes of failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TestHooks {
    #[default]
    Off,
    /// They are told in the log.
    Warn,
    /// The hook counts as broken.
    Fail,
}

/// What the API server does with a request when the webhook cannot be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FailurePolicy {
    #[default]
    Fail,
    Ignore,
}

/// One HTTPS server for the API server and how it is announced. The same shape serves admission and conversion.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Webhook {
    pub(crate) service_name: String,
    pub(crate) service_port: u16,
    /// Announced instead of the Service, without a slash at the end.
    pub(crate) url: Option<String>,
    /// Set only when named explicitly; see `ADMISSION_FILES` and `CONVERSION_FILES` for what is tried otherwise.
    pub(crate) server_cert: Option<PathBuf>,
    pub(crate) server_key: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
    /// Bundles of CAs; when there is one, callers must show a certificate signed by one of them.
    pub(crate) client_cas: Vec<PathBuf>,
    /// Names of which the client certificate must bear one; empty for any.
    pub(crate) client_names: Vec<String>,
    /// Holds a bearer token or `user:password` that callers must send.
    pub(crate) client_auth_file: Option<PathBuf>,
    /// How long a certificate lives that the operator makes itself.
    pub(crate) certificate_lifetime: Duration,
    /// The serving certificate is taken from this Secret.
    pub(crate) tls_secret: Option<SecretName>,
    pub(crate) listen: Listen,
    /// Hook processes that answer this server's requests at the same time, at most.
    pub(crate) max_hooks: u16,
}

/// A Secret; without a namespace, in the operator's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretName {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

/// Ways to look inside.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Debug {
    pub(crate) unix_socket: PathBuf,
    /// `host:port` of the debug server over TCP, which asks for no credentials.
    pub(crate) http_addr: Option<String>,
    pub(crate) keep_tmp_files: bool,
    /// Logs every call to the API server, without bodies.
    pub(crate) kubernetes_api: bool,
}
