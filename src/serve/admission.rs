//! Admission: from a request on a connection thread to the answer that goes back, through one run of one hook.
//!
//! ```text
//! request -> caller? method? type? -> question -> route -> structure? -> executor thread: run -> verdict -> answer
//! ```
//!
//! INVARIANT: every review that could be read is answered with HTTP 200 and a verdict, and that verdict is "denied" for
//! everything that went wrong on our side. An HTTP error would let the request pass under `failurePolicy: Ignore`.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use log::{debug, info, warn};

use super::caller::Callers;
use super::pool::{Pool, Refused};
use super::probe::{self, Readiness};
use super::review::{self, Answer, Question, ReviewId};
use super::{Head, Request, Respond, Response};
use crate::executor::{Executor, Failure, Outcome, Run, RunError, RunKind, Stream, Usage};
use crate::hook::binding::{AdmissionBinding, AdmissionKind};
use crate::hook::context::{self, BindingContext, Reason, write_contexts};
use crate::hook::response::{AdmissionAnswer, ResponseError};
use crate::hook::{self, Hook, Registry};
use crate::logger::HookLog;
use crate::message::{BindingId, Snapshot};
use crate::metrics::Metrics;
use crate::operation::{Order, Perform, Scope, Undone};
use crate::pace::Pace;
use crate::threads::panic_text;

/// A hook that is killed at its deadline is answered for within this time; it is half of the least margin.
const GRACE: Duration = Duration::from_millis(50);
/// Denials that a hook decided carry this code unless it names another, as in the original.
const FORBIDDEN: u16 = 403;
/// Denials because something of ours failed.
const FAILED: u16 = 500;

/// A webhook path and what is behind it.
struct Target {
    hook: String,
    path: PathBuf,
    kind: AdmissionKind,
    binding: AdmissionBinding,
    /// The snapshots that the hook gets to see, by name.
    snapshots: Vec<(String, BindingId)>,
    /// The hook's own rate limit, shared by all its bindings.
    pace: Arc<Pace>,
}

/// Answers the webhook port. Shared by its connection threads.
pub(crate) struct Admission {
    targets: HashMap<String, Arc<Target>>,
    callers: Callers,
    pool: Pool<Answer>,
    runner: Arc<Runner>,
    readiness: Arc<Readiness>,
}

/// What an executor thread needs for a run.
pub(crate) struct Runner {
    pub(crate) executor: Executor,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) snapshots: ReadSnapshot,
    /// Carries out what hooks want changed in the cluster.
    pub(crate) operations: Arc<dyn Perform>,
    pub(crate) proxy_hook_json: bool,
}

/// Reads the objects of a kubernetes binding at this moment.
pub(crate) type ReadSnapshot = Arc<dyn Fn(BindingId) -> Snapshot + Send + Sync>;

impl Admission {
    pub(crate) fn new(
        registry: &Registry,
        callers: Callers,
        pool: Pool<Answer>,
        runner: Runner,
        readiness: Arc<Readiness>,
    ) -> Admission {
        let mut paces: HashMap<String, Arc<Pace>> = HashMap::new();
        let mut targets = HashMap::new();
        for route in &registry.routes {
            let Some((hook, binding)) = registry.admission(route) else {
                continue;
            };
            let pace = paces.entry(hook.name.clone()).or_insert_with(|| {
                let limit = hook.config.rate_limit;
                let (interval, burst) =
                    limit.map_or((Duration::ZERO, 1), |limit| (limit.interval, limit.burst));
                Arc::new(Pace::every(interval, burst))
            });
            let target = Arc::new(Target {
                hook: hook.name.clone(),
                path: hook.path.clone(),
                kind: route.kind,
                binding: binding.clone(),
                snapshots: included(route.hook, hook, binding),
                pace: Arc::clone(pace),
            });
            for path in route.alias.iter().chain([&route.path]) {
                targets.insert(path.clone(), Arc::clone(&target));
            }
        }
        Admission {
            targets,
            callers,
            pool,
            runner: Arc::new(runner),
            readiness,
        }
    }

