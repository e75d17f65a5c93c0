//! The functions that Kubernetes adds to CEL: URLs, quantities, addresses and networks, versions, named formats.
//!
//! Pure, any thread; owns nothing: the types have rooms of their own, this is where their names meet them. `authorizer` is not
//! here, since who may do what cannot be known without a cluster.

use std::net::IpAddr;
use std::rc::Rc;

use super::network::{
    Cidr, Url, is_global_unicast, is_link_local_multicast, is_link_local_unicast, read_ip,
};
use super::quantity::Quantity;
use super::value::{Res, Value, error, unknown};
use super::version::{Version, fits, format_named};

type Found<'a> = Option<Res<'a>>;

pub(super) fn call<'a>(name: &str, arguments: &[Value<'a>]) -> Found<'a> {
    if let Some(format) = name.strip_prefix("format.")
        && arguments.is_empty()
    {
        return format_named(format).map(|format| Ok(Value::Format(format)));
    }
    match arguments {
        [Value::Url(url)] => of_url(name, url),
        [Value::Quantity(a), rest @ ..] => of_quantity(name, *a, rest),
        [Value::Semver(a), rest @ ..] => of_version(name, a, rest),
        [Value::Ip(address)] => of_address(name, *address),
        [Value::Cidr(network), rest @ ..] => of_network(name, *network, rest),
        [Value::Format(format), Value::Text(text)] if name == "validate" => {
            Some(match fits(format, text) {
                Some(true) => Ok(Value::Optional(None)),
                Some(false) => Ok(Value::some(Value::Unknowable(
                    "the words of a named format",
                ))),
                None => unknown(format!("the named format {format}")),
            })
        }
        [Value::Text(text)] => of_text(name, text, false),
        [Value::Text(text), Value::Bool(lenient)] => match name {
            "semver" | "isSemver" => of_text(name, text, *lenient),
            _ => None,
        },
        _ => None,
    }
}

/// What reads a text, and what asks whether it can be read.
fn of_text<'a>(name: &str, text: &str, lenient: bool) -> Found<'a> {
    let read = |found: Option<Value<'a>>, what: &str| {
        Some(found.map_or_else(|| error(format!("{text:?} is no {what}")), Ok))
    };
    let truth = |truth: bool| Some(Ok(Value::Bool(truth)));
    match name {
        "url" => read(Url::read(text).map(|url| Value::Url(Rc::new(url))), "URL"),
        "isURL" => truth(Url::read(text).is_some()),
        "quantity" => match Quantity::read(text) {
            Some(None) => Some(unknown("a quantity beyond 128 bits")),
            found => read(found.flatten().map(Value::Quantity), "quantity"),
        },
        "isQuantity" => truth(Quantity::read(text).is_some()),
        "ip" => read(read_ip(text).map(Value::Ip), "address"),
        "isIP" => truth(read_ip(text).is_some()),
        "ip.isCanonical" => {
            let canonical = |address: IpAddr| Value::Bool(address.to_string() == text);
            read(read_ip(text).map(canonical), "address")
        }
        "cidr" => read(Cidr::read(text).map(Value::Cidr), "network"),
        "isCIDR" => truth(Cidr::read(text).is_some()),
        "semver" => {
            let version = Version::read(text, lenient);
            read(
                version.map(|version| Value::Semver(Rc::new(version))),
                "version",
            )
        }
        "isSemver" => truth(Version::read(text, lenient).is_some()),
        "format.named" => Some(Ok(format_named(text)
            .map_or(Value::Optional(None), |format| {
                Value::some(Value::Format(format))
            }))),
        _ => None,
    }
}

fn of_url<'a>(name: &str, url: &Url) -> Found<'a> {
    Some(Ok(match name {
        "getScheme" => Value::text(&url.scheme),
        "getHost" => Value::text(&url.host),
        "getHostname" => Value::text(url.hostname()),
        "getPort" => Value::text(url.port()),
        "getEscapedPath" => Value::text(url.escaped_path()),
        "getQuery" => {
            let query = url.query().into_iter();
            Value::map(
                query
                    .map(|(key, values)| (Value::text(key), Value::texts(values)))
                    .collect(),
            )
        }
        _ => return None,
    }))
}

