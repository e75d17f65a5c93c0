//! Tries a JSON Patch on an object exactly as leniently as the API server will.
//!
//! Pure. The API server applies webhook patches with a Go library whose habits differ from RFC 6902 in every operation's
//! way to its target: a path needs no leading slash, array indexes may be negative or have leading zeros, `replace` of an absent
//! key sets it, `copy` of an absent key copies null, an absent `value` is null. A crate that keeps to the RFC would refuse
//! patches that work, so the few rules are written out here. Values are never part of an error: a Secret may be in them.

use std::fmt;

use serde_json::{Map, Value};

/// LIMIT: how much `copy` operations may add in total; the API server's own limit (3 MiB, its limit for a request).
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// LIMIT: how deep a patched object may be nested. What is read from JSON is at most 128 deep, and so is what a patch adds to it in
/// one operation; copies of copies would double that again and again, and code that follows a value down its depth uses stack for it.
const MAX_DEPTH: usize = 256;

/// Which operation of a patch does not work, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatchError {
    /// Counts from 0, as patches are arrays.
    pub(crate) index: usize,
    pub(crate) operation: String,
    pub(crate) path: String,
    pub(crate) problem: Problem,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    NotAnObject,
    UnknownOperation,
    NoPath,
    NoFrom,
    /// A part of the path above the last does not exist or is neither object nor array.
    MissingParent,
    MissingFromParent,
    /// The last part of the path, or of `from`, does not exist.
    Missing,
    NotAnIndex,
    OutOfRange,
    TestFailed,
    /// The whole document can be replaced only by an object or array.
    NotADocument,
    CopiesTooMuch,
    TooDeep,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::NotAnObject => "an operation must be an object",
            Self::UnknownOperation => "`op` must be add, remove, replace, move, copy or test",
            Self::NoPath => "`path` must be a string",
            Self::NoFrom => "`from` must be a string",
            Self::MissingParent => "the parent of the path does not exist: add it first",
            Self::MissingFromParent => "the parent of `from` does not exist",
            Self::Missing => "there is nothing at the path",
            Self::NotAnIndex => "the path leads into an array and does not end in an index",
            Self::OutOfRange => "the index is outside of the array",
            Self::TestFailed => "the value is a different one",
            Self::NotADocument => {
                "the whole document can only be replaced by an object or an array"
            }
            Self::CopiesTooMuch => "copy operations add more than 3 MiB",
            Self::TooDeep => "the object would be nested deeper than 256",
        })
    }
}

impl fmt::Display for PatchError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            index,
            operation,
            path,
            problem,
        } = self;
        write!(
            out,
            "patch operation {index} ({operation} {path:?}): {problem}"
        )
    }
}

impl std::error::Error for PatchError {}

/// Applies the operations one after the other to a copy of the object.
pub(crate) fn try_patch(object: &Value, operations: &[Value]) -> Result<Value, PatchError> {
    let mut document = object.clone();
    let mut copied = 0;
    for (index, operation) in operations.iter().enumerate() {
        let text = |key: &str| operation.get(key).and_then(Value::as_str);
        apply(&mut document, operation, &mut copied).map_err(|problem| PatchError {
            index,
            operation: text("op").unwrap_or("?").to_owned(),
            path: text("path").unwrap_or("").to_owned(),
            problem,
        })?;
    }
    Ok(document)
}

