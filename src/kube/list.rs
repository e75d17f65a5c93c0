//! Reads a list from the API server item by item.
//!
//! Runs on the watch's thread. An item is handed on as soon as its last byte is read, so that the memory of a list of any length
//! is that of its longest item. It works page by page; when the token for the next page has expired, the caller may ask for
//! the whole list in one answer, which costs no more memory here.

use std::cell::Cell;
use std::io::{self, BufReader, Read};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::answer::Stream;
use super::client::Client;
use super::error::{Error, Fault};
use super::object::Object;
use super::watch::{Failure, Selection, Sink};

/// LIMIT: bytes of one object, in a list or in a watch. etcd stores 1.5 MiB of an object by default and 8 MiB at the very
/// most that anyone runs; as JSON with managed fields it can grow to twice that.
pub(super) const OBJECT_LIMIT: u64 = 16 * 1024 * 1024;

/// LIMIT: time for one answer. The token for the next page lives for five minutes.
const ANSWER_TIME: Duration = Duration::from_secs(300);

/// Bytes that are read at a time.
const BUFFER: usize = 16 * 1024;

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
    mut stream: Stream,
    selection: &Selection,
    sink: &mut impl Sink,
) -> Result<PageEnd, Error> {
    let budget = Cell::new(OBJECT_LIMIT);
    let bounded = Bounded {
        stream: &mut stream,
        selection,
        budget: &budget,
        until: Instant::now() + ANSWER_TIME,
    };
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(BUFFER, bounded));
    let page = Page {
        selection,
        sink,
        budget: &budget,
    };
    let result = page.deserialize(&mut json);
    // Reading to the end makes the connection usable for the next page.
    let result = result.and_then(|end| json.end().map(|()| end));
    drop(json);
    result.map_err(|error| {
        if error.is_io() {
            return stream.failure(io::Error::from(error));
        }
        if error.is_eof() {
            return Error::Transport {
                call: selection.call(),
                server: client_name(&stream),
                fault: Fault::Cut {
                    bytes: stream.received,
                },
            };
        }
        not_json(selection, &error.to_string())
    })
}

fn client_name(stream: &Stream) -> String {
    stream.names.server.clone()
}

pub(super) fn not_json(selection: &Selection, detail: &str) -> Error {
    Error::NotJson {
        call: selection.call(),
        detail: detail.to_owned(),
    }
}

/// Reads until one object would be too long or the answer takes too much time.
struct Bounded<'a> {
    stream: &'a mut Stream,
    selection: &'a Selection,
    budget: &'a Cell<u64>,
    until: Instant,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let call = || self.selection.call();
        if Instant::now() > self.until {
            return Err(io::Error::other(Error::Transport {
                call: call(),
                server: client_name(self.stream),
                fault: Fault::Timeout("the list took too long"),
            }));
        }
        let count = self.stream.read(buffer)?;
        let left = self
            .budget
            .get()
            .checked_sub(u64::try_from(count).unwrap_or(u64::MAX));
        match left {
            Some(left) => self.budget.set(left),
            None => {
                return Err(io::Error::other(Error::TooLarge {
                    call: call(),
                    limit: OBJECT_LIMIT,
                }));
            }
        }
        Ok(count)
    }
}

/// The list object: `items` goes to the sink, `metadata` is returned, the rest is passed over.
struct Page<'a, S> {
    selection: &'a Selection,
    sink: &'a mut S,
    budget: &'a Cell<u64>,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Page<'_, S> {
    type Value = PageEnd;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<PageEnd, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Page<'_, S> {
    type Value = PageEnd;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PageEnd, A::Error> {
        let mut end = None;
        let mut items = false;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metadata" => end = Some(map.next_value()?),
                "items" => {
                    items = true;
                    map.next_value_seed(Items {
                        selection: self.selection,
                        sink: &mut *self.sink,
                        budget: self.budget,
                    })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        // Something else that answers 200 must not be taken for an empty cluster.
        match end {
            Some(end) if items => Ok(end),
            _ => Err(de::Error::custom("this is no list")),
        }
    }
}

struct Items<'a, S> {
    selection: &'a Selection,
    sink: &'a mut S,
    budget: &'a Cell<u64>,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Items<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Items<'_, S> {
    type Value = ();

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("an array of objects")
    }

    /// An empty list of some servers.
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<Box<RawValue>>()? {
            self.budget.set(OBJECT_LIMIT);
            let object = Object::read_item(item.get().as_bytes(), self.selection.type_prefix())
                .map_err(de::Error::custom)?;
            if !self.sink.wanted() {
                return Err(de::Error::custom("nobody wants the rest"));
            }
            self.sink.item(&object);
        }
        Ok(())
    }
}
