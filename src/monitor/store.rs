//! The objects of one watch, and what each binding that shares it sees of them.
//!
//! One writer (the watch's thread, see `writer`), many readers (queues and reviews that need a snapshot). An object's text is
//! kept once however many bindings share the watch, and only if one of them wants full objects; otherwise a checksum of it. A
//! binding with a jqFilter has its result for every object besides. Nothing is copied for an event but what it tells about one
//! object; a snapshot copies pointers. The lock is never held across a filter, a send or a call into another room.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::gate::{Gate, Phase};
use crate::hook::binding::{Change, Changes};
use crate::message::{BindingId, Event, Item, ObjectKey, Operations};

/// Namespace and name in one text, shared by all maps that hold the object. Sorts by namespace, then name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key(Arc<str>);

/// No name holds this, and it sorts before everything that a name may hold.
const SEPARATOR: char = '\0';

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Key {
        let mut text = String::with_capacity(namespace.len() + 1 + name.len());
        Key::write(&mut text, namespace, name);
        Key(text.into())
    }

    /// Writes the text of a key, for looking it up.
    pub(super) fn write(text: &mut String, namespace: &str, name: &str) {
        text.clear();
        text.push_str(namespace);
        text.push(SEPARATOR);
        text.push_str(name);
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Namespace and name.
    pub(super) fn parts(&self) -> (&str, &str) {
        self.0.split_once(SEPARATOR).unwrap_or_default()
    }
}

/// Sorts as the original sorts, which looks at the objects themselves only where it has them.
pub(super) fn sort(items: &mut [(Key, Item)], full_objects: bool) {
    if full_objects {
        items.sort_by(|(one, _), (other, _)| one.cmp(other));
        return;
    }
    // By `namespace/Kind/name` as one text: a slash stands behind the shorter of two namespaces.
    items.sort_by(|(one, _), (other, _)| {
        let ((one_space, one), (other_space, other)) = (one.parts(), other.parts());
        one_space
            .bytes()
            .chain([b'/'])
            .cmp(other_space.bytes().chain([b'/']))
            .then_with(|| one.cmp(other))
    });
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// What is kept of an object's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Text(Arc<[u8]>),
    /// 64 bits of a keyed hash. It is only ever compared with the previous one of the same object, and its key is random, so
    /// that a change goes unseen with a chance of one in 2^64.
    Checksum(u64),
}

/// A filter's result for one object, in the order of the views. None: the view has no filter.
pub(super) type Results = Vec<Option<Result<Arc<[u8]>, String>>>;

/// The first list while it is read. A map that grows in order of its keys ends up with nodes that are half empty, one that is
/// made of all entries at once has full ones; and the vectors give their memory back as a whole.
#[derive(Default)]
pub(super) struct FirstList {
    bodies: Vec<(Key, Body)>,
    views: Vec<FirstView>,
}

#[derive(Default, Clone)]
struct FirstView {
    results: Vec<(Key, Arc<[u8]>)>,
    failures: Vec<(Key, String)>,
}

impl FirstList {
    pub(super) fn new(views: usize) -> FirstList {
        FirstList {
            bodies: Vec::new(),
            views: vec![FirstView::default(); views],
        }
    }

    pub(super) fn add(&mut self, key: &str, body: Body, results: Results) {
        let key = Key(key.into());
        for (view, result) in self.views.iter_mut().zip(results) {
            match result {
                Some(Ok(result)) => view.results.push((key.clone(), result)),
                Some(Err(reason)) => view.failures.push((key.clone(), reason)),
                None => {}
            }
        }
        self.bodies.push((key, body));
    }
}

#[derive(Default)]
pub(super) struct Store {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    bodies: BTreeMap<Key, Body>,
    views: Vec<View>,
}

/// What one binding sees.
struct View {
    gate: Gate,
    wishes: Wishes,
    /// By object; stays empty without a filter.
    results: BTreeMap<Key, Arc<[u8]>>,
    /// Objects that the filter failed on before the binding was enabled, with the reasons.
    failures: BTreeMap<Key, String>,
    /// What happened to its objects after the first list, and the same since somebody looked last.
    since_start: Operations,
    since_last: Operations,
}

/// What a binding wants of an object, and to hear about it.
#[derive(Debug, Clone)]
pub(super) struct Wishes {
    pub(super) binding: BindingId,
    pub(super) kind: String,
    pub(super) changes: Changes,
    pub(super) full_objects: bool,
    pub(super) filtered: bool,
}

