//! One case: the hook run as `start` would run it, once or several times, and what came out compared with what was expected.
//!
//! Runs on a worker thread. Reviews go through the same `review` room as those of a cluster; everything else through the same executor.
//! It changes nothing but the case's own directory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::super::kinds::Kinds;
use super::bench::Bench;
use super::check::{self, Flaw};
use super::convert;
use super::file::{Asked, Request, TestCase};
use super::observe::{End, NoCluster, Observed, Record, Recorder};
use super::overlay::Ground;
use super::request;
use super::target::{self, Aim, Snapshots};
use crate::executor::{Executor, Surroundings};
use crate::hook::binding::AdmissionKind;
use crate::hook::json_patch::try_patch;
use crate::hook::response::AdmissionAnswer;
use crate::hook::{Hook, Registry};
use crate::metrics::Metrics;
use crate::review::{self, Afterwards, Answer, Paces, Question, Review, Runner, Turns, Webhook};

/// A case that is ready to run.
pub(super) struct Work {
    /// Of the one hook.
    pub(super) registry: Arc<Registry>,
    pub(super) case: TestCase,
    pub(super) aim: Aim,
    pub(super) snapshots: Snapshots,
    pub(super) bench: Bench,
    pub(super) kinds: Arc<Kinds>,
}

/// How a case ended.
pub(super) struct Ended {
    pub(super) flaws: Vec<Flaw>,
    pub(super) stderr: String,
    pub(super) elapsed: Duration,
}

/// What the runs of one case share.
pub(super) struct Stage<'a> {
    pub(super) hook: &'a Hook,
    pub(super) executor: Executor,
    recorder: Recorder,
}

/// One run: what came out, or why there could be none.
type Seen = Result<Observed, String>;

impl Work {
    pub(super) fn run(&self, executor: &Executor) -> Ended {
        let began = Instant::now();
        match self.run_all(executor) {
            Ok((flaws, stderr)) => Ended {
                flaws,
                stderr,
                elapsed: began.elapsed(),
            },
            Err(problem) => Ended {
                flaws: vec![Flaw::new("case", "that it runs", problem)],
                stderr: String::new(),
                elapsed: began.elapsed(),
            },
        }
    }

    fn run_all(&self, executor: &Executor) -> Result<(Vec<Flaw>, String), String> {
        let recorder = Recorder::default();
        let stage = Stage {
            hook: self.registry.hooks.first().ok_or("the hook is gone")?,
            executor: executor.with(Surroundings {
                variables: self.bench.variables(),
                witness: recorder.witness(),
            }),
            recorder,
        };
        let expect = &self.case.expect;
        let first = self.once(&stage, None)?;
        let mut flaws = check::check(expect, &first);
        if flaws.is_empty() && expect.idempotent {
            let object = first.patched.as_ref();
            let again = self.once(&stage, object)?;
            flaws.extend(idempotence(object, &again));
        }
        for number in 1..expect.runs {
            if !flaws.is_empty() {
                break;
            }
            let again = self.once(&stage, None)?;
            let mut differences = Vec::new();
            let (one, other) = (first.essence(), again.essence());
            check::compare("run", &one, Some(&other), true, &mut differences);
            flaws.extend(differences.into_iter().map(|flaw| {
                let what = format!("run {} differs at {}", number + 1, flaw.what);
                Flaw { what, ..flaw }
            }));
        }
        Ok((flaws, first.stderr))
    }

    /// One run. `object` takes the place of the request's own.
    fn once(&self, stage: &Stage<'_>, object: Option<&Value>) -> Seen {
        let mut seen = match (&self.case.asked, self.aim) {
            (Asked::Request(request), Aim::Admission(kind, binding)) => {
                self.review(stage, request, kind, binding, object)?
            }
            _ => {
                let elapsed = self.tell(stage)?;
                let record = stage.recorder.take();
                let mut seen = observed(&record, elapsed);
                seen.converted = self.converted(stage.hook, &record)?;
                seen
            }
        };
        (seen.calls, seen.unexpected) = self.bench.take_calls();
        Ok(seen)
    }

