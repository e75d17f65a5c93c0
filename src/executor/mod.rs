//! The executor: the only room that starts processes.
//!
//! `Executor::run` turns one run of a hook into a process and its results, on the thread that calls it; `Executor::capture` does
//! the same for a command whose stdout is wanted. `files` owns the directory of a run, `process` one process, `registry` the table of
//! all of them, `reaper` the thread that ends what is left behind, `census` reads `/proc`.
//!
//! ```text
//! input -> files (0700/0600) -> process (own group, poll, deadline) -> exit 0 -> files read once, bounded -> Outcome
//!                                   | deadline, stop, leftovers
//!                                   v
//!                               reaper: TERM, grace, KILL, reap
//! ```
//! Never interprets what a hook wrote, never logs it, never queues and never retries a run.

mod census;
mod error;
mod files;
mod process;
mod reaper;
mod registry;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use rustix::process::PidfdFlags;

pub(crate) use census::Usage;
pub(crate) use error::{CaptureError, Exit, Failure, Left, ResultFileError, RunError, StartError};
pub(crate) use process::{Output, Stream};

use files::{
    ADMISSION_RESPONSE, ALL, BINDING_CONTEXT, CONVERSION_RESPONSE, METRICS, OBJECT_PATCH,
    RunDirectory, RunFile, Workspace,
};
use process::{End, Keeper, StartFailure};
use reaper::{Flags, Reaper, Wake};
use registry::Registry;

use crate::message::Event;
use crate::threads;

/// LIMIT: the end of stderr that an error text keeps. A log record shows 10 000 bytes at most; the last lines say what happened.
const STDERR_TAIL: usize = 4 * 1024;

/// LIMIT: no pod is given longer than this to stop, so no grace can be meant to be longer. Keeps sums of times in range.
const LONGEST_GRACE: Duration = Duration::from_secs(3600);

/// How processes are run.
pub(crate) struct ExecutorOptions {
    /// Made if missing.
    pub(crate) tmp_dir: PathBuf,
    /// Leaves the files of every run in place, and those of earlier operators too.
    pub(crate) keep_tmp_files: bool,
    pub(crate) inherit: Inherit,
    /// Time between TERM and KILL.
    pub(crate) kill_grace: Duration,
    /// Makes this process the parent of all orphans of its hooks, which are then found, ended and reaped. Process-wide: every
    /// child that this executor did not start is taken for an orphan, so nothing else in the process may start one.
    pub(crate) adopt_orphans: bool,
}

/// What a hook gets of the operator's own environment.
pub(crate) enum Inherit {
    /// Everything, as the original does.
    All,
    /// Only these variables.
    Only(Vec<(OsString, OsString)>),
}

/// What a run is for. Decides which files are made before it and read after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// The hook must answer a review.
    Admission,
    /// The hook must convert objects.
    Conversion,
    /// Start, schedule and object events: no answer.
    Other,
}

/// One execution of one hook.
pub(crate) struct Run<'a> {
    pub(crate) hook_name: &'a str,
    /// Absolute. The hook runs in the directory that holds it.
    pub(crate) path: &'a Path,
    pub(crate) kind: RunKind,
    /// Writes the binding contexts. Called once, before the hook is started.
    pub(crate) write_input: &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    /// When the answer must be there. The hook is killed then.
    pub(crate) deadline: Option<Instant>,
    /// Gets what the hook prints, as it comes.
    pub(crate) output: Output<'a>,
}

/// What a hook that ended with exit code 0 left behind. Empty where there was no file. Uninterpreted: it may be anything.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) admission_response: Vec<u8>,
    pub(crate) conversion_response: Vec<u8>,
    pub(crate) metrics: Vec<u8>,
    pub(crate) patches: Vec<u8>,
    pub(crate) usage: Usage,
    pub(crate) files: Option<RunFiles>,
}

/// The files of a run that is over. They are removed when this is dropped, which may be put off until nobody waits.
pub(crate) struct RunFiles {
    _directory: RunDirectory,
}

