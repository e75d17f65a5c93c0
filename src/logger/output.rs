//! What a hook prints, cut into records.
//!
//! Pure; runs on the thread that reads the hook's pipes, one `HookOutput` for each of stdout and stderr. Bytes come in as the pipe
//! gives them, and lines that arrive in pieces are joined. A line that begins a JSON object is held until the object is whole and
//! becomes one structured record; text that turns out not to be JSON is printed line by line. Nothing is lost except what the
//! limits cut, and nothing is held longer than until the hook ends.

use log::Level;
use serde_json::{Map, Value};

/// LIMIT: a longer line or JSON text is cut. The original's number.
const MAX_LINE: usize = 10_000;

/// LIMIT: so many bytes without a newline are taken for a line, and JSON that is not whole by then is given up. The original's
/// number; it bounds the memory that a hook's output can cost.
const MAX_RUN: usize = 64 * 1024;

const CUT_MARK: &str = ":truncated";

/// One record made of hook output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Line {
    /// To be logged at info.
    Text(String),
    /// The hook printed a JSON object.
    Json {
        level: Level,
        msg: String,
        fields: Map<String, Value>,
    },
}

impl Line {
    /// Logs it with the labels of its run and, as `output`, the stream it came from.
    pub(crate) fn write(self, stream: &'static str, labels: &Map<String, Value>) {
        let (level, message, mut fields) = match self {
            Line::Text(text) => (Level::Info, text, Map::new()),
            Line::Json { level, msg, fields } => (level, msg, fields),
        };
        if level > log::max_level() {
            return;
        }
        fields.insert("output".to_owned(), Value::from(stream));
        for (key, label) in labels {
            // A label counts more than what a hook says about itself, but takes nothing away from it.
            if let Some(replaced) = fields.insert(key.clone(), label.clone()) {
                fields.insert(format!("hook_{key}"), replaced);
            }
        }
        super::write_record(level, &message, &fields);
    }
}

/// Collects one stream of one run.
#[derive(Debug)]
pub(crate) struct HookOutput {
    stream: &'static str,
    /// Arrays over several lines are held together too.
    proxy_json: bool,
    /// The line that has not ended yet.
    run: Vec<u8>,
    held: Option<Held>,
}

/// Lines that may become a JSON value.
#[derive(Debug)]
struct Held {
    text: String,
    depth: usize,
    /// The last line ended inside a string: never JSON.
    torn: bool,
    /// At this length it is checked again whether the text can still become JSON. Doubles, so that checking stays linear.
    next_check: usize,
}

impl HookOutput {
    /// `stream` is `stdout` or `stderr`.
    pub(crate) fn new(stream: &'static str, proxy_json: bool) -> HookOutput {
        HookOutput {
            stream,
            proxy_json,
            run: Vec::new(),
            held: None,
        }
    }

    /// The label of every line.
    pub(crate) fn stream(&self) -> &'static str {
        self.stream
    }

    /// Takes what was read from the pipe.
    pub(crate) fn feed(&mut self, bytes: &[u8], emit: &mut dyn FnMut(Line)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let mut rest = piece;
            while let Some((fits, more)) =
                rest.split_at_checked(MAX_RUN.saturating_sub(self.run.len()))
            {
                if more.is_empty() {
                    break;
                }
                self.run.extend_from_slice(fits);
                self.end_long_run(emit);
                rest = more;
            }
            self.run.extend_from_slice(rest);
            if piece.ends_with(b"\n") {
                let run = std::mem::take(&mut self.run);
                self.line(&String::from_utf8_lossy(&run), emit);
                // The allocation serves the next line.
                self.run = run;
                self.run.clear();
            }
        }
    }

    /// The stream has ended.
    pub(crate) fn finish(&mut self, emit: &mut dyn FnMut(Line)) {
        let run = std::mem::take(&mut self.run);
        self.line(&String::from_utf8_lossy(&run), emit);
        if let Some(held) = self.held.take() {
            give_up(&held.text, emit);
        }
    }

    /// Takes a full run for a line, but leaves the first bytes of a character that has not come whole yet.
    fn end_long_run(&mut self, emit: &mut dyn FnMut(Line)) {
        let run = std::mem::take(&mut self.run);
        let whole = match std::str::from_utf8(&run) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => run.len(),
        };
        let (line, tail) = run.split_at_checked(whole).unwrap_or((&run, &[]));
        self.line(&String::from_utf8_lossy(line), emit);
        self.run = tail.to_vec();
    }

    fn line(&mut self, line: &str, emit: &mut dyn FnMut(Line)) {
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        let held = match self.held.take() {
            Some(mut held) => {
                let before = held.text.len();
                held.push(line);
                if held.can_become_json() {
                    held
                } else {
                    // The lines so far were not JSON. This one may be the beginning of something that is.
                    give_up(held.text.get(..before).unwrap_or_default(), emit);
                    return self.line(line, emit);
                }
            }
            None if line.starts_with('{') || (self.proxy_json && line.starts_with('[')) => {
                let mut held = Held::new();
                held.push(line);
                if !held.can_become_json() {
                    return give_up(&held.text, emit);
                }
                held
            }
            None => return emit(Line::Text(cut(line))),
        };
        if held.depth > 0 {
            self.held = Some(held);
            return;
        }
        match serde_json::from_str(&held.text) {
            Ok(Value::Object(members)) => emit(json_line(&held.text, members)),
            Ok(_) => emit(Line::Text(cut(&held.text))),
            Err(_) => give_up(&held.text, emit),
        }
    }
}

