//! One run of one hook for somebody who waits for its answer: the rate limit, the context with its snapshots, the process, its log
//! lines and its metrics. Runs on connection threads; shared by admission and conversion, which make of the outcome what they need.
//!
//! It owns each hook's rate limit. It never decides anything and never answers anybody.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use log::warn;

use super::afterwards::Afterwards;
use super::reason::{Marks, Words};
use super::sight::{Proposed, ReadOverlaid, ReadSnapshot, Shown, Sight};
use super::turns::Turns;
use crate::executor::{Executor, Failure, Outcome, Run, RunError, RunKind, Stream, Usage};
use crate::hook::context::{BindingContext, Reason, write_contexts};
use crate::hook::explain::{ErrorSource, Errors, Overlay};
use crate::hook::metric::{Batch, MetricError};
use crate::hook::response::ResponseError;
use crate::hook::{Hook, Registry};
use crate::logger::HookLog;
use crate::metrics::Metrics;
use crate::operation::{Order, Perform, Scope, Undone};
use crate::pace::Pace;
use crate::threads;

/// What is told when a review panicked.
pub(crate) const PANICKED: &str = "the operator failed; its log says why";

/// Object operations that end at the deadline get this time to say so; it is half of the least margin of a review.
const GRACE: Duration = Duration::from_millis(50);

/// How long beyond the deadline the operations of a hook that failed may take: a handful of calls at five a second.
const TIME_DESPITE_FAILURE: Duration = Duration::from_secs(5);

/// LIMIT: stack of a thread for object operations: what other threads have that run jq programs.
const CHANGES_STACK: usize = 2 * 1024 * 1024;

/// Hears, as it comes, what a hook prints and why it did not decide.
pub(crate) type Listener = Arc<dyn Fn(&str) + Send + Sync>;

/// The rate limit of each hook, in hook order; one for all its bindings.
#[derive(Clone)]
pub(crate) struct Paces(Vec<Arc<Pace>>);

impl Paces {
    pub(crate) fn new(registry: &Registry) -> Paces {
        let pace = |hook: &Hook| {
            let limit = hook.config.rate_limit;
            let (interval, burst) =
                limit.map_or((Duration::ZERO, 1), |limit| (limit.interval, limit.burst));
            Arc::new(Pace::every(interval, burst))
        };
        Paces(registry.hooks.iter().map(pace).collect())
    }

    /// Hooks without any limit, for whoever asks them about no cluster.
    pub(crate) fn unlimited() -> Paces {
        Paces(Vec::new())
    }
}

/// A hook and the binding it is run for.
pub(crate) struct Target {
    pub(crate) hook: String,
    pub(crate) binding: String,
    path: PathBuf,
    /// The snapshots that the hook gets to see.
    snapshots: Vec<Shown>,
    pace: Option<Arc<Pace>>,
}

impl Target {
    /// `included` are the kubernetes bindings whose objects the binding asks for.
    pub(crate) fn new(
        index: usize,
        hook: &Hook,
        binding: &str,
        included: &[String],
        overlay: Option<&Overlay>,
        paces: &Paces,
    ) -> Target {
        Target {
            hook: hook.name.clone(),
            binding: binding.to_owned(),
            path: hook.path.clone(),
            snapshots: Shown::of(index, hook, included, overlay),
            pace: paces.0.get(index).cloned(),
        }
    }
}

/// What is needed for a run.
pub(crate) struct Runner {
    pub(crate) executor: Executor,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) snapshots: ReadSnapshot,
    pub(crate) overlaid: ReadOverlaid,
    /// Carries out what hooks want changed in the cluster.
    pub(crate) operations: Arc<dyn Perform>,
    /// How many of them at one time: a thread that does not end keeps its turn.
    pub(crate) changes: Arc<Turns>,
    pub(crate) proxy_hook_json: bool,
    /// Somebody who wants to hear the hook beside the log.
    pub(crate) listener: Option<Listener>,
}

impl Runner {
    /// Tells whoever listens.
    pub(super) fn tell(&self, words: &dyn std::fmt::Display) {
        if let Some(listener) = &self.listener {
            listener(&words.to_string());
        }
    }

