//! Notices that a hook or a suite has changed: looks at the times and sizes of all files around them once a second.
//!
//! Runs on the main thread between two rounds of tests. Looking again and again works on every file system and in every container,
//! where notifications of changes do not always arrive; a few hundred files cost next to nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::parallel::Interrupted;
use crate::message::Signal;

const EVERY: Duration = Duration::from_secs(1);
/// LIMIT: files that are looked at; a directory with more is no directory of hooks.
const MOST_FILES: usize = 10_000;

/// What files looked like at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Look(BTreeMap<PathBuf, (Option<SystemTime>, u64)>);

impl Look {
    /// Looks at everything below these paths, libraries of hooks too.
    pub(super) fn at(paths: &[PathBuf]) -> Look {
        let mut look = Look::default();
        for path in paths {
            look.add(path);
        }
        look
    }

    fn add(&mut self, path: &Path) {
        if self.0.len() >= MOST_FILES {
            return;
        }
        let Ok(status) = path.metadata() else {
            return;
        };
        if !status.is_dir() {
            self.0
                .insert(path.to_owned(), (status.modified().ok(), status.len()));
            return;
        }
        // A link in a circle would lead on for ever.
        if path.is_symlink() && !self.0.is_empty() {
            return;
        }
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            if !entry.file_name().as_bytes().starts_with(b".") {
                self.add(&entry.path());
            }
        }
    }
}

/// Waits until something differs from `before`.
pub(super) fn wait(
    paths: &[PathBuf],
    before: &Look,
    signals: &Receiver<Signal>,
) -> Result<(), Interrupted> {
    loop {
        match signals.recv_timeout(EVERY) {
            Ok(Signal::Reload) => return Ok(()),
            Ok(Signal::Stop) => return Err(Interrupted),
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody can ask to stop any more.
            Err(RecvTimeoutError::Disconnected) => return Err(Interrupted),
        }
        if Look::at(paths) != *before {
            return Ok(());
        }
    }
}
