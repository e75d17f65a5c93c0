//! Test support: a server on loopback that answers what a test tells it to, byte for byte, and a temporary folder.
//!
//! One thread accepts, one thread serves each connection; all of them end when the server is dropped. Only compiled for tests.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::client::{Client, Limits};
use super::config::ClusterConfig;

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Seen {
    /// The value of a query parameter, as it was sent.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let (_, query) = self.line.split_whitespace().nth(1)?.split_once('?')?;
        query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value)
    }

    pub(crate) fn path(&self) -> &str {
        let target = self.line.split_whitespace().nth(1).unwrap_or_default();
        target.split('?').next().unwrap_or_default()
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.parameter("watch").is_some()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{}:", name.to_ascii_lowercase());
        self.headers
            .iter()
            .find(|line| line.to_ascii_lowercase().starts_with(&prefix))
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim())
    }
}

/// Writes the answer to one request; false ends the connection.
type Script = dyn Fn(&Seen, &mut TcpStream) -> bool + Send + Sync;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
    accept: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(
        script: impl Fn(&Seen, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Server {
        Server::start_at("127.0.0.1:0".parse().unwrap(), script)
    }

    /// Starts at an address where another one was before.
    #[expect(clippy::disallowed_methods, reason = "test support")]
    pub(crate) fn start_at(
        address: SocketAddr,
        script: impl Fn(&Seen, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let script: Arc<Script> = Arc::new(script);
        let (count, log, ending) = (
            Arc::clone(&connections),
            Arc::clone(&seen),
            Arc::clone(&stop),
        );
        let accept = std::thread::spawn(move || {
            let mut serving: Vec<(JoinHandle<()>, TcpStream)> = Vec::new();
            for stream in listener.incoming() {
                if ending.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                serving.retain(|(thread, _)| !thread.is_finished());
                let handle = stream.try_clone().unwrap();
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                serving.push((
                    std::thread::spawn(move || serve(stream, &*script, &log)),
                    handle,
                ));
            }
            for (thread, stream) in serving {
                let _ = stream.shutdown(Shutdown::Both);
                thread.join().unwrap();
            }
        });
        Server {
            address,
            connections,
            seen,
            stop,
            accept: Some(accept),
        }
    }

    /// Answers every request with the same bytes and keeps the connection open.
    pub(crate) fn saying(answer: impl Into<Vec<u8>>) -> Server {
        let answer = answer.into();
        Server::start(move |_, stream| stream.write_all(&answer).is_ok())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn client(&self) -> Client {
        client(ClusterConfig::plain(&self.url()))
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accept.
        let _ = TcpStream::connect(self.address);
        if let Some(accept) = self.accept.take() {
            let _ = accept.join();
        }
    }
}

fn serve(stream: TcpStream, script: &Script, log: &Mutex<Vec<Seen>>) {
    let mut writer = stream.try_clone().unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(seen) = read_request(&mut reader) {
        log.lock().unwrap().push(seen.clone());
        if !script(&seen, &mut writer) {
            let _ = writer.shutdown(Shutdown::Both);
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).ok()? == 0 {
            return None;
        }
        let header = header.trim().to_owned();
        if header.is_empty() {
            break;
        }
        headers.push(header);
    }
    let mut seen = Seen {
        line: line.trim().to_owned(),
        headers,
        body: String::new(),
    };
    let length: u64 = seen
        .header("content-length")
        .map_or(0, |text| text.parse().unwrap());
    reader.take(length).read_to_string(&mut seen.body).ok()?;
    Some(seen)
}

/// A client without limits and with a short deadline.
pub(crate) fn client(config: ClusterConfig) -> Client {
    Client::new(
        config,
        no_limits(),
        Arc::new(|_| Err("no plugin".to_owned())),
    )
    .unwrap()
}

pub(crate) fn no_limits() -> Limits {
    Limits {
        qps: 0.0,
        burst: 0,
        deadline: Duration::from_secs(20),
    }
}

/// An answer with a length.
pub(crate) fn answer(code: u16, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {code} Status\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Begins an answer whose length is not known.
pub(crate) fn begin(stream: &mut TcpStream) -> bool {
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        .is_ok()
}

/// One piece of such an answer.
pub(crate) fn chunk(stream: &mut TcpStream, text: &str) -> bool {
    write!(stream, "{:x}\r\n{text}\r\n", text.len()).is_ok()
}

/// Ends such an answer; the connection stays.
pub(crate) fn end(stream: &mut TcpStream) -> bool {
    stream.write_all(b"0\r\n\r\n").is_ok()
}

/// Waits until the other side goes away: a connection on which nothing more comes.
pub(crate) fn silence(stream: &mut TcpStream) -> bool {
    let _ = stream.read(&mut [0]);
    false
}

/// A folder that is removed when the test ends.
pub(crate) struct Folder(PathBuf);

static FOLDERS: AtomicUsize = AtomicUsize::new(0);

impl Folder {
    pub(crate) fn new() -> Folder {
        let number = FOLDERS.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!(
            "shell-operator-kube-{}-{number}",
            std::process::id()
        ));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
