//! Conversion: from a request on a connection thread to converted objects, through a chain of hook runs.
//!
//! ```text
//! request -> caller? -> question -> CRD by path -> turn: (farthest version -> hook -> check) until all arrived -> answer
//! ```
//!
//! A step runs one hook once, with every object of one version. The farthest version goes first, so that chains that meet go on
//! together. INVARIANT: each step brings its objects nearer to the desired version, so a chain ends whatever hooks answer.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::{debug, info, warn};
use serde_json::value::RawValue;

use super::caller::Callers;
use super::conversion_review::{Answer, Object, Question};
use super::probe::{self, Readiness};
use super::{Head, Request, Respond, Response};
use crate::executor::{Failure, Outcome, RunError, RunKind};
use crate::hook::context::Reason;
use crate::hook::conversion::{self, Chains, ConversionStep, Way};
use crate::hook::response::ConversionAnswer;
use crate::hook::{self, Registry};
use crate::review::{
    self, Afterwards, Asked, PANICKED, Paces, Runner, Target, Turns, Undecided, failure, seconds,
};
use crate::threads::panic_text;

/// What the API server grants a conversion; it cannot be configured there.
const API_SERVER_LIMIT: Duration = Duration::from_secs(30);

/// LIMIT: how much of a wrong `apiVersion` is shown; a group and a version have at most 253 and 63 characters.
const SHOWN_VERSION: usize = 320;

/// A CRD and the hooks that convert its objects.
struct Crd {
    name: String,
    chains: Chains,
    /// By hook and binding of a step.
    targets: HashMap<(usize, usize), Target>,
}

/// Answers the conversion port. Shared by its connection threads.
pub(crate) struct Conversion {
    /// By path.
    crds: HashMap<String, Arc<Crd>>,
    callers: Callers,
    turns: Arc<Turns>,
    runner: Runner,
    readiness: Arc<Readiness>,
}

/// The path under which objects of a CRD are converted, as in the original.
pub(super) fn path(crd_name: &str) -> String {
    format!("/{crd_name}")
}

impl Conversion {
    pub(crate) fn new(
        registry: &Registry,
        paces: &Paces,
        callers: Callers,
        turns: Arc<Turns>,
        runner: Runner,
        readiness: Arc<Readiness>,
    ) -> Conversion {
        let crds = conversion::chains(&registry.hooks)
            .into_iter()
            .map(|(name, chains)| {
                warn_of_unused(registry, &name, &chains);
                let targets = targets(registry, &chains, paces);
                let crd = Crd {
                    name,
                    chains,
                    targets,
                };
                (path(&crd.name), Arc::new(crd))
            })
            .collect();
        Conversion {
            crds,
            callers,
            turns,
            runner,
            readiness,
        }
    }

    fn convert(&self, question: Question, crd: &Crd, head: &Head) -> Answer {
        let asked = review::asked_timeout(head.query.as_deref());
        let limit = review::time_limit(asked, API_SERVER_LIMIT);
        let deadline = head.received.checked_add(limit).unwrap_or(head.received);
        match self.turns.take(deadline) {
            Ok(_turn) => {
                let work = Work {
                    runner: &self.runner,
                    crd,
                    uid: &question.id.uid,
                    desired: &question.desired,
                    deadline,
                    limit,
                };
                work.run(question.objects).unwrap_or_else(Answer::Failed)
            }
            Err(refused) => {
                let reason = refused.reason(limit);
                warn!(crd = crd.name.as_str(), uid = question.id.uid.as_str(); "conversion refused: {reason}");
                Answer::Failed(unsuccessful(&crd.name, &question.desired, &reason))
            }
        }
    }
}

/// Two hooks may declare the same conversion, as in the original; which one is used should not be a riddle.
fn warn_of_unused(registry: &Registry, crd: &str, chains: &Chains) {
    for step in &chains.unused {
        let hook = registry.hooks.get(step.hook);
        let name = hook.map_or("", |hook| hook.name.as_str());
        warn!(
            hook = name, crd = crd, fromVersion = step.rule.from.as_str(), toVersion = step.rule.to.as_str();
            "this conversion is declared again, and the other declaration is used; take one of them out"
        );
    }
}

/// Every hook and binding that has a step.
fn targets(registry: &Registry, chains: &Chains, paces: &Paces) -> HashMap<(usize, usize), Target> {
    let target = |step: &ConversionStep| {
        let hook = registry.hooks.get(step.hook)?;
        let binding = hook.config.conversions.get(step.binding)?;
        let included = &binding.include_snapshots_from;
        let target = Target::new(step.hook, hook, &binding.name, included, None, paces);
        Some(((step.hook, step.binding), target))
    };
    chains.steps.iter().filter_map(target).collect()
}

