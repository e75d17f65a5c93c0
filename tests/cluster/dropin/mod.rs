//! Drop-in proof: what each of the original's 17 examples exercises, by hooks of our own in `tests/fixtures/dropin`, on a real API
//! server, started as a user starts them. Every scenario is run twice: from a plain directory, and from one that looks like a
//! mounted ConfigMap.
//!
//! Hooks learn their namespace from `SHELL_OPERATOR_NAMESPACE`, so scenarios run side by side. They source `/shell_lib.sh` as in
//! the image; nothing may be written there on a developer's machine, so a copy of the hook gets the path of the repository's.

/// A hook that converts.
mod conversion;
/// Hooks that are called at the start, from directories of every shape.
mod layouts;
/// Directories that change under a running operator.
mod mount;
/// The Python module behind the real binary.
mod python;
/// Schedules, and hooks that must not run too often.
mod timing;
/// Hooks that watch.
mod watching;
/// Hooks that are asked.
mod webhooks;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::env::PROBE_PORT;
use crate::support::{Api, ControlPlane, Env, Line, Namespace, Operator, repository};

/// What a hooks directory looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Plain,
    /// A mounted ConfigMap or Secret: every name leads through `..data`, which can be swapped in one step.
    Mounted,
}

/// Makes two tests of a function that takes a `Layout`.
macro_rules! in_both_layouts {
    ($($scenario:ident),+ $(,)?) => { $(
        mod $scenario {
            use crate::cluster::dropin::Layout;

            #[test]
            fn from_a_plain_directory() {
                super::$scenario(Layout::Plain);
            }

            #[test]
            fn from_a_mounted_map() {
                super::$scenario(Layout::Mounted);
            }
        }
    )+ };
}
pub(super) use in_both_layouts;

/// The world of one example.
pub(super) struct Scenario {
    pub(super) namespace: Namespace<'static>,
    pub(super) api: Api,
    pub(super) env: Env,
}

impl Scenario {
    /// The example `fixture`, in a namespace of its own.
    pub(super) fn new(fixture: &str, layout: Layout) -> Scenario {
        let plane = ControlPlane::shared();
        let (_, name) = fixture.split_once('-').unwrap();
        let namespace = plane.namespace(name);
        let env = Env::new()
            .kubeconfig(&plane.admin())
            .env("SHELL_OPERATOR_NAMESPACE", &namespace.name)
            .env("SHELL_OPERATOR_STOP_DRAIN_DELAY", "0s");
        install(&env, fixture, layout);
        Scenario {
            namespace,
            api: plane.api(),
            env: with_tools(env, plane),
        }
    }

    pub(super) fn env(mut self, key: &str, value: &str) -> Self {
        self.env = self.env.clone().env(key, value);
        self
    }

    #[track_caller]
    pub(super) fn start(&self) -> Operator {
        let operator = self.env.start();
        operator.wait_ready();
        operator
    }

    /// The API path of something in the namespace, such as `configmaps` or `secrets/a`.
    pub(super) fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace.name)
    }

    #[track_caller]
    pub(super) fn create(&self, path: &str, object: &Value) {
        let answer = self.api.create(path, object);
        assert_eq!(answer.status, 201, "{path}: {}", answer.text());
    }

    #[track_caller]
    pub(super) fn change(&self, path: &str, patch: &Value) {
        let answer = self.api.merge(path, patch);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }

    #[track_caller]
    pub(super) fn delete(&self, path: &str) {
        let answer = self.api.delete(path);
        assert!(answer.status < 300, "{path}: {}", answer.text());
    }
}

/// Hooks that call kubectl find it, whatever the machine has installed.
pub(super) fn with_tools(env: Env, plane: &ControlPlane) -> Env {
    let path = std::env::var("PATH").unwrap_or_default();
    env.env("PATH", &format!("{}:{path}", plane.tools().display()))
}

pub(super) fn fixture(name: &str) -> PathBuf {
    repository().join("tests/fixtures/dropin").join(name)
}

/// Puts the hooks of a fixture, and our Python module, into the hooks directory.
pub(super) fn install(env: &Env, name: &str, layout: Layout) {
    let mut files = Vec::new();
    let hooks = fixture(name).join("hooks");
    collect(&hooks, &hooks, &mut files);
    let module = repository().join("hooks/lib/shell_operator.py");
    files.push(HookFile::read(&module, "lib/shell_operator.py"));
    match layout {
        Layout::Plain => {
            for file in &files {
                file.write(env, "hooks");
            }
        }
        Layout::Mounted => mount(env, "..2026_11_17_09_30_00.1", &files),
    }
}

