//! The hooks printed in `README.md` and `hooks/README.md` are complete: each is cut out of the text and run as a reader would.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{Workplace, config, hooks, run};
use crate::support::Env;

/// The fenced block behind `<!-- hook: name -->`, as a file in a directory that has our `lib` beside it.
fn printed(place: &Workplace, name: &str) -> PathBuf {
    printed_in(&hooks().join("README.md"), place, name)
}

fn printed_in(document: &Path, place: &Workplace, name: &str) -> PathBuf {
    let readme = std::fs::read_to_string(document).unwrap();
    let (_, rest) = readme
        .split_once(&format!("<!-- hook: {name} -->\n```"))
        .unwrap();
    let (_, rest) = rest.split_once('\n').unwrap();
    let (text, _) = rest.split_once("\n```\n").unwrap();
    std::os::unix::fs::symlink(hooks().join("lib"), place.0.join("lib")).unwrap();
    place.write(name, text)
}

/// The interpreter that the first line names, with the script.
fn command(script: &PathBuf) -> Command {
    let text = std::fs::read_to_string(script).unwrap();
    let line = text.lines().next().unwrap();
    let mut command = Command::new(match line {
        "#!/bin/sh" => "sh",
        "#!/usr/bin/env bash" => "bash",
        "#!/usr/bin/env python3" => "python3",
        other => panic!("{other}"),
    });
    command.arg(script);
    command
}

fn context(kind: &str, binding: &str, labels: &Value) -> String {
    let object = json!({ "metadata": { "name": "settings", "labels": labels } });
    let request = json!({ "operation": "CREATE", "object": object });
    json!([{ "binding": binding, "type": kind, "review": { "request": request } }]).to_string()
}

#[test]
fn the_two_printed_policies_decide_alike() {
    for name in ["require-team.sh", "require-team-framework.sh"] {
        let place = Workplace::new();
        let script = printed(&place, name);
        let binding = "require-team.policy.example.com";
        let printed = config(command(&script));
        assert_eq!(
            printed["kubernetesValidating"][0]["name"], binding,
            "{name}"
        );

        let ask = |labels: Value| {
            let context = context("Validating", binding, &labels);
            run(command(&script), &context).json()
        };
        let denied = json!({ "allowed": false, "message": "ConfigMap settings has no label team" });
        assert_eq!(ask(json!({})), denied, "{name}");
        assert_eq!(ask(Value::Null), denied, "{name}");
        assert_eq!(
            ask(json!({ "team": "a" })),
            json!({ "allowed": true }),
            "{name}"
        );
    }
}

#[test]
fn the_first_hook_of_the_readme_refuses_the_moving_tag() {
    let place = Workplace::new();
    let readme = hooks().join("../README.md");
    let script = printed_in(&readme, &place, "no-latest.sh");
    let binding = "no-latest.policy.example.com";
    let printed = config(command(&script));
    assert_eq!(printed["kubernetesValidating"][0]["name"], binding);

    let ask = |image: &str| {
        let spec = json!({ "containers": [{ "name": "web", "image": image }] });
        let request = json!({ "operation": "CREATE", "object": { "spec": spec } });
        let context =
            json!([{ "binding": binding, "type": "Validating", "review": { "request": request } }]);
        run(command(&script), &context.to_string()).json()
    };
    for image in ["web:1.4", "r.example.com:5000/web:1.4", "web@sha256:ab"] {
        assert_eq!(ask(image), json!({ "allowed": true }), "{image}");
    }
    for image in ["web", "web:latest", "r.example.com:5000/web"] {
        let denied = json!({ "allowed": false, "message": "no fixed version for web" });
        assert_eq!(ask(image), denied, "{image}");
    }
}

#[test]
fn the_printed_change_adds_the_label_only_where_it_is_missing() {
    let place = Workplace::new();
    let script = printed(&place, "default-team.py");
    let binding = "default-team.policy.example.com";
    assert_eq!(
        config(command(&script))["kubernetesMutating"][0]["name"],
        binding
    );
    let patch = |labels: Value| {
        let context = context("Mutating", binding, &labels);
        run(command(&script), &context).json()["patch"].clone()
    };
    assert_eq!(
        patch(Value::Null),
        json!([{ "op": "add", "path": "/metadata/labels", "value": { "team": "unassigned" } }])
    );
    assert_eq!(
        patch(json!({ "a": "b" })),
        json!([{ "op": "add", "path": "/metadata/labels/team", "value": "unassigned" }])
    );
    assert_eq!(patch(json!({ "team": "a" })), json!([]));
}