    /// Waits for the hook's turn, runs it once and hands what it left to `judge`; counts the run as failed if that fails.
    pub(crate) fn run<T>(
        &self,
        target: &Target,
        asked: &Asked<'_>,
        afterwards: &mut Afterwards,
        judge: impl FnOnce(&Outcome) -> Result<T, Undecided>,
    ) -> Result<T, Undecided> {
        let began = Instant::now();
        let mut marks = Marks::default();
        let has_turn = |pace: &Arc<Pace>| pace.wait_until(asked.deadline);
        let run = if target.pace.as_ref().is_none_or(has_turn) {
            self.execute(target, asked, &mut marks)
        } else {
            Err(Undecided::RateLimit)
        };
        let judged = match run {
            Ok(mut outcome) => {
                self.count_usage(target, &outcome.usage);
                // Removing files takes a good part of the time of a short hook, and the caller need not wait for it.
                afterwards.drop_late(outcome.files.take());
                // Everything is read before anything is done.
                let read = judge(&outcome).and_then(|judged| {
                    let metrics = Batch::parse(&outcome.metrics).map_err(Undecided::Metrics)?;
                    Ok((judged, metrics))
                });
                match read {
                    Ok((judged, metrics)) => self
                        .carry_out(target, asked, &outcome.patches, &metrics)
                        .map(|()| judged),
                    Err(undecided) => {
                        self.carry_out_despite(target, asked, &outcome.patches);
                        Err(undecided)
                    }
                }
            }
            Err(undecided) => {
                if let Undecided::Run(RunError { patches, .. }) = &undecided {
                    self.carry_out_despite(target, asked, &patches.0);
                }
                Err(explained(undecided, asked.errors, marks))
            }
        };
        // A hook that fails on purpose has decided.
        let decided = match &judged {
            Ok(_) => true,
            Err(Undecided::Explained { words, .. }) => words.is_meant,
            Err(_) => false,
        };
        self.count(target, began.elapsed(), decided);
        judged
    }

    /// What the hook asked for beside its answer.
    fn carry_out(
        &self,
        target: &Target,
        asked: &Asked<'_>,
        patches: &[u8],
        metrics: &Batch,
    ) -> Result<(), Undecided> {
        let until = asked.deadline;
        let (reply, done) = bounded(1);
        // Whoever waited may have given up.
        let tell = move |done| drop(reply.send(done));
        self.change_objects(target, asked, patches, Scope::All, until, tell)
            .map_err(Undecided::Operations)?;
        done.recv_deadline(until.checked_add(GRACE).unwrap_or(until))
            .unwrap_or_else(|_late| Err(late()))
            .map_err(Undecided::Operations)?;
        // AW-34: a dry run leaves no trace.
        if !asked.dry_run {
            metrics.apply(&target.hook, &self.metrics);
        }
        Ok(())
    }

    /// A hook that failed may have left operations that are meant for that case. The answer waits for them while there is time; a
    /// hook that was ended at its deadline has none left, and so they may go on behind the answer.
    fn carry_out_despite(&self, target: &Target, asked: &Asked<'_>, patches: &[u8]) {
        let until = asked.deadline.max(Instant::now());
        let until = until.checked_add(TIME_DESPITE_FAILURE).unwrap_or(until);
        let (reply, done) = bounded(1);
        let (hook, binding) = (target.hook.clone(), target.binding.clone());
        let uid = asked.uid.to_owned();
        let tell = move |done: Result<(), Undone>| {
            if let Err(undone) = done {
                let error = Undecided::Operations(undone);
                warn!(
                    hook = hook.as_str(), binding = binding.as_str(), uid = uid.as_str(), error:% = error;
                    "object operations of a failed run are not all carried out"
                );
            }
            let _ = reply.send(());
        };
        let begun = self.change_objects(target, asked, patches, Scope::DespiteFailure, until, tell);
        match begun {
            Ok(()) => drop(done.recv_deadline(asked.deadline)),
            Err(undone) => warn!(
                hook = target.hook.as_str(), binding = target.binding.as_str(), uid = asked.uid,
                error:% = Undecided::Operations(undone); "object operations of a failed run are not carried out"
            ),
        }
    }

