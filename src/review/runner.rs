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
use super::turns::Turns;
use crate::executor::{Executor, Failure, Outcome, Run, RunError, RunKind, Stream, Usage};
use crate::hook::context::{self, BindingContext, Reason, write_contexts};
use crate::hook::metric::{Batch, MetricError};
use crate::hook::response::ResponseError;
use crate::hook::{Hook, Registry};
use crate::logger::HookLog;
use crate::message::{BindingId, Snapshot};
use crate::metrics::Metrics;
use crate::operation::{Order, Perform, Scope, Undone};
use crate::pace::Pace;
use crate::threads;

/// What is told when a review panicked.
pub(crate) const PANICKED: &str = "the operator failed; its log says why";

/// Object operations that end at the deadline get this time to say so; it is half of the least margin of a review.
const GRACE: Duration = Duration::from_millis(50);

/// LIMIT: stack of a thread for object operations: what other threads have that run jq programs.
const CHANGES_STACK: usize = 2 * 1024 * 1024;

/// Reads the objects of a kubernetes binding at this moment.
pub(crate) type ReadSnapshot = Arc<dyn Fn(BindingId) -> Snapshot + Send + Sync>;

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
    /// The snapshots that the hook gets to see, by name.
    snapshots: Vec<(String, BindingId)>,
    pace: Option<Arc<Pace>>,
}

impl Target {
    /// `included` are the kubernetes bindings whose objects the binding asks for; a group has been expanded into names already
    /// (SO-46).
    pub(crate) fn new(
        index: usize,
        hook: &Hook,
        binding: &str,
        included: &[String],
        paces: &Paces,
    ) -> Target {
        let named = |name: &String| {
            let mut bindings = hook.config.kubernetes.iter();
            let position = bindings.position(|known| known.name == *name)?;
            let id = BindingId {
                hook: index,
                binding: position,
            };
            Some((name.clone(), id))
        };
        Target {
            hook: hook.name.clone(),
            binding: binding.to_owned(),
            path: hook.path.clone(),
            snapshots: included.iter().filter_map(named).collect(),
            pace: paces.0.get(index).cloned(),
        }
    }
}

/// What is needed for a run.
pub(crate) struct Runner {
    pub(crate) executor: Executor,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) snapshots: ReadSnapshot,
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
        let has_turn = |pace: &Arc<Pace>| pace.wait_until(asked.deadline);
        let run = if target.pace.as_ref().is_none_or(has_turn) {
            self.execute(target, asked)
        } else {
            Err(Undecided::RateLimit)
        };
        let judged = match run {
            Ok(mut outcome) => {
                self.count_usage(target, &outcome.usage);
                // Removing files takes a good part of the time of a short hook, and the caller need not wait for it.
                afterwards.drop_late(outcome.files.take());
                let judged = judge(&outcome);
                judged.and_then(|judged| self.carry_out(target, asked, &outcome).map(|()| judged))
            }
            Err(undecided) => {
                self.carry_out_despite(target, asked, &undecided);
                Err(undecided)
            }
        };
        self.count(target, began.elapsed(), judged.is_ok());
        judged
    }

    /// What the hook asked for beside its answer. Everything is read before anything is done.
    fn carry_out(
        &self,
        target: &Target,
        asked: &Asked<'_>,
        outcome: &Outcome,
    ) -> Result<(), Undecided> {
        let metrics = Batch::parse(&outcome.metrics).map_err(Undecided::Metrics)?;
        self.change_objects(target, asked, &outcome.patches, Scope::All)?;
        // AW-34: a dry run leaves no trace.
        if !asked.dry_run {
            metrics.apply(&target.hook, &self.metrics);
        }
        Ok(())
    }

    /// A hook that failed may have left operations that are meant for that case.
    fn carry_out_despite(&self, target: &Target, asked: &Asked<'_>, undecided: &Undecided) {
        let Undecided::Run(RunError { patches, .. }) = undecided else {
            return;
        };
        let changed = self.change_objects(target, asked, &patches.0, Scope::DespiteFailure);
        if let Err(error) = changed {
            warn!(
                hook = target.hook.as_str(), binding = target.binding.as_str(), uid = asked.uid, error:% = error;
                "object operations of a failed run are not all carried out"
            );
        }
    }

    /// AW-34: a dry run changes nothing, whatever the hook wrote.
    ///
    /// On a thread of its own, because a program in an operation may run for ever and the answer may not. Few hooks write operations.
    fn change_objects(
        &self,
        target: &Target,
        asked: &Asked<'_>,
        file: &[u8],
        scope: Scope,
    ) -> Result<(), Undecided> {
        if file.is_empty() {
            return Ok(());
        }
        let scope = if asked.dry_run { Scope::Check } else { scope };
        let until = asked.deadline;
        let turn = self
            .changes
            .take(until)
            .map_err(|_refused| Undecided::Operations(late()))?;
        let (reply, done) = bounded(1);
        let operations = Arc::clone(&self.operations);
        let (file, hook, binding) = (file.to_vec(), target.hook.clone(), target.binding.clone());
        let work = move || {
            let _turn = turn;
            let order = Order {
                file: &file,
                scope,
                until: Some(until),
                hook: &hook,
                binding: &binding,
            };
            // Whoever waited may have given up.
            let _ = reply.send(operations.perform(&order));
        };
        threads::spawn_short("operations", CHANGES_STACK, work).map_err(|error| {
            let reason = format!("cannot start a thread for object operations: {error}");
            Undecided::Operations(Undone::Failed(reason))
        })?;
        let done = done.recv_deadline(until.checked_add(GRACE).unwrap_or(until));
        done.unwrap_or_else(|_late| Err(late()))
            .map_err(Undecided::Operations)
    }

    fn execute(&self, target: &Target, asked: &Asked<'_>) -> Result<Outcome, Undecided> {
        let (hook, binding) = (target.hook.as_str(), target.binding.as_str());
        let labels = [
            ("hook", hook),
            ("binding", binding),
            ("event", asked.event),
            ("uid", asked.uid),
        ];
        let mut output = HookLog::new(self.proxy_hook_json, &labels);
        // Read now, so that the hook sees what is true at the moment of its decision.
        let copies: Vec<(&str, Snapshot)> = target
            .snapshots
            .iter()
            .map(|(name, id)| (name.as_str(), (self.snapshots)(*id)))
            .collect();
        let mut write_input = |file: &mut dyn std::io::Write| {
            let snapshots: Vec<context::Snapshot<'_>> = copies
                .iter()
                .map(|(name, items)| context::Snapshot { name, items })
                .collect();
            let context = BindingContext {
                reason: asked.reason,
                snapshots: &snapshots,
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
                    Stream::Stderr => output.stderr(text),
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
}

/// Why a hook did not decide.
#[derive(Debug)]
pub(crate) enum Undecided {
    RateLimit,
    Run(RunError),
    Response(ResponseError),
    Metrics(MetricError),
    Operations(Undone),
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
            Undecided::Unfit(reason) => formatter.write_str(reason),
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
            Undecided::Unfit(reason) => reason.clone(),
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
