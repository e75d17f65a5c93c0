//! Semantic versions, and the named formats of Kubernetes (`format.dns1123Label()`).
//!
//! Pure, any thread; owns nothing. Formats answer whether a text fits; what Kubernetes says of one that does not is not repeated
//! here.

use std::cmp::Ordering;

use super::network::Url;
use super::time::Timestamp;

#[derive(Clone, Debug)]
pub(super) struct Version {
    /// Major, minor, patch.
    pub(super) numbers: [u64; 3],
    prerelease: Vec<String>,
}

impl Version {
    /// With `lenient`, a leading "v", missing numbers and leading zeros are forgiven.
    pub(super) fn read(text: &str, lenient: bool) -> Option<Version> {
        if !lenient {
            return Version::read_strict(text);
        }
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return None;
        }
        parts.resize(3, "0".to_owned());
        Version::read_strict(&parts.join("."))
    }

    fn read_strict(text: &str) -> Option<Version> {
        let (rest, build) = text
            .split_once('+')
            .map_or((text, None), |(a, b)| (a, Some(b)));
        let (core, prerelease) = rest
            .split_once('-')
            .map_or((rest, None), |(a, b)| (a, Some(b)));
        let mut numbers = core.split('.').map(number);
        let numbers = [numbers.next()??, numbers.next()??, numbers.next()??];
        if core.split('.').count() != 3 {
            return None;
        }
        let word = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        };
        if !build.is_none_or(|build| build.split('.').all(word)) {
            return None;
        }
        let prerelease: Vec<String> = prerelease
            .map(|text| text.split('.').map(str::to_owned).collect())
            .unwrap_or_default();
        let valid = prerelease
            .iter()
            .all(|part| word(part) && (!all_digits(part) || number(part).is_some()));
        valid.then_some(Version {
            numbers,
            prerelease,
        })
    }

    /// Build words do not count.
    pub(super) fn order(&self, other: &Version) -> Ordering {
        let prerelease = match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let pairs = self.prerelease.iter().zip(&other.prerelease);
                pairs
                    .map(|(a, b)| part_order(a, b))
                    .find(|ordering| ordering.is_ne())
                    .unwrap_or_else(|| self.prerelease.len().cmp(&other.prerelease.len()))
            }
        };
        self.numbers.cmp(&other.numbers).then(prerelease)
    }
}

fn all_digits(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_digit())
}

fn number(text: &str) -> Option<u64> {
    let plain = all_digits(text) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

fn without_zeros(part: &str) -> String {
    if part.len() <= 1 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
        trimmed.to_owned()
    } else {
        format!("0{trimmed}")
    }
}

fn part_order(a: &str, b: &str) -> Ordering {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// The names of the formats, without `format.`.
const FORMATS: &[&str] = &[
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

pub(super) fn format_named(name: &str) -> Option<&'static str> {
    FORMATS.iter().find(|known| **known == name).copied()
}

/// Whether the text is of the format; nothing if that cannot be told here.
pub(super) fn fits(format: &str, text: &str) -> Option<bool> {
    if let Some(format) = format.strip_suffix("Prefix") {
        // What a generated name will be put behind.
        let whole = match text.strip_suffix('-') {
            Some(rest) if !rest.is_empty() => format!("{rest}a"),
            _ => text.to_owned(),
        };
        return fits(format, &whole);
    }
    let lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |text: &str| enclosed(text, lower, |c| lower(c) || c == '-');
    let subdomain = |text: &str| text.len() <= 253 && text.split('.').all(label);
    let name = |text: &str| {
        let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        text.len() <= 63 && enclosed(text, |c| c.is_ascii_alphanumeric(), inner)
    };
    Some(match format {
        "dns1123Label" => text.len() <= 63 && label(text),
        "dns1123Subdomain" => subdomain(text),
        "dns1035Label" => {
            text.len() <= 63 && label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
        }
        "qualifiedName" => match text.split_once('/') {
            Some((prefix, rest)) => subdomain(prefix) && name(rest),
            None => name(text),
        },
        "labelValue" => text.is_empty() || name(text),
        "uri" => Url::read(text).is_some(),
        "date" => Timestamp::read(&format!("{text}T00:00:00Z")).is_ok(),
        // Where the hyphens of a UUID may be left out, which base64 may be empty and which of many layouts a date and time has
        // is the matter of three more libraries.
        _ => return None,
    })
}

/// Begins and ends with one kind of character; any between.
fn enclosed(text: &str, ends: fn(char) -> bool, between: impl Fn(char) -> bool) -> bool {
    text.starts_with(ends) && text.ends_with(ends) && text.chars().all(between)
}
