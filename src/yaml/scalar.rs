//! What a scalar means: null, a boolean, a number or text.
//!
//! Pure functions, called on whichever thread reads a document. Only plain scalars are guessed at; quoted and block ones are
//! text. The rules are those of the YAML 1.1 readers behind Kubernetes tools (`yes`, `0644`), and where those differ among
//! each other, the narrower reading. A tag of the core schema decides by itself; nothing is ever constructed from a tag.

use granit_parser::{ScalarStyle, Tag};
use serde_json::Number;

use super::tree::Tree;
use super::{Dialect, Flaw};

/// The namespace that `!!` stands for.
const YAML_TAGS: &str = "tag:yaml.org,2002:";

/// The meaning of a scalar, or why it has none.
pub(super) fn resolve(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    dialect: Dialect,
) -> Result<Tree, (Flaw, String)> {
    let Some(tag) = tag else {
        return implicit(text, style, dialect);
    };
    if is_bare(tag) {
        return Ok(Tree::String(text.to_owned()));
    }
    let Some(name) = tag.suffix_in_namespace(YAML_TAGS) else {
        // An application's own tag says nothing to us, so the value is read as if it were not there.
        return implicit(text, style, dialect);
    };
    let tree = match &*name {
        "str" => Some(Tree::String(text.to_owned())),
        "null" => Some(Tree::Null),
        "bool" => boolean(text).map(Tree::Bool),
        "int" => integer(text).map(Tree::Number),
        "float" => float(text)?.map(Tree::Number),
        _ => None,
    };
    tree.ok_or_else(|| (Flaw::Tag, unfit(&name)))
}

/// Refuses a tag of the core schema that is not the given one: `!!seq` before a map says that somebody meant something else.
pub(super) fn check_tag(tag: Option<&Tag>, expected: &str) -> Result<(), String> {
    match tag.and_then(Tag::core_suffix) {
        Some(name) if name != expected => Err(unfit(name)),
        _ => Ok(()),
    }
}

fn unfit(name: &str) -> String {
    format!(
        "the tag !!{name} cannot be used for this value; leave it out, or quote the value if it is text"
    )
}