    /// The answer to a review that could be read.
    fn decide(&self, question: Question, target: &Arc<Target>, head: &Head) -> Answer {
        if target.binding.validate_structure
            && let Some(flaw) = question.structural_flaw()
        {
            return Answer::deny(FORBIDDEN, flaw);
        }
        let configured = Duration::from_secs(u64::from(target.binding.timeout_seconds));
        let limit = review::time_limit(review::asked_timeout(head.query.as_deref()), configured);
        let deadline = head.received.checked_add(limit).unwrap_or(head.received);
        let runner = Arc::clone(&self.runner);
        let behind = Arc::clone(target);
        let work = move || runner.review(&question, &behind, deadline, limit);
        self.pool.run(work, deadline, GRACE).unwrap_or_else(|refused| {
            let reason = match refused {
                Refused::Full => "too many requests are waiting; try again".to_owned(),
                Refused::Late => format!("no answer within {}", seconds(limit)),
                Refused::Broken => "the operator failed; its log says why".to_owned(),
            };
            warn!(hook = target.hook.as_str(), binding = target.binding.name.as_str(); "review refused: {reason}");
            failed(&target.hook, &reason)
        })
    }
}

impl Respond for Admission {
    fn screen(&self, head: &Head) -> Option<Response> {
        if probe::is_health(&head.path) && head.method == "GET" {
            return None;
        }
        if let Some(refusal) = self.callers.refusal(head) {
            return Some(refusal);
        }
        if head.method != "POST" {
            return Some(Response::text(405, "only POST is served here\n"));
        }
        let media_type = head
            .header("content-type")
            .and_then(|value| value.split(';').next())
            .unwrap_or_default();
        (!media_type.trim().eq_ignore_ascii_case("application/json"))
            .then(|| Response::text(415, "only application/json is served here\n"))
    }

    fn respond(&self, request: Request) -> Response {
        let Request { head, body } = request;
        if head.method == "GET" {
            return probe::health(&head.path, &self.readiness)
                .unwrap_or_else(|| Response::text(404, "404 page not found\n"));
        }
        let path = hook::normalize(&head.path);
        let target = self.targets.get(&path);
        let question = match Question::parse(body) {
            Ok(question) => question,
            Err(error) => {
                debug!("request from {}: {error}", head.peer.address);
                let status = if target.is_some() { 400 } else { 404 };
                return Response::text(status, format!("{error}\n"));
            }
        };
        let id = question.id();
        let answer = match target {
            // A panic is a failure of ours like any other, and must not become an HTTP error.
            Some(target) => catch_unwind(AssertUnwindSafe(|| self.decide(question, target, &head)))
                .unwrap_or_else(|payload| {
                    log::error!("a review panicked: {}", panic_text(payload.as_ref()));
                    failed(&target.hook, "the operator failed; its log says why")
                }),
            None => no_hook(&path, &id),
        };
        match answer.render(&id) {
            Ok(body) => Response::json(200, body),
            Err(error) => Response::text(500, format!("cannot encode the answer: {error}\n")),
        }
    }
}