impl Respond for Conversion {
    fn screen(&self, head: &Head) -> Option<Response> {
        self.callers.screen(head)
    }

    fn respond(&self, request: Request, _afterwards: &mut Afterwards) -> Response {
        let Request { head, body } = request;
        if head.method == "GET" {
            return probe::health(&head.path, &self.readiness)
                .unwrap_or_else(|| Response::text(404, "404 page not found\n"));
        }
        let path = hook::normalize(&head.path);
        let crd = self.crds.get(&path);
        let question = match Question::parse(&body) {
            Ok(question) => question,
            Err(error) => {
                debug!("request from {}: {error}", head.peer.address);
                let status = if crd.is_some() { 400 } else { 404 };
                return Response::text(status, format!("{error}\n"));
            }
        };
        // The objects have been copied out of it, and a list may be large.
        drop(body);
        let id = question.id.clone();
        let answer = match crd {
            Some(crd) => {
                let desired = question.desired.clone();
                catch_unwind(AssertUnwindSafe(|| self.convert(question, crd, &head)))
                    .unwrap_or_else(|payload| {
                        log::error!("a conversion panicked: {}", panic_text(payload.as_ref()));
                        Answer::Failed(unsuccessful(&crd.name, &desired, PANICKED))
                    })
            }
            None => no_hook(&path, &id.uid),
        };
        match answer.render(&id) {
            Ok(body) => Response::json(200, body),
            Err(error) => Response::text(500, format!("cannot encode the answer: {error}\n")),
        }
    }
}

/// One review that has its turn.
struct Work<'a> {
    runner: &'a Runner,
    crd: &'a Crd,
    uid: &'a str,
    desired: &'a str,
    deadline: Instant,
    limit: Duration,
}

impl Work<'_> {
    /// Objects that have the desired version already stay as they are. An error is what the user reads.
    fn run(&self, mut objects: Vec<Object>) -> Result<Answer, String> {
        let way = self.crd.chains.toward(self.desired);
        while let Some((version, length)) = self.farthest(&objects, &way)? {
            let step = way.next(&version).ok_or_else(|| self.no_way(&version))?;
            self.step(step, &version, length, &mut objects, &way)?;
        }
        Ok(Answer::Converted(objects))
    }

    /// The version of the objects that have most steps to go, and how many; none when all have arrived.
    fn farthest(
        &self,
        objects: &[Object],
        way: &Way<'_>,
    ) -> Result<Option<(String, usize)>, String> {
        let mut farthest: Option<(&str, usize)> = None;
        for object in objects {
            let version = object.api_version.as_str();
            if version == self.desired {
                continue;
            }
            let length = way.length(version).ok_or_else(|| self.no_way(version))?;
            if farthest.is_none_or(|(_, most)| length > most) {
                farthest = Some((version, length));
            }
        }
        Ok(farthest.map(|(version, length)| (version.to_owned(), length)))
    }

    /// One run of one hook: `objects` of this version are replaced by what it made of them.
    fn step(
        &self,
        step: &ConversionStep,
        version: &str,
        length: usize,
        objects: &mut [Object],
        way: &Way<'_>,
    ) -> Result<(), String> {
        let target = self
            .crd
            .targets
            .get(&(step.hook, step.binding))
            .ok_or_else(|| no_hook_text(&self.crd.name))?;
        let (hook, binding) = (target.hook.as_str(), target.binding.as_str());
        debug!(hook = hook, binding = binding, uid = self.uid; "Execute hook");
        let mut chosen: Vec<&mut Object> = objects
            .iter_mut()
            .filter(|object| object.api_version == version)
            .collect();
        let converted = self.ask(step, target, &chosen, |outcome| {
            let answer = ConversionAnswer::parse(&outcome.conversion_response)
                .map_err(Undecided::Response)?;
            match answer {
                ConversionAnswer::Failed(message) => Ok(Err(message)),
                ConversionAnswer::Converted(made) => {
                    let arrived = |version: &str| {
                        let left = way.length(version);
                        version == self.desired
                            || left.is_some_and(|left| left > 0 && left < length)
                    };
                    check(made, &chosen, step, &arrived).map(Ok)
                }
            }
        });
        match converted {
            Ok(Ok(made)) => {
                info!(
                    hook = hook, binding = binding, uid = self.uid, crd = self.crd.name.as_str(),
                    fromVersion = step.rule.from.as_str(), toVersion = step.rule.to.as_str(), objects = made.len();
                    "ConversionResponse from hook"
                );
                for (object, made) in chosen.iter_mut().zip(made) {
                    **object = made;
                }
                Ok(())
            }
            Ok(Err(message)) => {
                info!(
                    hook = hook, binding = binding, uid = self.uid, crd = self.crd.name.as_str(),
                    fromVersion = step.rule.from.as_str(), toVersion = step.rule.to.as_str(), failedMessage = message.as_str();
                    "ConversionResponse from hook"
                );
                Err(message)
            }
            Err(undecided) => {
                // The details may hold anything the hook printed: they are for the log only.
                log::error!(
                    hook = hook, binding = binding, uid = self.uid, crd = self.crd.name.as_str(),
                    fromVersion = step.rule.from.as_str(), toVersion = step.rule.to.as_str(), error:% = undecided;
                    "Hook failed to convert"
                );
                let reason = self.reason(&undecided);
                Err(format!(
                    "Hook failed to convert to {}: {}",
                    self.desired,
                    failure(hook, &reason)
                ))
            }
        }
    }

    fn ask<T>(
        &self,
        step: &ConversionStep,
        target: &Target,
        chosen: &[&mut Object],
        judge: impl FnOnce(&Outcome) -> Result<T, Undecided>,
    ) -> Result<T, Undecided> {
        let objects: Vec<&RawValue> = chosen.iter().map(|object| &*object.json).collect();
        let asked = Asked {
            kind: RunKind::Conversion,
            reason: Reason::Conversion {
                binding: &target.binding,
                from: &step.rule.from,
                to: &step.rule.to,
                uid: self.uid,
                desired: self.desired,
                objects: &objects,
            },
            event: "kubernetesCustomResourceConversion",
            dry_run: false,
            uid: self.uid,
            deadline: self.deadline,
            proposed: None,
            errors: None,
        };
        self.runner
            .run(target, &asked, &mut Afterwards::default(), judge)
    }

    /// The time is that of all steps together, so a hook may have had less of it.
    fn reason(&self, undecided: &Undecided) -> String {
        match undecided {
            Undecided::Run(RunError {
                failure: Failure::TimedOut { .. },
                ..
            }) => format!(
                "killed at the limit of {} for a conversion",
                seconds(self.limit)
            ),
            _ => undecided.reason(self.limit),
        }
    }

    fn no_way(&self, version: &str) -> String {
        let reason = format!("no conversion leads there from {version}");
        warn!(crd = self.crd.name.as_str(), uid = self.uid; "{reason}: {}", self.desired);
        unsuccessful(&self.crd.name, self.desired, &reason)
    }
}

