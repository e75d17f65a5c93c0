//! The Python module behind the real binary: what a hook says through it is what the user and the log get.

use serde_json::json;

use super::{Layout, in_both_layouts, install, wait_said};
use crate::support::Stage;
use crate::support::stage::message;

in_both_layouts!(answers);

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
