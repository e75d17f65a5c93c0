//! What a run of a hook left to be seen: how it ended, what it printed, what it answered, what it wants changed.
//!
//! `Recorder` is the witness of the executor's runs and is written on the worker thread that runs the hook; the rest is pure. Holds
//! whole objects, which are those of the suite.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use crate::executor::{Exit, Failure, Outcome, RunError, Witness};
use crate::hook::metric::Batch;
use crate::metrics;
use crate::offline::patches;
use crate::operation::{self, Change, Order, Perform, Undone};
use crate::review::Answer;

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    /// The answer needed no run.
    #[default]
    NotRun,
    Exited(i32),
    /// It did not come to an exit status, for this reason.
    Failed(String),
}

impl fmt::Display for End {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::NotRun => out.write_str("no run at all"),
            End::Exited(code) => write!(out, "exit status {code}"),
            End::Failed(reason) => out.write_str(reason),
        }
    }
}

/// Everything that a case may look at.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) end: End,
    pub(super) stderr: String,
    /// For requests.
    pub(super) answer: Option<Answer>,
    /// Why an answer could not be used, in the words for the hook's author.
    pub(super) problem: Option<String>,
    pub(super) patch: Vec<Value>,
    /// The object as it is after the patch; also when there is none.
    pub(super) patched: Option<Value>,
    /// For conversions: the objects, or why there are none.
    pub(super) converted: Option<Result<Vec<Value>, String>>,
    pub(super) operations: Result<Vec<Value>, String>,
    pub(super) metrics: Result<Vec<Value>, String>,
    pub(super) calls: Vec<String>,
    /// Calls of shims that the case does not have.
    pub(super) unexpected: Vec<String>,
    pub(super) elapsed: Duration,
}

impl Observed {
    /// What must be the same each time. Not what was printed, which may hold the time of day.
    pub(super) fn essence(&self) -> Value {
        let answer = self.answer.as_ref().map(|answer| {
            json!([
                answer.allowed,
                answer.code,
                answer.message,
                answer.reason,
                answer.warnings,
                answer.audit_annotations
            ])
        });
        let converted = match &self.converted {
            Some(Ok(objects)) => Some(json!(objects)),
            Some(Err(message)) => Some(json!(message)),
            None => None,
        };
        json!({
            "exit": self.end.to_string(),
            "answer": answer,
            "patched": self.patched,
            "converted": converted,
            "operations": self.operations.as_ref().ok(),
            "metrics": self.metrics.as_ref().ok(),
            "calls": self.calls,
        })
    }
}

/// What one run left, uninterpreted.
#[derive(Clone, Default)]
pub(super) struct Record {
    pub(super) end: End,
    pub(super) stderr: String,
    pub(super) admission_response: Vec<u8>,
    pub(super) conversion_response: Vec<u8>,
    pub(super) metrics: Vec<u8>,
    pub(super) patches: Vec<u8>,
}

/// Keeps the last run.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Record>>);

impl Recorder {
    pub(super) fn witness(&self) -> Witness {
        let kept = Arc::clone(&self.0);
        Box::new(move |ended, stderr| {
            let record = match ended {
                Ok(outcome) => of_success(outcome, stderr),
                Err(error) => of_failure(error, stderr),
            };
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = record;
        })
    }

    /// What the last run left; nothing is kept of it.
    pub(super) fn take(&self) -> Record {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn of_success(outcome: &Outcome, stderr: &str) -> Record {
    Record {
        end: End::Exited(0),
        stderr: stderr.to_owned(),
        admission_response: outcome.admission_response.clone(),
        conversion_response: outcome.conversion_response.clone(),
        metrics: outcome.metrics.clone(),
        patches: outcome.patches.clone(),
    }
}

fn of_failure(error: &RunError, stderr: &str) -> Record {
    let end = match &error.failure {
        Failure::Ended(Exit::Code(code)) => End::Exited(*code),
        Failure::Launch(launch) => End::Failed(launch.to_string()),
        Failure::Result(result) => End::Failed(result.to_string()),
        _ => End::Failed(error.reason()),
    };
    Record {
        end,
        stderr: stderr.to_owned(),
        patches: error.patches.0.clone(),
        ..Record::default()
    }
}

impl Record {
    /// Object operations, each as a hook would write it.
    pub(super) fn operations(&self) -> Result<Vec<Value>, String> {
        let file =
            operation::File::read(&self.patches, &|| true).map_err(|error| error.to_string())?;
        let mut operations = Vec::new();
        let each = file.each(|operation| {
            operations.push(shown_operation(&operation));
            Ok::<(), ()>(())
        });
        debug_assert!(each.is_ok(), "nothing ends it early");
        Ok(operations)
    }

    pub(super) fn metrics(&self) -> Result<Vec<Value>, String> {
        let batch = Batch::parse(&self.metrics).map_err(|error| error.to_string())?;
        Ok(batch.operations().iter().map(shown_metric).collect())
    }
}

fn shown_operation(operation: &operation::Operation) -> Value {
    let target = &operation.target;
    let mut shown = json!({
        "operation": operation.verb.name(),
        "apiVersion": target.api_version,
        "kind": target.kind,
        "namespace": target.namespace,
        "name": target.name,
        "subresource": operation.subresource,
        "ignoreMissingObject": operation.ignore_missing_object,
        "ignoreHookError": operation.ignore_hook_error,
    });
    let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    let (key, value) = match &operation.change {
        Change::Create { object, .. } | Change::Apply { object, .. } => ("object", read(object)),
        Change::Filter(filter) => ("jqFilter", Value::from(filter.as_str())),
        Change::Merge(patch) => ("mergePatch", read(patch)),
        Change::Json(patch) => ("jsonPatch", read(patch)),
        Change::Delete(_) => return shown,
    };
    if let Some(fields) = shown.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
    shown
}

fn shown_metric(metric: &metrics::Operation) -> Value {
    let (action, value, buckets) = match &metric.change {
        metrics::Change::Add(amount) => ("add", Some(*amount), None),
        metrics::Change::Set(amount) => ("set", Some(*amount), None),
        metrics::Change::Observe { value, bounds } => ("observe", Some(*value), Some(bounds)),
        metrics::Change::Expire => ("expire", None, None),
    };
    let labels: serde_json::Map<String, Value> = metric
        .labels
        .iter()
        .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
        .collect();
    json!({
        "name": metric.name,
        "action": action,
        "value": value,
        "labels": labels,
        "group": metric.group,
        "buckets": buckets,
    })
}

/// Stands in for the cluster: what a hook wants changed is read and changes nothing.
pub(super) struct NoCluster;

impl Perform for NoCluster {
    fn perform(&self, order: &Order<'_>) -> Result<(), Undone> {
        patches::check(order.file)
    }
}
