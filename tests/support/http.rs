//! A client that says exactly the bytes it is told, over plain TCP or TLS, for talking to the program under test.
//!
//! Made for tests that must control the wire: raw requests, keep-alive on one connection, client certificates. Every read has a
//! time limit, so a server that never answers fails the test instead of hanging it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;

use super::certificate::{self, Identity};

/// Longer than any deadline of the program, which is 30 s for a review.
const READ_LIMIT: Duration = Duration::from_secs(40);

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// A stream of either kind.
pub(crate) trait ReadWrite: Read + Write + Send {}
impl<T: Read + Write + Send> ReadWrite for T {}

/// One connection, used for as many requests as the test wants.
pub(crate) struct Connection {
    stream: Box<dyn ReadWrite>,
    unread: Vec<u8>,
}

impl Connection {
    pub(crate) fn plain(address: SocketAddr) -> std::io::Result<Connection> {
        Ok(Connection {
            stream: Box::new(dial(address)?),
            unread: Vec::new(),
        })
    }

    /// TLS, trusting one authority, under the name that the certificate must bear.
    pub(crate) fn tls(
        address: SocketAddr,
        name: &str,
        authority_pem: &str,
        client: Option<&Identity>,
    ) -> std::io::Result<Connection> {
        let builder = ClientConfig::builder_with_provider(certificate::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(certificate::roots(authority_pem));
        let config = match client {
            Some(identity) => builder
                .with_client_auth_cert(identity.chain(), identity.private_key())
                .unwrap(),
            None => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut socket = dial(address)?;
        // Shakes hands now, so that a refusal is an error of this call and not of the first request.
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(Connection {
            stream: Box::new(StreamOwned::new(session, socket)),
            unread: Vec::new(),
        })
    }

    /// Sends a request with a correct head and reads the answer.
    pub(crate) fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        let mut head = format!(
            "{method} {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.send(&[head.as_bytes(), body].concat())?;
        self.answer()
    }

    pub(crate) fn post_json(&mut self, target: &str, body: &Value) -> std::io::Result<Answer> {
        self.request(
            "POST",
            target,
            &[("Content-Type", "application/json")],
            body.to_string().as_bytes(),
        )
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Reads one answer. An early end of the connection is an error of kind `UnexpectedEof`.
    pub(crate) fn answer(&mut self) -> std::io::Result<Answer> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more()?;
        };
        let head = String::from_utf8_lossy(&self.unread[..end]).into_owned();
        self.unread.drain(..end);
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let mut answer = Answer {
            status: status.and_then(|text| text.parse().ok()).unwrap_or(0),
            headers: lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect(),
            body: Vec::new(),
        };
        answer.body = self.read_body(&answer)?;
        Ok(answer)
    }

    fn read_body(&mut self, answer: &Answer) -> std::io::Result<Vec<u8>> {
        if let Some(length) = answer.header("content-length") {
            return self.take(length.parse().map_err(std::io::Error::other)?);
        }
        if answer.header("transfer-encoding").is_some() {
            let mut body = Vec::new();
            loop {
                let chunk = self.read_chunk()?;
                if chunk.is_empty() {
                    return Ok(body);
                }
                body.extend(chunk);
            }
        }
        if answer.status == 204 || answer.status == 304 {
            return Ok(Vec::new());
        }
        // Neither: the body goes on to the end of the connection.
        loop {
            match self.read_more() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(std::mem::take(&mut self.unread));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One chunk of a chunked body, empty at its end.
    fn read_chunk(&mut self) -> std::io::Result<Vec<u8>> {
        let line = loop {
            if let Some(at) = find(&self.unread, b"\r\n") {
                break self.take(at + 2)?;
            }
            self.read_more()?;
        };
        let text = String::from_utf8_lossy(&line);
        let size = usize::from_str_radix(text.trim(), 16).map_err(std::io::Error::other)?;
        let mut chunk = self.take(size + 2)?;
        chunk.truncate(size);
        Ok(chunk)
    }

    fn take(&mut self, length: usize) -> std::io::Result<Vec<u8>> {
        while self.unread.len() < length {
            self.read_more()?;
        }
        Ok(self.unread.drain(..length).collect())
    }

    fn read_more(&mut self) -> std::io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        let count = self.stream.read(&mut buffer)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.unread.extend(&buffer[..count]);
        Ok(())
    }
}

/// One plain request on a connection of its own.
pub(crate) fn get(address: SocketAddr, path: &str) -> std::io::Result<Answer> {
    Connection::plain(address)?.request("GET", path, &[("Connection", "close")], b"")
}

fn dial(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    socket.set_read_timeout(Some(READ_LIMIT))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
