//! The flags of the two HTTPS servers that the API server calls: one list, written once, for admission and for conversion.
//!
//! Pure. The names follow the original: `--validating-webhook-…` also covers mutating webhooks.

use super::flag::{Flag, Takes, put};
use super::value;

/// The flags that both servers have. `$flag` and `$variable` begin every name, `$field` is the part of `Settings`; `$own` are
/// flags that only this server has and that come first.
macro_rules! webhook_flags {
    (
        flag: $flag:literal, variable: $variable:literal, field: $field:ident,
        service: $service:literal, port: $port:literal, files: $files:literal, own: [$($own:expr),*],
    ) => {
        &[
            $($own,)*
            Flag {
                name: concat!($flag, "-service-name"),
                other_names: &[],
                variables: &[concat!($variable, "_SERVICE_NAME")],
                takes: Takes::One("NAME"),
                default: $service,
                help: "Service that leads the API server to this operator",
                set: |s, v| put(&mut s.$field.service_name, value::name(v)),
            },
            Flag {
                name: concat!($flag, "-service-port"),
                other_names: &[],
                variables: &[concat!($variable, "_SERVICE_PORT")],
                takes: Takes::One("PORT"),
                default: "443",
                help: "port of that Service",
                set: |s, v| put(&mut s.$field.service_port, value::service_port(v)),
            },
            Flag {
                name: concat!($flag, "-url"),
                other_names: &[],
                variables: &[concat!($variable, "_URL")],
                takes: Takes::One("URL"),
                default: "",
                help: "https address the API server calls in place of the Service, for use outside a cluster",
                set: |s, v| put(&mut s.$field.url, value::optional(v, value::webhook_url)),
            },
            Flag {
                name: concat!($flag, "-server-cert"),
                other_names: &[],
                variables: &[concat!($variable, "_SERVER_CERT")],
                takes: Takes::One("FILE"),
                default: "",
                help: concat!("certificate to serve with; without it ", $files, "/tls.crt, else one is made"),
                set: |s, v| put(&mut s.$field.server_cert, value::optional(v, value::path)),
            },
            Flag {
                name: concat!($flag, "-server-key"),
                other_names: &[],
                variables: &[concat!($variable, "_SERVER_KEY")],
                takes: Takes::One("FILE"),
                default: "",
                help: concat!("its private key; without it ", $files, "/tls.key"),
                set: |s, v| put(&mut s.$field.server_key, value::optional(v, value::path)),
            },
            Flag {
                name: concat!($flag, "-ca"),
                other_names: &[concat!($flag, "-cluster-ca")],
                variables: &[concat!($variable, "_CA"), concat!($variable, "_CLUSTER_CA")],
                takes: Takes::One("FILE"),
                default: "",
                help: concat!("CA that signed it, told to the API server; without it ", $files, "/ca.crt"),
                set: |s, v| put(&mut s.$field.ca, value::optional(v, value::path)),
            },
            Flag {
                name: concat!($flag, "-tls-secret"),
                other_names: &[],
                variables: &[concat!($variable, "_TLS_SECRET")],
                takes: Takes::One("[NAMESPACE/]NAME"),
                default: "",
                help: "Secret to take certificate, key and CA from, in place of files",
                set: |s, v| put(&mut s.$field.tls_secret, value::optional(v, value::secret)),
            },
            Flag {
                name: concat!($flag, "-certificate-lifetime"),
                other_names: &[],
                variables: &[concat!($variable, "_CERTIFICATE_LIFETIME")],
                takes: Takes::One("DURATION"),
                default: "2160h",
                help: "how long a certificate lives that the operator makes itself; it is renewed after two thirds",
                set: |s, v| put(&mut s.$field.certificate_lifetime, value::lifetime(v)),
            },
            Flag {
                name: concat!($flag, "-client-ca"),
                other_names: &[],
                variables: &[concat!($variable, "_CLIENT_CA")],
                takes: Takes::Many("FILE"),
                default: "",
                help: "CA of callers; when given, callers without a certificate of such a CA are refused",
                set: |s, v| value::path(v).map(|path| s.$field.client_cas.push(path)),
            },
            Flag {
                name: concat!($flag, "-client-name"),
                other_names: &[],
                variables: &[concat!($variable, "_CLIENT_NAME")],
                takes: Takes::Many("NAME"),
                default: "",
                help: "name that a caller's certificate must bear (CN or DNS name); any when not given",
                set: |s, v| value::client_name(v).map(|name| s.$field.client_names.push(name)),
            },
            Flag {
                name: concat!($flag, "-client-auth-file"),
                other_names: &[],
                variables: &[concat!($variable, "_CLIENT_AUTH_FILE")],
                takes: Takes::One("FILE"),
                default: "",
                help: "file with the bearer token, or user:password, that callers must send",
                set: |s, v| put(&mut s.$field.client_auth_file, value::optional(v, value::path)),
            },
            Flag {
                name: concat!($flag, "-listen-address"),
                other_names: &[],
                variables: &[concat!($variable, "_LISTEN_ADDRESS")],
                takes: Takes::One("ADDRESS"),
                default: "0.0.0.0",
                help: "address of the HTTPS server",
                set: |s, v| put(&mut s.$field.listen.address, value::address(v)),
            },
            Flag {
                name: concat!($flag, "-listen-port"),
                other_names: &[],
                variables: &[concat!($variable, "_LISTEN_PORT")],
                takes: Takes::One("PORT"),
                default: $port,
                help: "port of the HTTPS server",
                set: |s, v| put(&mut s.$field.listen.port, value::port(v)),
            },
            Flag {
                name: concat!($flag, "-max-hooks"),
                other_names: &[],
                variables: &[concat!($variable, "_MAX_HOOKS")],
                takes: Takes::One("NUMBER"),
                default: "64",
                help: "hooks that may run at the same time for this server; further requests wait",
                set: |s, v| put(&mut s.$field.max_hooks, value::count(v)),
            },
        ]
    };
}

