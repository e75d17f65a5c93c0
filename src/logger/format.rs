//! From a record to its line: JSON with the original's keys in the original's order, or text for people.
//!
//! Pure; runs on the thread that logs. INVARIANT: whatever a message, a key or a value contains, the result holds exactly one
//! newline, at its end, and no character that moves the cursor, ends a line or turns the reading direction.

use std::borrow::Cow;
use std::fmt::Write as _;

use jiff::Timestamp;
use log::Level;
use log::kv::{self, VisitValue};
use serde_json::Value;

/// How a line looks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Style {
    Json,
    Text { colour: bool, time: bool },
}

/// What a line says, apart from its fields.
pub(super) struct Entry<'a> {
    pub(super) level: Level,
    pub(super) logger: Option<&'a str>,
    pub(super) message: Cow<'a, str>,
    pub(super) source: Option<(&'a str, u32)>,
}

/// A label.
pub(super) struct Field<'a> {
    key: Cow<'a, str>,
    content: Content<'a>,
}

enum Content<'a> {
    Label(kv::Value<'a>),
    Json(&'a Value),
}

impl<'a> Field<'a> {
    pub(super) fn label(key: &kv::Key<'a>, value: kv::Value<'a>) -> Field<'a> {
        Field {
            key: match key.to_borrowed_str() {
                Some(key) => Cow::Borrowed(key),
                None => Cow::Owned(key.as_str().to_owned()),
            },
            content: Content::Label(value),
        }
    }

    pub(super) fn json(key: &'a str, value: &'a Value) -> Field<'a> {
        Field {
            key: Cow::Borrowed(key),
            content: Content::Json(value),
        }
    }

    /// Fields may not pass for the keys that every line has: such a key gets a prefix.
    fn written_key(&self) -> Cow<'_, str> {
        match &*self.key {
            "level" | "logger" | "msg" | "source" | "stacktrace" | "time" => {
                Cow::Owned(format!("field_{}", self.key))
            }
            key => Cow::Borrowed(key),
        }
    }
}

/// Formats a line with its newline. Fields are sorted; of two with the same key the later one counts.
pub(super) fn line(
    style: Style,
    entry: &Entry<'_>,
    fields: &mut Vec<Field<'_>>,
    now: Timestamp,
) -> String {
    fields.reverse();
    fields.sort_by(|left, right| left.key.cmp(&right.key));
    fields.dedup_by(|later, earlier| later.key == earlier.key);
    let mut line = String::with_capacity(256);
    match style {
        Style::Json => json_line(&mut line, entry, fields, now),
        Style::Text { colour, time } => {
            text_line(&mut line, entry, fields, time.then_some(now), colour);
        }
    }
    line.push('\n');
    line
}

fn json_line(out: &mut String, entry: &Entry<'_>, fields: &[Field<'_>], now: Timestamp) {
    let _ = write!(out, "{{\"level\":\"{}\"", level_name(entry.level));
    if let Some(logger) = entry.logger {
        out.push_str(",\"logger\":");
        quote(out, logger);
    }
    out.push_str(",\"msg\":");
    quote(out, &entry.message);
    if let Some((file, line)) = entry.source {
        out.push_str(",\"source\":");
        quote(out, &format!("{file}:{line}"));
    }
    for field in fields {
        out.push(',');
        quote(out, &field.written_key());
        out.push(':');
        match &field.content {
            Content::Label(value) => write_label(out, value),
            Content::Json(value) => write_json(out, value),
        }
    }
    let _ = write!(out, ",\"time\":\"{now:.3}\"}}");
}

fn text_line(
    out: &mut String,
    entry: &Entry<'_>,
    fields: &[Field<'_>],
    time: Option<Timestamp>,
    colour: bool,
) {
    const DIM: &str = "\x1b[2m";
    const PLAIN: &str = "\x1b[0m";
    let paint = |out: &mut String, code: &str| {
        if colour {
            out.push_str(code);
        }
    };
    if let Some(now) = time {
        paint(out, DIM);
        let _ = write!(out, "{now:.3} ");
        paint(out, PLAIN);
    }
    paint(out, level_colour(entry.level));
    let _ = write!(out, "{:<5} ", entry.level);
    paint(out, PLAIN);
    if let Some(logger) = entry.logger {
        escape(out, logger);
        out.push_str(": ");
    }
    escape(out, &entry.message);
    if let Some((file, line)) = entry.source {
        paint(out, DIM);
        let _ = write!(out, " source={file}:{line}");
        paint(out, PLAIN);
    }
    for field in fields {
        out.push(' ');
        paint(out, DIM);
        text_word(out, &field.written_key());
        out.push('=');
        paint(out, PLAIN);
        match &field.content {
            Content::Json(Value::String(text)) => text_word(out, text),
            Content::Json(value) => write_json(out, value),
            Content::Label(value) => match value.to_borrowed_str() {
                Some(text) => text_word(out, text),
                None => text_word(out, &value.to_string()),
            },
        }
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

fn level_colour(level: Level) -> &'static str {
    match level {
        Level::Error => "\x1b[1;31m",
        Level::Warn => "\x1b[33m",
        Level::Info => "\x1b[32m",
        Level::Debug | Level::Trace => "\x1b[36m",
    }
}

/// A label as JSON: numbers and truth values as such, everything else as a string.
fn write_label(out: &mut String, value: &kv::Value<'_>) {
    struct Writer<'s>(&'s mut String);

    impl<'v> VisitValue<'v> for Writer<'_> {
        fn visit_any(&mut self, value: kv::Value<'_>) -> Result<(), kv::Error> {
            quote(self.0, &value.to_string());
            Ok(())
        }
        fn visit_str(&mut self, value: &str) -> Result<(), kv::Error> {
            quote(self.0, value);
            Ok(())
        }
        fn visit_u64(&mut self, value: u64) -> Result<(), kv::Error> {
            let _ = write!(self.0, "{value}");
            Ok(())
        }
        fn visit_i64(&mut self, value: i64) -> Result<(), kv::Error> {
            let _ = write!(self.0, "{value}");
            Ok(())
        }
        fn visit_f64(&mut self, value: f64) -> Result<(), kv::Error> {
            // NaN and infinities become null.
            write_json(self.0, &Value::from(value));
            Ok(())
        }
        fn visit_bool(&mut self, value: bool) -> Result<(), kv::Error> {
            self.0.push_str(if value { "true" } else { "false" });
            Ok(())
        }
        fn visit_null(&mut self) -> Result<(), kv::Error> {
            self.0.push_str("null");
            Ok(())
        }
    }

    // The visitor above never fails.
    let _ = value.visit(Writer(out));
}

