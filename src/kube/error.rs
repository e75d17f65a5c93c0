//! What can go wrong between us and the API server.
//!
//! The data is in the variant, the words are in `Display`, and whether to try again is a method, because the caller of a watch
//! must tell 410 from 403. Messages name the call by method and path; the query is left out, since selectors may hold what
//! does not belong in a log. Nothing here does I/O.

use std::fmt;
use std::time::Duration;

#[derive(Debug)]
pub(crate) enum Error {
    /// The configuration of the cluster cannot be used. The text names the file and the remedy.
    Config(String),
    /// A token file or an `exec` plugin gave us nothing to log in with.
    Credential(String),
    /// The API server answered with something other than success.
    Status {
        call: Call,
        code: u16,
        reason: String,
        message: String,
        retry_after: Option<Duration>,
    },
    /// A redirect, which we never follow: it would carry our token to a place nobody configured.
    Redirect {
        call: Call,
        code: u16,
        location: String,
    },
    /// No answer, or not a whole one.
    Transport {
        call: Call,
        server: String,
        fault: Fault,
    },
    /// The answer is longer than the caller can use.
    TooLarge { call: Call, limit: u64 },
    /// The answer is not the JSON that was asked for.
    NotJson { call: Call, detail: String },
    /// Discovery has no such kind.
    UnknownResource(Box<Unknown>),
    /// A name or a namespace that would lead to something else than the object it names.
    NotASegment,
    /// `shutdown` was called: the process is ending.
    Stopped,
}

/// Method and path of a call, without its query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) path: String,
}

/// Why there was no whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Refused,
    Unreachable(String),
    HostNotFound,
    Timeout(&'static str),
    UnknownAuthority { authority: String },
    NameMismatch { asked: String, presented: String },
    CertificateExpired { not_after: String },
    CertificateNotYetValid { not_before: String },
    ClientCertificateRefused { alert: String },
    Tls(String),
    Closed,
    Cut { bytes: u64 },
    Proxy(String),
    Protocol(String),
}

/// A kind that discovery does not know, and what it knows instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown {
    pub(crate) name: String,
    pub(crate) api_version: Option<String>,
    /// The nearest right name, as a phrase.
    pub(crate) hint: Option<String>,
    /// Group versions whose server did not answer, so that their kinds are not known right now.
    pub(crate) unavailable: Vec<String>,
}

impl Error {
    /// Whether the same call may succeed later without anyone changing the call.
    pub(crate) fn retryable(&self) -> bool {
        match self {
            Error::Status { code, .. } => matches!(code, 401 | 408 | 429 | 500 | 502 | 503 | 504),
            Error::Transport { .. }
            | Error::Credential(_)
            | Error::NotJson { .. }
            | Error::UnknownResource(_) => true,
            Error::Config(_)
            | Error::Redirect { .. }
            | Error::TooLarge { .. }
            | Error::NotASegment
            | Error::Stopped => false,
        }
    }

    /// How long the server asked us to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The HTTP status, when there was an answer.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Error::Status { code, .. } | Error::Redirect { code, .. } => Some(*code),
            _ => None,
        }
    }

    pub(crate) fn is_unauthorized(&self) -> bool {
        self.code() == Some(401)
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// 409 says two things: the object changed under us, or it exists already.
    pub(crate) fn is_conflict(&self) -> bool {
        self.code() == Some(409) && !self.is_already_exists()
    }

    pub(crate) fn is_already_exists(&self) -> bool {
        self.code() == Some(409) && self.has_reason("AlreadyExists")
    }

    /// The resource version or the continue token is too old: list again.
    pub(crate) fn is_gone(&self) -> bool {
        self.code() == Some(410) || self.has_reason("Expired")
    }

    /// The handshake failed, so that other certificates might help.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(
            self,
            Error::Transport {
                fault: Fault::UnknownAuthority { .. }
                    | Fault::NameMismatch { .. }
                    | Fault::CertificateExpired { .. }
                    | Fault::CertificateNotYetValid { .. }
                    | Fault::ClientCertificateRefused { .. }
                    | Fault::Tls(_),
                ..
            }
        )
    }

    fn has_reason(&self, wanted: &str) -> bool {
        matches!(self, Error::Status { reason, .. } if reason == wanted)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Config(text) | Error::Credential(text) => out.write_str(text),
            Error::Status {
                call,
                code,
                reason,
                message,
                ..
            } => {
                write!(out, "{call}: {code} {reason}")?;
                if !message.is_empty() {
                    write!(out, ": {message}")?;
                }
                out.write_str(remedy(*code, &call.path))
            }
            Error::Redirect {
                call,
                code,
                location,
            } => write!(
                out,
                "{call}: the server answered {code} and pointed to {location}, redirects are refused; check the server address"
            ),
            Error::Transport {
                call,
                server,
                fault,
            } => write!(out, "{call} at {server}: {fault}"),
            Error::TooLarge { call, limit } => {
                write!(out, "{call}: the answer is longer than {limit} bytes")
            }
            Error::NotJson { call, detail } => write!(
                out,
                "{call}: the answer is not the expected JSON ({detail}); check that the server address is that of an API server"
            ),
            Error::UnknownResource(unknown) => unknown.fmt(out),
            Error::NotASegment => out.write_str(
                "a name or a namespace is empty, \".\" or \"..\", or has a slash or a percent sign; write it as the cluster knows it",
            ),
            Error::Stopped => out.write_str("the client is shut down"),
        }
    }
}

