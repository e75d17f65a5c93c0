//! The client of the API server: blocking calls with a deadline, and watches.
//!
//! Every call runs on the thread that makes it; clones are cheap and share connections and credentials. A call is tried twice
//! at most: when the server says 401 and there is another token or certificate by now, or when the handshake fails and there
//! are other certificates by now. Everything else is returned, with `Error::retryable` to say if trying again makes sense.
//!
//! `shutdown` makes every blocked read or write return at once. A name lookup or a TCP connect in progress is not interrupted
//! and ends by its own limit, so that the end of the process must not wait for the threads that call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use ureq::AsSendBody;
use ureq::http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{self, HeaderValue, Uri};

use super::agents::{Agents, Pair};
use super::answer::{self, Answer, Names, Stream};
use super::config::ClusterConfig;
use super::connect::{self, bare_host};
use super::credential::{Credentials, ExecRunner, Pass};
use super::error::{Call, Error, Fault};
use super::tls;
use crate::pace::Pace;

/// LIMIT: time of a call for which the caller names none. The API server itself gives up after 60 seconds.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// LIMIT: size of an answer, decompressed, for which the caller names none. A page of 500 objects of 20 KiB is 10 MB; an
/// object is 3 MiB at most.
pub(crate) const ANSWER_LIMIT: u64 = 32 * 1024 * 1024;

/// LIMIT: time until a watch begins to answer. The server sends the head of a watch at once.
const WATCH_BEGINS: Duration = Duration::from_secs(30);

/// How fast short calls may follow each other (0 = no limit), and how long each may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) qps: f64,
    pub(crate) burst: u32,
    pub(crate) deadline: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// One call. The path begins with a slash and may have a query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) accept: &'a str,
    /// Content type and bytes.
    pub(crate) body: Option<(&'a str, &'a [u8])>,
    /// None: that of the client's `Limits`.
    pub(crate) deadline: Option<Duration>,
    /// A moment by which the answer must be there, with the wait for a turn under the rate limit.
    pub(crate) until: Option<Instant>,
    /// None: `ANSWER_LIMIT`.
    pub(crate) limit: Option<u64>,
}

/// What one call was, for metrics.
#[derive(Debug)]
pub(crate) struct Observation<'a> {
    pub(crate) method: &'static str,
    /// Without the query.
    pub(crate) path: &'a str,
    /// With its port, as in the configuration.
    pub(crate) host: &'a str,
    /// None when there was no answer.
    pub(crate) code: Option<u16>,
    /// Until the head of the answer.
    pub(crate) latency: Duration,
    /// Time that the call waited for its turn under the rate limit.
    pub(crate) waited: Duration,
}

type Observer = Arc<dyn Fn(&Observation<'_>) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    pace: Arc<Pace>,
    deadline: Duration,
    observer: Option<Observer>,
}

struct Shared {
    server: String,
    namespace: Option<String>,
    names: Arc<Names>,
    agents: Agents,
    credentials: Credentials,
    stopped: Arc<AtomicBool>,
}

impl Method {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }
}

impl<'a> Request<'a> {
    pub(crate) fn new(method: Method, path: &'a str) -> Request<'a> {
        Request {
            method,
            path,
            accept: "application/json",
            body: None,
            deadline: None,
            until: None,
            limit: None,
        }
    }
}

impl Client {
    /// Checks the configuration and its certificates; opens no connection yet and runs no plugin.
    pub(crate) fn new(
        config: ClusterConfig,
        limits: Limits,
        run: ExecRunner,
    ) -> Result<Client, Error> {
        let address: Uri = config.server.parse().map_err(|error| {
            Error::Config(format!(
                "the server address {:?} is wrong: {error}",
                config.server
            ))
        })?;
        let asked = config
            .tls_server_name
            .clone()
            .unwrap_or_else(|| bare_host(&address));
        let names = Names {
            server: config.server.clone(),
            asked,
            authority: tls::trust_in_words(&config.trust),
        };
        let shared = Shared {
            server: config.server.clone(),
            namespace: config.namespace.clone(),
            names: Arc::new(names),
            credentials: Credentials::new(config.login.clone(), run),
            agents: Agents::new(config),
            stopped: Arc::new(AtomicBool::new(false)),
        };
        shared.agents.current(&Pass {
            authorization: None,
            certificate: None,
        })?;
        Ok(Client {
            shared: Arc::new(shared),
            pace: Arc::new(Pace::per_second(limits.qps, limits.burst)),
            deadline: limits.deadline,
            observer: None,
        })
    }