/// Compact JSON with the escapes of `quote`. Recursion is bounded by the depth limit of the parser the value came from.
fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Value::String(text) => quote(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (key, member)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                quote(out, key);
                out.push(':');
                write_json(out, member);
            }
            out.push('}');
        }
    }
}

/// A JSON string. More is escaped than JSON asks for, see `is_unsafe`; a reader of JSON gets the same text.
fn quote(out: &mut String, text: &str) {
    out.push('"');
    let harmless = |b: u8| (b' '..=b'~').contains(&b) && b != b'"' && b != b'\\';
    if text.bytes().all(harmless) {
        // Nearly every text.
        out.push_str(text);
        out.push('"');
        return;
    }
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            _ => push_escaped(out, letter),
        }
    }
    out.push('"');
}

/// Text as it is, with what could forge a line or steer a terminal escaped.
pub(super) fn escape(out: &mut String, text: &str) {
    for letter in text.chars() {
        push_escaped(out, letter);
    }
}

/// A key or value in a text line: quoted where a reader could not tell where it ends.
fn text_word(out: &mut String, text: &str) {
    let plain = |c: char| !c.is_whitespace() && !matches!(c, '"' | '=' | '\\') && !is_unsafe(c);
    if !text.is_empty() && text.chars().all(plain) {
        out.push_str(text);
    } else {
        quote(out, text);
    }
}

fn push_escaped(out: &mut String, letter: char) {
    match letter {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        // All of these have four digits at most.
        _ if is_unsafe(letter) => {
            let _ = write!(out, "\\u{:04x}", u32::from(letter));
        }
        _ => out.push(letter),
    }
}

/// Control characters (C0, DEL, C1), the line and paragraph separators, and everything that turns the reading direction.
fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter,
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAIN_TEXT: Style = Style::Text {
        colour: false,
        time: true,
    };

    fn entry(message: &str) -> Entry<'_> {
        Entry {
            level: Level::Info,
            logger: None,
            message: message.into(),
            source: None,
        }
    }

    fn check(style: Style, message: &str, fields: &Value) -> String {
        let now = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let mut fields: Vec<Field<'_>> = fields
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| Field::json(key, value))
            .collect();
        line(style, &entry(message), &mut fields, now)
    }

    #[test]
    fn text_lines_are_for_people() {
        assert_eq!(
            check(
                PLAIN_TEXT,
                "Execute hook",
                &json!({"hook": "a.sh", "error": "exit status 1", "n": 3, "nested": {"a": [1, null]}, "none": ""})
            ),
            "2026-01-02T03:04:05.678Z INFO  Execute hook error=\"exit status 1\" hook=a.sh n=3 nested={\"a\":[1,null]} none=\"\"\n"
        );
        let untimed = Style::Text {
            colour: false,
            time: false,
        };
        assert_eq!(check(untimed, "m", &json!({})), "INFO  m\n");
        let coloured = Style::Text {
            colour: true,
            time: false,
        };
        assert_eq!(
            check(coloured, "m", &json!({"k": "v"})),
            "\x1b[32mINFO  \x1b[0mm \x1b[2mk=\x1b[0mv\n"
        );
    }

    #[test]
    fn no_input_can_forge_a_line_or_steer_a_terminal() {
        let evil = "a\nb\r\x1b[2Jc\u{9b}d\u{2028}e\u{202e}f\u{2066}g\0h\u{7f}i\u{85}j\t\"\\";
        for style in [Style::Json, PLAIN_TEXT] {
            let fields = json!({evil: evil, "nested": {evil: [evil]}});
            let line = check(style, evil, &fields);
            let body = line.strip_suffix('\n').unwrap();
            assert!(!body.chars().any(is_unsafe), "{body:?}");
        }
        let line = check(Style::Json, evil, &json!({"k": {evil: evil}}));
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["msg"], evil);
        assert_eq!(read["k"][evil], evil);
    }

    #[test]
    fn a_field_cannot_pass_for_a_fixed_key() {
        let line = check(
            Style::Json,
            "m",
            &json!({"level": "error", "msg": "x", "time": 1}),
        );
        assert_eq!(
            line,
            "{\"level\":\"info\",\"msg\":\"m\",\"field_level\":\"error\",\"field_msg\":\"x\",\"field_time\":1,\
             \"time\":\"2026-01-02T03:04:05.678Z\"}\n"
        );
    }

    #[test]
    fn of_two_fields_with_one_key_the_later_counts() {
        let (first, second) = (json!(1), json!(2));
        let mut fields = vec![Field::json("k", &first), Field::json("k", &second)];
        let line = line(Style::Json, &entry("m"), &mut fields, Timestamp::UNIX_EPOCH);
        assert!(
            line.contains("\"k\":2") && !line.contains("\"k\":1"),
            "{line}"
        );
    }
}
