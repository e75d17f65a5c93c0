//! Tests of the executor with real processes, and what they share: a temp directory with hooks, an executor on it, and waiting.
//!
//! Some tests look at things that the whole process has once (its children, umask, descriptors, memory). They run `alone`: the
//! test starts its own binary again for that one test, so that others, which run beside it, neither disturb nor suffer.

mod endings;
mod leftovers;
mod results;
mod runs;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use super::{Capture, Executor, ExecutorOptions, Inherit, Outcome, Run, RunError, RunKind, Stream};
use crate::message::Event;

/// Nothing here takes this long; a test that does has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A place with hooks and an executor. Removed at the end.
pub(super) struct Place {
    pub(super) directory: PathBuf,
    pub(super) executor: Executor,
    _events: Receiver<Event>,
}

impl Place {
    /// An executor that shares this process with other tests.
    pub(super) fn new() -> Place {
        Place::with(|_| {})
    }

    /// An executor that adopts orphans; only for tests that run `alone`.
    pub(super) fn adopting() -> Place {
        Place::with(|options| options.adopt_orphans = true)
    }

    pub(super) fn with(change: impl FnOnce(&mut ExecutorOptions)) -> Place {
        let directory = new_directory();
        let (sender, events) = crossbeam_channel::unbounded();
        let mut options = options(&directory);
        change(&mut options);
        Place {
            executor: Executor::start(options, &sender).unwrap(),
            directory,
            _events: events,
        }
    }

    pub(super) fn hook(&self, name: &str, script: &str) -> PathBuf {
        let path = self.directory.join("hooks").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Writes a hook, runs it as an admission run and gives the result with all it printed.
    pub(super) fn run(&self, script: &str) -> (Result<Outcome, RunError>, Printed) {
        self.run_until(script, None)
    }

    pub(super) fn run_until(
        &self,
        script: &str,
        limit: Option<Duration>,
    ) -> (Result<Outcome, RunError>, Printed) {
        let path = self.hook("hook.sh", &format!("#!/bin/sh\n{script}\n"));
        self.run_hook(&path, RunKind::Admission, limit)
    }

    pub(super) fn run_hook(
        &self,
        path: &Path,
        kind: RunKind,
        limit: Option<Duration>,
    ) -> (Result<Outcome, RunError>, Printed) {
        let mut printed = Printed::default();
        let result = self.executor.run(Run {
            hook_name: "hook.sh",
            path,
            kind,
            write_input: &mut |file| file.write_all(b"[{\"binding\":\"b\"}]\n"),
            deadline: limit.map(|limit| Instant::now() + limit),
            output: &mut |stream, text| match stream {
                Stream::Stdout => printed.stdout.extend_from_slice(text),
                Stream::Stderr => printed.stderr.extend_from_slice(text),
            },
        });
        (result, printed)
    }

    /// Everything that lies in the directories of runs now.
    pub(super) fn run_files(&self) -> Vec<PathBuf> {
        let list = |path: &Path| -> Vec<PathBuf> {
            fs::read_dir(path)
                .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
                .unwrap_or_default()
        };
        let slots = list(self.executor.shared.workspace.path());
        slots.iter().flat_map(|slot| list(slot)).collect()
    }

    pub(super) fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.join("hooks").join(name)).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.executor.stop_all(PATIENCE);
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[derive(Default)]
pub(super) struct Printed {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

impl Printed {
    pub(super) fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.stdout)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

pub(super) fn options(directory: &Path) -> ExecutorOptions {
    ExecutorOptions {
        tmp_dir: directory.join("tmp"),
        keep_tmp_files: false,
        inherit: Inherit::All,
        kill_grace: Duration::from_millis(200),
        adopt_orphans: false,
    }
}

pub(super) fn new_directory() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("executor-test-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Waits for something that must come true.
pub(super) fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs. One that ended and was not reaped does not.
pub(super) fn is_running(pid: &str) -> bool {
    let raw = pid
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("not a process number: '{pid}'"));
    rustix::process::Pid::from_raw(raw)
        .and_then(super::census::read_process)
        .is_some_and(|process| !process.is_zombie)
}

/// Runs the body in a process of its own, which runs only the test of this name.
pub(super) fn alone(test: &str, body: impl FnOnce()) {
    const MARK: &str = "EXECUTOR_TEST_ALONE";
    #[expect(
        clippy::disallowed_methods,
        reason = "how the test knows that it is the inner one"
    )]
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    let place = Place::new();
    let name = format!("executor::tests::{test}");
    let captured = place
        .executor
        .capture(&Capture {
            program: &std::env::current_exe().unwrap(),
            args: &[&name, "--exact", "--nocapture", "--test-threads=1"],
            env: &[(MARK.to_owned(), "1".to_owned())],
            cwd: None,
            input: None,
            limit: PATIENCE * 2,
            max_output: 1024 * 1024,
        })
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let stdout = String::from_utf8_lossy(&captured.stdout).into_owned();
    assert!(
        captured.exit.is_success(),
        "{name} alone: {}\n{stdout}\n{}",
        captured.exit,
        captured.stderr
    );
    assert!(
        stdout.contains("1 passed"),
        "{name} is not the name of a test:\n{stdout}"
    );
}
