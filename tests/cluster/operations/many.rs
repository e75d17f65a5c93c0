//! Very many operations from one run.

use std::time::Duration;

use serde_json::json;

use super::{Site, documents, is_failed_run};

/// Enough to see if memory grows with their number; a run of ten thousand was measured by hand.
const COUNT: usize = 2000;

/// Of every hundred documents one names an object that is not there.
#[test]
fn thousands_of_patches_take_little_memory_and_every_failure_is_named() {
    let site = Site::new("many");
    site.create_map("there", &json!({}));
    // Documents of two kilobytes, so that a copy of all of them would be seen.
    let filler = "x".repeat(2000);
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
    let line = operator.wait_log_for("the failed run", Duration::from_secs(120), is_failed_run);
    let after = operator.rss_kib();
    let error = line.label("error").unwrap();
    assert!(error.starts_with("20 errors occurred:\n"), "{error}");
    assert!(error.contains("10 more, each in the log"), "{error}");
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
    // The file has 4 MB and is held once.
    assert!(after < before + 16 * 1024, "{before} KiB, then {after} KiB");
}