/// A command whose stdout is wanted: a hook's `--config`, a kubeconfig's exec plugin.
pub(crate) struct Capture<'a> {
    /// A path, or a name that is looked up in `PATH`.
    pub(crate) program: &'a Path,
    pub(crate) args: &'a [&'a str],
    /// Added to the operator's own environment.
    pub(crate) env: &'a [(String, String)],
    /// The operator's own when not given.
    pub(crate) cwd: Option<&'a Path>,
    pub(crate) limit: Duration,
    pub(crate) max_output: usize,
}

pub(crate) struct Captured {
    pub(crate) exit: Exit,
    pub(crate) stdout: Vec<u8>,
    /// The end of it.
    pub(crate) stderr: String,
}

/// The handle to the executor. Cheap to clone; the reaper thread ends with the last one.
#[derive(Clone)]
pub(crate) struct Executor {
    shared: Arc<Shared>,
    surroundings: Option<Arc<Surroundings>>,
}

/// What is particular to the hooks that are run through one handle.
pub(crate) struct Surroundings {
    /// Set for hooks in addition to what they inherit.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// Gets to see how each run ended, before whoever asked for it does; with the end of what the hook wrote to stderr.
    pub(crate) witness: Witness,
}

pub(crate) type Witness = Box<dyn Fn(Result<&Outcome, &RunError>, &str) + Send + Sync>;

struct Shared {
    workspace: Arc<Workspace>,
    inherit: Inherit,
    keeper: Arc<Keeper>,
    next_run: AtomicU64,
}

impl Executor {
    /// Prepares the temp directory and starts the reaper.
    pub(crate) fn start(
        options: ExecutorOptions,
        events: &Sender<Event>,
    ) -> Result<Executor, StartError> {
        let own = rustix::process::getpid();
        rustix::process::pidfd_open(own, PidfdFlags::empty())
            .map_err(|error| StartError::NoPidfd(error.into()))?;
        let workspace = Workspace::open(&options.tmp_dir, options.keep_tmp_files)?;
        if options.adopt_orphans {
            rustix::process::set_child_subreaper(Some(own))
                .map_err(|error| StartError::Subreaper(error.into()))?;
        }
        let (wakes, reaper_wakes) = crossbeam_channel::unbounded();
        let keeper = Keeper {
            registry: Arc::new(Registry::default()),
            wakes,
            flags: Arc::new(Flags::default()),
            kill_grace: options.kill_grace.min(LONGEST_GRACE),
            adopt_orphans: options.adopt_orphans,
        };
        let reaper = Reaper::new(reaper_wakes, &keeper, workspace.path().to_owned());
        threads::spawn("reaper", events, move || reaper.serve()).map_err(StartError::Thread)?;
        Ok(Executor {
            shared: Arc::new(Shared {
                workspace: Arc::new(workspace),
                inherit: options.inherit,
                keeper: Arc::new(keeper),
                next_run: AtomicU64::new(1),
            }),
            surroundings: None,
        })
    }

    /// A handle to the same executor whose hooks have surroundings of their own.
    pub(crate) fn with(&self, surroundings: Surroundings) -> Executor {
        Executor {
            shared: Arc::clone(&self.shared),
            surroundings: Some(Arc::new(surroundings)),
        }
    }

    /// Runs a hook and reads what it left. Returns by the deadline, whatever the hook does.
    pub(crate) fn run(&self, run: Run<'_>) -> Result<Outcome, RunError> {
        let hook = run.hook_name;
        let mut stderr = Tail::default();
        let mut patches = Left::default();
        let ended = self.run_process(run, &mut stderr, &mut patches);
        let is_seen = self.surroundings.is_some();
        let stderr = if is_seen || ended.is_err() {
            stderr.into_text()
        } else {
            String::new()
        };
        let ended = ended.map_err(|failure| RunError {
            hook: hook.to_owned(),
            failure,
            stderr: stderr.clone(),
            patches,
        });
        if let Some(surroundings) = &self.surroundings {
            (surroundings.witness)(ended.as_ref(), &stderr);
        }
        ended
    }

