//! The Python module behind the real binary: what a hook says through it is what the user and the log get.

use serde_json::json;

use super::{Layout, Scenario, in_both_layouts, install, metric, wait_said};
use crate::support::stage::{config_map, message};
use crate::support::{SOON, Stage, wait_for};

in_both_layouts!(answers, operations);

fn answers(layout: Layout) {
    let stage = Stage::new("python").env("PYTHONDONTWRITEBYTECODE", "1");
    install(&stage.env, "300-python-module", layout);
    let operator = stage.start();
    let line = wait_said(&operator, "every-answer.py", "python is there");
    assert_eq!(line.label("level"), Some("warn"));
    assert_eq!(line.label("hook_binding_name"), Some("onStartup"));

    let denied = stage.create("denied", &json!({}));
    assert_eq!(denied.status, 403);
    let text = message(&denied);
    assert!(
        text.ends_with("denied the request: the name says it: denied"),
        "{text}"
    );
    let teapot = stage.create("teapot", &json!({}));
    assert_eq!(teapot.status, 418, "{}", teapot.text());
    assert!(message(&teapot).ends_with("short and stout"));
    let broken = stage.create("broken", &json!({}));
    assert_eq!(broken.status, 500, "{}", broken.text());
    wait_said(
        &operator,
        "every-answer.py",
        "RuntimeError: this hook is broken",
    );

    let warned = stage.kubectl_create("warned");
    assert!(
        warned.stderr.contains("Warning: be careful\n"),
        "{}",
        warned.stderr
    );
    assert!(warned.stderr.contains("Warning: be very careful\n"));
    warned.ok();
    let allowed = stage.create("allowed", &json!({}));
    assert_eq!(allowed.status, 201, "{}", allowed.text());
    assert_eq!(
        allowed.json()["metadata"]["labels"],
        json!({ "seen-by": "python" })
    );
}

fn operations(layout: Layout) {
    let scenario =
        Scenario::new("301-python-operations", layout).env("PYTHONDONTWRITEBYTECODE", "1");
    let maps = scenario.path("configmaps");
    for name in [
        "kept",
        "away",
        "away-later",
        "merged",
        "patched",
        "filtered",
    ] {
        scenario.create(&maps, &config_map(name, &json!({ "old": "yes" })));
    }
    let operator = scenario.start();
    let hook = "every-operation.py";
    wait_said(&operator, hook, "waiting");
    scenario.create(&maps, &config_map("go", &json!({ "old": "yes" })));
    wait_said(&operator, hook, "done");
    // There is no controller that would finish a deletion in the foreground.
    let away = format!("{maps}/away");
    wait_for("the deletion", SOON, || {
        let answer = scenario.api.get(&away);
        answer.json()["metadata"]["deletionTimestamp"].is_string()
    });
    scenario.change(&away, &json!({ "metadata": { "finalizers": null } }));

    let wanted = [
        ("created", json!({ "by": "create" })),
        ("kept", json!({ "old": "yes" })),
        ("go", json!({ "by": "create_or_update" })),
        ("applied", json!({ "by": "apply" })),
        ("merged", json!({ "by": "merge_patch" })),
        ("patched", json!({ "by": "json_patch" })),
        ("filtered", json!({ "by": "jq_patch" })),
    ];
    for (name, data) in wanted {
        let path = format!("{maps}/{name}");
        wait_for(&format!("{name} to be {data}"), SOON, || {
            let answer = scenario.api.get(&path);
            answer.status == 200 && answer.json()["data"] == data
        });
    }
    for name in ["away", "away-later", "nobody"] {
        let path = format!("{maps}/{name}");
        wait_for(&format!("{name} to be gone"), SOON, || {
            scenario.api.get(&path).status == 404
        });
    }
    let applied = scenario.api.object(&format!("{maps}/applied"));
    assert_eq!(
        applied["metadata"]["managedFields"][0]["manager"],
        "python-hook"
    );

    let of_hook = format!("hook=\"{hook}\"");
    let read =
        |name: &str, label: &str| metric(&operator, "/metrics/hooks", name, &[&of_hook, label]);
    wait_for("the metrics", SOON, || {
        read("python_counter", "") == Some(3.0)
    });
    assert_eq!(read("python_gauge", "number=\"1\""), Some(2.5));
    assert_eq!(read("python_histogram_bucket", "le=\"0.1\""), Some(0.0));
    assert_eq!(read("python_histogram_bucket", "le=\"1\""), Some(1.0));
    assert_eq!(read("python_histogram_sum", ""), Some(0.5));
}
