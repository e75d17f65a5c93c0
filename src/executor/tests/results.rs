//! What a hook leaves in its files: read when it is good, refused when it is a trap.

use std::fs;
use std::os::unix::fs::symlink;

use super::super::error::{Failure, ResultFileError};
use super::super::{Outcome, RunKind};
use super::{Place, alone, options};

#[test]
fn every_result_file_is_read() {
    let place = Place::new();
    let script = "#!/bin/sh\nprintf admission >$VALIDATING_RESPONSE_PATH\nprintf conversion >$CONVERSION_RESPONSE_PATH\n\
                  printf metrics >>$METRICS_PATH\nprintf patch >>$KUBERNETES_PATCH_PATH\n";
    let path = place.hook("hook.sh", script);
    for (kind, admission, conversion) in [
        (RunKind::Admission, "admission", ""),
        (RunKind::Conversion, "", "conversion"),
        (RunKind::Other, "", ""),
    ] {
        let outcome = place.run_hook(&path, kind, None).0.unwrap();
        assert_eq!(outcome.admission_response, admission.as_bytes());
        assert_eq!(outcome.conversion_response, conversion.as_bytes());
        assert_eq!(outcome.metrics, b"metrics");
        assert_eq!(outcome.patches, b"patch");
        // The files go with what was read from them.
        drop(outcome);
        assert!(place.run_files().is_empty());
    }
}

#[test]
fn a_file_that_was_moved_into_place_is_read() {
    let place = Place::new();
    let outcome = place
        .run("echo answer >answer.tmp; mv answer.tmp $VALIDATING_RESPONSE_PATH")
        .0
        .unwrap();
    assert_eq!(outcome.admission_response, b"answer\n");
}

#[test]
fn no_answer_is_an_empty_answer() {
    let place = Place::new();
    for script in [
        "true",
        "> $VALIDATING_RESPONSE_PATH; rm $VALIDATING_RESPONSE_PATH",
        "rm -r $(dirname $VALIDATING_RESPONSE_PATH)",
    ] {
        let outcome = place.run(script).0.unwrap();
        let Outcome {
            admission_response,
            metrics,
            patches,
            ..
        } = outcome;
        assert_eq!(
            (admission_response, metrics, patches),
            (vec![], vec![], vec![])
        );
    }
}

fn refusal(place: &Place, script: &str) -> ResultFileError {
    let error = place.run(script).0.err().unwrap();
    assert_eq!(error.reason(), "invalid response");
    assert!(place.run_files().is_empty());
    match error.failure {
        Failure::Result(error) => error,
        other => panic!("{script}: {other:?}"),
    }
}

#[test]
fn a_response_that_is_no_regular_file_is_refused_and_never_waited_for() {
    let place = Place::new();
    fs::write(place.directory.join("protected"), "{\"allowed\":true}").unwrap();
    for (make, by) in [
        ("echo one >$F; rm $F; mkfifo $F", "a FIFO"),
        ("rm $F; mkfifo $F", "a FIFO"),
        ("ln -sf ../../../protected $F", "a symbolic link"),
        ("ln -sf /dev/zero $F", "a symbolic link"),
        ("rm $F; mkdir $F", "a directory"),
        ("rm $F; mknod $F c 1 5", "a device"),
    ] {
        let script = format!("F=$VALIDATING_RESPONSE_PATH; {make} 2>/dev/null || exit 77");
        // Making a device needs rights that a test does not always have.
        if by == "a device"
            && place
                .run(&script)
                .0
                .is_err_and(|error| error.reason() == "exit code 77")
        {
            continue;
        }
        let error = refusal(&place, &script);
        assert_eq!(
            error.to_string(),
            format!("hook replaced its response file by {by}: write to the file that was given")
        );
    }
    for variable in ["METRICS_PATH", "KUBERNETES_PATCH_PATH"] {
        refusal(&place, &format!("mkfifo ${variable}"));
    }
    assert!(place.directory.join("protected").exists());
}

#[test]
fn an_answer_of_512_mib_costs_no_memory() {
    alone("results::an_answer_of_512_mib_costs_no_memory", || {
        let place = Place::new();
        let before = resident_kib();
        let error = refusal(&place, "truncate -s 512M $VALIDATING_RESPONSE_PATH");
        assert_eq!(
            error.to_string(),
            "hook wrote more than 8388608 bytes to its response file"
        );
        let peak = peak_kib();
        assert!(peak < before + 10 * 1024, "{before} KiB, then {peak} KiB");
    });
}

#[test]
fn an_answer_of_exactly_the_limit_is_taken() {
    let place = Place::new();
    let outcome = place
        .run("head -c 8388608 /dev/zero >$VALIDATING_RESPONSE_PATH")
        .0
        .unwrap();
    assert_eq!(outcome.admission_response.len(), 8_388_608);
    drop(outcome);
    refusal(
        &place,
        "head -c 8388609 /dev/zero >$VALIDATING_RESPONSE_PATH",
    );
}

