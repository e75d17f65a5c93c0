//! What must not leak, and what must not be believed: values of objects in the log, forged lines, the environment and the files of
//! a run (T2, T4, T16, T17).

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::stage::{Kind, answers, config_map, review, script};
use crate::support::{SOON, Stage, wait_for};

const MARKER: &str = "marker-4711-of-the-secret";

fn for_secrets(choice: &str) -> Value {
    json!({
        "labelSelector": { "matchLabels": { "case": choice } },
        "rules": [{
            "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["secrets"], "operations": ["*"],
        }],
    })
}

/// Whether a line shows the marker in any form that it has on its way: plain, as in a Secret, and as in a patch of a Secret.
fn shows_marker(text: &str) -> bool {
    let encoded = STANDARD.encode(MARKER);
    // Inside of longer base64 it may begin at any of three offsets; the middle of each is the same wherever it stands.
    let inner = |offset: usize| {
        let shifted = format!("{}{MARKER}", "x".repeat(offset));
        let text = STANDARD.encode(shifted);
        text[4..text.len() - 4].to_owned()
    };
    text.contains(MARKER)
        || text.contains(&encoded)
        || (0..3).any(|offset| text.contains(&inner(offset)))
}

/// What a hook does that leaves the marker where a metric should be.
fn bad_metric() -> String {
    format!("printf '%s' '{{\"set\": \"{MARKER}\"}}' >\"$METRICS_PATH\"")
}

/// Hooks that are asked about a Secret labelled with their stem: which of them, and whether it is let in.
fn reviewing(mut stage: Stage<'static>) -> (Stage<'static>, Vec<(&'static str, bool)>) {
    let encoded = STANDARD.encode(MARKER);
    let add = json!([{ "op": "add", "path": "/data/more", "value": encoded }]);
    let wrong = json!([{ "op": "add", "path": "/nowhere/more", "value": encoded }]);
    let print = format!("printf '%s' '{{\"allowed\": {MARKER}' >\"$ADMISSION_RESPONSE_PATH\"");
    let allow = answers(&json!({ "allowed": true }));
    let change = answers(&json!({ "allowed": true, "patch": add }));
    let broken = answers(&json!({ "allowed": true, "patch": wrong }));
    let cases = [
        ("allow", true, Kind::Validating, allow),
        ("fail", false, Kind::Validating, "exit 3".to_owned()),
        (
            "crash",
            false,
            Kind::Validating,
            "kill -s KILL $$".to_owned(),
        ),
        ("garbage", false, Kind::Validating, print),
        ("measure", false, Kind::Validating, bad_metric()),
        ("change", true, Kind::Mutating, change),
        ("break", false, Kind::Mutating, broken),
    ];
    let mut expected = Vec::new();
    for (stem, allowed, kind, body) in cases {
        stage = stage.hook(stem, kind, &for_secrets(stem), &body);
        expected.push((stem, allowed));
    }
    (stage, expected)
}

/// Hooks that get the whole object, its value alone, and what cannot be computed. Each fails, and then tries again.
fn watching(mut stage: Stage<'static>) -> Stage<'static> {
    let record = format!("{}; exit 0", bad_metric());
    for (stem, filter, fail) in [
        ("whole", None, "exit 4"),
        ("value", Some(".data.value"), "kill -s KILL $$"),
        ("filter", Some(".data.value | tonumber"), "exit 5"),
        ("recorder", None, record.as_str()),
    ] {
        let mut binding = json!({
            "name": stem, "apiVersion": "v1", "kind": "Secret", "queue": stem,
            "namespace": { "nameSelector": { "matchNames": [stage.label] } },
            "includeSnapshotsFrom": [stem],
        });
        if let Some(filter) = filter {
            binding["jqFilter"] = json!(filter);
        }
        let config = json!({ "configVersion": "v1", "kubernetes": [binding] });
        let body = format!(
            "grep -q watchEvent \"$BINDING_CONTEXT_PATH\" || exit 0\n\
             if [ ! -e \"$0.failed\" ]; then touch \"$0.failed\"; {fail}; fi\n\
             echo {stem} is done"
        );
        stage = stage.script(&format!("watch-{stem}.sh"), &script(&config, &body));
    }
    stage
}

/// T16: through validation, mutation, watches with and without filters, snapshots, metrics, and hooks that fail in every way.
#[test]
fn a_value_of_a_secret_is_never_in_the_log() {
    let stage = Stage::new("secrecy")
        .env("LOG_LEVEL", "debug")
        .env("DEBUG_KUBERNETES_API", "true");
    let (stage, cases) = reviewing(watching(stage));
    let operator = stage.start();
    let path = format!("/api/v1/namespaces/{}/secrets", stage.label);
    for (stem, allowed) in cases {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": stem, "labels": { "case": stem } },
            "data": { "value": STANDARD.encode(MARKER) },
        });
        let answer = stage.api.create(&path, &secret);
        assert_eq!(answer.status == 201, allowed, "{stem}: {}", answer.text());
        let hook = format!("{stem}.sh");
        operator.wait_log("the review", |line| {
            line.label("hook") == Some(&hook) && line.label("uid").is_some()
        });
    }
    for stem in ["whole", "value", "recorder"] {
        let hook = format!("watch-{stem}.sh");
        operator.wait_log("the failure of a watching hook", |line| {
            line.label("hook") == Some(&hook) && line.message().starts_with("Hook failed")
        });
        let done = format!("{stem} is done");
        operator.wait_log("its success", |line| line.message() == done);
    }
    operator.wait_log("the filter that fails", |line| {
        line.message().contains("applyFilter error")
            && line.label("hook") == Some("watch-filter.sh")
    });
    let lines = operator.log_lines();
    assert!(
        lines
            .iter()
            .any(|line| line.label("level") == Some("debug"))
    );
    for line in lines {
        assert!(!shows_marker(&line.text), "{}", line.text);
    }
    for page in ["/metrics", "/metrics/hooks", "/readyz"] {
        let text = operator.http_get(9115, page).unwrap().text();
        assert!(!shows_marker(&text), "{page}: {text}");
    }
}

