//! The same work for many things, on as many threads as there are cores, with the results in the order of the things.
//!
//! Called on the main thread, which waits for the results and hears signals meanwhile. A thing whose work panicked has no result, so
//! that the caller sees it as one that was not done.

use std::sync::Arc;

use crossbeam_channel::{Receiver, bounded, never, select, unbounded};

use crate::message::Signal;
use crate::threads;

/// LIMIT: stack of a worker. jq filters run on it, which is what other threads with filters have.
const STACK: usize = 2 * 1024 * 1024;
/// LIMIT: workers when the system does not say how many cores there are.
const UNKNOWN_CORES: usize = 2;

/// Somebody asked to stop.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interrupted;

/// `results[i]` is what `work` made of `things[i]`; none if it panicked or no thread could be made.
pub(super) fn each<T, R>(
    things: Vec<T>,
    signals: &Receiver<Signal>,
    work: impl Fn(T) -> R + Send + Sync + 'static,
) -> Result<Vec<Option<R>>, Interrupted>
where
    T: Send + 'static,
    R: Send + 'static,
{
    let count = things.len();
    let cores = std::thread::available_parallelism().map_or(UNKNOWN_CORES, usize::from);
    let (give, take) = unbounded();
    for thing in things.into_iter().enumerate() {
        // The receiver is at hand, so that this cannot fail.
        let _ = give.send(thing);
    }
    drop(give);
    let (done, results) = bounded(count.max(1));
    let work = Arc::new(work);
    for _ in 0..cores.min(count) {
        let (take, done, work) = (take.clone(), done.clone(), Arc::clone(&work));
        let body = move || {
            for (index, thing) in take {
                let _ = done.send((index, work(thing)));
            }
        };
        // With fewer threads it only takes longer; with none there are no results.
        let _ = threads::spawn_short("test", STACK, body);
    }
    // The last worker closes the channel.
    drop((done, take));
    let mut collected: Vec<Option<R>> = (0..count).map(|_| None).collect();
    let mut signals = signals.clone();
    loop {
        select! {
            recv(results) -> result => match result {
                Ok((index, result)) => {
                    if let Some(place) = collected.get_mut(index) {
                        *place = Some(result);
                    }
                }
                Err(_) => return Ok(collected),
            },
            recv(signals) -> signal => match signal {
                Ok(Signal::Stop) => return Err(Interrupted),
                Ok(Signal::Reload) => {}
                Err(_) => signals = never(),
            },
        }
    }
}