impl Runner {
    /// One review by one hook. Runs on an executor thread; always ends in an answer.
    fn review(
        &self,
        question: &Question,
        target: &Target,
        deadline: Instant,
        limit: Duration,
    ) -> Answer {
        let (hook, binding) = (target.hook.as_str(), target.binding.name.as_str());
        let uid = question.uid.as_str();
        debug!(hook = hook, binding = binding, uid = uid; "Execute hook");
        let began = Instant::now();
        let run = if target.pace.wait_until(deadline) {
            self.run(question, target, deadline)
        } else {
            Err(Undecided::RateLimit)
        };
        let verdict = match run {
            Ok(outcome) => {
                self.count_usage(hook, binding, &outcome.usage);
                let answer = verdict(&outcome, question, target);
                answer.and_then(|answer| {
                    self.change_objects(&outcome.patches, Scope::All, question, target, deadline)?;
                    Ok(answer)
                })
            }
            Err(undecided) => {
                if let Undecided::Run(RunError { patches, .. }) = &undecided {
                    let scope = Scope::DespiteFailure;
                    let changed =
                        self.change_objects(&patches.0, scope, question, target, deadline);
                    if let Err(error) = changed {
                        warn!(hook = hook, binding = binding, uid = uid, error:% = error;
                            "object operations of a failed run are not all carried out");
                    }
                }
                Err(undecided)
            }
        };
        self.count(hook, binding, began.elapsed(), verdict.is_ok());
        match verdict {
            Ok(answer) => {
                info!(
                    hook = hook, binding = binding, uid = uid, allowed = answer.allowed, kind:% = question.kind,
                    namespace = question.namespace.as_str(), name = question.name.as_str(),
                    operation = question.operation.as_str(), dryRun = question.dry_run, message = answer.message.as_str(),
                    patched = answer.patch.is_some(), warnings = answer.warnings.len();
                    "AdmissionResponse from hook"
                );
                answer
            }
            Err(undecided) => {
                // The details may hold anything the hook printed: they are for the log, not for whoever was refused.
                log::error!(
                    hook = hook, binding = binding, uid = uid, kind:% = question.kind,
                    namespace = question.namespace.as_str(), name = question.name.as_str(), error:% = undecided;
                    "Hook failed, the request is denied"
                );
                failed(hook, &undecided.reason(limit))
            }
        }
    }

    /// AW-34: a dry run changes nothing, whatever the hook wrote.
    fn change_objects(
        &self,
        file: &[u8],
        scope: Scope,
        question: &Question,
        target: &Target,
        deadline: Instant,
    ) -> Result<(), Undecided> {
        let order = Order {
            file,
            scope: if question.dry_run {
                Scope::Check
            } else {
                scope
            },
            until: Some(deadline),
            hook: &target.hook,
            binding: &target.binding.name,
        };
        let done = self.operations.perform(&order);
        done.map_err(Undecided::Operations)
    }

    fn run(
        &self,
        question: &Question,
        target: &Target,
        deadline: Instant,
    ) -> Result<Outcome, Undecided> {
        let (hook, binding) = (target.hook.as_str(), target.binding.name.as_str());
        let labels = [
            ("hook", hook),
            ("binding", binding),
            ("uid", question.uid.as_str()),
        ];
        let mut output = HookLog::new(self.proxy_hook_json, &labels);
        // Read now, so that the hook sees what is true at the moment of its decision.
        let copies: Vec<(&str, Snapshot)> = target
            .snapshots
            .iter()
            .map(|(name, id)| (name.as_str(), (self.snapshots)(*id)))
            .collect();
        let mut write_input = |file: &mut dyn std::io::Write| {
            let reason = Reason::Admission {
                binding,
                kind: target.kind,
                request: question.request(),
            };
            let snapshots: Vec<context::Snapshot<'_>> = copies
                .iter()
                .map(|(name, items)| context::Snapshot { name, items })
                .collect();
            let snapshots = &snapshots;
            write_contexts(file, &[BindingContext { reason, snapshots }])
        };
        let outcome = self.executor.run(Run {
            hook_name: hook,
            path: &target.path,
            kind: RunKind::Admission,
            write_input: &mut write_input,
            deadline: Some(deadline),
            output: &mut |stream, text| match stream {
                Stream::Stdout => output.stdout(text),
                Stream::Stderr => output.stderr(text),
            },
        });
        output.finish();
        outcome.map_err(Undecided::Run)
    }

