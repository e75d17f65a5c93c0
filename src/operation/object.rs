//! What is known and changed about an object that a hook wants to create: its name, and the fields that only the server sets.
//!
//! Pure. The object stays a JSON text; only its top level and its `metadata` are taken apart, so that a large object never becomes
//! a tree of values and numbers stay as they were written.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

use super::Target;
use super::document::{Flaw, brief, segment};

/// What the server sets, and refuses or misunderstands in an object that is created. An object that a hook took from a snapshot has
/// all of it. `status` is left alone: the server drops it where it is a subresource, and needs it where it is a field.
const SERVER_SET: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

type Fields<'a> = BTreeMap<String, &'a RawValue>;

/// The object without what the server sets. `target` is told which object it is, as far as that can be read.
pub(super) fn prepare(text: &str, needs_name: bool, target: &mut Target) -> Result<String, Flaw> {
    let mut fields: Fields<'_> =
        serde_json::from_str(text).map_err(|_| Flaw::Type("object", "an object"))?;
    let metadata = fields
        .get("metadata")
        .map_or("{}", |metadata| metadata.get());
    let mut metadata: Fields<'_> =
        serde_json::from_str(metadata).map_err(|_| Flaw::Type("object.metadata", "an object"))?;
    target.name = optional(&metadata, "name", "object.metadata.name")?;
    target.namespace = optional(&metadata, "namespace", "object.metadata.namespace")?;
    target.kind = required(&fields, "kind", "object.kind")?;
    target.api_version = Some(required(&fields, "apiVersion", "object.apiVersion")?);
    let prefix = optional(&metadata, "generateName", "object.metadata.generateName")?;
    if target.name.is_empty() && (needs_name || prefix.is_empty()) {
        return Err(Flaw::Missing("object.metadata.name"));
    }
    brief("object.kind", &target.kind)?;
    brief(
        "object.apiVersion",
        target.api_version.as_deref().unwrap_or_default(),
    )?;
    for (field, text) in [
        ("object.metadata.name", &target.name),
        ("object.metadata.namespace", &target.namespace),
        ("object.metadata.generateName", &prefix),
    ] {
        if !text.is_empty() {
            segment(field, text)?;
        }
    }
    for field in SERVER_SET {
        metadata.remove(field);
    }
    let metadata = to_raw_value(&metadata).map_err(|_| Flaw::Type("object", "an object"))?;
    fields.insert("metadata".to_owned(), &metadata);
    serde_json::to_string(&fields).map_err(|_| Flaw::Type("object", "an object"))
}

/// The object with a `resourceVersion`, for a change that must not overwrite another.
pub(crate) fn with_version(object: &str, version: &str) -> serde_json::Result<String> {
    let mut fields: Fields<'_> = serde_json::from_str(object)?;
    let metadata = fields
        .get("metadata")
        .map_or("{}", |metadata| metadata.get());
    let mut metadata: Fields<'_> = serde_json::from_str(metadata)?;
    let version = to_raw_value(version)?;
    metadata.insert("resourceVersion".to_owned(), &version);
    let metadata = to_raw_value(&metadata)?;
    fields.insert("metadata".to_owned(), &metadata);
    serde_json::to_string(&fields)
}

fn required(fields: &Fields<'_>, key: &str, path: &'static str) -> Result<String, Flaw> {
    match optional(fields, key, path)? {
        text if text.is_empty() => Err(Flaw::Missing(path)),
        text => Ok(text),
    }
}

fn optional(fields: &Fields<'_>, key: &str, path: &'static str) -> Result<String, Flaw> {
    let text: Option<String> = match fields.get(key) {
        Some(value) => {
            serde_json::from_str(value.get()).map_err(|_| Flaw::Type(path, "a string"))?
        }
        None => None,
    };
    Ok(text.unwrap_or_default())
}
