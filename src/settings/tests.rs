//! Every flag and variable of the table sets its field; precedence; forms of writing a flag; words of the errors.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use log::LevelFilter;

use super::command::parse;
use super::error::UsageError;
use super::flag::{self, IGNORED, Takes, Topic};
use super::help::reference;
use super::{Command, FailurePolicy, LogFormat, SecretName, Settings, value, version_text};

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Command, UsageError> {
    let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
    parse(&arguments, &|name| {
        variables
            .iter()
            .find(|(variable, _)| *variable == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Settings {
    match run(arguments, variables) {
        Ok(Command::Start(settings)) => *settings,
        other => panic!("{arguments:?} {variables:?}: {other:?}"),
    }
}

fn error(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let text = run(arguments, variables).unwrap_err().to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

fn help(arguments: &[&str]) -> String {
    match run(arguments, &[]) {
        Ok(Command::Help(text)) => text,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

type Check = fn(&Settings) -> bool;

/// Flag, a value that is not its default, and where the value must arrive.
#[rustfmt::skip]
const FIELDS: &[(&str, &str, Check)] = &[
    ("hooks-dir", "/h", |s| s.hooks_dir == Path::new("/h")),
    ("tmp-dir", "/t", |s| s.tmp_dir == Path::new("/t")),
    ("skip-broken-hooks", "true", |s| s.skip_broken_hooks),
    ("kube-config", "/k", |s| s.kube.config == Some(PathBuf::from("/k"))),
    ("kube-context", "a b", |s| s.kube.context.as_deref() == Some("a b")),
    ("kube-server", "https://s", |s| s.kube.server.as_deref() == Some("https://s")),
    ("kube-client-qps", "7.5", |s| s.kube.qps.to_bits() == 7.5_f64.to_bits()),
    ("kube-client-burst", "8", |s| s.kube.burst == 8),
    ("object-patcher-kube-client-qps", "-1", |s| s.object_patcher.qps == f64::INFINITY),
    ("object-patcher-kube-client-burst", "9", |s| s.object_patcher.burst == 9),
    ("object-patcher-kube-client-timeout", "1m", |s| s.object_patcher.timeout == Duration::from_secs(60)),
    ("service-account-dir", "/sa", |s| s.kube.service_account_dir == Path::new("/sa")),
    ("hook-variable", "HOME", |s| s.hook_variables == ["HOME"]),
    ("log-level", "Debug", |s| s.log.level == LevelFilter::Debug),
    ("log-type", "text", |s| s.log.format == LogFormat::Text),
    ("log-no-time", "true", |s| s.log.no_time),
    ("log-proxy-hook-json", "true", |s| s.log.proxy_hook_json),
    ("listen-address", "[::1]", |s| s.listen.address == "::1"),
    ("listen-port", "1", |s| s.listen.port == 1),
    ("prometheus-metrics-prefix", "p_", |s| s.metrics_prefix == "p_"),
    ("keep-ungrouped-metrics", "true", |s| s.keep_ungrouped_metrics),
    ("queue-actions-metrics", "no", |s| !s.queue_actions_metrics),
    ("stop-drain-delay", "0", |s| s.stop.drain_delay == Duration::ZERO),
    ("stop-grace-period", "1s", |s| s.stop.grace_period == Duration::from_secs(1)),
    ("namespace", "ns", |s| s.namespace.as_deref() == Some("ns")),
    ("validating-webhook-configuration-name", "c", |s| s.registration.configuration_name == "c"),
    ("validating-webhook-failure-policy", "Ignore", |s| s.registration.failure_policy == FailurePolicy::Ignore),
    ("validating-webhook-path", "/v1/check", |s| s.registration.validation_path == "/v1/check"),
    ("validating-webhook-service-name", "svc", |s| s.admission.service_name == "svc"),
    ("validating-webhook-service-port", "8443", |s| s.admission.service_port == 8443),
    ("validating-webhook-url", "https://h:1/", |s| s.admission.url.as_deref() == Some("https://h:1")),
    ("validating-webhook-server-cert", "/c", |s| s.admission.server_cert == Some(PathBuf::from("/c"))),
    ("validating-webhook-server-key", "/k", |s| s.admission.server_key == Some(PathBuf::from("/k"))),
    ("validating-webhook-ca", "/ca", |s| s.admission.ca == Some(PathBuf::from("/ca"))),
    ("validating-webhook-tls-secret", "n/s", |s| s.admission.tls_secret
        == Some(SecretName { namespace: Some("n".to_owned()), name: "s".to_owned() })),
    ("validating-webhook-certificate-lifetime", "24h", |s| s.admission.certificate_lifetime == Duration::from_secs(24 * 3600)),
    ("validating-webhook-client-ca", "/cc", |s| s.admission.client_cas == [PathBuf::from("/cc")]),
    ("validating-webhook-client-name", "kube apiserver", |s| s.admission.client_names == ["kube apiserver"]),
    ("validating-webhook-client-auth-file", "/a", |s| s.admission.client_auth_file == Some(PathBuf::from("/a"))),
    ("validating-webhook-listen-address", "127.0.0.1", |s| s.admission.listen.address == "127.0.0.1"),
    ("validating-webhook-listen-port", "9443", |s| s.admission.listen.port == 9443),
    ("validating-webhook-max-hooks", "3", |s| s.admission.max_hooks == 3),
    ("conversion-webhook-service-name", "svc", |s| s.conversion.service_name == "svc"),
    ("conversion-webhook-service-port", "8443", |s| s.conversion.service_port == 8443),
    ("conversion-webhook-url", "https://h", |s| s.conversion.url.as_deref() == Some("https://h")),
    ("conversion-webhook-server-cert", "/c", |s| s.conversion.server_cert == Some(PathBuf::from("/c"))),
    ("conversion-webhook-server-key", "/k", |s| s.conversion.server_key == Some(PathBuf::from("/k"))),
    ("conversion-webhook-ca", "/ca", |s| s.conversion.ca == Some(PathBuf::from("/ca"))),
    ("conversion-webhook-tls-secret", "s", |s| s.conversion.tls_secret
        == Some(SecretName { namespace: None, name: "s".to_owned() })),
    ("conversion-webhook-certificate-lifetime", "24h", |s| s.conversion.certificate_lifetime == Duration::from_secs(24 * 3600)),
    ("conversion-webhook-client-ca", "/cc", |s| s.conversion.client_cas == [PathBuf::from("/cc")]),
    ("conversion-webhook-client-name", "n", |s| s.conversion.client_names == ["n"]),
    ("conversion-webhook-client-auth-file", "/a", |s| s.conversion.client_auth_file == Some(PathBuf::from("/a"))),
    ("conversion-webhook-listen-address", "localhost", |s| s.conversion.listen.address == "localhost"),
    ("conversion-webhook-listen-port", "2", |s| s.conversion.listen.port == 2),
    ("conversion-webhook-max-hooks", "4", |s| s.conversion.max_hooks == 4),
    ("debug-unix-socket", "/s", |s| s.debug.unix_socket == Path::new("/s")),
    ("debug-http-addr", ":9652", |s| s.debug.http_addr.as_deref() == Some("0.0.0.0:9652")),
    ("debug-keep-tmp-files", "yes", |s| s.debug.keep_tmp_files),
    ("debug-kubernetes-api", "1", |s| s.debug.kubernetes_api),
];

/// SO-29…SO-34: under every spelling, as flag and as variable.
#[test]
fn every_flag_and_every_variable_sets_its_own_field_and_no_other() {
    let listed: BTreeSet<&str> = FIELDS.iter().map(|(name, _, _)| *name).collect();
    let known: BTreeSet<&str> = flag::all().map(|(_, flag)| flag.name).collect();
    assert_eq!(listed, known);
    let plain = start(&[], &[]);
    for (name, value, check) in FIELDS {
        let (_, flag) = flag::all().find(|(_, flag)| flag.name == *name).unwrap();
        assert!(!check(&plain), "{name} is tried with its default");
        for spelling in [flag.name].iter().chain(flag.other_names) {
            let joined = start(&["start", &format!("--{spelling}={value}")], &[]);
            assert!(check(&joined), "--{spelling}={value}");
            if flag.takes != Takes::Switch {
                let apart = start(&["start", &format!("--{spelling}"), value], &[]);
                assert_eq!(joined, apart, "--{spelling} {value}");
            }
            for variable in flag.variables {
                assert_eq!(
                    joined,
                    start(&["start"], &[(variable, value)]),
                    "{variable}"
                );
            }
        }
        for (other, _, other_check) in FIELDS {
            let set = start(&["start", &format!("--{name}={value}")], &[]);
            assert_eq!(other_check(&set), other == name, "--{name} and {other}");
        }
    }
}

#[test]
fn the_defaults_are_those_of_the_original() {
    let settings = start(&[], &[]);
    assert_eq!(settings.hooks_dir, Path::new("hooks"));
    assert_eq!(settings.tmp_dir, Path::new("/tmp/shell-operator"));
    assert_eq!(settings.listen.address, "0.0.0.0");
    assert_eq!(settings.listen.port, 9115);
    assert_eq!(settings.metrics_prefix, "shell_operator_");
    assert_eq!(settings.namespace, None);
    assert_eq!((settings.kube.qps, settings.kube.burst), (5.0, 10));
    assert_eq!(settings.object_patcher.timeout, Duration::from_secs(10));
    assert_eq!(settings.log.level, LevelFilter::Info);
    assert_eq!(settings.log.format, LogFormat::Json);
    assert_eq!(
        settings.registration.configuration_name,
        "shell-operator-hooks"
    );
    assert_eq!(settings.registration.failure_policy, FailurePolicy::Fail);
    assert_eq!(
        settings.admission.service_name,
        "shell-operator-validating-svc"
    );
    assert_eq!(
        settings.conversion.service_name,
        "shell-operator-conversion-svc"
    );
    // HX-02: configurable, the original's by default.
    assert_eq!(
        (
            settings.admission.listen.port,
            settings.conversion.listen.port
        ),
        (9680, 9681)
    );
    // No file was named, so that the operator may make its own certificate.
    assert_eq!(settings.admission.server_cert, None);
    assert_eq!(
        settings.debug.unix_socket,
        Path::new("/var/run/shell-operator/debug.socket")
    );
    assert!(settings.warnings.is_empty());
}

#[test]
fn a_flag_counts_more_than_a_variable_and_an_empty_variable_is_not_set() {
    let port = |arguments: &[&str], value: &str| {
        start(arguments, &[("SHELL_OPERATOR_LISTEN_PORT", value)])
            .listen
            .port
    };
    assert_eq!(port(&["start", "--listen-port=1"], "2"), 1);
    assert_eq!(port(&["start"], "2"), 2);
    assert_eq!(port(&["start"], ""), 9115);
    // Also against a wrong variable, and for a switch that is turned off.
    assert_eq!(port(&["start", "--listen-port=1"], "x"), 1);
    let keep = [("DEBUG_KEEP_TMP_FILES", "yes")];
    assert!(
        !start(&["start", "--debug-keep-tmp-files=false"], &keep)
            .debug
            .keep_tmp_files
    );
    // An empty flag takes back what a variable says.
    assert_eq!(
        start(&["--namespace="], &[("SHELL_OPERATOR_NAMESPACE", "n")]).namespace,
        None
    );
    // The newer spelling of a variable counts more.
    let both = [
        ("VALIDATING_WEBHOOK_CLUSTER_CA", "/old"),
        ("VALIDATING_WEBHOOK_CA", "/new"),
    ];
    assert_eq!(start(&[], &both).admission.ca, Some(PathBuf::from("/new")));
}

#[test]
fn flags_can_be_written_in_all_the_ways_found_in_manifests() {
    // Without a command, before it, after it.
    for arguments in [
        &["--hooks-dir=/x"] as &[&str],
        &["--hooks-dir", "/x", "start"],
        &["start", "--hooks-dir", "/x"],
        &["start", "--HOOKS_DIR=/x"],
        &["start", "--hooks-dir=/y", "--hooks-dir=/x"],
    ] {
        assert_eq!(
            start(arguments, &[]).hooks_dir,
            Path::new("/x"),
            "{arguments:?}"
        );
    }
    for (arguments, kept) in [
        (&["start", "--debug-keep-tmp-files"] as &[&str], true),
        (&["--debug-keep-tmp-files", "start"], true),
        (&["start", "--debug-keep-tmp-files", "yes"], true),
        (&["start", "--debug-keep-tmp-files=no"], false),
    ] {
        assert_eq!(
            start(arguments, &[]).debug.keep_tmp_files,
            kept,
            "{arguments:?}"
        );
    }
    // A value may itself contain `=` or begin with a dash.
    assert_eq!(
        start(&["--kube-context=a=b"], &[]).kube.context.as_deref(),
        Some("a=b")
    );
    assert_eq!(
        start(&["--kube-client-qps", "-1"], &[]).kube.qps,
        f64::INFINITY
    );
}

/// SO-32.
#[test]
fn client_cas_add_up_and_a_variable_holds_a_list() {
    let two = [PathBuf::from("/a,b"), PathBuf::from("/c")];
    let flags = [
        "--validating-webhook-client-ca=/a,b",
        "--validating-webhook-client-ca",
        "/c",
    ];
    let list = [("VALIDATING_WEBHOOK_CLIENT_CA", "/d, /e,")];
    assert_eq!(start(&flags, &list).admission.client_cas, two);
    assert_eq!(
        start(&[], &list).admission.client_cas,
        [PathBuf::from("/d"), PathBuf::from("/e")]
    );
}

#[test]
fn what_earlier_releases_had_is_accepted_with_a_warning() {
    for arguments in [
        &["--jq-library-path=/x"] as &[&str],
        &["start", "--jq-library-path", "/x"],
    ] {
        let warnings = start(arguments, &[]).warnings;
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with("flag --jq-library-path is ignored: jq modules"));
    }
    for ignored in IGNORED {
        let Some(variable) = ignored.variable else {
            continue;
        };
        let warnings = start(&[], &[(variable, "x")]).warnings;
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains(variable));
    }
}

/// Arguments and the one line that answers them.
const MISTAKES: &[(&[&str], &str)] = &[
    (
        &["start", "--hook-dir=x"],
        "unknown flag \"--hook-dir=x\": did you mean --hooks-dir?",
    ),
    (
        &["start", "--validating-webhook-clien-ca", "x"],
        "unknown flag \"--validating-webhook-clien-ca\": did you mean --validating-webhook-client-ca?",
    ),
    (
        &["start", "--qqqqqqqq"],
        "unknown flag \"--qqqqqqqq\": `shell-operator start --help` lists the flags",
    ),
    (
        &["start", "-x"],
        "unknown flag \"-x\": `shell-operator start --help` lists the flags",
    ),
    (
        &["start", "--hooks-dir"],
        "flag --hooks-dir needs a value: write --hooks-dir=DIR",
    ),
    (
        &["start", "--hooks-dir", "--tmp-dir=/t"],
        "flag --hooks-dir needs a value: write --hooks-dir=DIR",
    ),
    (
        &["start", "--hooks-dir="],
        "flag --hooks-dir=\"\": expected a path",
    ),
    (
        &["start", "--listen-port=http"],
        "flag --listen-port=\"http\": expected a port number from 0 (any free port) to 65535",
    ),
    (
        &["start", "--log-level=loud"],
        "flag --log-level=\"loud\": expected one of trace, debug, info, warn, error, fatal",
    ),
    (
        &["sart"],
        "unknown command \"sart\": did you mean `shell-operator start`?",
    ),
    (
        &["frobnicate"],
        "unknown command \"frobnicate\": `shell-operator help` lists the commands",
    ),
    (
        &["start", "now"],
        "unrecognized argument: now: see `shell-operator help start` for how it is called",
    ),
    (
        &["resource"],
        "resource needs a name, such as pods: see `shell-operator help resource` for how it is called",
    ),
    (
        &["resource", "pods", "--hooks-dir=x"],
        "flag --hooks-dir does not belong to `resource`: `shell-operator help resource` lists those that do",
    ),
    (
        &["help", "sart"],
        "unknown command \"sart\": did you mean `shell-operator start`?",
    ),
];

#[test]
fn errors_name_the_thing_the_value_and_what_is_expected() {
    for (arguments, expected) in MISTAKES {
        assert_eq!(error(arguments, &[]), *expected, "{arguments:?}");
    }
    let wait = error(&["resource", "pods", "--wait=soon"], &[]);
    assert!(
        wait.contains("'--wait' with value 'soon': expected a duration such as 10s"),
        "{wait}"
    );
    assert_eq!(
        error(&["start"], &[("VALIDATING_WEBHOOK_FAILURE_POLICY", "fail")]),
        "configuration error: environment variable VALIDATING_WEBHOOK_FAILURE_POLICY=\"fail\": expected Fail or Ignore"
    );
    // The spelling that was used is the one that is named, and a value cannot forge a line.
    let forged = error(&["start"], &[("VALIDATING_WEBHOOK_CLIENT_NAME", "a\nb")]);
    assert!(
        forged.contains("VALIDATING_WEBHOOK_CLIENT_NAME=\"a\\nb\""),
        "{forged}"
    );
    let word = "\x1b".repeat(10_000);
    for arguments in [
        &[&*word] as &[&str],
        &["start", &word],
        &["start", "--x", &word],
    ] {
        let long = error(arguments, &[]);
        assert!(long.len() < 700, "{}", long.len());
        assert!(!long.contains(char::is_control), "{long:?}");
    }
}

#[test]
fn resource_has_names_flags_of_its_own_and_those_of_the_cluster() {
    let command = run(
        &[
            "resource",
            "deploy",
            "--api-version=apps/v1",
            "Pod",
            "--wait",
            "1m30s",
            "--kube-config=/k",
        ],
        // Not looked at: a mistake in what this command does not need must not stop it.
        &[("SHELL_OPERATOR_LISTEN_PORT", "x"), ("KUBE_CONTEXT", "c")],
    );
    let Ok(Command::Resource {
        names,
        api_version,
        wait,
        settings,
    }) = command
    else {
        panic!("{command:?}");
    };
    assert_eq!(names, ["deploy", "Pod"]);
    assert_eq!(api_version.as_deref(), Some("apps/v1"));
    assert_eq!(wait, Duration::from_secs(90));
    assert_eq!(settings.kube.config, Some(PathBuf::from("/k")));
    assert_eq!(settings.kube.context.as_deref(), Some("c"));
    assert_eq!(settings.listen.port, 9115);
}

#[test]
fn help_is_found_in_every_way_one_would_try() {
    let first = help(&["help"]);
    assert!(first.contains("A hook is an executable file") && first.contains("resource "));
    assert_eq!(help(&["--help"]), first);
    assert_eq!(help(&["-h"]), first);
    let start_page = help(&["start", "--help"]);
    assert_eq!(help(&["help", "start"]), start_page);
    assert_eq!(help(&["start", "help"]), start_page);
    assert_eq!(help(&["start", "--hooks-dir=x", "-h"]), start_page);
    for (_, flag) in flag::all() {
        assert!(
            start_page.contains(&format!("--{}", flag.name)),
            "{}",
            flag.name
        );
        assert!(start_page.contains(flag.variables[0]), "{}", flag.name);
    }
    assert!(help(&["help", "resource"]).contains("--kube-config=FILE"));
    assert!(!help(&["help", "resource"]).contains("--hooks-dir"));
    for page in [&first, &start_page, &help(&["help", "resource"])] {
        let widest = page.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(110), "{widest:?}");
    }
    // Wrong flags are not hidden by asking for help.
    assert!(run(&["start", "--hook-dir=x", "--help"], &[]).is_err());
}

#[test]
fn the_reference_lists_every_flag_and_variable_once() {
    let reference = reference();
    assert_eq!(help(&["help", "flags"]), reference);
    for (_, flag) in flag::all() {
        let row = format!("| `--{}", flag.name);
        let count = reference
            .lines()
            .filter(|line| {
                line.strip_prefix(&row)
                    .is_some_and(|rest| rest.starts_with(['`', '=', ' ']))
            })
            .count();
        assert_eq!(count, 1, "{}", flag.name);
        for name in flag.variables {
            assert!(reference.contains(&format!("`{name}`")), "{name}");
        }
    }
    assert_eq!(reference.matches("\n|---").count(), Topic::ALL.len());
    // Five bars a row, so that no text breaks the table.
    for line in reference.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(line.replace("\\|", "").matches('|').count(), 5, "{line}");
    }
}

#[test]
fn names_and_variables_are_unique() {
    let mut names = BTreeSet::new();
    let mut variables = BTreeSet::new();
    for (_, flag) in flag::all() {
        for name in [flag.name].iter().chain(flag.other_names) {
            assert!(names.insert(*name), "{name}");
        }
        for name in flag.variables {
            assert!(variables.insert(*name), "{name}");
        }
    }
}

#[test]
fn the_version_names_the_jq_engine_that_is_linked() {
    for arguments in [["version"], ["--version"]] {
        assert_eq!(run(&arguments, &[]), Ok(Command::Version));
    }
    let lock = include_str!("../../Cargo.lock");
    let (_, rest) = lock
        .split_once("name = \"jaq-core\"\nversion = \"")
        .unwrap();
    let (jaq, _) = rest.split_once('"').unwrap();
    let text = version_text();
    assert!(
        text.starts_with(concat!("shell-operator ", env!("CARGO_PKG_VERSION"))),
        "{text}"
    );
    assert!(
        text.ends_with(&format!("\njqFilter implementation: using jaq {jaq}\n")),
        "{text}"
    );
}

#[test]
fn durations_are_read_as_go_writes_them() {
    for (text, millis) in [
        ("10s", 10_000),
        ("1m30s", 90_000),
        ("1.5h", 5_400_000),
        ("300ms", 300),
        ("0", 0),
        ("2500us", 2),
    ] {
        let read = value::time(text).unwrap();
        assert_eq!(read.as_millis(), millis, "{text}");
    }
    for text in [
        "",
        "10",
        "s",
        "-1s",
        "1x",
        "1s ",
        "1..5s",
        ".",
        "1e3s",
        "99999999999999999999h",
        "9000h",
    ] {
        assert!(value::time(text).is_err(), "{text}");
    }
}

#[test]
fn values_are_refused_for_their_form() {
    for text in [
        "http://h",
        "https://",
        "https://u@h",
        "https://h/?q",
        "h",
        "https://h h",
    ] {
        assert!(value::webhook_url(text).is_err(), "{text}");
    }
    for text in ["", "0.0.0.0:9115", "a b", "[::1]:80"] {
        assert!(value::address(text).is_err(), "{text}");
    }
    for text in ["", "a/", "/a", "a/b/c", "a b"] {
        assert!(value::secret(text).is_err(), "{text}");
    }
    for text in ["", "9652", "host:", "host:99999", "a:b:1"] {
        assert!(value::socket_address(text).is_err(), "{text}");
    }
    for text in ["nan", "inf", "", "five"] {
        assert!(value::rate(text, 5.0).is_err(), "{text}");
    }
    for text in ["9a", "a-b", "ü"] {
        assert!(value::metrics_prefix(text).is_err(), "{text}");
    }
    assert!(value::level("off").is_err());
    // As in client-go.
    assert_eq!(
        value::rate("0", 5.0).map(f64::to_bits),
        Ok(5.0_f64.to_bits())
    );
    assert_eq!(value::burst("0", 10), Ok(10));
}
