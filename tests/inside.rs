//! Looking into a running operator: the debug socket, the commands that ask it, and what they say when they cannot.
//!
//! The operator is kept busy by hooks that wait on a FIFO, so that tasks are there to be seen for as long as a test wants.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::env::Output;
use crate::support::http;
use crate::support::{
    Discovery, Env, Kubeconfig, Operator, Reply, SOON, Screen, Scripted, Stream, Terminal,
    repository, wait_for,
};

/// Runs every second and then waits until somebody writes to the FIFO.
const BLOCKED: &str = "configVersion: v1\nschedule: [{name: tick, crontab: '* * * * * *'}]";
/// Fails every time, in a queue of its own, and names a third queue that stays empty.
const FAILING: &str = "configVersion: v1\nschedule:\n\
    - {name: tock, crontab: '* * * * * *', queue: side, group: g}\n\
    - {name: rare, crontab: '@yearly', queue: rare}";

fn hook(config: &str, body: &str) -> String {
    format!(
        "#!/bin/sh\nif [ \"$1\" = --config ]; then cat <<'END'\n{config}\nEND\nexit 0; fi\n{body}\n"
    )
}

/// A world with a hook that hangs in the main queue and one that fails in another.
fn busy() -> (Env, Scripted) {
    let server = Scripted::api();
    let env = Env::new().kubeconfig(&server.kubeconfig());
    let fifo = env.path().join("fifo");
    let made = env.spawn_program("mkfifo", &[&fifo.to_string_lossy()]);
    made.output(SOON).ok();
    let body = format!("cat '{}'", fifo.display());
    let env = env.hook("001/blocked.sh", &hook(BLOCKED, &body)).hook(
        "002/failing.sh",
        &hook(FAILING, "printf 'bad\\033[2J\\nday\\n' >&2; exit 3"),
    );
    (env, server)
}

/// Waits until the main queue has three tasks and the other one has failed.
#[track_caller]
fn wait_busy(env: &Env) -> Value {
    wait_for("tasks that wait", SOON, || {
        let output = env.run(&["queue", "list", "-o", "json"]);
        let list: Value = serde_json::from_str(&output.stdout).ok()?;
        let is_long = list["summary"]["mainQueueTasks"].as_u64()? >= 3;
        let has_failed = list["active"][1]["head"]["failures"].as_u64()? >= 1;
        (is_long && has_failed).then_some(list)
    })
}

#[track_caller]
fn started(env: &Env) -> Operator {
    let operator = env.start();
    wait_for("the socket", SOON, || env.debug_socket().exists());
    operator
}

