//! The reaper: ends what runs leave behind, and reaps what nobody waits for.
//!
//! Runs on its own thread and sleeps on a channel. It kills processes whose run gave them up (deadline, stop) when their grace is
//! over, finds processes that outlived their run, also those that left its group with `setsid`, and reaps orphans, which all
//! become our children because we are a child subreaper or process 1. It signals only processes of finished runs: those in the
//! group of one, or started with the variables of one. It never reaps a child that a run waits for (see `registry`).

use std::collections::BTreeMap;
use std::io::PipeReader;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use rustix::process::{Pid, Signal};

use super::census::{self, Process};
use super::files::{BINDING_CONTEXT, RunDirectory};
use super::process::Keeper;
use super::registry::{Offspring, Registry, offspring};

/// At most this often `/proc` is read, and at most a twentieth of the time is spent on it where it is large. Less would not do: what
/// hides below each other shows at one scan after the other, and all of it must be gone soon after its run.
const SCAN_INTERVAL: Duration = Duration::from_millis(250);
const SCAN_SHARE: u32 = 20;

/// While the operator stops, somebody waits for the end of everything.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// How often orphans of hooks that are still running are looked for. No runs, no looking.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// As process 1 we also get orphans of others (`kubectl exec`), without any run of ours ending.
const INIT_INTERVAL: Duration = Duration::from_secs(30);

/// How often given-up processes are looked at until they have ended. There are few of them and not for long.
const ABANDONED_INTERVAL: Duration = Duration::from_millis(20);

/// What the reaper is told.
pub(super) enum Wake {
    /// A process nobody waits for any more. It has got TERM.
    Abandoned(Abandoned),
    /// A run ended, its leader is reaped, and its group has members. They have got TERM.
    GroupRemains(Pid),
    /// Processes of an ended run may be somewhere.
    Scan,
    /// The first of some runs started.
    Watch,
    /// The operator stops: everything ends. Answered when nothing is left.
    Stop(Sender<()>),
}

pub(super) struct Abandoned {
    pub(super) run: u64,
    pub(super) pid: Pid,
    pub(super) kill_at: Instant,
    /// Kept open and unread: a hook that says something while it cleans up must not be killed by a closed pipe.
    pub(super) _pipes: (Option<PipeReader>, Option<PipeReader>),
    /// Removed when this is dropped, which is after the process is gone.
    pub(super) _directory: Option<RunDirectory>,
}

/// Keeps runs from sending the same wake-up again and again.
#[derive(Default)]
pub(super) struct Flags {
    scan_wanted: AtomicBool,
    watching: AtomicBool,
}

impl Flags {
    pub(super) fn scan(&self, wakes: &Sender<Wake>) {
        if !self.scan_wanted.swap(true, Ordering::AcqRel) {
            let _ = wakes.send(Wake::Scan);
        }
    }

    pub(super) fn watch(&self, wakes: &Sender<Wake>) {
        if !self.watching.load(Ordering::Acquire) && !self.watching.swap(true, Ordering::AcqRel) {
            let _ = wakes.send(Wake::Watch);
        }
    }
}

pub(super) struct Reaper {
    wakes: Receiver<Wake>,
    registry: Arc<Registry>,
    flags: Arc<Flags>,
    /// The directory of all our runs.
    workspace: PathBuf,
    kill_grace: Duration,
    adopt_orphans: bool,
    own: Pid,

    abandoned: Vec<Abandoned>,
    /// Groups whose leader is reaped and that had members then.
    groups: Vec<i32>,
    /// Runs that were given up and those of which leftovers have got TERM, with the time of the first.
    warned: BTreeMap<Origin, Instant>,
    scan_at: Option<Instant>,
    next_scan_not_before: Instant,
    watch_at: Option<Instant>,
    stop: Option<Stop>,
}

/// What a leftover comes from. There is one grace for all of it: a process that ignores TERM may hide others that do, and they
/// show one by one, when their parent is killed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Origin {
    Run(u64),
    Group(i32),
    /// The process itself, which hides where it comes from.
    Unknown(i32),
}

struct Stop {
    kill_at: Instant,
    is_killed: bool,
    reply: Sender<()>,
}

