//! The README's first command: a review of the shipped samples with the shipped policies, which prints what the README shows.

use std::process::Command;

use crate::support::repository;

/// The block behind `<!-- shown: MARK -->`.
fn shown(mark: &str) -> String {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, rest) = readme
        .split_once(&format!("<!-- shown: {mark} -->\n```text\n"))
        .unwrap();
    rest.split_once("```\n").unwrap().0.to_owned()
}

/// Everything but the time that it took.
fn without_time(text: &str) -> String {
    let (start, _) = text.rsplit_once(" (").unwrap();
    start.to_owned()
}

#[test]
fn the_first_command_of_the_readme_prints_what_is_shown() {
    let script = std::fs::read_to_string(repository().join("scripts/try")).unwrap();
    assert!(
        script.contains("review --hooks-dir hooks/examples -f hooks/examples/samples"),
        "{script}"
    );
    let output = Command::new(env!("CARGO_BIN_EXE_shell-operator"))
        .args([
            "review",
            "--hooks-dir",
            "hooks/examples",
            "-f",
            "hooks/examples/samples",
        ])
        .current_dir(repository())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(
        without_time(&told),
        without_time(&shown("the first command"))
    );
}