/// The objects that a hook made, if they are those that it was given, each in a version that is nearer to the desired one.
fn check(
    made: Vec<Box<RawValue>>,
    given: &[&mut Object],
    step: &ConversionStep,
    arrived: &dyn Fn(&str) -> bool,
) -> Result<Vec<Object>, Undecided> {
    if made.len() != given.len() {
        return Err(Undecided::Unfit(format!(
            "hook returned {} objects instead of {}",
            made.len(),
            given.len()
        )));
    }
    let mut read = Vec::with_capacity(made.len());
    for (json, given) in made.into_iter().zip(given) {
        let identity = &given.identity;
        let object = Object::read(json).map_err(|_error| {
            Undecided::Unfit(format!(
                "hook returned {identity} without well-formed metadata"
            ))
        })?;
        if let Some(field) = identity.difference(&object.identity) {
            return Err(Undecided::Unfit(format!(
                "hook changed {field} of {identity}, where only labels and annotations may change"
            )));
        }
        if !arrived(&object.api_version) {
            let shown: String = object.api_version.chars().take(SHOWN_VERSION).collect();
            return Err(Undecided::Unfit(format!(
                "hook returned {identity} as '{shown}' where '{}' is wanted",
                step.rule.to
            )));
        }
        read.push(object);
    }
    Ok(read)
}

/// The words of the original, and why.
fn unsuccessful(crd: &str, desired: &str, reason: &str) -> String {
    format!("Conversion {crd} to {desired} was not successful: {reason}")
}

/// The words of the original.
fn no_hook_text(crd: &str) -> String {
    format!(
        "handle ConversionReview: no hook found for 'kubernetesCustomResourceConversion' event for crd/{crd}"
    )
}

fn no_hook(path: &str, uid: &str) -> Answer {
    let message = no_hook_text(path.trim_start_matches('/'));
    warn!(uid = uid; "{message}");
    Answer::Failed(message)
}
