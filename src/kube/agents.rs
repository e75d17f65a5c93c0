//! The two connection pools of a client, and their renewal when certificates rotate.
//!
//! One agent serves short calls, the other watches, so that the watches can be cut while a last call still finishes. A TLS
//! configuration is fixed when an agent is made; when a certificate file changes, or a plugin grants another certificate, new
//! agents take over. The old ones finish what they carry. Files are looked at on the thread that makes a call, at most every
//! few seconds, never under the lock.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ureq::http::Uri;

use super::config::{ClusterConfig, Source};
use super::connect::{self, TlsLayer, bare_host};
use super::credential::{Pass, Stamp};
use super::error::Error;
use super::tls::{self, Identity};

/// How often certificate files are looked at. The kubelet itself needs up to a minute to show a new Secret in a volume.
const CERTIFICATE_PACE: Duration = Duration::from_secs(10);

/// How many replaced agents are kept, so that a watch on one of them can still be ended. A watch lives ten minutes at most;
/// when certificates rotate faster than that, the oldest agent's watches are cut and connect again.
const RETIRED: usize = 4;

/// LIMIT: time for a TCP and TLS handshake. Linux repeats a lost SYN after 1, 3 and 7 seconds, so three of them fit.
const CONNECT: Duration = Duration::from_secs(10);

/// How long an idle connection is used again. Go's servers close theirs after 90 seconds or more.
const IDLE: Duration = Duration::from_secs(60);

/// Buffers of one connection. The library's own 128 KiB each way make a hundred watches cost 64 MB.
const INPUT_BUFFER: usize = 16 * 1024;
const OUTPUT_BUFFER: usize = 8 * 1024;

const USER_AGENT: &str = concat!("shell-operator/", env!("CARGO_PKG_VERSION"));

#[derive(Clone)]
pub(super) struct Pair {
    pub(super) short: ureq::Agent,
    pub(super) watch: ureq::Agent,
}

pub(super) struct Agents {
    config: ClusterConfig,
    state: Mutex<State>,
}

struct State {
    pair: Option<Pair>,
    stamps: Vec<Option<Stamp>>,
    /// Of a certificate that a plugin granted.
    granted: Option<Instant>,
    looked_at: Instant,
    retired: Vec<Pair>,
}

impl Agents {
    pub(super) fn new(config: ClusterConfig) -> Agents {
        Agents {
            config,
            state: Mutex::new(State {
                pair: None,
                stamps: Vec::new(),
                granted: None,
                looked_at: Instant::now(),
                retired: Vec::new(),
            }),
        }
    }

    /// The agents to use now; new ones when the certificates are new.
    pub(super) fn current(&self, pass: &Pass) -> Result<Pair, Error> {
        let granted = pass.certificate.as_ref().map(|(_, _, since)| *since);
        {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(pair) = &state.pair
                && state.granted == granted
                && state.looked_at.elapsed() < CERTIFICATE_PACE
            {
                return Ok(pair.clone());
            }
        }
        self.look(pass).map(|(pair, _)| pair)
    }

    /// After a failed handshake: true when there are other certificates now.
    pub(super) fn renewed(&self, pass: &Pass) -> Result<bool, Error> {
        self.look(pass).map(|(_, renewed)| renewed)
    }

    /// Ends every watch, also those on agents that were replaced.
    pub(super) fn stop_watches(&self) {
        for pair in self.everyone() {
            pair.watch.shutdown();
        }
    }

    pub(super) fn stop(&self) {
        for pair in self.everyone() {
            pair.watch.shutdown();
            pair.short.shutdown();
        }
    }

    fn everyone(&self) -> Vec<Pair> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.pair.iter().chain(&state.retired).cloned().collect()
    }

    fn look(&self, pass: &Pass) -> Result<(Pair, bool), Error> {
        let identity = self.identity(pass);
        let granted = pass.certificate.as_ref().map(|(_, _, since)| *since);
        let files: Vec<PathBuf> = tls::files(&self.config.trust, identity.as_ref());
        let stamps = Stamp::all(&files);
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.looked_at = Instant::now();
            if let Some(pair) = &state.pair
                && state.stamps == stamps
                && state.granted == granted
            {
                return Ok((pair.clone(), false));
            }
        }
        let made = self.make(identity.as_ref());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.stamps = stamps;
        state.granted = granted;
        match (made, state.pair.clone()) {
            (Ok(pair), old) => {
                state.pair = Some(pair.clone());
                let renewed = old.is_some();
                state.retired.extend(old);
                let oldest = (state.retired.len() > RETIRED).then(|| state.retired.remove(0));
                drop(state);
                if let Some(oldest) = oldest {
                    oldest.watch.shutdown();
                }
                Ok((pair, renewed))
            }
            // Rotation is seen half done now and then: what worked until now is better than nothing.
            (Err(error), Some(old)) => {
                drop(state);
                log::warn!("certificates changed but cannot be used, the old ones stay: {error}");
                Ok((old, false))
            }
            (Err(error), None) => Err(error),
        }
    }

    fn identity(&self, pass: &Pass) -> Option<Identity> {
        if let Some((certificate, key)) = &self.config.login.certificate {
            return Some(Identity {
                certificate: certificate.clone(),
                key: key.clone(),
            });
        }
        let (certificate, key, _) = pass.certificate.as_ref()?;
        let name = "of the exec plugin".to_owned();
        Some(Identity {
            certificate: Source::Inline {
                name: name.clone(),
                bytes: certificate.clone(),
            },
            key: Source::Inline {
                name,
                bytes: key.clone(),
            },
        })
    }

    fn make(&self, identity: Option<&Identity>) -> Result<Pair, Error> {
        let server: Uri = self.config.server.parse().map_err(|error| {
            Error::Config(format!(
                "the server address {:?} is wrong: {error}",
                self.config.server
            ))
        })?;
        let encrypted = server.scheme_str() == Some("https");
        let config = encrypted
            .then(|| tls::client_config(&self.config.trust, identity))
            .transpose()?;
        let proxy = self
            .config
            .proxy
            .as_deref()
            .map(ureq::Proxy::new)
            .transpose()
            .map_err(|_| Error::Config("proxy-url is not the address of a proxy".to_owned()))?;
        let agent = || {
            let settings = ureq::Agent::config_builder()
                .http_status_as_error(false)
                .max_redirects(0)
                .proxy(proxy.clone())
                .user_agent(USER_AGENT)
                .input_buffer_size(INPUT_BUFFER)
                .output_buffer_size(OUTPUT_BUFFER)
                .max_idle_age(IDLE)
                .timeout_connect(Some(CONNECT))
                .build();
            let layer = TlsLayer {
                config: config.clone(),
                host: bare_host(&server),
                name: self.config.tls_server_name.clone(),
            };
            connect::agent(settings, layer)
        };
        Ok(Pair {
            short: agent(),
            watch: agent(),
        })
    }
}
