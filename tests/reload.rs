//! HUP: hooks that changed on disk are taken over if they are good, and change nothing if they are not.
//!
//! The hooks directory is laid out as kubelet mounts a ConfigMap: every file is a link through `..data`, which is swapped in one step.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Env, Operator, SOON, Scripted, wait_for};

/// A hooks directory that is a mounted ConfigMap.
struct Mount {
    env: Env,
    _server: Scripted,
}

impl Mount {
    fn new() -> Mount {
        let server = Scripted::api();
        let env = Env::new().kubeconfig(&server.kubeconfig());
        Mount {
            env,
            _server: server,
        }
    }

    /// Puts these hooks in place of all that are there, as kubelet does: new folder, `..data` swapped by a rename, links of files
    /// made and removed, old folder removed.
    fn swap(&self, generation: &str, hooks: &[(&str, &str)]) {
        let root = self.env.hooks_dir();
        let folder = format!("..{generation}");
        for (name, script) in hooks {
            self.env.write_hook(&format!("{folder}/{name}"), script);
        }
        let former = std::fs::read_link(root.join("..data")).ok();
        symlink(&folder, root.join("..data_tmp")).unwrap();
        std::fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
        for entry in std::fs::read_dir(&root).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let is_wanted = hooks.iter().any(|(hook, _)| *hook == name);
            if !name.starts_with("..") && !is_wanted {
                std::fs::remove_file(path).unwrap();
            }
        }
        for (name, _) in hooks {
            let link = root.join(name);
            if link.symlink_metadata().is_err() {
                symlink(format!("..data/{name}"), link).unwrap();
            }
        }
        if let Some(former) = former {
            std::fs::remove_dir_all(root.join(former)).unwrap();
        }
    }

    /// A hook that notes every run as `WORD BINDING` in the file `runs`; `more` is done after that.
    fn hook(&self, word: &str, config: &str, more: &str) -> String {
        let runs = self.runs_file();
        format!(
            "#!/bin/sh\nif [ \"$1\" = --config ]; then echo '{config}'; exit 0; fi\n\
             echo \"{word} $(sed 's/.*\"binding\":\"\\([a-zA-Z]*\\)\".*/\\1/' \"$BINDING_CONTEXT_PATH\")\" >>'{}'\n{more}\n",
            runs.display()
        )
    }

    fn runs_file(&self) -> PathBuf {
        self.env.path().join("runs")
    }

    fn runs(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.runs_file()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn wait_run(&self, run: &str) {
        wait_for(&format!("the run {run:?}"), SOON, || {
            self.runs().iter().any(|known| known == run)
        });
    }

    fn hooks_shown(&self) -> Value {
        let output = self.env.run(&["hook", "list", "-o", "json"]);
        serde_json::from_str(&output.stdout).unwrap_or_default()
    }
}

const AT_START: &str = "{configVersion: v1, onStartup: 1}";

fn every_second(name: &str) -> String {
    format!("{{configVersion: v1, schedule: [{{name: {name}, crontab: \"* * * * * *\"}}]}}")
}

#[track_caller]
fn wait_stopped(operator: &Operator) {
    operator.wait_log("the orderly stop", |line| {
        line.message().starts_with("stopping, to begin anew")
    });
}

#[test]
fn swapped_hooks_are_taken_over_on_hup_and_not_before() {
    let mount = Mount::new();
    let first = mount.hook("first", &every_second("old"), "");
    let gone = mount.hook("gone", AT_START, "");
    mount.swap("one", &[("a.sh", &first), ("gone.sh", &gone)]);
    let mut operator = mount.env.start();
    operator.wait_ready();
    mount.wait_run("first old");
    let pid = operator.pid();

    let second = mount.hook("second", &every_second("new"), "");
    let added = mount.hook("added", AT_START, "");
    mount.swap("two", &[("a.sh", &second), ("b.sh", &added)]);
    // The file under the hook's name is run, for the binding of the start.
    mount.wait_run("second old");
    assert!(
        !mount
            .runs()
            .iter()
            .any(|run| run.ends_with(" new") || run.starts_with("added"))
    );

    operator.signal(Signal::HUP);
    mount.wait_run("added onStartup");
    mount.wait_run("second new");
    wait_stopped(&operator);
    operator.wait_ready();
    assert_eq!(mount.hooks_shown(), serde_json::json!(["a.sh", "b.sh"]));
    let runs = mount.runs();
    let taken = runs
        .iter()
        .position(|run| run == "added onStartup")
        .unwrap();
    assert!(
        !runs[taken..].iter().any(|run| run == "second old"),
        "{runs:?}"
    );
    assert!(operator.is_running() && operator.pid() == pid);
    assert_eq!(
        operator.children(),
        Vec::<u32>::new(),
        "nothing of the former life is left"
    );
    operator.term();
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
    assert!(!mount.env.debug_socket().exists());
}

