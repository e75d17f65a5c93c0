//! Very many operations from one run.

use std::time::Duration;

use serde_json::json;

use super::{Site, documents, is_failed_run};
use crate::support::Line;

/// Enough to see if memory grows with their number.
const COUNT: usize = 10_000;

/// Of every hundred documents one names an object that is not there.
#[test]
fn thousands_of_patches_take_little_memory_and_every_failure_is_named() {
    let mut site = Site::new("many");
    for variable in ["QPS", "BURST"] {
        let variable = format!("OBJECT_PATCHER_KUBE_CLIENT_{variable}");
        site.env = site.env.env(&variable, "100000");
    }
    site.create_map("there", &json!({}));
    // Documents of more than a kilobyte, so that a copy of all of them would be seen.
    let filler = "x".repeat(1000);
    let operations: Vec<_> = (0..COUNT)
        .map(|number| {
            let name = if number % 100 == 99 {
                "absent"
            } else {
                "there"
            };
            let data = json!({ "number": number.to_string(), "filler": filler });
            site.on(
                "MergePatch",
                name,
                &json!({ "mergePatch": { "data": data } }),
            )
        })
        .collect();
    site.hook_that(&documents(&operations), "");
    let operator = site.env.start();
    operator.wait_alive();
    let before = operator.rss_kib();
    let line = operator.wait_log_for("the failed run", Duration::from_secs(240), is_failed_run);
    let after = operator.rss_kib();
    let error = line.label("error").unwrap();
    assert!(error.starts_with("100 errors occurred:\n"), "{error}");
    assert!(error.contains("90 more, each in the log"), "{error}");
    let named = operator
        .log_lines()
        .iter()
        .filter(|line| {
            line.message() == "object operation failed" && line.label("name") == Some("absent")
        })
        .count();
    assert_eq!(named, COUNT / 100);
    let data = &site.map("there")["data"];
    assert_eq!(data["number"], (COUNT - 2).to_string());
    // The file has 12 MB and is held once.
    assert!(after < before + 24 * 1024, "{before} KiB, then {after} KiB");
}

/// A file that takes long says how far it has come, every ten seconds and at its end.
#[test]
fn the_progress_of_a_long_file_is_in_the_log() {
    let mut site = Site::new("progress");
    for variable in ["QPS", "BURST"] {
        let variable = format!("OBJECT_PATCHER_KUBE_CLIENT_{variable}");
        site.env = site.env.env(&variable, "1");
    }
    site.create_map("there", &json!({}));
    let merge = json!({ "mergePatch": { "data": { "x": "1" } } });
    let operations = vec![site.on("MergePatch", "there", &merge); 15];
    site.hook_that(&documents(&operations), "");
    let operator = site.env.start();
    let number = |line: &Line, label: &str| line.json.as_ref()?.get(label)?.as_u64();
    let message = "object operations are being carried out";
    let line = operator.wait_log_for("the progress", Duration::from_secs(60), |line| {
        line.message() == message
    });
    let done = number(&line, "done").unwrap();
    assert!((1..15).contains(&done), "{}", line.text);
    assert_eq!(number(&line, "failed"), Some(0), "{}", line.text);
    assert_eq!(number(&line, "total"), Some(15), "{}", line.text);
    assert_eq!(line.label("hook"), Some("change.sh"), "{}", line.text);
    let line = operator.wait_log_for("the end", Duration::from_secs(60), |line| {
        line.message() == "object operations are over"
    });
    assert_eq!(number(&line, "done"), Some(15), "{}", line.text);
}
