//! The places of a server: who is connected, how many at most, and who has to go when all places are taken.
//!
//! Whoever connects needs no permission to be silent, so silent connections must not keep others out: when the last place is taken,
//! the one that has waited longest without being served makes room. A connection whose request is being served is never evicted. The
//! accept thread takes places, connection threads say what they are doing; both hold a lock only for a few instructions.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::Shutdown;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::Counts;
use super::wire::Wire;

/// How long the accept thread waits for a connection that was evicted to be gone. Its thread has to wake up and to close one socket,
/// which is done within a millisecond unless the machine is very busy.
const LEAVING_TIME: Duration = Duration::from_millis(200);

/// All places of a server.
pub(super) struct Places {
    limit: usize,
    counts: Arc<Counts>,
    taken: Mutex<BTreeMap<u64, Arc<Guest>>>,
    /// Told whenever a place is free again.
    left: Condvar,
}

/// A connection, as the accept thread sees it.
struct Guest {
    wire: Arc<Wire>,
    stay: Mutex<Stay>,
}

struct Stay {
    phase: Phase,
    since: Instant,
    is_evicted: bool,
}

/// What a connection is doing. In the order in which they make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Nothing complete was ever heard from it, or it is being closed: it may be anybody.
    Unheard,
    /// Between two requests. Callers have to expect that such a connection is closed.
    Idle,
    /// A further request is arriving, at the caller's pace.
    Receiving,
    /// A complete request is being answered.
    Serving,
}

/// The place of one connection. Dropped when its thread ends, however it ends.
pub(super) struct Place {
    number: u64,
    guest: Arc<Guest>,
    places: Arc<Places>,
    _alive: Sender<Infallible>,
}

/// The connection was chosen to make room for another.
pub(super) struct Evicted;

impl Places {
    pub(super) fn new(limit: usize, counts: Arc<Counts>) -> Arc<Places> {
        Arc::new(Places {
            limit,
            counts,
            taken: Mutex::default(),
            left: Condvar::new(),
        })
    }

    /// A place for a new connection, made by evicting another if there is none. Nothing when every connection is being served.
    /// Called by the accept thread only, so the limit can not be overrun.
    pub(super) fn take(
        self: &Arc<Self>,
        number: u64,
        wire: &Arc<Wire>,
        alive: &Sender<Infallible>,
    ) -> Option<Place> {
        if self.taken().len() >= self.limit && !self.make_room() {
            return None;
        }
        let guest = Arc::new(Guest {
            wire: Arc::clone(wire),
            stay: Mutex::new(Stay {
                phase: Phase::Unheard,
                since: Instant::now(),
                is_evicted: false,
            }),
        });
        self.counts.open.fetch_add(1, Ordering::AcqRel);
        self.taken().insert(number, Arc::clone(&guest));
        Some(Place {
            number,
            guest,
            places: Arc::clone(self),
            _alive: alive.clone(),
        })
    }

    /// Evicts one connection and waits until its thread is gone.
    fn make_room(&self) -> bool {
        let Some(guest) = self.choose() else {
            return false;
        };
        self.counts.evicted.fetch_add(1, Ordering::Relaxed);
        // Its thread waits on this socket and finds it closed. An error means that it is closed already.
        let _ = guest.wire.shutdown(Shutdown::Both);
        let (taken, _) = self
            .left
            .wait_timeout_while(self.taken(), LEAVING_TIME, |taken| {
                taken.len() >= self.limit
            })
            .unwrap_or_else(PoisonError::into_inner);
        taken.len() < self.limit
    }

    /// The connection that goes first. It is not served from here on, whatever it sends.
    fn choose(&self) -> Option<Arc<Guest>> {
        let guests: Vec<Arc<Guest>> = self.taken().values().map(Arc::clone).collect();
        loop {
            let standing = |guest: &&Arc<Guest>| {
                let stay = guest.stay();
                (!stay.is_evicted && stay.phase != Phase::Serving)
                    .then_some((stay.phase, stay.since))
            };
            let (_, first) = guests
                .iter()
                .filter_map(|guest| standing(&guest).map(|key| (key, guest)))
                .min_by_key(|(key, _)| *key)?;
            let mut stay = first.stay();
            // Its request may have become complete since it was looked at.
            if stay.phase != Phase::Serving {
                stay.is_evicted = true;
                return Some(Arc::clone(first));
            }
        }
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Guest>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Guest {
    fn stay(&self) -> MutexGuard<'_, Stay> {
        self.stay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Says what the connection is doing from now on. A connection that was evicted must end.
    pub(super) fn enter(&self, phase: Phase) -> Result<(), Evicted> {
        let mut stay = self.guest.stay();
        if stay.is_evicted {
            return Err(Evicted);
        }
        // A first request counts when it is complete: a connection that sends a byte is no better than a silent one.
        if stay.phase == Phase::Unheard && phase == Phase::Receiving {
            return Ok(());
        }
        stay.phase = phase;
        stay.since = Instant::now();
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().remove(&self.number);
        self.places.counts.open.fetch_sub(1, Ordering::AcqRel);
        self.places.left.notify_one();
    }
}
