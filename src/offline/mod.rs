//! `review`: what the cluster would say about manifests, decided here with the same hooks and without a cluster.
//!
//! ```text
//! files -> manifest -> request (kinds) -> crew: rules -> mutating hooks -> validating hooks -> outcome -> report
//!                 \-> cluster -> view: snapshots
//! ```
//! Runs on the main thread, with worker threads for the reviews themselves. It opens no socket and writes nothing but its report (and
//! the files that hooks read, which are removed again).

mod cluster;
mod crew;
mod decide;
mod diff;
mod hooks;
mod kinds;
mod manifest;
pub(crate) mod outcome;
mod patches;
pub(crate) mod report;
mod request;
mod rules;
mod subresource;
mod suite;
mod text;
mod view;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use self::cluster::{Cluster, Identity};
use self::decide::{Case, World};
use self::kinds::Kinds;
use self::manifest::{Found, Manifest, Mistake};
use self::outcome::{Ending, Finding, ObjectName, Operation, Report, Verdict};
use self::request::{Request, Wish};
pub(crate) use self::suite::run as test;
use self::view::Views;
use crate::metrics::Metrics;
use crate::settings::{self, ReportForm, Reviewing, Settings};

/// How long processes that hooks left behind may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(5);
const DEFAULT_NAMESPACE: &str = "default";

/// The whole command. An error is that nothing could be decided at all.
pub(crate) fn review(reviewing: &Reviewing, settings: &Settings) -> Result<Ending, String> {
    let (started, began) = (SystemTime::now(), Instant::now());
    let hooks = hooks::load(settings)?;
    let signals = hooks.signals.clone();
    let found = manifest::read(&reviewing.manifests)?;
    let objects = known_objects(&reviewing.objects)?;
    let old = known_objects(&reviewing.old)?;
    let wish = wish(reviewing, settings);
    let planned = plan(found, &objects, &old, &wish);
    let views = Arc::new(Views::new(
        &hooks.registry,
        &planned.cluster,
        &planned.kinds,
    ));
    let world = Arc::new(World {
        entries: hooks.entries(settings, &planned.kinds)?,
        kinds: planned.kinds,
        cluster: planned.cluster,
        views,
        executor: hooks.executor.clone(),
        metrics: Arc::new(Metrics::new("")),
    });
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let manifests = planned.findings.len();
    let decided = crew::decide(&world, planned.cases, manifests, workers, &signals)
        .map_err(|error| format!("start a worker thread: {error}"))?;
    hooks.executor.stop_all(STOP_LIMIT);
    let Some(decided) = decided else {
        return Err("interrupted; nothing was decided".to_owned());
    };
    let by_manifest = planned.findings.into_iter().zip(decided.findings);
    let report = Report {
        findings: by_manifest
            .flat_map(|(early, late)| early.into_iter().chain(late))
            .collect(),
        notes: decided.notes,
        started,
        elapsed: began.elapsed(),
    };
    write(&report, reviewing);
    Ok(report.ending(reviewing.allow_unjudged))
}

fn write(found: &Report, reviewing: &Reviewing) {
    let text = match reviewing.form {
        ReportForm::Text => text::write(
            found,
            text::Style {
                is_coloured: io::stdout().is_terminal()
                    && settings::variable("NO_COLOR").is_none_or(|value| value.is_empty()),
                is_verbose: reviewing.verbose,
            },
        ),
        ReportForm::Json => report::json_findings(found, reviewing.allow_unjudged),
        form => {
            let cases = report::cases_of(found, reviewing.allow_unjudged);
            report::write(form, &cases).unwrap_or_default()
        }
    };
    // Nobody can be told if stdout is gone.
    let _ = io::stdout().write_all(text.as_bytes());
}

fn wish(reviewing: &Reviewing, settings: &Settings) -> Wish {
    let operation = reviewing.operation.as_deref().and_then(Operation::parse);
    let namespace = settings.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    Wish {
        operation,
        subresource: reviewing.subresource.clone(),
        namespace: namespace.to_owned(),
        user: request::user(reviewing.user.as_deref(), &reviewing.groups),
        dry_run: reviewing.dry_run,
    }
}

/// Objects that are taken as they are. What cannot be read in them would make verdicts wrong, so it is an error.
fn known_objects(paths: &[String]) -> Result<Vec<Manifest>, String> {
    let Found {
        manifests,
        mistakes,
    } = manifest::read(paths)?;
    match mistakes.into_iter().next() {
        None => Ok(manifests),
        Some(Mistake { place, message }) => Err(format!("objects: {place}: {message}")),
    }
}

/// What is to be decided, and what could be said without any hook.
struct Planned {
    cases: Vec<Case>,
    /// One place for each manifest and each mistake, in their order.
    findings: Vec<Vec<Finding>>,
    kinds: Kinds,
    cluster: Cluster,
}

/// Makes requests of manifests, one after the other, and the cluster that each of them sees.
fn plan(found: Found, objects: &[Manifest], old: &[Manifest], wish: &Wish) -> Planned {
    let all = objects.iter().chain(&found.manifests);
    let is_definition = |manifest: &&Manifest| manifest.text("/kind") == "CustomResourceDefinition";
    let kinds = Kinds::new(all.filter(is_definition).map(|manifest| &manifest.object));
    let mut cluster = Cluster::new(objects, &kinds, &wish.namespace);
    let before = Cluster::new(old, &kinds, &wish.namespace);
    let (mut cases, mut findings) = (Vec::new(), Vec::new());
    for (index, manifest) in found.manifests.into_iter().enumerate() {
        let name = request::object_name(&manifest, &kinds, &wish.namespace);
        let find = |identity: &Identity| {
            let known = before.find(identity).or_else(|| cluster.find(identity));
            known.cloned()
        };
        let manifest = Arc::new(manifest);
        match Request::new(&manifest, wish, &kinds, &find) {
            Ok(request) => {
                remember(&mut cluster, &request, &name, index);
                findings.push(Vec::new());
                cases.push(Case {
                    index,
                    manifest,
                    name,
                    request,
                });
            }
            Err(verdict) => findings.push(vec![finding(&manifest.place, name, wish, verdict)]),
        }
    }
    for Mistake { place, message } in found.mistakes {
        let verdict = Verdict::Error { message };
        findings.push(vec![finding(&place, ObjectName::default(), wish, verdict)]);
    }
    Planned {
        cases,
        findings,
        kinds,
        cluster,
    }
}

/// Manifests behind this one see what it does to the cluster.
fn remember(cluster: &mut Cluster, request: &Request, name: &ObjectName, index: usize) {
    if !request.subresource.is_empty() || request.name.is_empty() {
        return;
    }
    let identity = Identity {
        group: request.kind.group.clone(),
        kind: request.kind.kind.clone(),
        namespace: name.namespace.clone(),
        name: request.name.clone(),
    };
    let object: Option<Value> = match request.operation {
        Operation::Create | Operation::Update => request.object.clone(),
        Operation::Delete => None,
        Operation::Connect => return,
    };
    cluster.put(identity, object, index + 1);
}

fn finding(place: &outcome::Place, object: ObjectName, wish: &Wish, verdict: Verdict) -> Finding {
    Finding {
        place: place.clone(),
        object,
        operation: wish.operation.unwrap_or_default(),
        subresource: wish.subresource.clone(),
        hook: None,
        webhook: None,
        verdict,
        warnings: Vec::new(),
        patched: None,
        output: Vec::new(),
        elapsed: Duration::ZERO,
    }
}
