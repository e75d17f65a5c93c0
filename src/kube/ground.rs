//! What all watches of one API server know together: whether it can be reached, and whether it streams lists.
//!
//! Shared by `Arc` between the watches' threads, each of which asks for itself.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;

use super::answer::Stream;
use super::client::Client;
use super::error::Error;
use super::outage::Outage;

/// The first minor version of Kubernetes 1 that streams lists by default. Older ones take the question for a plain watch, which
/// has no end that could be waited for.
const STREAMING_SINCE: u32 = 32;

/// LIMIT: silence in the answer to a probe.
const PROBE_SILENCE: Duration = Duration::from_secs(5);

/// LIMIT: bytes of the answer of `/version`, which has about 300.
const VERSION_LIMIT: u64 = 64 * 1024;

#[derive(Default)]
pub(crate) struct Ground {
    pub(super) outage: Outage,
    new_enough: OnceLock<bool>,
    refused: AtomicBool,
}

#[derive(Deserialize)]
struct Version {
    major: String,
    minor: String,
}

impl Ground {
    /// Whether a streaming list is worth asking for.
    pub(super) fn streams_lists(&self, client: &Client) -> bool {
        if self.refused.load(Ordering::Relaxed) {
            return false;
        }
        if let Some(known) = self.new_enough.get() {
            return *known;
        }
        match version(client) {
            Ok(version) => *self.new_enough.get_or_init(|| version.streams()),
            // The list itself will show what is wrong, and the next one asks again.
            Err(_) => false,
        }
    }

    /// The server refused a streaming list: nobody else has to try.
    pub(super) fn cannot_stream(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// True if the server answers anything at all.
    pub(super) fn answers(client: &Client) -> bool {
        match version(client) {
            Ok(_) => true,
            Err(error) => error.code().is_some() || matches!(error, Error::NotJson { .. }),
        }
    }
}

/// Asks as a watch does, since calls are under a rate limit and share their connections with others.
fn version(client: &Client) -> Result<Version, Error> {
    let mut stream: Stream = client.watch("/version", PROBE_SILENCE)?;
    stream.limit = VERSION_LIMIT;
    stream.whole()?.json()
}

impl Version {
    /// Some distributions write the minor version as `32+`.
    fn streams(&self) -> bool {
        let minor = self.minor.trim_end_matches(|c: char| !c.is_ascii_digit());
        self.major == "1"
            && minor
                .parse()
                .is_ok_and(|minor: u32| minor >= STREAMING_SINCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streaming_lists_are_asked_of_servers_that_know_them() {
        for (major, minor, expected) in [
            ("1", "36", true),
            ("1", "32+", true),
            ("1", "31", false),
            ("1", "", false),
            ("2", "40", false),
        ] {
            let version = Version {
                major: major.to_owned(),
                minor: minor.to_owned(),
            };
            assert_eq!(version.streams(), expected, "{major}.{minor}");
        }
    }
}
