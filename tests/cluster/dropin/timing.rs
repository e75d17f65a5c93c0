//! Examples 103 and 220: schedules with five and six fields, and a hook that must not run too often.

use std::time::Duration;

use serde_json::json;

use super::watching::{create_crontab, make_crontabs};
use super::{Layout, Scenario, in_both_layouts, said, wait_said};
use crate::support::{SOON, wait_for};

in_both_layouts!(schedule, execution_rate);

/// A minute and some air.
const MINUTE: Duration = Duration::from_secs(80);

/// 103: two named schedules, each with its own sort of crontab.
fn schedule(layout: Layout) {
    let scenario = Scenario::new("103-schedule", layout);
    let operator = scenario.start();
    let line = wait_said(&operator, "clock.sh", "tick Schedule: every two seconds");
    assert_eq!(line.label("binding"), Some("every two seconds"));
    let minute = "tick Schedule: every minute";
    let line = operator.wait_log_for(minute, MINUTE, |line| {
        line.message() == minute && line.label("output") == Some("stdout")
    });
    assert_eq!(line.label("queue"), Some("minutes"));
    wait_for("two more short ticks", SOON, || {
        said(&operator, "clock.sh").len() >= 4
    });
}

/// How far apart the hook of 220 asks its runs to be, and what a clock may be off.
const INTERVAL: f64 = 2.0;
const TOLERANCE: f64 = 0.1;

/// 220: a burst of changes is a few runs, two seconds apart, with all of them. The hook asks for a version that the CRD gets only
/// later: until then it waits.
fn execution_rate(layout: Layout) {
    let scenario = Scenario::new("220-execution-rate", layout);
    let journal = scenario.env.path().join("journal");
    let scenario = scenario.env("SLOWLY_JOURNAL", &journal.to_string_lossy());
    make_crontabs(&scenario, "v1beta1");
    let operator = scenario.env.start();
    let group = format!("{}.example.com", scenario.namespace.name);
    operator.wait_log("the refusal", |line| {
        line.contains(&format!("{group}/v1")) && line.label("level") != Some("info")
    });
    serve_both_versions(&scenario, &format!("crontabs.{group}"));
    operator.wait_ready_for(MINUTE);
    wait_said(&operator, "slowly.sh", "run: crontabs 1 Synchronization");

    let name = &scenario.namespace.name;
    let crontabs = format!("/apis/{group}/v1/namespaces/{name}/crontabs");
    for number in 0..10 {
        create_crontab(&scenario, &crontabs, &format!("c{number}"), "* * * * *");
    }
    let told = || -> u32 {
        let lines = said(&operator, "slowly.sh");
        let added = lines.iter().filter_map(|line| {
            line.strip_prefix("run: crontabs ")?
                .strip_suffix(" Added")?
                .parse::<u32>()
                .ok()
        });
        added.sum()
    };
    wait_for("all ten", SOON, || told() == 10);
    let text = std::fs::read_to_string(&journal).unwrap();
    let times: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert!(
        times.len() <= 5,
        "ten changes and a start made {} runs",
        times.len()
    );
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] > INTERVAL - TOLERANCE, "{times:?}");
    }
}

/// Gives the CRD the version that the hook asks for.
fn serve_both_versions(scenario: &Scenario, crd: &str) {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}");
    let versions = scenario.api.object(&path)["spec"]["versions"].clone();
    let mut second = versions[0].clone();
    second["name"] = json!("v1");
    second["storage"] = json!(false);
    let patch = json!({ "spec": { "versions": [versions[0], second] } });
    scenario.change(&path, &patch);
}
