//! A webhook thread: keeps the certificate fresh, the HTTPS server up and the registration true, until it is told to stop. There is
//! one for admission and one for conversion, each only if a hook needs it; all they do differently is in their `Purpose`.
//!
//! ```text
//! certificate -> HTTPS server -> registration -> wait -> look at certificate and registration again -> …
//! ```
//!
//! Nothing that the API server does is fatal: whatever fails is tried again, with growing pauses, and shows in readiness. The
//! server is started before anything is registered, and a CA is registered before a certificate of it is served.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use jiff::Timestamp;
use log::{info, warn};

use super::admission::Admission;
use super::caller::Callers;
pub(crate) use super::certificate::Wish;
use super::conversion::Conversion;
use super::definition::Definitions;
use super::probe::Readiness;
pub(crate) use super::register::{Address, Announcement};
use super::register::{Configurations, Registration};
use super::rotation::{Rotation, Step};
use super::source::Offer;
pub(crate) use super::source::{SecretPlace, Source};
pub(crate) use super::tls::Files;
use super::{Limits, Listen, Respond, Server, tls};
use crate::executor::Executor;
use crate::hook::Registry;
use crate::kube::Client;
use crate::message::Event;
use crate::metrics::Metrics;
use crate::operation::Perform;
pub(crate) use crate::review::Paces;
use crate::review::{ReadOverlaid, ReadSnapshot, Runner, Turns};

/// Between two looks at the registration: one that was edited or deleted is back within ten seconds.
const REGISTRATION_INTERVAL: Duration = Duration::from_secs(5);
/// How long API servers get to learn of a changed registration before the next step of a certificate change.
const SETTLE: Duration = Duration::from_secs(2);
/// Pauses between failed attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A certificate that nobody renews is warned about from here on.
const EXPIRY_WARNING: Duration = Duration::from_secs(7 * 24 * 3600);

/// Which of the two servers. The texts are parts that readiness lists, flags, names of threads and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Admission,
    Conversion,
}

impl Purpose {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Purpose::Admission => "admission",
            Purpose::Conversion => "conversion",
        }
    }

    pub(crate) fn thread(self) -> &'static str {
        match self {
            Purpose::Admission => "webhook",
            Purpose::Conversion => "conversion-webhook",
        }
    }

    /// How the names of its flags begin.
    pub(crate) fn flags(self) -> &'static str {
        match self {
            Purpose::Admission => "--validating-webhook",
            Purpose::Conversion => "--conversion-webhook",
        }
    }

    pub(crate) fn port_flag(self) -> &'static str {
        match self {
            Purpose::Admission => "--validating-webhook-listen-port",
            Purpose::Conversion => "--conversion-webhook-listen-port",
        }
    }

    fn certificate(self) -> &'static str {
        match self {
            Purpose::Admission => "certificate",
            Purpose::Conversion => "conversion-certificate",
        }
    }

    fn registration(self) -> &'static str {
        match self {
            Purpose::Admission => "registration",
            Purpose::Conversion => "conversion-registration",
        }
    }

    /// Says what will be missing until the thread has done its work. To be called before the last other part is there, or the
    /// operator would be ready for a moment without serving anything.
    pub(crate) fn expect(self, readiness: &Readiness) {
        readiness.lacks(self.certificate(), "not there yet");
        readiness.lacks(self.registration(), "not done yet");
    }
}

/// What the rest of the program lends to the thread.
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) registry: Arc<Registry>,
    pub(crate) paces: Paces,
    pub(crate) executor: Executor,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) snapshots: ReadSnapshot,
    pub(crate) overlaid: ReadOverlaid,
    pub(crate) operations: Arc<dyn Perform>,
    pub(crate) events: Sender<Event>,
}