#[test]
fn the_printed_count_of_pods_is_a_metric_for_each_node() {
    let place = Workplace::new();
    let script = printed(&place, "count-pods.sh");
    assert_eq!(config(command(&script))["kubernetes"][0]["kind"], "Pod");
    let metrics = place.write("metrics.json", "");
    let recorded = |nodes: &[Value]| -> Vec<Value> {
        let pods: Vec<Value> = nodes
            .iter()
            .map(|node| json!({ "filterResult": node }))
            .collect();
        let context = json!([{ "binding": "pods", "snapshots": { "pods": pods } }]);
        let mut command = command(&script);
        let finished = run(
            {
                command.env("METRICS_PATH", &metrics);
                command
            },
            &context.to_string(),
        );
        assert_eq!(
            (finished.status, finished.stderr.as_str()),
            (Some(0), ""),
            "{finished:?}"
        );
        let text = std::fs::read_to_string(&metrics).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let pods = |node: &str, count: u32| json!({ "name": "pods", "set": count, "group": "pods", "labels": { "node": node } });
    assert_eq!(
        recorded(&[json!("b"), json!("a"), Value::Null, json!("b")]),
        [pods("a", 1), pods("b", 2)]
    );
    let gone = json!({ "action": "expire", "group": "pods" });
    assert_eq!(recorded(&[]), std::slice::from_ref(&gone));
    assert_eq!(recorded(&[Value::Null]), [gone]);
}

#[test]
fn the_printed_conversion_goes_both_ways_and_fails_with_a_message() {
    let place = Workplace::new();
    let script = printed(&place, "convert-crontabs.sh");
    let binding = &config(command(&script))["kubernetesCustomResourceConversion"][0];
    assert_eq!(binding["crdName"], "crontabs.stable.example.com");
    let object = |version: &str, spec: Value| {
        let meta = json!({ "name": "a", "labels": { "kept": "yes" } });
        json!({ "apiVersion": format!("stable.example.com/{version}"), "metadata": meta, "spec": spec })
    };
    let convert = |from: &str, to: &str, spec: Value| {
        let request = json!({ "objects": [object(from, spec)] });
        let context = json!([{
            "binding": "crontabs", "type": "Conversion", "fromVersion": from, "toVersion": to,
            "review": { "request": request },
        }]);
        run(command(&script), &context.to_string()).json()
    };
    let old = json!({ "crontab": "5 4 * * 1" });
    let new = json!({ "minute": "5", "hour": "4", "day": "*", "month": "*", "weekday": "1" });
    assert_eq!(
        convert("v1alpha1", "v1", old.clone()),
        json!({ "convertedObjects": [object("v1", new.clone())] })
    );
    assert_eq!(
        convert("v1", "v1alpha1", new),
        json!({ "convertedObjects": [object("v1alpha1", old)] })
    );
    assert_eq!(
        convert("v1alpha1", "v1", json!({ "crontab": "5 4" })),
        json!({ "failedMessage": "spec.crontab must have five fields" })
    );
}

#[test]
fn the_printed_hook_that_changes_objects_asks_for_one_in_each_namespace() {
    let place = Workplace::new();
    let script = printed(&place, "welcome.sh");
    assert_eq!(
        config(command(&script))["kubernetes"][0]["kind"],
        "Namespace"
    );
    let namespace = |name: &str| json!({ "object": { "metadata": { "name": name } } });
    let mut event = namespace("c");
    event["type"] = json!("Event");
    event["watchEvent"] = json!("Added");
    let contexts = json!([
        { "binding": "namespaces", "type": "Synchronization", "objects": [namespace("a"), namespace("b")] },
        event,
    ]);
    let operations = place.write("operations", "");
    let mut command = command(&script);
    command.env("KUBERNETES_PATCH_PATH", &operations);
    let finished = run(command, &contexts.to_string());
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
    let written = std::fs::read_to_string(&operations).unwrap();
    let written: Vec<Value> = serde_json::Deserializer::from_str(&written)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let asked: Vec<_> = written
        .iter()
        .map(|one| {
            (
                one["operation"].as_str(),
                one["object"]["metadata"]["namespace"].as_str(),
            )
        })
        .collect();
    let create = Some("CreateIfNotExists");
    assert_eq!(
        asked,
        [
            (create, Some("a")),
            (create, Some("b")),
            (create, Some("c"))
        ]
    );
    assert_eq!(written[2]["object"]["data"]["text"], "this is c");
}

#[test]
fn the_printed_hook_with_an_overlay_refuses_a_host_that_is_there_twice() {
    let place = Workplace::new();
    let script = printed(&place, "unique-hosts.sh");
    assert_eq!(
        config(command(&script))["kubernetesValidating"][0]["overlay"],
        true
    );
    let ingress =
        |name: &str, host: &str| json!({ "filterResult": { "name": name, "hosts": [host] } });
    let judge = |items: &[Value]| {
        let context = json!([{
            "binding": "unique-hosts.policy.example.com", "type": "Validating", "snapshots": { "ingresses": items },
        }]);
        run(command(&script), &context.to_string()).json()
    };
    let (one, two) = (ingress("one", "a.b"), ingress("two", "a.b"));
    assert_eq!(
        judge(&[one.clone(), ingress("two", "c.d")])["allowed"],
        true
    );
    assert_eq!(judge(&[one, two])["message"], "host a.b is in one and two");
}

#[test]
fn every_marked_hook_is_run_here_and_every_function_is_documented() {
    let readme = std::fs::read_to_string(hooks().join("README.md")).unwrap();
    assert_eq!(readme.matches("<!-- hook: ").count(), 8);

    let parts = hooks().join("lib/frameworks/shell");
    for entry in std::fs::read_dir(parts).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for function in text.lines().filter_map(|line| line.strip_suffix("() {")) {
            let internal = function.contains("::_");
            assert!(
                internal || readme.contains(&format!("`{function}")),
                "{function}"
            );
        }
    }

    let module = std::fs::read_to_string(hooks().join("lib/shell_operator.py")).unwrap();
    let functions = module.lines().filter_map(|line| line.strip_prefix("def "));
    for function in functions.filter_map(|line| line.split('(').next()) {
        let internal = function.starts_with('_');
        let documented = [format!("`{function}("), format!("`{function}`")];
        assert!(
            internal || documented.iter().any(|name| readme.contains(name)),
            "{function}"
        );
    }
}

