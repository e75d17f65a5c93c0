//! One request through all webhooks, as the API server takes it: mutating ones in their order, once more those that want to see what
//! the others changed, then validating ones on the result.
//!
//! Runs on the workers; `crew.rs` says when. The hooks are run by the same code as for a cluster (`review`), with the same deadlines.
//! INVARIANT: nothing that a hook asks for is carried out; its object operations are checked and forgotten.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::kinds::Kinds;
use super::manifest::Manifest;
use super::outcome::{Finding, ObjectName, Patched, Verdict};
use super::patches;
use super::request::Request;
use super::rules::{Invocation, Matched, Rules};
use super::view::Views;
use crate::executor::Executor;
use crate::hook::binding::{AdmissionKind, ReinvocationPolicy};
use crate::hook::json_patch::try_patch;
use crate::message::BindingId;
use crate::metrics::Metrics;
use crate::operation::{Order, Perform, Undone};
use crate::review::{self, Afterwards, Answer, Question, Review, Runner, Turns, Webhook};

/// LIMIT: what is kept of a hook's output for a report. A screen is about 4 KiB; whoever needs all of it runs the hook.
const KEPT_OUTPUT: usize = 16 * 1024;
/// Object operations that are checked at one time; each is a parse of a small file.
const CHECKS: usize = 8;

/// Everything that deciding needs and nobody changes.
pub(super) struct World {
    /// In the order of the registration, which is that of the calls.
    pub(super) entries: Vec<Entry>,
    pub(super) kinds: Kinds,
    pub(super) cluster: Cluster,
    pub(super) views: Arc<Views>,
    pub(super) executor: Executor,
    pub(super) metrics: Arc<Metrics>,
}

/// One webhook.
pub(super) struct Entry {
    pub(super) hook: String,
    pub(super) rules: Rules,
    pub(super) webhook: Webhook,
    /// The kubernetes bindings whose objects it sees.
    pub(super) included: Vec<BindingId>,
}

/// A manifest and what is known about its request so far.
pub(super) struct Case {
    /// Which manifest, counted from 0.
    pub(super) index: usize,
    pub(super) manifest: Arc<Manifest>,
    pub(super) name: ObjectName,
    pub(super) request: Request,
}

/// What the mutating webhooks made of a request.
pub(super) struct Mutated {
    pub(super) case: Case,
    pub(super) findings: Vec<Finding>,
    /// The validating webhooks that are asked, by their place among the entries; none after a denial.
    pub(super) validating: Vec<(usize, Invocation)>,
    pub(super) notes: Vec<String>,
}

/// What a hook said, and what else was heard of it.
struct Heard {
    answer: Answer,
    output: Vec<String>,
    elapsed: Duration,
}

/// Checks what hooks want changed, and changes nothing.
struct CheckOnly;

impl Perform for CheckOnly {
    fn perform(&self, order: &Order<'_>) -> Result<(), Undone> {
        patches::check(order.file)
    }
}

impl World {
    /// The first half: everything until the validating webhooks are known.
    pub(super) fn mutate(&self, mut case: Case) -> Mutated {
        let (mut findings, mut notes) = (Vec::new(), Vec::new());
        let mut validating = Vec::new();
        if self.mutate_in_order(&mut case, &mut findings, &mut notes) {
            case.request.settle();
            for (number, entry) in self.of_kind(AdmissionKind::Validating) {
                match entry
                    .rules
                    .matched(&case.request, &self.kinds, &self.cluster)
                {
                    Matched::No(note) => notes.extend(note),
                    Matched::Yes(invocation) => {
                        notes.extend(invocation.note.clone());
                        validating.push((number, invocation));
                    }
                    Matched::Stopped(verdict) => {
                        let is_denied = matches!(verdict, Verdict::Denied { .. });
                        findings.push(case.finding(Some(entry), verdict));
                        // Refused before any webhook is asked.
                        if is_denied {
                            validating.clear();
                            break;
                        }
                    }
                }
            }
        }
        if findings.is_empty() && validating.is_empty() {
            findings.push(case.finding(None, Verdict::NotMatched));
        }
        Mutated {
            case,
            findings,
            validating,
            notes,
        }
    }

