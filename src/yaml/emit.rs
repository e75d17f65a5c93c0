//! JSON text -> YAML text in block style, for people who look inside.
//!
//! Pure. Keys keep their order and numbers their digits. Every text that a YAML reader could take for something else is quoted as in
//! JSON, which is YAML, too; so whoever reads it gets the same value, in the dialect of 1.1 and of 1.2.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// LIMIT: blocks within blocks. What is deeper is written as JSON in one line, so that no depth can exhaust the stack; people stop
/// reading long before.
const MAX_DEPTH: usize = 100;

/// The JSON as a document that ends with a newline.
pub(crate) fn emit(json: &[u8]) -> serde_json::Result<String> {
    let raw: &RawValue = serde_json::from_slice(json)?;
    let mut text = String::new();
    match Shape::of(raw, 0)? {
        Shape::Line(line) => {
            text.push_str(&line);
            text.push('\n');
        }
        block => write_block(&mut text, block, 0, false)?,
    }
    Ok(text)
}

/// One level of a value; what is inside is still JSON.
enum Shape<'a> {
    Map(Vec<(String, &'a RawValue)>),
    List(Vec<&'a RawValue>),
    /// Fits behind a key or a dash.
    Line(String),
}

impl<'a> Shape<'a> {
    fn of(raw: &'a RawValue, depth: usize) -> serde_json::Result<Shape<'a>> {
        let json = raw.get();
        Ok(match json.bytes().next() {
            Some(b'"') => Shape::Line(string(&serde_json::from_str::<String>(json)?)),
            Some(b'{') if depth < MAX_DEPTH => {
                let Pairs(pairs) = serde_json::from_str(json)?;
                if pairs.is_empty() {
                    Shape::Line("{}".to_owned())
                } else {
                    Shape::Map(pairs)
                }
            }
            Some(b'[') if depth < MAX_DEPTH => {
                let items: Vec<&RawValue> = serde_json::from_str(json)?;
                if items.is_empty() {
                    Shape::Line("[]".to_owned())
                } else {
                    Shape::List(items)
                }
            }
            _ => Shape::Line(visible(json)),
        })
    }
}

/// Writes a map or a list, each line at `depth`; the first one without its indentation when it stands behind a dash.
fn write_block(
    text: &mut String,
    block: Shape<'_>,
    depth: usize,
    behind_dash: bool,
) -> serde_json::Result<()> {
    let margin = |text: &mut String, index: usize| {
        if index > 0 || !behind_dash {
            text.push_str(&"  ".repeat(depth));
        }
    };
    match block {
        Shape::Map(pairs) => {
            for (index, (key, value)) in pairs.into_iter().enumerate() {
                margin(text, index);
                text.push_str(&string(&key));
                text.push(':');
                match Shape::of(value, depth)? {
                    Shape::Line(line) => push_line(text, &line),
                    // A list stands no deeper than its key, as Kubernetes tools write it.
                    list @ Shape::List(_) => {
                        text.push('\n');
                        write_block(text, list, depth, false)?;
                    }
                    map @ Shape::Map(_) => {
                        text.push('\n');
                        write_block(text, map, depth + 1, false)?;
                    }
                }
            }
        }
        Shape::List(items) => {
            for (index, item) in items.into_iter().enumerate() {
                margin(text, index);
                text.push('-');
                match Shape::of(item, depth)? {
                    Shape::Line(line) => push_line(text, &line),
                    inner => {
                        text.push(' ');
                        write_block(text, inner, depth + 1, true)?;
                    }
                }
            }
        }
        Shape::Line(line) => push_line(text, &line),
    }
    Ok(())
}

fn push_line(text: &mut String, line: &str) {
    text.push(' ');
    text.push_str(line);
    text.push('\n');
}

fn string(content: &str) -> String {
    if is_plain(content) {
        content.to_owned()
    } else {
        visible(&Value::from(content).to_string())
    }
}

/// Escapes what JSON leaves as it is and YAML does not allow. Such letters are only in strings.
fn visible(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if matches!(
            letter,
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}'
        ) {
            text.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            text.push(letter);
        }
    }
    text
}

/// A word that no reader takes for a number, a truth value, a date or a mark.
fn is_plain(content: &str) -> bool {
    const WORDS: [&str; 10] = [
        "true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan",
    ];
    content.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && content
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
        && !WORDS.iter().any(|word| content.eq_ignore_ascii_case(word))
}

/// An object's fields in their order.
struct Pairs<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Pairs<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        source.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn emitted(value: &Value) -> String {
        emit(value.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn maps_and_lists_are_written_as_blocks_in_their_order() {
        let json = br#"{"b": [{"x": 1.50, "y": [], "z": [3]}, "no", [2, {"k": {"m": 1}}]], "a": {"k": null, "e": {}}}"#;
        assert_eq!(
            emit(json).unwrap(),
            "b:\n- x: 1.50\n  \"y\": []\n  z:\n  - 3\n- \"no\"\n- - 2\n  - k:\n      m: 1\na:\n  k: null\n  e: {}\n"
        );
        assert_eq!(emit(b"[]").unwrap(), "[]\n");
        assert_eq!(emit(b"\"a b\"").unwrap(), "\"a b\"\n");
        assert!(emit(b"{").is_err());
    }

    #[test]
    fn whoever_reads_it_gets_the_same_value() {
        #[rustfmt::skip]
        let texts = [
            "", " ", "- a", "a: b", "0644", "1e3", "yes", "NO", "~", "null", "2001-01-01", "#", "line\nline", "tab\t", "\u{7f}",
            "\u{85}", "\u{2028}", "quote\"", "back\\slash", "ünï", "hook.sh", ".inf", "<<", "=", "a#b", "*a", "&a", "!t", "%", "@",
        ];
        for text in texts {
            let value =
                json!({ "key": text, (text): [text, 1.5, {"a": [-3, [[]]], "b": true}, []] });
            let yaml = emitted(&value);
            let read = crate::yaml::parse(&yaml)
                .unwrap_or_else(|error| panic!("{text:?}: {error}\n{yaml}"));
            assert_eq!(read.to_value(), value, "{text:?}");
        }
    }

    #[test]
    fn no_depth_exhausts_the_stack() {
        let json = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(emit(json.as_bytes()).unwrap().len() > 10_000);
    }
}