#[test]
fn broken_hooks_change_nothing_and_are_named_in_the_log() {
    let mount = Mount::new();
    let good = mount.hook("good", &every_second("old"), "");
    mount.swap("one", &[("a.sh", &good)]);
    let mut operator = mount.env.start();
    operator.wait_ready();
    let also_good = mount.hook("also", &every_second("old"), "");
    let broken = "#!/bin/sh\necho '{configVersion: v1, schedule: 7}'\n";
    mount.swap("two", &[("a.sh", &also_good), ("broken.sh", broken)]);
    operator.signal(Signal::HUP);
    let line = operator.wait_log("the error", |line| {
        line.label("level") == Some("error") && line.message().starts_with("SIGHUP:")
    });
    assert!(
        line.label("error").unwrap().contains("broken.sh"),
        "{}",
        line.text
    );
    assert!(
        line.message().contains("the former ones go on"),
        "{}",
        line.text
    );
    let before = mount.runs().len();
    wait_for("runs after that", SOON, || mount.runs().len() >= before + 2);
    assert_eq!(operator.readyz().unwrap().status, 200);
    assert_eq!(mount.hooks_shown(), serde_json::json!(["a.sh"]));

    // Mended: the next HUP takes over.
    mount.swap("three", &[("c.sh", &mount.hook("third", AT_START, ""))]);
    operator.signal(Signal::HUP);
    mount.wait_run("third onStartup");
    assert!(operator.is_running());
}

#[test]
fn an_empty_or_missing_directory_changes_nothing() {
    let Mount { env, _server } = Mount::new();
    let env = env.quiet_hook();
    let mut operator = env.start();
    operator.wait_ready();
    std::fs::rename(env.hooks_dir(), env.path().join("away")).unwrap();
    operator.signal(Signal::HUP);
    operator.wait_log("the error", |line| {
        line.message()
            .starts_with("SIGHUP: the hooks as they are now")
            && line.contains("not exist")
    });
    std::fs::create_dir(env.hooks_dir()).unwrap();
    operator.signal(Signal::HUP);
    operator.wait_log("the error", |line| {
        line.contains("is empty; put executable hooks")
    });
    assert!(operator.is_running());
    assert_eq!(operator.readyz().unwrap().status, 200);
}

#[test]
fn a_running_hook_finishes_before_the_operator_begins_anew() {
    let mount = Mount::new();
    let here = mount.env.path().display().to_string();
    let wait = format!(
        "while [ ! -e '{here}/go' ]; do sleep 0.02; done; echo 'slow finished' >>'{here}/runs'"
    );
    mount.swap("one", &[("slow.sh", &mount.hook("slow", AT_START, &wait))]);
    let operator = mount.env.start();
    mount.wait_run("slow onStartup");
    let missing = operator.readyz().unwrap().text();
    assert!(missing.contains("not done yet: now slow.sh"), "{missing}");
    mount.swap("two", &[("next.sh", &mount.hook("next", AT_START, ""))]);
    operator.signal(Signal::HUP);
    wait_stopped(&operator);
    wait_for("readiness to say why", SOON, || {
        operator
            .readyz()
            .is_some_and(|answer| answer.text().contains("stopping: reloading hooks"))
    });
    mount.env.write("go", "");
    mount.wait_run("next onStartup");
    assert_eq!(
        mount.runs(),
        ["slow onStartup", "slow finished", "next onStartup"]
    );
}

#[test]
fn term_while_it_begins_anew_ends_it() {
    let mount = Mount::new();
    let never = "while :; do sleep 0.05; done";
    mount.swap("one", &[("slow.sh", &mount.hook("slow", AT_START, never))]);
    let mut operator = mount.env.start();
    mount.wait_run("slow onStartup");
    operator.signal(Signal::HUP);
    wait_stopped(&operator);
    operator.term();
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
    assert_eq!(mount.runs(), ["slow onStartup"]);
}

#[test]
fn hup_while_hooks_are_being_read_has_them_read_once_more() {
    let mount = Mount::new();
    let here = mount.env.path().display().to_string();
    let slow = format!(
        "#!/bin/sh\nif [ \"$1\" = --config ]; then touch '{here}/asked'; while [ ! -e '{here}/go' ]; do sleep 0.02; done; echo '{AT_START}'; exit 0; fi\n"
    );
    mount.swap("one", &[("slow.sh", &slow)]);
    let operator = mount.env.start();
    wait_for("the question", SOON, || {
        mount.env.path().join("asked").exists()
    });
    operator.signal(Signal::HUP);
    operator.wait_log("that it was heard", |line| {
        line.contains("they are read once more after that")
    });
    mount.swap("two", &[("next.sh", &mount.hook("next", AT_START, ""))]);
    mount.env.write("go", "");
    mount.wait_run("next onStartup");
}
