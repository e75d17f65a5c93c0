//! The program under test, running: its log as it is written, its probes, what it costs, and its end.
//!
//! Two threads read its stdout and stderr line by line. Dropping it ends it and everything it has started; in a test that fails,
//! the whole log is printed first.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use super::env::{Output, PROBE_PORT, Place};
use super::{Answer, Page, SOON, http, temp, wait_for};

/// How long an operator that a test did not stop itself may take to stop, before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A variable by which everything that a process has started can be found.
const MARK: &str = "SHELL_OPERATOR_TEST_RUN";

/// Clock ticks in a second as /proc counts them; the kernel's interface fixes it for every machine.
const TICKS_PER_SECOND: f64 = 100.0;

/// One line that the program printed.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) is_stderr: bool,
    pub(crate) text: String,
    /// The text as JSON, when it is an object.
    pub(crate) json: Option<Value>,
}

impl Line {
    /// The message of a log line, or the whole text of another one.
    pub(crate) fn message(&self) -> &str {
        self.label("msg").unwrap_or(&self.text)
    }

    /// A label of a log line.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        self.json.as_ref()?.get(key)?.as_str()
    }

    pub(crate) fn contains(&self, text: &str) -> bool {
        self.text.contains(text)
    }
}

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<Line>>,
    grown: Condvar,
}

impl Log {
    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, source: impl Read, is_stderr: bool) {
        let mut reader = BufReader::new(source);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).unwrap_or(0) > 0 {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            let json = serde_json::from_str(&text).ok().filter(Value::is_object);
            self.lines().push(Line {
                is_stderr,
                text,
                json,
            });
            self.grown.notify_all();
            bytes.clear();
        }
    }
}

pub(crate) struct Operator {
    child: Child,
    status: Option<ExitStatus>,
    log: Arc<Log>,
    readers: Vec<JoinHandle<()>>,
    place: Arc<Place>,
    mark: String,
}

impl Operator {
    pub(super) fn spawn(mut command: Command, place: Arc<Place>) -> Operator {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Below the test's folder, so that the watchdog knows it as well.
        let mark = format!("{}/run-{count}", place.temp.path().display());
        command.env(MARK, &mark);
        let mut child = temp::spawn(&mut command)
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let log = Arc::new(Log::default());
        let stdout = child.stdout.take().unwrap();
        let stderr = child.stderr.take().unwrap();
        let (for_stdout, for_stderr) = (Arc::clone(&log), Arc::clone(&log));
        Operator {
            child,
            status: None,
            log,
            readers: vec![
                std::thread::spawn(move || for_stdout.read(stdout, false)),
                std::thread::spawn(move || for_stderr.read(stderr, true)),
            ],
            place,
            mark,
        }
    }

    // ---- what it says ----

    /// Every line so far, of both streams.
    pub(crate) fn log_lines(&self) -> Vec<Line> {
        self.log.lines().clone()
    }

    /// Waits for a line. `what` completes the sentence "waited for the line …".
    #[track_caller]
    pub(crate) fn wait_log(&self, what: &str, expected: impl Fn(&Line) -> bool) -> Line {
        self.wait_log_for(what, SOON, expected)
    }

