//! The commands that look into a running operator: one question over its debug socket, and what it says to standard output.
//!
//! Runs on the main thread of a process of its own; `ask` is the one place that dials the socket, `watch` shows an answer again and
//! again. It decides nothing about what there is to see: every word of an answer is the operator's.

mod ask;
mod watch;

use std::io::{self, IsTerminal as _, Write};

use self::ask::{Question, ask};
use crate::settings::{Form, Look, Looking};

/// Asks and prints. What the operator refuses is printed like any other answer, as the original does it; an error is that there
/// was no answer.
pub(crate) fn run(looking: &Looking) -> Result<(), String> {
    let question = question(looking);
    let mut stdout = io::stdout().lock();
    if let Look::Queues {
        every: Some(every), ..
    } = looking.look
    {
        let is_terminal = stdout.is_terminal();
        return watch::watch(&looking.socket, &question, every, is_terminal, &mut stdout);
    }
    let answer = ask(&looking.socket, &question).map_err(|error| error.to_string())?;
    // Nobody can be told if stdout is gone.
    let _ = stdout.write_all(&answer);
    let _ = stdout.flush();
    Ok(())
}

fn question(looking: &Looking) -> Question {
    let ending = match looking.form {
        Form::Text => "text",
        Form::Json => "json",
        Form::Yaml => "yaml",
    };
    match &looking.look {
        Look::Queues { show_empty, .. } => {
            Question::get(format!("/queue/list.{ending}?showEmpty={show_empty}"))
        }
        Look::MainQueue => Question::get(format!("/queue/main.{ending}")),
        Look::Hooks => Question::get(format!("/hook/list.{ending}")),
        Look::Snapshots { hook } => {
            Question::get(format!("/hook/{}/snapshots.{ending}", encoded(hook, b"/")))
        }
        Look::Parameters => Question::get(format!("/config/list.{ending}")),
        Look::SetParameter {
            name,
            value,
            duration,
        } => Question {
            path: "/config/set".to_owned(),
            form: Some(format!(
                "name={}&value={}&duration={}",
                encoded(name, b""),
                encoded(value, b""),
                encoded(duration, b"")
            )),
        },
        Look::Raw { path } => {
            let path = encoded(path, b"/?&=%+,:;@!$'()*");
            let slash = if path.starts_with('/') { "" } else { "/" };
            Question::get(format!("{slash}{path}"))
        }
    }
}

/// Percent-encodes everything but letters, digits, `-._~` and what is `kept`.
fn encoded(text: &str, kept: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn every_look_is_a_route_of_the_debug_server() {
        let text = |text: &str| text.to_owned();
        let get = |path: &str| (text(path), None);
        let set = Look::SetParameter {
            name: text("log.level"),
            value: text("a&b"),
            duration: text("1h 2m"),
        };
        let raw = |path: &str| Look::Raw { path: text(path) };
        let hook = text("001/my hook?.sh");
        for (look, expected) in [
            (Look::MainQueue, get("/queue/main.yaml")),
            (Look::Hooks, get("/hook/list.yaml")),
            (
                Look::Snapshots { hook },
                get("/hook/001/my%20hook%3F.sh/snapshots.yaml"),
            ),
            (Look::Parameters, get("/config/list.yaml")),
            (
                raw("/queue/list.json?showEmpty=true"),
                get("/queue/list.json?showEmpty=true"),
            ),
            (raw("x y\r\nHost: z"), get("/x%20y%0D%0AHost:%20z")),
            (
                set,
                (
                    text("/config/set"),
                    Some(text("name=log.level&value=a%26b&duration=1h%202m")),
                ),
            ),
        ] {
            let looking = Looking {
                look,
                form: Form::Yaml,
                socket: PathBuf::new(),
            };
            let Question { path, form } = question(&looking);
            assert_eq!((path, form), expected);
        }
    }
}
