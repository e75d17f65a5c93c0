//! Which processes are ours to wait for, and the only place where one is reaped.
//!
//! The kernel gives the number of a reaped process to somebody else, and an exit status can be fetched once. So everything that
//! reaps or signals by number goes through this table: a run's thread reaps its own child, the reaper thread reaps the rest, and
//! neither can take the other's. Shared by all of them; holds two locks, each only around calls that do not wait (see `launch`
//! for the one exception).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus};

use super::error::Exit;

/// INVARIANT: a child started by us is in `children` from before anybody could reap it until it has been reaped.
#[derive(Default)]
pub(super) struct Registry {
    /// Held for reading from before a process is made until it is in `children`. Whoever holds it for writing knows that every
    /// unreaped child that is not in `children` was not started by us but inherited.
    starting: RwLock<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Process number to run number.
    children: BTreeMap<i32, u64>,
    /// Runs whose processes may live.
    active: BTreeSet<u64>,
    stopping: bool,
}

/// What `launch` refuses when the operator is stopping, and what the kernel refuses.
pub(super) enum LaunchRefusal {
    Stopping,
    System(io::Error),
}

impl Registry {
    /// Starts a process of a run and writes it down.
    ///
    /// The read lock is held while the kernel starts the program, some tenths of a millisecond. Only the reaper ever takes the
    /// write lock, for a few calls, when there is an orphan to reap.
    pub(super) fn launch(&self, command: &mut Command, run: u64) -> Result<Child, LaunchRefusal> {
        let starting = self.starting.read().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = self.state();
            if state.stopping {
                return Err(LaunchRefusal::Stopping);
            }
            // Before the process exists: the reaper ends processes of runs that are not active.
            state.active.insert(run);
        }
        let launched = command.spawn();
        let mut state = self.state();
        match launched {
            Ok(child) => {
                let pid = Pid::from_child(&child);
                state.children.insert(pid.as_raw_pid(), run);
                // A stop that came while the process was being made did not see it.
                if state.stopping {
                    signal_group(pid, Signal::KILL);
                }
                drop(state);
                drop(starting);
                Ok(child)
            }
            Err(error) => {
                state.active.remove(&run);
                Err(LaunchRefusal::System(error))
            }
        }
    }

    /// Whether a child waits to be reaped.
    pub(super) fn has_ended(&self, pid: Pid) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(wait(&WaitId::Pid(pid), options), Ok(None))
    }

    /// Reaps a child that has ended, after a last signal to what is left of its group; nothing while the child runs.
    ///
    /// The signal comes first because the group's number is ours only as long as its leader is not reaped.
    pub(super) fn reap(&self, pid: Pid, last_signal: Signal) -> io::Result<Option<Exit>> {
        let mut state = self.state();
        signal_group(pid, last_signal);
        let reaped = wait(
            &WaitId::Pid(pid),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
        if matches!(reaped, Ok(None)) {
            return Ok(None);
        }
        // Also after an error: a child that can not be waited for is not ours any more.
        if let Some(run) = state.children.remove(&pid.as_raw_pid()) {
            state.active.remove(&run);
        }
        reaped.map(|status| status.as_ref().map(exit_of))
    }

    /// Declares a run finished although its process still lives: its answer is not awaited any more.
    pub(super) fn abandon(&self, run: u64, pid: Pid) {
        let mut state = self.state();
        state.active.remove(&run);
        if state.children.contains_key(&pid.as_raw_pid()) {
            signal_group(pid, Signal::TERM);
        }
    }

    /// Reaps orphans that came to us because their parents ended. Numbers of our own children among them are left alone.
    pub(super) fn reap_orphans(&self, zombies: &[Pid]) {
        let _no_one_starts = self
            .starting
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let state = self.state();
        for zombie in zombies {
            if !state.children.contains_key(&zombie.as_raw_pid()) {
                // An error means that it is no child of ours any more, which is what was wanted.
                let _ = wait(
                    &WaitId::Pid(*zombie),
                    WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
                );
            }
        }
    }

    /// From now on nothing is started.
    pub(super) fn stop(&self) {
        self.state().stopping = true;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.state().stopping
    }

    /// Sends a signal to the groups of all children.
    pub(super) fn signal_all(&self, signal: Signal) {
        for pid in self.state().children.keys() {
            if let Some(pid) = Pid::from_raw(*pid) {
                signal_group(pid, signal);
            }
        }
    }

    pub(super) fn is_child(&self, pid: i32) -> bool {
        self.state().children.contains_key(&pid)
    }

    pub(super) fn is_active(&self, run: u64) -> bool {
        self.state().active.contains(&run)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().children.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether any process in the system is our child, and if one of them waits to be reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offspring {
    None,
    Running,
    Ended,
}

/// One call, so it may be asked after every run.
pub(super) fn offspring() -> Offspring {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match wait(&WaitId::All, options) {
        Ok(None) => Offspring::Running,
        Ok(Some(_)) => Offspring::Ended,
        Err(_) => Offspring::None,
    }
}

/// The group may be gone, or consist of processes of another user: nothing is to be done about either.
pub(super) fn signal_group(leader: Pid, signal: Signal) {
    let _ = rustix::process::kill_process_group(leader, signal);
}

fn exit_of(status: &WaitIdStatus) -> Exit {
    match status.exit_status() {
        Some(code) => Exit::Code(code),
        // Only ended children are asked for, so what did not exit was killed.
        None => Exit::Signal(status.terminating_signal().unwrap_or(0)),
    }
}

fn wait(whom: &WaitId<'_>, options: WaitIdOptions) -> io::Result<Option<WaitIdStatus>> {
    loop {
        match rustix::process::waitid(whom.clone(), options) {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}
