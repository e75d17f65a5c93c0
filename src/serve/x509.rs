//! Reads the few things we ask of a certificate: who its subject is, which DNS names it carries, how long it is valid.
//!
//! A reader of DER (X.690) for exactly the path to these fields (RFC 5280, section 4.1). Pure; bounded by the input's length,
//! since every step goes forward; no recursion. It verifies nothing: chains are checked by rustls before anyone asks here.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// DER tags in use.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// `dNSName` within a GeneralName.
const DNS_NAME: u8 = 0x82;

/// 2.5.4.3 and 2.5.29.17 in DER.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// What a certificate says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// `None` also when there are several: an allow-list must not be met by the one of two names that happens to fit.
    pub(crate) common_name: Option<String>,
    pub(crate) dns_names: Vec<String>,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

/// Reads a certificate; `None` if it is not one.
pub(crate) fn read(der: &[u8]) -> Option<Facts> {
    let mut certificate = Der(Der(der).take(SEQUENCE)?);
    let mut body = Der(certificate.take(SEQUENCE)?);
    body.optional(VERSION)?;
    body.any()?; // serialNumber
    body.take(SEQUENCE)?; // signature
    body.take(SEQUENCE)?; // issuer
    let mut validity = Der(body.take(SEQUENCE)?);
    let subject = body.take(SEQUENCE)?;
    body.take(SEQUENCE)?; // subjectPublicKeyInfo
    let mut dns_names = Vec::new();
    while let Some((tag, content)) = body.step()? {
        if tag == EXTENSIONS {
            dns_names = alternative_names(Der(content).take(SEQUENCE)?)?;
        }
    }
    Some(Facts {
        common_name: common_name(subject)?,
        dns_names,
        not_before: time(validity.any()?)?,
        not_after: time(validity.any()?)?,
    })
}

