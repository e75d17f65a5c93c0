//! What the API server sends back: a body that is read within limits, or a `Status` that becomes an error.
//!
//! Runs on the thread that made the call. A `Stream` owns one connection until it is read to its end or dropped. Its limit
//! counts bytes after decompression, because a small gzip can hold gigabytes. Bodies are never logged; only the message of a
//! `Status` is, without control characters and cut to a line.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::http::HeaderMap;
use ureq::http::header::{LOCATION, RETRY_AFTER};

use super::connect;
use super::error::{Call, Error, Fault};

/// LIMIT: how much of an error's body is read. A `Status` about an invalid object lists every wrong field, which stays far
/// below this.
const STATUS_LIMIT: u64 = 256 * 1024;

/// LIMIT: characters of a server's message that are shown. Validation messages of CRDs are long, and the end matters little.
const MESSAGE_LIMIT: usize = 2000;

/// LIMIT: the longest `Retry-After` that is believed. API servers say 1 to 60 seconds.
const RETRY_AFTER_LIMIT: u64 = 600;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: Vec<u8>,
    pub(super) call: Call,
    pub(super) server: String,
}

/// An answer that is read piece by piece. Its errors carry an `Error`: see `Stream::failure`.
pub(crate) struct Stream {
    pub(super) code: u16,
    pub(super) reader: ureq::BodyReader<'static>,
    pub(super) call: Call,
    pub(super) names: Arc<Names>,
    pub(super) limit: u64,
    pub(super) received: u64,
    pub(super) stopped: Arc<AtomicBool>,
}

/// What messages about a failed connection need to say.
pub(super) struct Names {
    pub(super) server: String,
    pub(super) asked: String,
    pub(super) authority: String,
}

impl Answer {
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| {
            if error.is_eof() && !self.body.is_empty() {
                return Error::Transport {
                    call: self.call.clone(),
                    server: self.server.clone(),
                    fault: Fault::Cut {
                        bytes: u64::try_from(self.body.len()).unwrap_or(u64::MAX),
                    },
                };
            }
            Error::NotJson {
                call: self.call.clone(),
                detail: error.to_string(),
            }
        })
    }
}

impl Stream {
    /// Reads the rest, within the limit.
    pub(super) fn whole(mut self) -> Result<Answer, Error> {
        let mut body = Vec::new();
        self.read_to_end(&mut body)
            .map_err(|error| self.failure(error))?;
        Ok(Answer {
            body,
            call: self.call.clone(),
            server: self.names.server.clone(),
        })
    }

    /// What an error of `read` means.
    pub(crate) fn failure(&self, error: io::Error) -> Error {
        match error.downcast::<Error>() {
            Ok(error) => error,
            Err(error) => self.transport(&ureq::Error::Io(error)),
        }
    }

    /// The error for an answer that ended too soon.
    pub(super) fn cut(&self) -> Error {
        self.broken(Fault::Cut {
            bytes: self.received,
        })
    }

    pub(super) fn broken(&self, fault: Fault) -> Error {
        Error::Transport {
            call: self.call.clone(),
            server: self.names.server.clone(),
            fault,
        }
    }

    fn transport(&self, error: &ureq::Error) -> Error {
        if self.stopped.load(Ordering::Relaxed) {
            return Error::Stopped;
        }
        let names = &self.names;
        Error::Transport {
            call: self.call.clone(),
            server: names.server.clone(),
            fault: connect::fault(error, &names.asked, &names.authority, Some(self.received)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self
            .reader
            .read(buffer)
            .map_err(|error| io::Error::other(self.transport(&ureq::Error::from(error))))?;
        // After `shutdown` a body without a length looks as if it had ended well.
        if count == 0 && self.stopped.load(Ordering::Relaxed) {
            return Err(io::Error::other(Error::Stopped));
        }
        self.received = self
            .received
            .saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        if self.received > self.limit {
            return Err(io::Error::other(Error::TooLarge {
                call: self.call.clone(),
                limit: self.limit,
            }));
        }
        Ok(count)
    }
}

/// Turns an answer that is no success into an error.
pub(super) fn refusal(headers: &HeaderMap, mut stream: Stream) -> Error {
    let call = stream.call.clone();
    let code = stream.code;
    if (300..400).contains(&code) {
        let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.and_then(|text| text.split('?').next());
        return Error::Redirect {
            call,
            code,
            location: location.map_or("nowhere".to_owned(), readable),
        };
    }
    let wait = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.trim().parse::<u64>().ok());
    stream.limit = STATUS_LIMIT;
    let mut body = Vec::new();
    // A body that is cut or too long still has a status code, which says more than the cut.
    let _ = stream.read_to_end(&mut body);
    status(call, code, wait, &body)
}

#[derive(Deserialize)]
struct Status {
    kind: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    details: Option<Details>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
}

/// The error that a `Status` object stands for.
pub(super) fn status(call: Call, code: u16, wait: Option<u64>, body: &[u8]) -> Error {
    let found = serde_json::from_slice::<Status>(body)
        .ok()
        .filter(|status| status.kind == "Status");
    let (reason, message, asked) = match found {
        Some(status) => (
            status.reason,
            readable(&status.message),
            status
                .details
                .and_then(|details| details.retry_after_seconds),
        ),
        None => (
            String::new(),
            readable(&String::from_utf8_lossy(body)),
            None,
        ),
    };
    let reason = if reason.is_empty() {
        ureq::http::StatusCode::from_u16(code)
            .ok()
            .and_then(|status| status.canonical_reason())
            .unwrap_or_default()
            .to_owned()
    } else {
        readable(&reason)
    };
    Error::Status {
        call,
        code,
        reason,
        message,
        retry_after: wait
            .or(asked)
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.min(RETRY_AFTER_LIMIT))),
    }
}

/// One line of text from outside, without anything that could forge a log line.
fn readable(text: &str) -> String {
    let mut line: String = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    if let Some((end, _)) = line.char_indices().nth(MESSAGE_LIMIT) {
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: u16, wait: Option<u64>, body: &str, expected: &str, after: Option<u64>) {
        let call = Call {
            method: "GET",
            path: "/x".to_owned(),
        };
        let error = status(call, code, wait, body.as_bytes());
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.retry_after().map(|wait| wait.as_secs()), after);
    }

    #[test]
    fn a_status_becomes_an_error_with_its_fields() {
        check(
            404,
            None,
            r#"{"kind":"Status","message":"pods \"a\" not found","reason":"NotFound","code":404}"#,
            "GET /x: 404 NotFound: pods \"a\" not found",
            None,
        );
        check(
            429,
            Some(7),
            r#"{"kind":"Status","message":"slow down","reason":"TooManyRequests","details":{"retryAfterSeconds":3}}"#,
            "GET /x: 429 TooManyRequests: slow down",
            Some(7),
        );
        check(
            504,
            None,
            r#"{"kind":"Status","message":"too large","details":{"retryAfterSeconds":3}}"#,
            "GET /x: 504 Gateway Timeout: too large",
            Some(3),
        );
        check(
            503,
            Some(100_000),
            "",
            "GET /x: 503 Service Unavailable",
            Some(600),
        );
    }

    #[test]
    fn a_body_that_is_no_status_is_shown_as_one_line() {
        check(
            502,
            None,
            "<html>\r\n\u{1b}[31mbad\ngateway",
            "GET /x: 502 Bad Gateway: <html> [31mbad gateway",
            None,
        );
        let long = readable(&"é".repeat(MESSAGE_LIMIT + 5));
        assert_eq!(long.chars().count(), MESSAGE_LIMIT + 1);
    }
}
