//! The table of flags: name, environment variable, default, help, and the field that is set.
//!
//! Pure. Adding a flag is adding an entry here (or in `webhook.rs`, for what both webhook servers have): command line,
//! environment, help and the flags reference all follow from it.

use super::value::{self, Parsed};
use super::{Settings, webhook};

/// One flag of `start`, and of the other commands whose topics include it.
pub(super) struct Flag {
    /// Without the dashes.
    pub(super) name: &'static str,
    /// Older spellings, still accepted.
    pub(super) other_names: &'static [&'static str],
    /// The variable that stands for the flag, then its older spellings.
    pub(super) variables: &'static [&'static str],
    pub(super) takes: Takes,
    /// As it would be written; empty for none.
    pub(super) default: &'static str,
    pub(super) help: &'static str,
    pub(super) set: fn(&mut Settings, &str) -> Parsed<()>,
}

/// What follows the name of a flag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Nothing, or `=true` and `=false`.
    Switch,
    /// One value; when it is given again, the last one counts.
    One(&'static str),
    /// A value each time it is given; in the environment, a list separated by commas.
    Many(&'static str),
}

/// Under which heading a flag is explained, and so which commands have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Hooks,
    Cluster,
    Log,
    Serving,
    Admission,
    Conversion,
    Inside,
    Debugging,
}

impl Topic {
    pub(super) const ALL: [Topic; 8] = [
        Topic::Hooks,
        Topic::Cluster,
        Topic::Log,
        Topic::Serving,
        Topic::Admission,
        Topic::Conversion,
        Topic::Inside,
        Topic::Debugging,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Topic::Hooks => "Hooks",
            Topic::Cluster => "Reaching the API server",
            Topic::Log => "Log",
            Topic::Serving => "Metrics, probes and stopping",
            Topic::Admission => "Validating and mutating webhooks",
            Topic::Conversion => "Conversion webhooks",
            Topic::Inside => "Looking inside",
            Topic::Debugging => "Debugging",
        }
    }
}

/// Something of earlier releases that is accepted, so that old manifests start, and does nothing.
pub(super) struct Ignored {
    pub(super) name: Option<&'static str>,
    pub(super) variable: Option<&'static str>,
    pub(super) reason: &'static str,
}

pub(super) const IGNORED: &[Ignored] = &[
    Ignored {
        name: Some("jq-library-path"),
        variable: Some("JQ_LIBRARY_PATH"),
        reason: "jq modules cannot be loaded, write the definitions into the jqFilter",
    },
    Ignored {
        name: None,
        variable: Some("JQ_EXEC"),
        reason: "jq filters are always run inside the operator",
    },
    Ignored {
        name: Some("kube-client-timeout"),
        variable: Some("KUBE_CLIENT_TIMEOUT"),
        reason: "every call has its own limit, --object-patcher-kube-client-timeout sets the one for changes",
    },
    Ignored {
        name: None,
        variable: Some("TRACING_OTLP_ENDPOINT"),
        reason: "traces are not exported",
    },
];

/// Every flag with its topic, in the order in which they are explained.
pub(super) fn all() -> impl Iterator<Item = (Topic, &'static Flag)> {
    Topic::ALL
        .into_iter()
        .flat_map(|topic| of_topic(topic).iter().map(move |flag| (topic, flag)))
}

pub(super) fn of_topic(topic: Topic) -> &'static [Flag] {
    match topic {
        Topic::Hooks => HOOKS,
        Topic::Cluster => CLUSTER,
        Topic::Log => LOG,
        Topic::Serving => SERVING,
        Topic::Admission => webhook::ADMISSION,
        Topic::Conversion => webhook::CONVERSION,
        Topic::Inside => INSIDE,
        Topic::Debugging => DEBUGGING,
    }
}

/// Stores what was parsed.
pub(super) fn put<T>(field: &mut T, parsed: Parsed<T>) -> Parsed<()> {
    *field = parsed?;
    Ok(())
}

const HOOKS: &[Flag] = &[
    Flag {
        name: "hooks-dir",
        other_names: &["working-dir"],
        variables: &["SHELL_OPERATOR_HOOKS_DIR", "SHELL_OPERATOR_WORKING_DIR"],
        takes: Takes::One("DIR"),
        default: "hooks",
        help: "directory that is searched for hooks: executable files, at any depth",
        set: |s, v| put(&mut s.hooks_dir, value::path(v)),
    },
    Flag {
        name: "tmp-dir",
        other_names: &[],
        variables: &["SHELL_OPERATOR_TMP_DIR"],
        takes: Takes::One("DIR"),
        default: "/tmp/shell-operator",
        help: "directory for the files that hooks read and write; made if it is missing",
        set: |s, v| put(&mut s.tmp_dir, value::path(v)),
    },
    Flag {
        name: "hook-variable",
        other_names: &[],
        variables: &["SHELL_OPERATOR_HOOK_VARIABLES"],
        takes: Takes::Many("NAME"),
        default: "",
        help: "variable of the operator's environment that hooks get; all of them when none is named",
        set: |s, v| value::variable(v).map(|name| s.hook_variables.push(name)),
    },
    Flag {
        name: "skip-broken-hooks",
        other_names: &[],
        variables: &["SHELL_OPERATOR_SKIP_BROKEN_HOOKS"],
        takes: Takes::Switch,
        default: "false",
        help: "start with the good hooks when some have a bad --config, instead of ending",
        set: |s, v| put(&mut s.skip_broken_hooks, value::switch(v)),
    },
    Flag {
        name: "test-hooks",
        other_names: &["at-startup"],
        variables: &["SHELL_OPERATOR_TEST_HOOKS"],
        takes: Takes::One("WHEN"),
        default: "off",
        help: "run the tests beside hooks before they are used: off, warn (in the log) or fail (the hook is broken)",
        set: |s, v| put(&mut s.test_hooks, value::test_hooks(v)),
    },
];

