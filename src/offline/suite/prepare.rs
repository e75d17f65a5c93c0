//! From suites and hooks to cases that are ready to run, or to the reason why one cannot.
//!
//! Runs on the main thread; `--config` of the hooks runs on workers. Owns the directory of the round, which goes with its cases.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Receiver;

use super::super::kinds::Kinds;
use super::super::report::{Case, Status, shown_path};
use super::bench::Bench;
use super::fields::Fault;
use super::file::{Suite, TestCase};
use super::find::Pair;
use super::parallel::{self, Interrupted};
use super::run::Work;
use super::target;
use crate::executor::{Capture, Executor};
use crate::hook::{ConfigOutput, Registry};
use crate::message::Signal;
use crate::settings;

/// LIMIT: a suite. A case is about 500 bytes; nobody keeps ten thousand of them in one file.
const LARGEST_SUITE: u64 = 8 * 1024 * 1024;
/// LIMIT: `--config` of a hook, as in `start`.
const CONFIG_TIME: Duration = Duration::from_secs(60);
const CONFIG_OUTPUT: usize = 4 * 1024 * 1024;

/// A case and, if it can be run, how.
pub(super) struct Planned {
    pub(super) case: Case,
    pub(super) work: Option<Box<Work>>,
}

/// What planning needs to know.
pub(super) struct Round<'a> {
    pub(super) executor: &'a Executor,
    pub(super) signals: &'a Receiver<Signal>,
    pub(super) tmp_dir: &'a Path,
    /// Whether a case of this hook and of this name is asked for.
    pub(super) wanted: &'a dyn Fn(&str, &str) -> bool,
}

impl Round<'_> {
    pub(super) fn plan(&self, pairs: Vec<Pair>) -> Result<Vec<Planned>, Interrupted> {
        let mut planned = Vec::new();
        let mut suites = Vec::new();
        for pair in pairs {
            match read(&pair.suite) {
                Ok(mut suite) => {
                    suite
                        .cases
                        .retain(|case| (self.wanted)(&pair.name, &case.name));
                    if !suite.cases.is_empty() {
                        suites.push((pair, suite));
                    }
                }
                Err(fault) => {
                    let mut case = blank(&pair, "read the suite", fault.line);
                    case.status = Status::Error;
                    case.message = fault.text;
                    planned.push(Planned { case, work: None });
                }
            }
        }
        let asked: Vec<(PathBuf, String)> = suites
            .iter()
            .map(|(pair, _)| (pair.hook.clone(), pair.name.clone()))
            .collect();
        let executor = self.executor.clone();
        let loaded = parallel::each(asked, self.signals, move |(hook, name)| {
            load(&executor, &hook, &name)
        })?;
        let place = place(self.tmp_dir);
        let kinds = Arc::new(Kinds::new(std::iter::empty()));
        for ((pair, suite), loaded) in suites.iter().zip(loaded) {
            let registry = loaded.unwrap_or_else(|| Err("its thread ended".to_owned()));
            for case in &suite.cases {
                planned.push(plan_case(pair, suite, case, &registry, &place, &kinds));
            }
        }
        Ok(planned)
    }
}

fn read(path: &Path) -> Result<Suite, Fault> {
    let unreadable = |problem: String| Fault::new(1, problem);
    let file = fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let mut text = String::new();
    file.take(LARGEST_SUITE + 1)
        .read_to_string(&mut text)
        .map_err(|error| unreadable(error.to_string()))?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > LARGEST_SUITE {
        return Err(unreadable(format!(
            "the suite is larger than {LARGEST_SUITE} bytes; split it"
        )));
    }
    Suite::parse(&text)
}

