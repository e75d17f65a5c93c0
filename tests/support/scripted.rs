//! An API server that does what the test says, also what a real one cannot be made to do.
//!
//! One thread accepts, one thread per connection asks the script for each request's answer. Everything that was asked is recorded.
//! The script can be replaced while it runs. Dropping it closes the listener and every connection.

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use super::http::{ReadWrite, find};
use super::{Discovery, Identity, Kubeconfig, Reply, SOON, wait_for};

/// One request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    /// Path and query, as sent.
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The number of the connection it came on, from 1.
    pub(crate) connection: usize,
}

impl HttpRequest {
    pub(crate) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A parameter of the query, as sent.
    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then_some(value)
        })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_watch(&self) -> bool {
        matches!(self.query("watch"), Some("1" | "true"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

type Script = Arc<dyn Fn(&HttpRequest) -> Reply + Send + Sync>;

/// What the test and the server's threads share.
struct Shared {
    script: Mutex<Script>,
    requests: Mutex<Vec<HttpRequest>>,
    sockets: Mutex<Vec<(usize, TcpStream)>>,
    connections: AtomicUsize,
    stopped: AtomicBool,
    tls: Option<Arc<ServerConfig>>,
}

/// A running scripted API server.
pub(crate) struct Scripted {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Plain HTTP on a free port.
    pub(crate) fn new(script: impl Fn(&HttpRequest) -> Reply + Send + Sync + 'static) -> Scripted {
        Scripted::at(local(), script)
    }

    /// Plain HTTP on a given address, for a server that comes up later or comes back.
    pub(crate) fn at(
        address: SocketAddr,
        script: impl Fn(&HttpRequest) -> Reply + Send + Sync + 'static,
    ) -> Scripted {
        Scripted::listen(address, None, Arc::new(script))
    }

    /// HTTPS on a free port of 127.0.0.1.
    pub(crate) fn tls(
        identity: &Identity,
        script: impl Fn(&HttpRequest) -> Reply + Send + Sync + 'static,
    ) -> Scripted {
        let config = Arc::new(identity.server_config());
        Scripted::listen(local(), Some(config), Arc::new(script))
    }

    /// A well-behaved API server without objects.
    pub(crate) fn api() -> Scripted {
        Scripted::new(|request| Discovery::aggregated().answer(request))
    }

    fn listen(address: SocketAddr, tls: Option<Arc<ServerConfig>>, script: Script) -> Scripted {
        let listener = TcpListener::bind(address)
            .unwrap_or_else(|error| panic!("cannot listen on {address}: {error}"));
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::new(script),
            requests: Mutex::default(),
            sockets: Mutex::default(),
            connections: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            tls,
        });
        let for_thread = Arc::clone(&shared);
        Scripted {
            address,
            shared,
            acceptor: Some(std::thread::spawn(move || accept(&listener, &for_thread))),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.shared.tls.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.address)
    }

    /// A kubeconfig that leads here, without credentials.
    pub(crate) fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig::new(&self.url())
    }

    /// Goes on with another script, from the next request on.
    pub(crate) fn script(&self, script: impl Fn(&HttpRequest) -> Reply + Send + Sync + 'static) {
        *lock(&self.shared.script) = Arc::new(script);
    }

    /// Everything asked so far.
    pub(crate) fn requests(&self) -> Vec<HttpRequest> {
        lock(&self.shared.requests).clone()
    }

    /// Waits for a request that the test expects.
    #[track_caller]
    pub(crate) fn wait_request(
        &self,
        what: &str,
        expected: impl Fn(&HttpRequest) -> bool,
    ) -> HttpRequest {
        wait_for(&format!("the request: {what}"), SOON, || {
            self.requests().into_iter().find(&expected)
        })
    }

    /// How many connections were ever accepted.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// How many connections are open now.
    pub(crate) fn open_connections(&self) -> usize {
        lock(&self.shared.sockets).len()
    }

    /// Closes every open connection, wherever it is.
    pub(crate) fn cut_connections(&self) {
        for (_, socket) in lock(&self.shared.sockets).iter() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for a connection; the listener is closed when that thread has ended.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        self.cut_connections();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        if shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        let Ok(socket) = socket else { continue };
        let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let Ok(for_list) = socket.try_clone() else {
            continue;
        };
        lock(&shared.sockets).push((number, for_list));
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            // A connection that breaks is a part of the play, not a failure of the server.
            let _ = serve(&socket, number, &shared);
            lock(&shared.sockets).retain(|(other, _)| *other != number);
        });
    }
}

