//! What a hook gets to see of the cluster in one review: its snapshots, read at the moment of the decision, and where an overlay was
//! asked for, as they would be with the request carried out.
//!
//! Runs on the thread that decides the review; filters run on a thread of their own, since they need a deeper stack than a connection
//! has. Owns the lists of pointers until the hook has read them, and changes no store.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::bounded;

use super::runner::Undecided;
use crate::hook::Hook;
use crate::hook::context::{self, OverlayNote};
use crate::hook::explain::Overlay;
use crate::message::{BindingId, Overlaid, Proposal, Snapshot};
use crate::threads;

/// LIMIT: stack of a thread for filters: what other threads have that run jq programs.
const FILTER_STACK: usize = 2 * 1024 * 1024;

/// Reads the objects of a kubernetes binding at this moment.
pub(crate) type ReadSnapshot = Arc<dyn Fn(BindingId) -> Snapshot + Send + Sync>;

/// The same as they would be if a request were carried out; or why that cannot be shown.
pub(crate) type ReadOverlaid =
    Arc<dyn Fn(BindingId, &Proposal) -> Result<Overlaid, String> + Send + Sync>;

/// A snapshot that a binding includes.
pub(super) struct Shown {
    name: String,
    id: BindingId,
    is_overlaid: bool,
    /// It has a jqFilter.
    is_filtered: bool,
}

impl Shown {
    /// The snapshots of these names; a group has been expanded into names already (SO-46).
    pub(super) fn of(
        index: usize,
        hook: &Hook,
        included: &[String],
        overlay: Option<&Overlay>,
    ) -> Vec<Shown> {
        let named = |name: &String| {
            let mut bindings = hook.config.kubernetes.iter().enumerate();
            let (position, binding) = bindings.find(|(_, known)| known.name == *name)?;
            let listed = |overlay: &Overlay| {
                let listed = overlay.bindings.as_ref();
                listed.is_none_or(|names| names.contains(name))
            };
            Some(Shown {
                name: name.clone(),
                id: BindingId {
                    hook: index,
                    binding: position,
                },
                is_overlaid: overlay.is_some_and(listed),
                is_filtered: binding.filter.is_some(),
            })
        };
        included.iter().filter_map(named).collect()
    }
}

/// What was read.
pub(super) struct Sight<'a> {
    copies: Vec<(&'a str, Overlaid)>,
    operation: Option<&'a str>,
}

impl<'a> Sight<'a> {
    pub(super) fn read(
        shown: &'a [Shown],
        proposal: Option<&Proposed<'a>>,
        snapshots: &ReadSnapshot,
        overlaid: &ReadOverlaid,
        until: Instant,
    ) -> Result<Sight<'a>, Undecided> {
        let mut copies = Vec::with_capacity(shown.len());
        for one in shown {
            let change = proposal.and_then(|proposed| proposed.proposal.as_ref());
            let copy = match change.filter(|_| one.is_overlaid) {
                None => snapshots(one.id).into(),
                Some(change) if one.is_filtered => apart(one.id, change, overlaid, until)?,
                Some(change) => overlaid(one.id, change).map_err(Undecided::Overlay)?,
            };
            copies.push((one.name.as_str(), copy));
        }
        Ok(Sight {
            copies,
            operation: proposal.map(|proposed| proposed.operation),
        })
    }

    pub(super) fn snapshots(&self) -> Vec<context::Snapshot<'_>> {
        self.copies
            .iter()
            .map(|(name, items)| context::Snapshot { name, items })
            .collect()
    }

    /// None unless an overlay was asked for.
    pub(super) fn note(&self) -> Option<OverlayNote<'_>> {
        let operation = self.operation?;
        let concerned = self.copies.iter().filter(|(_, copy)| copy.is_concerned);
        let removed = self.copies.iter().filter_map(|(binding, copy)| {
            let (namespace, name) = copy.removed.as_ref()?;
            Some((*binding, namespace.as_str(), name.as_str()))
        });
        Some(OverlayNote {
            operation,
            bindings: concerned.map(|(name, _)| *name).collect(),
            removed: removed.collect(),
        })
    }
}

/// A request of a binding with an overlay.
pub(crate) struct Proposed<'a> {
    pub(crate) operation: &'a str,
    /// None when it changes no object that a snapshot could show.
    pub(crate) proposal: Option<Proposal>,
}

fn apart(
    id: BindingId,
    proposal: &Proposal,
    overlaid: &ReadOverlaid,
    until: Instant,
) -> Result<Overlaid, Undecided> {
    let (reply, done) = bounded(1);
    let (overlaid, proposal) = (Arc::clone(overlaid), proposal.clone());
    let work = move || {
        // Whoever waited may have given up.
        let _ = reply.send(overlaid(id, &proposal));
    };
    threads::spawn_short("overlay", FILTER_STACK, work).map_err(|error| {
        Undecided::Overlay(format!("cannot start a thread for an overlay: {error}"))
    })?;
    let late = "an overlay was not ready by the deadline".to_owned();
    let done = done.recv_deadline(until);
    done.unwrap_or(Err(late)).map_err(Undecided::Overlay)
}
