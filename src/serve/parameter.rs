//! What can be changed while the operator runs: the level of the log, for good or for a time.
//!
//! Read and set by the connection threads of the debug servers. A level that is set for a time has a thread that sleeps until the time
//! is over; setting another ends it, so that there is never more than one. Owns the level that is to come back.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use jiff::{SignedDuration, Timestamp};
use log::{LevelFilter, info};
use serde_json::{Map, Value};

use crate::duration;
use crate::logger;
use crate::message::Event;
use crate::threads;

/// The one parameter.
const LOG_LEVEL: &str = "log.level";
const DESCRIPTION: &str = "Global log level. Default duration for debug level is 30m.";
/// Debug fills disks; as in the original it does not last unless it is said for how long.
const DEBUG_TIME: Duration = Duration::from_secs(30 * 60);

/// Clones are one.
#[derive(Clone)]
pub(crate) struct Parameters {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    events: Sender<Event>,
}

struct State {
    lasting: Level,
    temporary: Option<Temporary>,
    /// Counts what was set, so that the end of one does not touch the next.
    serial: u64,
}

#[derive(Clone)]
struct Level {
    name: String,
    filter: LevelFilter,
}

struct Temporary {
    level: Level,
    until: Timestamp,
    /// Dropping it ends the thread that waits.
    _waiting: Sender<Infallible>,
}

/// Why a parameter was not set, in the words of the original.
#[derive(Debug)]
pub(crate) enum SetError {
    NoName,
    Unknown(String),
    NoLevel,
    Duration { given: String, reason: String },
    Thread(io::Error),
}

impl fmt::Display for SetError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetError::NoName => out.write_str("'name' parameter is required"),
            SetError::Unknown(name) => write!(out, "unknown runtime parameter {name:?}"),
            SetError::NoLevel => out.write_str("'value' parameter is invalid: no level found"),
            SetError::Duration { given, reason } => {
                write!(out, "parse duration {given:?} failed: {reason}")
            }
            SetError::Thread(error) => {
                write!(
                    out,
                    "cannot start the thread that would change it back: {error}"
                )
            }
        }
    }
}

impl Parameters {
    /// With the level that the log has now.
    pub(crate) fn new(level: LevelFilter, events: Sender<Event>) -> Parameters {
        let lasting = Level {
            name: level.as_str().to_ascii_lowercase(),
            filter: level,
        };
        let state = Mutex::new(State {
            lasting,
            temporary: None,
            serial: 0,
        });
        Parameters {
            shared: Arc::new(Shared { state, events }),
        }
    }

    /// Sets a parameter; an empty duration is none.
    pub(crate) fn set(&self, name: &str, value: &str, duration: &str) -> Result<(), SetError> {
        if name.is_empty() {
            return Err(SetError::NoName);
        }
        if name != LOG_LEVEL {
            return Err(SetError::Unknown(name.to_owned()));
        }
        let filter = logger::level_named(value).ok_or(SetError::NoLevel)?;
        let time = time_of(duration, filter)?;
        let level = Level {
            name: value.to_ascii_lowercase(),
            filter,
        };
        match time {
            None => self.set_lasting(level),
            Some((time, until)) => self.set_for(level, time, until)?,
        }
        Ok(())
    }

    fn set_lasting(&self, level: Level) {
        let mut state = self.shared.locked();
        state.serial += 1;
        state.temporary = None;
        logger::set_level(level.filter);
        let name = level.name.clone();
        state.lasting = level;
        drop(state);
        info!("log level is {name} from now on");
    }

    fn set_for(&self, level: Level, time: Duration, until: Timestamp) -> Result<(), SetError> {
        let name = level.name.clone();
        let shared = Arc::clone(&self.shared);
        let begin = |serial, replaced: Receiver<Infallible>| {
            threads::spawn_while_needed("log-level", &self.shared.events, move || {
                shared.end_after(time, serial, &replaced);
            })
            .map(drop)
        };
        self.shared.begin_temporary(level, until, begin)?;
        info!("log level is {name} until {}", written(until));
        Ok(())
    }

    /// Every parameter as the original lists it.
    pub(crate) fn list(&self) -> Value {
        let state = self.shared.locked();
        let level = state.level();
        let mut fields = Map::new();
        let mut put = |key: &str, value: &str| fields.insert(key.to_owned(), value.into());
        put("name", LOG_LEVEL);
        put("description", DESCRIPTION);
        put("value", &level.name);
        if let Some(temporary) = &state.temporary {
            put("expireAt", &written(temporary.until));
        }
        Value::Array(vec![Value::Object(fields)])
    }

    /// The same as a table.
    pub(crate) fn table(&self) -> String {
        let state = self.shared.locked();
        let until = state
            .temporary
            .as_ref()
            .map(|temporary| written(temporary.until));
        let row = |name: &str, value: &str, until: &str, text: &str| {
            format!("{name:<30} {value:<20} {until:<20} {text:<40}\n")
        };
        let head = row("NAME", "VALUE", "EXPIRE AT", "DESCRIPTION");
        let level = &state.level().name;
        head + &row(
            LOG_LEVEL,
            level,
            until.as_deref().unwrap_or_default(),
            DESCRIPTION,
        )
    }
}

