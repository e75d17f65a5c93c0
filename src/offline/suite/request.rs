//! The AdmissionReview of a case: what the API server would send for a request like this.
//!
//! Pure. What the case leaves out gets the value that it has for an ordinary user; what depends on time or chance, such as the uid,
//! is fixed, so that two runs of a case are asked the same.

use serde_json::{Value, json};

use super::super::kinds::{Gvk, Kinds};
use super::super::outcome::Operation;
use super::file::Request;
use crate::hook::binding::AdmissionBinding;

/// Stands for the uid of every request.
pub(super) const UID: &str = "00000000-0000-4000-8000-000000000001";

/// The whole review as bytes. `object` is what is asked about, which may be a later state of the case's own.
pub(super) fn review(request: &Request, object: Option<&Value>, kinds: &Kinds) -> Vec<u8> {
    let subject = object.or(request.old_object.as_ref());
    let text = |path: &str| {
        let found = subject.and_then(|subject| subject.pointer(path));
        found.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let Gvk {
        group,
        version,
        kind,
    } = Gvk::new(&text("/apiVersion"), &text("/kind"));
    let (_, plural) = resource(request, object, kinds);
    let kind = json!({"group": group, "version": version, "kind": kind});
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

/// Group and plural of what is asked about. A kind that nobody knows has the plural that English would give it, unless the case names
/// another.
pub(super) fn resource(
    request: &Request,
    object: Option<&Value>,
    kinds: &Kinds,
) -> (String, String) {
    let subject = object.or(request.old_object.as_ref());
    let text = |key: &str| {
        let found = subject.and_then(|subject| subject.get(key));
        found.and_then(Value::as_str).unwrap_or_default()
    };
    let gvk = Gvk::new(text("apiVersion"), text("kind"));
    let plural = match (&request.resource, kinds.of_object(&gvk)) {
        (Some(named), _) => named.clone(),
        (None, Some(known)) => known.plural.clone(),
        (None, None) => plural(&gvk.kind),
    };
    (gvk.group, plural)
}

fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    let vowels = ["ay", "ey", "oy", "uy"];
    match (lower.strip_suffix('y'), lower.chars().last()) {
        (Some(stem), _) if !vowels.iter().any(|vowel| lower.ends_with(vowel)) => {
            format!("{stem}ies")
        }
        (_, Some('s' | 'x')) => format!("{lower}es"),
        (_, Some(_)) => format!("{lower}s"),
        (_, None) => lower,
    }
}

/// Whether a rule of the binding is about such requests at all. Versions, scopes and selectors are not looked at: they depend on the
/// cluster, and `review` is there for that.
pub(super) fn is_asked(
    request: &Request,
    group: &str,
    plural: &str,
    binding: &AdmissionBinding,
    kinds: &Kinds,
) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|item| item == "*" || item == wanted);
    let named = |resource: &String| {
        let (name, sub) = resource.split_once('/').unwrap_or((resource, ""));
        let known = kinds.lookup(name, None).map(|known| known.plural.as_str());
        let is_name = name == "*" || name == plural || known == Some(plural);
        let is_sub = sub == request.sub_resource || sub == "*" || resource == "*/*";
        is_name && is_sub
    };
    binding.rules.iter().any(|rule| {
        has(&rule.api_groups, group)
            && has(&rule.operations, request.operation.as_str())
            && rule.resources.iter().any(named)
    })
}
