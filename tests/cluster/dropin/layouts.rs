//! Examples 001, 002, 003, 200, 201 and 202: hooks called at the start, in shell and in Python, from directories of every shape
//! and from an image of somebody's own.

use serde_json::json;

use super::{HookFile, Layout, Scenario, fixture, in_both_layouts, metric, mount, said, wait_said};
use crate::support::{ControlPlane, Env, SOON, repository, wait_for};

in_both_layouts!(
    startup_shell,
    startup_python,
    common_library,
    advanced,
    helm_chart,
    repack_build
);

/// 001: `onStartup` with a `--config` branch written by hand.
fn startup_shell(layout: Layout) {
    let scenario = Scenario::new("001-startup-shell", layout);
    let operator = scenario.start();
    let line = wait_said(
        &operator,
        "hello.sh",
        "hello from a shell hook, called for onStartup",
    );
    assert_eq!(line.label("level"), Some("info"));
    assert_eq!(line.label("binding"), Some("onStartup"));
    assert_eq!(line.label("output"), Some("stdout"));
    for message in ["Execute hook", "Hook executed successfully"] {
        operator.wait_log(message, |line| {
            line.message() == message && line.label("hook") == Some("hello.sh")
        });
    }
    let runs = metric(
        &operator,
        "/metrics",
        "shell_operator_hook_run_success_total",
        &["hook=\"hello.sh\""],
    );
    assert_eq!(runs, Some(1.0));
}

/// 002: the same in Python, with a package that the image brings.
fn startup_python(layout: Layout) {
    let packages = fixture("002-startup-python").join("packages");
    let scenario = Scenario::new("002-startup-python", layout)
        .env("PYTHONPATH", &packages.to_string_lossy())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let operator = scenario.start();
    wait_said(
        &operator,
        "hello.py",
        "hello from a python hook, called for onStartup",
    );
}

/// 003: a file that hooks source lies among them. It is no hook, and the log says why.
fn common_library(layout: Layout) {
    let scenario = Scenario::new("003-common-library", layout);
    let operator = scenario.start();
    wait_said(
        &operator,
        "uses-library.sh",
        "the library was called by uses-library.sh",
    );
    let warning = operator.wait_log("the warning", |line| line.message() == "file is skipped");
    assert!(
        warning
            .label("path")
            .unwrap()
            .ends_with("hooks/common/functions.sh")
    );
    assert!(warning.label("error").unwrap().contains("chmod +x"));
    assert_eq!(loaded(&operator), ["uses-library.sh"]);
}