/// A file of a hooks directory.
#[derive(Clone)]
pub(super) struct HookFile {
    /// Below the hooks directory.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) executable: bool,
}

impl HookFile {
    fn read(path: &Path, name: &str) -> HookFile {
        let text = fs::read_to_string(path).unwrap();
        // Where the image has the framework, and where the repository has it.
        let framework = repository().join("hooks/lib/shell_lib.sh");
        let sourced = format!("source {}\n", framework.display());
        HookFile {
            name: name.to_owned(),
            text: text.replace("source /shell_lib.sh\n", &sourced),
            executable: fs::metadata(path).unwrap().permissions().mode() & 0o111 != 0,
        }
    }

    fn write(&self, env: &Env, folder: &str) {
        let path = format!("{folder}/{}", self.name);
        if self.executable {
            env.script(&path, &self.text);
        } else {
            env.write(&path, &self.text);
        }
    }
}

fn collect(top: &Path, folder: &Path, files: &mut Vec<HookFile>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(top, &path, files);
        } else {
            let name = path.strip_prefix(top).unwrap().to_string_lossy();
            files.push(HookFile::read(&path, &name));
        }
    }
}

/// Writes files as the kubelet does: into a folder of their own, which `..data` then leads to; the names at the top, files and
/// folders alike, lead through it. Done again, it swaps the content and removes the old one.
pub(super) fn mount(env: &Env, version: &str, files: &[HookFile]) {
    for file in files {
        file.write(env, &format!("hooks/{version}"));
    }
    let hooks = env.hooks_dir();
    let before = fs::read_link(hooks.join("..data")).ok();
    let next = hooks.join("..data_tmp");
    symlink(version, &next).unwrap();
    fs::rename(&next, hooks.join("..data")).unwrap();
    for entry in fs::read_dir(hooks.join(version)).unwrap() {
        let name = entry.unwrap().file_name();
        let link = hooks.join(&name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(&name), link).unwrap();
        }
    }
    for entry in fs::read_dir(&hooks).unwrap() {
        let entry = entry.unwrap();
        let is_visible = !entry.file_name().to_string_lossy().starts_with('.');
        if is_visible && !entry.path().exists() {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    if let Some(before) = before {
        fs::remove_dir_all(hooks.join(before)).unwrap();
    }
}

// ---- what a user sees ----

/// Waits until a hook has printed this line.
#[track_caller]
pub(super) fn wait_said(operator: &Operator, hook: &str, text: &str) -> Line {
    operator.wait_log(&format!("{hook}: {text}"), |line| is_said(line, hook, text))
}

/// What a hook has printed so far.
pub(super) fn said(operator: &Operator, hook: &str) -> Vec<String> {
    let lines = operator.log_lines();
    lines
        .iter()
        .filter(|line| line.label("hook") == Some(hook) && line.label("output").is_some())
        .map(|line| line.message().to_owned())
        .collect()
}

fn is_said(line: &Line, hook: &str, text: &str) -> bool {
    line.label("hook") == Some(hook) && line.label("output").is_some() && line.message() == text
}

/// The value of a metric's series that has all these labels, which are written as in `hook="a.sh"`.
pub(super) fn metric(operator: &Operator, page: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let text = operator.http_get(PROBE_PORT, page)?.text();
    let mut series = text.lines().filter_map(|line| line.strip_prefix(name));
    series
        .find(|rest| {
            rest.starts_with(['{', ' ']) && labels.iter().all(|label| rest.contains(label))
        })
        .and_then(|rest| rest.rsplit(' ').next()?.parse().ok())
}

#[test]
fn there_is_a_scenario_for_each_of_the_17_examples() {
    let mut tests = String::new();
    for entry in fs::read_dir(repository().join("tests/cluster/dropin")).unwrap() {
        tests.push_str(&fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    let fixtures: Vec<String> = fs::read_dir(fixture(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in &fixtures {
        assert!(tests.contains(&format!("\"{name}\"")), "{name} is not run");
    }
    // The original's numbers end at 230; what comes after is about our own Python module.
    let examples = fixtures.iter().filter(|name| name.as_str() < "300");
    assert_eq!(examples.count(), 17);
}
