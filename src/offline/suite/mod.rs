//! `test`: the cases that lie beside hooks, run as `start` would run the hooks, and what came of them.
//!
//! ```text
//! find (suite, hook) -> read suites -> --config of each hook -> prepare (binding, snapshots, directory) -> run -> report
//!                                        (workers)                  (main thread)                       (workers)
//! ```
//! Runs on the main thread. INVARIANT: a case that did not run is never reported as passed: whatever keeps it from running is a failure
//! or an error, and only a missing program is a skip, with its reason.

mod bench;
mod check;
mod convert;
mod expect;
mod fields;
mod file;
mod find;
mod observe;
mod overlay;
mod parallel;
mod pattern;
mod prepare;
mod request;
mod run;
mod target;
mod tell;
#[cfg(test)]
mod tests;
mod text;
mod watch;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::Receiver;
use regex_bites::Regex;

use self::check::Flaw;
use self::find::Unpaired;
use self::parallel::Interrupted;
use self::prepare::{Planned, Round};
use self::run::Ended;
use self::text::Style;
use super::report::{self, Case, Cases, Status, shown_path};
use crate::executor::{Executor, ExecutorOptions, Inherit};
use crate::message::Signal;
use crate::settings::{self, Testing};
use crate::threads;

/// Between TERM and KILL for a hook whose time is over.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// How long the end may take for hooks that were interrupted.
const LAST_RUNS: Duration = Duration::from_secs(5);
const TITLE: &str = "shell-operator test";

/// Exit statuses.
const PASSED: u8 = 0;
const FAILED: u8 = 1;
const ERROR: u8 = 2;

/// Runs the tests, once or whenever something changes, and says what the process should end with. An error is a sentence for stderr.
pub(crate) fn run(testing: &Testing) -> Result<u8, String> {
    let filter = match &testing.run {
        None => None,
        Some(text) => Some(
            Regex::new(text).map_err(|_| format!("--run: {text:?} is no regular expression"))?,
        ),
    };
    // Threads tell of their end here, and nobody needs to know.
    let (events, _ended) = crossbeam_channel::unbounded();
    let (_, signals) = threads::spawn_signals(&events)
        .map_err(|error| format!("start the signal thread: {error}"))?;
    let options = ExecutorOptions {
        tmp_dir: testing.tmp_dir.clone(),
        keep_tmp_files: false,
        inherit: inherited(&testing.hook_variables),
        kill_grace: KILL_GRACE,
        adopt_orphans: true,
    };
    let executor = Executor::start(options, &events).map_err(|error| error.to_string())?;
    let place = prepare::place(&testing.tmp_dir);
    // Of somebody who had our number and was killed.
    let _ = fs::remove_dir_all(&place);
    let tester = Tester {
        testing,
        filter,
        executor,
        signals,
    };
    let end = if testing.watch {
        tester.watch()
    } else {
        tester.round()
    };
    tester.executor.stop_all(LAST_RUNS);
    let _ = fs::remove_dir_all(&place);
    match end {
        Ok(code) => Ok(code),
        Err(Interrupted) if testing.watch => Ok(PASSED),
        Err(Interrupted) => Err("interrupted; not all cases have run".to_owned()),
    }
}

/// Hooks get what they would get from `start`.
fn inherited(names: &[String]) -> Inherit {
    if names.is_empty() {
        return Inherit::All;
    }
    let given = names
        .iter()
        .filter_map(|name| Some((name.into(), settings::variable(name)?.into())));
    Inherit::Only(given.collect())
}

struct Tester<'a> {
    testing: &'a Testing,
    filter: Option<Regex>,
    executor: Executor,
    signals: Receiver<Signal>,
}