fn apply(document: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), Problem> {
    let fields = operation.as_object().ok_or(Problem::NotAnObject)?;
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    let path = || text("path").ok_or(Problem::NoPath);
    let from = || text("from").ok_or(Problem::NoFrom);
    // A missing value is null, as in the Go library.
    let value = || fields.get("value").cloned().unwrap_or(Value::Null);
    match text("op") {
        Some("add") => add(document, path()?, value()),
        Some("remove") => parent(document, path()?, Problem::MissingParent)?
            .remove()
            .map(|_removed| ()),
        Some("replace") => replace(document, path()?, value()),
        Some("move") => {
            let (path, from) = (path()?, from()?);
            let moved = parent(document, from, Problem::MissingFromParent)?.remove()?;
            add(document, path, moved)
        }
        Some("copy") => {
            let (path, from) = (path()?, from()?);
            let source = parent(document, from, Problem::MissingFromParent)?
                .get()?
                .cloned();
            // Counted like the library does: as text, and an absent key as nothing.
            *copied += source.as_ref().map_or(0, |source| source.to_string().len());
            if *copied > MAX_COPIED_BYTES {
                return Err(Problem::CopiesTooMuch);
            }
            add(document, path, source.unwrap_or(Value::Null))
        }
        Some("test") => test(document, path()?, fields),
        _ => Err(Problem::UnknownOperation),
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), Problem> {
    check_depth(path, &value)?;
    parent(document, path, Problem::MissingParent)?.add(value)
}

/// INVARIANT: no document becomes deeper than `MAX_DEPTH`, so everything here may recurse into one.
fn check_depth(path: &str, value: &Value) -> Result<(), Problem> {
    let above = path.matches('/').count();
    if above.saturating_add(depth(value)) > MAX_DEPTH {
        return Err(Problem::TooDeep);
    }
    Ok(())
}

fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Object(entries) => entries.values().map(depth).max(),
        Value::Array(items) => items.iter().map(depth).max(),
        _ => return 0,
    };
    below.unwrap_or(0) + 1
}

fn replace(document: &mut Value, path: &str, value: Value) -> Result<(), Problem> {
    check_depth(path, &value)?;
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(Problem::NotADocument);
        }
        *document = value;
        return Ok(());
    }
    match parent(document, path, Problem::MissingParent)? {
        // Sets an absent key.
        Parent::Object(entries, key) => {
            entries.insert(key, value);
        }
        Parent::Array(items, key) => {
            let index = position(&key, items.len())?;
            *items.get_mut(index).ok_or(Problem::OutOfRange)? = value;
        }
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, fields: &Map<String, Value>) -> Result<(), Problem> {
    // Nothing and null are the same on both sides.
    let expected = fields.get("value").unwrap_or(&Value::Null);
    let equal = if path.is_empty() {
        document == expected
    } else {
        let found = parent(document, path, Problem::MissingParent)?;
        found.get()?.unwrap_or(&Value::Null) == expected
    };
    if equal {
        Ok(())
    } else {
        Err(Problem::TestFailed)
    }
}

/// The object or array that a path leads to, and the last part of the path.
enum Parent<'a> {
    Object(&'a mut Map<String, Value>, String),
    Array(&'a mut Vec<Value>, String),
}

/// Follows a path up to its last part. What stands before the first slash is not looked at: normally nothing does.
fn parent<'a>(
    document: &'a mut Value,
    path: &str,
    missing: Problem,
) -> Result<Parent<'a>, Problem> {
    let (_, below) = path.split_once('/').ok_or(missing)?;
    let (middle, last) = match below.rsplit_once('/') {
        Some((middle, last)) => (Some(middle), last),
        None => (None, below),
    };
    let mut node = document;
    for part in middle.into_iter().flat_map(|middle| middle.split('/')) {
        let key = unescape(part);
        node = match node {
            Value::Object(entries) => entries.get_mut(&key).ok_or(missing)?,
            Value::Array(items) => position(&key, items.len())
                .ok()
                .and_then(|index| items.get_mut(index))
                .ok_or(missing)?,
            _ => return Err(missing),
        };
    }
    match node {
        Value::Object(entries) => Ok(Parent::Object(entries, unescape(last))),
        Value::Array(items) => Ok(Parent::Array(items, unescape(last))),
        _ => Err(missing),
    }
}