#[test]
fn the_printed_summary_writes_an_object_and_a_metric_and_judges() {
    let place = Workplace::new();
    let script = printed(&place, "summary.py");
    let python = || {
        let mut command = command(&script);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    assert_eq!(config(python())["kubernetes"][0]["name"], "maps");
    let (objects, metrics) = (place.write("objects", ""), place.write("metrics", ""));
    let mut hook = python();
    hook.env("KUBERNETES_PATCH_PATH", &objects)
        .env("METRICS_PATH", &metrics);
    let snapshots = json!({ "maps": [{ "filterResult": "a" }, { "filterResult": "b" }] });
    let context = json!([{
        "binding": "maps", "type": "Event", "watchEvent": "Added", "filterResult": "b", "snapshots": snapshots,
    }]);
    let finished = run(hook, &context.to_string());
    assert_eq!((finished.status, finished.stderr.as_str()), (Some(0), ""));
    let line: Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(
        line,
        json!({ "level": "info", "msg": "summary written", "count": 2 })
    );
    let read = |path: &PathBuf| -> Value {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let written = read(&objects);
    assert_eq!(written["operation"], "CreateOrUpdate");
    assert_eq!(written["object"]["data"], json!({ "names": "a b" }));
    assert_eq!(read(&metrics)["value"], 2);

    let judge = |name: &str| {
        let request = json!({ "operation": "CREATE", "object": { "metadata": { "name": name } } });
        let context = json!([{
            "binding": "summary.policy.example.com", "type": "Validating", "review": { "request": request },
        }]);
        run(python(), &context.to_string()).json()["allowed"].clone()
    };
    assert_eq!((judge("summary"), judge("a")), (json!(false), json!(true)));
}

/// The fenced block behind `<!-- file: name -->`, written below the directory.
fn printed_file(env: &Env, name: &str) -> String {
    let readme = std::fs::read_to_string(hooks().join("README.md")).unwrap();
    let mark = format!("<!-- file: {name} -->\n```yaml\n");
    let (_, rest) = readme.split_once(&mark).unwrap();
    let (text, _) = rest.split_once("\n```\n").unwrap();
    env.write(name, format!("{text}\n"));
    text.to_owned()
}

#[test]
fn the_way_from_nothing_to_ci_leads_there() {
    let place = Workplace::new();
    let hook = std::fs::read_to_string(printed(&place, "require-team.sh")).unwrap();
    let env = Env::new().hook("require-team.sh", &hook);
    printed_file(&env, "manifests/shop.yaml");
    printed_file(&env, "hooks/require-team.tests.yaml");
    let workflow = printed_file(&env, ".github/workflows/policy.yaml");
    let workflow: Value = serde_saphyr::from_str(&workflow).unwrap();
    let steps = workflow["jobs"]["policy"]["steps"].as_array().unwrap();
    let commands = steps.iter().filter_map(|step| step["run"].as_str());
    let mut ran = Vec::new();
    for command in commands {
        let (program, file) = command.split_once(" >").unwrap_or((command, ""));
        let arguments: Vec<&str> = program.split(' ').skip(1).collect();
        let output = env.run(&arguments).ok();
        if !file.is_empty() {
            let log: Value = serde_json::from_str(&output).unwrap();
            assert_eq!(log["version"], "2.1.0");
        }
        ran.push(arguments[0].to_owned());
    }
    assert_eq!(ran, ["test", "review"]);
    // The manifest without its label is denied, as the page says.
    let text = std::fs::read_to_string(env.path().join("manifests/shop.yaml")).unwrap();
    env.write(
        "manifests/shop.yaml",
        text.replace("team: payments", "other: x"),
    );
    let denied = env.run(&["review", "--hooks-dir", "hooks", "-f", "manifests"]);
    assert_eq!(denied.code, Some(1), "{}", denied.all());
    assert!(
        denied
            .stdout
            .contains("ConfigMap settings has no label team"),
        "{}",
        denied.stdout
    );
}
