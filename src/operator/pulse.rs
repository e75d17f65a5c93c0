//! The beat of the main loop: a counter that shows from outside that it still turns, and what has to be counted by the clock.
//!
//! Runs on the main thread, in the place where it waits for its next event; owns the time of the next beat. Never waits for
//! anything else, and never delays an event.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;

use super::inbox::Inbox;
use crate::flow::Flow;
use crate::message::Event;
use crate::metrics::Metrics;

/// As in the original; alerts are written for it.
const BEAT: Duration = Duration::from_secs(10);

pub(super) struct Pulse {
    metrics: Arc<Metrics>,
    next: Instant,
}

impl Pulse {
    /// The first beat is at once.
    pub(super) fn start(metrics: &Arc<Metrics>) -> Pulse {
        Pulse {
            metrics: Arc::clone(metrics),
            next: Instant::now(),
        }
    }

    /// The next event; beats meanwhile. None: nobody can send one any more.
    pub(super) fn next_event(
        &mut self,
        inbox: &Inbox,
        mut flow: Option<&mut Flow>,
    ) -> Option<Event> {
        loop {
            let now = Instant::now();
            if now >= self.next {
                self.metrics.add("live_ticks", &[], 1.0);
                if let Some(flow) = &mut flow {
                    flow.count_long_queues();
                }
                self.next = now + BEAT;
            }
            match inbox.next(self.next) {
                Ok(event) => return Some(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Signal;

    #[test]
    fn it_beats_at_the_start_and_when_a_beat_is_due_also_under_a_flood_of_events() {
        let metrics = Arc::new(Metrics::new(""));
        let (sender, events) = crossbeam_channel::bounded(4);
        let (_signal, signals) = crossbeam_channel::bounded(1);
        let inbox = Inbox { events, signals };
        let mut pulse = Pulse::start(&metrics);
        for _ in 0..3 {
            sender.send(Event::Signal(Signal::Reload)).unwrap();
        }
        assert!(pulse.next_event(&inbox, None).is_some());
        assert!(metrics.render().contains("\nlive_ticks 1\n"));
        assert!(pulse.next_event(&inbox, None).is_some());
        assert!(metrics.render().contains("\nlive_ticks 1\n"));
        pulse.next = Instant::now();
        assert!(pulse.next_event(&inbox, None).is_some());
        assert!(metrics.render().contains("\nlive_ticks 2\n"));
        drop(sender);
        assert!(pulse.next_event(&inbox, None).is_none());
    }
}
