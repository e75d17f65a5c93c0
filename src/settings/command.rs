//! From arguments to a `Command`.
//!
//! `argument.rs` has taken the flags of the table out; what is left, the command with its words and its own few flags, is read by
//! argh. Then every flag gets its value: what was given, else the environment, else the default. Runs once on the main thread;
//! prints nothing and reads nothing but arguments and environment.

use std::ffi::OsString;
use std::time::Duration;

use argh::FromArgs;

use super::argument::{Split, nearest, split};
use super::error::UsageError;
use super::flag::{self, Flag, IGNORED, Takes, Topic};
use super::help::{self, COMMANDS, CommandText};
use super::look::{Asked, ConfigWords, HookWords, Looking, QueueWords, RawWords};
use super::review::{ReviewWords, Reviewing};
use super::testing::{TestWords, Testing};
use super::{Settings, value};

/// What the program was asked to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// Run the operator. Also what happens when no command is given.
    Start(Box<Settings>),
    /// Print `version_text`.
    Version,
    /// Print this text.
    Help(String),
    /// Show how the API server knows a kind.
    Resource {
        names: Vec<String>,
        api_version: Option<String>,
        /// How long to wait for names that are not known yet.
        wait: Duration,
        settings: Box<Settings>,
    },
    /// Look into a running operator.
    Look(Looking),
    /// Run the tests of hooks.
    Test(Box<Testing>),
    /// Decide manifests with the hooks and without a cluster.
    Review {
        reviewing: Box<Reviewing>,
        settings: Box<Settings>,
    },
}

/// Whether the command is one whose exit code 1 says "denied", so that a mistake in its arguments must be another.
pub(crate) fn decides(arguments: &[OsString]) -> bool {
    let mut words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    let command = words.find(|word| COMMANDS.iter().any(|command| command.name == *word));
    command.is_some_and(|name| name == "review" || name == "test")
}

/// Reads the arguments and the environment of this process.
pub(crate) fn parse_process() -> Result<Command, UsageError> {
    // What is not UTF-8 is shown with replacement characters in the error that follows from it.
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    parse(&arguments, &variable)
}

/// The arguments of this process, the program's name first, for beginning anew.
pub(crate) fn arguments() -> Vec<OsString> {
    std::env::args_os().collect()
}

