//! A steady stream of requests through the API server, for changes that must not cost a single one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::support::stage::config_map;
use crate::support::{SOON, Stage, wait_for};

/// Callers at the same time, each on a connection of its own to the API server.
const CALLERS: usize = 4;
/// Between two requests of one caller. Enough for the number that is asked for, without taking the machine from other tests.
const PACE: Duration = Duration::from_millis(15);
/// The requirement: at least as many requests are sent.
const ENOUGH: usize = 500;

/// What has come back so far.
#[derive(Default)]
struct Tally {
    sent: AtomicUsize,
    failed: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

/// Ends the callers also when `change` panics: the scope would wait for them for ever.
struct Over<'a>(&'a Tally);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

/// Creates ConfigMaps without storing them, while `change` does what it does; insists that enough were sent and that none failed.
#[track_caller]
pub(super) fn nothing_fails_while(stage: &Stage<'_>, change: impl FnOnce()) {
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| call(stage, &tally));
        }
        let over = Over(&tally);
        change();
        wait_for("enough requests to be sent", SOON, || {
            tally.sent.load(Ordering::Acquire) >= ENOUGH
        });
        drop(over);
    });
    let failed = tally.failed.into_inner().unwrap();
    let sent = tally.sent.into_inner();
    assert!(
        failed.is_empty(),
        "{} of {sent} failed: {:#?}",
        failed.len(),
        failed.iter().take(5).collect::<Vec<_>>()
    );
}

fn call(stage: &Stage<'_>, tally: &Tally) {
    let api = stage.namespace.plane.api();
    let path = format!("{}?dryRun=All", stage.config_maps());
    let object = config_map("load", &json!({}));
    while !tally.is_over.load(Ordering::Acquire) {
        let answer = api.create(&path, &object);
        tally.sent.fetch_add(1, Ordering::AcqRel);
        if answer.status != 201 {
            tally.failed.lock().unwrap().push(answer.text());
        }
        std::thread::sleep(PACE);
    }
}
