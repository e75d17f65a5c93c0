//! The self-managed certificate: what is stored, when it changes, how it is made. Pure but for randomness; the webhook thread
//! (`serve/webhook.rs`) does the reading and writing of the Secret.
//!
//! One Secret holds everything, so that replicas share it and its `resourceVersion` decides who wrote first. A renewal goes
//! through three writes, so that at no moment a certificate is served whose CA is not yet, or no longer, registered:
//!
//! ```text
//! served:     old ------------------------------ new -----------------------
//! caBundle:   old CA | old CA + new CA (settle) | new CA + old CA (settle) | new CA
//! ```
//!
//! Every pair has a CA of its own whose key is forgotten once it has signed: nothing in the cluster can sign a second one.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

/// A certificate is replaced after this share of its life, which leaves a third of it for an outage.
const RENEW_AFTER: f64 = 2.0 / 3.0;
/// How long both CAs are registered before and after the switch: API servers learn of a change within a second or two, other
/// replicas look at the Secret every 10 s.
const SETTLE: Duration = Duration::from_secs(60);
/// Clocks of nodes differ: a certificate that begins now would be refused by an API server whose clock is behind.
const BACKDATE: Duration = Duration::from_secs(300);

/// One serving certificate with the CA that signed it. PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) ca: String,
    /// Seconds since the epoch; kept beside the certificate so that nobody has to parse one to know its age.
    pub(crate) made: i64,
    pub(crate) expires: i64,
}

/// Prints nothing secret.
impl std::fmt::Debug for Pair {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Pair(expires {})", self.expires)
    }
}

/// What the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The pair that is served.
    pub(crate) current: Pair,
    /// The pair that will be served once its CA is registered everywhere.
    pub(crate) next: Option<Pair>,
    /// The CA of the pair served before, while other replicas may still serve it.
    pub(crate) previous_ca: Option<String>,
    /// When the last of the writes above happened, in seconds since the epoch.
    pub(crate) changed: i64,
    /// The names the certificate was made for, joined by commas.
    pub(crate) names: String,
}

/// What a certificate is made for and how long it lives.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) names: Vec<String>,
    pub(crate) lifetime: Duration,
}

impl Stored {
    /// All CAs that callers must trust at this moment.
    pub(crate) fn bundle(&self) -> String {
        let next = self.next.as_ref().map(|pair| pair.ca.as_str());
        [
            Some(self.current.ca.as_str()),
            next,
            self.previous_ca.as_deref(),
        ]
        .into_iter()
        .flatten()
        .map(|pem| format!("{}\n", pem.trim_end()))
        .collect()
    }
}

/// The state that should be stored instead of `stored`, or `None` if it is right as it is.
pub(crate) fn advance(
    stored: Option<&Stored>,
    wish: &Wish,
    now: Timestamp,
) -> Result<Option<Stored>, rcgen::Error> {
    let seconds = now.as_second();
    let names = wish.names.join(",");
    let Some(stored) = stored else {
        return first(wish, names, seconds).map(Some);
    };
    // An expired certificate serves nobody, and one for another name neither: there is nothing to be gentle with.
    if stored.names != names || seconds >= stored.current.expires {
        return first(wish, names, seconds).map(Some);
    }
    let settled = seconds.saturating_sub(stored.changed) >= whole_seconds(settle(wish.lifetime));
    let mut changed = stored.clone();
    changed.changed = seconds;
    if let Some(next) = &stored.next {
        if !settled {
            return Ok(None);
        }
        changed.previous_ca = Some(stored.current.ca.clone());
        changed.current = next.clone();
        changed.next = None;
        return Ok(Some(changed));
    }
    if stored.previous_ca.is_some() && settled {
        changed.previous_ca = None;
        return Ok(Some(changed));
    }
    if stored.previous_ca.is_none() && seconds >= renewal(&stored.current) {
        changed.next = Some(make(wish, seconds)?);
        return Ok(Some(changed));
    }
    Ok(None)
}

/// How often the Secret has to be looked at, so that no step of a renewal is late.
pub(crate) fn poll_interval(lifetime: Duration) -> Duration {
    (settle(lifetime) / 2).clamp(Duration::from_millis(500), Duration::from_secs(10))
}