    /// AW-34: a dry run changes nothing, whatever the hook wrote.
    ///
    /// On a thread of its own, because a program in an operation may run for ever and the answer may not. Few hooks write operations.
    /// `tell` gets the end of it, if it was begun.
    fn change_objects(
        &self,
        target: &Target,
        asked: &Asked<'_>,
        file: &[u8],
        scope: Scope,
        until: Instant,
        tell: impl FnOnce(Result<(), Undone>) + Send + 'static,
    ) -> Result<(), Undone> {
        if file.is_empty() {
            tell(Ok(()));
            return Ok(());
        }
        let scope = if asked.dry_run { Scope::Check } else { scope };
        let turns = Arc::clone(&self.changes);
        let operations = Arc::clone(&self.operations);
        let (file, hook, binding) = (file.to_vec(), target.hook.clone(), target.binding.clone());
        let work = move || {
            // Here, so that nobody who has to answer waits for a turn longer than for the answer.
            let Ok(_turn) = turns.take(until) else {
                return tell(Err(late()));
            };
            let order = Order {
                file: &file,
                scope,
                until: Some(until),
                hook: &hook,
                binding: &binding,
            };
            tell(operations.perform(&order));
        };
        match threads::spawn_short("operations", CHANGES_STACK, work) {
            Ok(_) => Ok(()),
            Err(error) => Err(Undone::Failed(format!(
                "cannot start a thread for object operations: {error}"
            ))),
        }
    }

    fn execute(
        &self,
        target: &Target,
        asked: &Asked<'_>,
        marks: &mut Marks,
    ) -> Result<Outcome, Undecided> {
        let (hook, binding) = (target.hook.as_str(), target.binding.as_str());
        let labels = [
            ("hook", hook),
            ("binding", binding),
            ("event", asked.event),
            ("uid", asked.uid),
        ];
        let mut output = HookLog::new(self.proxy_hook_json, &labels);
        let listens = asked
            .errors
            .is_some_and(|errors| errors.from > ErrorSource::Response);
        // Read now, so that the hook sees what is true at the moment of its decision.
        let sight = Sight::read(
            &target.snapshots,
            asked.proposed.as_ref(),
            &self.snapshots,
            &self.overlaid,
            asked.deadline,
        )?;
        let mut write_input = |file: &mut dyn std::io::Write| {
            let context = BindingContext {
                reason: asked.reason,
                snapshots: &sight.snapshots(),
                overlay: sight.note(),
            };
            write_contexts(file, &[context])
        };
        let outcome = self.executor.run(Run {
            hook_name: hook,
            path: &target.path,
            kind: asked.kind,
            write_input: &mut write_input,
            deadline: Some(asked.deadline),
            output: &mut |stream, text| {
                self.tell(&String::from_utf8_lossy(text));
                match stream {
                    Stream::Stdout => output.stdout(text),
                    Stream::Stderr => {
                        if listens {
                            marks.hear(text);
                        }
                        output.stderr(text);
                    }
                }
            },
        });
        output.finish();
        outcome.map_err(Undecided::Run)
    }

    fn count_usage(&self, target: &Target, usage: &Usage) {
        for (name, spent) in [
            ("hook_run_user_cpu_seconds", usage.user),
            ("hook_run_sys_cpu_seconds", usage.system),
        ] {
            self.metrics
                .observe(name, &labels(target), spent.as_secs_f64());
        }
        if let Some(kib) = usage.most_memory {
            let bytes = f64::from(kib) * 1024.0;
            self.metrics
                .set("hook_run_max_rss_bytes", &labels(target), bytes);
        }
    }

    fn count(&self, target: &Target, elapsed: Duration, decided: bool) {
        let labels = labels(target);
        self.metrics
            .observe("hook_run_seconds", &labels, elapsed.as_secs_f64());
        let (success, errors) = if decided { (1.0, 0.0) } else { (0.0, 1.0) };
        self.metrics.add("hook_run_success_total", &labels, success);
        self.metrics.add("hook_run_errors_total", &labels, errors);
        self.metrics
            .add("hook_run_allowed_errors_total", &labels, 0.0);
    }
}

