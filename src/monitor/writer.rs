//! Turns what a watch sees into writes to its store, and these into events.
//!
//! Runs on the watch's thread and is the store's only writer. The store is written before an event is sent; sending waits when
//! the main loop is busy, and no lock is held meanwhile. Filters run here, once per object and binding, and not at all for an
//! object whose text is the known one.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;

use super::binding::Monitor;
use super::progress::Progress;
use super::store::{Body, FirstList, Key, Outcome, Results, Store};
use crate::jq::Input;
use crate::kube::{Difference, Error, Fault, Object, Sink};
use crate::message::Event;
use crate::metrics::Metrics;

pub(super) struct Writer {
    store: Arc<Store>,
    /// In the order of the store's views.
    monitors: Vec<Arc<Monitor>>,
    progress: Arc<Progress>,
    events: Sender<Event>,
    metrics: Arc<Metrics>,
    /// Someone wants full objects.
    keeps_text: bool,
    checksum: RandomState,
    /// Objects that the list in progress has not shown yet.
    unseen: HashSet<Key>,
    /// Until the first list is complete, which nobody can see before that.
    first: Option<FirstList>,
    /// The main loop is gone.
    orphaned: bool,
    /// The text of the key at hand, kept so that looking up costs no memory.
    key: String,
}

impl Writer {
    pub(super) fn new(
        store: Arc<Store>,
        monitors: Vec<Arc<Monitor>>,
        progress: Arc<Progress>,
        events: Sender<Event>,
        metrics: Arc<Metrics>,
    ) -> Writer {
        let keeps_text = monitors.iter().any(|monitor| monitor.wishes().full_objects);
        Writer {
            store,
            monitors,
            progress,
            events,
            metrics,
            keeps_text,
            checksum: RandomState::new(),
            unseen: HashSet::new(),
            first: Some(FirstList::default()),
            orphaned: false,
            key: String::new(),
        }
    }

    fn put(&mut self, object: &Object<'_>) {
        let text = &*object.text;
        let checksum = || self.checksum.hash_one(text);
        if self.store.has_same(&self.key, text, checksum) {
            return;
        }
        let results = self.filter(object);
        let outcome = self.store.put(&self.key, self.body(text), results);
        self.tell(outcome);
    }

    fn delete(&mut self, object: &Object<'_>) {
        // The end of an object that is not known was told before, by a list.
        if !self.store.has(&self.key) {
            return;
        }
        let results = self.filter(object);
        let last = (self.body(&object.text), results);
        let outcome = self.store.remove(&self.key, Some(last));
        self.tell(outcome);
    }

    fn body(&self, text: &[u8]) -> Body {
        if self.keeps_text {
            Body::Text(text.into())
        } else {
            Body::Checksum(self.checksum.hash_one(text))
        }
    }

    /// Applies every filter to the object, which is read once for all of them.
    fn filter(&self, object: &Object<'_>) -> Results {
        let mut input = None;
        let mut results = Vec::with_capacity(self.monitors.len());
        for monitor in &self.monitors {
            let Some(filter) = &monitor.filter else {
                results.push(None);
                continue;
            };
            let start = Instant::now();
            let input = input.get_or_insert_with(|| Input::read(&object.text));
            let result = match input {
                Ok(input) => filter
                    .apply_to(input)
                    .map(|value| value.to_string().into_bytes().into())
                    .map_err(|error| monitor.filter_error(&error)),
                Err(error) => Err(monitor.filter_error(error)),
            };
            monitor.filter_took(start.elapsed().as_secs_f64());
            results.push(Some(result));
        }
        results
    }

    fn tell(&mut self, outcome: Outcome) {
        for view in outcome.counts {
            if let Some(monitor) = self.monitors.get(view) {
                monitor.show_objects();
            }
        }
        for (view, reason) in outcome.errors {
            if let Some(monitor) = self.monitors.get(view) {
                monitor.filter_failed(&reason);
            }
        }
        for event in outcome.events {
            if self.events.send(event).is_err() {
                self.orphaned = true;
            }
        }
    }
}

impl Sink for Writer {
    fn wanted(&self) -> bool {
        !self.orphaned
    }

    fn begin(&mut self) {
        match &mut self.first {
            Some(first) => *first = FirstList::new(self.monitors.len()),
            None => self.unseen = self.store.keys().into_iter().collect(),
        }
    }

    fn item(&mut self, object: &Object<'_>) {
        Key::write(&mut self.key, &object.namespace, &object.name);
        if self.first.is_some() {
            let (body, results) = (self.body(&object.text), self.filter(object));
            if let Some(first) = &mut self.first {
                first.add(&self.key, body, results);
            }
            return;
        }
        self.unseen.remove(self.key.as_str());
        self.put(object);
    }

    fn end_of_list(&mut self) {
        let mut gone: Vec<Key> = std::mem::take(&mut self.unseen).into_iter().collect();
        gone.sort_unstable();
        for key in gone {
            let outcome = self.store.remove(key.text(), None);
            self.tell(outcome);
        }
        if let Some(first) = self.first.take() {
            self.store.fill(first);
            for (view, monitor) in self.monitors.iter().enumerate() {
                monitor.complete(&self.store, view);
            }
            self.progress.listed();
        }
    }

    fn changed(&mut self, difference: Difference, object: &Object<'_>) {
        let start = Instant::now();
        Key::write(&mut self.key, &object.namespace, &object.name);
        match difference {
            Difference::Put => self.put(object),
            Difference::Deleted => self.delete(object),
        }
        let seconds = start.elapsed().as_secs_f64();
        for monitor in &self.monitors {
            monitor.event_took(seconds);
        }
    }

    fn failed(&mut self, error: &Error) {
        count_error(&self.metrics, error);
        self.progress.failed(|| error.to_string());
    }
}

/// Counts by the kinds of the original.
pub(super) fn count_error(metrics: &Metrics, error: &Error) {
    let kind = match error {
        error if error.is_gone() => "expired",
        Error::Transport {
            fault: Fault::Closed,
            ..
        } => "eof",
        Error::Transport {
            fault: Fault::Cut { .. },
            ..
        } => "unexpected-eof",
        _ => "fail",
    };
    metrics.add(
        "kubernetes_client_watch_errors_total",
        &[("error_type", kind)],
        1.0,
    );
}
