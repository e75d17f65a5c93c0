//! The grammar of HTTP/1.1 as we accept it: bytes -> `Head`, `Response` -> bytes. Pure: no socket, no clock, no thread.
//!
//! `httparse` reads the request line and the header fields; this file decides what is unambiguous enough to be served. Two
//! parties that disagree about where a request ends can be made to see different requests (RFC 9112, section 11.2), so
//! whatever could be read in two ways is refused with 400 and the connection is closed. It never repairs a request.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::CertificateDer;

use super::wire::Address;

/// LIMIT: header fields of one request. The API server sends about ten, tracing and a proxy may double that.
const HEADER_FIELDS: usize = 64;

/// Fields that decide framing, routing or permission: two of them could be read in two ways, so a second one is refused.
const SINGLE_FIELDS: [&str; 6] = [
    "authorization",
    "content-length",
    "content-type",
    "expect",
    "host",
    "transfer-encoding",
];

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) address: Address,
    /// The verified client certificate; `None` without TLS or where no client CA is set.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

/// Everything of a request but its body.
#[derive(Clone)]
pub(crate) struct Head {
    pub(crate) method: String,
    /// The path as it was sent, beginning with `/`. It is never decoded or normalized: routes are exact look-ups.
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    /// When the first byte of the request arrived; deadlines count from here.
    pub(crate) received: Instant,
    pub(crate) peer: Arc<Peer>,
    /// Names in lower case, in the order sent.
    headers: Vec<(String, Vec<u8>)>,
    pub(super) framing: Framing,
    pub(super) keep_alive: bool,
    pub(super) expects_continue: bool,
}

/// Where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Empty,
    Length(usize),
    Chunked,
}

pub(crate) struct Request {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

/// An answer. Everything that becomes a header is `'static`, so that no input can end up in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) headers: &'static [(&'static str, &'static str)],
    pub(crate) body: Vec<u8>,
    /// Close the connection after this answer.
    pub(crate) close: bool,
}

/// Why a request is not served. Every one of them ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed(&'static str),
    HeadTooLarge { limit: usize },
    TooManyFields,
    BodyTooLarge { limit: usize },
    TooSlow,
    UnknownExpectation,
    TooManyConnections,
    TooManyBodies,
}

/// Finds the end of a head, looking only at the bytes from `scanned` on, so that a drip of single bytes costs linear time.
/// A line feed without its carriage return is refused at once: other software takes it for a line end, and we do not.
pub(super) fn head_end(buffer: &[u8], scanned: usize) -> Result<Option<usize>, Refusal> {
    // A method is made of letters here. This also turns away a TLS hello on a plain port without waiting for more of it.
    if buffer
        .first()
        .is_some_and(|byte| !byte.is_ascii_uppercase())
    {
        return Err(Refusal::Malformed(
            "the request line does not begin with a method",
        ));
    }
    for (at, _) in buffer
        .iter()
        .enumerate()
        .skip(scanned)
        .filter(|(_, byte)| **byte == b'\n')
    {
        let before = buffer.get(..at).unwrap_or_default();
        if !before.ends_with(b"\r") {
            return Err(Refusal::Malformed("a line ends without a carriage return"));
        }
        if before.ends_with(b"\r\n\r") {
            return Ok(Some(at.saturating_add(1)));
        }
    }
    Ok(None)
}

impl Head {
    /// Reads a complete head, as `head_end` cut it out.
    pub(super) fn parse(
        bytes: &[u8],
        received: Instant,
        peer: &Arc<Peer>,
        body_limit: usize,
    ) -> Result<Head, Refusal> {
        let mut fields = [httparse::EMPTY_HEADER; HEADER_FIELDS];
        let mut parsed = httparse::Request::new(&mut fields);
        match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(_) => return Err(Refusal::Malformed("the head is incomplete")),
            Err(httparse::Error::TooManyHeaders) => return Err(Refusal::TooManyFields),
            Err(error) => return Err(Refusal::Malformed(grammar_error(error))),
        }
        let (path, query) = split_target(parsed.path.unwrap_or_default())?;
        let mut head = Head {
            method: parsed.method.unwrap_or_default().to_owned(),
            path,
            query,
            received,
            peer: Arc::clone(peer),
            headers: parsed
                .headers
                .iter()
                .map(|field| (field.name.to_ascii_lowercase(), field.value.to_vec()))
                .collect(),
            framing: Framing::Empty,
            keep_alive: false,
            expects_continue: false,
        };
        head.decide(parsed.version == Some(1), body_limit)?;
        Ok(head)
    }

    /// The value of a header field, by its name in lower case; `None` also when it is not text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.raw(name)
            .and_then(|value| std::str::from_utf8(value).ok())
    }

    fn raw(&self, name: &str) -> Option<&[u8]> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_slice())
    }

    /// Fills in what follows from the fields: framing, persistence, expectation.
    fn decide(&mut self, modern: bool, body_limit: usize) -> Result<(), Refusal> {
        for name in SINGLE_FIELDS {
            if self
                .headers
                .iter()
                .filter(|(known, _)| known == name)
                .count()
                > 1
            {
                return Err(Refusal::Malformed(
                    "a header field that may occur once occurs twice",
                ));
            }
        }
        if modern && self.raw("host").is_none_or(<[u8]>::is_empty) {
            return Err(Refusal::Malformed("the host field is missing"));
        }
        self.framing = match (self.raw("content-length"), self.raw("transfer-encoding")) {
            (None, None) => Framing::Empty,
            (Some(_), Some(_)) => {
                return Err(Refusal::Malformed(
                    "content-length and transfer-encoding exclude each other",
                ));
            }
            (Some(length), None) => content_length(length, body_limit)?,
            (None, Some(coding)) if modern && coding.eq_ignore_ascii_case(b"chunked") => {
                Framing::Chunked
            }
            (None, Some(_)) => {
                return Err(Refusal::Malformed("the transfer-encoding is not chunked"));
            }
        };
        // HTTP/1.0 callers are answered once. Keep-alive was an extension there, and nobody we serve needs it.
        self.keep_alive = modern && !self.headers.iter().any(asks_to_close);
        self.expects_continue = match self.raw("expect") {
            None => false,
            Some(value) if value.eq_ignore_ascii_case(b"100-continue") => {
                modern && self.framing != Framing::Empty
            }
            Some(_) => return Err(Refusal::UnknownExpectation),
        };
        Ok(())
    }
}