/// 8.2, 8.3: every command in every form.
#[test]
fn queues_are_shown_as_text_json_and_yaml() {
    let (env, _server) = busy();
    let _operator = started(&env);
    let list = wait_busy(&env);
    let main = &list["active"][0];
    assert_eq!(main["name"], "main");
    assert_eq!(main["status"], "run first task");
    let tick = "HookRun:main:schedule:001/blocked.sh:tick";
    assert_eq!(main["tasks"][0], json!({"index": 1, "description": tick}));
    let head = &main["head"];
    assert_eq!(
        (&head["hook"], &head["state"]),
        (&json!("001/blocked.sh"), &json!("running"))
    );
    let side = &list["active"][1];
    assert_eq!(side["name"], "side");
    let description = side["tasks"][0]["description"].as_str().unwrap();
    let expected = "HookRun:side:schedule:002/failing.sh:group=g:tock:failures ";
    assert!(description.starts_with(expected), "{description}");
    assert!(
        description.ends_with(":002/failing.sh FAILED: bad\u{1b}[2J\nday"),
        "{description}"
    );
    assert!(list.get("empty").is_none());

    let text = env.run(&["queue", "list", "--show-empty"]).ok();
    assert!(text.starts_with("Queue 'main': length "), "{text}");
    for part in [
        "\n\n 1. HookRun:main:schedule:001/blocked.sh:tick\n 2. HookRun:main",
        "\n\nQueue 'side': length ",
        "002/failing.sh FAILED: bad?[2J day\n",
        "\n\nEmpty queues (1):\n- rare\n\nSummary:\n- 'main' queue: ",
        "\n- 2 other queues (1 active, 1 empty): ",
        " tasks to handle.\n\nNow:\n- main: 001/blocked.sh (tick) is running for ",
        "\n- side: 002/failing.sh (tock) ",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }

    let yaml = env.run(&["queue", "list", "-oyaml", "-e"]).ok();
    assert!(
        yaml.starts_with("active:\n- name: main\n  tasksCount: "),
        "{yaml}"
    );
    assert!(
        yaml.contains("\nempty:\n- name: rare\n  tasksCount: 0\nsummary:\n  mainQueueTasks: "),
        "{yaml}"
    );

    let main: Value = serde_json::from_str(&env.run(&["queue", "main", "-o=json"]).ok()).unwrap();
    assert_eq!(main["tasks"][0]["description"], tick);
    let text = env.run(&["queue", "main"]).ok();
    assert!(
        text.starts_with("Queue 'main': ") && !text.contains("Summary"),
        "{text}"
    );

    assert_eq!(
        env.run(&["hook", "list"]).ok(),
        "[\"001/blocked.sh\",\"002/failing.sh\"]\n"
    );
    assert_eq!(
        env.run(&["hook", "list", "-o", "yaml"]).ok(),
        "- \"001/blocked.sh\"\n- \"002/failing.sh\"\n"
    );
    assert_eq!(
        env.run(&["hook", "snapshot", "001/blocked.sh"]).ok(),
        "{}\n"
    );
    // Refusals are answers, as in the original.
    assert_eq!(
        env.run(&["hook", "snapshot", "nope.sh"]).ok(),
        "hook 'nope.sh' is not exist\n"
    );
    assert_eq!(env.run(&["raw", "/"]).ok(), "debug endpoint is alive\n");
    assert_eq!(env.run(&["raw", "/nope"]).ok(), "404 page not found\n");
}

/// A hook with a snapshot of the config maps that the server lists and streams.
fn watching() -> (Env, Scripted, Stream) {
    let stream = Stream::new();
    let offered = stream.clone();
    let server = Scripted::new(move |request| match request.path() {
        "/api/v1/configmaps" if request.is_watch() => Reply::stream(&offered),
        "/api/v1/configmaps" => Reply::json(&json!({
            "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [config_map("a", "1")],
        })),
        _ => Discovery::aggregated().answer(request),
    });
    let config =
        "configVersion: v1\nkubernetes: [{name: maps, kind: ConfigMap, jqFilter: .data.key}]";
    let env = Env::new()
        .kubeconfig(&server.kubeconfig())
        .hook("maps.sh", &hook(config, ":"));
    (env, server, stream)
}

fn config_map(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "n", "resourceVersion": version}, "data": {"key": version},
    })
}

/// 8.2: objects, and what happened to them since the start and since the last look.
#[test]
fn a_snapshot_shows_objects_and_what_happened_to_them() {
    let (env, _server, stream) = watching();
    let operator = started(&env);
    operator.wait_ready();
    let snapshot = || -> Value {
        let text = env.run(&["hook", "snapshot", "maps.sh", "-o", "json"]).ok();
        serde_json::from_str::<Value>(&text).unwrap()["maps"].clone()
    };
    let first = snapshot();
    assert_eq!(
        first["snapshot"],
        json!([{"object": config_map("a", "1"), "filterResult": "1"}])
    );
    let counts = |count: u64, added: u64, modified: u64, deleted: u64, cleaned: u64| json!({"count": count, "added": added, "modified": modified, "deleted": deleted, "cleaned": cleaned});
    assert_eq!(first["operations"]["sinceStart"], counts(1, 0, 0, 0, 0));

    stream.event("ADDED", &config_map("b", "2"));
    stream.event("MODIFIED", &config_map("b", "3"));
    stream.event("DELETED", &config_map("a", "4"));
    stream.event("DELETED", &config_map("b", "5"));
    stream.event("ADDED", &config_map("c", "6"));
    // Looking resets what happened since the last look, so the sum of the looks is what happened.
    let mut seen = 0;
    let last = wait_for("the last event", SOON, || {
        let now = snapshot();
        let increment = &now["operations"]["sinceLastExecution"];
        for key in ["added", "modified", "deleted"] {
            seen += increment[key].as_u64().unwrap();
        }
        (now["snapshot"][0]["filterResult"] == "6").then_some(now)
    });
    assert_eq!(seen, 5);
    assert_eq!(last["operations"]["sinceStart"], counts(1, 2, 1, 2, 1));
    assert_eq!(
        snapshot()["operations"]["sinceLastExecution"],
        counts(1, 0, 0, 0, 0)
    );
    let yaml = env.run(&["hook", "snapshot", "maps.sh", "-o", "yaml"]).ok();
    assert!(
        yaml.starts_with("maps:\n  snapshot:\n  - object:\n      apiVersion: v1\n"),
        "{yaml}"
    );
}

