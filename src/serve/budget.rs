//! A common bound on memory that many connections fill: the request bodies being read or served at one time.
//!
//! The limit per body does not bound their sum, and callers need no permission to send one. Shared by all connection threads
//! of a server; an atomic counter, no lock. It allocates nothing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::http::Refusal;

pub(super) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

/// What one request has taken from the budget; dropping it gives it back.
pub(super) struct Reservation {
    budget: Arc<Budget>,
    held: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Arc<Budget> {
        Arc::new(Budget {
            used: AtomicUsize::new(0),
            limit,
        })
    }

    pub(super) fn reserve(self: &Arc<Self>) -> Reservation {
        Reservation {
            budget: Arc::clone(self),
            held: 0,
        }
    }
}

impl Reservation {
    /// Makes this reservation cover `size` bytes, or says that all of them together are too many.
    pub(super) fn grow_to(&mut self, size: usize) -> Result<(), Refusal> {
        let more = size.saturating_sub(self.held);
        let before = self.budget.used.fetch_add(more, Ordering::Relaxed);
        if before.saturating_add(more) > self.budget.limit {
            // Given back at once: a refused body must not make its neighbours fail, too.
            self.budget.used.fetch_sub(more, Ordering::Relaxed);
            return Err(Refusal::TooManyBodies);
        }
        self.held = self.held.saturating_add(more);
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_bounded_and_given_back() {
        let budget = Budget::new(100);
        let mut first = budget.reserve();
        let mut second = budget.reserve();
        assert_eq!(first.grow_to(60), Ok(()));
        assert_eq!(first.grow_to(50), Ok(()));
        assert_eq!(second.grow_to(41), Err(Refusal::TooManyBodies));
        drop(second);
        drop(first);
        assert_eq!(budget.reserve().grow_to(100), Ok(()));
    }
}