/// Serves one connection until it ends.
fn serve(socket: &TcpStream, number: usize, shared: &Shared) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut stream: Box<dyn ReadWrite> = match &shared.tls {
        Some(config) => {
            let session =
                ServerConnection::new(Arc::clone(config)).map_err(std::io::Error::other)?;
            Box::new(StreamOwned::new(session, socket.try_clone()?))
        }
        None => Box::new(socket.try_clone()?),
    };
    let mut unread = Vec::new();
    while let Some(request) = read_request(&mut *stream, &mut unread, number)? {
        lock(&shared.requests).push(request.clone());
        let script = Arc::clone(&*lock(&shared.script));
        if !script(&request).send(&mut *stream, socket)? {
            break;
        }
    }
    socket.shutdown(Shutdown::Both)
}

/// Reads one request. `None`: the client has closed the connection.
fn read_request(
    stream: &mut dyn ReadWrite,
    unread: &mut Vec<u8>,
    connection: usize,
) -> std::io::Result<Option<HttpRequest>> {
    let end = loop {
        if let Some(at) = find(unread, b"\r\n\r\n") {
            break at + 4;
        }
        if !read_more(stream, unread)? {
            return Ok(None);
        }
    };
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut slots);
    parsed
        .parse(&unread[..end])
        .map_err(std::io::Error::other)?;
    let mut request = HttpRequest {
        method: parsed.method.unwrap_or_default().to_owned(),
        target: parsed.path.unwrap_or_default().to_owned(),
        headers: parsed
            .headers
            .iter()
            .map(|header| {
                let value = String::from_utf8_lossy(header.value).into_owned();
                (header.name.to_ascii_lowercase(), value)
            })
            .collect(),
        body: Vec::new(),
        connection,
    };
    unread.drain(..end);
    request.body = read_body(stream, unread, &request)?;
    Ok(Some(request))
}

fn read_body(
    stream: &mut dyn ReadWrite,
    unread: &mut Vec<u8>,
    request: &HttpRequest,
) -> std::io::Result<Vec<u8>> {
    let mut take = |until: &dyn Fn(&[u8]) -> Option<usize>| loop {
        if let Some(length) = until(unread) {
            return Ok(unread.drain(..length).collect::<Vec<u8>>());
        }
        if !read_more(stream, unread)? {
            return Err(std::io::Error::from(ErrorKind::UnexpectedEof));
        }
    };
    if request.header("transfer-encoding").is_none() {
        let length = request.header("content-length").unwrap_or("0");
        let length: usize = length.parse().map_err(std::io::Error::other)?;
        return take(&|unread| (unread.len() >= length).then_some(length));
    }
    let mut body = Vec::new();
    loop {
        let line = take(&|unread| find(unread, b"\r\n").map(|at| at + 2))?;
        let text = String::from_utf8_lossy(&line);
        let size = usize::from_str_radix(text.trim(), 16).map_err(std::io::Error::other)?;
        let chunk = take(&|unread| (unread.len() >= size + 2).then_some(size + 2))?;
        if size == 0 {
            return Ok(body);
        }
        body.extend(&chunk[..size]);
    }
}

/// `false` at the end of the stream.
fn read_more(stream: &mut dyn ReadWrite, unread: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut buffer = [0; 16 * 1024];
    let count = stream.read(&mut buffer)?;
    unread.extend(&buffer[..count]);
    Ok(count > 0)
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A script that panics must not take the record of what happened with it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
