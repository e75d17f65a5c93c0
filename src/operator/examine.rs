//! `--test-hooks`: the tests that lie beside a hook, run before the hook is used.
//!
//! Runs on the load thread. The tests are run by this same program in a process of its own (`test`), which the executor starts like any
//! other: what a suite does wrong, or needs of memory, does not touch the operator. Says nothing of hooks without tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use log::{info, warn};
use serde_json::Value;

use crate::executor::{self, Capture, Executor};
use crate::hook::Hook;
use crate::settings::{Settings, TestHooks};

/// LIMIT: all tests of one hook. A case takes a tenth of a second; a thousand of them on one slow core fit.
const TESTS_TIME: Duration = Duration::from_secs(300);
/// LIMIT: their report; a thousand failures with all that can be said about them.
const REPORT: usize = 16 * 1024 * 1024;
/// LIMIT: failures that are named; the others are seen when these are mended.
const MOST_NAMED: usize = 3;

/// How hooks are tested.
#[derive(Clone)]
pub(super) struct Examination {
    when: TestHooks,
    tmp_dir: PathBuf,
    hook_variables: Vec<String>,
}

impl Examination {
    pub(super) fn new(settings: &Settings) -> Examination {
        Examination {
            when: settings.test_hooks,
            tmp_dir: settings.tmp_dir.clone(),
            hook_variables: settings.hook_variables.clone(),
        }
    }

    /// An error says which cases fail.
    pub(super) fn examine(
        &self,
        hook: &Hook,
        hooks_dir: &Path,
        executor: &Executor,
    ) -> Result<(), String> {
        if self.when == TestHooks::Off || !has_suite(&hook.path) {
            return Ok(());
        }
        let failed = match self.run(hook, hooks_dir, executor) {
            Ok(passed) => {
                info!(hook = hook.name.as_str(), phase = "tests", passed; "hook passes its tests");
                return Ok(());
            }
            Err(failed) => failed,
        };
        if self.when == TestHooks::Fail {
            return Err(failed);
        }
        warn!(hook = hook.name.as_str(), phase = "tests", error = failed.as_str(); "hook fails its tests and is used all the same");
        Ok(())
    }

    /// How many cases passed.
    fn run(&self, hook: &Hook, hooks_dir: &Path, executor: &Executor) -> Result<u64, String> {
        let shown = |path: &Path| path.to_string_lossy().into_owned();
        let mut arguments = vec![
            "test".to_owned(),
            format!("--hooks-dir={}", shown(hooks_dir)),
            format!("--tmp-dir={}", shown(&self.tmp_dir)),
            "--output=json".to_owned(),
        ];
        let variables = self.hook_variables.iter();
        arguments.extend(variables.map(|name| format!("--hook-variable={name}")));
        arguments.extend(["--".to_owned(), shown(&hook.path)]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let captured = executor
            .capture(&Capture {
                input: None,
                program: &executor::own_program(),
                args: &arguments,
                env: &[],
                cwd: None,
                limit: TESTS_TIME,
                max_output: REPORT,
            })
            .map_err(|error| error.to_string())?;
        let report: Value = serde_json::from_slice(&captured.stdout).unwrap_or_default();
        if captured.exit.is_success() && report.is_object() {
            let passed = report.get("passed").and_then(Value::as_u64);
            return Ok(passed.unwrap_or_default());
        }
        Err(failures(&report).unwrap_or_else(|| format!("{}: {}", captured.exit, captured.stderr)))
    }
}

/// Which cases failed, and why. None if the report does not say.
fn failures(report: &Value) -> Option<String> {
    let text = |case: &Value, key: &str| {
        let found = case.get(key).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    let cases = report.get("cases")?.as_array()?;
    let failed: Vec<String> = cases
        .iter()
        .filter(|case| ["failed", "error"].contains(&text(case, "status").as_str()))
        .map(|case| format!("'{}': {}", text(case, "name"), text(case, "message")))
        .collect();
    let first = failed.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>();
    let more = failed.len().saturating_sub(MOST_NAMED);
    match (failed.len(), more) {
        (0, _) => None,
        (_, 0) => Some(first.join("; ")),
        _ => Some(format!("{}; and {more} more", first.join("; "))),
    }
}

/// `ingress.tests.yaml` or `ingress.sh.tests.yaml` beside `ingress.sh`.
fn has_suite(hook: &Path) -> bool {
    let suite = |base: &Path| {
        let mut name = base.as_os_str().to_owned();
        name.push(".tests.yaml");
        PathBuf::from(name)
    };
    suite(hook).is_file() || suite(&hook.with_extension("")).is_file()
}