    /// Runs a command to its end and gives what it printed.
    pub(crate) fn capture(&self, capture: &Capture<'_>) -> Result<Captured, CaptureError> {
        let mut command = new_command(capture.program);
        command.args(capture.args);
        for (name, value) in capture.env {
            command.env(name, value);
        }
        if let Some(cwd) = capture.cwd {
            command.current_dir(cwd);
        }
        let deadline = Instant::now().checked_add(capture.limit);
        let running = process::start(&self.shared.keeper, command, self.next_run(), None).map_err(
            |failure| match failure {
                StartFailure::Stopping => CaptureError::Stopped,
                StartFailure::Launch(error) => CaptureError::Launch(error),
                StartFailure::Watch(error) => CaptureError::Watch(error),
            },
        )?;
        let mut stdout = Vec::new();
        let mut is_too_long = false;
        let mut stderr = Tail::default();
        let followed = running.follow(deadline, &mut |stream, text| match stream {
            Stream::Stderr => stderr.push(text),
            Stream::Stdout if stdout.len().saturating_add(text.len()) > capture.max_output => {
                // Read on, so that the command is not stopped by a full pipe, and forget it.
                is_too_long = true;
            }
            Stream::Stdout => stdout.extend_from_slice(text),
        });
        match followed.map_err(CaptureError::Watch)?.0 {
            End::DeadlinePassed(_) => Err(CaptureError::TimedOut {
                limit: capture.limit,
                stderr: stderr.into_text(),
            }),
            End::Exited(..) if is_too_long => Err(CaptureError::TooMuchOutput {
                limit: capture.max_output,
            }),
            End::Exited(Exit::Signal(_), _) if self.shared.keeper.registry.is_stopping() => {
                Err(CaptureError::Stopped)
            }
            End::Exited(exit, _) => Ok(Captured {
                exit,
                stdout,
                stderr: stderr.into_text(),
            }),
        }
    }

    /// Ends everything: TERM to all, KILL after the grace, and nothing is started any more. Waits until no process of ours is
    /// left, at most for `limit`; says whether that came true.
    pub(crate) fn stop_all(&self, limit: Duration) -> bool {
        let keeper = &self.shared.keeper;
        keeper.registry.stop();
        let (reply, is_done) = crossbeam_channel::bounded(1);
        if keeper.wakes.send(Wake::Stop(reply)).is_err() {
            return false;
        }
        is_done.recv_timeout(limit).is_ok()
    }

    /// `patches` gets what a hook that failed left in its object patch file.
    fn run_process(
        &self,
        run: Run<'_>,
        stderr: &mut Tail,
        patches: &mut Left,
    ) -> Result<Outcome, Failure> {
        let Run {
            path,
            kind,
            write_input,
            deadline,
            output,
            ..
        } = run;
        let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if let Some(limit @ Duration::ZERO) = limit {
            return Err(Failure::TimedOut { limit });
        }
        let number = self.next_run();
        let directory = self
            .prepare(number, kind, write_input)
            .map_err(Failure::Prepare)?;
        let command = self.hook_command(path, &directory);
        let running = process::start(&self.shared.keeper, command, number, Some(directory))
            .map_err(|failure| match failure {
                StartFailure::Stopping => Failure::Stopped,
                StartFailure::Launch(error) => Failure::Launch(error),
                StartFailure::Watch(error) => Failure::Watch(error),
            })?;
        let mut watch_output = |stream, text: &[u8]| {
            if stream == Stream::Stderr {
                stderr.push(text);
            }
            output(stream, text);
        };
        let (end, directory) = running
            .follow(deadline, &mut watch_output)
            .map_err(Failure::Watch)?;
        match (end, directory) {
            (End::Exited(Exit::Code(0), usage), Some(mut directory)) => {
                let outcome = collect(&mut directory, kind).map_err(|error| {
                    patches.0 = directory.read(&OBJECT_PATCH).unwrap_or_default();
                    Failure::Result(error)
                })?;
                let files = RunFiles {
                    _directory: directory,
                };
                Ok(Outcome {
                    usage,
                    files: Some(files),
                    ..outcome
                })
            }
            (End::Exited(Exit::Signal(_), _), _) if self.shared.keeper.registry.is_stopping() => {
                Err(Failure::Stopped)
            }
            (End::Exited(exit, _), Some(mut directory)) => {
                // The run has failed already, and how is what counts: a file that cannot be read is as good as none.
                patches.0 = directory.read(&OBJECT_PATCH).unwrap_or_default();
                Err(Failure::Ended(exit))
            }
            (End::Exited(exit, _), None) => Err(Failure::Ended(exit)),
            (End::DeadlinePassed(left), _) => {
                patches.0 = left;
                Err(Failure::TimedOut {
                    limit: limit.unwrap_or_default(),
                })
            }
        }
    }