/// 200: nested directories, order, several kinds of bindings in one directory, with the rights of a Deployment's account.
fn advanced(layout: Layout) {
    let mut scenario = Scenario::new("200-advanced", layout);
    let rules = json!([{
        "apiGroups": [""], "resources": ["configmaps", "serviceaccounts"],
        "verbs": ["get", "list", "watch"],
    }]);
    let token = scenario.namespace.service_account("operator", &rules);
    let account = ControlPlane::shared().cluster().token(&token);
    scenario.env = scenario.env.clone().kubeconfig(&account);
    let map = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "labels": { "part": "advanced" } },
        })
    };
    scenario.create(&scenario.path("configmaps"), &map("old"));
    let operator = scenario.start();
    assert_eq!(
        loaded(&operator),
        [
            "001-startup/20-second.py",
            "001-startup/90-first.sh",
            "002-watch/maps/group.sh",
            "003-queue/apart.sh",
        ]
    );
    let lines = operator.log_lines();
    let at = |text: &str| {
        lines
            .iter()
            .position(|line| line.message() == text)
            .unwrap()
    };
    assert!(at("startup: first") < at("startup: second"));
    let (group, apart) = ("002-watch/maps/group.sh", "003-queue/apart.sh");
    wait_said(&operator, group, "state: 1 maps, accounts []");
    wait_said(&operator, apart, "apart: synchronization");

    scenario.create(&scenario.path("configmaps"), &map("new"));
    wait_said(&operator, apart, "apart: new is there");
    wait_said(&operator, group, "state: 2 maps, accounts []");
    let labels = json!({ "metadata": { "labels": { "part": "advanced" } } });
    scenario.change(&scenario.path("serviceaccounts/operator"), &labels);
    wait_said(&operator, group, r#"state: 2 maps, accounts ["operator"]"#);
    scenario.delete(&scenario.path("configmaps/new"));
    wait_said(&operator, apart, "apart: new is gone");
    wait_said(&operator, group, r#"state: 1 maps, accounts ["operator"]"#);
    // The schedule of the group finds the same state, without any change.
    let last = r#"state: 1 maps, accounts ["operator"]"#;
    wait_for("the schedule of the group", SOON, || {
        said(&operator, group)
            .iter()
            .filter(|line| *line == last)
            .count()
            >= 2
    });
}

/// 201: the stock image with hooks from a ConfigMap, whose mode is 0777.
fn helm_chart(layout: Layout) {
    let scenario = Scenario::new("201-install-with-helm-chart", layout);
    if layout == Layout::Mounted {
        remount_from_the_cluster(&scenario);
    }
    let operator = scenario.start();
    wait_said(&operator, "from-configmap.sh", "started from a mounted map");
    wait_said(&operator, "from-configmap.sh", "tick from a mounted map");
    assert_eq!(loaded(&operator), ["from-configmap.sh"]);
}

/// Sends the hook through a real ConfigMap and mounts what comes back.
fn remount_from_the_cluster(scenario: &Scenario) {
    let name = "from-configmap.sh";
    let text = std::fs::read_to_string(scenario.env.hooks_dir().join(name)).unwrap();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "hooks" },
        "data": { name: text },
    });
    scenario.create(&scenario.path("configmaps"), &map);
    let stored = scenario.api.object(&scenario.path("configmaps/hooks"));
    let file = HookFile {
        name: name.to_owned(),
        text: stored["data"][name].as_str().unwrap().to_owned(),
        executable: true,
    };
    mount(&scenario.env, "..2026_11_17_09_31_00.2", &[file]);
}

/// 202: binary and framework copied into an image of the user's own, with a library of theirs.
fn repack_build(layout: Layout) {
    let scenario = Scenario::new("202-repack-build", layout);
    let image = scenario.env.path().join("image");
    let copy = |from: &std::path::Path, to: &str| {
        let to = image.join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    };
    let library = repository().join("hooks/lib");
    copy(&library.join("shell_lib.sh"), "shell_lib.sh");
    for part in ["answer.sh", "context.sh", "hook.sh"] {
        let path = format!("frameworks/shell/{part}");
        copy(&library.join(&path), &path);
    }
    let house = fixture("202-repack-build").join("frameworks/house.sh");
    copy(&house, "frameworks/shell/house.sh");
    let binary = env!("CARGO_BIN_EXE_shell-operator");
    std::os::unix::fs::symlink(binary, image.join("shell-operator")).unwrap();

    let scenario = scenario.env("FRAMEWORK_DIR", &image.to_string_lossy());
    let program = image.join("shell-operator");
    let operator = started(&scenario.env, &program.to_string_lossy());
    wait_said(
        &operator,
        "repacked.sh",
        "repacked, with a library of the house",
    );
}

fn started(env: &Env, program: &str) -> crate::support::Operator {
    let operator = env.spawn_program(program, &["start"]);
    operator.wait_ready();
    operator
}

/// The hooks in the order in which they were loaded.
fn loaded(operator: &crate::support::Operator) -> Vec<String> {
    let lines = operator.log_lines();
    lines
        .iter()
        .filter(|line| line.message() == "Loaded config")
        .filter_map(|line| line.label("hook").map(str::to_owned))
        .collect()
}
