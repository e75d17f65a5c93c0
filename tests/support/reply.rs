//! What the scripted API server answers, rightly or wrongly, and how that goes over the wire.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use super::POLL;
use super::http::ReadWrite;

/// An answer, built step by step: `Reply::json(&pods).gzip().cut_after(100)`.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
    drip: Option<(usize, Duration)>,
    cut_after: Option<usize>,
}

#[derive(Clone, Debug)]
enum Body {
    /// With its length.
    Bytes(Vec<u8>),
    /// In chunks, as the test sends them.
    Stream(Receiver<Piece>),
    /// In chunks, without end.
    Endless(Vec<u8>),
    /// Not even a status line, and the connection stays open.
    Silence,
    /// These bytes in place of everything, then the end of the connection.
    Raw(Vec<u8>),
}

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    Cut,
}

/// The test's end of a streaming answer, such as a watch. A request that is answered with it takes over where the last one, whose
/// client has gone, stopped.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    sender: Sender<Piece>,
    receiver: Receiver<Piece>,
}

impl Stream {
    pub(crate) fn new() -> Stream {
        let (sender, receiver) = unbounded();
        Stream { sender, receiver }
    }

    /// Sends a JSON value as one line, as watches do.
    pub(crate) fn line(&self, value: &Value) {
        self.bytes(format!("{value}\n").as_bytes());
    }

    /// Sends a watch event.
    pub(crate) fn event(&self, kind: &str, object: &Value) {
        self.line(&json!({ "type": kind, "object": object }));
    }

    pub(crate) fn bytes(&self, bytes: &[u8]) {
        self.sender.send(Piece::Bytes(bytes.to_vec())).unwrap();
    }

    /// Ends the body in order: an empty chunk is how a chunked body ends.
    pub(crate) fn end(&self) {
        self.sender.send(Piece::Bytes(Vec::new())).unwrap();
    }

    /// Closes the connection in the middle of the body.
    pub(crate) fn cut(&self) {
        self.sender.send(Piece::Cut).unwrap();
    }
}