    /// Calls `observer` after every call of the client that this returns.
    pub(crate) fn with_observer(&self, observer: Observer) -> Client {
        Client {
            observer: Some(observer),
            ..self.clone()
        }
    }

    pub(crate) fn server(&self) -> &str {
        &self.shared.server
    }

    /// The namespace of the context or of the pod.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.shared.namespace.as_deref()
    }

    pub(crate) fn get(&self, path: &str) -> Result<Vec<u8>, Error> {
        Ok(self.send(&Request::new(Method::Get, path))?.body)
    }

    pub(crate) fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.send(&Request::new(Method::Get, path))?.json()
    }

    /// Makes a call and reads the whole answer.
    pub(crate) fn send(&self, request: &Request<'_>) -> Result<Answer, Error> {
        self.stream(request)?.whole()
    }

    /// Makes a call and leaves the answer to be read; the deadline covers the reading.
    pub(crate) fn stream(&self, request: &Request<'_>) -> Result<Stream, Error> {
        let asked = Instant::now();
        let go = match request.until {
            Some(until) => self.pace.wait_until(until),
            None => self.pace.wait().1,
        };
        if !go && request.until.is_some() && !self.shared.stopped.load(Ordering::Relaxed) {
            return Err(self.too_late(request));
        }
        if !go {
            return Err(Error::Stopped);
        }
        let mut deadline = request.deadline.unwrap_or(self.deadline);
        if let Some(until) = request.until {
            deadline = deadline.min(until.saturating_duration_since(Instant::now()));
            if deadline.is_zero() {
                return Err(self.too_late(request));
            }
        }
        self.twice(request, asked.elapsed(), Purpose::Short { deadline })
    }

    /// The error for a call that has no turn in time.
    fn too_late(&self, request: &Request<'_>) -> Error {
        Error::Transport {
            call: Call {
                method: request.method.name(),
                path: path_only(request.path).to_owned(),
            },
            server: self.shared.server.clone(),
            fault: Fault::Timeout("no turn under the limit of calls per second"),
        }
    }

    /// Starts a watch: no deadline as a whole, but an error when nothing comes for `silence`. Not under the rate limit.
    pub(crate) fn watch(&self, path: &str, silence: Duration) -> Result<Stream, Error> {
        let request = Request {
            limit: Some(u64::MAX),
            ..Request::new(Method::Get, path)
        };
        self.twice(&request, Duration::ZERO, Purpose::Watch { silence })
    }

    /// Ends every watch and refuses new ones; short calls go on.
    pub(crate) fn stop_watches(&self) {
        self.shared.agents.stop_watches();
    }

    /// Ends everything that is blocked in a call, and refuses new calls.
    pub(crate) fn shutdown(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.shared.agents.stop();
        self.pace.stop();
    }

    fn twice(
        &self,
        request: &Request<'_>,
        waited: Duration,
        purpose: Purpose,
    ) -> Result<Stream, Error> {
        let shared = &self.shared;
        if shared.stopped.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        let pass = shared.credentials.pass()?;
        let error = match self.once(request, &pass, waited, purpose) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let again = if error.is_unauthorized() {
            // An API server that does not like a client certificate says 401 as well.
            let certificates = shared.agents.renewed(&pass)?;
            shared.credentials.renew(&pass)? || certificates
        } else if error.is_tls() {
            shared.agents.renewed(&pass)?
        } else {
            false
        };
        if again && !shared.stopped.load(Ordering::Relaxed) {
            let pass = shared.credentials.pass()?;
            return self.once(request, &pass, Duration::ZERO, purpose);
        }
        Err(error)
    }

    fn once(
        &self,
        request: &Request<'_>,
        pass: &Pass,
        waited: Duration,
        purpose: Purpose,
    ) -> Result<Stream, Error> {
        let start = Instant::now();
        let result = self.exchange(request, pass, purpose);
        if let Some(observer) = &self.observer {
            observer(&Observation {
                method: request.method.name(),
                path: path_only(request.path),
                host: self.host(),
                code: match &result {
                    Ok(stream) => Some(stream.code),
                    Err(error) => error.code(),
                },
                latency: start.elapsed(),
                waited,
            });
        }
        result
    }

    fn host(&self) -> &str {
        let server = self.shared.server.as_str();
        let host = server.split_once("://").map_or(server, |(_, rest)| rest);
        host.split('/').next().unwrap_or(host)
    }

    fn exchange(
        &self,
        request: &Request<'_>,
        pass: &Pass,
        purpose: Purpose,
    ) -> Result<Stream, Error> {
        let shared = &self.shared;
        let call = Call {
            method: request.method.name(),
            path: path_only(request.path).to_owned(),
        };
        let pair = shared.agents.current(pass)?;
        let message = self.message(request, pass, &call, purpose)?;
        let response = match request.body {
            Some((_, bytes)) => run(&pair, purpose, message.map(|()| bytes)),
            None => run(&pair, purpose, message),
        };
        let response = response.map_err(|error| {
            if shared.stopped.load(Ordering::Relaxed) {
                return Error::Stopped;
            }
            let names = &shared.names;
            Error::Transport {
                call: call.clone(),
                server: names.server.clone(),
                fault: connect::fault(&error, &names.asked, &names.authority, None),
            }
        })?;
        let (head, body) = response.into_parts();
        let stream = Stream {
            code: head.status.as_u16(),
            // Our own limit counts what comes out of the decompression; the library's counts what goes in.
            reader: body.into_with_config().limit(u64::MAX).reader(),
            call,
            names: Arc::clone(&shared.names),
            limit: request.limit.unwrap_or(ANSWER_LIMIT),
            received: 0,
            stopped: Arc::clone(&shared.stopped),
        };
        if head.status.is_success() {
            Ok(stream)
        } else {
            Err(answer::refusal(&head.headers, stream))
        }
    }

    fn message(
        &self,
        request: &Request<'_>,
        pass: &Pass,
        call: &Call,
        purpose: Purpose,
    ) -> Result<http::Request<()>, Error> {
        let mut builder = http::Request::builder()
            .method(request.method.name())
            .uri(format!("{}{}", self.shared.server, request.path))
            .header(ACCEPT, request.accept);
        if let Some(authorization) = &pass.authorization {
            let mut value = HeaderValue::from_str(&authorization.0).map_err(|_| {
                Error::Credential("the token holds characters that no header can carry".to_owned())
            })?;
            value.set_sensitive(true);
            builder = builder.header(AUTHORIZATION, value);
        }
        for (name, value) in &self.shared.credentials.login().impersonation {
            builder = builder.header(name.as_str(), value.as_str());
        }
        if let Purpose::Watch { .. } = purpose {
            // A compressed watch holds events back until a block of them is full.
            builder = builder.header(ACCEPT_ENCODING, "identity");
        }
        if let Some((content_type, _)) = request.body {
            builder = builder.header(CONTENT_TYPE, content_type);
        }
        builder
            .body(())
            .map_err(|error| Error::Config(format!("{call}: this call cannot be made: {error}")))
    }
}

#[derive(Debug, Clone, Copy)]
enum Purpose {
    Short { deadline: Duration },
    Watch { silence: Duration },
}

fn run(
    pair: &Pair,
    purpose: Purpose,
    message: http::Request<impl AsSendBody>,
) -> Result<http::Response<ureq::Body>, ureq::Error> {
    match purpose {
        Purpose::Short { deadline } => {
            let configured = pair.short.configure_request(message);
            pair.short
                .run(configured.timeout_global(Some(deadline)).build())
        }
        Purpose::Watch { silence } => {
            let configured = pair.watch.configure_request(message);
            let message = configured
                .timeout_recv_response(Some(WATCH_BEGINS))
                .timeout_per_read(Some(silence))
                .build();
            pair.watch.run(message)
        }
    }
}

fn path_only(path: &str) -> &str {
    path.split('?').next().unwrap_or(path)
}