/// Both CAs stand side by side for a minute, or less where a certificate lives for less than ten.
fn settle(lifetime: Duration) -> Duration {
    SETTLE.min(lifetime / 10)
}

fn renewal(pair: &Pair) -> i64 {
    let life = pair.expires.saturating_sub(pair.made);
    let life = Duration::from_secs(u64::try_from(life).unwrap_or(0));
    pair.made
        .saturating_add(whole_seconds(life.mul_f64(RENEW_AFTER)))
}

fn whole_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn first(wish: &Wish, names: String, seconds: i64) -> Result<Stored, rcgen::Error> {
    Ok(Stored {
        current: make(wish, seconds)?,
        next: None,
        previous_ca: None,
        changed: seconds,
        names,
    })
}

/// Makes a CA and one serving certificate signed by it, both valid for the same time.
fn make(wish: &Wish, seconds: i64) -> Result<Pair, rcgen::Error> {
    let lifetime = whole_seconds(wish.lifetime);
    let expires = seconds.saturating_add(lifetime);
    let epoch = date_time_ymd(1970, 1, 1);
    let begin = u64::try_from(seconds)
        .unwrap_or(0)
        .saturating_sub(BACKDATE.as_secs());
    let not_before = epoch + Duration::from_secs(begin);
    let not_after = epoch + Duration::from_secs(u64::try_from(expires).unwrap_or(0));

    let mut ca = CertificateParams::default();
    ca.distinguished_name = DistinguishedName::new();
    ca.distinguished_name.push(
        DnType::CommonName,
        format!("shell-operator webhook CA {seconds}"),
    );
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    ca.not_before = not_before;
    ca.not_after = not_after;
    let ca_key = KeyPair::generate()?;
    let ca_pem = ca.self_signed(&ca_key)?.pem();

    let mut leaf = CertificateParams::new(wish.names.clone())?;
    leaf.distinguished_name = DistinguishedName::new();
    leaf.distinguished_name.push(
        DnType::CommonName,
        wish.names.first().map_or("shell-operator", String::as_str),
    );
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    leaf.not_before = not_before;
    leaf.not_after = not_after;
    let leaf_key = KeyPair::generate()?;
    let issuer = Issuer::new(ca, ca_key);
    let certificate = leaf.signed_by(&leaf_key, &issuer)?.pem();

    Ok(Pair {
        certificate,
        key: leaf_key.serialize_pem(),
        ca: ca_pem,
        made: seconds,
        expires,
    })
}

/// Keys of the Secret. `tls.crt`, `tls.key` and `ca.crt` are what every other tool expects in a TLS Secret.
mod key {
    pub(super) const CERTIFICATE: &str = "tls.crt";
    pub(super) const KEY: &str = "tls.key";
    pub(super) const CA: &str = "ca.crt";
    pub(super) const NEXT_CERTIFICATE: &str = "next-tls.crt";
    pub(super) const NEXT_KEY: &str = "next-tls.key";
    pub(super) const NEXT_CA: &str = "next-ca.crt";
    pub(super) const PREVIOUS_CA: &str = "previous-ca.crt";
    /// Times and names, one `name=value` a line.
    pub(super) const STATE: &str = "state";
}

/// The content of the Secret for a state. Values are plain text, not yet base64.
pub(crate) fn to_secret(stored: &Stored) -> BTreeMap<String, String> {
    let mut content = BTreeMap::new();
    let mut put = |key: &str, value: &str| {
        content.insert(key.to_owned(), value.to_owned());
    };
    put(key::CERTIFICATE, &stored.current.certificate);
    put(key::KEY, &stored.current.key);
    put(key::CA, &stored.current.ca);
    let mut state = format!(
        "changed={}\nmade={}\nexpires={}\nnames={}\n",
        stored.changed, stored.current.made, stored.current.expires, stored.names
    );
    if let Some(next) = &stored.next {
        put(key::NEXT_CERTIFICATE, &next.certificate);
        put(key::NEXT_KEY, &next.key);
        put(key::NEXT_CA, &next.ca);
        state.push_str(&format!(
            "next-made={}\nnext-expires={}\n",
            next.made, next.expires
        ));
    }
    if let Some(ca) = &stored.previous_ca {
        put(key::PREVIOUS_CA, ca);
    }
    put(key::STATE, &state);
    content
}

