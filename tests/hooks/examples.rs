//! Every example hook: what it prints for `--config`, and what it answers to requests of each sort. The texts are those
//! that the tests of Kubernetes look for, so the same files serve against a real API server.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use super::{Finished, config, hooks, run};

/// The example `name`, executed as the operator does it, with nothing configured.
fn example(name: &str) -> Command {
    let mut command = Command::new(hooks().join(name));
    for variable in [
        "AGNHOST_CUSTOM_GROUP",
        "AGNHOST_DELAY_FAILURE_POLICY",
        "AGNHOST_DELAY_SECONDS",
        "AGNHOST_DELAY_TIMEOUT",
        "AGNHOST_SELECTOR_LABEL",
        "AGNHOST_SIDECAR_IMAGE",
    ] {
        command.env_remove(variable);
    }
    command
}

/// Asks the binding `binding` of a hook about `request`.
fn ask(hook: Command, kind: &str, binding: &str, request: &Value) -> Finished {
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    run(
        hook,
        &format!(r#"[{{"binding":"{binding}","type":"{kind}","review":{review}}}]"#),
    )
}

/// The answer of `agnhost/<name>` through its first binding.
fn validate(name: &str, request: &Value) -> Value {
    let (stem, _) = name.split_once('.').unwrap();
    let binding = format!("{stem}.agnhost.example.com");
    let hook = example(&format!("agnhost/{name}"));
    ask(hook, "Validating", &binding, request).json()
}

/// Creates `object` through a mutating binding; returns the object as the API server would store it.
/// Asks again about the result, which must be left alone (AW-42).
fn mutate_once(hook: &dyn Fn() -> Command, binding: &str, object: &Value) -> Value {
    let changed = mutate(hook(), binding, object);
    assert_eq!(mutate(hook(), binding, &changed), changed, "{binding}");
    changed
}

fn mutate(hook: Command, binding: &str, object: &Value) -> Value {
    let request = json!({ "operation": "CREATE", "object": object, "oldObject": null });
    let answer = ask(hook, "Mutating", binding, &request).json();
    assert_eq!(answer["allowed"], true);
    let mut changed = object.clone();
    if let Some(patch) = answer.get("patch") {
        let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
        json_patch::patch(&mut changed, &patch).unwrap();
    }
    changed
}

fn allowed() -> Value {
    json!({ "allowed": true })
}

fn create(object: &Value) -> Value {
    json!({ "operation": "CREATE", "object": object, "oldObject": null })
}

fn pod(labels: &Value, container: &str) -> Value {
    json!({
        "operation": "CREATE",
        "resource": { "group": "", "version": "v1", "resource": "pods" },
        "object": { "metadata": { "name": "p", "labels": labels }, "spec": { "containers": [{ "name": container }] } },
    })
}

#[test]
fn every_example_is_listed_executable_commented_and_asks_only_who_opted_in() {
    let readme = std::fs::read_to_string(hooks().join("README.md")).unwrap();
    let mut names = BTreeSet::new();
    for directory in ["agnhost", "examples", "haproxy"] {
        for entry in std::fs::read_dir(hooks().join(directory)).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{directory}/{}", entry.file_name().into_string().unwrap());
            if name.ends_with(".yaml")
                || name.ends_with(".json")
                || entry.file_type().unwrap().is_dir()
            {
                continue;
            }
            assert_ne!(
                entry.metadata().unwrap().permissions().mode() & 0o111,
                0,
                "{name}"
            );
            let text = std::fs::read_to_string(entry.path()).unwrap();
            assert!(text.starts_with("#!/usr/bin/env "), "{name}");
            assert!(text.lines().nth(2).unwrap().starts_with("# "), "{name}");
            assert!(
                readme.contains(&format!("`{name}`")),
                "{name} is in no table"
            );

            let mut hook = example(&name);
            hook.env("AGNHOST_SELECTOR_LABEL", "policy.example.com/enforce");
            check_config(&name, &config(hook));
            names.insert(name);
        }
    }
    assert_eq!(names.len(), 17, "{names:?}");
}

