//! Reads a list from the API server item by item.
//!
//! Runs on the watch's thread. An item is handed on as soon as its last byte is read, so that the memory of a list of any length
//! is that of its longest item. It works page by page; when the token for the next page has expired, the caller may ask for
//! the whole list in one answer, which costs no more memory here.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::answer::Stream;
use super::client::Client;
use super::error::{Error, Fault};
use super::object::Object;
use super::scan::{Flaw, Scanner};
use super::watch::{Failure, Selection, Sink};

/// LIMIT: bytes of one object, in a list or in a watch. etcd stores 1.5 MiB of an object by default and 8 MiB at the very
/// most that anyone runs; as JSON with managed fields it can grow to twice that.
pub(super) const OBJECT_LIMIT: u64 = 16 * 1024 * 1024;

/// LIMIT: time for one answer. The token for the next page lives for five minutes.
const ANSWER_TIME: Duration = Duration::from_secs(300);

/// Bytes that are read at a time.
const BUFFER: usize = 16 * 1024;

/// A page without its items. Some servers send null for none.
#[derive(Deserialize)]
struct Frame {
    metadata: Option<PageEnd>,
    #[serde(default, deserialize_with = "present")]
    items: Option<IgnoredAny>,
}

/// Tells a key with the value null from one that is not there.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<IgnoredAny>, D::Error> {
    IgnoredAny::deserialize(value).map(Some)
}

/// What a page says about itself.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PageEnd {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Hands every item to the sink and returns the version of the list. The caller announces begin and end. Without a page size
/// the whole list comes in one answer.
pub(super) fn read(
    client: &Client,
    selection: &Selection,
    page: Option<u32>,
    silence: Duration,
    sink: &mut impl Sink,
) -> Result<String, Failure> {
    let limit = page.map(|page| page.to_string());
    let mut next: Option<String> = None;
    loop {
        let parameters: Vec<(&str, &str)> = [("limit", &limit), ("continue", &next)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .collect();
        // As a watch: not under the rate limit, since a list is one request of ours however many pages it has.
        let stream = client
            .watch(&selection.path_with(&parameters), silence)
            .map_err(Failure::Begin)?;
        let end = read_page(stream, selection, sink).map_err(Failure::Read)?;
        match end.next.filter(|token| !token.is_empty()) {
            Some(token) if next.as_ref() == Some(&token) => {
                let error = not_json(selection, "the same page follows itself");
                return Err(Failure::Read(error));
            }
            Some(token) => next = Some(token),
            None => return Ok(end.resource_version),
        }
    }
}

fn read_page(
    stream: Stream,
    selection: &Selection,
    sink: &mut impl Sink,
) -> Result<PageEnd, Error> {
    let until = Instant::now() + ANSWER_TIME;
    let limit = usize::try_from(OBJECT_LIMIT).unwrap_or(usize::MAX);
    let mut scanner = Scanner::new(limit);
    let mut reader = BufReader::with_capacity(BUFFER, stream);
    let mut each = |item: &[u8]| {
        if !sink.wanted() {
            return Err("nobody wants the rest".to_owned());
        }
        let object = Object::read_item(item, selection.type_prefix())?;
        sink.item(&object);
        Ok(())
    };
    // Reading to the end makes the connection usable for the next page.
    loop {
        let piece = match reader.fill_buf() {
            Ok(piece) => piece,
            Err(error) => return Err(reader.get_ref().failure(error)),
        };
        if piece.is_empty() {
            break;
        }
        let length = piece.len();
        scanner
            .feed(piece, &mut each)
            .map_err(|flaw| error(selection, flaw))?;
        reader.consume(length);
        if Instant::now() > until {
            return Err(reader
                .get_ref()
                .broken(Fault::Timeout("the list took too long")));
        }
    }
    if !scanner.is_complete() {
        return Err(reader.get_ref().cut());
    }
    let frame: Frame = serde_json::from_slice(scanner.frame())
        .map_err(|error| not_json(selection, &error.to_string()))?;
    // Something else that answers 200 must not be taken for an empty cluster.
    match (frame.metadata, frame.items) {
        (Some(end), Some(_)) => Ok(end),
        _ => Err(not_json(selection, "this is no list")),
    }
}

fn error(selection: &Selection, flaw: Flaw) -> Error {
    match flaw {
        Flaw::TooLong => Error::TooLarge {
            call: selection.call(),
            limit: OBJECT_LIMIT,
        },
        Flaw::NoList => not_json(selection, "this is no list of objects"),
        Flaw::Item(detail) => not_json(selection, &detail),
    }
}

pub(super) fn not_json(selection: &Selection, detail: &str) -> Error {
    Error::NotJson {
        call: selection.call(),
        detail: detail.to_owned(),
    }
}