fn of_quantity<'a>(name: &str, a: Quantity, rest: &[Value<'a>]) -> Found<'a> {
    let overflow = |sum: Option<Quantity>| match sum {
        Some(sum) => Some(Ok(Value::Quantity(sum))),
        None => Some(unknown("a quantity beyond 128 bits")),
    };
    let b = match rest {
        [] => None,
        [Value::Quantity(b)] => Some(*b),
        [Value::Int(b)] if matches!(name, "add" | "sub") => Some(Quantity::of_int(*b)),
        _ => return None,
    };
    match (name, b) {
        ("isInteger", None) => Some(Ok(Value::Bool(a.as_integer().is_some()))),
        ("asInteger", None) => Some(match a.as_integer() {
            Some(int) => Ok(Value::Int(int)),
            None => error("cannot convert value to integer"),
        }),
        ("asApproximateFloat", None) => Some(Ok(Value::Double(a.as_double()))),
        ("sign", None) => Some(Ok(Value::Int(match a.nanos {
            0 => 0,
            nanos if nanos < 0 => -1,
            _ => 1,
        }))),
        ("add", Some(b)) => overflow(a.plus(b)),
        ("sub", Some(b)) => overflow(a.minus(b)),
        (_, Some(b)) => comparison(name, a.nanos.cmp(&b.nanos)),
        _ => None,
    }
}

fn comparison<'a>(name: &str, ordering: std::cmp::Ordering) -> Found<'a> {
    Some(Ok(match name {
        "isGreaterThan" => Value::Bool(ordering.is_gt()),
        "isLessThan" => Value::Bool(ordering.is_lt()),
        "compareTo" if ordering.is_lt() => Value::Int(-1),
        "compareTo" => Value::Int(i64::from(ordering.is_gt())),
        _ => return None,
    }))
}

fn of_version<'a>(name: &str, a: &Version, rest: &[Value<'a>]) -> Found<'a> {
    let [major, minor, patch] = a.numbers;
    let number = |number: u64| Some(Ok(Value::Int(i64::try_from(number).unwrap_or(i64::MAX))));
    match (name, rest) {
        ("major", []) => number(major),
        ("minor", []) => number(minor),
        ("patch", []) => number(patch),
        (_, [Value::Semver(b)]) => comparison(name, a.order(b)),
        _ => None,
    }
}

fn of_address<'a>(name: &str, address: IpAddr) -> Found<'a> {
    Some(Ok(match name {
        "family" => Value::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Value::Bool(address.is_unspecified()),
        "isLoopback" => Value::Bool(address.is_loopback()),
        "isLinkLocalMulticast" => Value::Bool(is_link_local_multicast(address)),
        "isLinkLocalUnicast" => Value::Bool(is_link_local_unicast(address)),
        "isGlobalUnicast" => Value::Bool(is_global_unicast(address)),
        _ => return None,
    }))
}

fn of_network<'a>(name: &str, network: Cidr, rest: &[Value<'a>]) -> Found<'a> {
    let truth = |truth: bool| Some(Ok(Value::Bool(truth)));
    match (name, rest) {
        ("ip", []) => Some(Ok(Value::Ip(network.address))),
        ("masked", []) => Some(Ok(Value::Cidr(network.masked()))),
        ("prefixLength", []) => Some(Ok(Value::Int(i64::from(network.bits)))),
        ("containsIP", [Value::Ip(address)]) => truth(network.contains(*address)),
        ("containsIP", [Value::Text(text)]) => match read_ip(text) {
            Some(address) => truth(network.contains(address)),
            None => Some(error(format!("{text:?} is no address"))),
        },
        ("containsCIDR", [Value::Cidr(other)]) => truth(network.contains_network(*other)),
        ("containsCIDR", [Value::Text(text)]) => match Cidr::read(text) {
            Some(other) => truth(network.contains_network(other)),
            None => Some(error(format!("{text:?} is no network"))),
        },
        _ => None,
    }
}
