//! The `log` sink: one line per record on standard output, and hook output cut into records.
//!
//! ```text
//! any thread: record -> format (String) -> Sink (bounded bytes) -> writer thread -> stdout
//! executor:   pipe bytes -> HookOutput -> Line -> record
//! ```
//!
//! Formatting happens on the calling thread and only when the level is on; a caller never waits for the output. Owns the one
//! `static` with state in the program. Makes no thread itself: the body of the writer thread is given to the caller of `start`.
//! Third-party crates are heard from `warn` upwards only, because what they print at lower levels is not ours to vouch for.

mod format;
mod hook_log;
mod output;
mod sink;

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::time::Duration;

use log::kv::{self, VisitSource};
use log::{Level, LevelFilter, Record};
use serde_json::{Map, Value};

pub(crate) use hook_log::HookLog;

use format::{Entry, Field, Style};
use sink::Sink;

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One JSON object per line, with the keys of the original.
    Json,
    /// For people; coloured when standard output is a terminal.
    Text,
}

/// What `start` needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) format: Format,
    /// Whether text lines begin with the time. JSON lines always carry it.
    pub(crate) time: bool,
    pub(crate) level: LevelFilter,
}

struct Logger {
    sink: Sink,
    style: Style,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Our part of every target: records of other crates begin with their own name.
const OWN_TARGET: &str = env!("CARGO_CRATE_NAME");

/// Starts logging to standard output. `spawn` gets the body of the writer thread, which never ends by itself.
pub(crate) fn start(
    options: Options,
    spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
) -> io::Result<()> {
    // A handle of our own: the one of the standard library keeps a buffer and a lock that a blocked write would hold for ever.
    let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let style = match options.format {
        Format::Json => Style::Json,
        Format::Text => Style::Text {
            colour: io::stdout().is_terminal(),
            time: options.time,
        },
    };
    let (sink, body) = Sink::new(stdout, move |dropped| dropped_line(style, dropped));
    spawn(Box::new(body))?;
    if LOGGER.set(Logger { sink, style }).is_err() {
        return Err(io::Error::other("the logger was started twice"));
    }
    log::set_logger(&Global).map_err(io::Error::other)?;
    set_level(options.level);
    Ok(())
}

/// The names of the original, and those of the logging library it used before.
pub(crate) fn level_named(text: &str) -> Option<LevelFilter> {
    match text.to_ascii_lowercase().as_str() {
        "trace" => Some(LevelFilter::Trace),
        "debug" => Some(LevelFilter::Debug),
        "info" => Some(LevelFilter::Info),
        "warn" | "warning" => Some(LevelFilter::Warn),
        "error" | "fatal" | "panic" => Some(LevelFilter::Error),
        _ => None,
    }
}

/// Changes at once, for all threads, what is logged.
pub(crate) fn set_level(level: LevelFilter) {
    log::set_max_level(level);
}

/// Prints a line as it is, without level and time. Control characters are escaped.
pub(crate) fn plain_line(text: &str) {
    if let Some(logger) = LOGGER.get() {
        let mut line = String::with_capacity(text.len() + 1);
        format::escape(&mut line, text);
        line.push('\n');
        logger.sink.push(&line);
    }
}

/// Logs a record whose fields are any JSON, which the macros of `log` cannot carry.
pub(crate) fn write_record(level: Level, message: &str, fields: &Map<String, Value>) {
    let Some(logger) = LOGGER.get().filter(|_| level <= log::max_level()) else {
        return;
    };
    let mut fields: Vec<Field<'_>> = fields
        .iter()
        .map(|(key, value)| Field::json(key, value))
        .collect();
    let entry = Entry {
        level,
        logger: None,
        message: message.into(),
        source: None,
    };
    let line = format::line(logger.style, &entry, &mut fields, jiff::Timestamp::now());
    logger.sink.push(&line);
}

/// Waits until everything logged so far is written, but not longer than `timeout`. Says whether it is.
pub(crate) fn flush(timeout: Duration) -> bool {
    LOGGER.get().is_none_or(|logger| logger.sink.flush(timeout))
}

/// What `log` calls; a type without content, so that it can be a constant.
struct Global;

impl log::Log for Global {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn || is_own(metadata.target())
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        if let Some(logger) = LOGGER.get() {
            let line = record_line(logger.style, record, jiff::Timestamp::now());
            logger.sink.push(&line);
        }
    }