impl Parent<'_> {
    /// None for an absent key of an object; an index must exist.
    fn get(&self) -> Result<Option<&Value>, Problem> {
        match self {
            Self::Object(entries, key) => Ok(entries.get(key)),
            Self::Array(items, key) => Ok(items.get(position(key, items.len())?)),
        }
    }

    fn add(self, value: Value) -> Result<(), Problem> {
        match self {
            Self::Object(entries, key) => {
                entries.insert(key, value);
            }
            Self::Array(items, key) if key == "-" => items.push(value),
            Self::Array(items, key) => {
                // One more place than there are items: adding at the end, or counting back from behind it.
                let index = position(&key, items.len() + 1)?;
                items.insert(index, value);
            }
        }
        Ok(())
    }

    fn remove(self) -> Result<Value, Problem> {
        match self {
            Self::Object(entries, key) => entries.remove(&key).ok_or(Problem::Missing),
            Self::Array(items, key) => {
                let index = position(&key, items.len())?;
                Ok(items.remove(index))
            }
        }
    }
}

/// An index below `len`, as Go reads numbers: a sign and leading zeros are fine, negative ones count from the end.
fn position(key: &str, len: usize) -> Result<usize, Problem> {
    let index: i64 = key.parse().map_err(|_error| Problem::NotAnIndex)?;
    let index = if index < 0 {
        i64::try_from(len).map_or(-1, |len| index + len)
    } else {
        index
    };
    usize::try_from(index)
        .ok()
        .filter(|index| *index < len)
        .ok_or(Problem::OutOfRange)
}

