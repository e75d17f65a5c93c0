//! The overlay by itself: every operation, every selector, names that are still to be made, versions and kinds that differ.

use serde_json::json;

use super::*;
use crate::hook::Registry;

/// A binding for Ingresses with more keys than its kind.
fn binding(more: &Value) -> KubernetesBinding {
    let mut binding =
        json!({ "name": "ingresses", "apiVersion": "networking.k8s.io/v1", "kind": "Ingress" });
    for (key, value) in more.as_object().unwrap() {
        binding[key] = value.clone();
    }
    let config = json!({ "configVersion": "v1", "kubernetes": [binding] }).to_string();
    let registry = Registry::of(&[("a.sh", &config)]);
    registry.hooks[0].config.kubernetes[0].clone()
}

fn ingress(namespace: &str, name: &str, host: &str) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name }, "spec": { "host": host } })
}

fn stored(binding: &KubernetesBinding, objects: &[Value]) -> Vec<(Key, Item)> {
    let item = |object: &Value| {
        let names = &object["metadata"];
        let text = |key: &str| names[key].as_str().unwrap_or_default();
        let bytes: Arc<[u8]> = object.to_string().into_bytes().into();
        let filter_result = filtered(binding, &bytes).unwrap();
        let item = Item {
            object: binding.keep_full_objects.then_some(bytes),
            filter_result,
        };
        (Key::new(text("namespace"), text("name")), item)
    };
    objects.iter().map(item).collect()
}

fn proposal(change: Change, object: Option<&Value>, namespace: &str, name: &str) -> Proposal {
    Proposal {
        change,
        group: "networking.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "Ingress".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        object: object.map(|object| object.to_string().into_bytes().into()),
    }
}

fn try_show(
    binding: &KubernetesBinding,
    objects: &[Value],
    proposal: &Proposal,
) -> Result<Overlaid, Unfit> {
    let follows = |namespace: &str| namespace == "followed";
    let watched = Watched {
        binding,
        group: "networking.k8s.io",
        version: "v1",
        kind: "Ingress",
        namespaced: true,
        follows: &follows,
    };
    overlaid(stored(binding, objects), &watched, proposal)
}

fn show(binding: &KubernetesBinding, objects: &[Value], proposal: &Proposal) -> Overlaid {
    try_show(binding, objects, proposal).unwrap()
}

/// The objects of a snapshot.
fn objects(shown: &Overlaid) -> Vec<Value> {
    let read = |item: &Item| serde_json::from_slice(item.object.as_deref().unwrap()).unwrap();
    shown.items.iter().map(read).collect()
}

#[test]
fn a_creation_is_all_that_exists_and_the_new_one_hx_34_hx_39() {
    let binding = binding(&json!({}));
    let known = [ingress("a", "x", "1"), ingress("b", "z", "3")];
    let new = ingress("b", "y", "2");
    let shown = show(
        &binding,
        &known,
        &proposal(Change::Added, Some(&new), "b", "y"),
    );
    assert_eq!(objects(&shown), [known[0].clone(), new, known[1].clone()]);
    assert_eq!(shown.proposed, Some((1, Mark::default())));
    assert_eq!(shown.removed, None);
}

#[test]
fn an_update_replaces_exactly_one_hx_35_hx_40() {
    let binding = binding(&json!({}));
    // The same name elsewhere is another object.
    let known = [ingress("a", "x", "1"), ingress("b", "x", "1")];
    let new = ingress("a", "x", "2");
    let shown = show(
        &binding,
        &known,
        &proposal(Change::Modified, Some(&new), "a", "x"),
    );
    assert_eq!(objects(&shown), [new, known[1].clone()]);
    assert_eq!(shown.proposed, Some((0, Mark::default())));
    assert_eq!(shown.removed, None);
}