#[test]
fn the_log_level_changes_while_it_runs_and_changes_back() {
    let (env, _server, stream) = watching();
    let operator = started(&env);
    operator.wait_ready();
    let value = || -> Value {
        let text = env.run(&["config", "list", "-o", "json"]).ok();
        serde_json::from_str::<Value>(&text).unwrap()[0].clone()
    };
    assert_eq!(value()["value"], "info");
    assert_eq!(env.run(&["config", "set", "log.level", "Error"]).ok(), "");
    assert_eq!(value()["value"], "error");
    // Only a level with an end has one.
    assert!(value().get("expireAt").is_none());
    assert_eq!(
        env.run(&["config", "set", "log.level", "debug", "2s"]).ok(),
        ""
    );
    operator.wait_log("the change", |line| {
        line.contains("log level is debug until ")
    });
    assert!(value()["expireAt"].as_str().unwrap().ends_with('Z'));
    wait_for("the level of before", SOON, || value()["value"] == "error");
    let lines = operator.log_lines().len();
    stream.event("ADDED", &config_map("z", "9"));
    wait_for("the run that is not logged any more", SOON, || {
        let text = env.run(&["hook", "snapshot", "maps.sh"]).ok();
        text.contains("\"z\"")
    });
    let later = operator.log_lines();
    assert!(
        !later[lines..]
            .iter()
            .any(|line| line.contains("queue task")),
        "info is off"
    );
    assert_eq!(
        env.run(&["config", "set", "log.level", "loud"]).ok(),
        "'value' parameter is invalid: no level found\n"
    );
    assert_eq!(
        env.run(&["config", "set", "x", "y"]).ok(),
        "unknown runtime parameter \"x\"\n"
    );
    let table = env.run(&["config", "list"]).ok();
    let (head, row) = table.split_once('\n').unwrap();
    assert_eq!(head.find("VALUE"), row.find("error"), "{table}");
}

