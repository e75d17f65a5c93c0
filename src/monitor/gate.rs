//! Holds a view's events back until its hook has accepted the objects that were there before.
//!
//! ```text
//! Filling --list complete--> Idle --enabled--> Locked(buffer) --opened--> Open
//! ```
//!
//! What happens to objects before `Locked` is no event, because a snapshot that is read later has it. While locked, events are
//! kept; a snapshot that is read for a Synchronization run has them too and drops them. What comes after that snapshot is sent
//! when the hook has succeeded. What is kept is bounded by what happens between two attempts of the hook, each of which reads
//! anew. Plain data under the store's lock.

use crate::message::Event;

#[derive(Debug, Default)]
pub(super) enum Gate {
    /// The first list is being read.
    #[default]
    Filling,
    /// Complete, but the binding is not enabled.
    Idle,
    Locked(Vec<Event>),
    Open,
}

/// How far a binding has come. New views of it, in namespaces that begin to match, start there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Locked,
    Open,
}

impl Gate {
    pub(super) fn at(phase: Phase) -> Gate {
        match phase {
            Phase::Idle => Gate::Idle,
            Phase::Locked => Gate::Locked(Vec::new()),
            Phase::Open => Gate::Open,
        }
    }

    /// The event, if it is to be sent now.
    pub(super) fn pass(&mut self, event: Event) -> Option<Event> {
        match self {
            Gate::Filling | Gate::Idle => None,
            Gate::Locked(buffer) => {
                buffer.push(event);
                None
            }
            Gate::Open => Some(event),
        }
    }

    /// The objects were read: what is kept back is known.
    pub(super) fn objects_were_read(&mut self) {
        if let Gate::Locked(buffer) = self {
            *buffer = Vec::new();
        }
    }

    pub(super) fn lock(&mut self) {
        if let Gate::Idle = self {
            *self = Gate::Locked(Vec::new());
        }
    }

    /// Takes what is kept back, to be sent; when there is nothing left, the gate is open. Until then new events queue up behind
    /// those that were taken, so that their order holds.
    pub(super) fn open(&mut self) -> Vec<Event> {
        match self {
            Gate::Locked(buffer) if !buffer.is_empty() => std::mem::take(buffer),
            Gate::Locked(_) | Gate::Idle => {
                *self = Gate::Open;
                Vec::new()
            }
            // When the list is complete it will find its binding open.
            Gate::Filling | Gate::Open => Vec::new(),
        }
    }

    pub(super) fn is_before_enabling(&self) -> bool {
        matches!(self, Gate::Filling | Gate::Idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: usize) -> Event {
        Event::Failed {
            reason: number.to_string(),
        }
    }

    fn numbers(events: &[Event]) -> Vec<String> {
        events
            .iter()
            .map(|event| match event {
                Event::Failed { reason } => reason.clone(),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// The table of the Synchronization hand-over: `e` an event, `r` a read for a Synchronization run, `l` enabled, `o` opened;
    /// expected is what was sent, by number.
    #[test]
    fn events_are_handed_over_at_the_last_read_before_opening() {
        for (steps, expected) in [
            ("eeo", ""),
            ("leeo", "1 2"),
            ("elero", ""),
            ("lereo", "2"),
            ("lereereo", "4"),
            ("leroe", "2"),
            ("lroeee", "1 2 3"),
            ("leeroere", "3 4"),
            ("leoleo", "1 2"),
        ] {
            let mut gate = Gate::Idle;
            let mut sent = Vec::new();
            let mut number = 0;
            for step in steps.chars() {
                match step {
                    'e' => {
                        number += 1;
                        sent.extend(gate.pass(event(number)));
                    }
                    'r' => gate.objects_were_read(),
                    'l' => gate.lock(),
                    _ => loop {
                        let batch = gate.open();
                        if batch.is_empty() {
                            break;
                        }
                        sent.extend(batch);
                    },
                }
            }
            assert_eq!(numbers(&sent).join(" "), expected, "{steps}");
        }
    }

    #[test]
    fn an_event_that_comes_while_the_buffer_is_sent_goes_behind_it() {
        let mut gate = Gate::at(Phase::Locked);
        assert!(gate.pass(event(1)).is_none());
        assert_eq!(numbers(&gate.open()), ["1"]);
        assert!(gate.pass(event(2)).is_none(), "not open yet");
        assert_eq!(numbers(&gate.open()), ["2"]);
        assert!(gate.open().is_empty());
        assert!(gate.pass(event(3)).is_some());
    }

    #[test]
    fn a_view_that_is_being_filled_says_nothing_whoever_opens_it() {
        let mut gate = Gate::default();
        assert!(gate.open().is_empty());
        assert!(gate.pass(event(1)).is_none());
    }
}