/// A run that ended by itself may explain itself, as far as its binding lets it.
fn explained(undecided: Undecided, errors: Option<&Errors>, marks: Marks) -> Undecided {
    let (error, errors) = match (undecided, errors) {
        (Undecided::Run(error), Some(errors)) if matches!(error.failure, Failure::Ended(_)) => {
            (error, errors)
        }
        (other, _) => return other,
    };
    match marks.words(errors, &error.stderr) {
        Some(words) => Undecided::Explained {
            words,
            error: Box::new(error),
        },
        None => Undecided::Run(error),
    }
}

fn late() -> Undone {
    Undone::Failed("its object operations were not done by the deadline".to_owned())
}

/// Runs for a review are in no queue.
fn labels(target: &Target) -> [(&'static str, &str); 3] {
    [
        ("hook", &target.hook),
        ("binding", &target.binding),
        ("queue", ""),
    ]
}

/// What a hook is asked.
pub(crate) struct Asked<'a> {
    pub(crate) kind: RunKind,
    pub(crate) reason: Reason<'a>,
    /// The section of the hook's configuration, for log lines.
    pub(crate) event: &'static str,
    /// The review's, for log lines.
    pub(crate) uid: &'a str,
    pub(crate) dry_run: bool,
    pub(crate) deadline: Instant,
    /// Set when the hook wants to see what the request would change.
    pub(crate) proposed: Option<Proposed<'a>>,
    /// What may be told of a failure.
    pub(crate) errors: Option<&'a Errors>,
}

/// Why a hook did not decide.
#[derive(Debug)]
pub(crate) enum Undecided {
    RateLimit,
    Run(RunError),
    Response(ResponseError),
    Metrics(MetricError),
    Operations(Undone),
    /// The cluster could not be shown as it would be.
    Overlay(String),
    /// It failed, and its own words for that may be shown.
    Explained {
        words: Words,
        error: Box<RunError>,
    },
    /// What it answered does not fit the question.
    Unfit(String),
}

impl std::fmt::Display for Undecided {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Undecided::RateLimit => write!(
                formatter,
                "no turn under the hook's settings.executionMinInterval before the deadline"
            ),
            Undecided::Run(error) => write!(formatter, "{error}"),
            Undecided::Response(error) => write!(formatter, "{error}"),
            Undecided::Metrics(error) => write!(formatter, "{error}"),
            Undecided::Operations(Undone::Stopped) => write!(
                formatter,
                "its object operations were cut short, the operator is stopping"
            ),
            Undecided::Operations(Undone::Failed(reason)) => formatter.write_str(reason),
            Undecided::Overlay(reason) | Undecided::Unfit(reason) => formatter.write_str(reason),
            Undecided::Explained { error, .. } => write!(formatter, "{error}"),
        }
    }
}

impl Undecided {
    /// What may be told to whoever was refused: nothing that the hook printed.
    pub(crate) fn reason(&self, limit: Duration) -> String {
        match self {
            Undecided::RateLimit => format!(
                "not run within {} because of its rate limit",
                seconds(limit)
            ),
            Undecided::Run(RunError {
                failure: Failure::TimedOut { .. },
                ..
            }) => format!("killed after {}, its time limit", seconds(limit)),
            Undecided::Run(error) => error.reason(),
            // SO-43: word for word.
            Undecided::Response(_) => "invalid response".to_owned(),
            Undecided::Metrics(_) => "invalid metrics".to_owned(),
            Undecided::Operations(_) => "its object operations failed".to_owned(),
            Undecided::Overlay(reason) | Undecided::Unfit(reason) => reason.clone(),
            Undecided::Explained { words, .. } => words.text.clone(),
        }
    }
}

/// What is told about a hook that failed, in the words of SO-43.
pub(crate) fn failure(hook: &str, reason: &str) -> String {
    format!("Shell-operator hook '{hook}' error: {reason}.")
}

pub(crate) fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}
