//! The object patch file of a hook: from bytes to operations, one at a time.
//!
//! A file is first taken for JSON documents, one after the other; if that cannot be, for YAML documents. All of it is checked
//! before the first operation is given away, and read again for that: so there is never more in memory than the file and one
//! operation, however many there are. Pure.

use std::cell::OnceCell;
use std::fmt;

use serde_json::value::RawValue;

use super::Operation;
use super::document::{self, Flaw};
use crate::yaml::{self, Node, Tree};

/// A file all of whose documents are operations.
pub(crate) struct File<'a> {
    text: &'a str,
    form: Form,
    /// How many operations there are.
    pub(crate) count: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Yaml,
}

/// Why a file is not carried out. Never shows what is in it, because that may be a Secret.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileError {
    NotText,
    TooMany,
    /// Whoever asked could not wait for the end.
    Interrupted,
    /// Neither JSON nor YAML; the words are those of the form that was probably meant.
    Unreadable {
        document: usize,
        detail: String,
    },
    Invalid {
        document: usize,
        /// Operation and object, as far as they could be read.
        what: String,
        flaw: Flaw,
    },
}

impl fmt::Display for FileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("object patch file: ")?;
        match self {
            FileError::NotText => {
                out.write_str("it is not a text; write JSON or YAML in UTF-8, without NUL bytes")
            }
            FileError::TooMany => write!(
                out,
                "more than {} documents; write fewer in one run",
                yaml::MAX_DOCUMENTS
            ),
            FileError::Interrupted => {
                out.write_str("there was no time to check it; nothing of it is carried out")
            }
            FileError::Unreadable { document, detail } => {
                write!(out, "document {document} cannot be read: {detail}")
            }
            FileError::Invalid {
                document,
                what,
                flaw,
            } if what.is_empty() => {
                write!(out, "can't validate document {document}: {flaw}")
            }
            FileError::Invalid {
                document,
                what,
                flaw,
            } => write!(out, "can't validate document {document} ({what}): {flaw}"),
        }
    }
}

impl std::error::Error for FileError {}

