//! The hooks as `start` would load them, and what runs them.
//!
//! Runs on the main thread at the start of the command. It owns the executor's beginning and the signals: an interrupted command ends the
//! hooks that run before it ends itself.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};

use super::decide::Entry;
use super::kinds::Kinds;
use super::rules::Rules;
use crate::executor::{Capture, Executor, ExecutorOptions, Inherit};
use crate::hook::binding::FailurePolicy;
use crate::hook::{ConfigOutput, Registry};
use crate::message::{BindingId, Event, Signal};
use crate::review::{Paces, Webhook};
use crate::settings::{self, Settings};
use crate::threads;

/// LIMIT: `--config` of a hook, as for `start`.
const CONFIG_TIME: Duration = Duration::from_secs(60);
const CONFIG_OUTPUT: usize = 4 * 1024 * 1024;
/// Between TERM and KILL for a hook whose time is over, as for `start`.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// Hooks that can be asked.
pub(super) struct Hooks {
    pub(super) registry: Arc<Registry>,
    pub(super) executor: Executor,
    pub(super) signals: Receiver<Signal>,
    /// Threads that end send to it; nobody needs to hear that here.
    _events: Receiver<Event>,
}

/// Finds the hooks and asks each for its configuration.
pub(super) fn load(settings: &Settings) -> Result<Hooks, String> {
    let (events, heard) = unbounded();
    let (_thread, signals) = threads::spawn_signals(&events)
        .map_err(|error| format!("start the signal thread: {error}"))?;
    let names = &settings.hook_variables;
    let given = names
        .iter()
        .filter_map(|name| Some((name.into(), settings::variable(name)?.into())));
    let options = ExecutorOptions {
        tmp_dir: settings.tmp_dir.clone(),
        keep_tmp_files: false,
        inherit: if names.is_empty() {
            Inherit::All
        } else {
            Inherit::Only(given.collect())
        },
        kill_grace: KILL_GRACE,
        adopt_orphans: true,
    };
    let executor = Executor::start(options, &events).map_err(|error| error.to_string())?;
    let directory = std::path::absolute(&settings.hooks_dir)
        .map_err(|error| format!("hooks directory: {error}"))?;
    let run_config = |hook: &Path| {
        let captured = executor
            .capture(&Capture {
                input: None,
                program: hook,
                args: &["--config"],
                env: &[],
                cwd: Some(&directory),
                limit: CONFIG_TIME,
                max_output: CONFIG_OUTPUT,
            })
            .map_err(|error| error.to_string())?;
        let failed = !captured.exit.is_success();
        Ok(ConfigOutput {
            stdout: captured.stdout,
            failure: failed.then(|| format!("{}: {}", captured.exit, captured.stderr)),
            stderr: captured.stderr.into_bytes(),
        })
    };
    let registry = Registry::load(&directory, &run_config, settings.skip_broken_hooks)
        .map_err(|error| format!("{error}; name the directory of your hooks with --hooks-dir"))?;
    if registry.routes.is_empty() {
        return Err(format!(
            "no hook in '{}' has kubernetesValidating or kubernetesMutating, so there is nothing to ask; name another directory with --hooks-dir",
            settings.hooks_dir.display()
        ));
    }
    Ok(Hooks {
        registry: Arc::new(registry),
        executor,
        signals,
        _events: heard,
    })
}

impl Hooks {
    /// The webhooks in the order of their registration.
    pub(super) fn entries(&self, settings: &Settings, kinds: &Kinds) -> Result<Vec<Entry>, String> {
        let default = match settings.registration.failure_policy {
            settings::FailurePolicy::Fail => FailurePolicy::Fail,
            settings::FailurePolicy::Ignore => FailurePolicy::Ignore,
        };
        let paces = Paces::unlimited();
        let mut entries = Vec::new();
        for route in &self.registry.routes {
            let Some((hook, binding)) = self.registry.admission(route) else {
                continue;
            };
            let rules = Rules::new(binding, default, kinds)
                .map_err(|error| format!("hook '{}': {error}", hook.name))?;
            let named = |name: &String| {
                let mut known = hook.config.kubernetes.iter();
                let binding = known.position(|known| known.name == *name)?;
                Some(BindingId {
                    hook: route.hook,
                    binding,
                })
            };
            entries.push(Entry {
                hook: hook.name.clone(),
                rules,
                webhook: Webhook::new(route, hook, binding, &paces),
                included: binding
                    .include_snapshots_from
                    .iter()
                    .filter_map(named)
                    .collect(),
            });
        }
        Ok(entries)
    }
}
