//! Who may ask. Judges a request by its head, before its body is read and before anything is started for it.
//!
//! The client certificate itself was checked by TLS; here it is only asked whether it bears an allowed name, and whether the
//! request carries the token or password that the file names (AW-57). Runs on connection threads; owns the file's last content.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::http::Head;
use super::{Response, probe, x509};

/// LIMIT: a file of tokens and passwords; a service-account token is about 1 KiB.
const MAX_FILE: u64 = 64 * 1024;

/// What a caller must show besides a certificate that TLS accepted.
#[derive(Default)]
pub(crate) struct Callers {
    /// Names of which the certificate must bear one; empty for any.
    names: Vec<String>,
    secrets: Option<SecretFile>,
}

/// A file with one bearer token or one `user:password` a line, read again when it changes.
struct SecretFile {
    path: PathBuf,
    read: Mutex<(Option<SystemTime>, Vec<String>)>,
}

impl Callers {
    pub(crate) fn new(names: Vec<String>, file: Option<PathBuf>) -> Result<Callers, String> {
        let secrets = file.map(|path| SecretFile {
            path,
            read: Mutex::default(),
        });
        // At the start there is nothing that was accepted before, so a bad file is fatal.
        if let Some(secrets) = &secrets {
            secrets.changed(None)?;
        }
        Ok(Callers { names, secrets })
    }

    /// Judges a request by its head: health is for everybody; a review comes from a known caller, by POST, as JSON. `None` lets
    /// it pass.
    pub(crate) fn screen(&self, head: &Head) -> Option<Response> {
        if probe::is_health(&head.path) && head.method == "GET" {
            return None;
        }
        if let Some(refusal) = self.refusal(head) {
            return Some(refusal);
        }
        if head.method != "POST" {
            return Some(Response::text(405, "only POST is served here\n"));
        }
        let media_type = head
            .header("content-type")
            .and_then(|value| value.split(';').next())
            .unwrap_or_default();
        (!media_type.trim().eq_ignore_ascii_case("application/json"))
            .then(|| Response::text(415, "only application/json is served here\n"))
    }

    /// The refusal for a caller who may not ask; `None` for one who may.
    fn refusal(&self, head: &Head) -> Option<Response> {
        if !self.names.is_empty() && !self.bears_a_name(head) {
            return Some(Response::text(
                403,
                "the client certificate bears none of the allowed names\n",
            ));
        }
        let accepted = self.secrets.as_ref()?.accepted();
        let shown = head.header("authorization").and_then(credential);
        let known = shown.is_some_and(|shown| {
            accepted
                .iter()
                .fold(false, |found, secret| equal(secret, &shown) | found)
        });
        (!known).then(|| Response {
            headers: &[("WWW-Authenticate", "Bearer")],
            ..Response::text(401, "a bearer token or user and password are required\n")
        })
    }

    fn bears_a_name(&self, head: &Head) -> bool {
        let facts = head
            .peer
            .certificate
            .as_ref()
            .and_then(|certificate| x509::read(certificate));
        facts.is_some_and(|facts| {
            facts
                .common_name
                .iter()
                .chain(&facts.dns_names)
                .any(|name| self.names.contains(name))
        })
    }
}

impl SecretFile {
    /// The secrets that are accepted now. While the file cannot be read, as in the middle of a Secret's update, those that were
    /// accepted before still are.
    fn accepted(&self) -> Vec<String> {
        let known = self.known();
        match self.changed(known.0) {
            Ok(None) => known.1,
            Ok(Some((modified, secrets))) => {
                *self.read.lock().unwrap_or_else(PoisonError::into_inner) =
                    (modified, secrets.clone());
                secrets
            }
            Err(error) => {
                log::warn!("{error}; still using what it held before");
                known.1
            }
        }
    }

    fn known(&self) -> (Option<SystemTime>, Vec<String>) {
        self.read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The content, if it is newer than `known`. Reads no more than `MAX_FILE` and only a regular file.
    #[expect(clippy::type_complexity, reason = "a time and a list, used twice")]
    fn changed(
        &self,
        known: Option<SystemTime>,
    ) -> Result<Option<(Option<SystemTime>, Vec<String>)>, String> {
        let path = self.path.display();
        let named = |error| format!("file with caller credentials '{path}': {error}");
        let found = fs::metadata(&self.path).map_err(named)?;
        if !found.is_file() || found.len() > MAX_FILE {
            return Err(format!(
                "file with caller credentials '{path}' is no regular file of at most {MAX_FILE} bytes"
            ));
        }
        let modified = found.modified().ok();
        if known.is_some() && known == modified {
            return Ok(None);
        }
        let text = fs::read_to_string(&self.path).map_err(named)?;
        let secrets: Vec<String> = text
            .lines()
            .map(|line| line.trim().to_owned())
            .filter(|line| !line.is_empty())
            .collect();
        if secrets.is_empty() {
            return Err(format!(
                "file with caller credentials '{path}' is empty; write a token or user:password into it"
            ));
        }
        Ok(Some((modified, secrets)))
    }
}

/// What an `Authorization` field shows: a token, or `user:password`.
fn credential(field: &str) -> Option<String> {
    let (scheme, rest) = field.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    if scheme.eq_ignore_ascii_case("basic") {
        let decoded = BASE64_STANDARD.decode(rest.trim()).ok()?;
        return String::from_utf8(decoded)
            .ok()
            .filter(|pair| pair.contains(':'));
    }
    None
}

/// Compares without telling by its duration how far the texts agree.
fn equal(left: &str, right: &str) -> bool {
    let differences = left
        .bytes()
        .zip(right.bytes())
        .fold(0, |found, (a, b)| found | (a ^ b));
    left.len() == right.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_the_authorization_field() {
        let cases = [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("Basic dXNlcjpwYXNz", Some("user:pass")),
            ("Basic dXNlcg==", None),
            ("Basic %%%", None),
            ("Digest x", None),
            ("abc", None),
        ];
        for (field, expected) in cases {
            assert_eq!(credential(field).as_deref(), expected, "{field}");
        }
    }

    #[test]
    fn comparison_is_exact() {
        assert!(equal("secret", "secret"));
        assert!(!equal("secret", "secre"));
        assert!(!equal("secret", "secreT"));
        assert!(!equal("", "x"));
    }
}
