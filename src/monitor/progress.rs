//! How far the first list of a watch has come, for those who wait for it.
//!
//! Written by the watch's thread, waited for by the queue thread that enables a hook. The lock is held by nobody who calls.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(super) struct Progress {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Listing,
    /// The first list is complete. This lasts, whatever happens to the watch later.
    Listed,
    /// The last attempt at the first list failed; it is tried again.
    Failed(String),
    /// Nobody needs the watch any more.
    Stopped,
}

impl Progress {
    pub(super) fn listed(&self) {
        self.change(|stage| {
            if *stage != Stage::Stopped {
                *stage = Stage::Listed;
            }
        });
    }

    pub(super) fn failed(&self, reason: impl FnOnce() -> String) {
        self.change(|stage| {
            if matches!(stage, Stage::Listing | Stage::Failed(_)) {
                *stage = Stage::Failed(reason());
            }
        });
    }

    /// Forgets a failure, since someone is going to wait for the next attempt. True if there was one.
    pub(super) fn try_again(&self) -> bool {
        let mut stage = self.locked();
        let failed = matches!(*stage, Stage::Failed(_));
        if failed {
            *stage = Stage::Listing;
        }
        failed
    }

    pub(super) fn stop(&self) {
        self.change(|stage| *stage = Stage::Stopped);
    }

    /// Waits until the list is complete, fails or is not needed any more.
    pub(super) fn wait(&self) -> Stage {
        let mut stage = self.locked();
        while *stage == Stage::Listing {
            stage = self
                .changed
                .wait(stage)
                .unwrap_or_else(PoisonError::into_inner);
        }
        stage.clone()
    }

    fn change(&self, change: impl FnOnce(&mut Stage)) {
        change(&mut self.locked());
        self.changed.notify_all();
    }

    fn locked(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_and_waited_through_after_that() {
        let progress = Progress::default();
        progress.failed(|| "no".to_owned());
        assert_eq!(progress.wait(), Stage::Failed("no".to_owned()));
        assert!(progress.try_again());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| progress.wait());
            progress.listed();
            assert_eq!(waiter.join().unwrap(), Stage::Listed);
        });
        progress.failed(|| "later".to_owned());
        assert!(!progress.try_again());
        assert_eq!(progress.wait(), Stage::Listed);
        progress.stop();
        progress.listed();
        assert_eq!(progress.wait(), Stage::Stopped);
    }
}