#[test]
fn the_socket_is_private_goes_with_the_operator_and_is_taken_from_the_dead_only() {
    let server = Scripted::api();
    let env = Env::new().quiet_hook().kubeconfig(&server.kubeconfig());
    let mut operator = started(&env);
    let mode = std::fs::metadata(env.debug_socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let socket = env.debug_socket().display().to_string();

    let second = env.clone().flag("--listen-port=0").flag("--tmp-dir=tmp2");
    let said = second.start().output(SOON).err();
    assert!(
        said.contains(&format!(
            "Error: debug socket '{socket}' belongs to another running process"
        )),
        "{said}"
    );
    assert!(said.contains("--debug-unix-socket"), "{said}");
    env.run(&["queue", "list"]).ok();

    operator.signal(Signal::KILL);
    operator.wait_exit(SOON);
    let said = env.run(&["queue", "list"]).err();
    assert!(
        said.starts_with(&format!(
            "Error: debug socket '{socket}': nobody listens there any more"
        )),
        "{said}"
    );
    let mut operator = env.start();
    wait_for("the socket of the new one", SOON, || {
        env.run(&["raw", "/"]).code == Some(0)
    });
    operator.term();
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
    assert!(!env.debug_socket().exists());
    let said = env.run(&["queue", "list"]).err();
    assert!(
        said.starts_with(&format!(
            "Error: debug socket '{socket}' is not exists; is the operator running"
        )),
        "{said}"
    );
}

#[test]
fn commands_that_are_not_understood_say_what_was_expected() {
    let env = Env::new();
    for (arguments, expected) in [
        (&["queue"][..], "queue needs one word: list or main"),
        (&["queue", "lost"], "list or main"),
        (&["queue", "main", "-w"], "belong to `queue list`"),
        (
            &["queue", "list", "-o", "xml"],
            "expected text, json or yaml",
        ),
        (&["queue", "list", "-t", "1ms"], "at least 100ms"),
        (
            &["queue", "list", "--hooks-dir=x"],
            "does not belong to `queue`",
        ),
        (&["hook", "list", "--watch"], "--watch"),
        (&["hook", "snapshot"], "needs the name of one hook"),
        (
            &["config", "set", "log.level"],
            "config set needs a name and a value",
        ),
        (&["raw"], "raw needs one path"),
    ] {
        let Output { code, stderr, .. } = env.run(arguments);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(
            stderr.starts_with("Error: ") && stderr.lines().count() == 1,
            "{stderr}"
        );
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
    let place = env.path().display().to_string();
    let said = env
        .run(&["queue", "list", "--debug-unix-socket", &place])
        .err();
    assert!(
        said.contains("name the socket of a running operator") || said.contains("nobody listens"),
        "{said}"
    );
}

#[test]
fn the_same_is_served_over_tcp_when_asked_for() {
    let (env, _server) = busy();
    let address = env.free();
    let operator = started(&env.flag(&format!("--debug-http-addr={address}")));
    operator.wait_log("the address", |line| {
        line.message() == "debug server listens"
    });
    let get = |path: &str| http::get(address, path);
    let answer = wait_for("the hooks", SOON, || {
        let answer = get("/hook/list.json").unwrap();
        (answer.text() != "[]\n").then_some(answer)
    });
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json(), json!(["001/blocked.sh", "002/failing.sh"]));
    assert_eq!(get("/config/set").unwrap().status, 405, "only by POST");
    assert_eq!(
        get("/queue/list.yaml").unwrap().header("content-type"),
        Some("application/yaml")
    );
}

#[test]
fn a_watched_list_is_printed_block_by_block_and_outlives_the_operator() {
    let (env, _server) = busy();
    let mut operator = started(&env.clone().flag("--stop-grace-period=0s"));
    wait_busy(&env);
    let mut watch = env.spawn(&["queue", "list", "--watch", "-t", "200ms"]);
    let blocks = |watch: &Operator| {
        let lines = watch.log_lines();
        lines.iter().filter(|line| line.text == "Summary:").count()
    };
    wait_for("three blocks", SOON, || blocks(&watch) >= 3);
    let lines = watch.log_lines();
    assert!(
        !lines.iter().any(|line| line.contains("\u{1b}")),
        "no escapes where there is no terminal"
    );
    operator.term();
    operator.wait_exit(SOON);
    watch.wait_log("that the operator is away", |line| {
        line.contains("is the operator running")
    });
    let _operator = started(&env);
    let before = blocks(&watch);
    wait_for("that it is back", SOON, || blocks(&watch) > before);
    watch.signal(Signal::INT);
    assert_eq!(watch.wait_exit(SOON).code(), Some(0));
}

/// 8.3: on a terminal the view is one screen that is drawn over itself, and Ctrl-C gives the former one back.
#[test]
fn a_watched_list_on_a_terminal_fills_one_screen_and_leaves_it_as_it_was() {
    let (env, _server) = busy();
    let mut operator = started(&env.clone().flag("--stop-grace-period=0s"));
    wait_busy(&env);
    let watched = ["queue", "list", "--watch", "-t", "200ms"];
    let mut terminal = Terminal::run(&env, (19, 50), &watched);
    let wait_screen = |what: &str, expected: &dyn Fn(&Screen) -> bool| {
        wait_for(what, SOON, || {
            let screen = terminal.screen();
            expected(&screen).then_some(screen)
        })
    };
    // More tasks than there are lines: every queue, the summary and what happens now have their place all the same.
    let parts = [
        " more",
        "Queue 'side': length ",
        "Summary:",
        "- 'main' queue: ",
        "- main: 001/blocked.sh (tick) is running for ",
        "- side: 002/failing.sh (tock)",
    ];
    let screen = wait_screen("a list that is too long", &|screen| {
        parts.iter().all(|part| screen.has(part))
    });
    let lines = screen.lines();
    assert!(lines[0].contains("  queues of /"), "{lines:#?}");
    assert_eq!(lines[0].chars().count(), 50, "cut at the edge: {lines:#?}");
    assert_eq!(lines[1], "", "and not wrapped: {lines:#?}");
    assert!(lines[2].starts_with("Queue 'main': length "), "{lines:#?}");
    assert!(screen.is_other() && !screen.shows_cursor && screen.scrolled == 0);

    operator.term();
    operator.wait_exit(SOON);
    let screen = wait_screen("that the operator is away", &|screen| {
        // Nothing is left of the list.
        screen.has("is the operator running") && screen.lines().len() < 6
    });
    assert!(!screen.has("Summary:"), "{:#?}", screen.lines());
    let _operator = started(&env);
    wait_screen("that it is back", &|screen| {
        screen.has("Summary:") && !screen.has("is the operator running")
    });

    terminal.press_ctrl_c();
    assert_eq!(terminal.keeper.wait_exit(SOON).code(), Some(0));
    let screen = terminal.screen();
    assert_eq!(screen.lines(), ["before", "after 0"]);
    assert!(!screen.is_other() && screen.shows_cursor && screen.wraps);
    assert_eq!(screen.scrolled, 0);
}

#[test]
fn an_operator_without_hooks_or_api_server_can_be_looked_at() {
    let slow = "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.05; done\necho '{configVersion: v1, onStartup: 1}'\n";
    let env = Env::new()
        .hook("slow.sh", slow)
        .kubeconfig(&Kubeconfig::new("http://127.0.0.1:1"));
    let operator = started(&env);
    let text = env.run(&["queue", "list", "-e"]).ok();
    assert!(
        text.starts_with("Summary:\n  No queues.\n\nNow:\n- not ready: "),
        "{text}"
    );
    assert_eq!(
        env.run(&["queue", "main", "-o", "json"]).ok(),
        "{\"name\":\"main\",\"tasksCount\":0,\"status\":\"Queue is not created\"}\n"
    );
    assert_eq!(env.run(&["hook", "list"]).ok(), "[]\n");
    env.write("hooks/go", "");
    operator.wait_log("the API server", |line| {
        line.contains("waiting for the API server")
    });
    wait_for("the queues", SOON, || {
        let text = env.run(&["queue", "list"]).ok();
        text.contains("- 'main' queue: empty.\n- no tasks to handle.\n")
            && text.contains("- not ready: api-server: ")
    });
}

/// What the README shows works as it is written there.
#[test]
fn the_commands_of_the_readme_work() {
    let (env, _server, _stream) = watching();
    let env = env.hook("pods.sh", &hook("configVersion: v1\nonStartup: 1", ":"));
    let operator = started(&env);
    operator.wait_ready();
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, rest) = readme
        .split_once("<!-- run: looking inside -->\n```sh\n")
        .unwrap();
    let (block, _) = rest.split_once("\n```\n").unwrap();
    assert!(block.lines().count() >= 8);
    for line in block.lines() {
        let command = line.split('#').next().unwrap();
        let mut words = command.split_whitespace();
        assert_eq!(words.next(), Some("shell-operator"), "{line}");
        let arguments: Vec<&str> = words.collect();
        if arguments.contains(&"--watch") {
            let mut watch = env.spawn(&arguments);
            watch.wait_log("the list", |line| line.contains("Summary:"));
            watch.signal(Signal::INT);
            assert_eq!(watch.wait_exit(SOON).code(), Some(0), "{line}");
            continue;
        }
        let Output {
            code,
            stdout,
            stderr,
        } = env.run(&arguments);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{line}");
        let is_refused = ["not exist", "not found", "parameter is"]
            .iter()
            .any(|word| stdout.contains(word));
        assert!(!is_refused, "{line}: {stdout}");
    }
    operator.wait_log_for("the level", Duration::from_secs(20), |line| {
        line.contains("log level is debug until")
    });
}
