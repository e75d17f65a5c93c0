//! One process from its start to its end: output streamed, deadline kept, nothing left behind.
//!
//! Everything here runs on the thread that asked for the run: it sleeps in one `poll` on the process and its two pipes, so a run
//! costs no thread. A `Running` owns its process; dropped before the end it hands the process to the reaper, which kills it. This
//! file never waits for a process beyond the deadline, and never for somebody who merely holds the pipes.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::census::{self, Usage};
use super::error::{Exit, LaunchError};
use super::files::{OBJECT_PATCH, RunDirectory};
use super::reaper::{Abandoned, Flags, Wake};
use super::registry::{LaunchRefusal, Offspring, Registry, offspring};

/// Which of its two outputs a process wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Receives output as it comes, in pieces of any size.
pub(crate) type Output<'a> = &'a mut dyn FnMut(Stream, &[u8]);

/// One read from a pipe. On the stack, because most hooks print little and a heap buffer per run would cost more than it saves.
const CHUNK: usize = 8 * 1024;

/// LIMIT: what a pipe can hold, for each of two pipes. All that the process itself wrote before it ended fits; what its leftover
/// children go on writing does not matter.
const DRAIN_BYTES: usize = 2 * 64 * 1024;

/// How long output is awaited from processes that outlive the hook: enough for the `tee` of `exec > >(tee …)` to pass on its last
/// line, too short to be felt when a `sleep 300 &` holds the pipe.
const DRAIN_TIME: Duration = Duration::from_millis(20);

/// When a run's memory is looked at first, and the longest time until it is looked at again; the pauses double in between. There
/// is no way to ask for it after the end: the kernel tells it only to `wait4`, which takes `unsafe`. A short run costs nothing.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A program being written by another thread or a copying container runtime can not be executed (ETXTBSY) for a moment.
const BUSY_RETRIES: u32 = 6;
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// How the end of a process came about.
pub(super) enum End {
    Exited(Exit, Usage),
    /// With what the hook has left in its object patch file by then.
    DeadlinePassed(Vec<u8>),
}

/// What every `Running` needs of the executor.
pub(super) struct Keeper {
    pub(super) registry: Arc<Registry>,
    pub(super) wakes: Sender<Wake>,
    pub(super) flags: Arc<Flags>,
    pub(super) kill_grace: Duration,
    pub(super) adopt_orphans: bool,
}

/// A process that was started and has not been reaped.
pub(super) struct Running {
    pid: Pid,
    run: u64,
    started: Instant,
    pidfd: Option<OwnedFd>,
    stdout: Option<PipeReader>,
    stderr: Option<PipeReader>,
    /// Holds the other ends of both pipes, until the process has ended: the end of a process closes its pipes one by one and then
    /// the process, and this thread would be woken for each.
    held_open: Option<Command>,
    directory: Option<RunDirectory>,
    is_reaped: bool,
    keeper: Arc<Keeper>,
}

pub(super) enum StartFailure {
    Stopping,
    Launch(LaunchError),
    Watch(io::Error),
}

/// Starts a program in its own process group, with no input and both outputs piped.
pub(super) fn start(
    keeper: &Arc<Keeper>,
    mut command: Command,
    run: u64,
    directory: Option<RunDirectory>,
) -> Result<Running, StartFailure> {
    let (stdout, stdout_writer) = io::pipe().map_err(StartFailure::Watch)?;
    let (stderr, stderr_writer) = io::pipe().map_err(StartFailure::Watch)?;
    // `process_group` keeps the fast start of the standard library (no copy of our page tables); `pre_exec` or `uid` would not.
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(stdout_writer)
        .stderr(stderr_writer);
    let started = Instant::now();
    let mut retries = 0;
    let child = loop {
        match keeper.registry.launch(&mut command, run) {
            Ok(child) => break child,
            Err(LaunchRefusal::Stopping) => return Err(StartFailure::Stopping),
            Err(LaunchRefusal::System(error))
                if error.kind() == io::ErrorKind::ExecutableFileBusy && retries < BUSY_RETRIES =>
            {
                std::thread::sleep(BUSY_PAUSE * 2_u32.pow(retries));
                retries += 1;
            }
            Err(LaunchRefusal::System(error)) => {
                let program = command.get_program().into();
                return Err(StartFailure::Launch(LaunchError::new(program, error)));
            }
        }
    };
    // From here on `Running` answers for the process, whatever fails.
    let mut running = Running {
        pid: Pid::from_child(&child),
        run,
        started,
        pidfd: None,
        stdout: Some(stdout),
        stderr: Some(stderr),
        held_open: Some(command),
        directory,
        is_reaped: false,
        keeper: Arc::clone(keeper),
    };
    keeper.flags.watch(&keeper.wakes);
    let pidfd = rustix::process::pidfd_open(running.pid, PidfdFlags::empty())
        .map_err(|error| StartFailure::Watch(error.into()))?;
    running.pidfd = Some(pidfd);
    Ok(running)
}

