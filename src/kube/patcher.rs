//! Carries out the operations of a run, in their order, and tells how it went.
//!
//! Runs on the thread of the run; shared by all of them, with one limit of calls per second for all. A failed operation does not
//! hold up those behind it, as in the original; only a server that does not answer at all ends the run's operations early, because
//! each would wait for it in vain. Every failure is one line in the log; the returned error sums up.

use std::time::{Duration, Instant};

use log::{debug, error, info};

use super::backoff::Rest;
use super::client::Client;
use super::discovery::Discovery;
use super::patch::{Hands, Problem};
use crate::operation::{File, FileError, Operation, Order, Perform, Scope, Undone};

/// How often it is said how far a long file has come.
const PROGRESS_PACE: Duration = Duration::from_secs(10);

/// LIMIT: failures that the error of a run names; all of them are in the log.
const NAMED_FAILURES: usize = 10;

/// After so many operations without any answer in a row, the others are not tried.
const SILENCE_LIMIT: usize = 3;

/// Its client should be nobody else's: `stop` shuts it down.
pub(crate) struct Patcher {
    client: Client,
    discovery: Discovery,
    rest: Rest,
}

impl Patcher {
    /// A kind that is not known is asked for again after `pace`.
    pub(crate) fn new(client: Client, pace: Duration) -> Patcher {
        Patcher {
            // With the same client, because another may be shut down while hooks still have their changes made.
            discovery: Discovery::new(client.clone(), pace),
            client,
            rest: Rest::default(),
        }
    }

    /// Ends what is being carried out, and begins nothing more.
    pub(crate) fn stop(&self) {
        self.rest.stop();
        self.client.shutdown();
    }
}

impl Perform for Patcher {
    fn perform(&self, order: &Order<'_>) -> Result<(), Undone> {
        if order.file.is_empty() {
            return Ok(());
        }
        let is_late = || order.until.is_some_and(|until| until <= Instant::now());
        let may_go_on = || !self.rest.is_stopped() && !is_late();
        let file = File::read(order.file, &may_go_on).map_err(|error| match error {
            FileError::Interrupted if self.rest.is_stopped() => Undone::Stopped,
            error => Undone::Failed(error.to_string()),
        })?;
        if order.scope == Scope::Check {
            if file.count > 0 {
                info!(hook = order.hook, binding = order.binding, count = file.count;
                    "dry run: object operations are not carried out");
            }
            return Ok(());
        }
        let mut course = Course::new(order, &file);
        let hands = Hands {
            client: &self.client,
            discovery: &self.discovery,
            rest: &self.rest,
            until: order.until,
        };
        let end = file.each(|operation| {
            if order.scope == Scope::DespiteFailure && !operation.ignore_hook_error {
                course.total = course.total.saturating_sub(1);
                return Ok(());
            }
            let result = hands.carry_out(&operation);
            course.note(&operation, result)
        });
        course.finish(&end)
    }
}

/// How far the operations of one run have come.
struct Course<'a> {
    order: &'a Order<'a>,
    total: usize,
    began: Instant,
    said: Instant,
    done: usize,
    failed: usize,
    /// The words of the first failures.
    failures: Vec<String>,
    /// Operations without an answer in a row.
    silent: usize,
}

/// Why the operations behind are not tried.
enum Cut {
    Stopped,
    Silence,
    Late,
}

impl<'a> Course<'a> {
    fn new(order: &'a Order<'a>, file: &File<'_>) -> Course<'a> {
        let now = Instant::now();
        Course {
            order,
            total: file.count,
            began: now,
            said: now,
            done: 0,
            failed: 0,
            failures: Vec::new(),
            silent: 0,
        }
    }

    fn note(&mut self, operation: &Operation, result: Result<(), Problem>) -> Result<(), Cut> {
        let (hook, binding) = (self.order.hook, self.order.binding);
        if self.said.elapsed() >= PROGRESS_PACE {
            self.said = Instant::now();
            info!(hook = hook, binding = binding, done = self.done, failed = self.failed, total = self.total;
                "object operations are being carried out");
        }
        let target = &operation.target;
        let problem = match result {
            Ok(()) => {
                self.done += 1;
                self.silent = 0;
                debug!(hook = hook, binding = binding, operation = operation.verb.name(), kind = target.kind.as_str(),
                    namespace = target.namespace.as_str(), name = target.name.as_str(); "object operation is done");
                return Ok(());
            }
            Err(problem) if problem.is_stop() => return Err(Cut::Stopped),
            Err(problem) => problem,
        };
        self.failed += 1;
        self.silent = if problem.is_silence() {
            self.silent + 1
        } else {
            0
        };
        error!(
            hook = hook, binding = binding, document = operation.document, operation = operation.verb.name(),
            kind = target.kind.as_str(), namespace = target.namespace.as_str(), name = target.name.as_str(), error:% = problem;
            "object operation failed"
        );
        if self.failures.len() < NAMED_FAILURES {
            self.failures.push(format!(
                "{} {target}: document {}, {}: {problem}",
                operation.verb.description(),
                operation.document,
                operation.verb.name(),
            ));
        }
        match problem {
            Problem::Late => Err(Cut::Late),
            _ if self.silent >= SILENCE_LIMIT => Err(Cut::Silence),
            _ => Ok(()),
        }
    }

    fn finish(mut self, end: &Result<(), Cut>) -> Result<(), Undone> {
        let (hook, binding) = (self.order.hook, self.order.binding);
        let seconds = self.began.elapsed().as_secs_f64();
        let untried = self.total.saturating_sub(self.done + self.failed);
        if self.began.elapsed() >= PROGRESS_PACE || end.is_err() {
            info!(hook = hook, binding = binding, done = self.done, failed = self.failed, total = self.total, seconds = seconds;
                "object operations are over");
        }
        let reason = match end {
            Err(Cut::Stopped) => return Err(Undone::Stopped),
            Ok(()) if self.failed == 0 => return Ok(()),
            Ok(()) => None,
            Err(Cut::Silence) => Some("the API server does not answer"),
            Err(Cut::Late) => Some("the time of the run is over"),
        };
        let unnamed = self.failed.saturating_sub(self.failures.len());
        if unnamed > 0 {
            self.failures
                .push(format!("{unnamed} more, each in the log"));
        }
        if let Some(reason) = reason {
            self.failures
                .push(format!("{untried} operations are not tried: {reason}"));
        }
        let count = match self.failed {
            1 => "1 error occurred:".to_owned(),
            count => format!("{count} errors occurred:"),
        };
        // The original's list, for those who read logs by it.
        let list: String = self
            .failures
            .iter()
            .map(|line| format!("\t* {line}\n"))
            .collect();
        Err(Undone::Failed(format!("{count}\n{list}\n")))
    }
}
