//! From the text of a flag or a variable to its value.
//!
//! Pure. Each function returns the value, or a phrase that completes the sentence "expected …".

use std::path::PathBuf;
use std::time::Duration;

use log::LevelFilter;

use crate::duration;
use crate::logger;

use super::{FailurePolicy, LogFormat, SecretName, TestHooks};

/// A value, or what was expected.
pub(super) type Parsed<T> = Result<T, &'static str>;

pub(super) fn path(text: &str) -> Parsed<PathBuf> {
    if text.is_empty() || text.contains('\0') {
        return Err("a path");
    }
    Ok(PathBuf::from(text))
}

pub(super) fn name(text: &str) -> Parsed<String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("a name without spaces");
    }
    Ok(text.to_owned())
}

/// A name in a certificate, which may hold spaces, as in `CN=kube apiserver`.
pub(super) fn client_name(text: &str) -> Parsed<String> {
    if text.trim().is_empty() || text.contains(char::is_control) {
        return Err("a name from a certificate, such as system:kube-apiserver");
    }
    Ok(text.trim().to_owned())
}

/// The first part of a metric's name. Empty is allowed and means no prefix.
pub(super) fn metrics_prefix(text: &str) -> Parsed<String> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    if !text.chars().all(letter) || text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("letters, digits, `_` and `:`, not starting with a digit");
    }
    Ok(text.to_owned())
}

/// Nothing for an empty text, so that `--flag=` takes back what a variable says.
pub(super) fn optional<T>(text: &str, parse: fn(&str) -> Parsed<T>) -> Parsed<Option<T>> {
    if text.is_empty() {
        return Ok(None);
    }
    parse(text).map(Some)
}

pub(super) fn port(text: &str) -> Parsed<u16> {
    text.parse()
        .map_err(|_| "a port number from 0 (any free port) to 65535")
}

pub(super) fn service_port(text: &str) -> Parsed<u16> {
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err("a port number from 1 to 65535"),
    }
}

/// An IP address, with or without the brackets of an IPv6 address, or a host name. No port: that is a flag of its own.
pub(super) fn address(text: &str) -> Parsed<String> {
    const EXPECTED: &str = "an IP address or a host name, without a port";
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    if bare.contains(':') && bare.parse::<std::net::Ipv6Addr>().is_err() {
        return Err(EXPECTED);
    }
    name(bare).map_err(|_| EXPECTED)
}

/// `host:port`; an empty host means all addresses, as in Go.
pub(super) fn socket_address(text: &str) -> Parsed<String> {
    const EXPECTED: &str = "an address with a port, such as 127.0.0.1:9652";
    let (host, number) = text.rsplit_once(':').ok_or(EXPECTED)?;
    let number: u16 = number.parse().map_err(|_| EXPECTED)?;
    if host.is_empty() {
        return Ok(format!("0.0.0.0:{number}"));
    }
    address(host).map_err(|_| EXPECTED)?;
    Ok(text.to_owned())
}

/// Go's spellings of a truth value, and the `yes` and `no` of releases before v1.17.4.
pub(super) fn switch(text: &str) -> Parsed<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" | "yes" | "y" | "on" => Ok(true),
        "false" | "f" | "0" | "no" | "n" | "off" => Ok(false),
        _ => Err("true or false"),
    }
}

/// Calls per second. As in client-go, 0 stands for the default and a negative number for no limit.
pub(super) fn rate(text: &str, default: f64) -> Parsed<f64> {
    let rate: f64 = text
        .parse()
        .map_err(|_| "a number of calls per second, such as 5 or 0.5")?;
    if !rate.is_finite() {
        return Err("a finite number; a negative one means no limit");
    }
    Ok(if rate == 0.0 {
        default
    } else if rate < 0.0 {
        f64::INFINITY
    } else {
        rate
    })
}

/// Calls at once. As in client-go, 0 stands for the default.
pub(super) fn burst(text: &str, default: u32) -> Parsed<u32> {
    match text.parse() {
        Ok(0) => Ok(default),
        Ok(burst) => Ok(burst),
        Err(_) => Err("a whole number of calls, such as 10"),
    }
}