    /// False: the request ends here.
    fn mutate_in_order(
        &self,
        case: &mut Case,
        findings: &mut Vec<Finding>,
        notes: &mut Vec<String>,
    ) -> bool {
        // Webhooks that want to be asked again: those asked since the last change, and those that are to be asked.
        let (mut asked, mut again) = (BTreeSet::new(), BTreeSet::new());
        for is_second in [false, true] {
            let mut has_changed = false;
            for (number, entry) in self.of_kind(AdmissionKind::Mutating) {
                let invocation =
                    match entry
                        .rules
                        .matched(&case.request, &self.kinds, &self.cluster)
                    {
                        Matched::Yes(invocation) => invocation,
                        Matched::No(note) => {
                            notes.extend(note);
                            continue;
                        }
                        Matched::Stopped(verdict) => {
                            let is_denied = matches!(verdict, Verdict::Denied { .. });
                            findings.push(case.finding(Some(entry), verdict));
                            if is_denied {
                                return false;
                            }
                            continue;
                        }
                    };
                notes.extend(invocation.note.clone());
                if is_second && !again.contains(&number) {
                    continue;
                }
                let finding = self.mutate_once(case, number, entry, &invocation);
                let is_changed = finding.patched.is_some();
                let goes_on = matches!(finding.verdict, Verdict::Allowed);
                findings.push(finding);
                if !goes_on {
                    return false;
                }
                if is_changed {
                    has_changed = true;
                    again.append(&mut asked);
                }
                let policy = entry.webhook.binding.reinvocation_policy;
                if policy == Some(ReinvocationPolicy::IfNeeded) {
                    asked.insert(number);
                }
            }
            if !has_changed {
                break;
            }
        }
        true
    }

    /// One mutating webhook; the object of the request becomes what it makes of it.
    fn mutate_once(
        &self,
        case: &mut Case,
        number: usize,
        entry: &Entry,
        invocation: &Invocation,
    ) -> Finding {
        if let Some(verdict) = self.blind(case, entry) {
            return case.finding(Some(entry), verdict);
        }
        let heard = self.ask(case, number, entry, invocation);
        let patch = heard.answer.patch.clone();
        let mut finding = case.heard(entry, heard);
        let (Some(patch), Some(object)) = (patch, &case.request.object) else {
            return finding;
        };
        match patched(&patch, &invocation.converted(object)) {
            Ok(mut after) => {
                if invocation.is_converted
                    && let (Some(version), Some(own)) =
                        (after.get_mut("apiVersion"), object.get("apiVersion"))
                {
                    *version = own.clone();
                }
                if after != *object {
                    finding.patched = Some(Box::new(Patched {
                        before: object.clone(),
                        after: after.clone(),
                    }));
                    case.request.object = Some(after);
                }
            }
            Err(message) => finding.verdict = Verdict::Error { message },
        }
        finding
    }

    /// One validating webhook.
    pub(super) fn validate(&self, case: &Case, number: usize, invocation: &Invocation) -> Finding {
        let Some(entry) = self.entries.get(number) else {
            return case.finding(None, Verdict::NotMatched);
        };
        match self.blind(case, entry) {
            Some(verdict) => case.finding(Some(entry), verdict),
            None => case.heard(entry, self.ask(case, number, entry, invocation)),
        }
    }

    /// A snapshot that cannot be shown: the operator would not serve reviews before it can be.
    fn blind(&self, case: &Case, entry: &Entry) -> Option<Verdict> {
        let mut included = entry.included.iter();
        let reason = included.find_map(|id| self.views.failure(*id, case.index));
        reason.map(|reason| Verdict::Error {
            message: reason.to_owned(),
        })
    }

    fn of_kind(&self, kind: AdmissionKind) -> impl Iterator<Item = (usize, &Entry)> {
        let entries = self.entries.iter().enumerate();
        entries.filter(move |(_, entry)| entry.webhook.kind == kind)
    }