#[test]
fn a_deletion_removes_hx_36() {
    let binding = binding(&json!({}));
    let known = [ingress("a", "x", "1"), ingress("b", "x", "1")];
    let shown = show(&binding, &known, &proposal(Change::Deleted, None, "b", "x"));
    assert_eq!(objects(&shown), [known[0].clone()]);
    assert_eq!(shown.proposed, None);
    assert_eq!(shown.removed, Some(("b".to_owned(), "x".to_owned())));
    let unknown = show(&binding, &known, &proposal(Change::Deleted, None, "b", "y"));
    assert_eq!((unknown.items.len(), unknown.removed), (2, None));
}

#[test]
fn another_kind_or_group_is_left_alone_hx_37_hx_41() {
    let binding = binding(&json!({}));
    let known = [ingress("a", "x", "1")];
    for (group, kind) in [("", "Ingress"), ("networking.k8s.io", "NetworkPolicy")] {
        let other = Proposal {
            group: group.to_owned(),
            kind: kind.to_owned(),
            ..proposal(Change::Deleted, None, "a", "x")
        };
        let shown = show(&binding, &known, &other);
        assert_eq!(objects(&shown), known);
        assert!(!shown.is_concerned);
    }
}

#[test]
fn selectors_judge_the_proposed_object() {
    let mut labelled = ingress("a", "x", "1");
    labelled["metadata"]["labels"] = json!({ "tier": "front" });
    labelled["spec"]["class"] = json!("public");
    let cases = [
        (
            json!({ "labelSelector": { "matchLabels": { "tier": "front" } } }),
            true,
        ),
        (
            json!({ "labelSelector": { "matchLabels": { "tier": "back" } } }),
            false,
        ),
        (
            json!({ "labelSelector": { "matchExpressions": [{ "key": "tier", "operator": "DoesNotExist" }] } }),
            false,
        ),
        (json!({ "nameSelector": { "matchNames": ["x"] } }), true),
        (json!({ "nameSelector": { "matchNames": ["y"] } }), false),
        (
            json!({ "namespace": { "nameSelector": { "matchNames": ["a"] } } }),
            true,
        ),
        (
            json!({ "namespace": { "nameSelector": { "matchNames": ["b"] } } }),
            false,
        ),
        (
            json!({ "namespace": { "labelSelector": { "matchLabels": { "any": "x" } } } }),
            false,
        ),
        (
            json!({ "fieldSelector": { "matchExpressions": [{ "field": "spec.class", "operator": "=", "value": "public" }] } }),
            true,
        ),
        (
            json!({ "fieldSelector": { "matchExpressions": [{ "field": "spec.class", "operator": "!=", "value": "public" }] } }),
            false,
        ),
        (
            json!({ "fieldSelector": { "matchExpressions": [{ "field": "spec.absent", "operator": "!=", "value": "x" }] } }),
            true,
        ),
        (
            json!({ "fieldSelector": { "matchExpressions": [{ "field": "metadata.name", "operator": "=", "value": "x" }] } }),
            true,
        ),
    ];
    for (selectors, expected) in cases {
        let binding = binding(&selectors);
        let shown = show(
            &binding,
            &[],
            &proposal(Change::Added, Some(&labelled), "a", "x"),
        );
        assert_eq!(shown.items.len(), usize::from(expected), "{selectors}");
    }
    let following =
        binding(&json!({ "namespace": { "labelSelector": { "matchLabels": { "any": "x" } } } }));
    let inside = ingress("followed", "x", "1");
    let shown = show(
        &following,
        &[],
        &proposal(Change::Added, Some(&inside), "followed", "x"),
    );
    assert_eq!(shown.items.len(), 1);
}

#[test]
fn an_update_out_of_the_selector_removes() {
    let binding = binding(&json!({ "labelSelector": { "matchLabels": { "tier": "front" } } }));
    let known = [ingress("a", "x", "1")];
    let moved = ingress("a", "x", "2");
    let shown = show(
        &binding,
        &known,
        &proposal(Change::Modified, Some(&moved), "a", "x"),
    );
    assert_eq!(shown.items.len(), 0);
    assert_eq!(shown.removed, Some(("a".to_owned(), "x".to_owned())));
}

