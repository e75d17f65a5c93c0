//! An API server that cannot be reached, as all watches of it see it together.
//!
//! Every watch notices the outage by its own failed attempt. The first of them probes for all, at a short and steady pace; the
//! others wait here. When the server answers again they go on within a moment, but not in the same instant, so that fifty
//! watches neither storm a server that starts nor wait out a pause that had grown meanwhile. Runs on the watches' threads; the
//! lock is held by nobody who sleeps or calls.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::backoff::{Backoff, Rest, Tempo, part_of};

/// How often those who wait look if they are still wanted.
const GLANCE: Duration = Duration::from_millis(250);

#[derive(Debug, Default)]
pub(super) struct Outage {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Someone probes.
    away: bool,
    returned: Option<Instant>,
}

impl Outage {
    /// Returns when the server answers again, or when `rest` is stopped. `probe` says if it answers.
    pub(super) fn wait(&self, rest: &Rest, tempo: &Tempo, probe: &dyn Fn() -> bool) {
        while !rest.is_stopped() {
            if self.becomes_prober() {
                let back = probe_until_back(rest, tempo, probe);
                self.probing_ended(back);
            } else {
                self.wait_for_prober(rest);
            }
            if !self.is_away() {
                rest.sleep(part_of(tempo.spread));
                return;
            }
        }
    }

    /// True for a while after the server came back.
    pub(super) fn is_settling(&self, tempo: &Tempo) -> bool {
        let returned = self.locked().returned;
        returned.is_some_and(|instant| instant.elapsed() < tempo.settling)
    }

    fn becomes_prober(&self) -> bool {
        !std::mem::replace(&mut self.locked().away, true)
    }

    /// A prober that was stopped hands over: the next one who looks up goes on.
    fn probing_ended(&self, back: bool) {
        let mut state = self.locked();
        state.away = false;
        if back {
            state.returned = Some(Instant::now());
        }
        drop(state);
        self.changed.notify_all();
    }

    fn wait_for_prober(&self, rest: &Rest) {
        let mut state = self.locked();
        while state.away && !rest.is_stopped() {
            state = self
                .changed
                .wait_timeout(state, GLANCE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn is_away(&self) -> bool {
        self.locked().away
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn probe_until_back(rest: &Rest, tempo: &Tempo, probe: &dyn Fn() -> bool) -> bool {
    let mut backoff = Backoff::new(tempo.first_probe, tempo.longest_probe);
    loop {
        rest.sleep(backoff.pause());
        if rest.is_stopped() {
            return false;
        }
        if probe() {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn tempo() -> Tempo {
        Tempo {
            first_probe: Duration::from_millis(5),
            longest_probe: Duration::from_millis(20),
            spread: Duration::from_millis(20),
            ..Tempo::default()
        }
    }

    #[test]
    fn one_probes_for_all_and_all_go_on() {
        let outage = Outage::default();
        let (probes, at_once, most) = <(AtomicUsize, AtomicUsize, AtomicUsize)>::default();
        let probe = || {
            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let number = probes.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            at_once.fetch_sub(1, Ordering::SeqCst);
            number >= 5
        };
        std::thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| outage.wait(&Rest::default(), &tempo(), &probe));
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 1, "never two probes at a time");
        assert!(outage.is_settling(&tempo()));
    }

    #[test]
    fn a_prober_that_is_stopped_hands_over() {
        let outage = Outage::default();
        let (stopped, other) = (Rest::default(), Rest::default());
        let (probing, probed) = std::sync::mpsc::channel();
        let back = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                outage.wait(&stopped, &tempo(), &|| {
                    let _ = probing.send(());
                    false
                });
            });
            probed.recv().unwrap();
            let waiter = scope.spawn(|| {
                outage.wait(&other, &tempo(), &|| back.load(Ordering::SeqCst));
            });
            stopped.stop();
            back.store(true, Ordering::SeqCst);
            waiter.join().unwrap();
        });
    }
}