impl Tester<'_> {
    /// Again and again, until somebody asks to stop.
    fn watch(&self) -> Result<u8, Interrupted> {
        let mut paths: Vec<PathBuf> = self.testing.paths.clone();
        if paths.is_empty() {
            paths.push(self.testing.hooks_dir.clone());
        }
        // A hook and its suite lie beside each other, and what they use is near.
        for path in &mut paths {
            if path.is_file() {
                *path = path.parent().map(Into::into).unwrap_or_default();
            }
            if path.as_os_str().is_empty() {
                *path = PathBuf::from(".");
            }
        }
        loop {
            let before = watch::Look::at(&paths);
            self.round()?;
            say("waiting for a change; Ctrl-C ends\n");
            watch::wait(&paths, &before, &self.signals)?;
        }
    }

    /// Every case once, and the report.
    fn round(&self) -> Result<u8, Interrupted> {
        let (started, began) = (SystemTime::now(), Instant::now());
        let (pairs, unpaired) = find::find(&self.testing.hooks_dir, &self.testing.paths);
        let round = Round {
            executor: &self.executor,
            signals: &self.signals,
            tmp_dir: &self.testing.tmp_dir,
            wanted: &|hook: &str, name: &str| {
                let whole = format!("{hook}: {name}");
                self.filter.as_ref().is_none_or(|run| run.is_match(&whole))
            },
        };
        let planned = round.plan(pairs)?;
        let mut cases: Vec<Case> = unpaired.iter().map(unpaired_case).collect();
        cases.extend(self.carry_out(planned)?);
        if cases.is_empty() {
            cases.push(no_case(self.testing));
        }
        let cases = Cases {
            title: TITLE,
            cases,
            started,
            elapsed: began.elapsed(),
        };
        say(&self.written(&cases));
        let bad = |status| cases.count(status) > 0;
        Ok(match (bad(Status::Error), bad(Status::Failed)) {
            (true, _) => ERROR,
            (false, true) => FAILED,
            (false, false) => PASSED,
        })
    }

    /// Runs what can be run; the rest has its status already.
    fn carry_out(&self, planned: Vec<Planned>) -> Result<Vec<Case>, Interrupted> {
        let mut cases = Vec::with_capacity(planned.len());
        let mut works = Vec::new();
        for Planned { mut case, work } in planned {
            if case.status == Status::Skipped && self.testing.no_skip {
                case.status = Status::Failed;
                case.message = format!("did not run: {}", case.message);
            }
            if let Some(work) = work {
                works.push((cases.len(), *work));
            }
            cases.push(case);
        }
        let places: Vec<usize> = works.iter().map(|(place, _)| *place).collect();
        let executor = self.executor.clone();
        let ended = parallel::each(works, &self.signals, move |(_, work)| work.run(&executor))?;
        for (place, ended) in places.into_iter().zip(ended) {
            if let Some(case) = cases.get_mut(place) {
                conclude(case, ended);
            }
        }
        Ok(cases)
    }

    fn written(&self, cases: &Cases) -> String {
        if let Some(written) = report::write(self.testing.form, cases) {
            return written;
        }
        let is_terminal = io::stdout().is_terminal();
        let is_plain = settings::variable("NO_COLOR").is_some_and(|value| !value.is_empty());
        let style = Style {
            is_terminal,
            has_colour: is_terminal && !is_plain,
        };
        text::write(cases, style)
    }
}

/// What a run makes of its case.
fn conclude(case: &mut Case, ended: Option<Ended>) {
    let Some(ended) = ended else {
        case.status = Status::Failed;
        case.message = "did not run: its thread ended before it did".to_owned();
        return;
    };
    case.elapsed = ended.elapsed;
    let Some(first) = ended.flaws.first() else {
        case.status = Status::Passed;
        return;
    };
    case.status = Status::Failed;
    case.message = first.line();
    let mut lines = Vec::new();
    for Flaw {
        what,
        expected,
        actual,
    } in &ended.flaws
    {
        lines.push(format!("{what}:"));
        lines.push(format!("  expected {expected}"));
        lines.push(format!("  got      {actual}"));
    }
    if !ended.stderr.is_empty() {
        lines.push("stderr of the hook:".to_owned());
        lines.extend(ended.stderr.lines().map(|line| format!("  {line}")));
    }
    case.details = lines.join("\n");
}

fn unpaired_case(unpaired: &Unpaired) -> Case {
    let file = shown_path(&unpaired.path);
    Case {
        suite: file.clone(),
        judge: TITLE.to_owned(),
        name: "find its hook".to_owned(),
        file,
        line: 1,
        status: Status::Error,
        message: unpaired.reason.clone(),
        details: String::new(),
        warnings: Vec::new(),
        elapsed: Duration::ZERO,
    }
}

/// A run without any case must not look like one in which all is well.
fn no_case(testing: &Testing) -> Case {
    let file = shown_path(&testing.hooks_dir);
    Case {
        suite: file.clone(),
        judge: TITLE.to_owned(),
        name: "find a case".to_owned(),
        file,
        line: 1,
        status: Status::Error,
        message: match &testing.run {
            Some(run) => format!("no case has a name that --run {run:?} matches"),
            None => "there is no case".to_owned(),
        },
        details: String::new(),
        warnings: Vec::new(),
        elapsed: Duration::ZERO,
    }
}

/// Nobody can be told if stdout is gone.
fn say(text: &str) {
    let mut out = io::stdout();
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}
