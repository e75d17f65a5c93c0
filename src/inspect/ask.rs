//! One question over the debug socket: HTTP/1.1 with a connection of its own, under limits.
//!
//! The only place that dials the socket. Errors are for people: each says what is wrong and what to do about it.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// LIMIT: silence of an operator that was asked. It answers from memory, so that only a machine that stands still takes longer.
const SILENCE: Duration = Duration::from_secs(30);
/// LIMIT: the answer. A snapshot is shown whole, and no operator of a few megabytes keeps more objects than this.
const ANSWER: u64 = 1024 * 1024 * 1024;
/// LIMIT: header fields of an answer; ours has three, the original's five.
const FIELDS: usize = 32;

/// What is asked.
pub(super) struct Question {
    /// As it stands in the request line.
    pub(super) path: String,
    /// Makes it a POST.
    pub(super) form: Option<String>,
}

impl Question {
    pub(super) fn get(path: String) -> Question {
        Question { path, form: None }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct AskError {
    socket: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Connect(io::Error),
    Talk(io::Error),
    NoHttp,
}

impl fmt::Display for AskError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let socket = self.socket.display();
        match &self.problem {
            // The first words are the original's.
            Problem::Connect(error) if error.kind() == io::ErrorKind::NotFound => write!(
                out,
                "debug socket '{socket}' is not exists; is the operator running here? name its socket with --debug-unix-socket"
            ),
            Problem::Connect(error) if error.kind() == io::ErrorKind::ConnectionRefused => write!(
                out,
                "debug socket '{socket}': nobody listens there any more; start the operator, or name its socket with --debug-unix-socket"
            ),
            Problem::Connect(error) if error.kind() == io::ErrorKind::PermissionDenied => write!(
                out,
                "debug socket '{socket}': permission denied; run this as the user of the operator, such as by kubectl exec"
            ),
            Problem::Connect(error) => write!(
                out,
                "debug socket '{socket}': {error}; name the socket of a running operator with --debug-unix-socket"
            ),
            Problem::Talk(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
                ) =>
            {
                write!(
                    out,
                    "debug socket '{socket}': no answer within {} s; is the operator stopped or out of processor time?",
                    SILENCE.as_secs()
                )
            }
            Problem::Talk(error) => write!(
                out,
                "debug socket '{socket}': the connection broke: {error}; try again"
            ),
            Problem::NoHttp => write!(
                out,
                "debug socket '{socket}': what answers there is no shell-operator; name its socket with --debug-unix-socket"
            ),
        }
    }
}

/// The body of the answer, whatever its status.
pub(super) fn ask(socket: &Path, question: &Question) -> Result<Vec<u8>, AskError> {
    let failed = |problem| AskError {
        socket: socket.to_owned(),
        problem,
    };
    let mut stream =
        UnixStream::connect(socket).map_err(|error| failed(Problem::Connect(error)))?;
    let answer = talk(&mut stream, question).map_err(|error| failed(Problem::Talk(error)))?;
    body_of(answer).ok_or_else(|| failed(Problem::NoHttp))
}

fn talk(stream: &mut UnixStream, question: &Question) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    let path = &question.path;
    let rest = "Host: localhost\r\nConnection: close\r\n";
    let request = match &question.form {
        None => format!("GET {path} HTTP/1.1\r\n{rest}\r\n"),
        Some(form) => format!(
            "POST {path} HTTP/1.1\r\n{rest}Content-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{form}",
            form.len()
        ),
    };
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER).read_to_end(&mut answer)?;
    Ok(answer)
}

/// None when the bytes are no HTTP answer, or are cut short.
fn body_of(mut answer: Vec<u8>) -> Option<Vec<u8>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    let Ok(httparse::Status::Complete(start)) = head.parse(&answer) else {
        return None;
    };
    let announced = head
        .headers
        .iter()
        .find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let length: Option<usize> = match announced {
        Some(field) => Some(std::str::from_utf8(field.value).ok()?.parse().ok()?),
        None => None,
    };
    let body = answer.split_off(start);
    length
        .is_none_or(|length| length == body.len())
        .then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_only_when_it_is_whole() {
        let body = |text: &str| body_of(text.as_bytes().to_vec());
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(body(&format!("{head}ok")), Some(b"ok".to_vec()));
        assert_eq!(body("HTTP/1.1 404 Not Found\r\n\r\nx"), Some(b"x".to_vec()));
        for broken in [
            "",
            "hello",
            head,
            &format!("{head}o"),
            &format!("{head}okay"),
        ] {
            assert_eq!(body(broken), None, "{broken:?}");
        }
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), None);
    }

    #[test]
    fn every_error_is_one_line_with_a_remedy() {
        use io::ErrorKind::{
            BrokenPipe, ConnectionRefused, InvalidInput, NotFound, PermissionDenied, TimedOut,
        };
        let connect = |kind: io::ErrorKind| Problem::Connect(kind.into());
        for (problem, expected) in [
            (
                connect(NotFound),
                "'/s' is not exists; is the operator running",
            ),
            (
                connect(ConnectionRefused),
                "nobody listens there any more; start the operator",
            ),
            (
                connect(PermissionDenied),
                "permission denied; run this as the user",
            ),
            (
                connect(InvalidInput),
                "name the socket of a running operator",
            ),
            (Problem::Talk(TimedOut.into()), "no answer within 30 s"),
            (Problem::Talk(BrokenPipe.into()), "try again"),
            (Problem::NoHttp, "is no shell-operator; name its socket"),
        ] {
            let socket = PathBuf::from("/s");
            let text = AskError { socket, problem }.to_string();
            assert!(text.starts_with("debug socket '/s'"), "{text}");
            assert!(text.contains(expected) && !text.contains('\n'), "{text}");
        }
    }
}