#[test]
fn the_filter_runs_on_the_proposed_object_and_full_objects_are_dropped() {
    let keys = json!({ "jqFilter": ".spec.host", "keepFullObjectsInMemory": false });
    let binding = binding(&keys);
    let known = [ingress("a", "x", "1")];
    let new = ingress("a", "y", "2");
    let shown = show(
        &binding,
        &known,
        &proposal(Change::Added, Some(&new), "a", "y"),
    );
    let results: Vec<&[u8]> = shown
        .items
        .iter()
        .map(|item| item.filter_result.as_deref().unwrap())
        .collect();
    assert_eq!(results, [b"\"1\"", b"\"2\""]);
    assert!(shown.items.iter().all(|item| item.object.is_none()));
}

#[test]
fn a_filter_that_fails_is_told_without_the_object() {
    let binding = binding(&json!({ "jqFilter": ".spec.host | tonumber" }));
    let secret = ingress("a", "x", "hunter2");
    let unfit = try_show(
        &binding,
        &[],
        &proposal(Change::Added, Some(&secret), "a", "x"),
    );
    let text = unfit.err().unwrap().to_string();
    assert!(
        text.contains("jqFilter") && !text.contains("hunter2"),
        "{text}"
    );
    let broken = Proposal {
        object: Some(b"[]".as_slice().into()),
        ..proposal(Change::Added, None, "a", "x")
    };
    assert!(try_show(&binding, &[], &broken).is_err());
}

#[test]
fn a_name_that_is_still_to_be_made_replaces_nobody() {
    let binding = binding(&json!({}));
    let known = [ingress("a", "web", "1")];
    let new = json!({ "metadata": { "generateName": "web", "namespace": "a" }, "spec": {} });
    let shown = show(
        &binding,
        &known,
        &proposal(Change::Added, Some(&new), "a", ""),
    );
    assert_eq!(objects(&shown), [known[0].clone(), new]);
    let mark = Mark {
        generated: true,
        version_mismatch: false,
    };
    assert_eq!(shown.proposed, Some((1, mark)));
}

#[test]
fn another_version_of_the_kind_is_marked() {
    let binding = binding(&json!({}));
    let new = ingress("a", "x", "1");
    let older = Proposal {
        version: "v1beta1".to_owned(),
        ..proposal(Change::Added, Some(&new), "a", "x")
    };
    let shown = show(&binding, &[], &older);
    assert!(shown.proposed.unwrap().1.version_mismatch);
}

#[test]
fn a_cluster_scoped_object_has_no_namespace_whatever_the_request_says() {
    let binding = binding(&json!({}));
    let follows = |_: &str| false;
    let watched = Watched {
        binding: &binding,
        group: "networking.k8s.io",
        version: "v1",
        kind: "Ingress",
        namespaced: false,
        follows: &follows,
    };
    let known = stored(&binding, &[ingress("", "x", "1")]);
    let new = json!({ "metadata": { "name": "x" } });
    let update = proposal(Change::Modified, Some(&new), "x", "x");
    let shown = overlaid(known, &watched, &update).unwrap();
    assert_eq!(objects(&shown), [new]);
}

#[test]
fn the_store_keeps_what_it_has_hx_33_hx_38() {
    let binding = binding(&json!({}));
    let items = stored(&binding, &[ingress("a", "x", "1")]);
    let before = Arc::clone(items[0].1.object.as_ref().unwrap());
    let new = ingress("a", "y", "2");
    let follows = |_: &str| false;
    let watched = Watched {
        binding: &binding,
        group: "networking.k8s.io",
        version: "v1",
        kind: "Ingress",
        namespaced: true,
        follows: &follows,
    };
    let shown = overlaid(
        items.clone(),
        &watched,
        &proposal(Change::Added, Some(&new), "a", "y"),
    );
    // The same bytes and not a copy of them.
    assert!(Arc::ptr_eq(
        shown.unwrap().items[0].object.as_ref().unwrap(),
        &before
    ));
    assert_eq!(items.len(), 1);
}
