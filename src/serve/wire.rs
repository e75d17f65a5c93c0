//! The two kinds of socket that a server accepts on: TCP, and a unix socket in the file system.
//!
//! The accept thread owns a `Listener`, every connection's thread its `Wire`. Nothing but the kind of socket is decided here: limits,
//! deadlines and grammar are the same for both.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

/// Where a server listens, or where a caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    /// Callers have no name there, only the right to open the file.
    Unix,
}

impl Address {
    #[cfg(test)]
    pub(crate) fn tcp(self) -> SocketAddr {
        match self {
            Address::Tcp(address) => address,
            Address::Unix => panic!("a unix socket has no such address"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(out),
            Address::Unix => out.write_str("the unix socket"),
        }
    }
}

pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    pub(super) fn accept(&self) -> io::Result<(Wire, Address)> {
        match self {
            Listener::Tcp(listener) => listener
                .accept()
                .map(|(stream, from)| (Wire::Tcp(stream), Address::Tcp(from))),
            Listener::Unix(listener) => listener
                .accept()
                .map(|(stream, _)| (Wire::Unix(stream), Address::Unix)),
        }
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => listener.set_nonblocking(true),
            Listener::Unix(listener) => listener.set_nonblocking(true),
        }
    }

    pub(super) fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            Listener::Unix(_) => Ok(Address::Unix),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A connection's socket.
pub(super) enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Wire {
    /// Makes reads and writes return at once, and an answer leave at once: waiting for more to send with it would only delay it.
    pub(super) fn prepare(&self) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true)),
            Wire::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => stream.shutdown(how),
            Wire::Unix(stream) => stream.shutdown(how),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Wire::Tcp(stream) => stream.as_fd(),
            Wire::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => (&mut &*stream).read(into),
            Wire::Unix(stream) => (&mut &*stream).read(into),
        }
    }
}

impl Write for &Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => (&mut &*stream).write(bytes),
            Wire::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