    #[track_caller]
    pub(crate) fn wait_log_for(
        &self,
        what: &str,
        limit: Duration,
        expected: impl Fn(&Line) -> bool,
    ) -> Line {
        let deadline = Instant::now() + limit;
        let mut lines = self.log.lines();
        let mut seen = 0;
        loop {
            if let Some(line) = lines[seen..].iter().find(|line| expected(line)) {
                return line.clone();
            }
            seen = lines.len();
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited for the line in vain: {what}");
            let all_read = self.readers.iter().all(JoinHandle::is_finished);
            assert!(!all_read, "it ended without the line: {what}");
            (lines, _) = self
                .log
                .grown
                .wait_timeout(lines, left.min(super::POLL))
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    // ---- what it answers ----

    /// The answer to a GET on one of its ports, `None` while nobody listens or answers there.
    pub(crate) fn http_get(&self, port: u16, path: &str) -> Option<Answer> {
        http::get(SocketAddr::new(self.place.loopback.address(), port), path).ok()
    }

    /// Its own metrics; a page that is not to the letter fails the test.
    #[track_caller]
    pub(crate) fn metrics(&self) -> Page {
        self.page("/metrics")
    }

    /// The metrics of its hooks.
    #[track_caller]
    pub(crate) fn hook_metrics(&self) -> Page {
        self.page("/metrics/hooks")
    }

    #[track_caller]
    fn page(&self, path: &str) -> Page {
        let answer = self.http_get(PROBE_PORT, path).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        let expected = "text/plain; version=0.0.4; charset=utf-8";
        assert_eq!(answer.header("content-type"), Some(expected));
        let text = answer.text();
        Page::parse(&text).unwrap_or_else(|error| panic!("{path}: {error}\n{text}"))
    }

    /// The answer of `/healthz`.
    pub(crate) fn healthz(&self) -> Option<Answer> {
        self.http_get(PROBE_PORT, "/healthz")
    }

    /// The answer of `/readyz`.
    pub(crate) fn readyz(&self) -> Option<Answer> {
        self.http_get(PROBE_PORT, "/readyz")
    }

    /// Waits until it is alive, which it is long before it is ready.
    #[track_caller]
    pub(crate) fn wait_alive(&self) {
        self.wait_probe("/healthz", SOON);
    }

    #[track_caller]
    pub(crate) fn wait_ready(&self) {
        self.wait_ready_for(SOON);
    }

    #[track_caller]
    pub(crate) fn wait_ready_for(&self, limit: Duration) {
        self.wait_probe("/readyz", limit);
    }

    #[track_caller]
    fn wait_probe(&self, path: &str, limit: Duration) {
        wait_for(&format!("{path} to answer 200"), limit, || {
            assert!(!self.has_ended(), "it ended before {path} answered 200");
            let answer = self.http_get(PROBE_PORT, path);
            answer.is_some_and(|answer| answer.status == 200)
        });
    }

    /// Seen from outside, because only the owner may ask for the exit code.
    fn has_ended(&self) -> bool {
        let stat = self.proc_file("stat");
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        matches!(after_name.trim_start().chars().next(), None | Some('Z'))
    }

    // ---- what it costs ----

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory.
    pub(crate) fn rss_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// The parts of it: what the program allocated or changed, and what is mapped from files.
    #[allow(dead_code, reason = "the measurements share this harness")]
    pub(crate) fn rss_parts_kib(&self) -> (u64, u64) {
        (self.status_kib("RssAnon:"), self.status_kib("RssFile:"))
    }

    fn status_kib(&self, name: &str) -> u64 {
        let status = self.proc_file("status");
        let line = status.lines().find(|line| line.starts_with(name));
        let field = line.and_then(|line| line.split_whitespace().nth(1));
        field.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// Processor time used, user and system, of all its threads.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let stat = self.proc_file("stat");
        // The second field is the name in brackets, which may hold anything; utime and stime are fields 14 and 15.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: f64 = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        ticks / TICKS_PER_SECOND
    }

    /// Open descriptors.
    pub(crate) fn fds(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    pub(crate) fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.pid())).map_or(0, Iterator::count)
    }

    fn proc_file(&self, name: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{name}", self.pid())).unwrap_or_default()
    }

    /// Its children, zombies included.
    pub(crate) fn children(&self) -> Vec<u32> {
        let parent = self.pid().to_string();
        processes()
            .filter(|pid| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
                after_name.split_whitespace().nth(1) == Some(&parent)
            })
            .collect()
    }

    /// Every process that comes from this one, also one that has left its parent and its process group: it still carries the
    /// mark in its environment.
    pub(crate) fn offspring(&self) -> Vec<u32> {
        let mark = format!("{MARK}={}\0", self.mark);
        processes()
            .filter(|pid| *pid != self.pid())
            .filter(|pid| {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                http::find(&environment, mark.as_bytes()).is_some()
            })
            .collect()
    }

    // ---- its end ----

    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended already; then the test will see that by its exit code.
        if self.status.is_none() {
            let _ = kill_process(self.rustix_pid(), signal);
        }
    }

    pub(crate) fn term(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().unwrap();
        }
        self.status.is_none()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        wait_for("the program to end", limit, || !self.is_running());
        self.status.unwrap()
    }

    /// Waits for its end and answers what it printed.
    #[track_caller]
    pub(crate) fn output(mut self, limit: Duration) -> Output {
        let code = self.wait_exit(limit).code();
        let lines = self.into_lines();
        let text = |is_stderr| {
            let chosen = lines.iter().filter(|line| line.is_stderr == is_stderr);
            chosen.map(|line| format!("{}\n", line.text)).collect()
        };
        Output {
            code,
            stdout: text(false),
            stderr: text(true),
        }
    }

    /// Every line, of a program that has ended, to the last one.
    pub(crate) fn into_lines(mut self) -> Vec<Line> {
        // Whoever inherited its output and lives on would keep the pipes open.
        self.kill_offspring();
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        self.log_lines()
    }

    fn rustix_pid(&self) -> Pid {
        Pid::from_raw(self.pid().cast_signed()).unwrap()
    }

    fn kill_offspring(&self) {
        for pid in self.offspring() {
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    fn print_log(&self) {
        eprintln!("---- log of process {} ----", self.pid());
        for line in self.log.lines().iter() {
            let stream = if line.is_stderr { "stderr" } else { "stdout" };
            eprintln!("{stream} {}", line.text);
        }
        match self.status {
            Some(status) => eprintln!(
                "---- it had ended: code {:?}, signal {:?} ----",
                status.code(),
                status.signal()
            ),
            None => eprintln!("---- it was still running ----"),
        }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let ran = self.is_running();
        if std::thread::panicking() {
            self.print_log();
        }
        if ran {
            self.term();
            let deadline = Instant::now() + STOP_LIMIT;
            while self.is_running() && Instant::now() < deadline {
                std::thread::sleep(super::POLL);
            }
            if self.is_running() {
                let _ = kill_process_group(self.rustix_pid(), Signal::KILL);
                let _ = self.child.wait();
            }
        }
        self.kill_offspring();
    }
}

/// The ids of all processes.
fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}
