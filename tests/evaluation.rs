//! The hidden command that evaluates jq programs of hooks: whatever a program does, only this process ends, and it always does.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn evaluate(job: &str, request: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shell-operator"))
        .args(["apply-jq", job])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(request).unwrap();
    child.wait_with_output().unwrap()
}

fn apply(program: &str) -> Output {
    let object = json!({ "kind": "ConfigMap", "data": { "a": "1" } });
    let request = format!("{}\n{object}", Value::from(program));
    evaluate("apply", request.as_bytes())
}

#[test]
fn a_program_is_applied_to_an_object() {
    let output = apply(".data.b = .data.a | .status.conditions[0].x = 1\n| .");
    assert!(output.status.success());
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({ "kind": "ConfigMap", "data": { "a": "1", "b": "1" }, "status": { "conditions": [{ "x": 1 }] } });
    assert_eq!(result, expected);
    for wrong in ["error(.data)", ".a =", "nosuch", ".data.a.b", ""] {
        let output = apply(wrong);
        assert_eq!(output.status.code(), Some(1), "{wrong}");
        assert!(
            output.stdout.is_empty() && output.stderr.is_empty(),
            "{wrong}"
        );
    }
}

#[test]
fn programs_are_checked_one_after_the_other() {
    let deep = format!("{}1{}", "[".repeat(200_000), "]".repeat(200_000));
    let programs = json!([
        ".",
        ".a = 1",
        ".a =",
        "nosuch",
        "def f: 1 + f; f",
        deep,
        "."
    ]);
    let output = evaluate("check", programs.to_string().as_bytes());
    assert_eq!(output.stdout, b"++--+", "the sixth ends it");
    assert!(output.status.signal().is_some());
}

/// C3: all of these would end the operator, or take all of its memory or time.
#[test]
fn whatever_a_program_does_its_process_ends() {
    let chain: String = (1..20_000)
        .map(|number| format!("def f{number}: [f{}]; ", number - 1))
        .collect();
    for program in [
        &(".|#;\n".repeat(200_000) + "."),
        &format!("def f0: .; {chain} f19999"),
        "reduce range(1000000) as $i (.; [.])",
        "last(limit(300000; []|recurse([.])))",
        "0 | until(false; [.])",
        "[range(100000)] | until(false; [.]) | tojson",
        "(\"[\" * 100000) | fromjson",
        "\"aaaa\" * 9223372036854775807",
        "[repeat(1)]",
        "def f: 1 + f; f",
        "def f: . + . | f; \"a\" | f",
        "repeat(.) | empty",
    ] {
        let output = apply(program);
        let start: String = program.chars().take(40).collect();
        assert!(!output.status.success(), "{start}");
        assert!(output.stdout.is_empty(), "{start}");
    }
}

#[test]
fn the_command_is_in_no_help() {
    let help = Command::new(env!("CARGO_BIN_EXE_shell-operator"))
        .arg("--help")
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains("apply-jq"));
}
