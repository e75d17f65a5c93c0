//! Admission: from a request on a connection thread to the answer that goes back, through one run of one hook.
//!
//! ```text
//! request -> caller? method? type? -> question -> route -> structure? -> turn -> run -> verdict -> answer
//! ```
//!
//! INVARIANT: every review that could be read is answered with HTTP 200 and a verdict, and that verdict is "denied" for
//! everything that went wrong on our side. An HTTP error would let the request pass under `failurePolicy: Ignore`.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use log::{debug, warn};

use super::caller::Callers;
use super::derived::{Asked, Validators};
use super::probe::{self, Readiness};
use super::{Head, Request, Respond, Response};
use crate::hook::{self, Registry};
use crate::review::{
    self, Afterwards, Answer, FAILED, PANICKED, Paces, Question, Review, ReviewId, Runner, Turns,
    Webhook, failed,
};
use crate::threads::panic_text;

/// Answers the webhook port. Shared by its connection threads.
pub(crate) struct Admission {
    webhooks: HashMap<String, Arc<Webhook>>,
    validators: Arc<Validators>,
    callers: Callers,
    turns: Arc<Turns>,
    runner: Runner,
    readiness: Arc<Readiness>,
}

impl Admission {
    pub(crate) fn new(
        registry: &Registry,
        paces: &Paces,
        validators: Arc<Validators>,
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
            let webhook = Arc::new(Webhook::new(route, hook, binding, paces));
            for path in route.alias.iter().chain([&route.path]) {
                webhooks.insert(path.clone(), Arc::clone(&webhook));
            }
        }
        Admission {
            webhooks,
            validators,
            callers,
            turns,
            runner,
            readiness,
        }
    }

    /// A panic is a failure of ours like any other, and must not become an HTTP error.
    fn guarded(
        &self,
        question: &Question,
        webhook: &Webhook,
        head: &Head,
        afterwards: &mut Afterwards,
    ) -> Answer {
        let decide = AssertUnwindSafe(|| self.decide(question, webhook, head, afterwards));
        catch_unwind(decide).unwrap_or_else(|payload| {
            log::error!("a review panicked: {}", panic_text(payload.as_ref()));
            failed(&webhook.target.hook, PANICKED)
        })
    }

    /// A review on the path that all kubernetes bindings share: every hook that validates the kind is asked, one after the other,
    /// until one refuses. HX-16, HX-53, HX-54: what nobody validates is allowed, here and on no other path.
    fn by_kind(&self, question: &Question, head: &Head, afterwards: &mut Afterwards) -> Answer {
        let uid = question.uid.as_str();
        let webhooks = match self.validators.asked(question) {
            Asked::These(webhooks) => webhooks,
            Asked::NoValidators => {
                warn!(
                    uid = uid, kind:% = question.kind;
                    "a review on '{}' is allowed: no kubernetes binding has webhookValidation", self.validators.path()
                );
                Vec::new()
            }
            Asked::NotYet => {
                let message = format!(
                    "cannot validate {}: the API server has not told yet what the kinds of kubernetes bindings are",
                    question.kind
                );
                warn!(uid = uid; "{message}");
                return Answer::deny(FAILED, message);
            }
        };
        let mut all = Answer {
            allowed: true,
            ..Answer::default()
        };
        for webhook in &webhooks {
            let answer = self.guarded(question, webhook, head, afterwards);
            all.warnings.extend(answer.warnings);
            for (key, value) in answer.audit_annotations {
                all.audit_annotations.entry(key).or_insert(value);
            }
            if !answer.allowed {
                return Answer {
                    warnings: all.warnings,
                    audit_annotations: all.audit_annotations,
                    ..Answer {
                        reason: answer.reason,
                        ..Answer::deny(answer.code, answer.message)
                    }
                };
            }
        }
        all
    }

    /// The answer to a review that could be read.
    fn decide(
        &self,
        question: &Question,
        webhook: &Webhook,
        head: &Head,
        afterwards: &mut Afterwards,
    ) -> Answer {
        if let Some(refusal) = webhook.screen(question) {
            return refusal;
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
        let is_shared = path == self.validators.path();
        let question = match Question::parse(body) {
            Ok(question) => question,
            Err(error) => {
                debug!("request from {}: {error}", head.peer.address);
                let status = if webhook.is_some() || is_shared {
                    400
                } else {
                    404
                };
                return Response::text(status, format!("{error}\n"));
            }
        };
        let id = question.id();
        let answer = match webhook {
            Some(webhook) => self.guarded(&question, webhook, &head, afterwards),
            None if is_shared => self.by_kind(&question, &head, afterwards),
            None => no_hook(&path, &id),
        };
        match answer.render(&id) {
            Ok(body) => Response::json(200, body),
            Err(error) => Response::text(500, format!("cannot encode the answer: {error}\n")),
        }
    }
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
