//! What the HTTP library does not do for us when it opens a connection: TLS with our own configuration, name lookups that do
//! not repeat, and failures in words.
//!
//! Runs on the thread that makes the call. This is the only file that touches the unversioned part of the library, so that
//! an update of it is felt here. The TLS layer is ours because the library's own one cannot give the server another name
//! than that in the address (`tls-server-name`), rebuilds its configuration for calls with a deadline, and panics on a
//! certificate that does not match its key.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::time;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    TcpConnector, Transport, TransportAdapter,
};

use super::error::Fault;
use super::tls;

/// How long the addresses of a host name are used again. The library looks a name up for every call, also for those that
/// reuse a connection; five seconds spare nearly all lookups and still follow a failover.
const LOOKUP_LIFE: Duration = Duration::from_secs(5);

/// An agent with our TLS layer on top of TCP or of a proxy's tunnel.
pub(super) fn agent(config: Config, layer: TlsLayer) -> ureq::Agent {
    let connector =
        ().chain(ConnectProxyConnector::default())
            .chain(TcpConnector::default())
            .chain(layer);
    ureq::Agent::with_parts(config, connector, Lookup::default())
}

/// Wraps connections to `https` addresses in TLS.
pub(super) struct TlsLayer {
    /// None when the cluster is reached without TLS.
    pub(super) config: Option<Arc<ClientConfig>>,
    /// The host in the server's address, to tell it from an `https` proxy.
    pub(super) host: String,
    /// `tls-server-name`.
    pub(super) name: Option<String>,
}

impl<In: Transport> Connector<In> for TlsLayer {
    type Out = Either<In, Encrypted>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else {
            return Ok(None);
        };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let Some(config) = &self.config else {
            return Err(ureq::Error::TlsRequired);
        };
        let host = bare_host(details.uri);
        let name = match &self.name {
            Some(name) if host == self.host => name.clone(),
            _ => host,
        };
        let name = ServerName::try_from(name).map_err(|_| {
            ureq::Error::Tls("the server name is neither a host name nor an IP address")
        })?;
        let mut connection = ClientConnection::new(Arc::clone(config), name)?;
        let mut socket =
            TransportAdapter::new(transport.boxed(), Arc::clone(&details.current_time));
        socket.set_timeout(what_is_left(details));
        connection.complete_io(&mut socket)?;
        Ok(Some(Either::B(Encrypted {
            buffers: LazyBuffers::new(
                details.config.input_buffer_size(),
                details.config.output_buffer_size(),
            ),
            stream: StreamOwned {
                conn: connection,
                sock: socket,
            },
        })))
    }
}

/// The time for connecting is counted from the start of the TCP handshake, which is over by now.
fn what_is_left(details: &ConnectionDetails<'_>) -> NextTimeout {
    let mut timeout = details.timeout;
    if let (time::Duration::Exact(after), time::Instant::Exact(now), time::Instant::Exact(start)) =
        (timeout.after, (details.current_time)(), details.now)
    {
        timeout.after = time::Duration::Exact(after.saturating_sub(now.duration_since(start)));
    }
    timeout
}

/// One TLS connection.
pub(super) struct Encrypted {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl Transport for Encrypted {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output)?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.stream.sock.set_timeout(timeout);
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.sock.get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsLayer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TlsLayer")
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Encrypted")
    }
}

/// Looks host names up, and remembers the last answer for a few seconds. An IP address needs no lookup.
#[derive(Default)]
struct Lookup {
    system: DefaultResolver,
    last: Mutex<Option<Remembered>>,
}

struct Remembered {
    authority: String,
    addresses: ResolvedSocketAddrs,
    at: Instant,
}

impl Resolver for Lookup {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        if bare_host(uri).parse::<IpAddr>().is_ok() {
            // Without a time limit the library parses the address on this thread, with one it would start a thread.
            return self.system.resolve(uri, config, NextTimeout::default());
        }
        {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(last) = last.as_ref()
                && last.authority == authority
                && last.at.elapsed() < LOOKUP_LIFE
            {
                return Ok(last.addresses.clone());
            }
        }
        let addresses = match self.system.resolve(uri, config, timeout) {
            // The system's resolver has no kind of its own for its errors.
            Err(ureq::Error::Io(_)) => return Err(ureq::Error::HostNotFound),
            other => other?,
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Remembered {
            authority,
            addresses: addresses.clone(),
            at: Instant::now(),
        });
        Ok(addresses)
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Lookup")
    }
}

/// The host of an address, an IPv6 address without its brackets.
pub(super) fn bare_host(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    host.strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host)
        .to_owned()
}

/// Why a call failed, in our words. `received` is what had been read of the answer, None when not even its head had come.
pub(super) fn fault(
    error: &ureq::Error,
    asked: &str,
    authority: &str,
    received: Option<u64>,
) -> Fault {
    match error {
        ureq::Error::Io(error) => io_fault(error, asked, authority, received),
        ureq::Error::Decompress(_, error) if error.kind() == ErrorKind::UnexpectedEof => {
            Fault::Cut {
                bytes: received.unwrap_or_default(),
            }
        }
        ureq::Error::Rustls(error) => tls::fault(error, asked, authority),
        ureq::Error::Timeout(phase) => Fault::Timeout(match phase {
            ureq::Timeout::Resolve => "looking the host name up",
            ureq::Timeout::Connect => "connecting",
            ureq::Timeout::PerRead => "the connection fell silent",
            ureq::Timeout::RecvResponse => "waiting for the answer to begin",
            _ => "the deadline of this call has passed",
        }),
        ureq::Error::HostNotFound => Fault::HostNotFound,
        ureq::Error::ConnectProxyFailed(detail) => Fault::Proxy(detail.clone()),
        ureq::Error::Tls(detail) => Fault::Tls((*detail).to_owned()),
        other => Fault::Protocol(other.to_string()),
    }
}

fn io_fault(error: &std::io::Error, asked: &str, authority: &str, received: Option<u64>) -> Fault {
    if let Some(inner) = error.get_ref() {
        if let Some(error) = inner.downcast_ref::<rustls::Error>() {
            return tls::fault(error, asked, authority);
        }
        if let Some(error) = inner.downcast_ref::<ureq::Error>() {
            return fault(error, asked, authority, received);
        }
    }
    match error.kind() {
        ErrorKind::ConnectionRefused => Fault::Refused,
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => match received {
            Some(bytes) => Fault::Cut { bytes },
            None => Fault::Closed,
        },
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Fault::Timeout("waiting for the network"),
        _ => Fault::Unreachable(error.to_string()),
    }
}