impl<'a> File<'a> {
    /// Checks every document, as long as `may_go_on`: a large file takes seconds.
    pub(crate) fn read(
        bytes: &'a [u8],
        may_go_on: &dyn Fn() -> bool,
    ) -> Result<File<'a>, FileError> {
        let text = std::str::from_utf8(bytes).map_err(|_| FileError::NotText)?;
        if text.contains('\0') {
            return Err(FileError::NotText);
        }
        let file = |form| File {
            text,
            form,
            count: 0,
        };
        let goes_on = || match may_go_on() {
            true => Ok(()),
            false => Err(FileError::Interrupted),
        };
        let mut ignore = |_: Operation| goes_on();
        goes_on()?;
        let (form, count) = match file(Form::Json).walk(&mut ignore) {
            Ok((count, end)) => (Form::Json, end.map(|()| count)?),
            Err(not_json @ FileError::Unreadable { .. }) => {
                match file(Form::Yaml).walk(&mut ignore) {
                    Ok((count, end)) => (Form::Yaml, end.map(|()| count)?),
                    Err(FileError::Unreadable { .. }) if text.trim_start().starts_with('{') => {
                        return Err(not_json);
                    }
                    Err(not_yaml) => return Err(not_yaml),
                }
            }
            Err(error) => return Err(error),
        };
        Ok(File { text, form, count })
    }

    /// Gives away the operations in their order, until `each` has enough.
    pub(crate) fn each<E>(
        &self,
        mut each: impl FnMut(Operation) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.walk(&mut each) {
            Ok((_, end)) => end,
            // It was read before, so that this cannot be.
            Err(_) => Ok(()),
        }
    }

    /// Reads documents one by one. Says how many there were, and how `each` ended it.
    fn walk<E>(
        &self,
        each: &mut dyn FnMut(Operation) -> Result<(), E>,
    ) -> Result<(usize, Result<(), E>), FileError> {
        match self.form {
            Form::Json => self.walk_json(each),
            Form::Yaml => self.walk_yaml(each),
        }
    }

    fn walk_json<E>(
        &self,
        each: &mut dyn FnMut(Operation) -> Result<(), E>,
    ) -> Result<(usize, Result<(), E>), FileError> {
        let documents = serde_json::Deserializer::from_str(self.text).into_iter::<&RawValue>();
        let mut count = 0;
        for document in documents {
            count += 1;
            if count > yaml::MAX_DOCUMENTS {
                return Err(FileError::TooMany);
            }
            let unreadable = |detail| FileError::Unreadable {
                document: count,
                detail,
            };
            // The library's words hold places and no text of the document.
            let document = document.map_err(|error| unreadable(error.to_string()))?;
            if !document.get().starts_with('{') {
                return Err(unreadable("an operation is a JSON object".to_owned()));
            }
            let operation = document::read(count, document.get(), document::Keys::AnyCase)?;
            if let Err(end) = each(operation) {
                return Ok((count, Err(end)));
            }
        }
        Ok((count, Ok(())))
    }

    fn walk_yaml<E>(
        &self,
        each: &mut dyn FnMut(Operation) -> Result<(), E>,
    ) -> Result<(usize, Result<(), E>), FileError> {
        enum End<E> {
            Refused(FileError),
            Enough(E),
        }
        let lines = Lines::of(self.text);
        let mut count = 0;
        let end = yaml::each_document(self.text, |node| {
            count += 1;
            let text = json_of(node, &lines);
            let operation =
                document::read(count, &text, document::Keys::Exact).map_err(End::Refused)?;
            each(operation).map_err(End::Enough)
        });
        match end {
            Ok(Ok(())) => Ok((count, Ok(()))),
            Ok(Err(End::Enough(end))) => Ok((count, Err(end))),
            Ok(Err(End::Refused(error))) => Err(error),
            Err((before, error)) => Err(FileError::Unreadable {
                document: before + 1,
                detail: place_of(&error),
            }),
        }
    }
}

/// A YAML error without anything of the text, which the library's words and ours may quote.
pub(super) fn place_of(error: &yaml::Error) -> String {
    let flaw = error.flaw;
    match error.line {
        0 => format!("YAML: {flaw}"),
        line => format!("YAML, line {line}, column {}: {flaw}", error.column),
    }
}

/// The lines of a text, found when the first is asked for.
struct Lines<'a> {
    text: &'a str,
    lines: OnceCell<Vec<&'a str>>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Lines<'a> {
        Lines {
            text,
            lines: OnceCell::new(),
        }
    }

    /// Whether a line, counted from 1, has this word.
    fn has_word(&self, line: u64, word: &str) -> bool {
        let lines = self.lines.get_or_init(|| self.text.lines().collect());
        let index = usize::try_from(line).unwrap_or(0).wrapping_sub(1);
        let line = lines.get(index).copied().unwrap_or_default();
        let is_apart = |letter: char| !(letter.is_alphanumeric() || "._+-".contains(letter));
        line.split(is_apart).any(|part| part == word)
    }
}

/// A document as JSON. A name that looks like a number or a truth value is a text all the same, as in the original, if the value
/// says how it was written: `name: 5` does, `name: 0644` was read as 420 and stays a number, which is refused later.
fn json_of(node: &Node, lines: &Lines<'_>) -> String {
    let mut value = node.to_value();
    for key in document::TEXTS {
        let Some(entry) = node.entry(key) else {
            continue;
        };
        let word = match &entry.node.tree {
            Tree::Number(number) => number.to_string(),
            Tree::Bool(truth) => truth.to_string(),
            _ => continue,
        };
        if lines.has_word(entry.node.line, &word)
            && let Some(field) = value.get_mut(key)
        {
            *field = word.into();
        }
    }
    value.to_string()
}
