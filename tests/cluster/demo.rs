//! The README's first command, and its way to try a hook of one's own, run as a newcomer would.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::support::{Loopback, TempDir, repository};

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

/// Ends the control plane, whatever became of the test.
struct Played(String);

impl Drop for Played {
    fn drop(&mut self) {
        let mut down = Command::new(repository().join("scripts/control-plane"));
        down.args(["down", "--kill", "--purge", &self.0]);
        let _ = down.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// The block behind `marker` in the README.
fn block(marker: &str) -> String {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, rest) = readme.split_once(&format!("{marker}\n```sh\n")).unwrap();
    rest.split_once("\n```\n").unwrap().0.to_owned()
}

#[test]
fn a_hook_of_ones_own_is_tried_as_the_readme_says() {
    let place = TempDir::new();
    let hooks = place.path().join("my-hooks");
    std::fs::create_dir(&hooks).unwrap();
    let hook = hooks.join("no-latest.sh");
    std::fs::write(&hook, block("<!-- hook: no-latest.sh -->")).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let plane = place.path().join("plane").display().to_string();
    let loopback = Loopback::new();
    // What differs from the README is where it happens, and that the binary of the tests is taken.
    let script = block("<!-- run: trying -->")
        .replace("cargo build --release\n", "")
        .replace(
            "target/release/shell-operator",
            env!("CARGO_BIN_EXE_shell-operator"),
        )
        .replace("my-hooks", &hooks.display().to_string())
        .replace("127.0.0.1", &loopback.address().to_string())
        .replace("/tmp/play", &plane);
    let _played = Played(plane);
    let output = Command::new("timeout")
        .args(["240", "bash", "-c", &script])
        .current_dir(repository())
        .env(
            "DEBUG_UNIX_SOCKET",
            place.path().join("debug").display().to_string(),
        )
        .env("SHELL_OPERATOR_TMP_DIR", place.path().join("tmp"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    assert!(
        errors.contains("no fixed version for web"),
        "{told}\n{errors}"
    );
    assert!(told.contains("pod/web created"), "{told}\n{errors}");
}
