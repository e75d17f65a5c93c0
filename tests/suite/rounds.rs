//! Which cases run, when again, and what is left behind.

use std::process::Command;

use rustix::process::Signal;

use super::{OBEDIENT, one, suite};
use crate::support::{Env, SOON, wait_for};

#[test]
fn a_regular_expression_chooses_among_hooks_and_names() {
    let cases = format!(
        "{}{}",
        one("deny", "{allowed: false}"),
        one("allow", "{allowed: true}")
            .replace("the case", "the other")
            .replace("tests:\n", "")
    );
    let env = suite(&cases);
    for (run, passed) in [
        ("case$", 1),
        ("^judge.sh: the", 2),
        ("the other|nothing", 1),
    ] {
        let output = env.run(&["test", "--run", run]).ok();
        assert!(
            output.contains(&format!("{passed} passed")),
            "{run}\n{output}"
        );
    }
}

#[test]
fn a_missing_program_is_a_skip_with_its_reason_and_a_failure_on_demand() {
    let cases = format!(
        "{}  requires: [no-such-program]\n",
        one("deny", "{allowed: false}")
    );
    let env = suite(&cases);
    let skipped = env.run(&["test"]).ok();
    assert!(
        skipped.contains("skip the case: skipped: there is no no-such-program in PATH"),
        "{skipped}"
    );
    assert!(
        skipped.contains("0 passed, 0 failed, 1 skipped"),
        "{skipped}"
    );
    let strict = env.run(&["test", "--no-skip"]);
    assert_eq!(strict.code, Some(1));
    assert!(
        strict
            .stdout
            .contains("did not run: there is no no-such-program"),
        "{}",
        strict.stdout
    );
    // What a shim stands for is there.
    let env = suite(&format!("{cases}  commands: {{no-such-program: {{}}}}\n"));
    assert!(env.run(&["test"]).ok().contains("1 passed"));
}

#[test]
fn cases_have_directories_of_their_own_and_leave_nothing() {
    // Each leaves a file in its temporary directory, beside a process, and fails if somebody else's is there.
    let script = OBEDIENT.replace(
        "deny) ",
        "deny) [ \"$(ls \"$TMPDIR\")\" = '' ] || exit 9; touch \"$TMPDIR/x\"; sleep 1000 >/dev/null 2>&1 & ",
    );
    let env = Env::new().hook("judge.sh", &script);
    let mut cases = String::from("tests:\n");
    for number in 0..20 {
        let one = one("deny", "{allowed: false}").replace("the case", &format!("case {number}"));
        cases.push_str(&one.replace("tests:\n", ""));
    }
    env.write("hooks/judge.tests.yaml", cases);
    assert!(env.run(&["test"]).ok().contains("20 passed"));
    let left: Vec<_> = std::fs::read_dir(env.tmp_dir()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let name = format!("SHELL_OPERATOR_TMP_DIR={}", env.tmp_dir().display());
    wait_for("the processes of hooks to end", SOON, || {
        let found = Command::new("sh")
            .args([
                "-c",
                "grep -lzsxF \"$0\" /proc/[0-9]*/environ | wc -l",
                &name,
            ])
            .output()
            .unwrap();
        String::from_utf8_lossy(&found.stdout).trim() == "0"
    });
}

#[test]
fn a_change_of_hook_or_suite_runs_the_tests_again_until_the_end() {
    let env = suite(&one("deny", "{allowed: true}"));
    let watching = env.spawn(&["test", "--watch"]);
    watching.wait_log("0 passed, 1 failed", |line| {
        line.contains("0 passed, 1 failed")
    });
    env.write(
        "hooks/judge.tests.yaml",
        one("deny", "{allowed: false, warnings: 0}"),
    );
    watching.wait_log("1 passed, 0 failed", |line| {
        line.contains("1 passed, 0 failed")
    });
    env.write_hook(
        "judge.sh",
        &OBEDIENT.replace("deny) answer '{", "deny) answer '{\"warnings\": [\"x\"], "),
    );
    watching.wait_log("expected 0", |line| line.contains("expected 0"));
    watching.signal(Signal::INT);
    assert_eq!(watching.output(SOON).code, Some(0));
}

#[test]
fn an_interrupted_run_ends_its_hooks_and_is_no_success() {
    let env = suite(&one("hang", "{allowed: false}"));
    let started = env.path().join("started");
    let script = OBEDIENT.replace("hang) ", &format!("hang) touch '{}'; ", started.display()));
    env.write_hook("judge.sh", &script);
    let testing = env.spawn(&["test"]);
    wait_for("the hook to run", SOON, || started.exists());
    testing.signal(Signal::TERM);
    let output = testing.output(SOON);
    assert_eq!(output.code, Some(2), "{}", output.all());
    assert!(output.stderr.contains("interrupted"), "{}", output.all());
    let left: Vec<_> = std::fs::read_dir(env.tmp_dir()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