fn asks_to_close((name, value): &(String, Vec<u8>)) -> bool {
    name == "connection"
        && value
            .split(|byte| *byte == b',')
            .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// Only the origin form (`/path?query`) made of visible ASCII is a target here.
fn split_target(target: &str) -> Result<(String, Option<String>), Refusal> {
    let visible = target
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !target.starts_with('/') || !visible {
        return Err(Refusal::Malformed("the target is not a path"));
    }
    Ok(match target.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (target.to_owned(), None),
    })
}

/// Digits and nothing else: `+3`, `3x`, `0x3` and `3, 3` each mean something else to somebody.
fn content_length(value: &[u8], limit: usize) -> Result<Framing, Refusal> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::Malformed("the content-length is not a number"));
    }
    let length = std::str::from_utf8(value)
        .ok()
        .and_then(|digits| digits.parse::<usize>().ok());
    match length {
        Some(length) if length <= limit => Ok(Framing::Length(length)),
        // What does not fit into a number is certainly too large.
        _ => Err(Refusal::BodyTooLarge { limit }),
    }
}

fn grammar_error(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header field has a bad name",
        httparse::Error::HeaderValue => "a header field has a bad value",
        httparse::Error::Version => "the protocol version is not HTTP/1.1",
        httparse::Error::NewLine => "a line has a bad end",
        httparse::Error::Token | httparse::Error::Status | httparse::Error::TooManyHeaders => {
            "the request line is bad"
        }
    }
}

impl Response {
    pub(crate) fn text(status: u16, body: impl Into<String>) -> Response {
        Response {
            status,
            content_type: "text/plain; charset=utf-8",
            headers: &[],
            body: body.into().into_bytes(),
            close: false,
        }
    }

    pub(crate) fn json(status: u16, body: Vec<u8>) -> Response {
        Response {
            status,
            content_type: "application/json",
            headers: &[],
            body,
            close: false,
        }
    }

    /// The bytes of the answer. `with_body` is false for HEAD, which is told the length of what it does not get.
    ///
    /// INVARIANT: never a 3xx. The API server follows redirects with its own network position (CVE-2020-8561), so a status
    /// that is not a final 2xx, 4xx or 5xx is a mistake of ours and leaves as 500.
    pub(super) fn encode(&self, with_body: bool, close: bool) -> Vec<u8> {
        let status = match self.status {
            200..=299 | 400..=599 => self.status,
            _ => 500,
        };
        let mut head = format!(
            "HTTP/1.1 {status} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n",
            reason(status),
            self.content_type,
            self.body.len()
        );
        for (name, value) in self.headers {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        }
        head.push_str(if close {
            "Connection: close\r\n\r\n"
        } else {
            "\r\n"
        });
        let mut bytes = head.into_bytes();
        if with_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

impl Refusal {
    pub(super) fn response(self) -> Response {
        Response {
            close: true,
            ..Response::text(self.status(), format!("{self}\n"))
        }
    }

    fn status(self) -> u16 {
        match self {
            Refusal::Malformed(_) => 400,
            Refusal::TooSlow => 408,
            Refusal::BodyTooLarge { .. } => 413,
            Refusal::UnknownExpectation => 417,
            Refusal::HeadTooLarge { .. } | Refusal::TooManyFields => 431,
            Refusal::TooManyConnections | Refusal::TooManyBodies => 503,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Malformed(what) => write!(out, "bad request: {what}"),
            Refusal::TooManyFields => write!(out, "more than {HEADER_FIELDS} header fields"),
            Refusal::HeadTooLarge { limit } => {
                write!(out, "the request head is larger than {limit} bytes")
            }
            Refusal::BodyTooLarge { limit } => {
                write!(out, "the request body is larger than {limit} bytes")
            }
            Refusal::TooSlow => write!(out, "the request did not arrive in time"),
            Refusal::UnknownExpectation => {
                write!(out, "the only expectation that can be met is 100-continue")
            }
            Refusal::TooManyConnections => write!(out, "too many connections; try again later"),
            Refusal::TooManyBodies => {
                write!(out, "too many requests are being read; try again later")
            }
        }
    }
}

/// The words of RFC 9110 for the statuses in use; a reader of the status line needs the number only.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}