impl Shared {
    /// `begin` starts the thread that ends the level again. Without it nothing changes: the level that was set before still needs
    /// its own end.
    fn begin_temporary(
        &self,
        level: Level,
        until: Timestamp,
        begin: impl FnOnce(u64, Receiver<Infallible>) -> io::Result<()>,
    ) -> Result<(), SetError> {
        let (waiting, replaced) = crossbeam_channel::bounded(0);
        let mut state = self.locked();
        let serial = state.serial + 1;
        begin(serial, replaced).map_err(SetError::Thread)?;
        state.serial = serial;
        logger::set_level(level.filter);
        state.temporary = Some(Temporary {
            level,
            until,
            _waiting: waiting,
        });
        Ok(())
    }

    /// The thread of a level that was set for a time.
    fn end_after(&self, time: Duration, serial: u64, replaced: &Receiver<Infallible>) {
        if !matches!(replaced.recv_timeout(time), Err(RecvTimeoutError::Timeout)) {
            return;
        }
        let mut state = self.locked();
        if state.serial != serial {
            return;
        }
        state.temporary = None;
        let level = state.lasting.clone();
        logger::set_level(level.filter);
        drop(state);
        info!("log level is {} again", level.name);
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn level(&self) -> &Level {
        let temporary = self.temporary.as_ref();
        temporary.map_or(&self.lasting, |temporary| &temporary.level)
    }
}

/// For how long, and until when. None: for good.
fn time_of(text: &str, filter: LevelFilter) -> Result<Option<(Duration, Timestamp)>, SetError> {
    let failed = |reason: String| SetError::Duration {
        given: text.to_owned(),
        reason,
    };
    let asked = if text.is_empty() {
        Duration::ZERO
    } else {
        duration::parse(text).map_err(failed)?
    };
    let time = match (asked, filter) {
        (Duration::ZERO, LevelFilter::Debug) => DEBUG_TIME,
        (Duration::ZERO, _) => return Ok(None),
        (asked, _) => asked,
    };
    let until = SignedDuration::try_from(time)
        .and_then(|time| Timestamp::now().checked_add(time))
        .map_err(|error| failed(error.to_string()))?;
    Ok(Some((time, until)))
}

/// RFC 3339 in whole seconds.
fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Parameters {
        let (events, _) = crossbeam_channel::unbounded();
        Parameters::new(LevelFilter::Info, events)
    }

    #[test]
    fn what_cannot_be_set_is_refused_in_the_words_of_the_original() {
        for (name, value, duration, expected) in [
            ("", "debug", "", "'name' parameter is required"),
            (
                "log.lvl",
                "debug",
                "",
                "unknown runtime parameter \"log.lvl\"",
            ),
            (
                "log.level",
                "loud",
                "",
                "'value' parameter is invalid: no level found",
            ),
            (
                "log.level",
                "",
                "",
                "'value' parameter is invalid: no level found",
            ),
            (
                "log.level",
                "debug",
                "soon",
                "parse duration \"soon\" failed: time: invalid duration \"soon\"",
            ),
        ] {
            let error = parameters().set(name, value, duration).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn only_debug_ends_by_itself_when_no_time_is_given() {
        assert!(matches!(
            time_of("", LevelFilter::Debug),
            Ok(Some((DEBUG_TIME, _)))
        ));
        for filter in [LevelFilter::Trace, LevelFilter::Info, LevelFilter::Error] {
            assert!(matches!(time_of("", filter), Ok(None)), "{filter}");
        }
        let five = Duration::from_secs(5);
        assert!(matches!(time_of("5s", LevelFilter::Info), Ok(Some((time, _))) if time == five));
    }

    #[test]
    fn the_list_has_the_columns_and_keys_of_the_original() {
        let parameters = parameters();
        assert_eq!(
            parameters.table(),
            format!(
                "{:<30} {:<20} {:<20} {:<40}\n{:<30} {:<20} {:<20} {DESCRIPTION}\n",
                "NAME", "VALUE", "EXPIRE AT", "DESCRIPTION", "log.level", "info", ""
            )
        );
        let list = parameters.list();
        assert_eq!(list[0]["value"], "info");
        assert!(list[0].get("expireAt").is_none());
    }

    #[test]
    fn a_level_that_could_not_be_set_leaves_the_former_one_its_end() {
        let parameters = parameters();
        let shared = &parameters.shared;
        let level = |name: &str| Level {
            name: name.to_owned(),
            filter: LevelFilter::Info,
        };
        let until = Timestamp::now();
        let mut first = None;
        shared
            .begin_temporary(level("first"), until, |serial, replaced| {
                first = Some((serial, replaced));
                Ok(())
            })
            .unwrap();
        let refused = shared.begin_temporary(level("second"), until, |_, _| {
            Err(io::ErrorKind::WouldBlock.into())
        });
        assert!(matches!(refused, Err(SetError::Thread(_))));
        assert_eq!(parameters.list()[0]["value"], "first");
        // What the thread of the first one does.
        let (serial, replaced) = first.unwrap();
        shared.end_after(Duration::ZERO, serial, &replaced);
        assert_eq!(parameters.list()[0]["value"], "info");
    }
}