/// What was asked for on the command line.
pub(crate) struct Plan {
    pub(crate) source: Source,
    pub(crate) address: Address,
    pub(crate) listen: Listen,
    /// Names of which a caller's certificate must bear one; empty for any.
    pub(crate) caller_names: Vec<String>,
    /// Tokens or passwords of callers.
    pub(crate) caller_file: Option<PathBuf>,
    /// Hooks that run at the same time.
    pub(crate) max_hooks: usize,
    pub(crate) proxy_hook_json: bool,
    /// How long requests in flight may take when it stops.
    pub(crate) drain_limit: Duration,
}

/// Everything the thread works with.
pub(crate) struct Webhook {
    purpose: Purpose,
    parts: Parts,
    plan: Plan,
    respond: Arc<dyn Respond>,
    limits: Limits,
}

/// What is in use at the moment.
struct Serving {
    server: Option<Server>,
    current: Option<Arc<tls::Current>>,
    rotation: Rotation,
    registration: Box<dyn Registration>,
    /// What was said since everything was well: the same again would only bury what else is in the log.
    said: BTreeSet<String>,
    /// Once is enough: who deletes it later knows what stops.
    service_found: bool,
    pause: Duration,
    warned: Option<Timestamp>,
}

impl Webhook {
    /// The thread for validating and mutating webhooks, and what it keeps registered.
    pub(crate) fn admission(
        parts: Parts,
        plan: Plan,
        announcement: Announcement,
    ) -> Result<(Webhook, Box<dyn Registration>), String> {
        let (callers, runner) = prepare(&parts, &plan)?;
        let turns = Turns::new(plan.max_hooks);
        let (registry, readiness) = (&parts.registry, Arc::clone(&parts.readiness));
        let kept = Configurations::new(parts.client.clone(), registry, announcement, &parts.paces);
        let respond = Admission::new(
            registry,
            &parts.paces,
            kept.validators(),
            callers,
            turns,
            runner,
            readiness,
        );
        let webhook = Webhook {
            purpose: Purpose::Admission,
            parts,
            plan,
            respond: Arc::new(respond),
            limits: Limits::default(),
        };
        Ok((webhook, Box::new(kept)))
    }

    /// The thread for conversion webhooks, and what it keeps registered.
    pub(crate) fn conversion(
        parts: Parts,
        plan: Plan,
    ) -> Result<(Webhook, Box<dyn Registration>), String> {
        let (callers, runner) = prepare(&parts, &plan)?;
        let turns = Turns::new(plan.max_hooks);
        let (registry, readiness) = (&parts.registry, Arc::clone(&parts.readiness));
        let respond = Conversion::new(registry, &parts.paces, callers, turns, runner, readiness);
        let kept = Definitions::new(parts.client.clone(), registry, plan.address.clone());
        let webhook = Webhook {
            purpose: Purpose::Conversion,
            parts,
            plan,
            respond: Arc::new(respond),
            limits: Limits::for_lists(),
        };
        Ok((webhook, Box::new(kept)))
    }

