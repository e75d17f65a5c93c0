//! `start --test-hooks`: hooks whose own tests fail are not used, or used with a warning.

use super::{OBEDIENT, one};
use crate::support::{Env, Kubeconfig, SOON};

/// A hook whose tests fail, beside one that has none.
fn failing() -> Env {
    let env = Env::new().hook("judge.sh", OBEDIENT).quiet_hook();
    env.write("hooks/judge.tests.yaml", one("deny", "{allowed: true}"));
    // Nobody listens there; the hooks are read before the API server is needed.
    let server = format!("https://{}", env.free());
    env.kubeconfig(&Kubeconfig::new(&server))
}

#[test]
fn a_hook_that_fails_its_tests_keeps_the_operator_from_starting() {
    let operator = failing().flag("--test-hooks=fail").start();
    let output = operator.output(SOON);
    assert_eq!(output.code, Some(1), "{}", output.all());
    let told =
        "hook 'judge.sh' fails its own tests: 'the case': verdict: expected allowed, got denied";
    assert!(output.stderr.contains(told), "{}", output.all());
}

#[test]
fn a_hook_that_fails_its_tests_is_left_out_with_the_broken_ones() {
    let env = failing()
        .flag("--test-hooks=fail")
        .flag("--skip-broken-hooks");
    let operator = env.start();
    operator.wait_log("the hook to be left out", |line| {
        line.contains("hook is left out") && line.contains("fails its own tests")
    });
    operator.wait_log("the other hook to be loaded", |line| {
        line.contains("Loaded config") && line.label("hook") == Some("quiet.sh")
    });
}

#[test]
fn a_failure_may_be_no_more_than_a_warning_and_nothing_is_run_by_default() {
    let operator = failing().flag("--test-hooks=warn").start();
    let line = operator.wait_log("the warning", |line| line.contains("fails its tests"));
    assert_eq!(line.label("hook"), Some("judge.sh"));
    operator.wait_log("the start to go on", |line| {
        line.contains("waiting for the API server")
    });

    let operator = failing().start();
    operator.wait_log("the start to go on", |line| {
        line.contains("waiting for the API server")
    });
    assert!(
        !operator
            .log_lines()
            .iter()
            .any(|line| line.contains("tests"))
    );
}

#[test]
fn a_hook_that_passes_its_tests_is_used() {
    let env = failing();
    env.write("hooks/judge.tests.yaml", one("deny", "{allowed: false}"));
    let operator = env.flag("--test-hooks=fail").start();
    let line = operator.wait_log("the tests to pass", |line| {
        line.contains("passes its tests")
    });
    assert_eq!(line.label("hook"), Some("judge.sh"));
    operator.wait_log("the start to go on", |line| {
        line.contains("waiting for the API server")
    });
}