/// Whether a scalar is the `<<` that takes over the entries of other mappings.
pub(super) fn is_merge(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> bool {
    text == "<<"
        && match tag {
            None => style == ScalarStyle::Plain,
            Some(tag) => tag.suffix_in_namespace(YAML_TAGS).as_deref() == Some("merge"),
        }
}

/// Whether a key is one that stands for nothing, such as `~: 1`. A quoted one, or one tagged as text, is a name.
pub(super) fn is_null_key(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> bool {
    let named = tag.is_some_and(|tag| is_bare(tag) || tag.is_yaml_core_schema_tag("str"));
    style == ScalarStyle::Plain && !named && is_null(text)
}

/// The tag `!` alone, which means "as written".
fn is_bare(tag: &Tag) -> bool {
    matches!(tag.parts(), ("!", "") | ("", "!"))
}

fn implicit(text: &str, style: ScalarStyle, dialect: Dialect) -> Result<Tree, (Flaw, String)> {
    if style == ScalarStyle::Plain {
        if is_null(text) {
            return Ok(Tree::Null);
        }
        let found = match dialect {
            Dialect::Kubernetes => boolean(text),
            Dialect::Stream | Dialect::Text => true_or_false(text),
        };
        if let Some(found) = found {
            return Ok(Tree::Bool(found));
        }
        if dialect != Dialect::Text {
            if let Some(found) = integer(text) {
                return Ok(Tree::Number(found));
            }
            if let Some(found) = float(text)? {
                return Ok(Tree::Number(found));
            }
        }
    }
    Ok(Tree::String(text.to_owned()))
}

fn is_null(text: &str) -> bool {
    text.is_empty() || text == "~" || text.eq_ignore_ascii_case("null")
}

fn true_or_false(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else if text.eq_ignore_ascii_case("false") {
        Some(false)
    } else {
        None
    }
}

fn boolean(text: &str) -> Option<bool> {
    let is_one_of = |words: [&str; 3]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is_one_of(["yes", "y", "on"]) {
        Some(true)
    } else if is_one_of(["no", "n", "off"]) {
        Some(false)
    } else {
        true_or_false(text)
    }
}

/// A whole number of up to 64 bits. A leading zero means octal; `_` may stand between two digits, and behind a prefix.
fn integer(text: &str) -> Option<Number> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = radix(rest);
    let digits = match radix {
        10 => digits,
        _ => digits.strip_prefix('_').unwrap_or(digits),
    };
    let misplaced = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    // The number parser below would take a sign of its own.
    if misplaced || digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = u64::from_str_radix(&digits.replace('_', ""), radix).ok()?;
    if negative {
        0_i64.checked_sub_unsigned(magnitude).map(Number::from)
    } else {
        Some(Number::from(magnitude))
    }
}

fn radix(digits: &str) -> (u32, &str) {
    let Some(rest) = digits.strip_prefix('0').filter(|rest| !rest.is_empty()) else {
        return (10, digits);
    };
    for (letters, radix) in [(['x', 'X'], 16), (['o', 'O'], 8), (['b', 'B'], 2)] {
        if let Some(rest) = rest.strip_prefix(letters) {
            return (radix, rest);
        }
    }
    (8, rest)
}

/// A number with a point or an exponent, or a whole one too large for 64 bits. One that is out of range is text, as for Go's
/// reader; the words for infinity and for no number are errors, because JSON cannot hold what they say.
fn float(text: &str) -> Result<Option<Number>, (Flaw, String)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let special = [".inf", ".nan"]
        .iter()
        .any(|word| unsigned.eq_ignore_ascii_case(word));
    // Rust would also read the words `inf` and `nan`, which are names in YAML.
    let numeral = unsigned.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.');
    let parsed = if numeral { text.parse().ok() } else { None };
    if special {
        let text = format!("{text} is no finite number; quote it if it is text");
        return Err((Flaw::Number, text));
    }
    Ok(parsed.and_then(Number::from_f64))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::yaml::{Tree, parse, parse_plain};

    /// What `text` means as the value of a key.
    fn value(text: &str) -> Value {
        let read = parse(&format!("a: {text}\n")).unwrap_or_else(|error| panic!("{text}: {error}"));
        read.entry("a").unwrap().node.to_value()
    }

    #[test]
    fn null_is_empty_a_tilde_or_the_word() {
        for text in ["", "~", "null", "Null", "NULL", "!!null x"] {
            assert_eq!(value(text), Value::Null, "{text}");
        }
        for text in ["\"\"", "'~'", "'null'", "!!str", "! null"] {
            assert!(value(text).is_string(), "{text}");
        }
    }

    #[test]
    fn booleans_are_those_of_yaml_1_1() {
        for text in ["true", "True", "yes", "YES", "y", "Y", "on", "!!bool 'yes'"] {
            assert_eq!(value(text), json!(true), "{text}");
        }
        for text in ["false", "FALSE", "no", "No", "n", "off", "OFF"] {
            assert_eq!(value(text), json!(false), "{text}");
        }
        for text in ["'yes'", "\"on\"", "yess", "!!str no", "! y"] {
            assert!(value(text).is_string(), "{text}");
        }
    }

    #[test]
    fn whole_numbers_in_every_base() {
        for (text, number) in [
            ("0", json!(0)),
            ("-0", json!(0)),
            ("+12", json!(12)),
            ("-12", json!(-12)),
            ("0644", json!(420)),
            ("-0644", json!(-420)),
            ("0o17", json!(15)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("1_000", json!(1000)),
            ("0x_ff_ff", json!(65535)),
            ("!!int '7'", json!(7)),
            ("9223372036854775807", json!(i64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
        ] {
            assert_eq!(value(text), number, "{text}");
        }
        // No octal, so a decimal after all, as Go's reader has it.
        assert_eq!(value("0899"), json!(899));
    }

    #[test]
    fn numbers_with_a_point_or_an_exponent() {
        for (text, number) in [
            ("1.5", json!(1.5)),
            ("-.5", json!(-0.5)),
            ("2.5e-3", json!(0.0025)),
            ("1e3", json!(1000)),
            ("!!float 1.5", json!(1.5)),
        ] {
            assert_eq!(value(text), number, "{text}");
        }
    }

    #[test]
    fn what_only_resembles_a_number_is_text() {
        for text in [
            "1__0",
            "1_",
            "_1",
            "0x",
            "0xg",
            "--1",
            "-+1",
            "0x-1",
            "1.2.3",
            "1_0.5",
            "10s",
            "inf",
            "nan",
            "infinity",
            "+",
            "12:30",
            "1e",
            "1e999",
            "-31337123e4567",
            "v1",
            "2020-01-01",
            "0o8",
            "...x",
            "'12'",
            "!!str 12",
            "! 12",
        ] {
            assert!(value(text).is_string(), "{text}: {:?}", value(text));
        }
    }

    #[test]
    fn what_json_cannot_hold_and_tags_that_do_not_fit_are_errors() {
        for text in [
            ".inf",
            "-.Inf",
            ".nan",
            "!!float .inf",
            "!!float 1e999",
            "!!int x",
            "!!bool 2",
            "!!float x",
            "!!seq x",
            "!!binary aGk=",
        ] {
            let error = parse(&format!("ok: 1\na: {text}\n")).unwrap_err();
            assert_eq!(error.line, 2, "{text}: {error}");
        }
        for text in ["!!str [1]", "!!seq {a: 1}", "!!map [1]", "{!!int 5: 1}"] {
            parse(text).unwrap_err();
        }
        assert_eq!(value("!mine 5"), json!(5), "a foreign tag changes nothing");
        assert_eq!(value("!mine [!!seq [5]]"), json!([[5]]));
    }

    #[test]
    fn in_a_text_of_texts_only_null_true_and_false_are_more() {
        let read = parse_plain("{a: 1.10, b: 0644, c: y, d: true, e: ~, f: 1e999}").unwrap();
        let shown = |key: &str| match &read.entry(key).unwrap().node.tree {
            Tree::String(text) => text.clone(),
            other => format!("{other:?}"),
        };
        assert_eq!(
            ["a", "b", "c", "d", "e", "f"].map(shown),
            ["1.10", "0644", "y", "Bool(true)", "Null", "1e999"]
        );
    }
}