impl Running {
    #[cfg(test)]
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Streams output until the process ends or the deadline passes. After the deadline the process is no longer ours: it gets
    /// TERM now and, from the reaper, KILL after the grace.
    pub(super) fn follow(
        mut self,
        deadline: Option<Instant>,
        output: Output<'_>,
    ) -> io::Result<(End, Option<RunDirectory>)> {
        let (mut look_at, mut pause, mut most_memory) =
            (self.started + FIRST_LOOK, FIRST_LOOK, None);
        loop {
            let now = Instant::now();
            if now >= look_at {
                most_memory = most_memory.max(census::most_memory(self.pid));
                pause = LONGEST_PAUSE.min(pause * 2);
                look_at = now + pause;
            }
            let next = deadline.map_or(look_at, |deadline| deadline.min(look_at));
            if deadline.is_some_and(|deadline| deadline <= now) {
                // The directory stays with the process, which may not be over yet.
                let directory = self.directory.as_mut();
                let left = directory.and_then(|directory| directory.read(&OBJECT_PATCH).ok());
                return Ok((End::DeadlinePassed(left.unwrap_or_default()), None));
            }
            let ready = self.wait(Some(next.saturating_duration_since(now)))?;
            self.pass_on(ready, output);
            if ready.has_ended {
                break;
            }
        }
        self.drain(deadline, output);
        let usage = Usage {
            most_memory,
            ..self.usage()
        };
        let exit = self.reap()?;
        Ok((End::Exited(exit, usage), self.directory.take()))
    }

    /// The zombie still knows what it used; after reaping nobody does. Asking costs a thirtieth of a short run, and of a run
    /// shorter than a tick the kernel knows nothing.
    fn usage(&self) -> Usage {
        if self.started.elapsed() < census::TICK {
            return Usage::default();
        }
        census::read_process(self.pid)
            .map(|process| process.usage)
            .unwrap_or_default()
    }

    /// Takes the exit status, and sees to those the process left behind.
    fn reap(&mut self) -> io::Result<Exit> {
        let keeper = &self.keeper;
        // Without adoption nobody would come after them later, so there is no second, harder signal to wait for.
        let last_signal = if keeper.adopt_orphans {
            Signal::TERM
        } else {
            Signal::KILL
        };
        let Some(exit) = keeper.registry.reap(self.pid, last_signal)? else {
            return Err(io::Error::other("the process ended and yet it runs"));
        };
        self.is_reaped = true;
        if keeper.adopt_orphans {
            if rustix::process::test_kill_process_group(self.pid).is_ok() {
                let _ = keeper.wakes.send(Wake::GroupRemains(self.pid));
            }
            if offspring() != Offspring::None {
                keeper.flags.scan(&keeper.wakes);
            }
        }
        Ok(exit)
    }

    /// Sleeps until something happens.
    fn wait(&self, limit: Option<Duration>) -> io::Result<Ready> {
        let pidfd = self.pidfd.as_ref().map(AsFd::as_fd);
        let stdout = self.stdout.as_ref().map(AsFd::as_fd);
        let stderr = self.stderr.as_ref().map(AsFd::as_fd);
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(3);
        for descriptor in [&pidfd, &stdout, &stderr].into_iter().flatten() {
            polled.push(PollFd::new(descriptor, PollFlags::IN));
        }
        let timeout = limit.and_then(|limit| Timespec::try_from(limit).ok());
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let mut results = polled.iter().map(|polled| !polled.revents().is_empty());
        let mut next_of = |is_polled: bool| is_polled && results.next().unwrap_or(false);
        Ok(Ready {
            has_ended: next_of(pidfd.is_some()),
            stdout: next_of(stdout.is_some()),
            stderr: next_of(stderr.is_some()),
        })
    }

    /// Reads once from each pipe that has something or was closed. Never blocks, because `poll` said so and nobody else reads.
    fn pass_on(&mut self, ready: Ready, output: Output<'_>) -> usize {
        let mut chunk = [0_u8; CHUNK];
        let mut total = 0;
        if ready.stdout {
            total += pass_on_one(&mut self.stdout, Stream::Stdout, &mut chunk, output);
        }
        if ready.stderr {
            total += pass_on_one(&mut self.stderr, Stream::Stderr, &mut chunk, output);
        }
        total
    }

    /// Takes what is in the pipes after the end. Usually nobody else holds them, and then they are closed as soon as we let go.
    fn drain(&mut self, deadline: Option<Instant>, output: Output<'_>) {
        // The process itself is not polled any more: it would be ready all the time.
        self.pidfd = None;
        self.held_open = None;
        let until = Instant::now() + DRAIN_TIME;
        let until = deadline.map_or(until, |deadline| deadline.min(until));
        let mut total = 0;
        while (self.stdout.is_some() || self.stderr.is_some()) && total < DRAIN_BYTES {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(ready) = self.wait(Some(left)) else {
                return;
            };
            if !ready.stdout && !ready.stderr && left.is_zero() {
                return;
            }
            total += self.pass_on(ready, output);
        }
    }
}

impl Drop for Running {
    /// The one way in which a living process is given up: deadline, a failed watch, or a panic of the caller.
    fn drop(&mut self) {
        if self.is_reaped {
            return;
        }
        self.keeper.registry.abandon(self.run, self.pid);
        let abandoned = Abandoned {
            run: self.run,
            pid: self.pid,
            kill_at: Instant::now() + self.keeper.kill_grace,
            _pipes: (self.stdout.take(), self.stderr.take()),
            _directory: self.directory.take(),
        };
        // Sending fails only when the reaper is gone, that is when the process is about to exit.
        let _ = self.keeper.wakes.send(Wake::Abandoned(abandoned));
    }
}

#[derive(Clone, Copy, Default)]
struct Ready {
    has_ended: bool,
    stdout: bool,
    stderr: bool,
}

fn pass_on_one<R: Read>(
    pipe: &mut Option<R>,
    stream: Stream,
    chunk: &mut [u8],
    output: Output<'_>,
) -> usize {
    let Some(reader) = pipe.as_mut() else {
        return 0;
    };
    match reader.read(chunk) {
        Ok(length) if length > 0 => {
            if let Some(text) = chunk.get(..length) {
                output(stream, text);
            }
            length
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
        // The end, or a pipe that can not be read any more: both mean that nothing will come.
        Ok(_) | Err(_) => {
            *pipe = None;
            0
        }
    }
}