    /// The body of the thread. Returns when `stop` is disconnected, after the requests in flight were answered.
    pub(crate) fn run(self, registration: Box<dyn Registration>, stop: &Receiver<Infallible>) {
        let mut serving = Serving {
            server: None,
            current: None,
            rotation: Rotation::default(),
            registration,
            said: BTreeSet::new(),
            service_found: false,
            pause: Duration::ZERO,
            warned: None,
        };
        loop {
            let pause = match self.round(&mut serving) {
                Ok(pause) => {
                    serving.pause = Duration::ZERO;
                    pause
                }
                Err(Failure::Fatal(reason)) => {
                    // The main thread ends the process and says why.
                    let _ = self.parts.events.send(Event::Failed { reason });
                    return;
                }
                Err(Failure::Passing {
                    part,
                    reason,
                    at_least,
                }) => {
                    self.parts.readiness.lacks(part, &reason);
                    serving.complain(&reason, "trying on");
                    serving.pause = (serving.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                    serving.pause.max(at_least.unwrap_or_default())
                }
            };
            if !matches!(stop.recv_timeout(pause), Err(RecvTimeoutError::Timeout)) {
                break;
            }
        }
        if let Some(server) = serving.server {
            let cut = server.drain(self.plan.drain_limit);
            if cut > 0 {
                warn!("{cut} connections were cut while a request was in flight");
            }
        }
    }

    /// One look at everything. Returns how long to wait for the next.
    fn round(&self, serving: &mut Serving) -> Result<Duration, Failure> {
        let taken = self
            .plan
            .source
            .load(&self.parts.client)
            .and_then(|offer| self.take(serving, offer));
        let taken_well = taken.is_ok();
        match taken {
            Ok(()) => {}
            // What is served stays good while its source is away or broken.
            Err(reason) if serving.is_valid() => {
                serving.complain(&reason, "still serving the previous certificate");
            }
            Err(reason) => return Err(Failure::passing(self.purpose.certificate(), reason)),
        }
        self.listen(serving)?;
        self.watch_expiry(serving)
            .map_err(|reason| Failure::passing(self.purpose.certificate(), reason))?;
        self.look_for_service(serving);
        self.register(serving)?;
        self.count_connections(serving);
        if taken_well && !serving.said.is_empty() {
            info!("certificate and registration are well again");
            serving.said.clear();
        }
        if serving.rotation.registered() {
            return Ok(SETTLE);
        }
        Ok(self.plan.source.poll_interval().min(REGISTRATION_INTERVAL))
    }

    /// Puts an offer to use. INVARIANT: what does not fit together is never served and never registered.
    fn take(&self, serving: &mut Serving, offer: Offer) -> Result<(), String> {
        let step = serving.rotation.step(&offer);
        if step == Step::Keep {
            serving.rotation.keep();
            return Ok(());
        }
        let identity = tls::build(&offer.material).map_err(|error| error.to_string())?;
        let name = self.plan.address.server_name();
        tls::check_bundle(&identity, &offer.bundle, &name).map_err(|error| error.to_string())?;
        if step == Step::Announce {
            serving.rotation.announce(offer);
            return Ok(());
        }
        let from = &offer.material.certificate.from;
        info!(
            "serving {from}, valid from {} until {}",
            identity.not_before, identity.not_after
        );
        match &serving.current {
            Some(current) => current.replace(identity),
            None => serving.current = Some(tls::Current::new(identity)),
        }
        serving.rotation.serve(offer);
        Ok(())
    }

    fn listen(&self, serving: &mut Serving) -> Result<(), Failure> {
        if serving.server.is_some() {
            return Ok(());
        }
        let server = Server::start(
            self.plan.listen,
            serving.current.clone(),
            self.limits,
            Arc::clone(&self.respond),
            &self.parts.events,
        )
        .map_err(|error| Failure::Fatal(error.to_string()))?;
        info!(server = self.purpose.name(), address:% = server.address(); "Webhook server listens");
        serving.server = Some(server);
        Ok(())
    }

    /// A Service that does not exist makes every call fail, and nothing else would say so. Without the right to look, it is
    /// taken to be there.
    fn look_for_service(&self, serving: &mut Serving) {
        let Address::Service {
            namespace, name, ..
        } = &self.plan.address
        else {
            return;
        };
        if serving.service_found {
            return;
        }
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
        let looked = self.parts.client.get(&path);
        serving.service_found = !matches!(&looked, Err(error) if error.is_not_found());
        if !serving.service_found {
            serving.complain(
                &format!("there is no Service {namespace}/{name}"),
                &format!(
                    "the API server cannot reach the webhooks; create it, or give {}-url",
                    self.purpose.flags()
                ),
            );
        }
    }

    /// What happened on the port since the start, as it stands at this round.
    #[expect(clippy::cast_precision_loss, reason = "nobody opens 2^52 connections")]
    fn count_connections(&self, serving: &Serving) {
        let Some(server) = &serving.server else {
            return;
        };
        let counts = server.counts();
        let metrics = &self.parts.metrics;
        let open = counts.open.load(Ordering::Relaxed);
        let labels = [("server", self.purpose.name())];
        metrics.set("webhook_connections_open", &labels, open as f64);
        for (name, count) in [
            ("webhook_connections_shed_total", &counts.shed),
            ("webhook_connections_evicted_total", &counts.evicted),
            ("webhook_handshakes_failed_total", &counts.handshakes_failed),
            ("webhook_panics_total", &counts.panics),
            ("webhook_requests_refused_total", &counts.refused),
        ] {
            metrics.total(name, &labels, count.load(Ordering::Relaxed) as f64);
        }
    }

    /// Says how long the certificate lives, and does not let the operator be ready with one that has expired.
    fn watch_expiry(&self, serving: &mut Serving) -> Result<(), String> {
        let Some(current) = &serving.current else {
            return Ok(());
        };
        let identity = current.load();
        let now = Timestamp::now();
        let left = identity
            .not_after
            .as_second()
            .saturating_sub(now.as_second());
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds of a certificate's life are far below 2^52"
        )]
        self.parts.metrics.set(
            "webhook_certificate_expiry_seconds",
            &[("server", self.purpose.name())],
            left as f64,
        );
        if left <= 0 {
            return Err(format!(
                "the certificate expired at {}; replace it or let the operator make its own",
                identity.not_after
            ));
        }
        self.parts.readiness.has(self.purpose.certificate());
        let self_managed = matches!(self.plan.source, Source::SelfManaged { .. });
        let soon = u64::try_from(left).is_ok_and(|left| left < EXPIRY_WARNING.as_secs());
        let said_today = serving
            .warned
            .is_some_and(|warned| now.as_second().saturating_sub(warned.as_second()) < 24 * 3600);
        if soon && !self_managed && !said_today {
            warn!(
                "the certificate expires at {} and nobody has renewed it yet",
                identity.not_after
            );
            serving.warned = Some(now);
        }
        Ok(())
    }

    fn register(&self, serving: &mut Serving) -> Result<(), Failure> {
        let bundle = serving.rotation.bundle();
        let renewed = serving.registration.renew(&bundle);
        renewed.map_err(|error| Failure::Passing {
            part: self.purpose.registration(),
            reason: error.reason,
            at_least: error.at_least,
        })?;
        self.parts.readiness.has(self.purpose.registration());
        Ok(())
    }
}

