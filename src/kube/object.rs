//! One object as the API server sent it: its JSON text, and the few fields that watching needs.
//!
//! Pure. The text is not turned into a tree of values: most objects are only kept, compared and passed on. Objects are never
//! shown in a message, because they may be Secrets.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// Marks the bookmark behind the last object of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An object that is being read. Its text is compact JSON with `kind` and `apiVersion`.
pub(crate) struct Object<'a> {
    pub(crate) text: Cow<'a, [u8]>,
    /// Empty for objects of a cluster-scoped kind.
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    pub(crate) version: Cow<'a, str>,
}

impl fmt::Debug for Object<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Object({}/{})", self.namespace, self.name)
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    kind: Option<IgnoredAny>,
    #[serde(borrow, default)]
    metadata: Meta<'a>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
}

impl<'a> Object<'a> {
    pub(super) fn read(text: &'a [u8]) -> Result<Object<'a>, String> {
        Object::read_item(text, "")
    }

    /// Reads an item of a list. Servers leave `kind` and `apiVersion` out of the items of built-in kinds; `prefix` holds them
    /// as `type_prefix` makes them, and stands where the server itself puts them in a watch, so that the same object has the
    /// same text from both.
    pub(super) fn read_item(text: &'a [u8], prefix: &str) -> Result<Object<'a>, String> {
        // As a text and not as bytes, so that all of it is checked to be UTF-8 and not only what is read.
        let checked = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        let head: Head<'a> = serde_json::from_str(checked).map_err(|error| error.to_string())?;
        let complete = head.kind.is_some() || prefix.is_empty();
        let text = match text.strip_prefix(b"{") {
            Some(rest) if !complete => Cow::Owned([prefix.as_bytes(), rest].concat()),
            _ => Cow::Borrowed(text),
        };
        Ok(Object {
            text,
            namespace: head.metadata.namespace,
            name: head.metadata.name,
            version: head.metadata.resource_version,
        })
    }
}

/// The beginning of an object of this kind.
pub(super) fn type_prefix(api_version: &str, kind: &str) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let (kind, api_version) = (quoted(kind), quoted(api_version));
    format!(r#"{{"kind":{kind},"apiVersion":{api_version},"#)
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: Annotated,
}

#[derive(Deserialize)]
struct Annotated {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// True for the bookmark that ends the initial events of a streaming list.
pub(super) fn ends_initial_events(bookmark: &[u8]) -> bool {
    serde_json::from_slice::<Bookmark>(bookmark).is_ok_and(|bookmark| {
        let mark = bookmark.metadata.annotations.get(INITIAL_EVENTS_END);
        mark.is_some_and(|value| value == "true")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_of_a_list_gets_the_text_that_a_watch_would_bring() {
        let prefix = type_prefix("v1", "ConfigMap");
        let from_list = br#"{"metadata":{"name":"a","namespace":"n","resourceVersion":"7"},"data":{"kind":"x"}}"#;
        let from_watch = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"7"},"data":{"kind":"x"}}"#;
        let item = Object::read_item(from_list, &prefix).unwrap();
        assert_eq!(item.text, from_watch.as_slice());
        assert_eq!(
            (&*item.namespace, &*item.name, &*item.version),
            ("n", "a", "7")
        );
        let custom = br#"{"apiVersion":"x.io/v1","kind":"X","metadata":{"name":"b"}}"#;
        let item = Object::read_item(custom, &prefix).unwrap();
        assert_eq!(item.text, custom.as_slice());
        assert_eq!(&*item.namespace, "");
        assert_eq!(format!("{item:?}"), "Object(/b)");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in [
            &b""[..],
            b"{",
            b"[]",
            b"{\"a\":}",
            b"{\"a\":\"\xff\"}",
            b"{\"metadata\":{\"name\":1}}",
        ] {
            assert!(Object::read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_end_of_initial_events_is_a_marked_bookmark() {
        for (text, expected) in [
            (
                r#"{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}"#,
                true,
            ),
            (r#"{"metadata":{"resourceVersion":"5"}}"#, false),
            (
                r#"{"metadata":{"annotations":{"k8s.io/initial-events-end":"no"}}}"#,
                false,
            ),
            ("{}", false),
        ] {
            assert_eq!(ends_initial_events(text.as_bytes()), expected, "{text}");
        }
    }
}
