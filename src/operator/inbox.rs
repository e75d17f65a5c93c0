//! What the main loop waits on: signals, and every other event. Owned and read by the main thread alone.
//!
//! Signals have a channel of their own, which is looked at first: the other one is bounded and may be full of changes, and whoever
//! asks the operator to stop must not wait behind them.

use std::time::Instant;

use crossbeam_channel::{Receiver, RecvError, RecvTimeoutError, at, select_biased};

use crate::message::{Event, Signal};

pub(super) struct Inbox {
    pub(super) events: Receiver<Event>,
    pub(super) signals: Receiver<Signal>,
}

impl Inbox {
    /// Waits for the next event, at most until then.
    pub(super) fn next(&self, until: Instant) -> Result<Event, RecvTimeoutError> {
        let late = at(until);
        let event = |received: Result<Event, RecvError>| received.map_err(RecvTimeoutError::from);
        select_biased! {
            recv(self.signals) -> signal => match signal {
                Ok(signal) => Ok(Event::Signal(signal)),
                // The signal thread has ended; an event says so.
                Err(_) => self.events.recv_deadline(until),
            },
            recv(self.events) -> received => event(received),
            recv(late) -> _ => Err(RecvTimeoutError::Timeout),
        }
    }

    /// What is there already, signals first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Event> {
        let signals = self.signals.try_iter().map(Event::Signal);
        signals.chain(self.events.try_iter())
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;

    #[test]
    fn a_signal_comes_before_all_that_waits() {
        let (events, inbox) = bounded(2);
        let (signal, signals) = bounded(1);
        let inbox = Inbox {
            events: inbox,
            signals,
        };
        for _ in 0..2 {
            events.send(Event::Connected).unwrap();
        }
        signal.send(Signal::Stop).unwrap();
        let next = || inbox.next(Instant::now());
        assert!(matches!(next(), Ok(Event::Signal(Signal::Stop))));
        // The end of the signal thread hides nothing.
        drop(signal);
        assert!(matches!(next(), Ok(Event::Connected)));
        assert!(matches!(next(), Ok(Event::Connected)));
        assert_eq!(next().unwrap_err(), RecvTimeoutError::Timeout);
    }
}