/// Checks what can be checked before the API server is needed, so that a wrong file ends the start and not a night.
fn prepare(parts: &Parts, plan: &Plan) -> Result<(Callers, Runner), String> {
    if let Source::Files { .. } = &plan.source {
        let offer = plan.source.load(&parts.client)?;
        tls::build(&offer.material).map_err(|error| error.to_string())?;
    }
    let callers = Callers::new(plan.caller_names.clone(), plan.caller_file.clone())?;
    let runner = Runner {
        executor: parts.executor.clone(),
        metrics: Arc::clone(&parts.metrics),
        snapshots: Arc::clone(&parts.snapshots),
        overlaid: Arc::clone(&parts.overlaid),
        operations: Arc::clone(&parts.operations),
        changes: Turns::new(plan.max_hooks),
        proxy_hook_json: plan.proxy_hook_json,
        listener: None,
    };
    Ok((callers, runner))
}

impl Serving {
    /// Logs a complaint, but not the same one again.
    fn complain(&mut self, reason: &str, consequence: &str) {
        if self.said.insert(reason.to_owned()) {
            warn!("{reason}; {consequence}");
        }
    }

    /// True while a certificate is served that callers accept.
    fn is_valid(&self) -> bool {
        self.current
            .as_ref()
            .is_some_and(|current| current.load().not_after > Timestamp::now())
    }
}

enum Failure {
    /// No retry can help.
    Fatal(String),
    Passing {
        part: &'static str,
        reason: String,
        at_least: Option<Duration>,
    },
}

impl Failure {
    fn passing(part: &'static str, reason: String) -> Failure {
        Failure::Passing {
            part,
            reason,
            at_least: None,
        }
    }
}
