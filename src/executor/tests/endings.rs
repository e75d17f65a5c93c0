//! Hooks that do not end by themselves: deadline, TERM ignored, stop.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::super::error::Failure;
use super::{PATIENCE, Place, RunKind, eventually, is_running};

const SHORT: Option<Duration> = Some(Duration::from_millis(400));

/// T6: the answer comes at the deadline and nothing is alive soon after it.
fn check_deadline(script: &str) {
    let place = Place::new();
    let started = Instant::now();
    let (result, _) = place.run_until(&format!("echo $$ >pid\n{script}"), SHORT);
    let took = started.elapsed();
    let error = result.err().unwrap();
    assert!(matches!(error.failure, Failure::TimedOut { .. }), "{error}");
    assert_eq!(error.reason(), "timed out after 0.4 s");
    assert!(took < Duration::from_secs(20), "{took:?}");
    let pid = place.file("pid");
    eventually("the hook is dead", || !is_running(&pid));
    eventually("the hook is reaped", || {
        place.executor.shared.keeper.registry.is_empty()
    });
    eventually("its files are gone", || place.run_files().is_empty());
    for helper in place.file("helpers").lines() {
        eventually("its children are dead", || !is_running(helper));
    }
    // The next one is served as usual.
    place.run("exit 0").0.unwrap();
}

#[test]
fn a_hook_that_never_ends_is_killed_at_the_deadline() {
    check_deadline("exec sleep 1000");
}

#[test]
fn children_of_a_hook_that_never_ends_are_killed_too() {
    check_deadline("sleep 1000 & echo $! >helpers; wait");
}

#[test]
fn a_hook_that_ignores_term_is_killed() {
    check_deadline("trap '' TERM; while :; do sleep 1; done");
}

#[test]
fn a_hook_that_prints_without_end_is_killed_at_the_deadline() {
    check_deadline("while :; do echo on and on; done");
}

#[test]
fn term_comes_before_kill() {
    let place = Place::with(|options| options.kill_grace = PATIENCE);
    let (result, _) = place.run_until(
        "trap 'echo cleaned >cleaned; exit' TERM; touch ready; while :; do sleep 0.01; done",
        SHORT,
    );
    assert!(result.is_err());
    eventually("the hook cleaned up", || {
        place.file("cleaned") == "cleaned\n"
    });
}

#[test]
fn a_panic_of_the_reader_ends_the_hook() {
    let place = Place::new();
    let path = place.hook(
        "hook.sh",
        "#!/bin/sh\necho $$ >pid\necho x\nexec sleep 1000\n",
    );
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = place.executor.run(super::Run {
            hook_name: "hook.sh",
            path: &path,
            kind: RunKind::Other,
            write_input: &mut |_| Ok(()),
            deadline: None,
            output: &mut |_, _| panic!("the reader fails, as this test wants"),
        });
    }));
    assert!(result.is_err());
    let pid = place.file("pid");
    eventually("the hook is dead", || !is_running(&pid));
    eventually("its files are gone", || place.run_files().is_empty());
}

#[test]
fn a_stop_ends_running_hooks_and_refuses_new_ones() {
    let place = Place::new();
    let path = place.hook(
        "hook.sh",
        "#!/bin/sh\ntrap '' TERM\necho $$ >pid\nwhile :; do sleep 1; done\n",
    );
    let executor = place.executor.clone();
    let runner = crate::threads::spawn_short("runner", 256 * 1024, move || {
        executor
            .run(super::Run {
                hook_name: "hook.sh",
                path: &path,
                kind: RunKind::Other,
                write_input: &mut |_| Ok(()),
                deadline: None,
                output: &mut |_, _| {},
            })
            .err()
    })
    .unwrap();
    eventually("the hook runs", || place.file("pid").ends_with('\n'));
    assert!(place.executor.stop_all(PATIENCE));
    let error = runner.join().unwrap().unwrap();
    assert!(matches!(error.failure, Failure::Stopped));
    assert!(!is_running(&place.file("pid")));
    let refused = place.run("true").0.err().unwrap();
    assert!(matches!(refused.failure, Failure::Stopped));
    assert_eq!(refused.reason(), "shell-operator is stopping");
}

/// T10: numbers of ended processes are never signalled, so a stranger with any number survives time-outs that race with exits.
#[test]
fn a_bystander_survives_time_outs_that_race_with_exits() {
    let place = Place::new();
    let bystander = super::super::process::start(
        &place.executor.shared.keeper,
        {
            let mut command = super::super::new_command("sleep".as_ref());
            command.arg("1000");
            command
        },
        None,
        u64::MAX,
        None,
    )
    .ok()
    .unwrap();
    let path = place.hook("hook.sh", "#!/bin/sh\nexit 0\n");
    for micros in (200..4000).step_by(40) {
        let _ = place.run_hook(
            &path,
            RunKind::Admission,
            Some(Duration::from_micros(micros)),
        );
    }
    let pid: Pid = bystander.pid();
    assert!(is_running(&pid.to_string()));
    drop(bystander);
    eventually("all are reaped", || {
        place.executor.shared.keeper.registry.is_empty()
    });
}
