//! The log as pipelines read it: the fields of a run, what hooks print, levels, and lines that nobody can forge.

use serde_json::{Value, json};

use crate::support::stage::script;
use crate::support::{Env, Line, Operator, SOON, Scripted};

/// A hook that runs once, at the start.
fn at_start(body: &str) -> String {
    script(&json!({ "configVersion": "v1", "onStartup": 1 }), body)
}

/// Runs a hook once and answers all lines of an operator that has ended.
fn lines_of(env: &Env) -> Vec<Line> {
    let server = Scripted::api();
    let env = env.clone().kubeconfig(&server.kubeconfig());
    let mut operator: Operator = env.start();
    operator.wait_ready();
    operator.term();
    assert_eq!(operator.wait_exit(SOON).code(), Some(0));
    operator.into_lines()
}

/// What the hook printed: level, message, and its own fields.
fn printed(lines: &[Line]) -> Vec<(String, String, Value)> {
    let of_hook = lines.iter().filter(|line| line.label("output").is_some());
    of_hook
        .map(|line| {
            let mut json = line.json.clone().unwrap();
            let fields = json.as_object_mut().unwrap();
            fields.retain(|key, _| key.starts_with("hook_") || key == "proxyJsonLog");
            let level = line.label("level").unwrap().to_owned();
            (level, line.message().to_owned(), json)
        })
        .collect()
}

fn text(line: &str) -> (String, String, Value) {
    ("info".to_owned(), line.to_owned(), json!({}))
}

const PRINTS: &str = r#"cat <<'OUT'
plain
{"msg": "told", "level": "error", "time": "never", "count": 2, "deep": {"a": [1]}}
{"foo":
  "baz"}
[
1
]
{"level": "debug", "msg": "not shown at info"}
{ never whole
OUT
printf 'without end' >&2
"#;

#[test]
fn what_a_hook_prints_becomes_records_and_nothing_of_it_is_lost() {
    let told = |level: &str, message: &str, mut fields: Value| {
        fields["proxyJsonLog"] = json!(true);
        (level.to_owned(), message.to_owned(), fields)
    };
    let error = told(
        "error",
        "told",
        json!({"hook_count": 2, "hook_deep": {"a": [1]}}),
    );
    let result = told("info", "hook result", json!({"hook_foo": "baz"}));
    let array = |flag: bool| match flag {
        false => vec![text("["), text("1"), text("]")],
        true => vec![text("[\n1\n]")],
    };
    for proxy in [false, true] {
        let mut env = Env::new().hook("a.sh", &at_start(PRINTS));
        if proxy {
            env = env.flag("--log-proxy-hook-json");
        }
        let lines = lines_of(&env);
        let mut expected = vec![text("plain"), error.clone(), result.clone()];
        expected.extend(array(proxy));
        expected.push(text("{ never whole"));
        let (stderr, stdout): (Vec<_>, Vec<_>) = printed(&lines)
            .into_iter()
            .partition(|(_, message, _)| message == "without end");
        assert_eq!(stdout, expected, "proxy {proxy}");
        assert_eq!(stderr, [text("without end")]);
        let of_stderr = lines.iter().find(|line| line.message() == "without end");
        assert_eq!(of_stderr.unwrap().label("output"), Some("stderr"));
        assert!(
            lines.iter().all(|line| !line.is_stderr),
            "all of it on stdout"
        );
    }
}

/// Key order and form of every line, for pipelines that do not parse JSON.
#[test]
fn every_line_has_its_keys_in_the_order_of_the_original() {
    let env = Env::new()
        .hook("a.sh", &at_start("echo '{\"b\": 1, \"a\": 2}'; echo plain"))
        .env("LOG_LEVEL", "debug");
    let lines = lines_of(&env);
    let first = &lines[0].text;
    assert!(
        first.starts_with("shell-operator ") && lines[0].json.is_none(),
        "{first}"
    );
    for line in &lines[1..] {
        // Keys as they stand in the text; values here hold no braces or quotes with colons at the top level.
        let text = &line.text;
        let keys = top_level_keys(text);
        let (head, rest): (Vec<&str>, Vec<&str>) = keys
            .iter()
            .map(String::as_str)
            .partition(|key| matches!(*key, "level" | "logger" | "msg" | "source"));
        assert!(text.starts_with("{\"level\":\""), "{text}");
        assert_eq!(keys[..head.len()], head[..], "{text}");
        assert_eq!(rest.last(), Some(&"time"), "{text}");
        let fields = &rest[..rest.len() - 1];
        assert!(fields.is_sorted(), "{text}");
        let is_debug = matches!(line.label("level"), Some("debug" | "trace"));
        let is_output = line.label("output").is_some();
        assert_eq!(head.contains(&"source"), is_debug && !is_output, "{text}");
        let time = line.label("time").unwrap();
        assert!(time.len() == 24 && time.ends_with('Z'), "{text}");
    }
}

/// The keys of one JSON object, in the order of the text.
fn top_level_keys(text: &str) -> Vec<String> {
    let (mut keys, mut depth, mut word) = (Vec::new(), 0, String::new());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                word.clear();
                while let Some(letter) = letters.next_if(|letter| *letter != '"') {
                    word.push(letter);
                    if letter == '\\' {
                        word.extend(letters.next());
                    }
                }
                letters.next();
                if depth == 1 && letters.peek() == Some(&':') {
                    keys.push(word.clone());
                }
            }
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
    }
    keys
}