/// The outcome of a change for all views.
#[derive(Default)]
pub(super) struct Outcome {
    /// To be sent now, in this order. What a gate keeps back is not among them.
    pub(super) events: Vec<Event>,
    /// Views that have more or fewer objects now.
    pub(super) counts: Vec<usize>,
    /// Views whose filter failed when that is only worth a line in the log.
    pub(super) errors: Vec<(usize, String)>,
}

impl Store {
    pub(super) fn new(wishes: impl Iterator<Item = Wishes>) -> Store {
        let views = wishes
            .map(|wishes| View {
                gate: Gate::Filling,
                wishes,
                results: BTreeMap::new(),
                failures: BTreeMap::new(),
                since_start: Operations::default(),
                since_last: Operations::default(),
            })
            .collect();
        Store {
            inner: Mutex::new(Inner {
                bodies: BTreeMap::new(),
                views,
            }),
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.locked().bodies.contains_key(key)
    }

    /// True if the object is known with this text. `checksum` is asked for when the text itself is not kept.
    pub(super) fn has_same(&self, key: &str, text: &[u8], checksum: impl FnOnce() -> u64) -> bool {
        match self.locked().bodies.get(key) {
            Some(Body::Text(known)) => **known == *text,
            Some(Body::Checksum(known)) => *known == checksum(),
            None => false,
        }
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.locked().bodies.keys().cloned().collect()
    }

    /// Writes an object that is new or differs from what is known.
    pub(super) fn put(&self, key: &str, body: Body, results: Results) -> Outcome {
        let mut inner = self.locked();
        let Inner { bodies, views } = &mut *inner;
        // The key that is there already is shared; a new one is made once.
        let (key, change) = match bodies.get_key_value(key) {
            Some((known, _)) => (known.clone(), Change::Modified),
            None => (Key(key.into()), Change::Added),
        };
        let mut outcome = Outcome::default();
        for (index, (view, result)) in views.iter_mut().zip(results).enumerate() {
            let filter_result = match result {
                None => {
                    if change == Change::Added {
                        outcome.counts.push(index);
                    }
                    view.count(change);
                    None
                }
                Some(Ok(result)) => {
                    view.failures.remove(&key);
                    let known = view.results.insert(key.clone(), Arc::clone(&result));
                    if known.is_none() {
                        outcome.counts.push(index);
                        view.count(Change::Added);
                    } else {
                        view.count(Change::Modified);
                    }
                    if known.as_ref() == Some(&result) {
                        continue;
                    }
                    Some(result)
                }
                Some(Err(reason)) => {
                    if view.gate.is_before_enabling() {
                        view.failures.insert(key.clone(), reason);
                    } else {
                        outcome.errors.push((index, reason));
                    }
                    continue;
                }
            };
            let item = view.wishes.item(Some(&body), filter_result);
            outcome.events.extend(view.tell(change, &key, item));
        }
        bodies.insert(key, body);
        outcome
    }

    /// Removes an object. `last` is its text and the filters' results when the server sent it once more; without that the views
    /// tell what they know.
    pub(super) fn remove(&self, key: &str, last: Option<(Body, Results)>) -> Outcome {
        let mut inner = self.locked();
        let Inner { bodies, views } = &mut *inner;
        let mut outcome = Outcome::default();
        let Some((key, known_body)) = bodies.remove_entry(key) else {
            return outcome;
        };
        let (body, results) = match last {
            Some((body, results)) => (body, results),
            None => (known_body, vec![None; views.len()]),
        };
        for (index, (view, result)) in views.iter_mut().zip(results).enumerate() {
            view.failures.remove(&key);
            let known = view.results.remove(&key);
            if known.is_some() || !view.wishes.filtered {
                outcome.counts.push(index);
                view.count(Change::Deleted);
                let left = if view.wishes.filtered {
                    view.results.len()
                } else {
                    bodies.len()
                };
                view.count_end(left);
            }
            let filter_result = match result {
                Some(Ok(result)) => Some(result),
                Some(Err(reason)) => {
                    outcome.errors.push((index, reason));
                    known
                }
                None => known,
            };
            // The filter never worked for this object, so that the hook has never heard of it.
            if view.wishes.filtered && filter_result.is_none() {
                continue;
            }
            let item = view.wishes.item(Some(&body), filter_result);
            outcome
                .events
                .extend(view.tell(Change::Deleted, &key, item));
        }
        outcome
    }

    /// The first list is complete. Returns the objects that the filter failed on, if nobody is going to ask for them.
    pub(super) fn complete(&self, view: usize, phase: Phase) -> Vec<String> {
        self.with(view, |view| {
            if !matches!(view.gate, Gate::Filling) {
                return Vec::new();
            }
            view.gate = Gate::at(phase);
            match phase {
                Phase::Idle => Vec::new(),
                Phase::Locked | Phase::Open => {
                    std::mem::take(&mut view.failures).into_values().collect()
                }
            }
        })
        .unwrap_or_default()
    }

    /// Takes over the first list in one step.
    pub(super) fn fill(&self, first: FirstList) {
        let mut inner = self.locked();
        inner.bodies = first.bodies.into_iter().collect();
        for (view, taken) in inner.views.iter_mut().zip(first.views) {
            view.results = taken.results.into_iter().collect();
            view.failures = taken.failures.into_iter().collect();
        }
    }

    /// One object that the view's filter fails on: its name and the reason.
    pub(super) fn failure(&self, view: usize) -> Option<(String, String)> {
        self.with(view, |view| {
            let (key, reason) = view.failures.first_key_value()?;
            Some((key.parts().1.to_owned(), reason.clone()))
        })
        .flatten()
    }

    pub(super) fn lock_gate(&self, view: usize) {
        self.with(view, |view| {
            view.gate.lock();
            view.failures.clear();
        });
    }

    /// See `Gate::open`.
    pub(super) fn open_gate(&self, view: usize) -> Vec<Event> {
        self.with(view, |view| view.gate.open()).unwrap_or_default()
    }

    /// How many objects the view has.
    pub(super) fn count(&self, view: usize) -> usize {
        let inner = self.locked();
        match inner.views.get(view) {
            Some(view) if view.wishes.filtered => view.results.len(),
            _ => inner.bodies.len(),
        }
    }

    /// What happened to the view's objects since the start, and since this was asked last.
    pub(super) fn operations(&self, view: usize) -> (Operations, Operations) {
        let count = self.count(view);
        self.with(view, |view| {
            let since_last = std::mem::take(&mut view.since_last);
            let with_count = |operations| Operations {
                count,
                ..operations
            };
            (with_count(view.since_start), with_count(since_last))
        })
        .unwrap_or_default()
    }

    /// Adds what the view sees, in the order of the keys. For a Synchronization run, events that are kept back are dropped in
    /// the same moment.
    pub(super) fn read(&self, view: usize, synchronization: bool, into: &mut Vec<(Key, Item)>) {
        let mut inner = self.locked();
        let Inner { bodies, views } = &mut *inner;
        let Some(view) = views.get_mut(view) else {
            return;
        };
        if synchronization {
            view.gate.objects_were_read();
        }
        if !view.wishes.filtered {
            let items = bodies
                .iter()
                .map(|(key, body)| (key.clone(), view.wishes.item(Some(body), None)));
            into.extend(items);
            return;
        }
        // Both maps are in the same order, and every result belongs to a known object.
        let mut bodies = bodies.iter();
        for (key, result) in &view.results {
            let body = bodies
                .find(|(known, _)| *known == key)
                .map(|(_, body)| body);
            into.push((
                key.clone(),
                view.wishes.item(body, Some(Arc::clone(result))),
            ));
        }
    }

    fn with<T>(&self, view: usize, action: impl FnOnce(&mut View) -> T) -> Option<T> {
        self.locked().views.get_mut(view).map(action)
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    fn count(&mut self, change: Change) {
        for operations in [&mut self.since_start, &mut self.since_last] {
            match change {
                Change::Added => operations.added += 1,
                Change::Modified => operations.modified += 1,
                Change::Deleted => operations.deleted += 1,
            }
        }
    }

    /// Notes that a deletion left no object.
    fn count_end(&mut self, left: usize) {
        if left == 0 {
            self.since_start.cleaned += 1;
            self.since_last.cleaned += 1;
        }
    }

    /// The event, if the binding wants it and its gate lets it through now. This happens under the same lock as the change
    /// itself: a snapshot has either both or none.
    fn tell(&mut self, change: Change, key: &Key, item: Item) -> Option<Event> {
        if !self.wishes.changes.contains(change) || self.gate.is_before_enabling() {
            return None;
        }
        let (namespace, name) = key.parts();
        self.gate.pass(Event::Changed {
            binding: self.wishes.binding,
            change,
            item,
            key: ObjectKey {
                namespace: namespace.to_owned(),
                kind: self.wishes.kind.clone(),
                name: name.to_owned(),
            },
        })
    }
}

impl Wishes {
    fn item(&self, body: Option<&Body>, filter_result: Option<Arc<[u8]>>) -> Item {
        let object = match body {
            Some(Body::Text(text)) if self.full_objects => Some(Arc::clone(text)),
            _ => None,
        };
        Item {
            object,
            filter_result,
        }
    }
}
