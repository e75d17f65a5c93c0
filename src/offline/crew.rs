//! The workers: as many as there are cores, and the main thread that gives them work.
//!
//! ```text
//! main: Case -> [jobs] -> worker: mutate -> [done] -> main: one job for each validating webhook -> worker: validate -> main: Finding
//! ```
//! A job is one run of a hook or a chain of mutating ones, so that a single manifest with many webhooks keeps all cores busy, too. The
//! main thread never decides anything; a panic of a worker is a finding like any other error.

use std::io::{self, IsTerminal as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, select, tick, unbounded};

use super::decide::{Case, Mutated, World};
use super::outcome::{Finding, Verdict};
use super::rules::Invocation;
use crate::message::Signal;
use crate::threads;

/// LIMIT: stack of a worker: it follows objects down their depth, which is bounded by 256.
const STACK: usize = 2 * 1024 * 1024;
/// Nobody wonders before this.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often the progress line changes.
const REFRESH: Duration = Duration::from_millis(200);

enum Job {
    Mutate(Box<Case>),
    Validate {
        case: Arc<Case>,
        entry: usize,
        invocation: Invocation,
        /// Where its finding stands among those of the case.
        position: usize,
    },
}

enum Done {
    Mutated(Box<Mutated>),
    /// The manifest, where it stands among the findings about it, and what was found.
    Validated(usize, usize, Box<Finding>),
    Panicked(usize, Box<Finding>),
}

/// What came out, by manifest.
pub(super) struct Decided {
    pub(super) findings: Vec<Vec<Finding>>,
    pub(super) notes: Vec<String>,
}

/// Decides all cases. None: told to stop.
pub(super) fn decide(
    world: &Arc<World>,
    cases: Vec<Case>,
    manifests: usize,
    workers: usize,
    signals: &Receiver<Signal>,
) -> io::Result<Option<Decided>> {
    let (jobs, taken) = unbounded();
    let (reports, done) = unbounded();
    let mut threads = Vec::new();
    for number in 0..workers.max(1) {
        let (world, taken, reports) = (Arc::clone(world), taken.clone(), reports.clone());
        let work = move || work(&world, &taken, &reports);
        let name = format!("review:{number}");
        threads.push(threads::spawn_short(&name, STACK, work)?);
    }
    drop(reports);
    let mut desk = Desk {
        found: Decided {
            findings: (0..manifests).map(|_| Vec::new()).collect(),
            notes: Vec::new(),
        },
        left: cases.len(),
        finished: 0,
        jobs,
    };
    for case in cases {
        let _ = desk.jobs.send(Job::Mutate(Box::new(case)));
    }
    let progress = Progress::new();
    let refresh = tick(REFRESH);
    while desk.left > 0 {
        select! {
            recv(done) -> message => match message {
                Ok(message) => desk.take(message),
                Err(_) => break,
            },
            recv(refresh) -> _ => progress.show(desk.finished, desk.left),
            recv(signals) -> signal => if signal.is_ok() {
                progress.clear();
                return Ok(None);
            },
        }
    }
    progress.clear();
    let Desk { found, jobs, .. } = desk;
    // They hold the directory of the runs, which goes when all have ended.
    drop(jobs);
    for thread in threads {
        let _ = thread.join();
    }
    Ok(Some(found))
}

/// What the main thread keeps while workers work.
struct Desk {
    found: Decided,
    jobs: Sender<Job>,
    /// Jobs that are given and not done.
    left: usize,
    finished: usize,
}

impl Desk {
    fn take(&mut self, done: Done) {
        self.left -= 1;
        self.finished += 1;
        match done {
            Done::Mutated(mutated) => self.go_on(*mutated),
            Done::Validated(manifest, position, finding) => {
                let findings = self.found.findings.get_mut(manifest);
                if let Some(slot) = findings.and_then(|findings| findings.get_mut(position)) {
                    *slot = *finding;
                }
            }
            Done::Panicked(manifest, finding) => {
                if let Some(findings) = self.found.findings.get_mut(manifest) {
                    findings.push(*finding);
                }
            }
        }
    }

    /// The second half of a case: a place for every finding, in the order of the calls, and a job to fill it.
    fn go_on(&mut self, mutated: Mutated) {
        let Mutated {
            case,
            findings,
            validating,
            notes,
        } = mutated;
        for note in notes {
            if !self.found.notes.contains(&note) {
                self.found.notes.push(note);
            }
        }
        let Some(places) = self.found.findings.get_mut(case.index) else {
            return;
        };
        places.extend(findings);
        let case = Arc::new(case);
        for (entry, invocation) in validating {
            // Stays only if the worker dies without a word.
            let lost = Verdict::Error {
                message: "the review was not finished".to_owned(),
            };
            let position = places.len();
            places.push(case.finding(None, lost));
            self.left += 1;
            // The workers are there as long as this sender is.
            let _ = self.jobs.send(Job::Validate {
                case: Arc::clone(&case),
                entry,
                invocation,
                position,
            });
        }
    }
}

/// A worker: until nobody gives work any more.
fn work(world: &World, jobs: &Receiver<Job>, reports: &Sender<Done>) {
    for job in jobs {
        let done = match job {
            Job::Mutate(case) => {
                let (index, lost) = (case.index, case.finding(None, panicked()));
                let mutated = catch_unwind(AssertUnwindSafe(|| world.mutate(*case)));
                mutated.map_or_else(
                    |_| Done::Panicked(index, Box::new(lost)),
                    |mutated| Done::Mutated(Box::new(mutated)),
                )
            }
            Job::Validate {
                case,
                entry,
                invocation,
                position,
            } => {
                let finding = catch_unwind(AssertUnwindSafe(|| {
                    world.validate(&case, entry, &invocation)
                }));
                let finding = finding.unwrap_or_else(|_| case.finding(None, panicked()));
                Done::Validated(case.index, position, Box::new(finding))
            }
        };
        if reports.send(done).is_err() {
            return;
        }
    }
}

fn panicked() -> Verdict {
    Verdict::Error {
        message: "the review failed inside; this is a mistake of shell-operator".to_owned(),
    }
}

/// One line on the terminal that says how far it is.
struct Progress {
    is_terminal: bool,
    began: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            is_terminal: io::stderr().is_terminal(),
            began: Instant::now(),
        }
    }

    fn show(&self, finished: usize, left: usize) {
        if self.is_terminal && self.began.elapsed() >= PATIENCE {
            let seconds = self.began.elapsed().as_secs();
            let _ = write!(
                io::stderr(),
                "\r\x1b[K{finished} done, {left} to go, {seconds} s"
            );
        }
    }

    fn clear(&self) {
        if self.is_terminal && self.began.elapsed() >= PATIENCE {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
