//! What can go wrong around a process, and the words for it.
//!
//! Data is in the variants, words are in `Display`. A failed run has two texts: `Display` is for the log and keeps the shape of
//! the original (`<hook> FAILED: …`), `reason` is short and may be shown to the user whose request was refused, so it never
//! repeats what the hook printed. Pure: this file does no I/O and owns nothing.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    pub(crate) fn is_success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(out, "exit status {code}"),
            Exit::Signal(number) => write!(out, "killed by signal {number}"),
        }
    }
}

/// Why the executor could not be started. Fatal, the operator can do nothing without it.
#[derive(Debug)]
pub(crate) enum StartError {
    TmpDir { path: PathBuf, source: io::Error },
    NoPidfd(io::Error),
    Subreaper(io::Error),
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::TmpDir { path, source } => write!(
                out,
                "temp directory: create tmp dir '{}': {source}; make it writable or name another with --tmp-dir",
                path.display()
            ),
            StartError::NoPidfd(source) => write!(
                out,
                "this kernel has no process file descriptors: {source}; Linux 5.4 or later is needed"
            ),
            StartError::Subreaper(source) => {
                write!(out, "become the parent of orphaned processes: {source}")
            }
            StartError::Thread(source) => write!(out, "start the reaper thread: {source}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Why a process could not be started.
#[derive(Debug)]
pub(crate) struct LaunchError {
    pub(crate) program: PathBuf,
    pub(crate) cause: LaunchFailure,
}

#[derive(Debug)]
pub(crate) enum LaunchFailure {
    /// The program itself is not there (any more).
    Missing,
    /// The program is there, yet the kernel found nothing: its interpreter or its loader is missing.
    NoInterpreter,
    /// No first line that names an interpreter, and no program format that the kernel knows.
    UnknownFormat,
    NotExecutable,
    NoProcesses,
    Other(io::Error),
}

impl LaunchError {
    pub(super) fn new(program: PathBuf, error: io::Error) -> LaunchError {
        let cause = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NOTDIR) if program.exists() => LaunchFailure::NoInterpreter,
            Some(Errno::NOENT | Errno::NOTDIR) => LaunchFailure::Missing,
            Some(Errno::NOEXEC) => LaunchFailure::UnknownFormat,
            Some(Errno::ACCESS) => LaunchFailure::NotExecutable,
            Some(Errno::AGAIN) => LaunchFailure::NoProcesses,
            _ => LaunchFailure::Other(error),
        };
        LaunchError { program, cause }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = self.program.display();
        match &self.cause {
            LaunchFailure::Missing => write!(out, "{program}: no such file"),
            LaunchFailure::NoInterpreter => write!(
                out,
                "{program}: no such file or directory, although the file is there: is the interpreter in its first line installed?"
            ),
            LaunchFailure::UnknownFormat => write!(
                out,
                "{program}: exec format error: does its first line name an interpreter, like #!/bin/sh?"
            ),
            LaunchFailure::NotExecutable => write!(
                out,
                "{program}: permission denied: chmod +x the file, and check that its volume is not mounted noexec"
            ),
            LaunchFailure::NoProcesses => write!(
                out,
                "{program}: resource temporarily unavailable (EAGAIN): the limit of processes is reached, raise the pod's pids limit or end what fills it"
            ),
            LaunchFailure::Other(error) => write!(out, "{program}: {error}"),
        }
    }
}

/// Why a file that a hook left behind was not taken.
#[derive(Debug)]
pub(crate) enum ResultFileError {
    /// The hook put something else in the place of the file it was given.
    Replaced {
        file: &'static str,
        by: &'static str,
    },
    TooLarge {
        file: &'static str,
        limit: u64,
    },
    Unreadable {
        file: &'static str,
        source: io::Error,
    },
}

impl fmt::Display for ResultFileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResultFileError::Replaced { file, by } => {
                write!(
                    out,
                    "hook replaced its {file} by {by}: write to the file that was given"
                )
            }
            ResultFileError::TooLarge { file, limit } => {
                write!(out, "hook wrote more than {limit} bytes to its {file}")
            }
            ResultFileError::Unreadable { file, source } => {
                write!(out, "can't read {file}: {source}")
            }
        }
    }
}

/// A run that failed.
#[derive(Debug)]
pub(crate) struct RunError {
    pub(crate) hook: String,
    pub(crate) failure: Failure,
    /// The end of what the hook wrote to stderr, trimmed. For the log only.
    pub(crate) stderr: String,
    /// What the hook left in its object patch file, however it ended. Uninterpreted.
    pub(crate) patches: Left,
}

/// The content of a file that a hook left, of which nothing is shown.
#[derive(Default)]
pub(crate) struct Left(pub(crate) Vec<u8>);

impl fmt::Debug for Left {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.0.len())
    }
}

