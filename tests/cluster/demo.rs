//! The README's first command, run as a newcomer would.

use std::process::Command;

use crate::support::repository;

#[test]
fn the_demo_tells_its_story_and_ends_well() {
    let output = Command::new(repository().join("scripts/demo"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    for line in [
        "denied the request: Deployment web has no owner",
        "Warning: container shell: image busybox has no fixed version",
        r#"{"limits":{"memory":"256Mi"},"requests":{"cpu":"50m","memory":"64Mi"}}"#,
        r#"web.example.com/v1 {"listen":{"host":"shop.example.com","port":443}}"#,
        "webhook configuration created",
    ] {
        assert!(told.contains(line), "{line}:\n{told}");
    }
}