impl Held {
    fn new() -> Held {
        Held {
            text: String::new(),
            depth: 0,
            torn: false,
            next_check: 0,
        }
    }

    fn push(&mut self, line: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        let mut in_string = false;
        let mut escaped = false;
        for byte in line.bytes() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                b'{' | b'[' if !in_string => self.depth = self.depth.saturating_add(1),
                b'}' | b']' if !in_string => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        // JSON has no newline inside a string, so that each line begins outside of one.
        self.torn = in_string;
    }

    /// False as soon as it is known that no further lines can make JSON of the text.
    fn can_become_json(&mut self) -> bool {
        if self.torn || self.text.len() > MAX_RUN {
            return false;
        }
        if self.depth == 0 || self.text.len() < self.next_check {
            return true;
        }
        self.next_check = self.text.len().saturating_mul(2);
        match serde_json::from_str::<serde::de::IgnoredAny>(&self.text) {
            Ok(_) => true,
            Err(error) => error.is_eof(),
        }
    }
}

/// Prints lines that were held in vain.
fn give_up(text: &str, emit: &mut dyn FnMut(Line)) {
    for line in text.lines() {
        emit(Line::Text(cut(line)));
    }
}

/// The record for an object: `level`, `msg` and `time` are taken out, every other key is marked as the hook's.
fn json_line(text: &str, mut members: Map<String, Value>) -> Line {
    let level = members
        .get("level")
        .and_then(Value::as_str)
        .and_then(level_named);
    if level.is_some() {
        members.remove("level");
    }
    let msg = match members.get("msg").and_then(Value::as_str).map(cut) {
        Some(msg) => {
            members.remove("msg");
            msg
        }
        None => "hook result".to_owned(),
    };
    members.remove("time");
    let mut fields: Map<String, Value> = if text.len() > MAX_LINE {
        let shortened = Map::from_iter([("truncated".to_owned(), Value::from(cut(text)))]);
        Map::from_iter([("hook".to_owned(), Value::Object(shortened))])
    } else {
        members
            .into_iter()
            .map(|(key, value)| (format!("hook_{key}"), value))
            .collect()
    };
    fields.insert("proxyJsonLog".to_owned(), Value::Bool(true));
    Line::Json {
        level: level.unwrap_or(Level::Info),
        msg,
        fields,
    }
}

fn level_named(name: &str) -> Option<Level> {
    match name.to_ascii_lowercase().as_str() {
        "trace" => Some(Level::Trace),
        "debug" => Some(Level::Debug),
        "info" => Some(Level::Info),
        "warn" | "warning" => Some(Level::Warn),
        "error" | "fatal" | "panic" => Some(Level::Error),
        _ => None,
    }
}

