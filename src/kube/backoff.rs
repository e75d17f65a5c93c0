//! How long a watch waits before it tries again, and how it is woken from that.
//!
//! Runs on the watch's own thread; `Rest` is also held by whoever may stop or urge the watch. Nothing here does I/O. All
//! durations of watching stand in `Tempo`, so that tests run with short ones.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Every duration of watching, and the size of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tempo {
    /// A watch on which nothing came for so long is taken for dead. Must be longer than `served`.
    pub(crate) silence: Duration,
    /// How long the server is asked to serve one watch. It sends a bookmark two seconds before that and ends the answer in
    /// order, so that even a quiet watch is heard within `silence`, its version stays young, and its connection is used again.
    pub(crate) served: Duration,
    /// The same for a streaming list.
    pub(crate) listing: Duration,
    /// Silence within a streaming list after which its end is no longer believed in.
    pub(crate) initial_events: Duration,
    /// Pauses after errors that the server answered: the first and the longest.
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
    /// The longest pause after a 401: the new token may be there any moment.
    pub(crate) login_pause: Duration,
    /// Pauses between attempts to reach a server that refuses connections.
    pub(crate) first_probe: Duration,
    pub(crate) longest_probe: Duration,
    /// After an outage all watches begin again within this time.
    pub(crate) spread: Duration,
    /// For so long after an outage the server's refusals may come from its start: pauses stay short.
    pub(crate) settling: Duration,
    /// A resource that is not there for so long is gone, and so are its objects. A server that starts may not have loaded its
    /// custom resources yet.
    pub(crate) absence: Duration,
    /// A watch that ended sooner than this without any event is a failure.
    pub(crate) too_short: Duration,
    /// How often a failure that lasts is said again.
    pub(crate) reminder: Duration,
    /// Objects on one page of a list.
    pub(crate) page: u32,
}

impl Default for Tempo {
    fn default() -> Tempo {
        Tempo {
            silence: Duration::from_secs(42),
            served: Duration::from_secs(30),
            listing: Duration::from_secs(300),
            initial_events: Duration::from_secs(10),
            first_pause: Duration::from_millis(800),
            longest_pause: Duration::from_secs(30),
            login_pause: Duration::from_secs(3),
            first_probe: Duration::from_millis(100),
            longest_probe: Duration::from_secs(1),
            spread: Duration::from_millis(300),
            settling: Duration::from_secs(30),
            absence: Duration::from_secs(30),
            too_short: Duration::from_secs(1),
            reminder: Duration::from_secs(600),
            page: 500,
        }
    }
}

/// Pauses that double, with jitter, until something works again.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff {
            first,
            longest,
            next: first,
        }
    }

    pub(super) fn pause(&mut self) -> Duration {
        let pause = jittered(self.next);
        self.next = self.next.saturating_mul(2).min(self.longest);
        pause
    }

    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Between two thirds of the duration and all of it.
pub(super) fn jittered(duration: Duration) -> Duration {
    let third = duration / 3;
    duration - third + part_of(third)
}

/// Any share of the duration. The standard library's hash keys are random, which is all the chance that jitter needs.
pub(super) fn part_of(duration: Duration) -> Duration {
    const STEPS: u32 = 1 << 16;
    let random = RandomState::new().hash_one(0u8) % u64::from(STEPS);
    let share = u32::try_from(random).unwrap_or_default();
    duration / STEPS * share
}

/// Where a watch sleeps between attempts.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    state: Mutex<RestState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RestState {
    stopped: bool,
    urged: bool,
}

impl Rest {
    /// Sleeps so long, unless it is stopped or urged meanwhile.
    pub(super) fn sleep(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut state = self.locked();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.stopped || state.urged || left.is_zero() {
                state.urged = false;
                return;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Ends the sleep: the next attempt is made now.
    pub(crate) fn urge(&self) {
        self.locked().urged = true;
        self.changed.notify_all();
    }

    /// Nobody needs the watch any more. Its thread ends as soon as it looks up.
    pub(crate) fn stop(&self) {
        self.locked().stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.locked().stopped
    }

    fn locked(&self) -> MutexGuard<'_, RestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_with_jitter_up_to_the_longest() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, 5 * second);
        for expected in [1, 2, 4, 5, 5] {
            let pause = backoff.pause();
            assert!(pause <= expected * second && pause >= expected * second / 2);
        }
        backoff.reset();
        assert!(backoff.pause() <= second);
        assert_eq!(part_of(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_sleeper_is_woken_by_urging_and_by_stopping() {
        let rest = Rest::default();
        rest.urge();
        rest.sleep(Duration::from_secs(600));
        std::thread::scope(|scope| {
            scope.spawn(|| rest.sleep(Duration::from_secs(600)));
            rest.stop();
        });
        assert!(rest.is_stopped());
        rest.sleep(Duration::from_secs(600));
    }
}