#[test]
fn other_files_and_links_in_the_directory_are_removed_but_not_followed() {
    let place = Place::new();
    let precious = place.directory.join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "x").unwrap();
    let script = format!(
        "cd $(dirname $VALIDATING_RESPONSE_PATH); mkdir -p a/b; touch a/b/c; ln -s {} link; ln -s . self",
        precious.display()
    );
    place.run(&script).0.unwrap();
    assert!(place.run_files().is_empty());
    assert!(precious.join("file").exists());
}

/// A directory is used again only when it is what it was: in place and empty.
#[test]
fn a_hook_can_not_spoil_the_directory_for_the_next_run() {
    let place = Place::new();
    let good = "D=$(dirname $VALIDATING_RESPONSE_PATH); ls $D | wc -l; stat -c %a $D; echo $D; echo ok >$VALIDATING_RESPONSE_PATH";
    let mut directories = Vec::new();
    for spoil in [
        "true",
        "touch $(dirname $METRICS_PATH)/more",
        "D=$(dirname $METRICS_PATH); mv $D $D.moved",
        "D=$(dirname $METRICS_PATH); mv $D $D.moved; ln -s /tmp $D",
        "rm -r $(dirname $METRICS_PATH)",
        "echo x >$METRICS_PATH; echo y >$KUBERNETES_PATCH_PATH",
    ] {
        place.run(spoil).0.unwrap();
        let (result, printed) = place.run(good);
        assert_eq!(result.unwrap().admission_response, b"ok\n", "after {spoil}");
        let lines = printed.lines();
        assert_eq!(lines[..2], ["2", "700"], "after {spoil}");
        directories.push(lines[2].clone());
    }
    directories.dedup();
    assert_eq!(directories.len(), 5, "{directories:?}");
}

#[test]
fn files_are_kept_when_asked_for() {
    let place = Place::with(|options| options.keep_tmp_files = true);
    place.run("echo >$VALIDATING_RESPONSE_PATH").0.unwrap();
    let _ = place.run("exit 1").0.err().unwrap();
    let mut names: Vec<String> = place
        .run_files()
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    let wanted = [
        "admission-response-1.json",
        "admission-response-2.json",
        "binding-context-1.json",
        "binding-context-2.json",
    ];
    assert_eq!(names, wanted);
}

#[test]
fn leftovers_of_a_killed_operator_are_removed_at_the_next_start() {
    let directory = super::new_directory();
    let tmp = directory.join("tmp");
    let precious = directory.join("precious");
    for path in [
        "operator-1-0/slot-7",
        "operator-4000000-3/slot-1/a",
        "operator-x",
        "other/slot-1",
        "../precious",
    ] {
        fs::create_dir_all(tmp.join(path)).unwrap();
    }
    fs::write(tmp.join("operator-1-0/slot-7/binding-context-1.json"), "[]").unwrap();
    fs::write(tmp.join("operator-file"), "").unwrap();
    fs::write(precious.join("file"), "").unwrap();
    symlink(&precious, tmp.join("operator-2-0")).unwrap();
    symlink(&precious, tmp.join("operator-1-0/slot-7/link")).unwrap();

    let (sender, _events) = crossbeam_channel::unbounded();
    let living = super::Executor::start(options(&directory), &sender).unwrap();
    // A second one in the same place: the first lives, so its directory stays although "its process" is the same.
    let second = super::Executor::start(options(&directory), &sender).unwrap();
    let mut names: Vec<_> = fs::read_dir(&tmp)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let own = std::process::id();
    let mut wanted = vec![
        "operator-2-0".to_owned(),
        format!("operator-{own}-0"),
        format!("operator-{own}-1"),
        "operator-file".to_owned(),
        "other".to_owned(),
    ];
    wanted.sort();
    assert_eq!(names, wanted);
    assert!(precious.join("file").exists());
    drop((living, second));
    assert!(!tmp.join(format!("operator-{own}-0")).exists());
    fs::remove_dir_all(&directory).unwrap();
}

fn resident_kib() -> u64 {
    status_kib("VmRSS:")
}

fn peak_kib() -> u64 {
    status_kib("VmHWM:")
}

fn status_kib(name: &str) -> u64 {
    fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap()
}

#[test]
fn a_flood_of_output_is_drained_without_growing() {
    alone(
        "results::a_flood_of_output_is_drained_without_growing",
        || {
            let place = Place::new();
            let path = place.hook(
                "hook.sh",
                "#!/bin/sh\nhead -c 200000000 /dev/zero\nyes | head -c 100000000 >&2\nexit 5\n",
            );
            let before = resident_kib();
            let mut seen = 0_usize;
            let error = place
                .executor
                .run(super::Run {
                    hook_name: "flood",
                    path: &path,
                    kind: RunKind::Other,
                    write_input: &mut |_| Ok(()),
                    deadline: None,
                    output: &mut |_, text| seen += text.len(),
                })
                .err()
                .unwrap();
            assert_eq!(error.reason(), "exit code 5");
            assert_eq!(seen, 300_000_000);
            let peak = peak_kib();
            assert!(peak < before + 10 * 1024, "{before} KiB, then {peak} KiB");
        },
    );
}
