//! Hooks: executable files with bindings, found in a directory and asked for their configuration once.
//!
//! Runs on the main thread at start; the registry is immutable afterwards and shared by `Arc`. It owns what is known about
//! every hook. It never starts a process (the caller passes a function for `--config`) and never talks to Kubernetes.

mod admission;
pub(crate) mod binding;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod conversion;
pub(crate) mod crontab;
mod discover;
pub(crate) mod explain;
pub(crate) mod json_patch;
pub(crate) mod metric;
mod name;
pub(crate) mod response;
mod route;
mod schema;
pub(crate) mod selector;
mod v0;
mod v1;
mod wire;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use log::{error, info, warn};

pub(crate) use self::binding::Config;
pub(crate) use self::config::ConfigError;
pub(crate) use self::route::{Duplicate, Route, normalize};
pub(crate) use self::schema::did_you_mean;

/// LIMIT: how much of a hook's output an error message repeats; a configuration is rarely longer than a screen or two.
const SHOWN_OUTPUT: usize = 4 * 1024;

/// One hook.
#[derive(Debug)]
pub(crate) struct Hook {
    /// The path below the hooks directory.
    pub(crate) name: String,
    /// The absolute path.
    pub(crate) path: PathBuf,
    pub(crate) config: Config,
}

/// What a hook printed when it was called with `--config`.
#[derive(Debug, Default)]
pub(crate) struct ConfigOutput {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// How it ended, unless it ended well: `exit status 1`, `killed after 30 s`.
    pub(crate) failure: Option<String>,
}

/// Runs a hook with `--config`. An error says why it could not even be started.
pub(crate) type RunConfig<'a> = &'a dyn Fn(&Path) -> Result<ConfigOutput, String>;

/// Looks whether a hook that can be loaded is fit to be used. An error says why it is not.
pub(crate) type Examine<'a> = &'a dyn Fn(&Hook) -> Result<(), String>;

/// A hook that was left out, and why. Readiness lists these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokenHook {
    pub(crate) name: String,
    pub(crate) error: String,
}

/// All hooks, in the order that is used everywhere.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) hooks: Vec<Hook>,
    /// In hook order, validating before mutating, then configuration order.
    pub(crate) routes: Vec<Route>,
    pub(crate) broken: Vec<BrokenHook>,
}

/// Why one hook cannot be used.
#[derive(Debug)]
pub(crate) enum HookError {
    /// `--config` could not be run, or ended badly.
    Run { path: PathBuf, reason: String },
    /// What it printed is not a configuration.
    Config {
        name: String,
        error: ConfigError,
        output: String,
    },
    /// It fails its own tests.
    Examined { name: String, reason: String },
    /// It wants a webhook that another hook, or itself, has already.
    Duplicate(Duplicate),
}

/// Why the hooks could not be loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    NoDirectory,
    Missing(PathBuf),
    Unreadable { path: PathBuf, error: io::Error },
    Hook(Box<HookError>),
}

