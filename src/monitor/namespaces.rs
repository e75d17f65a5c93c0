//! Follows the namespaces that a label selector matches, for all bindings with that selector.
//!
//! Runs on the thread of the namespace watch. A namespace that begins to match gets watches, whose objects enter the snapshots
//! without events; one that stops matching or is deleted loses them the same way.

use std::collections::BTreeSet;
use std::sync::Arc;

use log::error;

use super::binding::{Feed, Monitor};
use super::writer::count_error;
use super::{Shared, Wanted};
use crate::kube::{Difference, Error, Object, Sink};

pub(super) struct Follower {
    shared: Arc<Shared>,
    feed: Feed,
    wanted: Vec<Wanted>,
    known: BTreeSet<String>,
    /// Namespaces that the list in progress has not shown yet.
    unseen: BTreeSet<String>,
    feeds: Vec<(String, Feed)>,
}

impl Follower {
    pub(super) fn new(shared: Arc<Shared>, feed: Feed, wanted: Vec<Wanted>) -> Follower {
        Follower {
            shared,
            feed,
            wanted,
            known: BTreeSet::new(),
            unseen: BTreeSet::new(),
            feeds: Vec::new(),
        }
    }

    fn enter(&mut self, name: &str) {
        if !self.known.insert(name.to_owned()) {
            return;
        }
        let batch = self
            .wanted
            .iter()
            .map(|wanted| (wanted, Some(name)))
            .collect();
        match self.shared.start_watches(batch, Some(name)) {
            Ok(feeds) => {
                let named = feeds.into_iter().map(|feed| (name.to_owned(), feed));
                self.feeds.extend(named);
            }
            Err(error) => {
                error!("namespace {name} is not watched yet: {error}");
                // Forgotten, so that its next change or the next list tries again; a snapshot without it must not look complete.
                self.leave(name);
            }
        }
    }

    fn leave(&mut self, name: &str) {
        if !self.known.remove(name) {
            return;
        }
        for monitor in self.monitors() {
            monitor.leave_namespace(name);
        }
        self.feeds.retain(|(namespace, feed)| {
            let stays = namespace != name;
            if !stays {
                feed.stop();
            }
            stays
        });
    }

    fn monitors(&self) -> impl Iterator<Item = &Arc<Monitor>> {
        self.wanted.iter().map(|wanted| &wanted.monitor)
    }
}

impl Sink for Follower {
    fn wanted(&self) -> bool {
        true
    }

    fn begin(&mut self) {
        self.unseen = self.known.clone();
    }

    fn item(&mut self, object: &Object<'_>) {
        self.unseen.remove(&*object.name);
        self.enter(&object.name);
    }

    fn end_of_list(&mut self) {
        for name in std::mem::take(&mut self.unseen) {
            self.leave(&name);
        }
        self.feed.progress.listed();
    }

    fn changed(&mut self, difference: Difference, object: &Object<'_>) {
        match difference {
            Difference::Put => self.enter(&object.name),
            Difference::Deleted => self.leave(&object.name),
        }
    }

    fn failed(&mut self, error: &Error) {
        count_error(&self.shared.metrics, error);
        self.feed.progress.failed(|| error.to_string());
    }
}
