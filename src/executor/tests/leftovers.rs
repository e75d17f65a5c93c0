//! Processes that outlive their hook: in its group, outside of it, holding pipes, or dead and waiting for a parent.

use std::fs;
use std::time::{Duration, Instant};

use super::super::census;
use super::super::error::{Exit, Failure};
use super::{PATIENCE, Place, RunKind, alone, eventually, is_running};

/// T7: answered at once, output kept, and the one left behind is ended.
#[test]
fn a_background_child_neither_delays_the_answer_nor_survives() {
    for adopts in [false, true] {
        let body = || {
            let place = Place::with(|options| options.adopt_orphans = adopts);
            let started = Instant::now();
            let (result, printed) = place
                .run("sleep 300 & echo $! >child; echo out; echo yes >$VALIDATING_RESPONSE_PATH");
            assert!(started.elapsed() < Duration::from_secs(20));
            assert_eq!(result.unwrap().admission_response, b"yes\n");
            assert_eq!(printed.stdout, b"out\n");
            let child = place.file("child");
            eventually("the child is ended", || !is_running(&child));
        };
        if adopts {
            alone(
                "leftovers::a_background_child_neither_delays_the_answer_nor_survives",
                body,
            );
        } else {
            body();
        }
    }
}

#[test]
fn a_background_child_that_ignores_term_is_killed() {
    alone(
        "leftovers::a_background_child_that_ignores_term_is_killed",
        || {
            let place = Place::adopting();
            place
            .run("(trap '' TERM; touch ready; while :; do sleep 1; done) >/dev/null 2>&1 & echo $! >child; until [ -e ready ]; do sleep 0.01; done")
            .0
            .unwrap();
            let child = place.file("child");
            eventually("the child is ended", || !is_running(&child));
            eventually("nobody is left", || children() == (0, 0));
        },
    );
}

/// T8: `setsid` leaves the group, an emptied environment hides the run; both are ended, at the latest by the stop.
#[test]
fn children_that_left_the_group_are_found_and_ended() {
    alone(
        "leftovers::children_that_left_the_group_are_found_and_ended",
        || {
            let place = Place::adopting();
            place
            .run("setsid sh -c 'echo $$ >child; sleep 300 & echo $! >grandchild; trap \"\" TERM; touch ready; while :; do sleep 1; done' & until [ -e ready ]; do sleep 0.01; done")
            .0
            .unwrap();
            for name in ["child", "grandchild"] {
                let pid = place.file(name);
                eventually(name, || !is_running(&pid));
            }
            place
            .run("env -i setsid sh -c 'echo $$ >hidden; touch hiding; exec sleep 300' & until [ -e hiding ]; do sleep 0.01; done")
            .0
            .unwrap();
            let hidden = place.file("hidden");
            assert!(place.executor.stop_all(PATIENCE));
            assert!(!is_running(&hidden));
            assert_eq!(children(), (0, 0));
        },
    );
}

#[test]
fn a_hook_that_timed_out_leaves_nobody() {
    alone("leftovers::a_hook_that_timed_out_leaves_nobody", || {
        let place = Place::adopting();
        let script = "trap '' TERM; setsid sleep 300 & echo $! >child; sleep 300 & echo $! >sibling; touch ready; while :; do sleep 1; done";
        let (result, _) = place.run_until(script, Some(Duration::from_millis(700)));
        assert!(matches!(
            result.err().unwrap().failure,
            Failure::TimedOut { .. }
        ));
        for name in ["child", "sibling"] {
            let pid = place.file(name);
            eventually(name, || !is_running(&pid));
        }
        eventually("nobody is left", || children() == (0, 0));
        eventually("its files are gone", || place.run_files().is_empty());
    });
}

/// Processes of a run that still goes on are nobody's leftovers.
#[test]
fn a_process_of_a_running_hook_is_left_alone_while_others_end() {
    alone(
        "leftovers::a_process_of_a_running_hook_is_left_alone_while_others_end",
        || {
            let place = Place::adopting();
            let long = place.hook(
            "long.sh",
            "#!/bin/sh\n(setsid sleep 300 & echo $! >escapee)\ntouch up\nuntil [ -e finish ]; do sleep 0.01; done\n",
        );
            let executor = place.executor.clone();
            let path = long.clone();
            let runner = crate::threads::spawn_short("runner", 256 * 1024, move || {
                executor
                    .run(super::Run {
                        hook_name: "long.sh",
                        path: &path,
                        kind: RunKind::Other,
                        write_input: &mut |_| Ok(()),
                        deadline: None,
                        output: &mut |_, _| {},
                    })
                    .map(|_| ())
            })
            .unwrap();
            eventually("the long one is up", || long.with_file_name("up").exists());
            let escapee = place.file("escapee");
            // Several scans happen meanwhile, seen by the end of what these leave behind.
            for _ in 0..4 {
                place.run("setsid sleep 300 & echo $! >child").0.unwrap();
                let child = place.file("child");
                eventually("the short one's child is ended", || !is_running(&child));
            }
            assert!(is_running(&escapee));
            fs::write(long.with_file_name("finish"), "").unwrap();
            runner.join().unwrap().unwrap();
            eventually("the escapee is ended", || !is_running(&escapee));
        },
    );
}

