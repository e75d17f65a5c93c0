//! A connection's byte stream, plain or TLS, under absolute deadlines. Owned by its connection's thread alone.
//!
//! A timeout per read does not stop a caller that sends a byte every second; a deadline over the whole request does. So every
//! read and write here waits only until the one deadline that `limit` set. The socket itself is non-blocking, and all waiting
//! is a `poll` that also listens to the server's `Stage`, which is how a drain reaches threads that are waiting.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::wire::Wire;

/// How long the last words of a connection may take: the close notification, and reading what the caller still sends.
/// Closing while its bytes are unread would reset the connection and could destroy the answer before the caller saw it; a
/// second is many round trips of any network that an API server calls through.
const PARTING_TIME: Duration = Duration::from_secs(1);

/// What one read takes at most. It lies on the thread's stack; a TLS record carries as much.
pub(super) const READ_SIZE: usize = 16 * 1024;

/// How far a server is on its way: serving, draining (idle connections end), cut (every connection ends).
pub(super) struct Stage {
    draining: AtomicBool,
    cut: AtomicBool,
    /// Become readable (by hang-up) when the server drops their other ends.
    drain_bell: PipeReader,
    cut_bell: PipeReader,
}

/// The server's end of a `Stage`. Dropping it drains.
pub(super) struct Bells {
    drain: Option<PipeWriter>,
    cut: Option<PipeWriter>,
    stage: Arc<Stage>,
}

impl Stage {
    pub(super) fn new() -> io::Result<(Arc<Stage>, Bells)> {
        let (drain_bell, drain) = io::pipe()?;
        let (cut_bell, cut) = io::pipe()?;
        let stage = Arc::new(Stage {
            draining: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            drain_bell,
            cut_bell,
        });
        let bells = Bells {
            drain: Some(drain),
            cut: Some(cut),
            stage: Arc::clone(&stage),
        };
        Ok((stage, bells))
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub(super) fn drain_bell(&self) -> &PipeReader {
        &self.drain_bell
    }
}

impl Bells {
    pub(super) fn drain(&mut self) {
        self.stage.draining.store(true, Ordering::Release);
        self.drain = None;
    }

    pub(super) fn cut(&mut self) {
        self.stage.cut.store(true, Ordering::Release);
        self.cut = None;
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        self.drain();
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    Ready,
    Bell,
    Late,
}

/// Waits until `what` is ready, `bell` rings or `deadline` has passed. Readiness comes first: what is there gets served.
pub(super) fn wait(what: PollFd<'_>, bell: &PipeReader, deadline: Instant) -> io::Result<Wake> {
    let mut both = [what, PollFd::new(bell, PollFlags::IN)];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut both, Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(Wake::Late),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let [what, _] = both;
    Ok(if what.revents().is_empty() {
        Wake::Bell
    } else {
        Wake::Ready
    })
}

/// A non-blocking socket whose reads and writes wait, but never past the deadline.
pub(super) struct Socket {
    /// Shared with the accept thread, which may shut it down.
    wire: Arc<Wire>,
    stage: Arc<Stage>,
    deadline: Instant,
}

impl Socket {
    pub(super) fn new(wire: Arc<Wire>, stage: Arc<Stage>) -> io::Result<Socket> {
        wire.prepare()?;
        Ok(Socket {
            wire,
            stage,
            deadline: Instant::now(),
        })
    }

    fn wait(&self, events: PollFlags) -> io::Result<()> {
        match wait(
            PollFd::new(&self.wire, events),
            &self.stage.cut_bell,
            self.deadline,
        )? {
            Wake::Ready => Ok(()),
            Wake::Late => Err(io::ErrorKind::TimedOut.into()),
            Wake::Bell => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// INVARIANT: no byte moves after the deadline or after a cut, also where the socket would be ready.
    fn check(&self) -> io::Result<()> {
        if self.stage.cut.load(Ordering::Acquire) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.check()?;
            match self.wire.as_ref().read(into) {
                Err(error) if again(&error) => self.wait(PollFlags::IN)?,
                done => return done,
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.check()?;
            match self.wire.as_ref().write(bytes) {
                Err(error) if again(&error) => self.wait(PollFlags::OUT)?,
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn again(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// A connection as its thread sees it.
pub(super) enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ServerConnection, Socket>>),
}

impl Stream {
    pub(super) fn plain(socket: Socket) -> Stream {
        Stream::Plain(socket)
    }

    /// Shakes hands within `limit`.
    pub(super) fn tls(
        mut socket: Socket,
        config: Arc<ServerConfig>,
        limit: Duration,
    ) -> io::Result<Stream> {
        socket.deadline = later(limit);
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            if let Err(error) = tls.complete_io(&mut socket) {
                // rustls has sent its alert; let the caller read it.
                part(&mut socket, true);
                return Err(error);
            }
        }
        Ok(Stream::Tls(Box::new(StreamOwned::new(tls, socket))))
    }

    /// The caller's certificate. It was verified by the handshake, or there is none.
    pub(super) fn peer_certificate(&self) -> Option<CertificateDer<'static>> {
        match self {
            Stream::Plain(_) => None,
            Stream::Tls(tls) => tls
                .conn
                .peer_certificates()
                .and_then(<[_]>::first)
                .map(|certificate| certificate.clone().into_owned()),
        }
    }

    /// From now on, reads and writes end by then.
    pub(super) fn limit(&mut self, deadline: Instant) {
        self.socket_mut().deadline = deadline;
    }

    /// Waits for the first byte of a request; a drain ends this wait.
    pub(super) fn wait_idle(&self, deadline: Instant, interruptible: bool) -> io::Result<Wake> {
        // Bytes that came together with the handshake are decrypted already and will not make the socket readable.
        if let Stream::Tls(tls) = self
            && !tls.conn.wants_read()
        {
            return Ok(Wake::Ready);
        }
        let socket = self.socket();
        let stage = &socket.stage;
        let bell = if interruptible {
            &stage.drain_bell
        } else {
            &stage.cut_bell
        };
        wait(PollFd::new(&socket.wire, PollFlags::IN), bell, deadline)
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(into),
            Stream::Tls(tls) => tls.read(into),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.write_all(bytes),
            Stream::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }

    /// Says goodbye and closes. With `linger`, first reads away what the caller is still sending.
    pub(super) fn close(mut self, linger: bool) {
        self.limit(later(PARTING_TIME));
        if let Stream::Tls(tls) = &mut self {
            tls.conn.send_close_notify();
            // A caller that does not take it is gone.
            let _ = tls.flush();
        }
        part(self.socket_mut(), linger);
    }

    fn socket(&self) -> &Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => &tls.sock,
        }
    }

    fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => &mut tls.sock,
        }
    }
}

fn part(socket: &mut Socket, linger: bool) {
    // Failing means that the other side has closed already, which is what we are about to do.
    let _ = socket.wire.shutdown(Shutdown::Write);
    socket.deadline = later(PARTING_TIME);
    let mut scrap = [0; READ_SIZE];
    while linger && socket.read(&mut scrap).is_ok_and(|length| length > 0) {}
}

/// The moment `duration` from now; now, should that not be a time any more.
pub(super) fn later(duration: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(duration).unwrap_or(now)
}