impl Reaper {
    pub(super) fn new(wakes: Receiver<Wake>, keeper: &Keeper, workspace: PathBuf) -> Reaper {
        let now = Instant::now();
        let own = rustix::process::getpid();
        Reaper {
            wakes,
            registry: Arc::clone(&keeper.registry),
            flags: Arc::clone(&keeper.flags),
            workspace,
            kill_grace: keeper.kill_grace,
            adopt_orphans: keeper.adopt_orphans,
            own,
            abandoned: Vec::new(),
            groups: Vec::new(),
            warned: BTreeMap::new(),
            scan_at: None,
            next_scan_not_before: now,
            watch_at: own.is_init().then(|| now + INIT_INTERVAL),
            stop: None,
        }
    }

    /// The thread's body: until every executor handle is gone and nothing is left to kill.
    pub(super) fn serve(mut self) {
        let mut is_connected = true;
        while is_connected || !self.abandoned.is_empty() {
            match self.next_wake(is_connected) {
                Ok(wake) => self.note(wake),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => is_connected = false,
            }
            self.act(Instant::now());
        }
    }

    fn next_wake(&self, is_connected: bool) -> Result<Wake, RecvTimeoutError> {
        let look_at = (!self.abandoned.is_empty()).then(|| Instant::now() + ABANDONED_INTERVAL);
        let stop = self.stop.as_ref().filter(|stop| !stop.is_killed);
        let next = look_at
            .into_iter()
            .chain(self.scan_at)
            .chain(self.watch_at)
            .chain(stop.map(|stop| stop.kill_at))
            .min();
        match next {
            Some(time) if is_connected => self.wakes.recv_deadline(time),
            None if is_connected => self
                .wakes
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected),
            // A closed channel would answer at once, for ever.
            _ => {
                std::thread::sleep(ABANDONED_INTERVAL);
                Err(RecvTimeoutError::Timeout)
            }
        }
    }

    fn note(&mut self, wake: Wake) {
        let now = Instant::now();
        match wake {
            Wake::Abandoned(abandoned) => {
                self.warned.insert(Origin::Run(abandoned.run), now);
                self.abandoned.push(abandoned);
                self.scan_soon();
            }
            Wake::GroupRemains(leader) => {
                self.groups.push(leader.as_raw_pid());
                self.scan_soon();
            }
            Wake::Scan => {
                self.flags.scan_wanted.store(false, Ordering::Release);
                self.scan_soon();
            }
            Wake::Watch => self.watch_at = Some(now + WATCH_INTERVAL),
            Wake::Stop(reply) => {
                self.registry.signal_all(Signal::TERM);
                self.stop = Some(Stop {
                    kill_at: now + self.kill_grace,
                    is_killed: false,
                    reply,
                });
                self.scan_soon();
            }
        }
    }

    fn scan_soon(&mut self) {
        let soonest = self.next_scan_not_before.max(Instant::now());
        self.scan_at = Some(self.scan_at.map_or(soonest, |planned| planned.min(soonest)));
    }

    fn act(&mut self, now: Instant) {
        self.end_abandoned(now);
        if let Some(stop) = self.stop.as_mut()
            && !stop.is_killed
            && stop.kill_at <= now
        {
            stop.is_killed = true;
            self.registry.signal_all(Signal::KILL);
            self.scan_soon();
        }
        if self.watch_at.is_some_and(|time| time <= now) {
            self.watch(now);
        }
        if self.scan_at.is_some_and(|time| time <= now) {
            self.scan_at = None;
            let interval = match self.stop {
                Some(_) => STOP_INTERVAL,
                None => SCAN_INTERVAL,
            };
            self.next_scan_not_before = now + interval;
            let is_clean = !self.adopt_orphans || self.scan(now);
            self.answer_stop(is_clean);
        }
    }

    /// Reaps given-up processes that have ended, and kills the groups of those whose grace is over.
    fn end_abandoned(&mut self, now: Instant) {
        let before = self.abandoned.len();
        let (registry, groups) = (&self.registry, &mut self.groups);
        let adopts = self.adopt_orphans;
        self.abandoned.retain(|abandoned| {
            let pid = abandoned.pid;
            if !registry.has_ended(pid) && abandoned.kill_at > now {
                return true;
            }
            // Members of the group that outlive their leader keep what is left of their grace, if we can find them later.
            let signal = if adopts && abandoned.kill_at > now {
                Signal::TERM
            } else {
                Signal::KILL
            };
            if matches!(registry.reap(pid, signal), Ok(None)) {
                return true;
            }
            if adopts && rustix::process::test_kill_process_group(pid).is_ok() {
                groups.push(pid.as_raw_pid());
            }
            false
        });
        if self.abandoned.len() < before {
            self.scan_soon();
        }
    }

    /// Orphans of hooks that run for hours are reaped while they run.
    fn watch(&mut self, now: Instant) {
        self.watch_at = Some(now + WATCH_INTERVAL);
        match offspring() {
            Offspring::Ended => self.scan_soon(),
            Offspring::Running => {}
            Offspring::None => {
                self.watch_at = self.own.is_init().then(|| now + INIT_INTERVAL);
                // In this order, so that a run that starts now either sees the flag down or is seen.
                self.flags.watching.store(false, Ordering::Release);
                if offspring() != Offspring::None {
                    self.flags.watching.store(true, Ordering::Release);
                    self.watch_at = Some(now + WATCH_INTERVAL);
                }
            }
        }
    }

    /// Looks at all our children. Returns whether nothing is left that should end.
    fn scan(&mut self, now: Instant) -> bool {
        if offspring() == Offspring::None {
            self.groups.clear();
            self.warned.clear();
            return true;
        }
        let mut zombies = Vec::new();
        let mut leftovers = Vec::new();
        for process in census::children_of(self.own) {
            if self.registry.is_child(process.pid.as_raw_pid()) {
                continue;
            }
            if process.is_zombie {
                zombies.push(process.pid);
            } else if let Some(origin) = self.leftover_of(&process) {
                leftovers.push((process.pid, origin));
            }
        }
        if !zombies.is_empty() {
            self.registry.reap_orphans(&zombies);
        }
        for (pid, origin) in &leftovers {
            self.end_leftover(*pid, *origin, now);
        }
        let abandoned = &self.abandoned;
        self.warned.retain(|warned, _| {
            leftovers.iter().any(|(_, origin)| origin == warned)
                || abandoned
                    .iter()
                    .any(|entry| Origin::Run(entry.run) == *warned)
        });
        // A group without members is gone, and its number belongs to nobody or to somebody else.
        self.groups.retain(|leader| {
            Pid::from_raw(*leader)
                .is_some_and(|leader| rustix::process::test_kill_process_group(leader).is_ok())
        });
        let rest = Instant::now() + now.elapsed() * SCAN_SHARE;
        self.next_scan_not_before = self.next_scan_not_before.max(rest);
        let is_clean = leftovers.is_empty() && self.groups.is_empty();
        if !is_clean {
            self.scan_soon();
        }
        is_clean
    }

    /// Where a child that we did not start comes from, if that is over.
    ///
    /// Killing by number is safe here: such a child is reaped by this thread only, so its number can not change hands meanwhile.
    fn leftover_of(&mut self, process: &Process) -> Option<Origin> {
        let pid = process.pid.as_raw_pid();
        let run = self.run_of(process.pid);
        if let Some(position) = self
            .groups
            .iter()
            .position(|leader| *leader == process.group)
        {
            if pid != process.group {
                return Some(run.map_or(Origin::Group(process.group), Origin::Run));
            }
            // The leader of that group was reaped, so this is a new process with the same number: the group is gone.
            self.groups.swap_remove(position);
        }
        if let Some(run) = run {
            return (!self.registry.is_active(run)).then_some(Origin::Run(run));
        }
        // When all ends, whoever hides its origin ends too. As process 1 some may belong to others.
        (self.stop.is_some() && !self.own.is_init()).then_some(Origin::Unknown(pid))
    }

    /// The number of the run that a process was started in, from the path it was given.
    fn run_of(&self, pid: Pid) -> Option<u64> {
        let variable = BINDING_CONTEXT.variables.first()?;
        let path = census::environment_value(pid, variable)?;
        BINDING_CONTEXT.run_of(&path, &self.workspace)
    }

    fn end_leftover(&mut self, pid: Pid, origin: Origin, now: Instant) {
        let warned = *self.warned.entry(origin).or_insert(now);
        let signal = if now.duration_since(warned) >= self.kill_grace && warned != now {
            Signal::KILL
        } else {
            Signal::TERM
        };
        let _ = rustix::process::kill_process(pid, signal);
    }

    fn answer_stop(&mut self, is_clean: bool) {
        let is_done = is_clean && self.registry.is_empty() && self.abandoned.is_empty();
        match &self.stop {
            Some(stop) if is_done => {
                // Whoever asked may have stopped waiting.
                let _ = stop.reply.try_send(());
            }
            Some(_) => self.scan_soon(),
            None => {}
        }
    }
}