    fn review(
        &self,
        stage: &Stage<'_>,
        request: &Request,
        kind: AdmissionKind,
        binding: usize,
        object: Option<&Value>,
    ) -> Seen {
        let mut routes = self.registry.routes.iter();
        let route = routes.find(|route| route.kind == kind && route.binding == binding);
        let found = route.and_then(|route| Some((route, self.registry.admission(route)?.1)));
        let (route, binding) = found.ok_or("the binding is gone")?;
        let object = object.or(request.object.as_ref());
        let (group, plural) = request::resource(request, object, &self.kinds);
        if !request::is_asked(request, &group, &plural, binding, &self.kinds) {
            let operation = request.operation.as_str();
            return Err(format!(
                "no rule of {} asks for {operation} of {plural} in the group {group:?}, so the API server would not call the hook",
                binding.name
            ));
        }
        let question = Question::parse(request::review(request, object, &self.kinds))
            .map_err(|error| error.to_string())?;
        let webhook = Webhook::new(route, stage.hook, binding, &Paces::unlimited());
        let copies = self.snapshots.clone();
        let ground = Ground {
            registry: Arc::clone(&self.registry),
            kinds: Arc::clone(&self.kinds),
            objects: self.case.snapshots.clone(),
        };
        let runner = Runner {
            executor: stage.executor.clone(),
            metrics: Arc::new(Metrics::new("")),
            snapshots: Arc::new(move |id| copies.get(&id.binding).cloned().unwrap_or_default()),
            overlaid: Arc::new(move |id, proposal| ground.overlaid(id, proposal)),
            operations: Arc::new(NoCluster),
            changes: Turns::new(1),
            proxy_hook_json: false,
            listener: None,
        };
        let configured = Duration::from_secs(u64::from(binding.timeout_seconds));
        let limit = review::time_limit(None, configured);
        let began = Instant::now();
        let answer = webhook.screen(&question).unwrap_or_else(|| {
            let review = Review {
                question: &question,
                webhook: &webhook,
                deadline: began.checked_add(limit).unwrap_or(began),
                limit,
            };
            review.by_hook(&runner, &mut Afterwards::default())
        });
        let record = stage.recorder.take();
        let mut seen = observed(&record, began.elapsed());
        seen.problem = problem(&record, kind, &question);
        judged(&mut seen, answer, object)?;
        Ok(seen)
    }

    /// What a conversion made, if this is one and it came to an end.
    fn converted(
        &self,
        hook: &Hook,
        record: &Record,
    ) -> Result<Option<Result<Vec<Value>, String>>, String> {
        let (Asked::Conversion { from, to, objects }, Aim::Conversion(index)) =
            (&self.case.asked, self.aim)
        else {
            return Ok(None);
        };
        let binding = hook.config.conversions.get(index);
        let binding = binding.ok_or("the binding is gone")?;
        let rule = target::rule(&binding.rules, from, to, self.case.line);
        let rule = rule.map_err(|fault| fault.text)?;
        let desired = convert::desired(&binding.crd_name, &rule.to);
        let is_over = record.end == End::Exited(0);
        Ok(is_over.then(|| convert::converted(&record.conversion_response, objects, &desired)))
    }
}

/// What every kind of run has.
fn observed(record: &Record, elapsed: Duration) -> Observed {
    Observed {
        end: record.end.clone(),
        stderr: record.stderr.clone(),
        answer: None,
        problem: None,
        patch: Vec::new(),
        patched: None,
        converted: None,
        operations: record.operations(),
        metrics: record.metrics(),
        calls: Vec::new(),
        unexpected: Vec::new(),
        elapsed,
    }
}

/// Why an answer cannot be used, in more words than the API server is told.
fn problem(record: &Record, kind: AdmissionKind, question: &Question) -> Option<String> {
    if record.end != End::Exited(0) {
        return None;
    }
    let answer = match AdmissionAnswer::parse(&record.admission_response) {
        Ok(answer) => answer,
        Err(error) => return Some(error.to_string()),
    };
    let checked = answer.check_patch(kind, &question.operation, question.object());
    checked.err().map(|error| error.to_string())
}

/// Applies the patch of an answer.
fn judged(seen: &mut Observed, answer: Answer, object: Option<&Value>) -> Result<(), String> {
    if let Some(patch) = &answer.patch {
        let json = BASE64_STANDARD
            .decode(patch)
            .map_err(|error| error.to_string())?;
        seen.patch = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    }
    if let Some(object) = object {
        let patched = try_patch(object, &seen.patch).map_err(|error| error.to_string())?;
        seen.patched = Some(patched);
    }
    seen.answer = Some(answer);
    Ok(())
}

/// Asked about what it made, the hook must be content with it.
fn idempotence(object: Option<&Value>, again: &Observed) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    match &again.answer {
        Some(answer) if answer.allowed => {}
        Some(answer) => {
            let actual = format!("denied: {:?}", answer.message);
            flaws.push(Flaw::new("second run", "allowed", actual));
        }
        None => {}
    }
    if let Some(object) = object.filter(|_| flaws.is_empty()) {
        let path = "second run: patched";
        check::compare(path, object, again.patched.as_ref(), true, &mut flaws);
    }
    flaws
}