fn check_config(hook: &str, config: &Value) {
    assert_eq!(config["configVersion"], "v1", "{hook}");
    let conversions = config["kubernetesCustomResourceConversion"].as_array();
    let mut bindings = conversions.map_or(0, Vec::len);
    for kind in ["kubernetesValidating", "kubernetesMutating"] {
        for binding in config[kind].as_array().into_iter().flatten() {
            bindings += 1;
            let name = binding["name"].as_str().unwrap();
            assert!(name.split('.').count() >= 3, "{hook}: {name}");
            let selectors = json!([binding["namespace"], binding["labelSelector"]]).to_string();
            assert!(
                selectors.contains("policy.example.com/enforce"),
                "{hook}: {selectors}"
            );
            for rule in binding["rules"].as_array().unwrap() {
                for list in ["apiGroups", "apiVersions", "resources", "operations"] {
                    assert!(!rule[list].as_array().unwrap().is_empty(), "{hook}: {list}");
                }
            }
        }
    }
    assert!(bindings > 0, "{hook}");
}

#[test]
fn settings_of_the_agnhost_hooks_reach_their_configuration() {
    let config_of = |name: &str, variables: &[(&str, &str)]| {
        let mut hook = example(name);
        hook.envs(variables.iter().copied());
        config(hook)
    };
    let plain = config_of("agnhost/always-allow-delay.sh", &[]);
    let binding = &plain["kubernetesValidating"][0];
    assert_eq!(binding["timeoutSeconds"], 10);
    assert_eq!(binding["failurePolicy"], "Fail");
    let selector = &binding["namespace"]["labelSelector"];
    assert_eq!(
        selector,
        &json!({ "matchLabels": { "webhook-e2e": "always-allow-delay" } })
    );

    let variables = [
        ("AGNHOST_DELAY_TIMEOUT", "1"),
        ("AGNHOST_DELAY_FAILURE_POLICY", "Ignore"),
    ];
    let changed = config_of("agnhost/always-allow-delay.sh", &variables);
    let binding = &changed["kubernetesValidating"][0];
    assert_eq!(
        (&binding["timeoutSeconds"], &binding["failurePolicy"]),
        (&json!(1), &json!("Ignore"))
    );

    for hook in [
        "agnhost/custom-resource.sh",
        "agnhost/mutate-custom-resource.sh",
    ] {
        let changed = config_of(hook, &[("AGNHOST_CUSTOM_GROUP", "test-1.example.com")]);
        assert!(
            changed
                .to_string()
                .contains(r#""apiGroups":["test-1.example.com"]"#)
        );
    }
}

#[test]
fn always_allow_delay_sleeps_and_allows_with_a_message_aw_69() {
    // A function of this name in the environment stands in for the command.
    let mut hook = example("agnhost/always-allow-delay.sh");
    hook.env("BASH_FUNC_sleep%%", "() { echo \"slept $1\"; }");
    let finished = ask(
        hook,
        "Validating",
        "always-allow-delay.agnhost.example.com",
        &json!({}),
    );
    assert_eq!(finished.stdout, "slept 5\n");
    let wanted =
        json!({ "allowed": true, "status": { "message": "this webhook allows all requests" } });
    assert_eq!(finished.json(), wanted);
}

#[test]
fn always_deny_denies_aw_70() {
    let wanted = json!({ "allowed": false, "message": "this webhook denies all requests" });
    assert_eq!(validate("always-deny.sh", &create(&json!({}))), wanted);
}

#[test]
fn pods_are_refused_for_every_reason_at_once_aw_71() {
    let bad = json!({ "webhook-e2e-test": "webhook-disallow" });
    let deny = |message: &str| json!({ "allowed": false, "message": message });
    let cases = [
        (pod(&json!({}), "fine"), allowed()),
        (pod(&Value::Null, "fine"), allowed()),
        (pod(&bad, "fine"), deny("the pod contains unwanted label")),
        (
            pod(&json!({}), "a-webhook-disallow-b"),
            deny("the pod contains unwanted container name"),
        ),
        (
            pod(&bad, "webhook-disallow"),
            deny("the pod contains unwanted label; the pod contains unwanted container name"),
        ),
        (
            json!({ "resource": { "group": "", "version": "v1", "resource": "secrets" } }),
            deny("expected core/v1 pods"),
        ),
    ];
    for (request, wanted) in cases {
        assert_eq!(validate("pods.sh", &request), wanted, "{request}");
    }
}

#[test]
fn a_pod_can_make_the_hook_wait_for_ever_aw_71() {
    let mut hook = example("agnhost/pods.sh");
    hook.env("BASH_FUNC_sleep%%", "() { echo \"slept $1\"; exit 7; }");
    let request = pod(&json!({ "webhook-e2e-test": "wait-forever" }), "fine");
    let finished = ask(hook, "Validating", "pods.agnhost.example.com", &request);
    assert_eq!(finished.stdout, "slept infinity\n");
    assert_eq!((finished.status, finished.answer.as_str()), (Some(7), ""));
}

#[test]
fn attaching_is_refused_for_one_pod_container_and_stream_aw_72() {
    let attach = |pod: &str, container: &str, stdin: Value| {
        let options = json!({ "kind": "PodAttachOptions", "container": container, "stdin": stdin });
        let request = json!({ "operation": "CONNECT", "subResource": "attach", "name": pod, "object": options });
        validate("pods-attach.sh", &request)
    };
    let message = "attaching to pod 'to-be-attached-pod' is not allowed";
    let denied = json!({ "allowed": false, "message": message });
    assert_eq!(
        attach("to-be-attached-pod", "container1", json!(true)),
        denied
    );
    assert_eq!(attach("another-pod", "container1", json!(true)), allowed());
    assert_eq!(
        attach("to-be-attached-pod", "container2", json!(true)),
        allowed()
    );
    assert_eq!(
        attach("to-be-attached-pod", "container1", Value::Null),
        allowed()
    );
}

#[test]
fn the_named_pod_gets_one_init_container_aw_73() {
    let hook = || example("agnhost/mutate-pods.sh");
    let object = |name: &str| json!({ "metadata": { "name": name }, "spec": { "containers": [] } });
    let binding = "mutate-pods.agnhost.example.com";
    let changed = mutate_once(&hook, binding, &object("webhook-to-be-mutated"));
    let added = &changed["spec"]["initContainers"];
    assert_eq!(added.as_array().unwrap().len(), 1);
    assert_eq!(added[0]["name"], "webhook-added-init-container");
    let other = object("another");
    assert_eq!(mutate_once(&hook, binding, &other), other);
}

#[test]
fn the_label_is_added_whatever_labels_there_are_aw_74() {
    for (before, after) in [
        (json!({}), json!({ "labels": { "added-label": "yes" } })),
        (
            json!({ "labels": {} }),
            json!({ "labels": { "added-label": "yes" } }),
        ),
        (
            json!({ "labels": { "a": "b" } }),
            json!({ "labels": { "a": "b", "added-label": "yes" } }),
        ),
        (
            json!({ "labels": { "added-label": "no" } }),
            json!({ "labels": { "added-label": "yes" } }),
        ),
    ] {
        let hook = || example("agnhost/add-label.sh");
        let object = json!({ "metadata": before });
        let changed = mutate_once(&hook, "add-label.agnhost.example.com", &object);
        assert_eq!(changed, json!({ "metadata": after }));
    }
}

#[test]
fn the_sidecar_needs_an_image_and_is_added_once_aw_74() {
    let binding = "mutate-pods-sidecar.agnhost.example.com";
    let object = json!({ "spec": { "containers": [{ "name": "web" }] } });
    let bare = example("agnhost/mutate-pods-sidecar.py");
    let answer = ask(bare, "Mutating", binding, &create(&object)).json();
    assert_eq!(
        (&answer["allowed"], &answer["status"]["code"]),
        (&json!(false), &json!(500))
    );

    let hook = || {
        let mut command = example("agnhost/mutate-pods-sidecar.py");
        command.env("AGNHOST_SIDECAR_IMAGE", "registry.example.com/sidecar:1");
        command
    };
    let changed = mutate_once(&hook, binding, &object);
    let sidecar = &changed["spec"]["containers"][1];
    assert_eq!(sidecar["name"], "webhook-added-sidecar");
    assert_eq!(sidecar["image"], "registry.example.com/sidecar:1");
}

#[test]
fn configmaps_are_refused_by_content_also_on_deletion_aw_74() {
    let bad = json!({ "data": { "webhook-e2e-test": "webhook-disallow" } });
    let good = json!({ "data": { "webhook-e2e-test": "fine" } });
    let reason = "the configmap contains unwanted key and value";
    let denied = json!({ "allowed": false, "status": { "reason": reason } });
    let ask = |operation: &str, object: &Value, old: &Value| {
        let request = json!({ "operation": operation, "object": object, "oldObject": old });
        validate("configmaps.py", &request)
    };
    assert_eq!(ask("CREATE", &bad, &Value::Null), denied);
    assert_eq!(ask("UPDATE", &bad, &good), denied);
    assert_eq!(ask("DELETE", &Value::Null, &bad), denied);
    assert_eq!(ask("UPDATE", &good, &bad), allowed());
    assert_eq!(ask("DELETE", &Value::Null, &good), allowed());
    assert_eq!(
        ask("CREATE", &json!({ "data": null }), &Value::Null),
        allowed()
    );
}

#[test]
fn two_webhooks_change_an_object_in_stages_aw_74() {
    for name in ["mutate-configmaps", "mutate-custom-resource"] {
        let hook = || example(&format!("agnhost/{name}.sh"));
        let stage = |number: u8, object: &Value| {
            let binding = format!("{name}-stage-{number}.agnhost.example.com");
            mutate(hook(), &binding, object)
        };
        let other = json!({ "data": { "a": "b" } });
        assert_eq!(stage(1, &other), other);
        let first = stage(1, &json!({ "data": { "mutation-start": "yes" } }));
        assert_eq!(
            first["data"],
            json!({ "mutation-start": "yes", "mutation-stage-1": "yes" })
        );
        let second = stage(2, &first);
        assert_eq!(
            second["data"],
            json!({ "mutation-start": "yes", "mutation-stage-1": "yes", "mutation-stage-2": "yes" })
        );
        assert_eq!(stage(2, &second), second);
    }
}

#[test]
fn custom_resources_are_refused_by_content_and_kept_from_deletion_aw_74() {
    let holding = |value: &str| json!({ "data": { "webhook-e2e-test": value } });
    let deny = |reason: &str| json!({ "allowed": false, "status": { "reason": reason } });
    let unwanted = deny("the custom resource contains unwanted data");
    let kept =
        deny("the custom resource cannot be deleted because it contains unwanted key and value");
    for (operation, value, wanted) in [
        ("CREATE", "webhook-disallow", &unwanted),
        ("UPDATE", "webhook-disallow", &unwanted),
        ("DELETE", "webhook-disallow", &allowed()),
        ("CREATE", "webhook-nondeletable", &allowed()),
        ("DELETE", "webhook-nondeletable", &kept),
        ("DELETE", "webhook-allow", &allowed()),
    ] {
        let (object, old) = match operation {
            "DELETE" => (Value::Null, holding(value)),
            _ => (holding(value), Value::Null),
        };
        let request = json!({ "operation": operation, "object": object, "oldObject": old });
        assert_eq!(
            &validate("custom-resource.sh", &request),
            wanted,
            "{request}"
        );
    }
    // Nothing is known about the resource, so its data may be anything or absent.
    for object in [json!({}), json!({ "data": "text" }), json!({ "data": [] })] {
        assert_eq!(validate("custom-resource.sh", &create(&object)), allowed());
    }
}

#[test]
fn definitions_are_refused_by_label_aw_74() {
    let labelled = |labels: Value| create(&json!({ "metadata": { "labels": labels } }));
    let denied = json!({ "allowed": false, "message": "the crd contains unwanted label" });
    let bad = labelled(json!({ "webhook-e2e-test": "webhook-disallow" }));
    assert_eq!(validate("crd.sh", &bad), denied);
    assert_eq!(
        validate("crd.sh", &labelled(json!({ "a": "b" }))),
        allowed()
    );
    assert_eq!(
        validate("crd.sh", &create(&json!({ "metadata": {} }))),
        allowed()
    );
}

#[test]
fn require_owner_tells_what_to_write() {
    let ask_about = |labels: Value| {
        let object =
            json!({ "kind": "Deployment", "metadata": { "name": "web", "labels": labels } });
        let hook = example("examples/require-owner.sh");
        ask(
            hook,
            "Validating",
            "require-owner.policy.example.com",
            &create(&object),
        )
        .json()
    };
    let message = "Deployment web has no owner: set metadata.labels.owner to the team that runs it, \
                   for example 'owner: payments'";
    let denied = json!({ "allowed": false, "message": message });
    assert_eq!(ask_about(json!({ "app": "web" })), denied);
    assert_eq!(ask_about(json!({ "owner": "" })), denied);
    assert_eq!(ask_about(Value::Null), denied);
    assert_eq!(ask_about(json!({ "owner": "payments" })), allowed());
}

#[test]
fn warn_latest_tag_knows_registries_with_ports_and_digests() {
    let warnings = |object: &Value| {
        let hook = example("examples/warn-latest-tag.sh");
        let binding = "warn-latest-tag.policy.example.com";
        let answer = ask(hook, "Validating", binding, &create(object)).json();
        assert_eq!(answer["allowed"], true);
        answer["warnings"].clone()
    };
    let containers = json!([
        { "name": "a", "image": "nginx" },
        { "name": "b", "image": "nginx:latest" },
        { "name": "c", "image": "localhost:5000/nginx" },
        { "name": "d", "image": "localhost:5000/nginx:1.27" },
        { "name": "e", "image": "nginx@sha256:0123" },
    ]);
    let wanted = json!([
        "container a: image nginx has no fixed version",
        "container b: image nginx:latest has no fixed version",
        "container c: image localhost:5000/nginx has no fixed version",
    ]);
    let pod = json!({ "spec": { "containers": containers } });
    assert_eq!(warnings(&pod), wanted);
    assert_eq!(warnings(&json!({ "spec": { "template": pod } })), wanted);
    let tagged = json!([{ "name": "a", "image": "nginx:1" }]);
    assert_eq!(
        warnings(&json!({ "spec": { "containers": tagged } })),
        json!([])
    );
}

#[test]
fn default_resources_fill_gaps_and_leave_choices_alone() {
    let hook = || example("examples/default-resources.py");
    let complete = |resources: Value| {
        let object = json!({ "spec": { "containers": [{ "name": "a", "resources": resources }] } });
        let changed = mutate_once(&hook, "default-resources.policy.example.com", &object);
        changed["spec"]["containers"][0]["resources"].clone()
    };
    let defaults =
        json!({ "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "256Mi" } });
    assert_eq!(complete(Value::Null), defaults);
    assert_eq!(complete(json!({})), defaults);
    assert_eq!(
        complete(json!({ "requests": { "memory": "1Gi" } })),
        json!({ "requests": { "cpu": "50m", "memory": "1Gi" } })
    );
    let chosen =
        json!({ "requests": { "cpu": "1", "memory": "1Gi" }, "limits": { "memory": "1Gi" } });
    assert_eq!(complete(chosen.clone()), chosen);
}

/// Both directions of every step, and the hook's own words about what it cannot convert.
#[test]
fn sites_are_converted_to_the_next_version_and_back() {
    let specs = [
        ("v1alpha1", json!({ "address": "shop.example.com:443" })),
        (
            "v1beta1",
            json!({ "host": "shop.example.com", "port": "443" }),
        ),
        (
            "v1",
            json!({ "listen": { "host": "shop.example.com", "port": 443 } }),
        ),
    ];
    let object = |version: &str, spec: &Value| {
        let meta = json!({ "name": "shop", "namespace": "n", "uid": "u" });
        json!({
            "apiVersion": format!("web.example.com/{version}"), "kind": "Site", "metadata": meta, "spec": spec,
        })
    };
    let convert = |from: &str, to: &str, spec: &Value| {
        let request = json!({ "uid": "u", "objects": [object(from, spec), object(from, spec)] });
        let context = json!([{
            "binding": "sites", "type": "Conversion", "fromVersion": from, "toVersion": to,
            "review": { "request": request },
        }]);
        run(example("examples/convert-sites.sh"), &context.to_string()).json()
    };
    for pair in specs.windows(2) {
        let ((low, low_spec), (high, high_spec)) = (&pair[0], &pair[1]);
        let (lower, higher) = (object(low, low_spec), object(high, high_spec));
        let up = convert(low, high, low_spec);
        assert_eq!(up, json!({ "convertedObjects": [higher, higher] }));
        let down = convert(high, low, high_spec);
        assert_eq!(down, json!({ "convertedObjects": [lower, lower] }));
    }
    let failed = convert("v1alpha1", "v1beta1", &json!({ "address": "say \"no\"" }));
    assert_eq!(
        failed,
        json!({ "failedMessage": "spec.address must be a host and a port, such as shop.example.com:443, and not \"say \"no\"\"" })
    );
}
