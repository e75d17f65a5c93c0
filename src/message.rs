//! Every type that crosses a thread. No logic.
//!
//! Reading `Event` is reading everything that can wake the main loop.

use std::sync::Arc;

use crate::hook::Registry;

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
    /// The hooks were read; or why they could not be. Sent once, by the load thread.
    Loaded(Result<Arc<Registry>, String>),
    /// The API server answered for the first time. Sent once, by the connect thread.
    Connected,
    /// A thread found something that no waiting can mend.
    Failed { reason: String },
}
