//! The commands that look into a running operator: what they are called, and what of it was asked for.
//!
//! Pure. The names and short flags are the original's. Asking the operator is the business of `inspect`.

use std::path::PathBuf;
use std::time::Duration;

use argh::FromArgs;

use super::value;

/// What to show of a running operator, or to change in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Queues {
        show_empty: bool,
        /// Again and again, so often.
        every: Option<Duration>,
    },
    MainQueue,
    Hooks,
    Snapshots {
        hook: String,
    },
    Parameters,
    SetParameter {
        name: String,
        value: String,
        /// Empty for none.
        duration: String,
    },
    /// Any path of the debug server.
    Raw {
        path: String,
    },
}

/// A look, its form, and the socket to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Looking {
    pub(crate) look: Look,
    pub(crate) form: Form,
    pub(crate) socket: PathBuf,
}

/// How the answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Text,
    Json,
    Yaml,
}

/// How often a watched view is refreshed when nothing else is said.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// LIMIT: faster than anybody reads, and slow enough to cost the operator next to nothing.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// Show the queues.
#[derive(FromArgs)]
#[argh(subcommand, name = "queue")]
pub(super) struct QueueWords {
    /// list or main
    #[argh(positional)]
    words: Vec<String>,
    /// text, json or yaml
    #[argh(option, from_str_fn(form))]
    output: Option<Form>,
    /// empty queues, too
    #[argh(switch)]
    show_empty: bool,
    /// again and again
    #[argh(switch)]
    watch: bool,
    /// how often
    #[argh(option, from_str_fn(interval))]
    watch_interval: Option<Duration>,
}

/// Show the hooks.
#[derive(FromArgs)]
#[argh(subcommand, name = "hook")]
pub(super) struct HookWords {
    /// list, or snapshot NAME
    #[argh(positional)]
    words: Vec<String>,
    /// text, json or yaml
    #[argh(option, from_str_fn(form))]
    output: Option<Form>,
}

/// Show or set runtime parameters.
#[derive(FromArgs)]
#[argh(subcommand, name = "config")]
pub(super) struct ConfigWords {
    /// list, or set NAME VALUE and for how long
    #[argh(positional)]
    words: Vec<String>,
    /// text, json or yaml
    #[argh(option, from_str_fn(form))]
    output: Option<Form>,
}

/// Ask for any path.
#[derive(FromArgs)]
#[argh(subcommand, name = "raw")]
pub(super) struct RawWords {
    /// the path
    #[argh(positional)]
    words: Vec<String>,
}

/// What was asked for, or which words were expected.
pub(super) type Asked = Result<(Look, Form), &'static str>;

impl QueueWords {
    pub(super) fn look(self) -> Asked {
        let form = self.output.unwrap_or_default();
        let is_watched = self.watch || self.watch_interval.is_some();
        match words(&self.words).as_slice() {
            ["list"] => {
                let every = self.watch_interval.unwrap_or(WATCH_INTERVAL);
                let look = Look::Queues {
                    show_empty: self.show_empty,
                    every: is_watched.then_some(every),
                };
                Ok((look, form))
            }
            ["main"] if self.show_empty || is_watched => {
                Err("--show-empty and --watch belong to `queue list`")
            }
            ["main"] => Ok((Look::MainQueue, form)),
            _ => Err("queue needs one word: list or main"),
        }
    }
}

impl HookWords {
    pub(super) fn look(self) -> Asked {
        let form = self.output.unwrap_or_default();
        match words(&self.words).as_slice() {
            ["list"] => Ok((Look::Hooks, form)),
            ["snapshot", hook] => {
                let hook = (*hook).to_owned();
                Ok((Look::Snapshots { hook }, form))
            }
            ["snapshot", ..] => {
                Err("hook snapshot needs the name of one hook; `hook list` shows them")
            }
            _ => Err("hook needs one word: list or snapshot"),
        }
    }
}

impl ConfigWords {
    pub(super) fn look(self) -> Asked {
        let form = self.output.unwrap_or_default();
        let set = |name: &str, value: &str, duration: &str| Look::SetParameter {
            name: name.to_owned(),
            value: value.to_owned(),
            duration: duration.to_owned(),
        };
        match words(&self.words).as_slice() {
            ["list"] => Ok((Look::Parameters, form)),
            ["set", name, value] => Ok((set(name, value, ""), form)),
            ["set", name, value, duration] => Ok((set(name, value, duration), form)),
            ["set", ..] => Err("config set needs a name and a value, such as log.level debug 10m"),
            _ => Err("config needs one word: list or set"),
        }
    }
}

impl RawWords {
    pub(super) fn look(self) -> Asked {
        match words(&self.words).as_slice() {
            [path] => {
                let path = (*path).to_owned();
                Ok((Look::Raw { path }, Form::Text))
            }
            _ => Err("raw needs one path, such as /queue/list.json"),
        }
    }
}

fn words(given: &[String]) -> Vec<&str> {
    given.iter().map(String::as_str).collect()
}

fn form(text: &str) -> Result<Form, String> {
    match text {
        "text" => Ok(Form::Text),
        "json" => Ok(Form::Json),
        "yaml" => Ok(Form::Yaml),
        _ => Err("expected text, json or yaml".to_owned()),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    match value::time(text) {
        Ok(interval) if interval >= SHORTEST_INTERVAL => Ok(interval),
        _ => Err("expected a duration of at least 100ms, such as 2s".to_owned()),
    }
}
