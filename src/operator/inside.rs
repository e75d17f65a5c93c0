//! What the debug servers may see of the operator, and the servers themselves.
//!
//! Started and stopped by the main thread; read by the connection threads of the debug servers. Nothing here waits: queues and stores
//! are asked for copies. Before hooks are known there is nothing to see.

use std::net::ToSocketAddrs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::Sender;
use log::{info, warn};

use crate::hook::Registry;
use crate::message::{Event, QueueView, SnapshotView};
use crate::monitor::Monitors;
use crate::queue::Window;
use crate::serve::debug::{self, Debug};
use crate::serve::parameter::Parameters;
use crate::serve::probe::Readiness;
use crate::serve::socket_file::SocketFile;
use crate::serve::{Listen, Respond, Server};
use crate::settings::{self, Settings};

#[derive(Default)]
struct Inside {
    loaded: OnceLock<Loaded>,
}

struct Loaded {
    registry: Arc<Registry>,
    queues: Window,
    monitors: Monitors,
}

impl debug::Inside for Inside {
    fn queues(&self) -> Vec<QueueView> {
        let loaded = self.loaded.get();
        loaded.map_or_else(Vec::new, |loaded| loaded.queues.queues())
    }

    fn hooks(&self) -> Vec<String> {
        let loaded = self.loaded.get();
        let hooks = loaded.map_or(&[][..], |loaded| &loaded.registry.hooks);
        hooks.iter().map(|hook| hook.name.clone()).collect()
    }

    fn snapshots(&self, hook: &str) -> Option<Vec<SnapshotView>> {
        let loaded = self.loaded.get()?;
        let mut hooks = loaded.registry.hooks.iter();
        let index = hooks.position(|known| known.name == hook)?;
        Some(loaded.monitors.views(index))
    }
}

/// The debug servers that run.
pub(super) struct Looking {
    inside: Arc<Inside>,
    servers: Vec<Server>,
    /// Removes the socket's file when it is dropped.
    _file: Option<SocketFile>,
}

impl Looking {
    pub(super) fn start(
        settings: &Settings,
        readiness: &Arc<Readiness>,
        events: &Sender<Event>,
    ) -> Result<Looking, String> {
        let inside = Arc::new(Inside::default());
        let respond: Arc<dyn Respond> = Arc::new(Debug {
            inside: Arc::clone(&inside) as Arc<dyn debug::Inside>,
            readiness: Arc::clone(readiness),
            parameters: Parameters::new(settings.log.level, events.clone()),
        });
        let mut looking = Looking {
            inside,
            servers: Vec::new(),
            _file: None,
        };
        looking.serve_socket(&settings.debug.unix_socket, &respond, events)?;
        if let Some(address) = &settings.debug.http_addr {
            looking.serve_port(address, &respond, events)?;
        }
        Ok(looking)
    }

    /// A place that nobody chose may be one that this user cannot write to, such as in a container without root. That is worth
    /// a warning and not the end; a place that was asked for must work.
    fn serve_socket(
        &mut self,
        path: &Path,
        respond: &Arc<dyn Respond>,
        events: &Sender<Event>,
    ) -> Result<(), String> {
        let (listener, file) = match SocketFile::bind(path) {
            Ok(bound) => bound,
            Err(error) if path == Path::new(settings::DEFAULT_DEBUG_SOCKET) => {
                warn!("going on without the debug socket: {error}");
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        let limits = debug::limits();
        let server = Server::start_unix("debug", listener, limits, Arc::clone(respond), events)
            .map_err(|error| format!("serve the debug socket '{}': {error}", path.display()))?;
        self.servers.push(server);
        self._file = Some(file);
        info!(path:% = path.display(); "debug socket is served");
        Ok(())
    }

    fn serve_port(
        &mut self,
        address: &str,
        respond: &Arc<dyn Respond>,
        events: &Sender<Event>,
    ) -> Result<(), String> {
        let found = address.to_socket_addrs().ok();
        let found = found.and_then(|mut found| found.next()).ok_or_else(|| {
            format!("'{address}' is no address of this machine; give an IP address and a port with --debug-http-addr")
        })?;
        let listen = Listen {
            name: "debug-http",
            address: found,
            port_flag: "--debug-http-addr",
        };
        let server = Server::start(listen, None, debug::limits(), Arc::clone(respond), events)
            .map_err(|error| error.to_string())?;
        if !found.ip().is_loopback() {
            warn!(
                "everybody who can reach {} reads every snapshot there, Secrets included; use 127.0.0.1 and kubectl port-forward",
                server.address()
            );
        }
        info!(address:% = server.address(); "debug server listens");
        self.servers.push(server);
        Ok(())
    }

    /// From now on there is something to see.
    pub(super) fn show(&self, registry: &Arc<Registry>, queues: Window, monitors: Monitors) {
        let loaded = Loaded {
            registry: Arc::clone(registry),
            queues,
            monitors,
        };
        // Hooks are loaded once in the life of a process.
        let _ = self.inside.loaded.set(loaded);
    }

    pub(super) fn stop(self, limit: Duration) {
        for server in self.servers {
            server.drain(limit);
        }
    }
}