/// The one hook, in a registry of its own, so that hooks from several directories can have webhooks of the same name.
fn load(executor: &Executor, hook: &Path, name: &str) -> Result<Arc<Registry>, String> {
    let below = Path::new(name).components().count();
    let root = hook.ancestors().nth(below).unwrap_or(Path::new("/"));
    let run_config = |hook: &Path| {
        let captured = executor
            .capture(&Capture {
                input: None,
                program: hook,
                args: &["--config"],
                env: &[],
                cwd: Some(root),
                limit: CONFIG_TIME,
                max_output: CONFIG_OUTPUT,
            })
            .map_err(|error| error.to_string())?;
        let failed = !captured.exit.is_success();
        Ok(ConfigOutput {
            failure: failed.then(|| format!("{}: {}", captured.exit, captured.stderr)),
            stdout: captured.stdout,
            stderr: captured.stderr.into_bytes(),
        })
    };
    Registry::load_files(root, vec![hook.to_owned()], &run_config, &|_| Ok(()), false)
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

fn plan_case(
    pair: &Pair,
    suite: &Suite,
    test: &TestCase,
    registry: &Result<Arc<Registry>, String>,
    place: &Path,
    kinds: &Arc<Kinds>,
) -> Planned {
    let mut case = blank(pair, &test.name, test.line);
    let mut ended = |status: Status, message: String| {
        case.status = status;
        case.message = message;
        Planned {
            case: case.clone(),
            work: None,
        }
    };
    let path = search_path(test);
    let missing = test.requires.iter().find(|program| {
        let is_shim = test.commands.contains_key(*program);
        !is_shim && !is_installed(program, &path)
    });
    if let Some(program) = missing {
        return ended(Status::Skipped, format!("there is no {program} in PATH"));
    }
    let registry = match registry {
        Ok(registry) => registry,
        Err(reason) => {
            return ended(Status::Failed, format!("did not run: {}", one_line(reason)));
        }
    };
    let Some(hook) = registry.hooks.first() else {
        return ended(Status::Failed, "did not run: there is no hook".to_owned());
    };
    let aimed = target::aim(test, &hook.config)
        .and_then(|aim| Ok((aim, target::snapshots(test, &hook.config)?)));
    let (aim, snapshots) = match aimed {
        Ok(aimed) => aimed,
        Err(fault) => {
            let mut planned = ended(Status::Error, fault.text);
            planned.case.line = fault.line;
            return planned;
        }
    };
    match Bench::new(next_place(place), test, &suite.shims, &path) {
        Ok(bench) => Planned {
            case,
            work: Some(Box::new(Work {
                registry: Arc::clone(registry),
                case: test.clone(),
                aim,
                snapshots,
                bench,
                kinds: Arc::clone(kinds),
            })),
        },
        Err(error) => ended(
            Status::Failed,
            format!("did not run: make '{}': {error}", place.display()),
        ),
    }
}

/// Where the cases of this process have their directories.
pub(super) fn place(tmp_dir: &Path) -> PathBuf {
    tmp_dir.join(format!("test-{}", std::process::id()))
}

fn next_place(place: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    place.join(number.to_string())
}

fn search_path(test: &TestCase) -> String {
    let own: &BTreeMap<String, String> = &test.env;
    let given = own.get("PATH").cloned();
    given
        .or_else(|| settings::variable("PATH"))
        .unwrap_or_default()
}

fn is_installed(program: &str, path: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let is_program = |file: PathBuf| {
        let status = file.metadata();
        status.is_ok_and(|status| status.is_file() && status.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return is_program(PathBuf::from(program));
    }
    let mut directories = path.split(':').filter(|directory| !directory.is_empty());
    directories.any(|directory| is_program(Path::new(directory).join(program)))
}

/// A case of which nothing is known but its place.
fn blank(pair: &Pair, name: &str, line: u64) -> Case {
    Case {
        suite: pair.name.clone(),
        judge: pair.name.clone(),
        name: name.to_owned(),
        file: shown_path(&pair.suite),
        line,
        status: Status::Failed,
        message: "did not run".to_owned(),
        details: String::new(),
        warnings: Vec::new(),
        elapsed: Duration::ZERO,
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