/// At most `MAX_LINE` bytes, whole characters, with a mark when something is missing.
fn cut(text: &str) -> String {
    if text.len() <= MAX_LINE {
        return text.to_owned();
    }
    let end = (0..=MAX_LINE)
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or_default();
    format!("{}{CUT_MARK}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(proxy_json: bool, chunks: &[&[u8]]) -> Vec<Line> {
        let mut output = HookOutput::new("stdout", proxy_json);
        let mut lines = Vec::new();
        for chunk in chunks {
            output.feed(chunk, &mut |line| lines.push(line));
        }
        output.finish(&mut |line| lines.push(line));
        lines
    }

    fn text(line: &str) -> Line {
        Line::Text(line.to_owned())
    }

    fn json_of(level: Level, msg: &str, fields: &Value) -> Line {
        let mut fields = fields.as_object().unwrap().clone();
        fields.insert("proxyJsonLog".to_owned(), Value::Bool(true));
        Line::Json {
            level,
            msg: msg.to_owned(),
            fields,
        }
    }

    /// The same records must come out however the bytes are cut into chunks.
    fn check(proxy_json: bool, input: &str, expected: &[Line]) {
        let whole = lines(proxy_json, &[input.as_bytes()]);
        assert_eq!(whole, expected, "{input:?}");
        let bytes: Vec<&[u8]> = input.as_bytes().chunks(1).collect();
        assert_eq!(lines(proxy_json, &bytes), expected, "{input:?} in bytes");
    }

    #[test]
    fn plain_lines_are_trimmed_and_empty_ones_skipped() {
        check(
            false,
            "  one \r\n\n \t\ntwo\nthree without end",
            &[text("one"), text("two"), text("three without end")],
        );
        check(false, "", &[]);
        check(false, "grün €\n", &[text("grün €")]);
    }

    #[test]
    fn a_json_object_becomes_a_record() {
        let result = |fields: &Value| json_of(Level::Info, "hook result", fields);
        check(
            false,
            r#"{"foo":"baz"}"#,
            &[result(&json!({"hook_foo": "baz"}))],
        );
        check(
            false,
            r#"{"level":"WARNING","msg":"m","time":"t","a":{"b":[1]}}"#,
            &[json_of(Level::Warn, "m", &json!({"hook_a": {"b": [1]}}))],
        );
        check(
            false,
            r#"{"level":"fatal"}"#,
            &[json_of(Level::Error, "hook result", &json!({}))],
        );
        // What cannot be used as level or message is kept as a field.
        check(
            false,
            r#"{"level":"loud","msg":7}"#,
            &[result(&json!({"hook_level": "loud", "hook_msg": 7}))],
        );
    }

    #[test]
    fn an_object_over_several_lines_is_one_record() {
        check(
            false,
            "before\n{\n  \"a\": \"}{\\\"\",\n\n  \"b\": [\n 1 ]\n}\nafter\n",
            &[
                text("before"),
                json_of(
                    Level::Info,
                    "hook result",
                    &json!({"hook_a": "}{\"", "hook_b": [1]}),
                ),
                text("after"),
            ],
        );
    }

    #[test]
    fn text_that_never_becomes_json_is_printed_raw() {
        check(false, "{oops\nnext\n", &[text("{oops"), text("next")]);
        check(false, "{\"a\": 1} tail\n", &[text("{\"a\": 1} tail")]);
        check(
            false,
            "{\"a\": \"cut\nhere\"}\n",
            &[text("{\"a\": \"cut"), text("here\"}")],
        );
        // Not whole when the hook ends.
        check(false, "{\n\"a\": [\n", &[text("{"), text("\"a\": [")]);
        // A good object after a bad beginning is still recognised.
        check(
            false,
            "{\n{\"a\":1}\n",
            &[
                text("{"),
                json_of(Level::Info, "hook result", &json!({"hook_a": 1})),
            ],
        );
    }

    #[test]
    fn lines_that_are_not_json_are_not_held_back() {
        let mut output = HookOutput::new("stderr", false);
        let mut seen = Vec::new();
        output.feed(b"{ phase one\n", &mut |line| seen.push(line));
        assert_eq!(seen, [text("{ phase one")]);
        assert_eq!(output.stream(), "stderr");
    }

    #[test]
    fn arrays_are_held_together_only_when_json_is_proxied() {
        let array = "[\n1,\n2\n]\n";
        check(false, array, &[text("["), text("1,"), text("2"), text("]")]);
        check(true, array, &[text("[\n1,\n2\n]")]);
        check(true, "[1, 2]\n", &[text("[1, 2]")]);
        check(
            true,
            "[warn] text\n\"s\"\n",
            &[text("[warn] text"), text("\"s\"")],
        );
    }

    #[test]
    fn long_lines_are_cut_at_a_whole_character() {
        let exact = "x".repeat(MAX_LINE);
        check(false, &exact, &[text(&exact)]);
        check(
            false,
            &format!("{exact}y\nnext"),
            &[text(&format!("{exact}:truncated")), text("next")],
        );
        // The last character does not fit whole.
        let wide = format!("{}€", "x".repeat(MAX_LINE - 1));
        check(
            false,
            &wide,
            &[text(&format!("{}:truncated", "x".repeat(MAX_LINE - 1)))],
        );
    }

    #[test]
    fn a_run_without_newline_is_split_between_characters() {
        let input = "€".repeat(MAX_RUN / 3 + 2);
        let cut_line = format!("{}:truncated", "€".repeat(MAX_LINE / 3));
        check(false, &input, &[text(&cut_line), text("€€")]);
    }

    #[test]
    fn a_large_object_is_cut_but_keeps_its_message() {
        let object =
            json!({"msg": "big", "level": "debug", "blob": "b".repeat(MAX_LINE)}).to_string();
        let shown = format!("{}:truncated", object.get(..MAX_LINE).unwrap());
        check(
            false,
            &object,
            &[json_of(
                Level::Debug,
                "big",
                &json!({"hook": {"truncated": shown}}),
            )],
        );
    }

    #[test]
    fn what_is_not_utf8_is_replaced() {
        assert_eq!(
            lines(false, &[b"a\xff", b"\xfeb\n"]),
            [text("a\u{fffd}\u{fffd}b")]
        );
    }

    #[test]
    fn endless_json_is_given_up_and_loses_nothing() {
        let mut output = HookOutput::new("stdout", false);
        let mut count = 0_usize;
        output.feed(b"{\"a\": [\n", &mut |_| count += 1);
        for _ in 0..MAX_RUN {
            output.feed(b"1,\n", &mut |_| count += 1);
            let held = output.held.as_ref().map_or(0, |held| held.text.len());
            assert!(held <= MAX_RUN);
        }
        output.finish(&mut |_| count += 1);
        assert_eq!(count, MAX_RUN + 1);
    }
}
