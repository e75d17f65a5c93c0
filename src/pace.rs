//! How fast things may follow each other: calls of one client to the API server, runs of one hook.
//!
//! A bucket of `burst` tokens that refills at a rate, kept as one instant: the moment at which the bucket would be full again.
//! Runs on the thread that wants its turn, which sleeps until then; the lock is released while it sleeps, and `stop` wakes
//! every sleeper.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Pace {
    /// Time that one token takes to grow; zero means that there is no limit.
    interval: Duration,
    /// How far the calls may run ahead of the rate.
    tolerance: Duration,
    state: Mutex<State>,
    stopped: Condvar,
}

struct State {
    full_again: Option<Instant>,
    stopped: bool,
}

impl Pace {
    /// A rate of zero, or one that is no number, means no limit; a burst of zero is the same as one.
    pub(crate) fn per_second(rate: f64, burst: u32) -> Pace {
        let interval = Duration::try_from_secs_f64(1.0 / rate)
            .ok()
            .filter(|_| rate > 0.0)
            .unwrap_or(Duration::ZERO);
        Pace::every(interval, burst)
    }

    /// One turn every `interval`; zero means no limit.
    pub(crate) fn every(interval: Duration, burst: u32) -> Pace {
        Pace {
            interval,
            tolerance: interval.saturating_mul(burst.saturating_sub(1)),
            state: Mutex::new(State {
                full_again: None,
                stopped: false,
            }),
            stopped: Condvar::new(),
        }
    }

    /// Waits for a turn and says how long that took. False when `stop` came first.
    pub(crate) fn wait(&self) -> (Duration, bool) {
        self.wait_for_turn(None)
    }

    /// Waits for a turn. False when there is none before `deadline`; then none is taken and nothing was waited for.
    pub(crate) fn wait_until(&self, deadline: Instant) -> bool {
        self.wait_for_turn(Some(deadline)).1
    }

    fn wait_for_turn(&self, deadline: Option<Instant>) -> (Duration, bool) {
        let start = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.full_again;
        let Some(turn) = self.reserve(&mut state, start) else {
            return (Duration::ZERO, !state.stopped);
        };
        if deadline.is_some_and(|deadline| turn >= deadline) {
            state.full_again = before;
            return (Duration::ZERO, false);
        }
        loop {
            let now = Instant::now();
            if state.stopped || now >= turn {
                return (now.duration_since(start), !state.stopped);
            }
            state = self
                .stopped
                .wait_timeout(state, turn.duration_since(now))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    pub(crate) fn stop(&self) {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stopped = true;
        self.stopped.notify_all();
    }

    /// Takes one token. None when the call may go at once.
    fn reserve(&self, state: &mut State, now: Instant) -> Option<Instant> {
        if self.interval.is_zero() {
            return None;
        }
        let full_again = state.full_again.map_or(now, |instant| instant.max(now));
        state.full_again = full_again.checked_add(self.interval);
        let turn = full_again.checked_sub(self.tolerance)?;
        (turn > now).then_some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(pace: &Pace, now: Instant) -> Duration {
        let mut state = pace.state.lock().unwrap();
        pace.reserve(&mut state, now)
            .map_or(Duration::ZERO, |turn| turn.duration_since(now))
    }

    #[test]
    fn a_burst_goes_at_once_and_then_the_rate_holds() {
        let pace = Pace::per_second(5.0, 3);
        let now = Instant::now();
        let waits: Vec<u128> = (0..5).map(|_| reserved(&pace, now).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 200, 400]);
        let later = now + Duration::from_secs(60);
        assert_eq!(
            reserved(&pace, later),
            Duration::ZERO,
            "the bucket is full again"
        );
    }

    #[test]
    fn zero_means_no_limit() {
        for qps in [0.0, -1.0, f64::NAN] {
            let pace = Pace::per_second(qps, 0);
            for _ in 0..1000 {
                assert_eq!(pace.wait(), (Duration::ZERO, true));
            }
        }
    }

    #[test]
    fn a_turn_after_the_deadline_is_not_taken() {
        let pace = Pace::every(Duration::from_secs(60), 1);
        let soon = Instant::now() + Duration::from_secs(1);
        assert!(pace.wait_until(soon));
        assert!(!pace.wait_until(soon));
        let (mut state, now) = (pace.state.lock().unwrap(), Instant::now());
        let turn = pace.reserve(&mut state, now).unwrap();
        assert!(turn.duration_since(now) <= Duration::from_secs(60));
    }

    #[test]
    fn stop_wakes_a_sleeper() {
        let pace = Pace::per_second(0.001, 1);
        assert!(pace.wait().1);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| pace.wait());
            pace.stop();
            assert!(!sleeper.join().unwrap().1);
        });
    }
}
