//! The only maker of threads.
//!
//! A long-lived thread is started by `spawn`, which turns its end, by return or by panic, into `Event::Exited`: a thread that
//! died silently would leave a process that looks alive and does nothing. Threads that live for one connection or one call are
//! started by `spawn_short`; their panic ends only what they served.

use std::io;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender};
use log::error;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::message::{Event, Signal};

/// Stack of a long-lived thread. jq filters recurse, so these get what the main thread of most systems would allow at least.
const LONG_LIVED_STACK: usize = 2 * 1024 * 1024;

/// LIMIT: signals that wait for the main loop. The second stop signal already means the most a signal can mean.
const SIGNALS: usize = 8;

/// Starts a thread that is meant to live as long as the process. Its name is `role:detail` and appears in log lines.
#[expect(clippy::disallowed_methods, reason = "this is the room that may")]
pub(crate) fn spawn(
    name: &str,
    events: &Sender<Event>,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let thread = name.to_owned();
    let events = events.clone();
    Builder::new()
        .name(name.to_owned())
        .stack_size(LONG_LIVED_STACK)
        .spawn(move || {
            let panic = catch_unwind(AssertUnwindSafe(body))
                .err()
                .map(|payload| panic_text(payload.as_ref()));
            // The main loop may be gone already: then nobody needs to know.
            let _ = events.send(Event::Exited { thread, panic });
        })
}

/// Starts a thread that works as long as it is needed and then returns, with the stack of a long-lived one. Its return is no
/// event, since nobody misses it; its panic is `Event::Exited`, as above.
#[expect(clippy::disallowed_methods, reason = "this is the room that may")]
pub(crate) fn spawn_while_needed(
    name: &str,
    events: &Sender<Event>,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let thread = name.to_owned();
    let events = events.clone();
    Builder::new()
        .name(name.to_owned())
        .stack_size(LONG_LIVED_STACK)
        .spawn(move || {
            if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
                let panic = Some(panic_text(payload.as_ref()));
                let _ = events.send(Event::Exited { thread, panic });
            }
        })
}

/// Starts a thread for one connection or one call, with a stack of its own size.
#[expect(clippy::disallowed_methods, reason = "this is the room that may")]
pub(crate) fn spawn_short<T: Send + 'static>(
    name: &str,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new()
        .name(name.to_owned())
        .stack_size(stack)
        .spawn(body)
}

/// Starts the signal thread. Must be called before any other thread exists, so that none of them takes a signal by default.
/// Signals have a channel of their own, or they would wait behind a flood of changes.
pub(crate) fn spawn_signals(
    events: &Sender<Event>,
) -> io::Result<(JoinHandle<()>, Receiver<Signal>)> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let (sender, received) = crossbeam_channel::bounded(SIGNALS);
    let thread = spawn("signals", events, move || {
        for number in signals.forever() {
            let signal = if number == SIGHUP {
                Signal::Reload
            } else {
                Signal::Stop
            };
            if sender.send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok((thread, received))
}

/// From now on a panic is one record of the log, and not several lines on standard error that no reader of logs understands. To be
/// called when there is a log.
pub(crate) fn log_panics() {
    panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        error!(thread = thread.name().unwrap_or_default(); "{}", panic_words(panic));
    }));
}

/// What a panic said, and where.
fn panic_words(panic: &PanicHookInfo<'_>) -> String {
    let text = panic_text(panic.payload());
    match panic.location() {
        Some(place) => format!("panic at {}:{}: {text}", place.file(), place.line()),
        None => format!("panic: {text}"),
    }
}

/// What a panic said, for the log.
pub(crate) fn panic_text(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_no_longer_needed_goes_quietly_but_not_by_a_panic() {
        let (sender, receiver) = crossbeam_channel::bounded(4);
        let quiet = spawn_while_needed("quiet", &sender, || {}).unwrap();
        quiet.join().unwrap();
        spawn_while_needed("loud", &sender, || panic!("boom")).unwrap();
        assert!(matches!(
            receiver.recv().unwrap(),
            Event::Exited { thread, panic: Some(_) } if thread == "loud"
        ));
    }

    /// The hook is one for the whole process, so it is asked about this test's own panic only.
    #[test]
    fn a_panic_is_told_in_one_line_with_its_place() {
        let (sender, told) = crossbeam_channel::bounded(1);
        let former = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some("told") {
                let _ = sender.try_send(panic_words(panic));
            } else {
                former(panic);
            }
        }));
        let ended = spawn_short("told", LONG_LIVED_STACK, || panic!("boom {}", 1)).unwrap();
        assert!(ended.join().is_err());
        let words = told.recv().unwrap();
        let (place, text) = words.rsplit_once(": ").unwrap();
        assert!(place.starts_with("panic at src/threads.rs:"), "{words}");
        assert_eq!(text, "boom 1");
    }

    #[test]
    fn the_end_of_a_thread_is_an_event() {
        let (sender, receiver) = crossbeam_channel::bounded(4);
        spawn("quiet", &sender, || {}).unwrap();
        spawn("loud", &sender, || panic!("boom")).unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            if let Event::Exited { thread, panic } = receiver.recv().unwrap() {
                seen.push((thread, panic));
            }
        }
        seen.sort();
        assert_eq!(
            seen,
            [
                ("loud".to_owned(), Some("boom".to_owned())),
                ("quiet".to_owned(), None)
            ]
        );
    }
}
