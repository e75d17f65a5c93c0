//! The step in front of argh: takes the flags of the table out of the arguments.
//!
//! Pure. argh reads neither `--flag=value` nor a flag that is given twice, and manifests in the wild use both. Here every form is
//! accepted: `--flag value`, `--flag=value`, a switch with or without a value, older spellings, flags before or after the command.
//! Nothing after `--` is a flag. A flag that nobody knows is answered with the nearest one that exists.

use super::command::{WORD_FLAGS, WordFlag};
use super::error::UsageError;
use super::flag::{self, Flag, IGNORED, Ignored, Takes, Topic};

/// Arguments with the flags of the table taken out.
#[derive(Default)]
pub(super) struct Split {
    pub(super) flags: Vec<(Topic, &'static Flag, String)>,
    pub(super) ignored: Vec<&'static Ignored>,
    pub(super) words: Vec<String>,
    pub(super) help: bool,
    pub(super) version: bool,
}

/// Takes the flags out.
pub(super) fn split(arguments: &[String]) -> Result<Split, UsageError> {
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
            match short(argument) {
                Some((flag, inline)) => {
                    split.push_word_flag(flag, inline, &mut rest)?;
                }
                None if argument.starts_with('-') => return Err(unknown_flag(argument)),
                None => split.words.push(argument.to_owned()),
            }
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
        } else if let Some(flag) = WORD_FLAGS
            .iter()
            .find(|flag| flag.name == name || flag.other_name == name)
        {
            split.push_word_flag(flag, inline, &mut rest)?;
        } else {
            return Err(unknown_flag(argument));
        }
    }
    Ok(split)
}

impl Split {
    /// Hands a flag on to argh, in the one form that it reads.
    fn push_word_flag<'a>(
        &mut self,
        flag: &WordFlag,
        inline: Option<&'a str>,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), UsageError> {
        let long = format!("--{}", flag.name);
        if flag.is_switch {
            // `--flag=false` is the same as leaving it out.
            if !matches!(inline, Some("false")) {
                self.words.push(long);
            }
            return Ok(());
        }
        let value = match inline {
            Some(value) => value,
            None => value_of(flag.name, "VALUE", rest.next())?,
        };
        self.words.push(long);
        self.words.push(value.to_owned());
        Ok(())
    }
}

/// `-o json`, `-o=json` or `-ojson`: the flag and what follows it in the same word.
fn short(argument: &str) -> Option<(&'static WordFlag, Option<&str>)> {
    let mut letters = argument.strip_prefix('-')?.chars();
    let letter = letters.next()?;
    let flag = WORD_FLAGS.iter().find(|flag| flag.short == Some(letter))?;
    let rest = letters.as_str();
    let inline = rest.strip_prefix('=').unwrap_or(rest);
    match (flag.is_switch, rest.is_empty()) {
        (_, true) => Some((flag, None)),
        (false, false) => Some((flag, Some(inline))),
        (true, false) => rest.starts_with('=').then_some((flag, Some(inline))),
    }
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
        .chain(WORD_FLAGS.iter().map(|flag| flag.name))
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
    // LIMIT: twice the longest name; what is longer is no slip of the finger, and comparing would take long.
    const MAX_COMPARED: usize = 80;
    if given.len() > MAX_COMPARED {
        return None;
    }
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