#[test]
fn the_search_for_the_marker_finds_it_in_every_form() {
    assert!(shows_marker(&format!("x{MARKER}y")));
    assert!(shows_marker(&STANDARD.encode(MARKER)));
    for before in ["", "a", "ab", "abc", "{\"patch\": "] {
        let patch = STANDARD.encode(format!("{before}{MARKER}\"}}"));
        assert!(shows_marker(&patch), "{before}");
    }
    assert!(!shows_marker("marker-4712"));
}

/// T17.
#[test]
fn a_hook_cannot_forge_lines_of_the_log() {
    let forged = r#"{"level":"error","msg":"the operator is on fire","hook":"other.sh"}"#;
    let body = format!(
        "printf 'plain\\n%s\\n\\033[31mred\\033[0m\\rback\\n' '{forged}'\n\
         printf 'complaint\\n%s\\n' '{forged}' >&2\n{}",
        answers(&json!({ "allowed": false, "message": format!("no\n{forged}\u{1b}[31m") }))
    );
    let stage = Stage::new("forged").hook("forge", Kind::Validating, &json!({}), &body);
    let operator = stage.start();
    assert_eq!(stage.create("a", &json!({})).status, 403);
    operator.wait_log("the verdict", |line| {
        line.label("hook") == Some("forge.sh") && line.contains("AdmissionResponse")
    });
    let lines = operator.log_lines();
    let mut shown = 0;
    // The first line is the name and version, for people.
    for line in lines.iter().skip(1) {
        assert!(line.json.is_some(), "not JSON: {}", line.text);
        assert!(!line.contains("\u{1b}"), "{:?}", line.text);
        if line.contains("on fire") {
            shown += 1;
            assert_eq!(line.label("hook"), Some("forge.sh"), "{}", line.text);
            // A hook may log in JSON, and its message becomes the line's. Where it came from is not for the hook to say.
            let is_verdict = line.message().contains("AdmissionResponse");
            assert!(
                is_verdict || line.label("output").is_some(),
                "{}",
                line.text
            );
        }
    }
    assert!(shown >= 2, "{lines:#?}");
}

