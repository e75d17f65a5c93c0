//! JSON values -> YAML text in block style, for people who look inside.
//!
//! Pure. Every text that a YAML reader could take for something else is quoted as in JSON, which is YAML, too; so whoever reads the
//! text gets the same value, in the dialect of 1.1 and of 1.2.

use serde_json::Value;

/// The value as a document that ends with a newline.
pub(crate) fn emit(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(_) | Value::Array(_) if !is_empty(value) => block(&mut text, value, 0),
        _ => {
            scalar(&mut text, value);
            text.push('\n');
        }
    }
    text
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}

/// A map or a list that is not empty, each line at `depth`. Recursion ends where the JSON reader drew the line.
fn block(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                indent(text, depth);
                string(text, key);
                text.push(':');
                below(text, value, depth);
            }
        }
        Value::Array(items) => {
            for item in items {
                indent(text, depth);
                text.push('-');
                below(text, item, depth);
            }
        }
        _ => {}
    }
}

/// What follows a key or a dash.
fn below(text: &mut String, value: &Value, depth: usize) {
    if is_empty(value) {
        text.push(' ');
        scalar(text, value);
        text.push('\n');
    } else {
        text.push('\n');
        block(text, value, depth + 1);
    }
}

fn indent(text: &mut String, depth: usize) {
    for _ in 0..depth {
        text.push_str("  ");
    }
}

fn scalar(text: &mut String, value: &Value) {
    match value {
        Value::String(content) => string(text, content),
        other => text.push_str(&other.to_string()),
    }
}

fn string(text: &mut String, content: &str) {
    if is_plain(content) {
        text.push_str(content);
        return;
    }
    for letter in Value::from(content).to_string().chars() {
        // JSON leaves these as they are, and YAML does not.
        let hidden = matches!(
            letter,
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}'
        );
        if hidden {
            text.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            text.push(letter);
        }
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::options;
    use super::*;

    #[test]
    fn maps_and_lists_are_written_as_blocks() {
        let value = json!({"b": [{"x": 1, "y": []}, "no", [2]], "a": {"k": null, "e": {}}});
        assert_eq!(
            emit(&value),
            "a:\n  e: {}\n  k: null\nb:\n  -\n    x: 1\n    \"y\": []\n  - \"no\"\n  -\n    - 2\n"
        );
        assert_eq!(emit(&json!([])), "[]\n");
        assert_eq!(emit(&json!("a b")), "\"a b\"\n");
    }

    #[test]
    fn whoever_reads_it_gets_the_same_value() {
        let texts = [
            "",
            " ",
            "- a",
            "a: b",
            "0644",
            "1e3",
            "yes",
            "NO",
            "~",
            "null",
            "2001-01-01",
            "#",
            "line\nline",
            "tab\t",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "quote\"",
            "back\\slash",
            "ünï",
            "hook.sh",
            ".inf",
            "<<",
            "=",
            "a#b",
            "*a",
            "&a",
            "!t",
            "%",
            "@",
        ];
        for text in texts {
            let value = json!({ "key": text, (text): [text, 1.5, -3, true] });
            let read: Value = serde_saphyr::from_str_with_options(&emit(&value), options())
                .unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert_eq!(read, value, "{text:?}");
        }
    }
}
