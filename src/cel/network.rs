//! Addresses, networks and URLs, as Go's `netip` and `net/url` read them.
//!
//! Pure, any thread; owns nothing. Nothing here asks a name server or opens a socket: it is all text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 addresses written as IPv6 are refused.
pub(super) fn read_ip(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => None,
        _ => Some(address),
    }
}

pub(super) fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

pub(super) fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

pub(super) fn is_global_unicast(address: IpAddr) -> bool {
    address != IpAddr::V4(Ipv4Addr::BROADCAST)
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cidr {
    pub(super) address: IpAddr,
    pub(super) bits: u32,
}

impl Cidr {
    pub(super) fn read(text: &str) -> Option<Cidr> {
        let (address, bits) = text.split_once('/')?;
        let address = read_ip(address)?;
        let plain =
            bits.chars().all(|c| c.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
        let bits = bits.parse().ok().filter(|_| plain)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some(Cidr { address, bits })
    }

    pub(super) fn masked(self) -> Cidr {
        Cidr {
            address: masked(self.address, self.bits),
            bits: self.bits,
        }
    }

    pub(super) fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && masked(address, self.bits) == masked(self.address, self.bits)
    }

    pub(super) fn contains_network(self, other: Cidr) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    pub(super) fn shown(self) -> String {
        format!("{}/{}", self.address, self.bits)
    }
}

fn masked(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

/// The parts that can be asked for.
#[derive(Clone, Debug)]
pub(super) struct Url {
    pub(super) text: String,
    pub(super) scheme: String,
    pub(super) host: String,
    path: String,
    query: String,
}

impl Url {
    /// An absolute URI, or an absolute path.
    pub(super) fn read(text: &str) -> Option<Url> {
        if text.is_empty() || text.chars().any(|c| c.is_ascii_control()) {
            return None;
        }
        let mut url = Url {
            text: text.to_owned(),
            scheme: String::new(),
            host: String::new(),
            path: String::new(),
            query: String::new(),
        };
        if text == "*" {
            url.path = "*".to_owned();
            return Some(url);
        }
        let (scheme, rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        // The fragment is cut off only after the check that it is an URL at all, so it may hold anything.
        let rest = rest.split('#').next().unwrap_or_default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut url.query);
        if !rest.starts_with('/') {
            // "a:b" is opaque: it has neither host nor path.
            return (!scheme.is_empty()).then_some(url);
        }
        let mut path = rest;
        if let Some(authority) = rest.strip_prefix("//")
            && (!scheme.is_empty() || !rest.starts_with("///"))
        {
            let end = authority.find('/').unwrap_or(authority.len());
            let (authority, tail) = authority.split_at_checked(end)?;
            path = tail;
            url.host = read_host(authority)?;
        }
        unescape(path, false)?;
        path.clone_into(&mut url.path);
        Some(url)
    }

    pub(super) fn hostname(&self) -> &str {
        match self
            .host
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
        {
            Some((address, _)) => address,
            None => self
                .host
                .rsplit_once(':')
                .map_or(&self.host, |(name, _)| name),
        }
    }

    pub(super) fn port(&self) -> &str {
        let after = self
            .host
            .rsplit_once(']')
            .map_or(self.host.as_str(), |(_, after)| after);
        after.rsplit_once(':').map_or("", |(_, port)| port)
    }

    pub(super) fn escaped_path(&self) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.~$&+,/:;=@".contains(c);
        let valid = |c: char| plain(c) || "!'()*%[]".contains(c);
        if self.path.chars().all(valid) {
            return self.path.clone();
        }
        let Some(octets) = unescape(&self.path, false) else {
            return self.path.clone();
        };
        octets
            .iter()
            .map(|octet| {
                let c = char::from(*octet);
                if plain(c) {
                    c.to_string()
                } else {
                    format!("%{octet:02X}")
                }
            })
            .collect()
    }

    /// Name and values, in the order of the names' first appearance. What cannot be decoded is left out.
    pub(super) fn query(&self) -> Vec<(String, Vec<String>)> {
        let mut query: Vec<(String, Vec<String>)> = Vec::new();
        for part in self.query.split('&').filter(|part| !part.is_empty()) {
            if part.contains(';') {
                continue;
            }
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let decode =
                |text| unescape(text, true).and_then(|octets| String::from_utf8(octets).ok());
            let (Some(key), Some(value)) = (decode(key), decode(value)) else {
                continue;
            };
            match query.iter_mut().find(|(own, _)| *own == key) {
                Some((_, values)) => values.push(value),
                None => query.push((key, vec![value])),
            }
        }
        query
    }
}

/// Without a scheme it must be a path.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
    let (scheme, rest) = text.split_at_checked(end?)?;
    match rest.strip_prefix(':') {
        Some(rest) if scheme.starts_with(|c: char| c.is_ascii_alphabetic()) => Some((scheme, rest)),
        _ => text.starts_with('/').then_some(("", text)),
    }
}

fn read_host(authority: &str) -> Option<String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", authority),
    };
    let user_fits = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(user_fits) {
        return None;
    }
    unescape(user, false)?;
    let (name, after) = match host.strip_prefix('[') {
        Some(rest) => rest.rsplit_once(']')?,
        None => host.split_at_checked(host.rfind(':').unwrap_or(host.len()))?,
    };
    let port = match after.strip_prefix(':') {
        Some(port) => port,
        None if after.is_empty() => "",
        None => return None,
    };
    let bad = |c: char| {
        c.is_ascii() && !c.is_ascii_alphanumeric() && !"-_.~!$&'()*+,;=:%<>\"".contains(c)
    };
    let colon = !host.starts_with('[') && name.contains(':');
    if colon || name.contains(bad) || !port.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    // In a host only what is not ASCII may be escaped.
    if name.split('%').skip(1).any(|escape| {
        !escape.starts_with([
            '8', '9', 'a', 'b', 'c', 'd', 'e', 'f', 'A', 'B', 'C', 'D', 'E', 'F',
        ])
    }) {
        return None;
    }
    unescape(name, false)?;
    Some(host.to_owned())
}

fn unescape(text: &str, plus: bool) -> Option<Vec<u8>> {
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        match octet {
            b'%' => {
                let digit = |octet: Option<u8>| char::from(octet?).to_digit(16);
                let value = digit(rest.next())? * 16 + digit(rest.next())?;
                octets.push(u8::try_from(value).ok()?);
            }
            b'+' if plus => octets.push(b' '),
            octet => octets.push(octet),
        }
    }
    Some(octets)
}