/// Reads back what `to_secret` wrote. `None` if anything is missing or unreadable: then a new state is made.
pub(crate) fn from_secret(content: &BTreeMap<String, String>) -> Option<Stored> {
    let text = |key: &str| content.get(key).filter(|value| !value.is_empty()).cloned();
    let state: BTreeMap<&str, &str> = content
        .get(key::STATE)?
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let number = |name: &str| state.get(name)?.parse::<i64>().ok();
    let next = text(key::NEXT_CERTIFICATE).and_then(|certificate| {
        Some(Pair {
            certificate,
            key: text(key::NEXT_KEY)?,
            ca: text(key::NEXT_CA)?,
            made: number("next-made")?,
            expires: number("next-expires")?,
        })
    });
    Some(Stored {
        current: Pair {
            certificate: text(key::CERTIFICATE)?,
            key: text(key::KEY)?,
            ca: text(key::CA)?,
            made: number("made")?,
            expires: number("expires")?,
        },
        next,
        previous_ca: text(key::PREVIOUS_CA),
        changed: number("changed")?,
        names: (*state.get("names")?).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    fn wish() -> Wish {
        Wish {
            names: vec!["svc.ns.svc".to_owned(), "127.0.0.1".to_owned()],
            lifetime: Duration::from_secs(90 * 24 * 3600),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_renewal_never_serves_a_certificate_whose_ca_is_not_registered() {
        let start = 1_800_000_000;
        let first = advance(None, &wish(), at(start)).unwrap().unwrap();
        let quiet = advance(Some(&first), &wish(), at(start + 59 * DAY)).unwrap();
        assert_eq!(quiet, None, "nothing happens before two thirds of the life");

        let announced = advance(Some(&first), &wish(), at(start + 60 * DAY))
            .unwrap()
            .unwrap();
        assert_eq!(announced.current, first.current, "the old pair is served");
        let new = announced.next.clone().unwrap();
        assert!(announced.bundle().contains(first.current.ca.trim_end()));
        assert!(announced.bundle().contains(new.ca.trim_end()));
        let early = advance(Some(&announced), &wish(), at(start + 60 * DAY + 59)).unwrap();
        assert_eq!(early, None, "the new CA settles first");

        let switched = advance(Some(&announced), &wish(), at(start + 60 * DAY + 60))
            .unwrap()
            .unwrap();
        assert_eq!(switched.current, new);
        assert!(switched.bundle().contains(first.current.ca.trim_end()));

        let done = advance(Some(&switched), &wish(), at(start + 60 * DAY + 120))
            .unwrap()
            .unwrap();
        assert_eq!(done.current, new);
        assert!(!done.bundle().contains(first.current.ca.trim_end()));
        let quiet = advance(Some(&done), &wish(), at(start + 61 * DAY)).unwrap();
        assert_eq!(quiet, None);
    }

    #[test]
    fn an_expired_or_misnamed_certificate_is_replaced_at_once() {
        let first = advance(None, &wish(), at(1_800_000_000)).unwrap().unwrap();
        let late = advance(Some(&first), &wish(), at(first.current.expires))
            .unwrap()
            .unwrap();
        assert_ne!(late.current, first.current);
        let mut other = wish();
        other.names = vec!["other.ns.svc".to_owned()];
        let renamed = advance(Some(&first), &other, at(1_800_000_001))
            .unwrap()
            .unwrap();
        assert_eq!(renamed.names, "other.ns.svc");
    }

    #[test]
    fn the_secret_reads_back_as_written_and_garbage_is_refused() {
        let first = advance(None, &wish(), at(1_800_000_000)).unwrap().unwrap();
        let announced = advance(Some(&first), &wish(), at(1_800_000_000 + 60 * DAY))
            .unwrap()
            .unwrap();
        for stored in [first, announced] {
            assert_eq!(from_secret(&to_secret(&stored)), Some(stored.clone()));
            let mut broken = to_secret(&stored);
            broken.insert("state".to_owned(), "made=yesterday".to_owned());
            assert_eq!(from_secret(&broken), None);
            broken.clear();
            assert_eq!(from_secret(&broken), None);
        }
    }

    #[test]
    fn debug_output_holds_no_key() {
        let first = advance(None, &wish(), at(1_800_000_000)).unwrap().unwrap();
        assert!(!format!("{first:?}").contains("PRIVATE"));
    }
}
