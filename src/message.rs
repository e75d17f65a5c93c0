//! Every type that crosses a thread. No logic.
//!
//! Reading `Event` is reading everything that can wake the main loop.

use std::sync::Arc;

use crate::hook::Registry;
use crate::hook::binding::Change;

/// A kubernetes binding: an index into `registry.hooks` and one into that hook's `config.kubernetes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BindingId {
    pub(crate) hook: usize,
    pub(crate) binding: usize,
}

/// One object as a hook gets to see it, each part JSON text. Shared with the store and never printed: it may be a Secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// None when the binding does not keep full objects.
    pub(crate) object: Option<Arc<[u8]>>,
    /// None when the binding has no jqFilter.
    pub(crate) filter_result: Option<Arc<[u8]>>,
}

impl std::fmt::Debug for Item {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Item")
    }
}

/// The objects of a binding at one moment, in their order.
pub(crate) type Snapshot = Vec<Item>;

/// Which object; hooks of version 0 are told nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) namespace: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

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
    /// An object changed in a way that its binding wants to hear of. Sent by the watch threads, after the store was written.
    Changed {
        binding: BindingId,
        change: Change,
        item: Item,
        key: ObjectKey,
    },
    /// A thread found something that no waiting can mend.
    Failed { reason: String },
}
