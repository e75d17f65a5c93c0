//! Turns: how many reviews are decided at one time, and who is next.
//!
//! A connection thread that has read a review takes a turn, decides on its own thread and gives the turn back; handing the work to
//! another thread would cost two wake-ups for each review. Turns are given in the order in which they were asked for, so nobody is
//! overtaken until it is too late. One lock, held for a few instructions; waiting is done outside of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::runner::seconds;

/// How many may wait, for each turn there is. What is beyond is refused at once: it would only wait to be too late.
const WAITING_PER_TURN: usize = 16;

/// All turns of a server.
pub(crate) struct Turns {
    state: Mutex<State>,
    waiting_limit: usize,
}

/// INVARIANT: somebody waits only while no turn is free.
struct State {
    free: usize,
    waiting: VecDeque<Arc<Waiting>>,
}

/// A thread that waits for its turn.
struct Waiting {
    thread: Thread,
    /// Set, under the lock, by whoever hands over a turn.
    is_called: AtomicBool,
}

/// The right to decide one review. Dropping it passes it on.
pub(crate) struct Turn {
    turns: Arc<Turns>,
}

/// Why there is no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// More wait than can be served in time.
    Full,
    /// The deadline passed.
    Late,
}

impl Refused {
    /// What is told to whoever waited, at most for `limit`.
    pub(crate) fn reason(self, limit: Duration) -> String {
        match self {
            Refused::Full => "too many requests are waiting; try again".to_owned(),
            Refused::Late => format!("no answer within {}", seconds(limit)),
        }
    }
}

impl Turns {
    pub(crate) fn new(limit: usize) -> Arc<Turns> {
        let limit = limit.max(1);
        Arc::new(Turns {
            state: Mutex::new(State {
                free: limit,
                waiting: VecDeque::new(),
            }),
            waiting_limit: limit.saturating_mul(WAITING_PER_TURN),
        })
    }

    /// Waits for a turn, at most until the deadline.
    pub(crate) fn take(self: &Arc<Self>, deadline: Instant) -> Result<Turn, Refused> {
        let own = {
            let mut state = self.state();
            if state.free > 0 {
                state.free -= 1;
                return Ok(self.turn());
            }
            if state.waiting.len() >= self.waiting_limit {
                return Err(Refused::Full);
            }
            let own = Arc::new(Waiting {
                thread: std::thread::current(),
                is_called: AtomicBool::new(false),
            });
            state.waiting.push_back(Arc::clone(&own));
            own
        };
        while !own.is_called.load(Ordering::Acquire) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.give_up(&own);
            }
            // Also returns without any reason, which is what the loop is for.
            std::thread::park_timeout(left);
        }
        Ok(self.turn())
    }

    fn turn(self: &Arc<Self>) -> Turn {
        Turn {
            turns: Arc::clone(self),
        }
    }

    /// The deadline passed. A turn that was handed over in the last moment goes to the next one.
    fn give_up(&self, own: &Arc<Waiting>) -> Result<Turn, Refused> {
        let mut state = self.state();
        if own.is_called.load(Ordering::Acquire) {
            state.pass_on();
        } else {
            state.waiting.retain(|waiting| !Arc::ptr_eq(waiting, own));
        }
        Err(Refused::Late)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn pass_on(&mut self) {
        match self.waiting.pop_front() {
            Some(next) => {
                next.is_called.store(true, Ordering::Release);
                next.thread.unpark();
            }
            None => self.free += 1,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.state().pass_on();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn never_more_at_a_time_than_there_are_turns_and_everybody_gets_one() {
        let turns = Turns::new(4);
        let (at_once, most, served) = (
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        );
        std::thread::scope(|scope| {
            for _ in 0..60 {
                scope.spawn(|| {
                    let _turn = turns.take(soon()).ok().unwrap();
                    let now = at_once.fetch_add(1, Ordering::AcqRel) + 1;
                    most.fetch_max(now, Ordering::AcqRel);
                    std::thread::yield_now();
                    at_once.fetch_sub(1, Ordering::AcqRel);
                    served.fetch_add(1, Ordering::AcqRel);
                });
            }
        });
        assert_eq!(served.load(Ordering::Acquire), 60);
        assert!(most.load(Ordering::Acquire) <= 4);
        assert_eq!(turns.state().free, 4);
    }

    #[test]
    fn whoever_waits_too_long_is_refused_and_keeps_nobody_waiting() {
        let turns = Turns::new(1);
        let first = turns.take(soon()).ok().unwrap();
        let late = turns.take(Instant::now() + Duration::from_millis(30));
        assert_eq!(late.err(), Some(Refused::Late));
        assert!(turns.state().waiting.is_empty());
        drop(first);
        assert!(turns.take(soon()).is_ok());
        assert!(turns.take(soon()).is_ok());
    }

    #[test]
    fn turns_are_given_in_the_order_they_were_asked_for() {
        let turns = Turns::new(1);
        let order = Mutex::new(Vec::new());
        let first = turns.take(soon()).ok().unwrap();
        std::thread::scope(|scope| {
            let (turns, order) = (&turns, &order);
            for number in 0..5 {
                scope.spawn(move || {
                    let _turn = turns.take(soon()).ok().unwrap();
                    order.lock().unwrap().push(number);
                });
                while turns.state().waiting.len() <= number {
                    std::thread::yield_now();
                }
            }
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_could_only_be_late_is_refused_at_once() {
        let turns = Turns::new(1);
        let first = turns.take(soon()).ok().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..WAITING_PER_TURN {
                scope.spawn(|| turns.take(soon()).is_ok());
            }
            while turns.state().waiting.len() < WAITING_PER_TURN {
                std::thread::yield_now();
            }
            assert_eq!(turns.take(soon()).err(), Some(Refused::Full));
            drop(first);
        });
    }

    #[test]
    fn a_panic_gives_the_turn_back() {
        let turns = Turns::new(1);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _turn = turns.take(soon()).ok().unwrap();
            panic!("boom");
        }));
        assert!(ended.is_err());
        assert!(turns.take(soon()).is_ok());
    }
}