/// `~1` is a slash and `~0` a tilde, read from the left in one go; any other tilde stands for itself.
fn unescape(part: &str) -> String {
    let mut pieces = part.split('~');
    let mut key = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        if let Some(rest) = piece.strip_prefix('1') {
            key.push('/');
            key.push_str(rest);
        } else if let Some(rest) = piece.strip_prefix('0') {
            key.push('~');
            key.push_str(rest);
        } else {
            key.push('~');
            key.push_str(piece);
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(object: &Value, patch: &Value) -> Result<Value, Problem> {
        try_patch(object, patch.as_array().unwrap()).map_err(|error| error.problem)
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn operations_work_as_in_the_api_server() {
        let pod = json!({"metadata": {"name": "a", "labels": {"x": "1"}, "none": null}, "list": [1, 2, 3], "a/b": {"~": 1}});
        let labels = |labels: Value| {
            let mut pod = pod.clone();
            pod["metadata"]["labels"] = labels;
            pod
        };
        let list = |list: Value| {
            let mut pod = pod.clone();
            pod["list"] = list;
            pod
        };
        for (patch, expected) in [
            (json!([]), Ok(pod.clone())),
            (
                json!([{"op": "add", "path": "/metadata/labels/y", "value": "2"}]),
                Ok(labels(json!({"x": "1", "y": "2"}))),
            ),
            (
                json!([{"op": "add", "path": "/metadata/labels/x", "value": "2"}]),
                Ok(labels(json!({"x": "2"}))),
            ),
            (
                json!([{"op": "add", "path": "/metadata/labels/y"}]),
                Ok(labels(json!({"x": "1", "y": null}))),
            ),
            (
                json!([{"op": "add", "path": "/metadata/missing/y", "value": "2"}]),
                Err(Problem::MissingParent),
            ),
            (
                json!([{"op": "add", "path": "/metadata/none/y", "value": "2"}]),
                Err(Problem::MissingParent),
            ),
            (
                json!([{"op": "add", "path": "/metadata/name/y", "value": "2"}]),
                Err(Problem::MissingParent),
            ),
            (
                json!([{"op": "add", "path": "", "value": {}}]),
                Err(Problem::MissingParent),
            ),
            (
                json!([{"op": "add", "path": "/list/-", "value": 4}]),
                Ok(list(json!([1, 2, 3, 4]))),
            ),
            (
                json!([{"op": "add", "path": "/list/0", "value": 0}]),
                Ok(list(json!([0, 1, 2, 3]))),
            ),
            (
                json!([{"op": "add", "path": "/list/3", "value": 4}]),
                Ok(list(json!([1, 2, 3, 4]))),
            ),
            (
                json!([{"op": "add", "path": "/list/4", "value": 5}]),
                Err(Problem::OutOfRange),
            ),
            (
                json!([{"op": "add", "path": "/list/-1", "value": 4}]),
                Ok(list(json!([1, 2, 3, 4]))),
            ),
            (
                json!([{"op": "add", "path": "/list/-4", "value": 0}]),
                Ok(list(json!([0, 1, 2, 3]))),
            ),
            (
                json!([{"op": "add", "path": "/list/-5", "value": 0}]),
                Err(Problem::OutOfRange),
            ),
            (
                json!([{"op": "add", "path": "/list/01", "value": 9}]),
                Ok(list(json!([1, 9, 2, 3]))),
            ),
            (
                json!([{"op": "add", "path": "/list/x", "value": 9}]),
                Err(Problem::NotAnIndex),
            ),
            (
                json!([{"op": "replace", "path": "/metadata/labels/x", "value": "9"}]),
                Ok(labels(json!({"x": "9"}))),
            ),
            // The API server sets what is not there yet, as long as the parent is.
            (
                json!([{"op": "replace", "path": "/metadata/labels/new", "value": "9"}]),
                Ok(labels(json!({"x": "1", "new": "9"}))),
            ),
            (
                json!([{"op": "replace", "path": "/metadata/annotations/new", "value": "9"}]),
                Err(Problem::MissingParent),
            ),
            (
                json!([{"op": "replace", "path": "/list/1", "value": 9}]),
                Ok(list(json!([1, 9, 3]))),
            ),
            (
                json!([{"op": "replace", "path": "/list/-1", "value": 9}]),
                Ok(list(json!([1, 2, 9]))),
            ),
            (
                json!([{"op": "replace", "path": "/list/3", "value": 9}]),
                Err(Problem::OutOfRange),
            ),
            (
                json!([{"op": "replace", "path": "/list/-", "value": 9}]),
                Err(Problem::NotAnIndex),
            ),
            (
                json!([{"op": "replace", "path": "", "value": {"b": 1}}]),
                Ok(json!({"b": 1})),
            ),
            (
                json!([{"op": "replace", "path": "", "value": "text"}]),
                Err(Problem::NotADocument),
            ),
            (
                json!([{"op": "remove", "path": "/metadata/labels/x"}]),
                Ok(labels(json!({}))),
            ),
            (
                json!([{"op": "remove", "path": "/metadata/labels/y"}]),
                Err(Problem::Missing),
            ),
            (
                json!([{"op": "remove", "path": "/nothing/y"}]),
                Err(Problem::MissingParent),
            ),
            (
                json!([{"op": "remove", "path": "/list/0"}]),
                Ok(list(json!([2, 3]))),
            ),
            (
                json!([{"op": "remove", "path": "/list/-1"}]),
                Ok(list(json!([1, 2]))),
            ),
            (
                json!([{"op": "remove", "path": "/list/3"}]),
                Err(Problem::OutOfRange),
            ),
            (
                json!([{"op": "remove", "path": ""}]),
                Err(Problem::MissingParent),
            ),
            (
                json!([{"op": "move", "from": "/list/0", "path": "/list/-"}]),
                Ok(list(json!([2, 3, 1]))),
            ),
            (
                json!([{"op": "move", "from": "/metadata/labels/y", "path": "/z"}]),
                Err(Problem::Missing),
            ),
            (
                json!([{"op": "move", "from": "/metadata", "path": "/metadata/inside"}]),
                Err(Problem::MissingParent),
            ),
            (json!([{"op": "move", "path": "/z"}]), Err(Problem::NoFrom)),
            (
                json!([{"op": "copy", "from": "/list/1", "path": "/list/0"}]),
                Ok(list(json!([2, 1, 2, 3]))),
            ),
            (
                json!([{"op": "copy", "from": "/metadata/labels/y", "path": "/metadata/labels/z"}]),
                Ok(labels(json!({"x": "1", "z": null}))),
            ),
            (
                json!([{"op": "copy", "from": "/nothing/y", "path": "/z"}]),
                Err(Problem::MissingFromParent),
            ),
            (
                json!([{"op": "copy", "from": "/list/9", "path": "/z"}]),
                Err(Problem::OutOfRange),
            ),
            (
                json!([{"op": "test", "path": "/metadata/name", "value": "a"}]),
                Ok(pod.clone()),
            ),
            (
                json!([{"op": "test", "path": "/metadata/name", "value": "b"}]),
                Err(Problem::TestFailed),
            ),
            (
                json!([{"op": "test", "path": "/metadata/nothing", "value": null}]),
                Ok(pod.clone()),
            ),
            (
                json!([{"op": "test", "path": "/metadata/nothing"}]),
                Ok(pod.clone()),
            ),
            (
                json!([{"op": "test", "path": "/list", "value": [1, 2, 3]}]),
                Ok(pod.clone()),
            ),
            (
                json!([{"op": "test", "path": "/list/0", "value": 1.0}]),
                Err(Problem::TestFailed),
            ),
            (
                json!([{"op": "test", "path": "", "value": {}}]),
                Err(Problem::TestFailed),
            ),
            (
                json!([{"op": "test", "path": "/a~1b/~0", "value": 1}]),
                Ok(pod.clone()),
            ),
            (
                json!([{"op": "test", "path": "/a~1b/~", "value": 1}]),
                Ok(pod.clone()),
            ),
            // What stands before the first slash is not looked at.
            (
                json!([{"op": "test", "path": "ignored/list", "value": [1, 2, 3]}]),
                Ok(pod.clone()),
            ),
            (
                json!([{"op": "test", "path": "list", "value": [1, 2, 3]}]),
                Err(Problem::MissingParent),
            ),
            (
                json!([{"op": "Add", "path": "/z", "value": 1}]),
                Err(Problem::UnknownOperation),
            ),
            (
                json!([{"path": "/z", "value": 1}]),
                Err(Problem::UnknownOperation),
            ),
            (json!([{"op": "add", "value": 1}]), Err(Problem::NoPath)),
            (
                json!([{"op": "add", "path": 5, "value": 1}]),
                Err(Problem::NoPath),
            ),
            (json!(["add"]), Err(Problem::NotAnObject)),
        ] {
            assert_eq!(patched(&pod, &patch), expected, "{patch}");
        }
    }

    #[test]
    fn an_error_names_the_operation_and_never_a_value() {
        let error = try_patch(
            &json!({"a": "secret"}),
            json!([{"op": "add", "path": "/b", "value": "secret"}, {"op": "replace", "path": "/x/y", "value": "secret"}])
                .as_array()
                .unwrap(),
        )
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "patch operation 1 (replace \"/x/y\"): the parent of the path does not exist: add it first"
        );
    }

    #[test]
    fn copies_are_limited() {
        let object = json!({"big": "x".repeat(2 * 1024 * 1024)});
        let copy = |path: &str| json!({"op": "copy", "from": "/big", "path": path});
        assert!(try_patch(&object, &[copy("/a")]).is_ok());
        let error = try_patch(&object, &[copy("/a"), copy("/b")]).unwrap_err();
        assert_eq!((error.index, error.problem), (1, Problem::CopiesTooMuch));
    }

    #[test]
    fn escapes_are_read_once() {
        for (part, key) in [
            ("~01", "~1"),
            ("~10", "/0"),
            ("~", "~"),
            ("~2", "~2"),
            ("a~1b~0c", "a/b~c"),
            ("~~1", "~/"),
        ] {
            assert_eq!(unescape(part), key, "{part}");
        }
    }

    #[test]
    fn copies_of_copies_do_not_nest_without_end() {
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": {}})];
        let mut path = "/a".to_owned();
        for _ in 0..18 {
            let deepest = format!("{path}/a");
            operations.push(json!({"op": "copy", "from": "/a", "path": deepest}));
            path = path.repeat(2);
        }
        let error = try_patch(&json!({}), &operations).unwrap_err();
        assert_eq!(error.problem, Problem::TooDeep);
        assert_eq!(error.index, 8);
    }
}
