//! What a request would do to the cluster, taken from the question. Pure: the room that keeps snapshots applies it.
//!
//! Runs on the thread that decides the review. Makes one copy of the object's bytes, which every snapshot of this review shares.

use serde::Deserialize;

use super::question::Question;
use crate::hook::binding::Change;
use crate::hook::explain::Overlay;
use crate::message::Proposal;

/// Where a request does not say it, the object does.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Names,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    name: String,
    namespace: String,
}

/// None for a request that changes no object of its kind: CONNECT, and subresources that were not asked for.
pub(super) fn proposal(question: &Question, overlay: &Overlay) -> Option<Proposal> {
    let subresource = &question.subresource;
    if !subresource.is_empty() && !overlay.subresources.contains(subresource) {
        return None;
    }
    let change = match question.operation.as_str() {
        "CREATE" => Change::Added,
        "UPDATE" => Change::Modified,
        "DELETE" => Change::Deleted,
        _ => return None,
    };
    let object = question.object().filter(|_| change != Change::Deleted);
    // A deletion of many objects at once is asked about each, and the request names none of them.
    let named = object.or(question.old_object());
    let named: Named = named
        .and_then(|object| serde_json::from_slice(object).ok())
        .unwrap_or_default();
    let or = |one: &str, other: &str| if one.is_empty() { other } else { one }.to_owned();
    Some(Proposal {
        change,
        group: question.kind.group.clone(),
        version: question.kind.version.clone(),
        kind: question.kind.kind.clone(),
        namespace: or(&named.metadata.namespace, &question.namespace),
        name: or(&named.metadata.name, &question.name),
        object: object.map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn proposed(more: &Value, overlay: &Overlay) -> Option<Proposal> {
        let mut request = json!({
            "uid": "u", "kind": { "group": "apps", "version": "v1", "kind": "Deployment" },
            "namespace": "n", "name": "", "operation": "CREATE",
        });
        for (key, value) in more.as_object().unwrap() {
            request[key] = value.clone();
        }
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
        let question = Question::parse(review.to_string().into_bytes()).unwrap();
        proposal(&question, overlay)
    }

    #[test]
    fn the_name_comes_from_wherever_it_is() {
        let old = json!({ "metadata": { "name": "old", "namespace": "n" } });
        let cases = [
            (
                json!({ "object": { "metadata": { "name": "new" } } }),
                "new",
            ),
            (
                json!({ "object": { "metadata": { "generateName": "new-" } } }),
                "",
            ),
            (
                json!({ "operation": "UPDATE", "name": "x", "object": {}, "oldObject": old }),
                "x",
            ),
            (json!({ "operation": "DELETE", "name": "x" }), "x"),
            // A deletion of many.
            (
                json!({ "operation": "DELETE", "object": null, "oldObject": old }),
                "old",
            ),
        ];
        for (more, name) in cases {
            let proposal = proposed(&more, &Overlay::default()).unwrap();
            assert_eq!(proposal.name, name, "{more}");
            assert_eq!(proposal.namespace, "n", "{more}");
            assert_eq!(
                proposal.object.is_some(),
                more["object"].is_object(),
                "{more}"
            );
        }
    }

    #[test]
    fn a_subresource_counts_only_when_it_was_asked_for() {
        let status =
            json!({ "operation": "UPDATE", "subResource": "status", "name": "x", "object": {} });
        let asked = Overlay {
            bindings: None,
            subresources: vec!["status".to_owned()],
        };
        assert!(proposed(&status, &Overlay::default()).is_none());
        assert!(proposed(&status, &asked).is_some());
        let connect = json!({ "operation": "CONNECT", "name": "x" });
        assert!(proposed(&connect, &asked).is_none());
    }
}
