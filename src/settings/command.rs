//! From arguments to a `Command`.
//!
//! A step in front of argh takes the flags of the table out of the arguments, in any of the forms that manifests in the wild use
//! (`--flag value`, `--flag=value`, a switch with or without `=true`, older spellings, flags before or after the command). What
//! is left, the command with its words and its own few flags, is read by argh. Runs once on the main thread; prints nothing.

use std::time::Duration;

use argh::FromArgs;

use super::error::UsageError;
use super::flag::{self, Flag, IGNORED, Ignored, Takes, Topic};
use super::help::{self, COMMANDS};
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
}

/// Reads the arguments and the environment of this process.
#[expect(
    clippy::disallowed_methods,
    reason = "this room may read the environment"
)]
pub(crate) fn parse_process() -> Result<Command, UsageError> {
    // What is not UTF-8 is shown with replacement characters in the error that follows from it.
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    parse(&arguments, &|variable| {
        std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
    })
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
    for (topic, flag, _) in &split.flags {
        if !command.topics.contains(topic) {
            return Err(UsageError::ForeignFlag {
                flag: flag.name,
                command: command.name,
            });
        }
    }
    let words: Vec<&str> = split.words.iter().map(String::as_str).collect();
    let line = match Line::from_args(&["shell-operator"], &words) {
        Ok(line) => line,
        Err(exit) if exit.status.is_ok() => {
            return help::page(Some(command.name)).map(Command::Help);
        }
        Err(exit) => return Err(words_error(command.name, &exit.output)),
    };
    match line.words {
        Some(Words::Version(_)) => Ok(Command::Version),
        Some(Words::Resource(resource)) => {
            if resource.names.is_empty() {
                return Err(words_error(
                    command.name,
                    "resource needs a name, such as pods",
                ));
            }
            Ok(Command::Resource {
                names: resource.names,
                api_version: resource.api_version,
                wait: resource.wait.unwrap_or_default(),
                settings: Box::new(resolve(&split, environment, command.topics)?),
            })
        }
        Some(Words::Start(_)) | None => Ok(Command::Start(Box::new(resolve(
            &split,
            environment,
            command.topics,
        )?))),
    }
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
}

/// Run the operator.
#[derive(FromArgs)]
#[argh(subcommand, name = "start")]
struct StartWords {}

/// Show the version.
#[derive(FromArgs)]
#[argh(subcommand, name = "version")]
struct VersionWords {}

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

/// The flags above that argh reads itself. All of them take a value.
const WORD_FLAGS: &[&str] = &["api-version", "wait"];

fn argh_duration(text: &str) -> Result<Duration, String> {
    value::duration(text).map_err(|expected| format!("expected {expected}"))
}

/// argh's text, which may have several lines, as one.
fn words_error(command: &'static str, text: &str) -> UsageError {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut problem = words.join(" ");
    if let Some(first) = problem.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    UsageError::Words { command, problem }
}

/// Arguments with the flags of the table taken out.
#[derive(Default)]
struct Split {
    flags: Vec<(Topic, &'static Flag, String)>,
    ignored: Vec<&'static Ignored>,
    words: Vec<String>,
    help: bool,
    version: bool,
}

fn split(arguments: &[String]) -> Result<Split, UsageError> {
    let mut split = Split::default();
    let mut rest = arguments.iter().map(String::as_str).peekable();
    while let Some(argument) = rest.next() {
        match argument {
            "--" => {
                split.words.push("--".to_owned());
                split.words.extend(rest.map(str::to_owned));
                return Ok(split);
            }
            "--help" | "-h" => {
                split.help = true;
                continue;
            }
            "--version" => {
                split.version = true;
                continue;
            }
            _ => {}
        }
        let Some(long) = argument.strip_prefix("--") else {
            if argument.starts_with('-') {
                return Err(unknown_flag(argument));
            }
            split.words.push(argument.to_owned());
            continue;
        };
        let (name, inline) = match long.split_once('=') {
            Some((name, value)) => (spelling(name), Some(value)),
            None => (spelling(long), None),
        };
        if let Some((topic, flag)) = find(&name) {
            let value = match (flag.takes, inline) {
                (_, Some(value)) => value,
                (Takes::Switch, None) => switch_word(&mut rest),
                (Takes::One(placeholder) | Takes::Many(placeholder), None) => {
                    value_of(flag.name, placeholder, rest.next())?
                }
            };
            split.flags.push((topic, flag, value.to_owned()));
        } else if let Some(ignored) = IGNORED.iter().find(|i| i.name == Some(&*name)) {
            if inline.is_none() {
                value_of(&name, "VALUE", rest.next())?;
            }
            split.ignored.push(ignored);
        } else if WORD_FLAGS.contains(&&*name) {
            let value = match inline {
                Some(value) => value,
                None => value_of(&name, "VALUE", rest.next())?,
            };
            split.words.push(format!("--{name}"));
            split.words.push(value.to_owned());
        } else {
            return Err(unknown_flag(argument));
        }
    }
    Ok(split)
}

/// The word after a switch belongs to it if it is a truth value: releases before v1.17.4 had `--debug-keep-tmp-files yes`.
fn switch_word<'a>(rest: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> &'a str {
    rest.next_if(|word| matches!(*word, "true" | "false" | "yes" | "no"))
        .unwrap_or("true")
}

/// The argument after a flag, unless that is a flag itself: then a value was forgotten.
fn value_of<'a>(
    name: &str,
    placeholder: &'static str,
    next: Option<&'a str>,
) -> Result<&'a str, UsageError> {
    let is_flag = |text: &str| {
        text.strip_prefix("--").is_some_and(|long| {
            let name = long.split_once('=').map_or(long, |(name, _)| name);
            find(&spelling(name)).is_some()
        })
    };
    next.filter(|text| !is_flag(text))
        .ok_or_else(|| UsageError::MissingValue {
            flag: name.to_owned(),
            placeholder,
        })
}

/// The proposal wrote some flags in capitals and with underscores (SO-31); case and underscores make no difference.
fn spelling(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

fn find(name: &str) -> Option<(Topic, &'static Flag)> {
    flag::all().find(|(_, flag)| flag.name == name || flag.other_names.contains(&name))
}

fn unknown_flag(argument: &str) -> UsageError {
    let long = argument.trim_start_matches('-');
    let name = spelling(long.split_once('=').map_or(long, |(name, _)| name));
    let known = flag::all()
        .map(|(_, flag)| flag.name)
        .chain(WORD_FLAGS.iter().copied())
        .chain(["help", "version"]);
    UsageError::UnknownFlag {
        given: argument.to_owned(),
        nearest: nearest(&name, known).map(str::to_owned),
    }
}

/// The most similar of the known names, if it is similar at all.
pub(super) fn nearest(
    given: &str,
    known: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let allowed = (given.len() / 3).max(2);
    known
        .map(|name| (distance(given, name), name))
        .filter(|(distance, name)| *distance <= allowed && *distance < name.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many letters must be added, removed or exchanged to make one text of the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().enumerate() {
        let mut diagonal = index;
        let mut before = index + 1;
        if let Some(first) = row.first_mut() {
            *first = before;
        }
        for (cell, other) in row.iter_mut().skip(1).zip(&right) {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = *cell;
            before = replaced.min(before + 1).min(*cell + 1);
            *cell = before;
        }
    }
    row.last().copied().unwrap_or_default()
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