    fn count_usage(&self, hook: &str, binding: &str, usage: &Usage) {
        let labels = [("hook", hook), ("binding", binding), ("queue", "")];
        for (name, spent) in [
            ("hook_run_user_cpu_seconds", usage.user),
            ("hook_run_sys_cpu_seconds", usage.system),
        ] {
            self.metrics.observe(name, &labels, spent.as_secs_f64());
        }
    }

    fn count(&self, hook: &str, binding: &str, elapsed: Duration, decided: bool) {
        let labels = [("hook", hook), ("binding", binding), ("queue", "")];
        self.metrics
            .observe("hook_run_seconds", &labels, elapsed.as_secs_f64());
        let (success, errors) = if decided { (1.0, 0.0) } else { (0.0, 1.0) };
        self.metrics.add("hook_run_success_total", &labels, success);
        self.metrics.add("hook_run_errors_total", &labels, errors);
        self.metrics
            .add("hook_run_allowed_errors_total", &labels, 0.0);
    }
}

/// The kubernetes bindings whose objects a binding asks for; a group has been expanded into names already (SO-46).
fn included(index: usize, hook: &Hook, binding: &AdmissionBinding) -> Vec<(String, BindingId)> {
    let named = |name: &String| {
        let mut bindings = hook.config.kubernetes.iter();
        let position = bindings.position(|known| known.name == *name)?;
        let id = BindingId {
            hook: index,
            binding: position,
        };
        Some((name.clone(), id))
    };
    binding
        .include_snapshots_from
        .iter()
        .filter_map(named)
        .collect()
}

/// What the hook answered, checked.
fn verdict(outcome: &Outcome, question: &Question, target: &Target) -> Result<Answer, Undecided> {
    let answer =
        AdmissionAnswer::parse(&outcome.admission_response).map_err(Undecided::Response)?;
    answer
        .check_patch(target.kind, &question.operation, question.object())
        .map_err(Undecided::Response)?;
    let (hook, binding) = (target.hook.as_str(), target.binding.name.as_str());
    for advice in &answer.advice {
        warn!(hook = hook, binding = binding, uid = question.uid.as_str(); "{advice}");
    }
    if !outcome.metrics.is_empty() {
        warn!(hook = hook, binding = binding, uid = question.uid.as_str(); "metrics of admission hooks are not applied by this version");
    }
    let verdict = answer.verdict;
    Ok(Answer {
        allowed: verdict.allowed,
        code: verdict.code,
        message: verdict.message,
        reason: verdict.reason,
        warnings: verdict.warnings,
        audit_annotations: verdict.audit_annotations,
        patch: verdict
            .patch
            .map(|patch| BASE64_STANDARD.encode(patch.json)),
    })
}

/// Why a hook did not decide.
#[derive(Debug)]
enum Undecided {
    RateLimit,
    Run(RunError),
    Response(ResponseError),
    Operations(Undone),
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
            Undecided::Operations(Undone::Stopped) => {
                write!(
                    formatter,
                    "its object operations were cut short, the operator is stopping"
                )
            }
            Undecided::Operations(Undone::Failed(reason)) => write!(formatter, "{reason}"),
        }
    }
}

impl Undecided {
    /// What may be told to whoever was refused.
    fn reason(&self, limit: Duration) -> String {
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
            Undecided::Operations(_) => "its object operations failed".to_owned(),
        }
    }
}

/// A denial because of a failure, in the words of SO-43.
fn failed(hook: &str, reason: &str) -> Answer {
    Answer::deny(
        FAILED,
        format!("Shell-operator hook '{hook}' error: {reason}."),
    )
}

/// Nothing is behind this path. Denied and not 404, which `failurePolicy: Ignore` would let pass; the text is the original's.
fn no_hook(path: &str, id: &ReviewId) -> Answer {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let configuration = parts.next().unwrap_or_default();
    let webhook = parts.next().unwrap_or_default();
    let message =
        format!("handle AdmissionReview: no hook found for '{configuration}' '{webhook}'");
    warn!(uid = id.uid.as_str(); "{message}");
    Answer::deny(FAILED, message)
}

fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}