    /// Waiting is `flush` above, which has a limit.
    fn flush(&self) {}
}

fn is_own(target: &str) -> bool {
    target
        .strip_prefix(OWN_TARGET)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn record_line(style: Style, record: &Record<'_>, now: jiff::Timestamp) -> String {
    let mut fields = Fields(Vec::new());
    // Collecting cannot fail: `visit_pair` never returns an error.
    let _ = record.key_values().visit(&mut fields);
    let target = record.target();
    let entry = Entry {
        level: record.level(),
        // Ours are told apart by their labels; the name of a foreign crate says where a record comes from.
        logger: (!is_own(target)).then(|| target.split("::").next().unwrap_or(target)),
        message: match record.args().as_str() {
            Some(text) => text.into(),
            None => record.args().to_string().into(),
        },
        source: (record.level() >= Level::Debug)
            .then(|| record.file().zip(record.line()))
            .flatten(),
    };
    format::line(style, &entry, &mut fields.0, now)
}

struct Fields<'kvs>(Vec<Field<'kvs>>);

impl<'kvs> VisitSource<'kvs> for Fields<'kvs> {
    fn visit_pair(&mut self, key: kv::Key<'kvs>, value: kv::Value<'kvs>) -> Result<(), kv::Error> {
        self.0.push(Field::label(&key, value));
        Ok(())
    }
}

/// The line that tells of records that did not fit.
fn dropped_line(style: Style, dropped: u64) -> String {
    let count = Value::from(dropped);
    let entry = Entry {
        level: Level::Warn,
        logger: None,
        message: "log records dropped".into(),
        source: None,
    };
    let mut fields = vec![Field::json("count", &count)];
    format::line(style, &entry, &mut fields, jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(style: Style, record: &Record<'_>) -> String {
        record_line(style, record, "2026-01-02T03:04:05.678Z".parse().unwrap())
    }

    #[test]
    fn labels_become_sorted_fields_between_the_message_and_the_time() {
        let labels = [
            ("review.uid", kv::Value::from("u-1")),
            ("hook", kv::Value::from("a.sh")),
            ("count", kv::Value::from(3)),
            ("ok", kv::Value::from(true)),
        ];
        let record = Record::builder()
            .level(Level::Info)
            .target("shell_operator::queue")
            .args(format_args!("Execute hook"))
            .key_values(&labels)
            .build();
        assert_eq!(
            line_of(Style::Json, &record),
            "{\"level\":\"info\",\"msg\":\"Execute hook\",\"count\":3,\"hook\":\"a.sh\",\"ok\":true,\
             \"review.uid\":\"u-1\",\"time\":\"2026-01-02T03:04:05.678Z\"}\n"
        );
    }

    #[test]
    fn the_source_is_named_at_debug_level_only() {
        let record = |level| {
            Record::builder()
                .level(level)
                .target("shell_operator")
                .file(Some("src/queue.rs"))
                .line(Some(12))
                .args(format_args!("m"))
                .build()
        };
        let debug = line_of(Style::Json, &record(Level::Debug));
        assert!(
            debug.contains("\"msg\":\"m\",\"source\":\"src/queue.rs:12\",\"time\""),
            "{debug}"
        );
        let info = line_of(Style::Json, &record(Level::Info));
        assert!(!info.contains("source"), "{info}");
    }

    #[test]
    fn other_crates_are_named_and_heard_from_warn_upwards() {
        use log::Log as _;
        let record = Record::builder()
            .level(Level::Warn)
            .target("ureq::pool")
            .args(format_args!("m"))
            .build();
        let line = line_of(Style::Json, &record);
        assert!(
            line.starts_with("{\"level\":\"warn\",\"logger\":\"ureq\",\"msg\":\"m\""),
            "{line}"
        );
        for (target, level, heard) in [
            ("ureq::pool", Level::Debug, false),
            ("shell_operatorx", Level::Debug, false),
            ("ureq::pool", Level::Warn, true),
            ("shell_operator::jq", Level::Trace, true),
        ] {
            let metadata = log::Metadata::builder().level(level).target(target).build();
            assert_eq!(Global.enabled(&metadata), heard, "{target} {level}");
        }
    }
}
