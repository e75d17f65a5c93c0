//! The AdmissionReview of a case: what the API server would send for a request like this.
//!
//! Pure. What the case leaves out gets the value that it has for an ordinary user; what depends on time or chance, such as the uid,
//! is fixed, so that two runs of a case are asked the same.

use serde_json::{Value, json};

use super::super::outcome::Operation;
use super::file::Request;
use crate::hook::binding::AdmissionBinding;

/// Stands for the uid of every request.
pub(super) const UID: &str = "00000000-0000-4000-8000-000000000001";

/// The whole review as bytes. `object` is what is asked about, which may be a later state of the case's own.
pub(super) fn review(
    request: &Request,
    object: Option<&Value>,
    binding: &AdmissionBinding,
) -> Vec<u8> {
    let subject = object.or(request.old_object.as_ref());
    let text = |path: &str| {
        let found = subject.and_then(|subject| subject.pointer(path));
        found.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let api_version = text("/apiVersion");
    let (group, version) = match api_version.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", api_version.as_str()),
    };
    let kind_name = text("/kind");
    let plural = match &request.resource {
        Some(resource) => resource.clone(),
        None => plural(&kind_name, binding),
    };
    let kind = json!({"group": group, "version": version, "kind": kind_name});
    let resource = json!({"group": group, "version": version, "resource": plural});
    let mut asked = json!({
        "uid": UID,
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "operation": request.operation.as_str(),
        "userInfo": request.user.clone().unwrap_or_else(ordinary_user),
        "object": object,
        "oldObject": request.old_object,
        "dryRun": request.dry_run,
        "options": request.options.clone().unwrap_or_else(|| options(request.operation)),
    });
    let name = request
        .name
        .clone()
        .unwrap_or_else(|| text("/metadata/name"));
    let namespace = request
        .namespace
        .clone()
        .unwrap_or_else(|| text("/metadata/namespace"));
    let optional = [
        ("name", name),
        ("namespace", namespace),
        ("subResource", request.sub_resource.clone()),
        ("requestSubResource", request.sub_resource.clone()),
    ];
    if let Some(fields) = asked.as_object_mut() {
        for (key, value) in optional {
            if !value.is_empty() {
                fields.insert(key.to_owned(), Value::from(value));
            }
        }
    }
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": asked,
    });
    review.to_string().into_bytes()
}

fn ordinary_user() -> Value {
    json!({"username": "jane", "uid": "jane", "groups": ["system:authenticated"]})
}

fn options(operation: Operation) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    json!({"apiVersion": "meta.k8s.io/v1", "kind": kind})
}

/// The plural of a kind: the one of the binding's rules that begins like it, or what English makes of it.
fn plural(kind: &str, binding: &AdmissionBinding) -> String {
    let lower = kind.to_lowercase();
    let stem = lower.strip_suffix('y').unwrap_or(&lower);
    let named = binding
        .rules
        .iter()
        .flat_map(|rule| &rule.resources)
        .filter_map(|resource| resource.split('/').next())
        .find(|resource| {
            let ending = resource.strip_prefix(stem).unwrap_or("none");
            !stem.is_empty() && ["", "s", "es", "ies", "ys", "y"].contains(&ending)
        });
    if let Some(resource) = named {
        return resource.to_owned();
    }
    let is_vowel_before_y = ["ay", "ey", "oy", "uy"]
        .iter()
        .any(|ending| lower.ends_with(ending));
    match lower.chars().last() {
        Some('y') if !is_vowel_before_y => format!("{stem}ies"),
        Some('s' | 'x') => format!("{lower}es"),
        Some(_) => format!("{lower}s"),
        None => lower,
    }
}