/// T9: no status is lost to the reaper, and no zombie stays.
#[test]
fn exit_codes_are_right_and_no_zombie_stays_with_three_orphans_each() {
    alone(
        "leftovers::exit_codes_are_right_and_no_zombie_stays_with_three_orphans_each",
        || {
            let place = Place::adopting();
            let path = place.hook(
            "hook.sh",
            "#!/bin/sh\nfor i in 1 2 3; do (setsid true &) ; (true &) ; done\nexit $(cat $BINDING_CONTEXT_PATH)\n",
        );
            let mut threads = Vec::new();
            for worker in 0..4 {
                let (executor, path) = (place.executor.clone(), path.clone());
                threads.push(
                crate::threads::spawn_short("worker", 256 * 1024, move || {
                    for round in 0..30 {
                        let code = [0, 1, 42][(worker + round) % 3];
                        let result = executor.run(super::Run {
                            hook_name: "hook.sh",
                            path: &path,
                            kind: RunKind::Admission,
                            write_input: &mut |file| write!(file, "{code}"),
                            deadline: None,
                            output: &mut |_, _| {},
                        });
                        match (result, code) {
                            (Ok(_), 0) => {}
                            (Err(error), _) => assert!(
                                matches!(error.failure, Failure::Ended(Exit::Code(seen)) if seen == code),
                                "{error}"
                            ),
                            (Ok(_), _) => panic!("{code} was reported as 0"),
                        }
                    }
                })
                .unwrap(),
            );
            }
            for thread in threads {
                thread.join().unwrap();
            }
            eventually("all are reaped", || children() == (0, 0));
            assert!(place.run_files().is_empty());
        },
    );
}

/// T7: nothing of ours grows with such hooks.
#[test]
fn a_hundred_pipe_holders_leave_no_descriptor_and_no_thread() {
    alone(
        "leftovers::a_hundred_pipe_holders_leave_no_descriptor_and_no_thread",
        || {
            let place = Place::adopting();
            let count = |path: &str| fs::read_dir(path).unwrap().count();
            place.run("true").0.unwrap();
            let before = (count("/proc/self/fd"), count("/proc/self/task"));
            for _ in 0..100 {
                place.run("sleep 300 & setsid sleep 300 & true").0.unwrap();
            }
            assert_eq!(before, (count("/proc/self/fd"), count("/proc/self/task")));
            eventually("all are ended", || children() == (0, 0));
        },
    );
}

/// T19: what is written after the end of the hook does not count.
#[test]
fn a_late_answer_is_ignored() {
    let place = Place::new();
    let script = "(sleep 5; echo late >$VALIDATING_RESPONSE_PATH) & exit 0";
    let outcome = place.run(script).0.unwrap();
    assert_eq!(outcome.admission_response, b"");
}

#[test]
fn the_last_line_of_a_process_substitution_is_kept() {
    let place = Place::new();
    let path = place.hook(
        "hook.sh",
        "#!/bin/bash\nexec > >(cat)\necho one\necho two\n",
    );
    let (result, printed) = place.run_hook(&path, RunKind::Other, None);
    result.unwrap();
    assert_eq!(printed.lines(), ["one", "two"]);
}

#[test]
fn processor_time_is_reported() {
    let place = Place::new();
    let started = std::time::Instant::now();
    let outcome = place
        .run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")
        .0
        .unwrap();
    let elapsed = started.elapsed();
    assert!(outcome.usage.user > Duration::ZERO);
    assert!(outcome.usage.user <= elapsed + Duration::from_millis(20));
}

#[test]
fn the_most_memory_of_a_run_is_reported_when_it_is_long_enough() {
    let place = Place::new();
    let large = "x=$(head -c 12000000 /dev/zero | tr '\\0' a); sleep 2; echo ${#x}";
    let (result, printed) = place.run(large);
    let memory = result.unwrap().usage.most_memory;
    assert_eq!(printed.lines(), ["12000000"]);
    assert!(memory.is_some_and(|kib| kib > 11_000), "{memory:?}");
    let (result, _) = place.run("exec sleep 0.2");
    assert!(result.unwrap().usage.most_memory.is_some());
}

/// How many children this process has: running ones, zombies.
fn children() -> (usize, usize) {
    let all = census::children_of(rustix::process::getpid());
    let zombies = all.iter().filter(|process| process.is_zombie).count();
    (all.len() - zombies, zombies)
}
