//! A value that one thread renews while the others wait for it.
//!
//! Used where making the value is slow and must not happen many times at once: an `exec` plugin, a discovery. The lock is not
//! held while the value is made. A failure is returned to the thread that tried; a thread that waited then tries itself.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

pub(super) struct Renewed<T> {
    state: Mutex<State<T>>,
    idle: Condvar,
}

struct State<T> {
    current: Option<Made<T>>,
    busy: bool,
}

/// A value and the moment at which making it began.
pub(super) struct Made<T> {
    pub(super) value: Arc<T>,
    pub(super) since: Instant,
}

impl<T> Clone for Made<T> {
    fn clone(&self) -> Self {
        Made {
            value: Arc::clone(&self.value),
            since: self.since,
        }
    }
}

impl<T> Renewed<T> {
    pub(super) fn new() -> Renewed<T> {
        Renewed {
            state: Mutex::new(State {
                current: None,
                busy: false,
            }),
            idle: Condvar::new(),
        }
    }

    pub(super) fn current(&self) -> Option<Made<T>> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .current
            .clone()
    }

    /// Makes a value newer than `seen`, unless another thread has done so or is doing so.
    pub(super) fn renew<E>(
        &self,
        seen: Option<Instant>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Made<T>, E> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(current) = state
                .current
                .as_ref()
                .filter(|current| seen.is_none_or(|seen| current.since > seen))
            {
                return Ok(current.clone());
            }
            if !state.busy {
                break;
            }
            state = self
                .idle
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.busy = true;
        drop(state);
        // The turn ends also when `make` panics, or the others would wait for ever.
        let turn = Turn(self);
        let since = Instant::now();
        let made = Made {
            value: Arc::new(make()?),
            since,
        };
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .current = Some(made.clone());
        drop(turn);
        Ok(made)
    }
}

struct Turn<'a, T>(&'a Renewed<T>);

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.0
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .busy = false;
        self.0.idle.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn many_threads_make_one_value() {
        let renewed = Renewed::new();
        let made = AtomicUsize::new(0);
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let value =
                        renewed.renew(None, || Ok::<_, ()>(made.fetch_add(1, Ordering::SeqCst)));
                    assert_eq!(*value.unwrap().value, 0);
                });
            }
        });
        let seen = renewed.current().unwrap().since;
        let newer = renewed.renew(Some(seen), || Ok::<_, ()>(7)).unwrap();
        assert_eq!(*newer.value, 7);
    }

    #[test]
    fn a_failure_leaves_the_old_value_and_the_turn_free() {
        let renewed = Renewed::new();
        renewed.renew(None, || Ok::<_, &str>(1)).unwrap();
        let seen = renewed.current().unwrap().since;
        assert_eq!(renewed.renew(Some(seen), || Err("no")).err(), Some("no"));
        assert_eq!(*renewed.current().unwrap().value, 1);
        let again = renewed.renew(Some(seen), || Ok::<_, &str>(2));
        assert_eq!(*again.unwrap().value, 2);
    }
}
