//! Health, readiness and metrics over plain HTTP on the metrics port, and the readiness that every server answers from.
//!
//! Runs on the connection threads of that port. Owns nothing but a reader's view: parts of the operator say by `Readiness`
//! what is still missing, and the answer lists those reasons, so that `kubectl describe` and a person with curl see the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::metrics::Metrics;
use crate::review::Afterwards;
use crate::serve::{Head, Request, Respond, Response};

/// What keeps the operator from being ready, by the part that says so. Empty means ready.
#[derive(Default)]
pub(crate) struct Readiness {
    reasons: Mutex<BTreeMap<&'static str, Reason>>,
}

/// A reason, or who knows it at the moment somebody asks.
#[derive(Clone)]
enum Reason {
    Text(String),
    Asked(Arc<dyn Fn() -> String + Send + Sync>),
}

impl Readiness {
    /// Starts out not ready for every part named.
    pub(crate) fn waiting_for(parts: &[(&'static str, &str)]) -> Self {
        let reasons = parts
            .iter()
            .map(|(part, reason)| (*part, Reason::Text((*reason).to_owned())))
            .collect();
        Readiness {
            reasons: Mutex::new(reasons),
        }
    }

    /// Notes what `part` lacks, replacing what it said before.
    pub(crate) fn lacks(&self, part: &'static str, reason: &str) {
        self.locked().insert(part, Reason::Text(reason.to_owned()));
    }

    /// If `part` lacks something, `reason` tells from now on what it is.
    pub(crate) fn explain(
        &self,
        part: &'static str,
        reason: Arc<dyn Fn() -> String + Send + Sync>,
    ) {
        if let Some(known) = self.locked().get_mut(part) {
            *known = Reason::Asked(reason);
        }
    }

    /// `part` has what it needs. Says so in the log when it was the last.
    pub(crate) fn has(&self, part: &'static str) {
        let mut reasons = self.locked();
        let became_ready = reasons.remove(part).is_some() && reasons.is_empty();
        drop(reasons);
        if became_ready {
            log::info!("ready");
        }
    }

    /// The reasons for not being ready, one a line; `None` when ready.
    pub(crate) fn missing(&self) -> Option<String> {
        // Copied, because who is asked may have locks of their own.
        let reasons = self.locked().clone();
        if reasons.is_empty() {
            return None;
        }
        let line = |(part, reason): (&&'static str, &Reason)| match reason {
            Reason::Text(text) => format!("{part}: {text}\n"),
            Reason::Asked(ask) => format!("{part}: {}\n", ask()),
        };
        Some(reasons.iter().map(line).collect())
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<&'static str, Reason>> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True for the paths that `health` answers.
pub(crate) fn is_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// `/healthz` and `/readyz`, which every port of ours answers alike; `None` for any other path.
pub(crate) fn health(path: &str, readiness: &Readiness) -> Option<Response> {
    match path {
        "/healthz" => Some(Response::text(200, "ok")),
        "/readyz" => Some(match readiness.missing() {
            None => Response::text(200, "ok"),
            Some(reasons) => Response::text(503, reasons),
        }),
        _ => None,
    }
}

/// Routes of the metrics port, as `/discovery` lists them.
const ROUTES: &str =
    "GET /\nGET /discovery\nGET /healthz\nGET /metrics\nGET /metrics/hooks\nGET /readyz\n";

/// The Prometheus text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The page for a person who opens the port in a browser.
const INDEX: &str = "<!DOCTYPE html><title>Shell operator</title><h1>Shell operator</h1>\
    <p>See <a href=\"/metrics\">/metrics</a>, \
    <a href=\"/metrics/hooks\">/metrics/hooks</a>, <a href=\"/healthz\">/healthz</a>, <a href=\"/readyz\">/readyz</a>, \
    <a href=\"/discovery\">/discovery</a>.\n";

/// Answers the metrics port.
pub(crate) struct Probe {
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
}

impl Probe {
    pub(crate) fn new(readiness: Arc<Readiness>, metrics: Arc<Metrics>) -> Probe {
        Probe { readiness, metrics }
    }
}

impl Respond for Probe {
    fn screen(&self, head: &Head) -> Option<Response> {
        let read_only = matches!(head.method.as_str(), "GET" | "HEAD");
        (!read_only).then(|| Response::text(405, "only GET is served here\n"))
    }

    fn respond(&self, request: Request, _afterwards: &mut Afterwards) -> Response {
        let path = request.head.path.as_str();
        if let Some(response) = health(path, &self.readiness) {
            return response;
        }
        match path {
            "/" => Response {
                content_type: "text/html; charset=utf-8",
                ..Response::text(200, INDEX)
            },
            "/metrics" => Response {
                content_type: METRICS_TYPE,
                ..Response::text(200, self.metrics.render())
            },
            "/metrics/hooks" => Response {
                content_type: METRICS_TYPE,
                ..Response::text(200, self.metrics.render_hooks())
            },
            "/discovery" => Response::text(200, ROUTES),
            _ => Response::text(404, "404 page not found; /discovery lists what is served\n"),
        }
    }
}
