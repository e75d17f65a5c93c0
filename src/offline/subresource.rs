//! Requests for a part of an object: which kind they carry, and how it is made of the object itself.
//!
//! Pure. `status` and its like carry the object; `scale`, `eviction` and the connections carry an object of their own, which is made here
//! as `kubectl` would make it. What else they may hold is not guessed: whoever needs it gives the recorded AdmissionReview.

use serde_json::{Value, json};

use super::kinds::Gvk;
use super::outcome::{Operation, Verdict};
use super::request::Request;
use crate::kube::Resource;

/// What a request for this subresource does when nobody says otherwise.
pub(super) fn usual_operation(subresource: &str) -> Operation {
    match subresource {
        "eviction" | "binding" | "token" => Operation::Create,
        "attach" | "exec" | "portforward" | "proxy" => Operation::Connect,
        _ => Operation::Update,
    }
}

/// Makes a request for an object one for its subresource.
pub(super) fn narrow(request: &mut Request, resource: &Resource) -> Result<(), Verdict> {
    let subresource = request.subresource.clone();
    if !resource.subresources.contains(&subresource) {
        let known = match resource.subresources.join(", ") {
            none if none.is_empty() => "none".to_owned(),
            some => some,
        };
        return Err(Verdict::Error {
            message: format!(
                "{} have no subresource '{subresource}'; known: {known}",
                resource.plural
            ),
        });
    }
    let options = match (&*resource.plural, &*subresource) {
        (_, "scale") => {
            request.kind = Gvk::new("autoscaling/v1", "Scale");
            request.object = request.object.as_ref().map(scale);
            request.old_object = request.old_object.as_ref().map(scale);
            return Ok(());
        }
        (_, "eviction") => {
            request.kind = Gvk::new("policy/v1", "Eviction");
            let (name, namespace) = (&request.name, &request.namespace);
            request.object = Some(json!({
                "kind": "Eviction", "apiVersion": "policy/v1",
                "metadata": {"name": name, "namespace": namespace},
            }));
            request.old_object = None;
            return Ok(());
        }
        ("pods", "attach") => "PodAttachOptions",
        ("pods", "exec") => "PodExecOptions",
        ("pods", "portforward") => "PodPortForwardOptions",
        ("pods", "proxy") => "PodProxyOptions",
        ("services", "proxy") => "ServiceProxyOptions",
        ("nodes", "proxy") => "NodeProxyOptions",
        ("pods", "binding") | ("serviceaccounts", "token") => {
            return Err(Verdict::Unjudged {
                reason: format!(
                    "what a request for {}/{subresource} holds is not in the manifest: give the AdmissionReview of such a request with -f",
                    resource.plural
                ),
            });
        }
        _ => return Ok(()),
    };
    request.kind = Gvk::new("v1", options);
    request.object = Some(json!({"kind": options, "apiVersion": "v1"}));
    request.old_object = None;
    Ok(())
}

/// The scale of a workload.
fn scale(workload: &Value) -> Value {
    let metadata = workload.get("metadata");
    let field = |name: &str| metadata.and_then(|metadata| metadata.get(name)).cloned();
    let mut named = serde_json::Map::new();
    for name in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = field(name) {
            named.insert(name.to_owned(), value);
        }
    }
    let replicas = |pointer: &str| workload.pointer(pointer).cloned();
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": named,
        "spec": {"replicas": replicas("/spec/replicas").unwrap_or_else(|| json!(1))},
        "status": {"replicas": replicas("/status/replicas").unwrap_or_else(|| json!(0))},
    })
}
