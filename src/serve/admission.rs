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
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use log::{debug, info, warn};

use super::caller::Callers;
use super::probe::{self, Readiness};
use super::review::{self, Answer, Question, ReviewId};
use super::runner::{Asked, PANICKED, Paces, Runner, Target, Undecided, failure};
use super::turns::Turns;
use super::{Afterwards, Head, Request, Respond, Response};
use crate::executor::{Outcome, RunKind};
use crate::hook::binding::{AdmissionBinding, AdmissionKind};
use crate::hook::context::Reason;
use crate::hook::response::AdmissionAnswer;
use crate::hook::{self, Registry};
use crate::threads::panic_text;

/// Denials that a hook decided carry this code unless it names another, as in the original.
const FORBIDDEN: u16 = 403;
/// Denials because something of ours failed.
const FAILED: u16 = 500;

/// What is behind a webhook path.
struct Webhook {
    kind: AdmissionKind,
    binding: AdmissionBinding,
    target: Target,
}

/// Answers the webhook port. Shared by its connection threads.
pub(crate) struct Admission {
    webhooks: HashMap<String, Arc<Webhook>>,
    callers: Callers,
    turns: Arc<Turns>,
    runner: Runner,
    readiness: Arc<Readiness>,
}

impl Admission {
    pub(crate) fn new(
        registry: &Registry,
        paces: &Paces,
        callers: Callers,
        turns: Arc<Turns>,
        runner: Runner,
        readiness: Arc<Readiness>,
    ) -> Admission {
        let mut webhooks = HashMap::new();
        for route in &registry.routes {
            let Some((hook, binding)) = registry.admission(route) else {
                continue;
            };
            let included = &binding.include_snapshots_from;
            let webhook = Arc::new(Webhook {
                kind: route.kind,
                binding: binding.clone(),
                target: Target::new(route.hook, hook, &binding.name, included, paces),
            });
            for path in route.alias.iter().chain([&route.path]) {
                webhooks.insert(path.clone(), Arc::clone(&webhook));
            }
        }
        Admission {
            webhooks,
            callers,
            turns,
            runner,
            readiness,
        }
    }

    /// The answer to a review that could be read.
    fn decide(
        &self,
        question: &Question,
        webhook: &Webhook,
        head: &Head,
        afterwards: &mut Afterwards,
    ) -> Answer {
        if webhook.binding.validate_structure
            && let Some(flaw) = question.structural_flaw()
        {
            return Answer::deny(FORBIDDEN, flaw);
        }
        let configured = Duration::from_secs(u64::from(webhook.binding.timeout_seconds));
        let limit = review::time_limit(review::asked_timeout(head.query.as_deref()), configured);
        let deadline = head.received.checked_add(limit).unwrap_or(head.received);
        match self.turns.take(deadline) {
            Ok(_turn) => {
                let review = Review {
                    question,
                    webhook,
                    deadline,
                    limit,
                };
                review.by_hook(&self.runner, afterwards)
            }
            Err(refused) => {
                let reason = refused.reason(limit);
                let target = &webhook.target;
                warn!(hook = target.hook.as_str(), binding = target.binding.as_str(); "review refused: {reason}");
                failed(&target.hook, &reason)
            }
        }
    }
}

impl Respond for Admission {
    fn screen(&self, head: &Head) -> Option<Response> {
        self.callers.screen(head)
    }

    fn respond(&self, request: Request, afterwards: &mut Afterwards) -> Response {
        let Request { head, body } = request;
        if head.method == "GET" {
            return probe::health(&head.path, &self.readiness)
                .unwrap_or_else(|| Response::text(404, "404 page not found\n"));
        }
        let path = hook::normalize(&head.path);
        let webhook = self.webhooks.get(&path);
        let question = match Question::parse(body) {
            Ok(question) => question,
            Err(error) => {
                debug!("request from {}: {error}", head.peer.address);
                let status = if webhook.is_some() { 400 } else { 404 };
                return Response::text(status, format!("{error}\n"));
            }
        };
        let id = question.id();
        let answer = match webhook {
            // A panic is a failure of ours like any other, and must not become an HTTP error.
            Some(webhook) => catch_unwind(AssertUnwindSafe(|| {
                self.decide(&question, webhook, &head, afterwards)
            }))
            .unwrap_or_else(|payload| {
                log::error!("a review panicked: {}", panic_text(payload.as_ref()));
                failed(&webhook.target.hook, PANICKED)
            }),
            None => no_hook(&path, &id),
        };
        match answer.render(&id) {
            Ok(body) => Response::json(200, body),
            Err(error) => Response::text(500, format!("cannot encode the answer: {error}\n")),
        }
    }
}

/// A review that has its turn.
struct Review<'a> {
    question: &'a Question,
    webhook: &'a Webhook,
    deadline: Instant,
    limit: Duration,
}

impl Review<'_> {
    /// One review by one hook. Always ends in an answer, by the deadline: everything it waits for has that limit.
    fn by_hook(&self, runner: &Runner, afterwards: &mut Afterwards) -> Answer {
        let Review {
            question,
            webhook,
            deadline,
            limit,
        } = *self;
        let target = &webhook.target;
        let (hook, binding) = (target.hook.as_str(), target.binding.as_str());
        let uid = question.uid.as_str();
        debug!(hook = hook, binding = binding, uid = uid; "Execute hook");
        let asked = Asked {
            kind: RunKind::Admission,
            reason: Reason::Admission {
                binding,
                kind: webhook.kind,
                request: question.request(),
            },
            event: webhook.kind.section(),
            uid,
            dry_run: question.dry_run,
            deadline,
        };
        match runner.run(target, &asked, afterwards, |outcome| {
            verdict(outcome, question, webhook)
        }) {
            Ok(answer) => {
                info!(
                    hook = hook, binding = binding, event = webhook.kind.section(), uid = uid, allowed = answer.allowed, kind:% = question.kind,
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
                    hook = hook, binding = binding, event = webhook.kind.section(), uid = uid, kind:% = question.kind,
                    namespace = question.namespace.as_str(), name = question.name.as_str(), error:% = undecided;
                    "Hook failed, the request is denied"
                );
                failed(hook, &undecided.reason(limit))
            }
        }
    }
}

/// What the hook answered, checked.
fn verdict(outcome: &Outcome, question: &Question, webhook: &Webhook) -> Result<Answer, Undecided> {
    let answer =
        AdmissionAnswer::parse(&outcome.admission_response).map_err(Undecided::Response)?;
    answer
        .check_patch(webhook.kind, &question.operation, question.object())
        .map_err(Undecided::Response)?;
    let target = &webhook.target;
    let (hook, binding) = (target.hook.as_str(), target.binding.as_str());
    for advice in &answer.advice {
        warn!(hook = hook, binding = binding, uid = question.uid.as_str(); "{advice}");
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

/// A denial because of a failure, in the words of SO-43.
fn failed(hook: &str, reason: &str) -> Answer {
    Answer::deny(FAILED, failure(hook, reason))
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
