//! The body of a watch: one JSON object per line, each an event.
//!
//! Runs on the watch's thread and owns the connection until it is dropped. Lines may be several megabytes long; what the buffer
//! grew for one of them is given back afterwards. A line that the connection broke off in is dropped.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::answer::{self, Stream};
use super::error::Error;
use super::list::{OBJECT_LIMIT, not_json};
use super::object::{self, Object};
use super::watch::Selection;

/// LIMIT: bytes of a line: one object and its envelope.
const LINE_LIMIT: u64 = OBJECT_LIMIT + 1024;

/// Bytes that are read at a time.
const BUFFER: usize = 16 * 1024;

/// What the line buffer may keep between lines. Most objects are smaller.
const LINE_KEPT: usize = 64 * 1024;

/// What an event says about its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    /// ADDED or MODIFIED.
    Put,
    Deleted,
    Bookmark,
    Unknown,
}

pub(super) struct WatchEvent<'a> {
    pub(super) kind: EventKind,
    pub(super) object: Object<'a>,
}

impl WatchEvent<'_> {
    pub(super) fn ends_initial_events(&self) -> bool {
        object::ends_initial_events(&self.object.text)
    }
}

pub(super) struct Events {
    reader: BufReader<Stream>,
    line: Vec<u8>,
    selection: Selection,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Code {
    code: Option<u16>,
}

impl Events {
    pub(super) fn new(stream: Stream, selection: &Selection) -> Events {
        Events {
            reader: BufReader::with_capacity(BUFFER, stream),
            line: Vec::new(),
            selection: selection.clone(),
        }
    }

    /// The next event; None at the end of the answer. An ERROR event is an error.
    pub(super) fn next(&mut self) -> Result<Option<WatchEvent<'_>>, Error> {
        if !self.read_line()? {
            return Ok(None);
        }
        let wrong = |detail: String| not_json(&self.selection, &detail);
        let line: Line<'_> =
            serde_json::from_slice(&self.line).map_err(|error| wrong(error.to_string()))?;
        let text = line.object.get().as_bytes();
        let kind = match &*line.kind {
            "ADDED" | "MODIFIED" => EventKind::Put,
            "DELETED" => EventKind::Deleted,
            "BOOKMARK" => EventKind::Bookmark,
            "ERROR" => {
                let code: Option<Code> = serde_json::from_slice(text).ok();
                let code = code.and_then(|status| status.code).unwrap_or(500);
                return Err(answer::status(self.selection.call(), code, None, text));
            }
            _ => EventKind::Unknown,
        };
        Ok(Some(WatchEvent {
            kind,
            object: Object::read(text).map_err(wrong)?,
        }))
    }

    /// The error for an answer that ended too soon.
    pub(super) fn cut(&self) -> Error {
        self.reader.get_ref().cut()
    }

    /// False at the end. Empty lines are passed over.
    fn read_line(&mut self) -> Result<bool, Error> {
        loop {
            self.line.clear();
            self.line.shrink_to(LINE_KEPT);
            let mut bounded = self.reader.by_ref().take(LINE_LIMIT);
            if let Err(error) = bounded.read_until(b'\n', &mut self.line) {
                return Err(self.reader.get_ref().failure(error));
            }
            if self.line.last() == Some(&b'\n') {
                if self.line.trim_ascii().is_empty() {
                    continue;
                }
                return Ok(true);
            }
            let length = u64::try_from(self.line.len()).unwrap_or(u64::MAX);
            if length >= LINE_LIMIT {
                return Err(Error::TooLarge {
                    call: self.selection.call(),
                    limit: LINE_LIMIT,
                });
            }
            return Ok(false);
        }
    }
}