impl Reply {
    pub(crate) fn bytes(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Reply {
        Reply {
            status,
            headers: vec![("Content-Type".to_owned(), content_type.to_owned())],
            body: Body::Bytes(body.into()),
            drip: None,
            cut_after: None,
        }
    }

    pub(crate) fn text(text: &str) -> Reply {
        Reply::bytes(200, "text/plain", text)
    }

    pub(crate) fn json(value: &Value) -> Reply {
        Reply::bytes(200, "application/json", value.to_string())
    }

    /// A refusal as the API server words it.
    pub(crate) fn status(code: u16, reason: &str, message: &str) -> Reply {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        Reply::bytes(code, "application/json", status.to_string())
    }

    pub(crate) fn not_found(path: &str) -> Reply {
        Reply::status(
            404,
            "NotFound",
            &format!("the server could not find the requested resource: {path}"),
        )
    }

    pub(crate) fn internal_error() -> Reply {
        Reply::status(500, "InternalError", "etcdserver: request timed out")
    }

    pub(crate) fn too_many_requests(retry_after_seconds: u32) -> Reply {
        Reply::status(429, "TooManyRequests", "please try again later")
            .header("Retry-After", &retry_after_seconds.to_string())
    }

    pub(crate) fn redirect(to: &str) -> Reply {
        Reply::bytes(307, "text/plain", "elsewhere").header("Location", to)
    }

    /// Lines of a watch, under the test's control.
    pub(crate) fn stream(stream: &Stream) -> Reply {
        Reply {
            body: Body::Stream(stream.receiver.clone()),
            ..Reply::bytes(200, "application/json", "")
        }
    }

    /// The same bytes again and again, for as long as somebody reads them.
    pub(crate) fn endless(again: &str) -> Reply {
        Reply {
            body: Body::Endless(again.as_bytes().to_vec()),
            ..Reply::bytes(200, "application/json", "")
        }
    }

    /// Takes the request and says nothing until the client gives up.
    pub(crate) fn silence() -> Reply {
        Reply {
            body: Body::Silence,
            ..Reply::text("")
        }
    }

    /// Takes the request and closes the connection.
    pub(crate) fn hang_up() -> Reply {
        Reply::raw(b"")
    }

    /// These bytes in place of an HTTP answer.
    pub(crate) fn raw(bytes: &[u8]) -> Reply {
        Reply {
            body: Body::Raw(bytes.to_vec()),
            ..Reply::text("")
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn content_type(mut self, value: &str) -> Reply {
        self.headers[0].1 = value.to_owned();
        self
    }

    /// Compresses the body.
    pub(crate) fn gzip(mut self) -> Reply {
        let Body::Bytes(body) = &self.body else {
            panic!("only a body that is known as a whole can be compressed");
        };
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(body).unwrap();
        self.body = Body::Bytes(encoder.finish().unwrap());
        self.header("Content-Encoding", "gzip")
    }

    /// Announces the whole body, sends this much of it and closes the connection.
    pub(crate) fn cut_after(mut self, bytes: usize) -> Reply {
        self.cut_after = Some(bytes);
        self
    }

    /// Sends the body in pieces of this many bytes, with a pause before each.
    pub(crate) fn drip(mut self, bytes: usize, pause: Duration) -> Reply {
        self.drip = Some((bytes, pause));
        self
    }

    /// Puts the answer on the wire. `Ok(true)`: the connection can be used again.
    pub(super) fn send(
        &self,
        stream: &mut dyn ReadWrite,
        socket: &TcpStream,
    ) -> std::io::Result<bool> {
        match &self.body {
            Body::Bytes(body) => self.send_bytes(stream, body),
            Body::Stream(pieces) => {
                self.send_head(stream, "Transfer-Encoding: chunked")?;
                send_pieces(stream, socket, pieces)
            }
            Body::Endless(again) => {
                self.send_head(stream, "Transfer-Encoding: chunked")?;
                loop {
                    send_chunk(stream, again)?;
                }
            }
            Body::Silence => {
                // Returns when the client gives up or when the server is stopped.
                let _ = stream.read(&mut [0; 1])?;
                Ok(false)
            }
            Body::Raw(bytes) => {
                stream.write_all(bytes)?;
                stream.flush()?;
                Ok(false)
            }
        }
    }

    fn send_bytes(&self, stream: &mut dyn ReadWrite, body: &[u8]) -> std::io::Result<bool> {
        self.send_head(stream, &format!("Content-Length: {}", body.len()))?;
        let shown = body.len().min(self.cut_after.unwrap_or(body.len()));
        let (size, pause) = self.drip.unwrap_or((shown.max(1), Duration::ZERO));
        for piece in body[..shown].chunks(size) {
            std::thread::sleep(pause);
            stream.write_all(piece)?;
            stream.flush()?;
        }
        Ok(self.cut_after.is_none())
    }

    fn send_head(&self, stream: &mut dyn ReadWrite, framing: &str) -> std::io::Result<()> {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n{framing}\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes())?;
        stream.flush()
    }
}

/// Sends what the test sends. `Ok(true)`: the body has ended in order.
fn send_pieces(
    stream: &mut dyn ReadWrite,
    socket: &TcpStream,
    pieces: &Receiver<Piece>,
) -> std::io::Result<bool> {
    // A client that has gone must not swallow the next piece, which is for its successor.
    while !has_gone(socket) {
        match pieces.recv_timeout(POLL) {
            Ok(Piece::Bytes(bytes)) => {
                send_chunk(stream, &bytes)?;
                if bytes.is_empty() {
                    return Ok(true);
                }
            }
            Ok(Piece::Cut) | Err(RecvTimeoutError::Disconnected) => return Ok(false),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Ok(false)
}

/// Has the peer closed its side of the connection, or we ours?
fn has_gone(socket: &TcpStream) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = Timespec::default();
    poll(&mut polled, Some(&now)).is_err() || !polled[0].revents().is_empty()
}

fn send_chunk(stream: &mut dyn ReadWrite, bytes: &[u8]) -> std::io::Result<()> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend(bytes);
    chunk.extend(b"\r\n");
    stream.write_all(&chunk)?;
    stream.flush()
}