    /// Runs the hook once, exactly as a review from a cluster would run it.
    fn ask(&self, case: &Case, number: usize, entry: &Entry, invocation: &Invocation) -> Heard {
        let began = Instant::now();
        let webhook = &entry.webhook;
        let refused = |reason: String| Heard {
            answer: review::failed(&entry.hook, &reason),
            output: vec![reason],
            elapsed: began.elapsed(),
        };
        let question = match Question::parse(case.review(number, invocation)) {
            Ok(question) => question,
            Err(error) => return refused(error.to_string()),
        };
        if let Some(answer) = webhook.screen(&question) {
            return Heard {
                answer,
                output: Vec::new(),
                elapsed: began.elapsed(),
            };
        }
        let configured = Duration::from_secs(u64::from(webhook.binding.timeout_seconds));
        let limit = review::time_limit(None, configured);
        let review = Review {
            question: &question,
            webhook,
            deadline: began.checked_add(limit).unwrap_or(began),
            limit,
        };
        let printed = Arc::new(Mutex::new(String::new()));
        let runner = self.runner(case.index, &printed);
        let answer = review.by_hook(&runner, &mut Afterwards::default());
        let printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
        Heard {
            answer,
            output: printed.lines().map(str::to_owned).collect(),
            elapsed: began.elapsed(),
        }
    }

    /// A runner for one manifest: it sees the cluster of its moment, and what it prints is kept apart.
    fn runner(&self, manifest: usize, printed: &Arc<Mutex<String>>) -> Runner {
        let views = Arc::clone(&self.views);
        let overlays = Arc::clone(&self.views);
        let printed = Arc::clone(printed);
        Runner {
            executor: self.executor.clone(),
            metrics: Arc::clone(&self.metrics),
            snapshots: Arc::new(move |id| views.snapshot(id, manifest)),
            overlaid: Arc::new(move |id, proposal| overlays.overlaid(id, manifest, proposal)),
            operations: Arc::new(CheckOnly),
            changes: Turns::new(CHECKS),
            proxy_hook_json: false,
            listener: Some(Arc::new(move |text: &str| {
                let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
                let room = KEPT_OUTPUT.saturating_sub(printed.len());
                printed.extend(text.chars().take(room));
            })),
        }
    }
}

impl Case {
    /// The AdmissionReview that the hook is shown.
    fn review(&self, number: usize, invocation: &Invocation) -> Vec<u8> {
        let request = &self.request;
        let mut fields = request.attributes(&invocation.kind, &invocation.resource);
        let uid = format!("00000000-0000-4000-8000-{:06x}{:06x}", self.index, number);
        fields.insert("uid".to_owned(), json!(uid));
        for (key, object) in [
            ("object", &request.object),
            ("oldObject", &request.old_object),
        ] {
            let shown = object.as_ref().map(|object| invocation.converted(object));
            fields.insert(key.to_owned(), shown.unwrap_or_default());
        }
        let review = json!({
            "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": fields,
        });
        review.to_string().into_bytes()
    }

    pub(super) fn finding(&self, entry: Option<&Entry>, verdict: Verdict) -> Finding {
        let mut place = self.manifest.place.clone();
        if matches!(verdict, Verdict::Denied { .. }) {
            place.line = self.manifest.line_of(verdict.message());
        }
        Finding {
            place,
            object: self.name.clone(),
            operation: self.request.operation,
            subresource: self.request.subresource.clone(),
            hook: entry.map(|entry| entry.hook.clone()),
            webhook: entry.map(|entry| entry.webhook.binding.name.clone()),
            verdict,
            warnings: Vec::new(),
            patched: None,
            output: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    fn heard(&self, entry: &Entry, heard: Heard) -> Finding {
        let verdict = verdict(&entry.webhook.binding.name, &heard.answer);
        Finding {
            warnings: heard.answer.warnings,
            output: heard.output,
            elapsed: heard.elapsed,
            ..self.finding(Some(entry), verdict)
        }
    }
}

/// What the user of a cluster would read, in the words of the API server.
fn verdict(webhook: &str, answer: &Answer) -> Verdict {
    /// A code below this is no refusal, and the API server makes this of it.
    const LEAST_CODE: u16 = 400;
    if answer.allowed {
        return Verdict::Allowed;
    }
    let refusal = format!("admission webhook \"{webhook}\" denied the request");
    let message = match (&*answer.message, &*answer.reason) {
        ("", "") => format!("{refusal} without explanation"),
        ("", reason) => format!("{refusal}: {reason}"),
        (message, _) => format!("{refusal}: {message}"),
    };
    Verdict::Denied {
        message,
        code: answer.code.max(LEAST_CODE),
    }
}

/// The object with a patch applied that was tried before.
fn patched(patch: &str, object: &Value) -> Result<Value, String> {
    let bytes = BASE64_STANDARD
        .decode(patch)
        .map_err(|error| error.to_string())?;
    let operations: Vec<Value> =
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    try_patch(object, &operations).map_err(|error| error.to_string())
}
