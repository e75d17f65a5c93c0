//! What a hook is given, and what is said when it can not be started or fails.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use super::super::error::{Exit, Failure, LaunchFailure};
use super::super::{Capture, CaptureError, Inherit, Run, RunKind, StartError};
use super::{Place, Printed, alone, eventually, new_directory, options};

const OURS: [&str; 7] = [
    "ADMISSION_RESPONSE_PATH",
    "BINDING_CONTEXT_PATH",
    "CONVERSION_RESPONSE_PATH",
    "KUBERNETES_PATCH_PATH",
    "METRICS_PATH",
    "VALIDATING_RESPONSE_PATH",
    "VALIDATION_RESPONSE_PATH",
];

fn environment(printed: &Printed) -> BTreeMap<String, String> {
    printed
        .lines()
        .iter()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn the_environment_has_exactly_the_documented_names() {
    let inherited = vec![
        ("PATH".into(), "/usr/bin:/bin".into()),
        ("METRICS_PATH".into(), "/stale".into()),
    ];
    let place = Place::with(|options| options.inherit = Inherit::Only(inherited));
    let (result, printed) = place.run("env");
    result.unwrap();
    let mut environment = environment(&printed);
    // The shell adds its own.
    environment.retain(|name, _| !["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str()));
    let names: Vec<&str> = environment.keys().map(String::as_str).collect();
    let mut wanted = OURS.to_vec();
    wanted.push("PATH");
    wanted.sort_unstable();
    assert_eq!(names, wanted);
    let tmp = place.directory.join("tmp");
    for name in OURS {
        assert!(
            environment[name].starts_with(tmp.to_str().unwrap()),
            "{name}"
        );
    }
    assert_eq!(
        environment["ADMISSION_RESPONSE_PATH"],
        environment["VALIDATING_RESPONSE_PATH"]
    );
    assert_eq!(
        environment["ADMISSION_RESPONSE_PATH"],
        environment["VALIDATION_RESPONSE_PATH"]
    );
}

#[test]
fn the_whole_environment_is_inherited_by_default() {
    let place = Place::new();
    let (result, printed) = place.run("env");
    result.unwrap();
    let environment = environment(&printed);
    assert!(environment.contains_key("PATH"));
    assert!(environment.contains_key("CARGO_MANIFEST_DIR"));
}

#[test]
fn a_hook_has_no_arguments_no_input_and_its_own_directory() {
    let place = Place::new();
    let script = "#!/bin/sh\necho $0\necho $#\npwd\ncat\nps -o pgid= -p $$ >/dev/null 2>&1\n\
                  cat $BINDING_CONTEXT_PATH\necho bad >&2\n";
    let path = place.hook("deep/er/hook.sh", script);
    let (result, printed) = place.run_hook(&path, RunKind::Other, None);
    result.unwrap();
    assert_eq!(
        printed.lines(),
        [
            path.to_str().unwrap(),
            "0",
            path.parent().unwrap().to_str().unwrap(),
            "[{\"binding\":\"b\"}]"
        ]
    );
    assert_eq!(printed.stderr, b"bad\n");
}

#[test]
fn a_hook_leads_its_own_process_group() {
    let place = Place::new();
    let (result, printed) = place.run("echo $$; cut -d' ' -f5 /proc/$$/stat");
    result.unwrap();
    let lines = printed.lines();
    assert_eq!(lines[0], lines[1]);
}

#[test]
fn files_are_private_even_without_a_umask() {
    alone("runs::files_are_private_even_without_a_umask", || {
        rustix::process::umask(rustix::fs::Mode::empty());
        let place = Place::new();
        let script =
            "#!/bin/sh\nD=$(dirname $BINDING_CONTEXT_PATH)\nstat -c '%a' $D $(dirname $D) $D/*\n";
        let path = place.hook("hook.sh", script);
        for (kind, files) in [
            (RunKind::Admission, 2),
            (RunKind::Conversion, 2),
            (RunKind::Other, 3),
        ] {
            let (result, printed) = place.run_hook(&path, kind, None);
            result.unwrap();
            let mut wanted = vec!["700", "700"];
            wanted.extend(vec!["600"; files]);
            assert_eq!(printed.lines(), wanted, "{kind:?}");
        }
    });
}

#[test]
fn content_that_looks_like_shell_code_does_nothing() {
    let place = Place::new();
    let path = place.hook(
        "hook.sh",
        "#!/bin/bash\nenv\ncat \"$BINDING_CONTEXT_PATH\" >/dev/null\n",
    );
    let trap = place.directory.join("trapped");
    let hostile = format!(
        "() {{ :;}}; touch {0}\n$(touch {0})`touch {0}`\nX=1\n",
        trap.display()
    );
    let mut printed = Vec::new();
    place
        .executor
        .run(Run {
            hook_name: &hostile,
            path: &path,
            kind: RunKind::Admission,
            write_input: &mut |file| file.write_all(hostile.as_bytes()),
            deadline: None,
            output: &mut |_, text| printed.extend_from_slice(text),
        })
        .unwrap();
    assert!(!trap.exists());
    assert!(!String::from_utf8_lossy(&printed).contains("touch"));
}

#[test]
fn exit_codes_and_signals_are_told_apart() {
    let place = Place::new();
    for (script, wanted, reason) in [
        ("exit 1", Exit::Code(1), "exit code 1"),
        ("exit 42", Exit::Code(42), "exit code 42"),
        ("kill -9 $$", Exit::Signal(9), "killed by signal 9"),
        ("kill -15 $$", Exit::Signal(15), "killed by signal 15"),
    ] {
        let error = place.run(script).0.err().unwrap();
        assert!(matches!(error.failure, Failure::Ended(exit) if exit == wanted));
        assert_eq!(error.reason(), reason);
        assert_eq!(
            error.to_string(),
            format!("hook.sh FAILED: cmd run: {wanted}")
        );
        assert!(place.run_files().is_empty());
    }
}

#[test]
fn the_end_of_stderr_is_in_the_error_text() {
    let place = Place::new();
    let error = place.run("echo  no such pod  >&2; exit 1").0.err().unwrap();
    assert_eq!(error.to_string(), "hook.sh FAILED: no such pod");
    let error = place
        .run("i=0; while [ $i -lt 9000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1")
        .0
        .err()
        .unwrap();
    assert!(error.stderr.len() < 5000);
    assert!(error.stderr.starts_with("... "));
    assert!(error.stderr.ends_with("line 8999"));
}

#[test]
fn a_hook_that_can_not_start_says_why_and_what_to_do() {
    let place = Place::new();
    let check = |content: &str, mode: u32, remedy: &str| {
        let path = place.hook("bad", content);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = place.run_hook(&path, RunKind::Other, None).0.err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with("hook.sh FAILED: cmd start: "), "{text}");
        assert!(text.contains(remedy), "{text}");
        assert_eq!(error.reason(), "could not start");
        assert!(place.run_files().is_empty());
    };
    check(
        "#!/no/such/shell\n",
        0o755,
        "is the interpreter in its first line installed?",
    );
    check(
        "#!/bin/sh\r\nexit 0\r\n",
        0o755,
        "its first line ends with a carriage return (CR)",
    );
    check(
        "echo no first line\n",
        0o755,
        "does its first line name an interpreter",
    );
    check("#!/bin/sh\n", 0o644, "chmod +x");
    let missing = place.directory.join("hooks/none.sh");
    let error = place
        .run_hook(&missing, RunKind::Other, None)
        .0
        .err()
        .unwrap();
    assert!(error.to_string().ends_with("send SIGHUP to the operator"));
    assert!(
        matches!(error.failure, Failure::Launch(error) if matches!(error.cause, LaunchFailure::Missing))
    );
}

#[test]
fn a_file_that_is_still_being_written_is_tried_again() {
    let place = Place::new();
    let path = place.hook("busy", "");
    fs::copy("/bin/true", &path).unwrap();
    let writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let closer = crate::threads::spawn_short("closer", 64 * 1024, move || {
        std::thread::sleep(Duration::from_millis(10));
        drop(writer);
    })
    .unwrap();
    place.run_hook(&path, RunKind::Other, None).0.unwrap();
    closer.join().unwrap();
}

#[test]
fn input_that_can_not_be_written_fails_the_run_without_a_process() {
    let place = Place::new();
    let path = place.hook("hook.sh", "#!/bin/sh\ntouch started\n");
    let error = place
        .executor
        .run(Run {
            hook_name: "hook.sh",
            path: &path,
            kind: RunKind::Other,
            write_input: &mut |_| Err(std::io::Error::other("disk full")),
            deadline: None,
            output: &mut |_, _| {},
        })
        .err()
        .unwrap();
    assert!(matches!(error.failure, Failure::Prepare(_)));
    assert!(place.run_files().is_empty());
    assert!(!path.with_file_name("started").exists());
}

#[test]
fn a_run_whose_time_is_over_starts_no_process() {
    let place = Place::new();
    let path = place.hook("hook.sh", "#!/bin/sh\ntouch started\n");
    let (result, _) = place.run_hook(&path, RunKind::Admission, Some(Duration::ZERO));
    assert!(matches!(
        result.err().unwrap().failure,
        Failure::TimedOut { .. }
    ));
    assert!(!path.with_file_name("started").exists());
}

#[test]
fn a_temp_directory_that_can_not_be_used_is_named_with_the_remedy() {
    let directory = new_directory();
    fs::write(directory.join("tmp"), "a file").unwrap();
    let (sender, _events) = crossbeam_channel::unbounded();
    let error = super::Executor::start(options(&directory), &sender)
        .err()
        .unwrap();
    assert!(matches!(error, StartError::TmpDir { .. }));
    let text = error.to_string();
    assert!(
        text.contains("/tmp'") && text.contains("--tmp-dir"),
        "{text}"
    );
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_temp_directory_that_was_cleaned_away_is_made_again() {
    let place = Place::new();
    fs::remove_dir_all(place.directory.join("tmp")).unwrap();
    place.run("test -s $BINDING_CONTEXT_PATH").0.unwrap();
}

#[test]
fn capture_gives_output_and_exit_code() {
    let place = Place::new();
    let path = place.hook(
        "config.sh",
        "#!/bin/sh\necho \"$1 $EXTRA\"; pwd; echo warned >&2; exit 3\n",
    );
    let captured = place
        .executor
        .capture(&capture(
            &path,
            &[("EXTRA".to_owned(), "x".to_owned())],
            place.directory.as_path(),
        ))
        .unwrap();
    assert_eq!(captured.exit, Exit::Code(3));
    let stdout = String::from_utf8(captured.stdout).unwrap();
    assert_eq!(
        stdout,
        format!("--config x\n{}\n", place.directory.display())
    );
    assert_eq!(captured.stderr, "warned");
}

#[test]
fn capture_finds_programs_in_the_path() {
    let place = Place::new();
    let captured = place
        .executor
        .capture(&capture("true".as_ref(), &[], &place.directory))
        .unwrap();
    assert!(captured.exit.is_success());
}

#[test]
fn capture_bounds_time_and_output() {
    let place = Place::new();
    let path = place.hook("slow.sh", "#!/bin/sh\necho waiting >&2\nsleep 1000\n");
    let started = Instant::now();
    let error = place
        .executor
        .capture(&Capture {
            limit: Duration::from_millis(300),
            ..capture(&path, &[], &place.directory)
        })
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "timed out after 0.3 s and was killed: waiting"
    );
    assert!(started.elapsed() < Duration::from_secs(20));
    let path = place.hook("loud.sh", "#!/bin/sh\nhead -c 3000000 /dev/zero\n");
    let error = place
        .executor
        .capture(&capture(&path, &[], &place.directory))
        .err()
        .unwrap();
    assert!(matches!(
        error,
        CaptureError::TooMuchOutput { limit: 65536 }
    ));
    eventually("the slow command is reaped", || {
        place.executor.shared.keeper.registry.is_empty()
    });
}

fn capture<'a>(
    program: &'a std::path::Path,
    env: &'a [(String, String)],
    cwd: &'a std::path::Path,
) -> Capture<'a> {
    Capture {
        program,
        args: &["--config"],
        env,
        cwd: Some(cwd),
        input: None,
        limit: super::PATIENCE,
        max_output: 65536,
    }
}