/// One variable of this process's environment, for rooms that are told by it how to reach the cluster.
#[expect(
    clippy::disallowed_methods,
    reason = "this room may read the environment"
)]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Makes a command of the arguments, without the program's name, and of the environment.
pub(crate) fn parse(
    arguments: &[String],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Command, UsageError> {
    let split = split(arguments)?;
    if split.version {
        return Ok(Command::Version);
    }
    let first = split.words.first().map_or("start", String::as_str);
    if first == "help" {
        return help::page(split.words.get(1).map(String::as_str)).map(Command::Help);
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == first) else {
        return Err(UsageError::UnknownCommand {
            given: first.to_owned(),
            nearest: nearest(first, COMMANDS.iter().map(|command| command.name)),
        });
    };
    if split.help {
        let page = if split.words.is_empty() {
            None
        } else {
            Some(first)
        };
        return help::page(page).map(Command::Help);
    }
    refuse_foreign_flags(&split, command)?;
    let words: Vec<&str> = split.words.iter().map(String::as_str).collect();
    let line = match Line::from_args(&["shell-operator"], &words) {
        Ok(line) => line,
        Err(exit) if exit.status.is_ok() => {
            return help::page(Some(command.name)).map(Command::Help);
        }
        Err(exit) => return Err(words_error(command.name, &exit.output)),
    };
    let settings = || resolve(&split, environment, command.topics);
    let look = |asked: Asked| {
        let (look, form) = asked.map_err(|problem| words_error(command.name, problem))?;
        let socket = settings()?.debug.unix_socket;
        let looking = Looking { look, form, socket };
        Ok(Command::Look(looking))
    };
    match line.words {
        Some(Words::Version(_)) => Ok(Command::Version),
        Some(Words::Resource(resource)) if resource.names.is_empty() => Err(words_error(
            command.name,
            "resource needs a name, such as pods",
        )),
        Some(Words::Resource(resource)) => Ok(Command::Resource {
            names: resource.names,
            api_version: resource.api_version,
            wait: resource.wait.unwrap_or_default(),
            settings: Box::new(settings()?),
        }),
        Some(Words::Review(words)) => {
            let reviewing = words.reviewing();
            let reviewing = reviewing.map_err(|problem| words_error(command.name, problem))?;
            let (reviewing, settings) = (Box::new(reviewing), Box::new(settings()?));
            Ok(Command::Review {
                reviewing,
                settings,
            })
        }
        Some(Words::Queue(words)) => look(words.look()),
        Some(Words::Hook(words)) => look(words.look()),
        Some(Words::Config(words)) => look(words.look()),
        Some(Words::Raw(words)) => look(words.look()),
        Some(Words::Test(words)) => {
            let testing = words.testing(settings()?);
            Ok(Command::Test(Box::new(testing)))
        }
        Some(Words::DebugOptions(_)) => help::page(Some(command.name)).map(Command::Help),
        Some(Words::Start(_)) | None => Ok(Command::Start(Box::new(settings()?))),
    }
}

/// A flag of another command is a mistake, not a wish without effect.
fn refuse_foreign_flags(split: &Split, command: &CommandText) -> Result<(), UsageError> {
    for (topic, flag, _) in &split.flags {
        if !command.topics.contains(topic) && !command.borrowed.contains(&flag.name) {
            return Err(UsageError::ForeignFlag {
                flag: flag.name,
                command: command.name,
            });
        }
    }
    Ok(())
}

/// Kubernetes hooks in any language.
#[derive(FromArgs)]
struct Line {
    #[argh(subcommand)]
    words: Option<Words>,
}

#[derive(FromArgs)]
#[argh(subcommand)]
enum Words {
    Start(StartWords),
    Version(VersionWords),
    Resource(ResourceWords),
    Review(ReviewWords),
    Queue(QueueWords),
    Hook(HookWords),
    Config(ConfigWords),
    Raw(RawWords),
    Test(TestWords),
    DebugOptions(DebugOptionsWords),
}

/// Run the operator.
#[derive(FromArgs)]
#[argh(subcommand, name = "start")]
struct StartWords {}

/// Show the version.
#[derive(FromArgs)]
#[argh(subcommand, name = "version")]
struct VersionWords {}

/// List the flags for looking inside.
#[derive(FromArgs)]
#[argh(subcommand, name = "debug-options")]
struct DebugOptionsWords {}

/// Show how the API server knows a kind.
#[derive(FromArgs)]
#[argh(subcommand, name = "resource")]
struct ResourceWords {
    /// kinds, plurals, singulars or short names
    #[argh(positional)]
    names: Vec<String>,
    /// only look in this group and version
    #[argh(option)]
    api_version: Option<String>,
    /// how long to wait for a name that is not known yet
    #[argh(option, from_str_fn(argh_duration))]
    wait: Option<Duration>,
}

/// A flag that argh reads itself.
pub(super) struct WordFlag {
    pub(super) name: &'static str,
    /// The original's spelling, where it differs.
    pub(super) other_name: &'static str,
    pub(super) short: Option<char>,
    pub(super) is_switch: bool,
}

pub(super) const WORD_FLAGS: &[WordFlag] = &[
    word_flag("api-version", "", None, false),
    word_flag("wait", "", None, false),
    word_flag("output", "", Some('o'), false),
    word_flag("show-empty", "", Some('e'), true),
    word_flag("watch", "", Some('w'), true),
    word_flag("watch-interval", "watchinterval", Some('t'), false),
    word_flag("run", "", None, false),
    word_flag("no-skip", "", None, true),
    word_flag("filename", "file", Some('f'), false),
    word_flag("objects", "", None, false),
    word_flag("old", "", None, false),
    word_flag("operation", "", None, false),
    word_flag("subresource", "", None, false),
    word_flag("user", "as", None, false),
    word_flag("groups", "as-group", None, false),
    word_flag("dry-run", "", None, true),
    word_flag("verbose", "", Some('v'), true),
    word_flag("allow-unjudged", "", None, true),
];

const fn word_flag(
    name: &'static str,
    other_name: &'static str,
    short: Option<char>,
    is_switch: bool,
) -> WordFlag {
    WordFlag {
        name,
        other_name,
        short,
        is_switch,
    }
}

fn argh_duration(text: &str) -> Result<Duration, String> {
    value::time(text).map_err(|expected| format!("expected {expected}"))
}

/// argh's text, which may have several lines and repeats what was given, as one line of bounded length.
fn words_error(command: &'static str, text: &str) -> UsageError {
    const SHOWN_CHARS: usize = 200;
    let words: Vec<&str> = text.split_whitespace().collect();
    let visible = words.join(" ").replace(char::is_control, "?");
    let mut problem: String = visible.chars().take(SHOWN_CHARS).collect();
    if let Some(first) = problem.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    UsageError::Words { command, problem }
}

/// Every flag of the table gets its value: flag, else non-empty variable, else default. Variables of topics that the command does
/// not have are not looked at, so that a mistake in one does not stop a command that does not need it.
fn resolve(
    split: &Split,
    environment: &dyn Fn(&str) -> Option<String>,
    topics: &[Topic],
) -> Result<Settings, UsageError> {
    let variable = |name: &'static str| environment(name).filter(|value| !value.is_empty());
    let mut settings = Settings::default();
    for (topic, flag) in flag::all() {
        let bad_flag = |value: &str, expected| UsageError::BadFlag {
            flag: flag.name,
            value: value.to_owned(),
            expected,
        };
        if !flag.default.is_empty() {
            (flag.set)(&mut settings, flag.default).map_err(|e| bad_flag(flag.default, e))?;
        }
        let given: Vec<&str> = split
            .flags
            .iter()
            .filter(|(_, other, _)| other.name == flag.name)
            .map(|(_, _, value)| value.as_str())
            .collect();
        if let Some(last) = given.last() {
            let counted = match flag.takes {
                Takes::Many(_) => given.as_slice(),
                Takes::One(_) | Takes::Switch => std::slice::from_ref(last),
            };
            for value in counted {
                (flag.set)(&mut settings, value).map_err(|e| bad_flag(value, e))?;
            }
        } else if topics.contains(&topic) {
            let from = flag.variables.iter().copied();
            let found = from.filter_map(|name| variable(name).map(|v| (name, v)));
            if let Some((name, value)) = found.take(1).next() {
                set_from_variable(&mut settings, flag, name, &value)?;
            }
        }
    }
    settings.warnings = warnings(split, &variable);
    Ok(settings)
}

fn set_from_variable(
    settings: &mut Settings,
    flag: &Flag,
    variable: &'static str,
    text: &str,
) -> Result<(), UsageError> {
    let values: Vec<&str> = match flag.takes {
        Takes::Many(_) => text
            .split(',')
            .map(str::trim)
            .filter(|v| !v.is_empty())
            .collect(),
        Takes::One(_) | Takes::Switch => vec![text],
    };
    for value in values {
        (flag.set)(settings, value).map_err(|expected| UsageError::BadVariable {
            variable,
            value: value.to_owned(),
            expected,
        })?;
    }
    Ok(())
}

/// A sentence for each thing that was given and has no effect.
fn warnings(split: &Split, variable: &dyn Fn(&'static str) -> Option<String>) -> Vec<String> {
    let mut warnings = Vec::new();
    for ignored in &split.ignored {
        if let Some(name) = ignored.name {
            warnings.push(format!("flag --{name} is ignored: {}", ignored.reason));
        }
    }
    for ignored in IGNORED {
        if let Some(name) = ignored.variable.filter(|name| variable(name).is_some()) {
            warnings.push(format!(
                "environment variable {name} is ignored: {}",
                ignored.reason
            ));
        }
    }
    warnings
}
