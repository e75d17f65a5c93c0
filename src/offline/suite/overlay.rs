//! The snapshots of a case as they would be if its request were carried out, for bindings with `overlay`.
//!
//! Runs on a worker thread; the merging itself is `monitor/overlay.rs`, the same as in a cluster. A case has no namespaces with labels,
//! so a binding that follows namespaces by their labels is taken to follow the one of the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::super::kinds::Kinds;
use super::target;
use crate::hook::Registry;
use crate::message::{BindingId, Overlaid, Proposal};
use crate::monitor::overlay::{self, Key, Watched};

/// What overlays are made of.
pub(super) struct Ground {
    pub(super) registry: Arc<Registry>,
    pub(super) kinds: Arc<Kinds>,
    /// By the name of the binding.
    pub(super) objects: BTreeMap<String, Vec<Value>>,
}

impl Ground {
    pub(super) fn overlaid(&self, id: BindingId, proposal: &Proposal) -> Result<Overlaid, String> {
        let hook = self.registry.hooks.get(id.hook);
        let binding = hook.and_then(|hook| hook.config.kubernetes.get(id.binding));
        let binding = binding.ok_or("the binding is gone")?;
        let known = self
            .kinds
            .lookup(&binding.kind, binding.api_version.as_deref());
        // A kind that only a cluster knows is the proposed one if it is written like it.
        let is_proposed = binding.kind.eq_ignore_ascii_case(&proposal.kind);
        let (group, version, kind, namespaced) = match known {
            Some(known) => (
                &*known.group,
                &*known.version,
                &*known.kind,
                known.namespaced,
            ),
            None if is_proposed => (&*proposal.group, "", &*proposal.kind, true),
            None => ("", "", &*binding.kind, true),
        };
        let text = |object: &Value, path: &str| {
            let found = object.pointer(path).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let mut items = Vec::new();
        for object in self.objects.get(&binding.name).into_iter().flatten() {
            let (namespace, name) = (
                text(object, "/metadata/namespace"),
                text(object, "/metadata/name"),
            );
            items.push((Key::new(&namespace, &name), target::item(object, binding)?));
        }
        let watched = Watched {
            binding,
            group,
            version,
            kind,
            namespaced,
            follows: &|_| true,
        };
        overlay::overlaid(items, &watched, proposal).map_err(|error| error.to_string())
    }
}
