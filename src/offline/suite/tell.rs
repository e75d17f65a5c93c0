//! Runs that are no review: a hook told of its start, of a moment, of objects, or asked to convert some.
//!
//! Runs on a worker thread, through the same executor and with the same contexts as `start`. How the run ended is seen by the stage's
//! recorder.

use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::RawValue;

use super::convert;
use super::file::Asked;
use super::run::{Stage, Work};
use super::target::{self, Aim};
use crate::executor::{Run, RunKind};
use crate::hook::binding::{KubernetesBinding, ON_STARTUP, Version};
use crate::hook::context::{self, BindingContext, Reason, write_contexts};
use crate::message::Snapshot;
use crate::review;

/// LIMIT: a run that nobody waits for has no deadline in a cluster; a test that takes longer than this hangs.
const LONGEST_RUN: Duration = Duration::from_secs(60);
/// What the API server grants a conversion.
const CONVERSION: Duration = Duration::from_secs(30);

static NO_OBJECTS: Snapshot = Vec::new();

const GONE: &str = "the binding is gone";

impl Work {
    /// Runs the hook once for what the case says and tells how long it took. An error is a mistake in the case.
    pub(super) fn tell(&self, stage: &Stage<'_>) -> Result<Duration, String> {
        let config = &stage.hook.config;
        let is_old = config.version == Version::V0;
        match self.aim {
            Aim::Schedule(index) => {
                let binding = config.schedules.get(index).ok_or(GONE)?;
                let name = binding.name.as_str();
                let reason = match &binding.group {
                    _ if is_old => Reason::V0 { binding: name },
                    Some(group) => group_reason(name, group),
                    None => Reason::Schedule { binding: name },
                };
                Ok(self.execute(stage, reason, &binding.include_snapshots_from))
            }
            Aim::Kubernetes(index) => {
                let binding = config.kubernetes.get(index).ok_or(GONE)?;
                self.tell_of_objects(stage, index, binding, is_old)
            }
            Aim::Conversion(_) => self.ask_to_convert(stage),
            Aim::OnStartup | Aim::Admission(..) if is_old => Ok(self.execute(
                stage,
                Reason::V0 {
                    binding: ON_STARTUP,
                },
                &[],
            )),
            Aim::OnStartup | Aim::Admission(..) => Ok(self.execute(stage, Reason::OnStartup, &[])),
        }
    }

    fn tell_of_objects(
        &self,
        stage: &Stage<'_>,
        index: usize,
        binding: &KubernetesBinding,
        is_old: bool,
    ) -> Result<Duration, String> {
        let name = binding.name.as_str();
        let included = &binding.include_snapshots_from;
        match (&self.case.asked, &binding.group) {
            (_, Some(group)) if !is_old => {
                Ok(self.execute(stage, group_reason(name, group), included))
            }
            (Asked::Event(change, object), _) if is_old => {
                let text = |path: &str| object.pointer(path).and_then(Value::as_str);
                let reason = Reason::V0Event {
                    binding: name,
                    change: *change,
                    namespace: text("/metadata/namespace").unwrap_or_default(),
                    kind: text("/kind").unwrap_or_default(),
                    name: text("/metadata/name").unwrap_or_default(),
                };
                Ok(self.execute(stage, reason, &[]))
            }
            (Asked::Event(change, object), _) => {
                let item = target::item(object, binding)?;
                let reason = Reason::Event {
                    binding: name,
                    change: *change,
                    item: item.shown(),
                };
                Ok(self.execute(stage, reason, included))
            }
            (Asked::Synchronization(given), _) => {
                let objects = match given {
                    Some(given) => target::items(given, binding)?,
                    None => self.snapshots.get(&index).cloned().unwrap_or_default(),
                };
                let reason = Reason::Synchronization {
                    binding: name,
                    objects: &objects,
                };
                Ok(self.execute(stage, reason, included))
            }
            _ => Err("the case does not fit its binding".to_owned()),
        }
    }

    fn ask_to_convert(&self, stage: &Stage<'_>) -> Result<Duration, String> {
        let (Asked::Conversion { from, to, objects }, Aim::Conversion(index)) =
            (&self.case.asked, self.aim)
        else {
            return Err("the case does not fit its binding".to_owned());
        };
        let binding = stage.hook.config.conversions.get(index).ok_or(GONE)?;
        let rule = target::rule(&binding.rules, from, to, self.case.line);
        let rule = rule.map_err(|fault| fault.text)?;
        let desired = convert::desired(&binding.crd_name, &rule.to);
        let raw: Vec<Box<RawValue>> = objects
            .iter()
            .map(|object| RawValue::from_string(object.to_string()))
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        let raw: Vec<&RawValue> = raw.iter().map(|object| &**object).collect();
        let reason = Reason::Conversion {
            binding: &binding.name,
            from: &rule.from,
            to: &rule.to,
            uid: super::request::UID,
            desired: &desired,
            objects: &raw,
        };
        Ok(self.execute(stage, reason, &binding.include_snapshots_from))
    }

    /// Runs the hook with one context.
    fn execute(&self, stage: &Stage<'_>, reason: Reason<'_>, included: &[String]) -> Duration {
        let kubernetes = &stage.hook.config.kubernetes;
        let position = |name: &String| {
            let mut bindings = kubernetes.iter();
            bindings.position(|binding| binding.name == *name)
        };
        let snapshots: Vec<context::Snapshot<'_>> = included
            .iter()
            .map(|name| {
                let found = position(name).and_then(|index| self.snapshots.get(&index));
                context::Snapshot {
                    name,
                    items: found.unwrap_or(&NO_OBJECTS),
                }
            })
            .collect();
        let (kind, limit) = match reason {
            Reason::Conversion { .. } => {
                let limit = review::time_limit(None, CONVERSION);
                (RunKind::Conversion, limit)
            }
            _ => (RunKind::Other, LONGEST_RUN),
        };
        let began = Instant::now();
        // An error is seen by the recorder, too.
        let _ = stage.executor.run(Run {
            hook_name: &stage.hook.name,
            path: &stage.hook.path,
            kind,
            write_input: &mut |file| {
                let context = BindingContext {
                    reason,
                    snapshots: &snapshots,
                    overlay: None,
                };
                write_contexts(file, &[context])
            },
            deadline: began.checked_add(limit),
            output: &mut |_, _| {},
        });
        began.elapsed()
    }
}

fn group_reason<'a>(binding: &'a str, group: &'a str) -> Reason<'a> {
    Reason::Group { binding, group }
}
