//! Every type that crosses a thread. No logic.
//!
//! Reading `Event` is reading everything that can wake the main loop.

/// Why the process was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// TERM or INT: stop in order; a second one stops at once.
    Stop,
    /// HUP: hooks are read once, so this is only noted in the log (see README).
    Reload,
}

/// Anything that wakes the main loop.
#[derive(Debug)]
pub(crate) enum Event {
    /// A signal arrived. Sent by the signal thread.
    Signal(Signal),
    /// A long-lived thread ended, by returning or by a panic. Sent by `threads::spawn`.
    Exited {
        thread: String,
        panic: Option<String>,
    },
    /// The API server answered for the first time.
    Connected,
}