    /// Makes the run's directory with its input, and the files that this kind of run is expected to fill.
    fn prepare(
        &self,
        run: u64,
        kind: RunKind,
        write_input: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<RunDirectory> {
        let mut directory = self.shared.workspace.run_directory(run)?;
        let mut input = BufWriter::new(directory.create(&BINDING_CONTEXT)?);
        write_input(&mut input)?;
        input.flush()?;
        for file in files_made_before(kind) {
            directory.create(file)?;
        }
        Ok(directory)
    }

    /// A hook learns nothing but paths: whatever a request holds is in files, never in arguments or variables.
    fn hook_command(&self, path: &Path, directory: &RunDirectory) -> Command {
        let mut command = new_command(path);
        if let Inherit::Only(variables) = &self.shared.inherit {
            command.env_clear();
            for (name, value) in variables {
                command.env(name, value);
            }
        }
        if let Some(surroundings) = &self.surroundings {
            for (name, value) in &surroundings.variables {
                command.env(name, value);
            }
        }
        // All of them for every kind, as the original does; so none can come from the operator's own environment.
        for file in ALL {
            let path = directory.path_of(file);
            for variable in file.variables {
                command.env(variable, &path);
            }
        }
        if let Some(parent) = path.parent() {
            command.current_dir(parent);
        }
        command
    }

    fn next_run(&self) -> u64 {
        self.shared.next_run.fetch_add(1, Ordering::Relaxed)
    }
}

/// Puts a fresh run of this program, with these arguments, in the place of this process: same number, same environment, same output.
/// Everything else ends with it. Returns only if that is impossible.
pub(crate) fn replace_process(arguments: &[OsString]) -> io::Error {
    let mut command = new_command(&own_program());
    if let Some((name, rest)) = arguments.split_first() {
        command.arg0(name).args(rest);
    }
    command.exec()
}

/// The file of this program. The link that the system keeps works also when the file was replaced, but the process would be called
/// `exe`.
pub(crate) fn own_program() -> PathBuf {
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    program.unwrap_or_else(|| PathBuf::from("/proc/self/exe"))
}

#[expect(clippy::disallowed_methods, reason = "this is the room that may")]
fn new_command(program: &Path) -> Command {
    Command::new(program)
}

/// SO-24: the file that a hook must fill is there, empty, as in the original. The files of a review that hardly any hook writes, its
/// metrics and patches, are made by the hook itself; the directory keeps them private, whatever the umask.
fn files_made_before(kind: RunKind) -> &'static [&'static RunFile] {
    match kind {
        RunKind::Admission => &[&ADMISSION_RESPONSE],
        RunKind::Conversion => &[&CONVERSION_RESPONSE],
        RunKind::Other => &[&METRICS, &OBJECT_PATCH],
    }
}

/// Read once, after the end of the hook: what a process left behind writes later does not count.
fn collect(directory: &mut RunDirectory, kind: RunKind) -> Result<Outcome, ResultFileError> {
    let mut outcome = Outcome {
        metrics: directory.read(&METRICS)?,
        ..Outcome::default()
    };
    match kind {
        RunKind::Admission => outcome.admission_response = directory.read(&ADMISSION_RESPONSE)?,
        RunKind::Conversion => {
            outcome.conversion_response = directory.read(&CONVERSION_RESPONSE)?;
        }
        RunKind::Other => {}
    }
    outcome.patches = directory.read(&OBJECT_PATCH)?;
    Ok(outcome)
}

/// The last bytes of a stream.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Tail {
    fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        let excess = self.bytes.len().saturating_sub(STDERR_TAIL);
        if excess > 0 {
            self.bytes.drain(..excess);
            self.is_cut = true;
        }
    }

    fn into_text(self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let text = text.trim();
        if self.is_cut {
            return format!("... {text}");
        }
        text.to_owned()
    }
}