/// What a person can do about a status that says little by itself.
fn remedy(code: u16, path: &str) -> &'static str {
    match code {
        // Every API server has these.
        404 if matches!(path, "/api" | "/apis" | "/version") => {
            "; check the server address and the path in it"
        }
        401 => "; check the token, the client certificate or the exec plugin of this user",
        403 => "; check the roles bound to this user or service account",
        _ => "",
    }
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.method, self.path)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Refused => out.write_str("connection refused; is the API server up?"),
            Fault::Unreachable(detail) => write!(out, "cannot be reached ({detail})"),
            Fault::HostNotFound => {
                out.write_str("this host name is not known; check the server address and DNS")
            }
            Fault::Timeout(phase) => write!(out, "no answer in time ({phase})"),
            Fault::UnknownAuthority { authority } => write!(
                out,
                "the server's certificate is not signed by {authority}; check the certificate authority of this cluster"
            ),
            Fault::NameMismatch { asked, presented } => write!(
                out,
                "the server's certificate is not for {asked:?} but for {presented}; use one of these names in the server address or as tls-server-name"
            ),
            Fault::CertificateExpired { not_after } => write!(
                out,
                "the server's certificate has expired{not_after}; renew it, or check the clock of this machine"
            ),
            Fault::CertificateNotYetValid { not_before } => write!(
                out,
                "the server's certificate is not valid yet{not_before}; check the clock of this machine"
            ),
            Fault::ClientCertificateRefused { alert } => write!(
                out,
                "the server refused our client certificate ({alert}); check client-certificate of this user"
            ),
            Fault::Tls(detail) => write!(
                out,
                "the TLS handshake failed ({detail}); is this a TLS port?"
            ),
            Fault::Closed => out.write_str("the server closed the connection without an answer"),
            Fault::Cut { bytes } => write!(out, "the answer was cut after {bytes} bytes"),
            Fault::Proxy(detail) => write!(
                out,
                "the proxy of this cluster failed ({detail}); check proxy-url"
            ),
            Fault::Protocol(detail) => write!(out, "the answer is not HTTP/1.1 ({detail})"),
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the cluster has no kind {:?}", self.name)?;
        if let Some(api_version) = &self.api_version {
            write!(out, " in apiVersion {api_version:?}")?;
        }
        match &self.hint {
            Some(hint) => write!(out, "; {hint}")?,
            None => out.write_str("; if a CRD defines it, create the CRD first")?,
        }
        if !self.unavailable.is_empty() {
            write!(
                out,
                "; unavailable right now, so that their kinds are not known: {}",
                self.unavailable.join(", ")
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str) -> Error {
        Error::Status {
            call: Call {
                method: "GET",
                path: "/api/v1/pods".to_owned(),
            },
            code,
            reason: reason.to_owned(),
            message: "m".to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn statuses_are_told_apart() {
        assert!(status(404, "NotFound").is_not_found());
        assert!(status(403, "Forbidden").is_forbidden());
        assert!(status(401, "Unauthorized").is_unauthorized());
        assert!(status(410, "Gone").is_gone());
        assert!(status(409, "Conflict").is_conflict());
        assert!(!status(409, "AlreadyExists").is_conflict());
        assert!(status(409, "AlreadyExists").is_already_exists());
        for (code, expected) in [
            (400, false),
            (401, true),
            (403, false),
            (404, false),
            (409, false),
            (410, false),
            (422, false),
            (429, true),
            (500, true),
            (503, true),
            (504, true),
        ] {
            assert_eq!(status(code, "").retryable(), expected, "{code}");
        }
        assert!(!Error::Stopped.retryable());
    }

    #[test]
    fn an_error_names_the_call_and_the_remedy() {
        assert_eq!(
            status(403, "Forbidden").to_string(),
            "GET /api/v1/pods: 403 Forbidden: m; check the roles bound to this user or service account"
        );
        assert!(
            std::mem::size_of::<Error>() <= 128,
            "errors are returned by value"
        );
    }
}