impl fmt::Display for HookError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { path, reason } => {
                write!(
                    out,
                    "cannot get config for hook '{}': {reason}",
                    path.display()
                )
            }
            Self::Config {
                name,
                error,
                output,
            } => write!(
                out,
                "creating hook '{name}': load hook '{name}' config: {error}\nhook --config output: {output}"
            ),
            Self::Examined { name, reason } => {
                write!(out, "hook '{name}' fails its own tests: {reason}")
            }
            Self::Duplicate(duplicate) => duplicate.fmt(out),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDirectory => out.write_str("hooks directory: path is required but not set"),
            Self::Missing(path) => {
                write!(out, "hooks directory: path '{}' not exist", path.display())
            }
            Self::Unreadable { path, error } => {
                write!(out, "hooks directory: read '{}': {error}", path.display())
            }
            Self::Hook(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for LoadError {}

impl Registry {
    /// Finds the hooks below `dir` and asks each for its configuration, one after the other. One bad hook is an error; with
    /// `skip_broken` it is left out and remembered.
    pub(crate) fn load(
        dir: &Path,
        run_config: RunConfig<'_>,
        skip_broken: bool,
    ) -> Result<Registry, LoadError> {
        Registry::load_examined(dir, run_config, &|_| Ok(()), skip_broken)
    }

    /// The same, where a hook must also pass an examination. An error of that says what the hook failed in.
    pub(crate) fn load_examined(
        dir: &Path,
        run_config: RunConfig<'_>,
        examine: Examine<'_>,
        skip_broken: bool,
    ) -> Result<Registry, LoadError> {
        let root = absolute(dir)?;
        let paths = discover::discover(&root).map_err(|walk| LoadError::Unreadable {
            path: walk.path,
            error: walk.error,
        })?;
        Registry::load_files(&root, paths, run_config, examine, skip_broken)
    }

    /// The same for hooks that were found already; `root` is what their names are relative to.
    pub(crate) fn load_files(
        root: &Path,
        paths: Vec<PathBuf>,
        run_config: RunConfig<'_>,
        examine: Examine<'_>,
        skip_broken: bool,
    ) -> Result<Registry, LoadError> {
        let mut registry = Registry::default();
        for path in paths {
            let below = path.strip_prefix(root).unwrap_or(&path);
            let name = below.to_string_lossy().into_owned();
            let examined = |hook: Hook| match examine(&hook) {
                Ok(()) => Ok(hook),
                Err(reason) => Err(HookError::Examined {
                    name: name.clone(),
                    reason,
                }),
            };
            let loaded = load_hook(&name, &path, run_config).and_then(examined);
            match loaded.and_then(|hook| registry.add(hook)) {
                Ok(()) => {}
                Err(error) if skip_broken => {
                    error!(hook = name.as_str(), phase = "config"; "hook is left out: {error}");
                    registry.broken.push(BrokenHook {
                        name,
                        error: error.to_string(),
                    });
                }
                Err(error) => return Err(LoadError::Hook(Box::new(error))),
            }
        }
        route::drop_shared_aliases(&mut registry.routes);
        Ok(registry)
    }

    /// Hooks of these names and configurations, for tests of other rooms.
    #[cfg(test)]
    pub(crate) fn of(hooks: &[(&str, &str)]) -> Registry {
        let mut registry = Registry::default();
        for (name, text) in hooks {
            let parsed = config::parse(text.as_bytes()).unwrap();
            let hook = Hook {
                name: (*name).to_owned(),
                path: Path::new("/hooks").join(name),
                config: parsed.config,
            };
            registry.add(hook).unwrap();
        }
        registry
    }

    fn add(&mut self, hook: Hook) -> Result<(), HookError> {
        let index = self.hooks.len();
        let routes = route::routes_of(&hook, index, &self.hooks, &self.routes)
            .map_err(HookError::Duplicate)?;
        self.routes.extend(routes);
        self.hooks.push(hook);
        Ok(())
    }

    /// The hook and the binding behind a route.
    pub(crate) fn admission(&self, route: &Route) -> Option<(&Hook, &binding::AdmissionBinding)> {
        let hook = self.hooks.get(route.hook)?;
        let binding = hook.config.admission(route.kind).get(route.binding)?;
        Some((hook, binding))
    }

    /// Whether any hook is asked for reviews.
    pub(crate) fn is_reviewing(&self) -> bool {
        let watched = self.hooks.iter().flat_map(|hook| &hook.config.kubernetes);
        let mut watched = watched.filter(|binding| binding.webhook_validation.is_some());
        !self.routes.is_empty() || watched.next().is_some()
    }

    /// Indexes of the hooks to run at start: by their order, hooks of the same order as they stand.
    pub(crate) fn on_startup(&self) -> Vec<usize> {
        let mut hooks: Vec<(i64, usize)> = self
            .hooks
            .iter()
            .enumerate()
            .filter_map(|(index, hook)| Some((hook.config.on_startup?, index)))
            .collect();
        hooks.sort_unstable();
        hooks.into_iter().map(|(_, index)| index).collect()
    }
}

fn absolute(dir: &Path) -> Result<PathBuf, LoadError> {
    if dir.as_os_str().is_empty() {
        return Err(LoadError::NoDirectory);
    }
    let root = std::path::absolute(dir).map_err(|error| LoadError::Unreadable {
        path: dir.to_owned(),
        error,
    })?;
    match root.metadata() {
        Ok(_) => Ok(root),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LoadError::Missing(root)),
        Err(error) => Err(LoadError::Unreadable { path: root, error }),
    }
}

fn load_hook(name: &str, path: &Path, run_config: RunConfig<'_>) -> Result<Hook, HookError> {
    info!(hook = name, phase = "config", path:% = path.display(); "Load config");
    let failed = |reason| HookError::Run {
        path: path.to_owned(),
        reason,
    };
    let output = run_config(path).map_err(failed)?;
    if let Some(reason) = output.failure {
        error!(hook = name, phase = "config", value = shown(&output.stdout).as_str(); "Hook config output");
        error!(hook = name, phase = "config", value = shown(&output.stderr).as_str(); "Hook config stderr");
        return Err(failed(reason));
    }
    let parsed = config::parse(&output.stdout).map_err(|error| HookError::Config {
        name: name.to_owned(),
        error,
        output: shown(&output.stdout),
    })?;
    for warning in &parsed.warnings {
        warn!(hook = name, phase = "config"; "{warning}");
    }
    let summary = parsed.config.summary();
    info!(hook = name, phase = "config", value = summary.as_str(); "Loaded config");
    Ok(Hook {
        name: name.to_owned(),
        path: path.to_owned(),
        config: parsed.config,
    })
}

/// Output for a message: readable, and not endless.
fn shown(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let mut start: String = text.chars().take(SHOWN_OUTPUT).collect();
    if start.len() < text.len() {
        start.push_str("...");
    }
    start
}

#[cfg(test)]
mod tests;
