//! Queues seen from outside: start order, schedules, joined contexts, retries, hooks that hang, and the end of running hooks.
//!
//! Hooks write down what they got; a hook that is to take its time waits for a file, so that no test depends on how fast a
//! machine is. The pauses before retries are the documented ones: the first is five seconds.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::env::PROBE_PORT;
use crate::support::{Env, Operator, SOON, Scripted, wait_for};

/// Two pauses between attempts, of 5 and at most 7 seconds, and some air.
const TWO_PAUSES: Duration = Duration::from_secs(40);

/// A world whose hooks can use `$HERE`, the test's folder, with a server that answers.
struct Stage {
    env: Env,
    _server: Scripted,
}

impl Stage {
    fn new() -> Stage {
        let server = Scripted::api();
        let env = Env::new().kubeconfig(&server.kubeconfig());
        Stage {
            env,
            _server: server,
        }
    }

    /// A hook with this configuration. `$record` appends the contexts of a run as one line to `NAME.log`; `$wait_for FILE` waits.
    fn hook(self, name: &str, config: &str, body: &str) -> Stage {
        let here = self.env.path().display().to_string();
        let script = format!(
            "#!/bin/sh\n\
             if [ \"$1\" = --config ]; then cat <<'END'\n{config}\nEND\nexit 0; fi\n\
             HERE={here}\n\
             record() {{ tr -d '\\n' <\"$BINDING_CONTEXT_PATH\" >>\"$HERE/{name}.log\"; echo >>\"$HERE/{name}.log\"; }}\n\
             wait_for() {{ while [ ! -e \"$HERE/$1\" ]; do sleep 0.02; done; }}\n\
             {body}\n"
        );
        Stage {
            env: self.env.hook(name, &script),
            ..self
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.env.path().join(name)
    }

    fn touch(&self, name: &str) {
        self.env.write(name, "");
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The contexts of every run so far of a hook that records them.
    fn runs(&self, hook: &str) -> Vec<Value> {
        let lines = self.lines(&format!("{hook}.log"));
        // The last line may be half written.
        lines
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    #[track_caller]
    fn wait_runs(&self, hook: &str, count: usize) -> Vec<Value> {
        wait_for(&format!("{count} runs of {hook}"), SOON, || {
            let runs = self.runs(hook);
            (runs.len() >= count).then_some(runs)
        })
    }
}

fn metric(operator: &Operator, series: &str) -> Option<f64> {
    let answer = operator.http_get(PROBE_PORT, "/metrics")?;
    let text = answer.text();
    let line = text.lines().find_map(|line| line.strip_prefix(series))?;
    line.trim().parse().ok()
}

#[track_caller]
fn wait_length(operator: &Operator, queue: &str, least: f64) {
    let series = format!("shell_operator_tasks_queue_length{{queue=\"{queue}\"}}");
    wait_for(&format!("{least} tasks in {queue}"), SOON, || {
        metric(operator, &series).is_some_and(|length| length >= least)
    });
}

fn on_startup(order: i32) -> String {
    format!("configVersion: v1\nonStartup: {order}")
}

/// Runs every second; `more` are further fields of the binding.
fn every_second(name: &str, more: &str) -> String {
    format!("{{name: {name}, crontab: '* * * * * *'{more}}}")
}

#[test]
fn start_hooks_run_by_their_order_and_readiness_waits_for_them() {
    let note = "echo \"$0\" >>\"$HERE/order\"; record";
    let stage = Stage::new()
        .hook("a.sh", &on_startup(10), &format!("{note}; wait_for go"))
        .hook("b.sh", &on_startup(1), note)
        .hook("c.sh", &on_startup(10), note);
    let operator = stage.env.start();
    stage.wait_runs("a.sh", 1);
    let answer = operator.readyz().unwrap();
    assert_eq!(answer.status, 503);
    assert!(answer.text().contains("onStartup"), "{}", answer.text());
    stage.touch("go");
    operator.wait_ready();
    let order: Vec<String> = stage
        .lines("order")
        .iter()
        .map(|path| path.rsplit('/').next().unwrap().to_owned())
        .collect();
    assert_eq!(order, ["b.sh", "a.sh", "c.sh"]);
    for hook in ["a.sh", "b.sh", "c.sh"] {
        assert_eq!(stage.runs(hook), [json!([{"binding": "onStartup"}])]);
        for message in ["queue task", "Execute hook", "Hook executed successfully"] {
            operator.wait_log(message, |line| {
                line.message() == message && line.label("hook") == Some(hook)
            });
        }
    }
    let labels = "{hook=\"b.sh\",binding=\"\",queue=\"\"}";
    for (name, expected) in [("success", 1.0), ("errors", 0.0), ("allowed_errors", 0.0)] {
        let series = format!("shell_operator_hook_run_{name}_total{labels}");
        assert_eq!(metric(&operator, &series), Some(expected), "{series}");
    }
}

#[test]
fn start_hooks_do_not_wait_for_the_api_server() {
    let stage = Stage::new().hook("a.sh", &on_startup(1), "record");
    let env = stage
        .env
        .clone()
        .kubeconfig(&crate::support::Kubeconfig::new("http://127.0.0.1:1"));
    let operator = env.start();
    stage.wait_runs("a.sh", 1);
    wait_for("the reason why it is not ready", SOON, || {
        let answer = operator.readyz()?;
        let text = answer.text();
        (text.contains("api-server") && !text.contains("first-runs")).then_some(())
    });
}

#[test]
fn schedules_fire_and_what_a_slow_hook_missed_is_one_run() {
    let config = format!(
        "configVersion: v1\nschedule: [{}, {}]",
        every_second("one", ""),
        every_second("two", "")
    );
    let stage = Stage::new().hook("slow.sh", &config, "record; wait_for go");
    let operator = stage.env.start();
    let first = stage.wait_runs("slow.sh", 1);
    let context = |name: &str| json!({"binding": name, "type": "Schedule"});
    // Both bindings fire in the same moment, in the order of the configuration; the second may have come too late to be joined.
    assert_eq!(first[0][0], context("one"));
    wait_length(&operator, "main", 5.0);
    stage.touch("go");
    let runs = stage.wait_runs("slow.sh", 2);
    let joined: Vec<Value> = runs[..2]
        .iter()
        .flat_map(|run| run.as_array().unwrap().clone())
        .collect();
    assert!(runs[1].as_array().unwrap().len() >= 4, "{runs:?}");
    for (index, got) in joined.iter().enumerate() {
        let name = ["one", "two"][index % 2];
        assert_eq!(*got, context(name), "{joined:?}");
    }
    operator.wait_log("what was joined", |line| {
        line.message() == "Binding contexts from are dropped from queue"
            && line.label("queue") == Some("main")
    });
}

#[test]
fn of_a_group_only_the_last_context_is_left() {
    let config = format!(
        "configVersion: v1\nschedule: [{}, {}]",
        every_second("one", ", group: all"),
        every_second("two", ", group: all")
    );
    let stage = Stage::new().hook("slow.sh", &config, "record; wait_for go");
    let operator = stage.env.start();
    stage.wait_runs("slow.sh", 1);
    wait_length(&operator, "main", 5.0);
    stage.touch("go");
    let runs = stage.wait_runs("slow.sh", 2);
    let expected = json!([{"binding": "two", "type": "Group", "groupName": "all"}]);
    assert_eq!(runs[1], expected, "{runs:?}");
}

#[test]
fn version_0_gets_one_context_a_run() {
    let config = "schedule: [{name: old, crontab: '* * * * * *'}]\nonStartup: 1";
    let stage = Stage::new().hook("old.sh", config, "record; wait_for go");
    let operator = stage.env.start();
    stage.wait_runs("old.sh", 1);
    stage.touch("go");
    operator.wait_ready();
    let runs = stage.wait_runs("old.sh", 3);
    assert_eq!(runs[0], json!([{"binding": "onStartup"}]));
    for run in &runs[1..] {
        assert_eq!(*run, json!([{"binding": "old"}]));
    }
}

#[test]
fn a_failing_start_hook_is_retried_in_place_until_it_succeeds() {
    // Fails twice.
    let body = "record; [ $(wc -l <\"$HERE/a.sh.log\") -gt 2 ] || { echo broken >&2; exit 3; }";
    let stage =
        Stage::new()
            .hook("a.sh", &on_startup(1), body)
            .hook("b.sh", &on_startup(2), "record");
    let operator = stage.env.start();
    for count in 1..=2 {
        let line = operator.wait_log_for("the failure", TWO_PAUSES, |line| {
            let json = line.json.as_ref();
            line.message() == "Hook failed. Will retry after delay."
                && json.and_then(|json| json["failedCount"].as_u64()) == Some(count)
        });
        assert_eq!(line.label("hook"), Some("a.sh"));
        assert_eq!(line.label("error"), Some("a.sh FAILED: broken"));
        assert!(stage.runs("b.sh").is_empty(), "what is behind it waits");
        assert_eq!(operator.readyz().unwrap().status, 503);
    }
    operator.wait_ready_for(TWO_PAUSES);
    assert_eq!(stage.runs("a.sh").len(), 3);
    assert_eq!(stage.runs("b.sh").len(), 1);
    let series = "shell_operator_hook_run_errors_total{hook=\"a.sh\",binding=\"\",queue=\"\"}";
    assert_eq!(metric(&operator, series), Some(2.0));
}

#[test]
fn a_failure_that_is_allowed_ends_the_task() {
    let config = format!(
        "configVersion: v1\nschedule: [{}]",
        every_second("may-fail", ", allowFailure: true, queue: side")
    );
    let stage = Stage::new().hook("a.sh", &config, "record; exit 1");
    let operator = stage.env.start();
    // No pause lies between them.
    stage.wait_runs("a.sh", 3);
    operator.wait_log("that it was allowed", |line| {
        line.message() == "Hook failed, but allowed to fail" && line.label("queue") == Some("side")
    });
    let labels = "{hook=\"a.sh\",binding=\"may-fail\",queue=\"side\"}";
    let allowed = format!("shell_operator_hook_run_allowed_errors_total{labels}");
    assert!(metric(&operator, &allowed) >= Some(2.0));
    let errors = format!("shell_operator_hook_run_errors_total{labels}");
    assert_eq!(metric(&operator, &errors), Some(0.0));
}

#[test]
fn a_hook_that_hangs_in_one_queue_does_not_delay_another() {
    let side = format!(
        "configVersion: v1\nschedule: [{}]",
        every_second("s", ", queue: side")
    );
    let main = format!("configVersion: v1\nschedule: [{}]", every_second("s", ""));
    let stage = Stage::new()
        .hook("hangs.sh", &side, "record; wait_for never")
        .hook("runs.sh", &main, "record");
    let operator = stage.env.start();
    stage.wait_runs("hangs.sh", 1);
    operator.wait_ready();
    let before = stage.runs("runs.sh").len();
    stage.wait_runs("runs.sh", before + 2);
    assert_eq!(stage.runs("hangs.sh").len(), 1);
}

#[test]
fn a_rate_limit_holds_runs_back() {
    let config = format!(
        "configVersion: v1\nsettings: {{executionMinInterval: 1h, executionBurst: 2}}\nschedule: [{}]",
        every_second("s", ", queue: side")
    );
    let stage = Stage::new().hook("a.sh", &config, "record");
    let mut operator = stage.env.start();
    stage.wait_runs("a.sh", 2);
    wait_length(&operator, "side", 3.0);
    assert_eq!(stage.runs("a.sh").len(), 2, "the burst and no more");
    operator.term();
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
}

#[test]
fn term_lets_a_running_hook_finish_and_begins_no_other() {
    let stage = Stage::new()
        .hook(
            "a.sh",
            &on_startup(1),
            "record; wait_for go; touch \"$HERE/finished\"",
        )
        .hook("b.sh", &on_startup(2), "record");
    let mut operator = stage.env.start();
    stage.wait_runs("a.sh", 1);
    operator.term();
    operator.wait_log("that it stops", |line| line.message() == "stopping");
    assert!(operator.is_running());
    stage.touch("go");
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
    assert!(stage.file("finished").exists());
    assert!(stage.runs("b.sh").is_empty());
}

#[test]
fn term_ends_the_process_group_of_a_hook_that_outlives_the_grace_period() {
    let stage = Stage::new().hook(
        "stubborn.sh",
        &on_startup(1),
        "trap '' TERM; sleep 1000 & record; wait; sleep 1000",
    );
    let env = stage.env.clone().flag("--stop-grace-period=1s");
    let mut operator = env.start();
    stage.wait_runs("stubborn.sh", 1);
    operator.term();
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
    wait_for("the end of its processes", SOON, || {
        operator.offspring().is_empty()
    });
}

#[test]
fn term_during_the_pause_before_a_retry_ends_it_at_once() {
    let stage = Stage::new().hook("a.sh", &on_startup(1), "record; exit 1");
    let mut operator = stage.env.start();
    operator.wait_log("the failure", |line| {
        line.message() == "Hook failed. Will retry after delay."
    });
    operator.term();
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
    assert_eq!(stage.runs("a.sh").len(), 1);
}
