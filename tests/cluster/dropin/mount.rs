//! A hooks directory that is a mounted ConfigMap, which changes while the operator runs.

use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use serde_json::json;

use super::{HookFile, Layout, Scenario, mount, said, wait_said};
use crate::support::stage::script;
use crate::support::{Operator, SOON};

/// The hook of one version of the map. About the ConfigMap `slow` it waits for a file.
fn watching(scenario: &Scenario, version: &str) -> HookFile {
    let config = json!({
        "configVersion": "v1",
        "kubernetes": [{
            "name": "maps", "apiVersion": "v1", "kind": "ConfigMap", "executeHookOnEvent": ["Added"],
            "labelSelector": { "matchLabels": { "part": "mount" } },
            "namespace": { "nameSelector": { "matchNames": [scenario.namespace.name] } },
        }],
    });
    let body = format!(
        "name=$(jq -r '.[0].object.metadata.name' \"$BINDING_CONTEXT_PATH\")\n\
         echo \"{version}: $name\"\n\
         [ \"$name\" != slow ] || while [ ! -e '{}' ]; do sleep 0.05; done\n\
         echo \"{version}: $name is done\"",
        scenario.env.path().join("go").display()
    );
    hook("watch.sh", &script(&config, &body))
}

/// A hook that says a word when it is started.
fn greeting() -> HookFile {
    let config = json!({ "configVersion": "v1", "onStartup": 1 });
    hook("sub/new.sh", &script(&config, "echo 'new: started'"))
}

fn hook(name: &str, text: &str) -> HookFile {
    HookFile {
        name: name.to_owned(),
        text: text.to_owned(),
        executable: true,
    }
}

fn create(scenario: &Scenario, name: &str) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "labels": { "part": "mount" } },
    });
    scenario.create(&scenario.path("configmaps"), &map);
}

fn loaded(operator: &Operator) -> Vec<String> {
    let lines = operator.log_lines();
    let loaded = lines
        .iter()
        .filter(|line| line.message() == "Loaded config");
    loaded
        .filter_map(|line| line.label("hook").map(str::to_owned))
        .collect()
}

#[test]
fn a_swapped_map_disturbs_no_run_and_a_restart_takes_its_hooks() {
    let scenario = Scenario::new("001-startup-shell", Layout::Mounted);
    let first = [watching(&scenario, "one")];
    mount(&scenario.env, "..2026_11_17_10_00_00.1", &first);
    let mut operator = scenario.start();
    assert_eq!(loaded(&operator), ["watch.sh"]);
    create(&scenario, "a");
    wait_said(&operator, "watch.sh", "one: a is done");

    // A run is in the middle of a file that goes away.
    create(&scenario, "slow");
    wait_said(&operator, "watch.sh", "one: slow");
    let second = [watching(&scenario, "two"), greeting()];
    mount(&scenario.env, "..2026_11_17_10_05_00.2", &second);
    scenario.env.write("go", "");
    wait_said(&operator, "watch.sh", "one: slow is done");

    // The hook goes on with the bindings it had and with the text that is there now; the new one is not known yet.
    create(&scenario, "b");
    wait_said(&operator, "watch.sh", "two: b is done");
    assert_eq!(loaded(&operator), ["watch.sh"]);
    assert_eq!(said(&operator, "sub/new.sh"), [""; 0]);
    operator.term();
    assert_eq!(operator.wait_exit(SOON).into_raw(), 0);

    let operator = scenario.start();
    assert_eq!(loaded(&operator), ["sub/new.sh", "watch.sh"]);
    wait_said(&operator, "sub/new.sh", "new: started");
    create(&scenario, "c");
    wait_said(&operator, "watch.sh", "two: c is done");
}

#[test]
fn a_hup_takes_the_hooks_of_a_swapped_map_if_they_are_good() {
    let scenario = Scenario::new("001-startup-shell", Layout::Mounted);
    let first = [watching(&scenario, "one")];
    mount(&scenario.env, "..2026_11_17_11_00_00.1", &first);
    let operator = scenario.start();
    create(&scenario, "a");
    wait_said(&operator, "watch.sh", "one: a is done");

    let second = [watching(&scenario, "two"), greeting()];
    mount(&scenario.env, "..2026_11_17_11_05_00.2", &second);
    operator.signal(Signal::HUP);
    wait_said(&operator, "sub/new.sh", "new: started");
    operator.wait_ready();
    create(&scenario, "b");
    wait_said(&operator, "watch.sh", "two: b is done");

    // Hooks that cannot be used change nothing.
    let broken = hook("broken.sh", "#!/bin/sh\nexit 1\n");
    let third = [watching(&scenario, "three"), greeting(), broken];
    mount(&scenario.env, "..2026_11_17_11_10_00.3", &third);
    operator.signal(Signal::HUP);
    operator.wait_log("the refusal", |line| {
        line.label("level") == Some("error") && line.contains("broken.sh")
    });
    create(&scenario, "c");
    wait_said(&operator, "watch.sh", "three: c is done");
}
