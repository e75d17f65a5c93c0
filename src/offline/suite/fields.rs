//! Strict reading of a suite: every key is known, every value has its type, and every fault names its line.
//!
//! Pure. A misspelled key in a test would be an expectation that nobody checks, so there is no such thing as an unknown key here.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::duration;
use crate::hook::did_you_mean;
use crate::yaml::{Node, Tree, integer};

/// What is wrong with a suite, and on which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: u64,
    pub(super) text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}", self.line, self.text)
    }
}

impl Fault {
    pub(super) fn new(line: u64, text: impl Into<String>) -> Fault {
        Fault {
            line,
            text: text.into(),
        }
    }
}

pub(super) type Read<T> = Result<T, Fault>;

/// The fields of a map of which all keys are known.
pub(super) struct Fields<'a> {
    node: &'a Node,
    /// What it is called in faults, such as `expect`.
    what: &'a str,
}

impl<'a> Fields<'a> {
    pub(super) fn open(node: &'a Node, what: &'a str, known: &[&'static str]) -> Read<Fields<'a>> {
        let Tree::Object(entries) = &node.tree else {
            let found = node.type_name();
            return Err(Fault::new(
                node.line,
                format!("{what} must be a map, not {found}"),
            ));
        };
        for entry in entries {
            if !known.contains(&entry.key.as_str()) {
                let hint = did_you_mean(&entry.key, known.iter().copied());
                let hint = hint.unwrap_or_else(|| format!("known keys: {}", known.join(", ")));
                return Err(Fault::new(
                    entry.line,
                    format!("{what} has no key {:?}; {hint}", entry.key),
                ));
            }
        }
        Ok(Fields { node, what })
    }

    pub(super) fn line(&self) -> u64 {
        self.node.line
    }

    /// The line of a key, or of the map when the key is not there.
    pub(super) fn line_of(&self, key: &str) -> u64 {
        self.node
            .entry(key)
            .map_or(self.node.line, |entry| entry.line)
    }

    /// Null is the same as nothing.
    pub(super) fn get(&self, key: &str) -> Option<&'a Node> {
        let node = &self.node.entry(key)?.node;
        (!matches!(node.tree, Tree::Null)).then_some(node)
    }

    pub(super) fn is_written(&self, key: &str) -> bool {
        self.node.entry(key).is_some()
    }

    fn wrong<T>(&self, key: &str, expected: &str, found: &Node) -> Read<T> {
        let found = found.type_name();
        self.fault(
            key,
            format!("{}.{key} must be {expected}, not {found}", self.what),
        )
    }

    pub(super) fn fault<T>(&self, key: &str, text: impl Into<String>) -> Read<T> {
        Err(Fault::new(self.line_of(key), text))
    }

    pub(super) fn text(&self, key: &str) -> Read<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(node) => match &node.tree {
                Tree::String(text) => Ok(Some(text.clone())),
                _ => self.wrong(key, "a text (put it in quotes)", node),
            },
        }
    }

    pub(super) fn truth(&self, key: &str) -> Read<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(node) => match &node.tree {
                Tree::Bool(truth) => Ok(Some(*truth)),
                _ => self.wrong(key, "true or false", node),
            },
        }
    }

    pub(super) fn number(&self, key: &str) -> Read<Option<i64>> {
        match self.get(key) {
            None => Ok(None),
            Some(node) => match &node.tree {
                Tree::Number(number) if integer(number).is_some() => Ok(integer(number)),
                _ => self.wrong(key, "a whole number", node),
            },
        }
    }

    pub(super) fn time(&self, key: &str) -> Read<Option<Duration>> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        match duration::parse(&text) {
            Ok(time) if !time.is_zero() && !text.starts_with('-') => Ok(Some(time)),
            _ => self.fault(
                key,
                format!("{}.{key} must be a duration such as 500ms", self.what),
            ),
        }
    }

    /// A map, as JSON.
    pub(super) fn object(&self, key: &str) -> Read<Option<Value>> {
        match self.get(key) {
            None => Ok(None),
            Some(node) if matches!(node.tree, Tree::Object(_)) => Ok(Some(node.to_value())),
            Some(node) => self.wrong(key, "a map", node),
        }
    }

    pub(super) fn list(&self, key: &str) -> Read<Option<&'a [Node]>> {
        match self.get(key) {
            None => Ok(None),
            Some(node) => match &node.tree {
                Tree::Array(items) => Ok(Some(items)),
                _ => self.wrong(key, "a list", node),
            },
        }
    }

    /// A list of maps, as JSON.
    pub(super) fn objects(&self, key: &str) -> Read<Option<Vec<Value>>> {
        let Some(items) = self.list(key)? else {
            return Ok(None);
        };
        let mut objects = Vec::with_capacity(items.len());
        for item in items {
            if !matches!(item.tree, Tree::Object(_)) {
                let text = format!("{}.{key} must be a list of maps", self.what);
                return Err(Fault::new(item.line, text));
            }
            objects.push(item.to_value());
        }
        Ok(Some(objects))
    }

    pub(super) fn texts(&self, key: &str) -> Read<Vec<String>> {
        let mut texts = Vec::new();
        for item in self.list(key)?.unwrap_or_default() {
            let Tree::String(text) = &item.tree else {
                let text = format!(
                    "{}.{key} must be a list of texts (put each in quotes)",
                    self.what
                );
                return Err(Fault::new(item.line, text));
            };
            texts.push(text.clone());
        }
        Ok(texts)
    }

    /// A map from names to whatever `read` makes of their values.
    pub(super) fn map<T>(
        &self,
        key: &str,
        mut read: impl FnMut(&str, &'a Node) -> Read<T>,
    ) -> Read<BTreeMap<String, T>> {
        let mut map = BTreeMap::new();
        let Some(node) = self.get(key) else {
            return Ok(map);
        };
        let Tree::Object(entries) = &node.tree else {
            return self.wrong(key, "a map", node);
        };
        for entry in entries {
            map.insert(entry.key.clone(), read(&entry.key, &entry.node)?);
        }
        Ok(map)
    }
}