/// SO-29…SO-34.
pub(super) const ADMISSION: &[Flag] = webhook_flags! {
    flag: "validating-webhook",
    variable: "VALIDATING_WEBHOOK",
    field: admission,
    service: "shell-operator-validating-svc",
    port: "9680",
    files: "/validating-certs",
    own: [NAMESPACE, CONFIGURATION_NAME, FAILURE_POLICY, VALIDATION_PATH],
};

pub(super) const CONVERSION: &[Flag] = webhook_flags! {
    flag: "conversion-webhook",
    variable: "CONVERSION_WEBHOOK",
    field: conversion,
    service: "shell-operator-conversion-svc",
    port: "9681",
    files: "/conversion-certs",
    own: [],
};

const NAMESPACE: Flag = Flag {
    name: "namespace",
    other_names: &[],
    variables: &["SHELL_OPERATOR_NAMESPACE"],
    takes: Takes::One("NAME"),
    default: "",
    help: "namespace of the Services below; without it the one of the service account",
    set: |s, v| put(&mut s.namespace, value::optional(v, value::name)),
};

const CONFIGURATION_NAME: Flag = Flag {
    name: "validating-webhook-configuration-name",
    other_names: &[],
    variables: &["VALIDATING_WEBHOOK_CONFIGURATION_NAME"],
    takes: Takes::One("NAME"),
    default: "shell-operator-hooks",
    help: "the webhook configurations in the cluster are called NAME-hooks",
    set: |s, v| put(&mut s.registration.configuration_name, value::name(v)),
};

const FAILURE_POLICY: Flag = Flag {
    name: "validating-webhook-failure-policy",
    other_names: &[],
    variables: &["VALIDATING_WEBHOOK_FAILURE_POLICY"],
    takes: Takes::One("Fail|Ignore"),
    default: "Fail",
    help: "what happens to requests when the operator cannot be asked, for hooks that do not say",
    set: |s, v| put(&mut s.registration.failure_policy, value::failure_policy(v)),
};

/// HX-02.
const VALIDATION_PATH: Flag = Flag {
    name: "validating-webhook-path",
    other_names: &[],
    variables: &["VALIDATING_WEBHOOK_PATH"],
    takes: Takes::One("PATH"),
    default: "/validate",
    help: "path of the reviews that kubernetes bindings with webhookValidation ask for",
    set: |s, v| put(&mut s.registration.validation_path, value::webhook_path(v)),
};