const CLUSTER: &[Flag] = &[
    Flag {
        name: "kube-config",
        other_names: &[],
        variables: &["KUBE_CONFIG", "SHELL_OPERATOR_KUBE_CONFIG"],
        takes: Takes::One("FILE"),
        default: "",
        help: "kubeconfig file; without it KUBECONFIG, ~/.kube/config, then the service account",
        set: |s, v| put(&mut s.kube.config, value::optional(v, value::path)),
    },
    Flag {
        name: "kube-context",
        other_names: &[],
        variables: &["KUBE_CONTEXT", "SHELL_OPERATOR_KUBE_CONTEXT"],
        takes: Takes::One("NAME"),
        default: "",
        help: "context of the kubeconfig file; without it the current one",
        set: |s, v| {
            put(
                &mut s.kube.context,
                value::optional(v, |v| Ok(v.to_owned())),
            )
        },
    },
    Flag {
        name: "kube-server",
        other_names: &[],
        variables: &["KUBE_SERVER"],
        takes: Takes::One("URL"),
        default: "",
        help: "address of the API server, in place of the one that the configuration names",
        set: |s, v| put(&mut s.kube.server, value::optional(v, value::name)),
    },
    Flag {
        name: "kube-client-qps",
        other_names: &[],
        variables: &["KUBE_CLIENT_QPS"],
        takes: Takes::One("NUMBER"),
        default: "5",
        help: "calls per second to the API server; negative for no limit",
        set: |s, v| put(&mut s.kube.qps, value::rate(v, DEFAULT_QPS)),
    },
    Flag {
        name: "kube-client-burst",
        other_names: &[],
        variables: &["KUBE_CLIENT_BURST"],
        takes: Takes::One("NUMBER"),
        default: "10",
        help: "calls that may be made at once before the limit per second holds",
        set: |s, v| put(&mut s.kube.burst, value::burst(v, DEFAULT_BURST)),
    },
    Flag {
        name: "object-patcher-kube-client-qps",
        other_names: &[],
        variables: &["OBJECT_PATCHER_KUBE_CLIENT_QPS"],
        takes: Takes::One("NUMBER"),
        default: "5",
        help: "the same limit for the changes that hooks ask for",
        set: |s, v| put(&mut s.object_patcher.qps, value::rate(v, DEFAULT_QPS)),
    },
    Flag {
        name: "object-patcher-kube-client-burst",
        other_names: &[],
        variables: &["OBJECT_PATCHER_KUBE_CLIENT_BURST"],
        takes: Takes::One("NUMBER"),
        default: "10",
        help: "the same burst for the changes that hooks ask for",
        set: |s, v| put(&mut s.object_patcher.burst, value::burst(v, DEFAULT_BURST)),
    },
    Flag {
        name: "object-patcher-kube-client-timeout",
        other_names: &[],
        variables: &["OBJECT_PATCHER_KUBE_CLIENT_TIMEOUT"],
        takes: Takes::One("DURATION"),
        default: "10s",
        help: "how long one of these changes may take",
        set: |s, v| put(&mut s.object_patcher.timeout, value::time(v)),
    },
    Flag {
        name: "service-account-dir",
        other_names: &[],
        variables: &["SHELL_OPERATOR_SERVICE_ACCOUNT_DIR"],
        takes: Takes::One("DIR"),
        default: "/var/run/secrets/kubernetes.io/serviceaccount",
        help: "where token, ca.crt and namespace of the service account are mounted",
        set: |s, v| put(&mut s.kube.service_account_dir, value::path(v)),
    },
];

/// client-go's defaults, which stand behind an explicit 0.
const DEFAULT_QPS: f64 = 5.0;
const DEFAULT_BURST: u32 = 10;