/// What a hook noted about itself.
fn noted(stage: &Stage<'_>, file: &str) -> Vec<String> {
    let path = stage.env.path().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// T2, T4: the environment is the operator's and the documented names, whatever a request says; nobody else can read the files.
#[test]
fn a_run_has_the_documented_environment_and_private_files() {
    let stage = Stage::new("environment");
    let folder = stage.env.path().display().to_string();
    let body = format!(
        "tr '\\0' '\\n' </proc/$$/environ >{folder}/environment\n\
         for file in \"$BINDING_CONTEXT_PATH\" \"$ADMISSION_RESPONSE_PATH\"; do\n\
         stat -c '%a %n' \"$file\" \"$(dirname \"$file\")\"\ndone >{folder}/modes\n\
         test \"$ADMISSION_RESPONSE_PATH\" = \"$VALIDATING_RESPONSE_PATH\" || exit 1\n\
         test \"$ADMISSION_RESPONSE_PATH\" = \"$VALIDATION_RESPONSE_PATH\" || exit 1\n{}",
        answers(&json!({ "allowed": true }))
    );
    let stage = stage
        .hook("look", Kind::Validating, &json!({}), &body)
        .env("SECRET_X", "1");
    let program = env!("CARGO_BIN_EXE_shell-operator");
    let script = format!("umask 000; exec {program} start");
    let operator = stage.env.spawn_program("sh", &["-c", &script]);
    operator.wait_ready();
    let path = stage.path("look");

    let bad = "() { :;}; touch X $(touch X) `touch X`\nLD_PRELOAD=x; touch X";
    let mut object = config_map(bad, &json!({ bad: bad }));
    object["metadata"]["labels"] = json!({ bad: bad });
    let mut question = review("../../uid", &object);
    question["request"]["namespace"] = json!("../../etc");
    let headers = [
        ("Content-Type", "application/json"),
        ("X-Shell", "() { :;}; touch X"),
        ("Proxy", "http://127.0.0.1:1"),
    ];
    let answer = stage
        .connect()
        .request("POST", &path, &headers, question.to_string().as_bytes())
        .unwrap();
    assert_eq!(answer.json()["response"]["allowed"], true);

    let names = |lines: Vec<String>| -> BTreeSet<String> {
        let name = |line: &String| line.split('=').next().unwrap_or_default().to_owned();
        lines.iter().map(name).collect()
    };
    let environ = std::fs::read(format!("/proc/{}/environ", operator.pid())).unwrap();
    let inherited = String::from_utf8_lossy(&environ).replace('\0', "\n");
    let mut expected = names(inherited.lines().map(str::to_owned).collect());
    expected.extend(
        [
            "BINDING_CONTEXT_PATH",
            "ADMISSION_RESPONSE_PATH",
            "VALIDATING_RESPONSE_PATH",
            "VALIDATION_RESPONSE_PATH",
            "CONVERSION_RESPONSE_PATH",
            "METRICS_PATH",
            "KUBERNETES_PATCH_PATH",
        ]
        .map(str::to_owned),
    );
    assert_eq!(names(noted(&stage, "environment")), expected);
    let modes = noted(&stage, "modes");
    assert_eq!(modes.len(), 4, "{modes:?}");
    for line in modes {
        let (mode, path) = line.split_once(' ').unwrap();
        let is_file = Path::new(path).extension().is_some();
        assert_eq!(mode, if is_file { "600" } else { "700" }, "{path}");
        assert!(path.starts_with(&*stage.env.tmp_dir().to_string_lossy()));
    }
    for folder in [
        stage.env.path().to_owned(),
        stage.env.hooks_dir(),
        stage.env.tmp_dir(),
    ] {
        assert!(!folder.join("X").exists(), "{}", folder.display());
    }
    assert!(!Path::new("X").exists());
}

fn entries(folder: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(folder).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// T4.
#[test]
fn what_a_killed_operator_left_is_removed_at_the_next_start() {
    let body = "echo \"$BINDING_CONTEXT_PATH\" >\"$0.started\"; sleep 60";
    let stage = Stage::new("killed").hook("slow", Kind::Validating, &json!({}), body);
    let mut operator = stage.env.start();
    operator.wait_ready();
    let path = stage.path("slow");
    let mut connection = stage.connect();
    let question = review("u", &config_map("a", &json!({ "value": MARKER })));
    std::thread::scope(|scope| {
        // Nobody answers this one.
        scope.spawn(|| connection.post_json(&path, &question).unwrap_err());
        let started = stage.env.hooks_dir().join("slow.sh.started");
        let context = wait_for("the hook", SOON, || {
            let text = std::fs::read_to_string(&started).ok()?;
            text.strip_suffix('\n').map(str::to_owned)
        });
        assert!(std::fs::read_to_string(context).unwrap().contains(MARKER));
        std::fs::remove_file(&started).unwrap();
        operator.signal(Signal::KILL);
        operator.wait_exit(SOON);
    });
    let left = entries(&stage.env.tmp_dir());
    assert!(!left.is_empty());

    let again = stage.env.start();
    again.wait_ready();
    let now = entries(&stage.env.tmp_dir());
    assert!(now.is_disjoint(&left), "{left:?} {now:?}");
}