#[derive(Debug)]
pub(crate) enum Failure {
    /// The run's directory or its input could not be written.
    Prepare(io::Error),
    Launch(LaunchError),
    Ended(Exit),
    TimedOut {
        limit: Duration,
    },
    /// The operator is stopping, so the hook was ended or not started.
    Stopped,
    Result(ResultFileError),
    /// The kernel refused to tell about the process.
    Watch(io::Error),
}

impl RunError {
    /// A short text without anything the hook printed, for the user whose request failed.
    pub(crate) fn reason(&self) -> String {
        match &self.failure {
            Failure::Prepare(_) => "could not prepare the run".to_owned(),
            Failure::Launch(_) => "could not start".to_owned(),
            Failure::Ended(Exit::Code(code)) => format!("exit code {code}"),
            Failure::Ended(Exit::Signal(number)) => format!("killed by signal {number}"),
            Failure::TimedOut { limit } => format!("timed out after {} s", seconds(*limit)),
            Failure::Stopped => "shell-operator is stopping".to_owned(),
            Failure::Result(_) => "invalid response".to_owned(),
            Failure::Watch(_) => "could not be watched".to_owned(),
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} FAILED: ", self.hook)?;
        match &self.failure {
            // The original shows all of stderr, and nothing else where there is some.
            Failure::Ended(_) if !self.stderr.is_empty() => return out.write_str(&self.stderr),
            Failure::Ended(exit) => return write!(out, "cmd run: {exit}"),
            Failure::Prepare(error) => write!(out, "prepare files for the run: {error}")?,
            Failure::Launch(error) => write!(out, "cmd start: {error}")?,
            Failure::TimedOut { limit } => {
                write!(out, "timed out after {} s and was killed", seconds(*limit))?;
            }
            Failure::Stopped => out.write_str("ended because shell-operator is stopping")?,
            Failure::Result(error) => write!(out, "{error}")?,
            Failure::Watch(error) => write!(out, "watch the process: {error}")?,
        }
        if self.stderr.is_empty() {
            return Ok(());
        }
        write!(out, ": {}", self.stderr)
    }
}

impl std::error::Error for RunError {}

/// Why a captured command (`--config`, a kubeconfig's exec plugin) gave no output.
#[derive(Debug)]
pub(crate) enum CaptureError {
    Launch(LaunchError),
    TimedOut { limit: Duration, stderr: String },
    TooMuchOutput { limit: usize },
    Stopped,
    Watch(io::Error),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::Launch(error) => write!(out, "cmd start: {error}"),
            CaptureError::TimedOut { limit, stderr } if stderr.is_empty() => {
                write!(out, "timed out after {} s and was killed", seconds(*limit))
            }
            CaptureError::TimedOut { limit, stderr } => write!(
                out,
                "timed out after {} s and was killed: {stderr}",
                seconds(*limit)
            ),
            CaptureError::TooMuchOutput { limit } => {
                write!(out, "printed more than {limit} bytes to stdout")
            }
            CaptureError::Stopped => out.write_str("ended because shell-operator is stopping"),
            CaptureError::Watch(error) => write!(out, "watch the process: {error}"),
        }
    }
}

impl std::error::Error for CaptureError {}

/// `2` or `1.8`: whole seconds as users write them, tenths where a margin was taken off.
fn seconds(limit: Duration) -> String {
    let tenths = limit.saturating_add(Duration::from_millis(50)).as_millis() / 100;
    if tenths.is_multiple_of(10) {
        return (tenths / 10).to_string();
    }
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(failure: Failure, stderr: &str) -> RunError {
        RunError {
            hook: "a/hook.sh".to_owned(),
            failure,
            stderr: stderr.to_owned(),
            patches: Left::default(),
        }
    }

    #[test]
    fn the_log_text_has_the_shape_of_the_original() {
        let check = |failure, stderr: &str, wanted: &str| {
            assert_eq!(failed(failure, stderr).to_string(), wanted);
        };
        let limit = Duration::from_millis(1800);
        check(
            Failure::Ended(Exit::Code(1)),
            "no such pod",
            "a/hook.sh FAILED: no such pod",
        );
        check(
            Failure::Ended(Exit::Code(42)),
            "",
            "a/hook.sh FAILED: cmd run: exit status 42",
        );
        check(
            Failure::Ended(Exit::Signal(9)),
            "",
            "a/hook.sh FAILED: cmd run: killed by signal 9",
        );
        check(
            Failure::TimedOut { limit },
            "waiting",
            "a/hook.sh FAILED: timed out after 1.8 s and was killed: waiting",
        );
    }

    #[test]
    fn the_reason_never_repeats_what_the_hook_printed() {
        let limit = Duration::from_secs(2);
        for (failure, wanted) in [
            (Failure::Ended(Exit::Code(3)), "exit code 3"),
            (Failure::Ended(Exit::Signal(11)), "killed by signal 11"),
            (Failure::TimedOut { limit }, "timed out after 2 s"),
        ] {
            assert_eq!(failed(failure, "password=1").reason(), wanted);
        }
    }
}