#[test]
fn a_handle_with_surroundings_adds_variables_and_sees_how_runs_end() {
    use std::sync::{Arc, Mutex};
    let mut place = Place::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let witnessed = Arc::clone(&seen);
    let plain = place.executor.clone();
    place.executor = plain.with(super::super::Surroundings {
        variables: vec![("GREETING".into(), "hello".into())],
        witness: Box::new(move |ended, stderr| {
            let end = ended.map(drop).map_err(|error| error.reason());
            witnessed.lock().unwrap().push((end, stderr.to_owned()));
        }),
    });
    let (result, printed) = place.run("echo $GREETING; echo oops >&2");
    result.unwrap();
    assert_eq!(printed.lines(), ["hello"]);
    let (result, _) = place.run("echo bad >&2; exit 3");
    assert!(result.is_err());
    let mut seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2);
    let (end, stderr) = seen.remove(0);
    assert_eq!((end, stderr.as_str()), (Ok(()), "oops"));
    let (end, stderr) = seen.remove(0);
    assert_eq!(
        (end.unwrap_err().as_str(), stderr.as_str()),
        ("exit code 3", "bad")
    );
    // The other handle has none of it.
    drop(seen);
    place.executor = plain;
    let (_, printed) = place.run("echo [$GREETING]");
    assert_eq!(printed.lines(), ["[]"]);
}