fn common_name(subject: &[u8]) -> Option<Option<String>> {
    let mut found = Vec::new();
    let mut names = Der(subject);
    while let Some((tag, content)) = names.step()? {
        if tag != SET {
            return None;
        }
        let mut attributes = Der(content);
        while let Some((_, content)) = attributes.step()? {
            let mut attribute = Der(content);
            if attribute.take(OID)? == COMMON_NAME {
                found.push(text(attribute.any()?)?);
            }
        }
    }
    Some(match found.len() {
        1 => found.pop(),
        _ => None,
    })
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<String>> {
    let mut extensions = Der(extensions);
    let mut names = Vec::new();
    while let Some((_, content)) = extensions.step()? {
        let mut extension = Der(content);
        if extension.take(OID)? != SUBJECT_ALT_NAME {
            continue;
        }
        extension.optional(BOOLEAN)?;
        let value = extension.take(OCTET_STRING)?;
        let mut general = Der(Der(value).take(SEQUENCE)?);
        while let Some((tag, content)) = general.step()? {
            if tag == DNS_NAME {
                names.push(text((IA5_STRING, content))?);
            }
        }
    }
    Some(names)
}

/// A string of a kind that is text today, without control characters: a NUL inside a name has fooled verifiers before.
fn text((tag, content): (u8, &[u8])) -> Option<String> {
    let readable = matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING);
    let text = std::str::from_utf8(content).ok()?;
    (readable && !text.contains(char::is_control)).then(|| text.to_owned())
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`, the only two forms RFC 5280 allows.
fn time((tag, content): (u8, &[u8])) -> Option<Timestamp> {
    let digits = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            // RFC 5280, section 4.1.2.5.1: two digits stand for 1950 to 2049.
            (
                if year < 50 {
                    year.checked_add(2000)?
                } else {
                    year.checked_add(1900)?
                },
                rest,
            )
        }
        (GENERALIZED_TIME, 14) => {
            let (year, rest) = digits.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let pair = |at: usize| rest.get(at..at.checked_add(2)?)?.parse::<i8>().ok();
    let moment = DateTime::new(year, pair(0)?, pair(2)?, pair(4)?, pair(6)?, pair(8)?, 0).ok()?;
    // "99991231235959Z" means "never" (RFC 5280, section 4.1.2.5) and lies just past what a timestamp can hold.
    Some(
        moment
            .to_zoned(TimeZone::UTC)
            .map_or(Timestamp::MAX, |zoned| zoned.timestamp()),
    )
}

/// A cursor over consecutive DER values.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The next value's tag and content. The outer `None` is an error, the inner one the end.
    fn step(&mut self) -> Option<Option<(u8, &'a [u8])>> {
        let Some((tag, rest)) = self.0.split_first() else {
            return Some(None);
        };
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match *first {
            short @ 0..=0x7f => (usize::from(short), rest),
            // Up to 16 MiB of content; certificates are a few kilobytes. 0x80 (indefinite) is not DER.
            long @ 0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                let length = bytes.iter().fold(0_usize, |length, byte| {
                    length
                        .saturating_mul(256)
                        .saturating_add(usize::from(*byte))
                });
                (length, rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Some((*tag, content)))
    }

    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        self.step()?
    }

    fn take(&mut self, wanted: u8) -> Option<&'a [u8]> {
        let (tag, content) = self.any()?;
        (tag == wanted).then_some(content)
    }

    /// Steps over a value that may be absent.
    fn optional(&mut self, tag: u8) -> Option<()> {
        if self.0.first() == Some(&tag) {
            self.any()?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(common_names: &[&str], dns_names: &[&str]) -> Vec<u8> {
        let names: Vec<String> = dns_names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        for name in common_names {
            params.distinguished_name.push(DnType::CommonName, *name);
        }
        params.not_before = date_time_ymd(2024, 2, 29);
        params.not_after = date_time_ymd(2061, 12, 31);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .der()
            .to_vec()
    }

    #[test]
    fn names_and_validity_are_read() {
        let facts = read(&certificate(&["kube-apiserver"], &["a.b.svc", "x.y"])).unwrap();
        assert_eq!(facts.common_name.as_deref(), Some("kube-apiserver"));
        assert_eq!(facts.dns_names, ["a.b.svc", "x.y"]);
        assert_eq!(facts.not_before.to_string(), "2024-02-29T00:00:00Z");
        assert_eq!(facts.not_after.to_string(), "2061-12-31T00:00:00Z");
    }

    #[test]
    fn a_certificate_without_names_is_read_too() {
        let facts = read(&certificate(&[], &[])).unwrap();
        assert_eq!((facts.common_name, facts.dns_names), (None, Vec::new()));
    }

    #[test]
    fn two_common_names_are_none() {
        let attribute = |name: &[u8]| {
            let mut value = vec![UTF8_STRING, u8::try_from(name.len()).unwrap()];
            value.extend_from_slice(name);
            let mut inner = vec![OID, 3, 0x55, 0x04, 0x03];
            inner.extend(value);
            let length = u8::try_from(inner.len()).unwrap();
            let mut set = vec![SET, length + 2, SEQUENCE, length];
            set.extend(inner);
            set
        };
        let one = attribute(b"a");
        assert_eq!(common_name(&one), Some(Some("a".to_owned())));
        let two = [one, attribute(b"b")].concat();
        assert_eq!(common_name(&two), Some(None));
        assert_eq!(common_name(&attribute(b"a\0b")), None);
    }

    #[test]
    fn times_are_strict() {
        let check = |tag, text: &str, expected: Option<&str>| {
            let read = time((tag, text.as_bytes())).map(|time| time.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        };
        check(UTC_TIME, "491231235959Z", Some("2049-12-31T23:59:59Z"));
        check(UTC_TIME, "500101000000Z", Some("1950-01-01T00:00:00Z"));
        check(
            GENERALIZED_TIME,
            "20500101000000Z",
            Some("2050-01-01T00:00:00Z"),
        );
        check(
            GENERALIZED_TIME,
            "99991231235959Z",
            Some(&Timestamp::MAX.to_string()),
        );
        check(GENERALIZED_TIME, "20501301000000Z", None);
        check(UTC_TIME, "4912312359Z", None);
        check(UTC_TIME, "+91231235959Z", None);
        check(SEQUENCE, "491231235959Z", None);
    }

    #[test]
    fn mutated_certificates_never_panic() {
        let original = certificate(&["kube-apiserver"], &["a.b.svc"]);
        let mut random = super::super::tests::Random::new(7);
        for _ in 0..20_000 {
            let mut bytes = original.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = u8::try_from(random.below(256)).unwrap();
            }
            bytes.truncate(original.len() - random.below(8) * random.below(40));
            let _ = read(&bytes);
        }
        for length in 0..original.len() {
            assert_eq!(read(&original[..length]), None);
        }
    }
}