const LOG: &[Flag] = &[
    Flag {
        name: "log-level",
        other_names: &[],
        variables: &["LOG_LEVEL"],
        takes: Takes::One("LEVEL"),
        default: "info",
        help: "trace, debug, info, warn, error or fatal (same as error)",
        set: |s, v| put(&mut s.log.level, value::level(v)),
    },
    Flag {
        name: "log-type",
        other_names: &[],
        variables: &["LOG_TYPE"],
        takes: Takes::One("TYPE"),
        default: "json",
        help: "json for machines, text for people (in colour on a terminal)",
        set: |s, v| put(&mut s.log.format, value::log_format(v)),
    },
    Flag {
        name: "log-no-time",
        other_names: &[],
        variables: &["LOG_NO_TIME"],
        takes: Takes::Switch,
        default: "false",
        help: "leave the time out of text lines; JSON lines always have it",
        set: |s, v| put(&mut s.log.no_time, value::switch(v)),
    },
    Flag {
        name: "log-proxy-hook-json",
        other_names: &[],
        variables: &["LOG_PROXY_HOOK_JSON"],
        takes: Takes::Switch,
        default: "false",
        help: "treat hook output as JSON values, arrays over several lines too",
        set: |s, v| put(&mut s.log.proxy_hook_json, value::switch(v)),
    },
];

const SERVING: &[Flag] = &[
    Flag {
        name: "listen-address",
        other_names: &[],
        variables: &["SHELL_OPERATOR_LISTEN_ADDRESS"],
        takes: Takes::One("ADDRESS"),
        default: "0.0.0.0",
        help: "address of the plain HTTP server for metrics and probes",
        set: |s, v| put(&mut s.listen.address, value::address(v)),
    },
    Flag {
        name: "listen-port",
        other_names: &[],
        variables: &["SHELL_OPERATOR_LISTEN_PORT"],
        takes: Takes::One("PORT"),
        default: "9115",
        help: "port of that server",
        set: |s, v| put(&mut s.listen.port, value::port(v)),
    },
    Flag {
        name: "prometheus-metrics-prefix",
        other_names: &[],
        variables: &["SHELL_OPERATOR_PROMETHEUS_METRICS_PREFIX"],
        takes: Takes::One("PREFIX"),
        default: "shell_operator_",
        help: "what the names of the operator's own metrics begin with",
        set: |s, v| put(&mut s.metrics_prefix, value::metrics_prefix(v)),
    },
    Flag {
        name: "keep-ungrouped-metrics",
        other_names: &[],
        variables: &["SHELL_OPERATOR_KEEP_UNGROUPED_METRICS"],
        takes: Takes::Switch,
        default: "false",
        help: "let metrics of hooks without a group stay and add up, as before v1.9.0 of the original",
        set: |s, v| put(&mut s.keep_ungrouped_metrics, value::switch(v)),
    },
    Flag {
        name: "queue-actions-metrics",
        other_names: &[],
        variables: &["QUEUE_ACTIONS_METRICS"],
        takes: Takes::Switch,
        default: "true",
        help: "time what queues do with their lists of tasks",
        set: |s, v| put(&mut s.queue_actions_metrics, value::switch(v)),
    },
    // Both together stay below the 30 s that a Pod has by default between TERM and KILL.
    Flag {
        name: "stop-drain-delay",
        other_names: &[],
        variables: &["SHELL_OPERATOR_STOP_DRAIN_DELAY"],
        takes: Takes::One("DURATION"),
        default: "5s",
        help: "after a stop was asked for, how long webhooks are still served",
        set: |s, v| put(&mut s.stop.drain_delay, value::time(v)),
    },
    Flag {
        name: "stop-grace-period",
        other_names: &[],
        variables: &["SHELL_OPERATOR_STOP_GRACE_PERIOD"],
        takes: Takes::One("DURATION"),
        default: "20s",
        help: "how long a running hook may then go on before it is ended",
        set: |s, v| put(&mut s.stop.grace_period, value::time(v)),
    },
];

/// Where the original puts it.
pub(crate) const DEFAULT_DEBUG_SOCKET: &str = "/var/run/shell-operator/debug.socket";

const INSIDE: &[Flag] = &[Flag {
    name: "debug-unix-socket",
    other_names: &[],
    variables: &["DEBUG_UNIX_SOCKET"],
    takes: Takes::One("PATH"),
    default: DEFAULT_DEBUG_SOCKET,
    help: "unix socket that the commands queue, hook, config and raw ask",
    set: |s, v| put(&mut s.debug.unix_socket, value::path(v)),
}];

const DEBUGGING: &[Flag] = &[
    Flag {
        name: "debug-http-addr",
        other_names: &[],
        variables: &["DEBUG_HTTP_SERVER_ADDR"],
        takes: Takes::One("ADDRESS"),
        default: "",
        help: "address and port of the debug server over TCP; it asks for no credentials",
        set: |s, v| {
            put(
                &mut s.debug.http_addr,
                value::optional(v, value::socket_address),
            )
        },
    },
    Flag {
        name: "debug-keep-tmp-files",
        other_names: &[],
        variables: &["DEBUG_KEEP_TMP_FILES"],
        takes: Takes::Switch,
        default: "false",
        help: "do not remove the files of a hook's run",
        set: |s, v| put(&mut s.debug.keep_tmp_files, value::switch(v)),
    },
    Flag {
        name: "debug-kubernetes-api",
        other_names: &[],
        variables: &["DEBUG_KUBERNETES_API"],
        takes: Takes::Switch,
        default: "false",
        help: "log every call to the API server, without bodies",
        set: |s, v| put(&mut s.debug.kubernetes_api, value::switch(v)),
    },
];