/// The name of an environment variable.
pub(super) fn variable(text: &str) -> Parsed<String> {
    if text.is_empty() || text.contains(['=', '\0', ' ']) {
        return Err("the name of an environment variable, such as HOME");
    }
    Ok(text.to_owned())
}

/// A certificate that lives for less could expire between two looks at it.
pub(super) fn lifetime(text: &str) -> Parsed<Duration> {
    match time(text) {
        Ok(lifetime) if lifetime >= Duration::from_secs(10) => Ok(lifetime),
        _ => Err("a duration of at least 10s, such as 2160h"),
    }
}

pub(super) fn count(text: &str) -> Parsed<u16> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("a whole number from 1 to 65535"),
    }
}

pub(super) fn level(text: &str) -> Parsed<LevelFilter> {
    logger::level_named(text).ok_or("one of trace, debug, info, warn, error, fatal")
}

/// `color` is the original's third word; colour is used whenever the output is a terminal.
pub(super) fn log_format(text: &str) -> Parsed<LogFormat> {
    match text.to_ascii_lowercase().as_str() {
        "json" => Ok(LogFormat::Json),
        "text" | "color" => Ok(LogFormat::Text),
        _ => Err("json or text"),
    }
}

pub(super) fn failure_policy(text: &str) -> Parsed<FailurePolicy> {
    match text {
        "Fail" => Ok(FailurePolicy::Fail),
        "Ignore" => Ok(FailurePolicy::Ignore),
        _ => Err("Fail or Ignore"),
    }
}

pub(super) fn test_hooks(text: &str) -> Parsed<TestHooks> {
    match text.to_ascii_lowercase().as_str() {
        "off" => Ok(TestHooks::Off),
        "warn" => Ok(TestHooks::Warn),
        "fail" => Ok(TestHooks::Fail),
        _ => Err("off, warn or fail"),
    }
}

/// The API server calls webhooks by https only.
pub(super) fn webhook_url(text: &str) -> Parsed<String> {
    const EXPECTED: &str = "an address the API server can call, such as https://10.0.0.5:9680";
    let host = text.strip_prefix("https://").ok_or(EXPECTED)?;
    if host.is_empty() || host.contains(['?', '#', '@']) {
        return Err(EXPECTED);
    }
    name(text.trim_end_matches('/')).map_err(|_| EXPECTED)
}

/// One that no hook and no probe has.
pub(super) fn webhook_path(text: &str) -> Parsed<String> {
    const EXPECTED: &str =
        "a path such as /validate, of letters, digits, dots, dashes and slashes, outside /hooks";
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._/".contains(letter);
    let segments: Vec<&str> = text.split('/').skip(1).collect();
    let fits = text.starts_with('/')
        && text.chars().all(plain)
        && !segments
            .iter()
            .any(|segment| segment.is_empty() || matches!(*segment, "." | ".."))
        && segments.first() != Some(&"hooks");
    if fits {
        Ok(text.to_owned())
    } else {
        Err(EXPECTED)
    }
}

pub(super) fn secret(text: &str) -> Parsed<SecretName> {
    const EXPECTED: &str = "the name of a Secret, as NAME or NAMESPACE/NAME";
    let (namespace, secret) = match text.split_once('/') {
        Some((namespace, secret)) => (Some(name(namespace).map_err(|_| EXPECTED)?), secret),
        None => (None, text),
    };
    if secret.contains('/') {
        return Err(EXPECTED);
    }
    Ok(SecretName {
        namespace,
        name: name(secret).map_err(|_| EXPECTED)?,
    })
}

/// LIMIT: no setting means more than a year, and a moment that far away can still be computed on every clock.
const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// A duration as Go writes it: `10s`, `1m30s`, `1.5h`, `300ms`, `0`.
pub(super) fn time(text: &str) -> Parsed<Duration> {
    const EXPECTED: &str = "a duration such as 10s, 1m30s or 500ms";
    // Go's grammar has negative durations; none of these settings has.
    let total = duration::parse(text).map_err(|_| EXPECTED)?;
    if text.starts_with('-') {
        return Err(EXPECTED);
    }
    if total > MAX_DURATION {
        return Err("a duration of at most a year");
    }
    Ok(total)
}