#[test]
fn text_for_people_has_the_same_words_and_one_line_a_record() {
    let forged = "printf 'red \\033[31m\\rback\\n'; echo '{\"msg\": \"two\\\\nlines\"}'";
    let env = Env::new()
        .hook("a.sh", &at_start(forged))
        .flag("--log-type=text")
        .flag("--log-no-time");
    let lines = lines_of(&env);
    let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
    let begins = |start: &str| texts.iter().any(|text| text.starts_with(start));
    assert!(
        begins("INFO  Execute hook binding=onStartup event=onStartup event.id=0"),
        "{texts:#?}"
    );
    assert!(begins("INFO  two\\nlines "), "{texts:#?}");
    assert!(!texts.iter().any(|text| text.contains(['\u{1b}', '\r'])));
    assert!(
        texts.iter().skip(1).all(|text| {
            ["INFO  ", "WARN  ", "ERROR "]
                .iter()
                .any(|level| text.starts_with(level))
        }),
        "{texts:#?}"
    );
}

/// The fields that log pipelines join lines by.
#[test]
fn all_lines_of_a_run_name_its_task_and_its_event() {
    let config = json!({
        "configVersion": "v1",
        "schedule": [
            { "name": "one", "crontab": "* * * * * *", "queue": "q" },
            { "name": "two", "crontab": "* * * * * *", "queue": "r" },
        ],
    });
    let server = Scripted::api();
    let env = Env::new()
        .kubeconfig(&server.kubeconfig())
        .hook("start.sh", &at_start("echo began"));
    env.write_hook(
        "a.sh",
        &script(
            &config,
            "echo text; echo '{\"msg\": \"json\", \"task.id\": \"forged\"}'",
        ),
    );
    let operator = env.start();
    let label = |line: &Line, key: &str| line.label(key).unwrap_or_default().to_owned();
    let first = operator.wait_log("a task", |line| {
        line.message() == "queue task" && line.label("binding") == Some("one")
    });
    let (task, event) = (label(&first, "task.id"), label(&first, "event.id"));
    assert!(
        !task.is_empty() && !event.is_empty() && event != "0",
        "{first:?}"
    );
    for message in ["Execute hook", "text", "json", "Hook executed successfully"] {
        let line = operator.wait_log(message, |line| {
            line.message() == message && line.label("task.id") == Some(&task)
        });
        for (key, expected) in [
            ("hook", "a.sh"),
            ("binding", "one"),
            ("event", "schedule"),
            ("event.id", event.as_str()),
            ("queue", "q"),
            ("task", "HookRun"),
        ] {
            assert_eq!(line.label(key), Some(expected), "{key}: {}", line.text);
        }
        let is_output = matches!(message, "text" | "json");
        assert_eq!(
            line.label("output"),
            is_output.then_some("stdout"),
            "{}",
            line.text
        );
    }
    // One tick, two tasks.
    let other = operator.wait_log("the other task", |line| {
        line.message() == "queue task"
            && line.label("binding") == Some("two")
            && line.label("event.id") == Some(&event)
    });
    assert_ne!(label(&other, "task.id"), task);
    // A start has no event behind it.
    let began = operator.wait_log("the start", |line| line.message() == "began");
    assert_eq!(began.label("event.id"), Some("0"), "{}", began.text);
    assert_eq!(began.label("event"), Some("onStartup"));
}
