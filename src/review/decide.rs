//! One review, decided by one hook: from the question to the answer that the API server gets.
//!
//! Runs on the thread of whoever asks: a connection of the webhook server, or the offline `review`. Always ends in an answer, and
//! never in "allowed" unless a hook said so. Knows no socket.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use log::{debug, info, warn};

use super::afterwards::Afterwards;
use super::proposal::proposal;
use super::question::{Answer, Question};
use super::reason::{self, Words};
use super::runner::{Asked, Paces, Runner, Target, Undecided, failure};
use super::sight::Proposed;
use crate::executor::{Outcome, RunKind};
use crate::hook::binding::{AdmissionBinding, AdmissionKind};
use crate::hook::context::Reason;
use crate::hook::response::AdmissionAnswer;
use crate::hook::{Hook, Route};
use crate::metrics::Metrics;

/// Denials that a hook decided carry this code unless it names another, as in the original.
pub(crate) const FORBIDDEN: u16 = 403;
/// The audit annotation that names the phase in which a request was denied.
const PHASE: &str = "phase";
/// Denials because something of ours failed.
pub(crate) const FAILED: u16 = 500;

/// What is behind a webhook path.
pub(crate) struct Webhook {
    pub(crate) kind: AdmissionKind,
    pub(crate) binding: AdmissionBinding,
    pub(crate) target: Target,
}

impl Webhook {
    pub(crate) fn new(
        route: &Route,
        hook: &Hook,
        binding: &AdmissionBinding,
        paces: &Paces,
    ) -> Webhook {
        let included = &binding.include_snapshots_from;
        Webhook {
            kind: route.kind,
            binding: binding.clone(),
            target: Target::new(
                route.hook,
                hook,
                &binding.name,
                included,
                binding.overlay.as_ref(),
                paces,
            ),
        }
    }

    /// The review of what a kubernetes binding watches, asked for by its `webhookValidation`.
    pub(crate) fn of_watched(
        index: usize,
        hook: &Hook,
        binding: AdmissionBinding,
        paces: &Paces,
    ) -> Webhook {
        let (included, overlay) = (&binding.include_snapshots_from, binding.overlay.as_ref());
        Webhook {
            kind: AdmissionKind::Validating,
            target: Target::new(index, hook, &binding.name, included, overlay, paces),
            binding,
        }
    }

    /// What can be said without the hook.
    pub(crate) fn screen(&self, question: &Question) -> Option<Answer> {
        if !self.binding.validate_structure {
            return None;
        }
        let flaw = question.structural_flaw()?;
        Some(Answer::deny(FORBIDDEN, flaw))
    }
}

/// A review that has its turn.
pub(crate) struct Review<'a> {
    pub(crate) question: &'a Question,
    pub(crate) webhook: &'a Webhook,
    pub(crate) deadline: Instant,
    pub(crate) limit: Duration,
}

impl Review<'_> {
    /// One review by one hook. Always ends in an answer, by the deadline: everything it waits for has that limit.
    pub(crate) fn by_hook(&self, runner: &Runner, afterwards: &mut Afterwards) -> Answer {
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
            proposed: webhook.binding.overlay.as_ref().map(|overlay| Proposed {
                operation: &question.operation,
                proposal: proposal(question, overlay),
            }),
            errors: Some(&webhook.binding.errors),
        };
        match runner.run(target, &asked, afterwards, |outcome| {
            verdict(outcome, question, webhook)
        }) {
            Ok(answer) => {
                self.told(&answer, &runner.metrics);
                answer
            }
            // A hook that failed with words for its user has decided.
            Err(Undecided::Explained { words, .. }) if words.is_meant => {
                let answer = explained(FORBIDDEN, &words);
                self.told(&answer, &runner.metrics);
                answer
            }
            Err(undecided) => {
                // The details may hold anything the hook printed: they are for the log, not for whoever was refused.
                log::error!(
                    hook = hook, binding = binding, event = webhook.kind.section(), uid = uid, kind:% = question.kind,
                    namespace = question.namespace.as_str(), name = question.name.as_str(), error:% = undecided;
                    "Hook failed, the request is denied"
                );
                runner.tell(&undecided);
                match undecided {
                    Undecided::Explained { words, .. } => {
                        let answer = explained(FAILED, &words);
                        self.count_phase(&answer, &runner.metrics);
                        answer
                    }
                    other => failed(hook, &other.reason(limit)),
                }
            }
        }
    }

    /// A decision of the hook's, in the log and in the metrics.
    fn told(&self, answer: &Answer, metrics: &Metrics) {
        let Review {
            question, webhook, ..
        } = *self;
        let target = &webhook.target;
        info!(
            hook = target.hook.as_str(), binding = target.binding.as_str(), event = webhook.kind.section(),
            uid = question.uid.as_str(), allowed = answer.allowed, kind:% = question.kind,
            namespace = question.namespace.as_str(), name = question.name.as_str(),
            operation = question.operation.as_str(), dryRun = question.dry_run, message = answer.message.as_str(),
            patched = answer.patch.is_some(), warnings = answer.warnings.len();
            "AdmissionResponse from hook"
        );
        self.count_phase(answer, metrics);
    }

    fn count_phase(&self, answer: &Answer, metrics: &Metrics) {
        let phase = answer.audit_annotations.get(PHASE);
        let Some(phase) = phase.filter(|_| !answer.allowed) else {
            return;
        };
        let target = &self.webhook.target;
        let labels = [
            ("hook", target.hook.as_str()),
            ("binding", target.binding.as_str()),
            ("phase", reason::counted(phase)),
        ];
        metrics.add("hook_denials_total", &labels, 1.0);
        let [(_, hook), (_, binding), _] = labels;
        info!(hook = hook, binding = binding, uid = self.question.uid.as_str(), phase = phase.as_str(); "denied in phase '{phase}'");
    }
}

/// A denial in the hook's own words.
fn explained(code: u16, words: &Words) -> Answer {
    let phase = words.phase.clone();
    Answer {
        audit_annotations: phase
            .map(|phase| (PHASE.to_owned(), phase))
            .into_iter()
            .collect(),
        ..Answer::deny(code, words.text.clone())
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
    let mut verdict = answer.verdict;
    let phase = verdict.phase.as_deref().and_then(reason::phase_of);
    if let Some(phase) = &phase {
        let annotations = &mut verdict.audit_annotations;
        annotations
            .entry(PHASE.to_owned())
            .or_insert_with(|| phase.clone());
    }
    let errors = &webhook.binding.errors;
    Ok(Answer {
        allowed: verdict.allowed,
        code: verdict.code,
        message: reason::tidy(&verdict.message, errors, phase.as_deref(), false),
        reason: verdict.reason,
        warnings: verdict.warnings,
        audit_annotations: verdict.audit_annotations,
        patch: verdict
            .patch
            .map(|patch| BASE64_STANDARD.encode(patch.json)),
    })
}

/// A denial because of a failure, in the words of SO-43.
pub(crate) fn failed(hook: &str, reason: &str) -> Answer {
    Answer::deny(FAILED, failure(hook, reason))
}
