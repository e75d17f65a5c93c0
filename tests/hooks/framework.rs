//! The shell framework: which function is called, what the functions tell, and what a failure prints. The texts are
//! those that hooks written for the original rely on.

use std::process::Command;

use serde_json::{Value, json};

use super::{Finished, Workplace, hooks, run};

/// Runs a bash hook made of `body` between the usual first and last line.
fn bash(body: &str, context: &Value) -> Finished {
    bash_text(body, &context.to_string())
}

fn bash_text(body: &str, context: &str) -> Finished {
    let place = Workplace::new();
    run(hook(&place, body), context)
}

fn hook(place: &Workplace, body: &str) -> Command {
    let library = hooks().join("lib/shell_lib.sh");
    let text = format!("source {}\n{body}\nhook::run \"$@\"\n", library.display());
    let mut command = Command::new("bash");
    command.arg(place.write("hook.sh", &text));
    command
}

/// Every context type with the functions that are tried for it, `__main__` left out.
fn handlers() -> Vec<(Value, Vec<&'static str>)> {
    let event = |kind: &str| json!({ "binding": "b.c", "type": "Event", "watchEvent": kind });
    vec![
        (json!({ "binding": "onStartup" }), vec!["__on_startup"]),
        (
            json!({ "binding": "b.c", "type": "Synchronization", "objects": [] }),
            vec![
                "__on_kubernetes::b.c::synchronization",
                "__on_kubernetes::b.c",
            ],
        ),
        (
            event("Added"),
            vec![
                "__on_kubernetes::b.c::added",
                "__on_kubernetes::b.c::added_or_modified",
                "__on_kubernetes::b.c",
            ],
        ),
        (
            event("Modified"),
            vec![
                "__on_kubernetes::b.c::modified",
                "__on_kubernetes::b.c::added_or_modified",
                "__on_kubernetes::b.c",
            ],
        ),
        (
            event("Deleted"),
            vec!["__on_kubernetes::b.c::deleted", "__on_kubernetes::b.c"],
        ),
        (
            json!({ "binding": "b.c", "type": "Group", "groupName": "g" }),
            vec!["__on_group::g"],
        ),
        // As versions before v1.4.14 wrote it: the binding is the name of the group.
        (
            json!({ "binding": "g", "type": "Group" }),
            vec!["__on_group::g"],
        ),
        (
            json!({ "binding": "b.c", "type": "Schedule" }),
            vec!["__on_schedule::b.c"],
        ),
        (
            json!({ "binding": "b.c", "type": "Validating" }),
            vec![
                "__on_kubernetes_validating::b.c::validating",
                "__on_kubernetes_validating::b.c",
                "__on_validating::b.c",
            ],
        ),
        (
            json!({ "binding": "b.c", "type": "Mutating" }),
            vec![
                "__on_kubernetes_mutating::b.c::mutating",
                "__on_kubernetes_mutating::b.c",
                "__on_mutating::b.c",
            ],
        ),
        (
            json!({ "binding": "b.c", "type": "Conversion", "fromVersion": "x.io/v1", "toVersion": "v2" }),
            vec!["__on_conversion::b.c::x.io.v1::v2", "__on_conversion::b.c"],
        ),
        // The old configuration version has no types.
        (json!({ "binding": "b.c", "resourceEvent": "add" }), vec![]),
    ]
}

/// A hook that defines the functions `names`, each of which prints its name.
fn naming(names: &[&str]) -> String {
    let define = |name: &&str| format!("{name}() {{ echo called {name}; }}\n");
    names.iter().map(define).collect()
}

#[test]
fn the_first_existing_handler_is_called_and_main_is_the_last_resort_so_45() {
    for (context, names) in handlers() {
        let names = [names.as_slice(), &["__main__"]].concat();
        for first in 0..names.len() {
            let finished = bash(&naming(&names[first..]), &json!([context]));
            let wanted = format!("called {}\n", names[first]);
            assert_eq!(finished.stdout, wanted, "{context}: {finished:?}");
            assert_eq!(finished.status, Some(0), "{context}");
        }
        let finished = bash("", &json!([context]));
        let names = names.join(", ");
        let wanted = format!("ERROR: Can't find any handler from the list: {names}\n");
        assert_eq!((finished.status, finished.stderr), (Some(1), wanted));
    }
}

#[test]
fn a_review_is_dispatched_alike_whatever_its_layout_so_45() {
    let body = "__main__() { hook::_get_possible_handler_names; context::get review.x; }
        jq() { echo jq >&2; command jq \"$@\"; }";
    for kind in ["Validating", "Mutating"] {
        let head = format!(r#""binding":"a-b.example.com","type":"{kind}""#);
        // The layout of the operator costs only the jq of the hook's own question.
        let quick = bash_text(body, &format!(r#"[{{{head},"review":{{"x":"é"}}}}]"#));
        assert_eq!((quick.status, quick.stderr.as_str()), (Some(0), "jq\n"));
        let lower = kind.to_lowercase();
        let wanted = format!(
            "__on_kubernetes_{lower}::a-b.example.com::{lower}\n__on_kubernetes_{lower}::a-b.example.com\n\
             __on_{lower}::a-b.example.com\n__main__\né\n"
        );
        assert_eq!(quick.stdout, wanted);

        for other in [
            format!(r#"[{{"review":{{"x":"é"}},{head}}}]"#),
            format!("\n [ {{{head}, \"review\":{{\"x\":\"é\"}} }} \n]\n\n"),
        ] {
            let finished = bash_text(body, &other);
            assert_eq!(
                (finished.status, finished.stdout),
                (Some(0), wanted.clone())
            );
        }
    }
}

#[test]
fn config_is_printed_without_any_context() {
    let place = Workplace::new();
    let body = "__config__() { echo 'configVersion: v1'; echo 'onStartup: 1'; }";
    let config = super::config(hook(&place, body));
    assert_eq!(config, json!({ "configVersion": "v1", "onStartup": 1 }));
}

#[test]
fn a_failing_config_fails_the_call() {
    let place = Workplace::new();
    let mut command = hook(&place, "__config__() { false; echo never; }");
    let finished = run(
        {
            command.arg("--config");
            command
        },
        "",
    );
    assert_eq!((finished.status, finished.stdout.as_str()), (Some(1), ""));
}

#[test]
fn contexts_are_handled_in_order_each_in_its_own_subshell() {
    let body = r#"
        seen=nothing
        tell() {
          echo "$seen $BINDING_CONTEXT_CURRENT_TYPE $CONTEXT_LENGTH $(context::get name)"
          bash -c 'echo "$BINDING_CONTEXT_CURRENT_INDEX $BINDING_CONTEXT_CURRENT_BINDING"'
          seen=something
        }
        __on_schedule::a() { tell; }
        __main__() { tell; }"#;
    let contexts = json!([
        { "binding": "a", "type": "Schedule", "name": 1 },
        { "binding": "two words * [x]", "type": "Schedule", "name": "x y" },
        { "name": null },
    ]);
    let finished = bash(body, &contexts);
    let wanted = "nothing Schedule 3 1\n0 a\nnothing Schedule 3 x y\n1 two words * [x]\nnothing  3 null\n2 unknown\n";
    assert_eq!(
        (finished.status, finished.stdout.as_str()),
        (Some(0), wanted)
    );
}

#[test]
fn a_failure_stops_the_hook_with_its_status_and_one_trace() {
    let body = "inner() {\n  exit_with 42\n}\nexit_with() {\n  bash -c \"exit $1\"\n}\n__main__() {\n  echo started\n  inner\n}";
    let finished = bash(body, &json!([{ "binding": "a" }, { "binding": "b" }]));
    assert_eq!(finished.status, Some(42));
    assert_eq!(
        finished.stdout, "started\n",
        "the second context is not reached"
    );

    let frames: Vec<&str> = finished.stderr.lines().collect();
    assert_eq!(frames[0], "Traceback (most recent call last):");
    assert!(
        frames[1].ends_with("/hook.sh\", line 12, in main"),
        "{}",
        frames[1]
    );
    assert_eq!(frames[2], "    hook::run \"$@\"");
    let tail = &frames[frames.len() - 7..];
    for (place, file_and_line) in [
        (0, "line 10, in __main__"),
        (2, "line 3, in inner"),
        (4, "line 6, in exit_with"),
    ] {
        assert!(tail[place].starts_with("  File \"/"), "{}", tail[place]);
        assert!(tail[place].ends_with(file_and_line), "{}", tail[place]);
    }
    assert_eq!(
        (tail[1], tail[3], tail[5], tail[6]),
        (
            "    inner",
            "    exit_with 42",
            "    bash -c \"exit $1\"",
            "Exiting with status 42"
        )
    );
    assert_eq!(finished.stderr.matches("Traceback").count(), 1);
}

#[test]
fn strict_mode_is_on() {
    for (mistake, complaint) in [
        (
            "echo \"$no_such_variable\"",
            "no_such_variable: unbound variable",
        ),
        ("false | true", "Exiting with status 1"),
        (
            "echo \"$(false; echo x)\" >/dev/null; x=$(false; echo x)",
            "Exiting with status 1",
        ),
        (
            "echo /no-such-directory/*",
            "no match: /no-such-directory/*",
        ),
    ] {
        let body = format!("__main__() {{ {mistake}; echo went on; }}");
        let finished = bash(&body, &json!([{ "binding": "a" }]));
        assert_eq!(finished.status, Some(1), "{mistake}");
        assert_eq!(finished.stdout, "", "{mistake}");
        assert!(
            finished.stderr.contains(complaint),
            "{mistake}: {}",
            finished.stderr
        );
    }
    // Who switches it off knows about the failure, and nothing ends.
    let finished = bash(
        "__main__() { set +e; false; echo went on; }",
        &json!([{ "binding": "a" }]),
    );
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("went on\n", "")
    );
}

#[test]
fn what_is_no_array_of_contexts_is_refused() {
    for context in ["{}", "nonsense", "[1]"] {
        let finished = bash_text("__main__() { echo called; }", context);
        assert_ne!(finished.status, Some(0), "{context}");
        assert_eq!(finished.stdout, "", "{context}");
    }
}

/// A command, what it prints, and its status.
const QUESTIONS: &[(&str, &str, u8)] = &[
    ("context::jq -r .object.metadata.name", "web", 0),
    ("context::jq -c '.object.items | length'", "2", 0),
    (
        "context::jq -r --arg key e2e-test '.object.metadata.labels[$key]'",
        "x",
        0,
    ),
    ("context::jq -e .object.no", "false", 1),
    ("context::jq -n '1'", "1", 0),
    (
        "context::global::jq -r '.[-1].object.metadata.name'",
        "web",
        0,
    ),
    ("context::get object.metadata.name", "web", 0),
    ("context::get .object.metadata.name", "web", 0),
    (
        "context::get object.metadata.labels.\\\"app.kubernetes.io/name\\\"",
        "shop",
        0,
    ),
    (
        "context::get \"object.metadata.labels.'app.kubernetes.io/name'\"",
        "shop",
        0,
    ),
    ("context::get object.metadata.labels.e2e-test", "x", 0),
    ("context::get object.items.0.port", "80", 0),
    ("context::get 'object.items[0].port'", "80", 0),
    ("context::get object.absent.too", "null", 0),
    ("context::get --required object.yes", "true", 0),
    ("context::get --required object.nothing", "null", 0),
    (
        "context::get --required object.absent.too 2>&1",
        "Error: Value object.absent.too required, but doesn't exist",
        1,
    ),
    (
        "context::get a..b 2>&1",
        "Error: 'a..b' is not a path: check its dots and quotes",
        1,
    ),
    ("context::has object", "", 0),
    ("context::has object.nothing", "", 0),
    ("context::has object.items.1", "", 0),
    ("context::has object.items.2", "", 1),
    ("context::has object.metadata.labels.e2e-test", "", 0),
    (
        "context::has object.metadata.labels.\\\"app.kubernetes.io/name\\\"",
        "",
        0,
    ),
    ("context::has object.absent", "", 1),
    ("context::has object.absent.too", "", 1),
    ("context::is_true object.yes", "", 0),
    ("context::is_true object.no", "", 1),
    ("context::is_true object.metadata.name", "", 1),
    ("context::is_false object.no", "", 0),
    ("context::is_false object.nothing", "", 1),
    ("context::is_null object.nothing", "", 0),
    ("context::is_null object.absent", "", 0),
    ("context::is_null object.no", "", 1),
];

#[test]
fn context_functions_answer_about_the_current_context() {
    let context = json!({
        "binding": "a", "type": "Schedule",
        "object": {
            "metadata": { "name": "web", "labels": { "app.kubernetes.io/name": "shop", "e2e-test": "x" } },
            "items": [{ "port": 80 }, null], "yes": true, "no": false, "nothing": null,
        },
    });
    let asked: String = QUESTIONS
        .iter()
        .map(|(question, ..)| format!("status=0\n{question} || status=$?\necho \"=$status\"\n"))
        .collect();
    let wanted: String = QUESTIONS
        .iter()
        .map(|(_, printed, status)| {
            let newline = if printed.is_empty() { "" } else { "\n" };
            format!("{printed}{newline}={status}\n")
        })
        .collect();
    let body = format!("__on_schedule::a() {{\n{asked}}}\n__main__() {{ :; }}");
    // Alone, and as the last of two: the two ways by which the element is cut out of the array.
    for contexts in [json!([context]), json!([{ "binding": "other" }, context])] {
        let finished = bash(&body, &contexts);
        assert_eq!(
            (finished.stdout, finished.stderr.as_str()),
            (wanted.clone(), "")
        );
    }
}

#[test]
fn paths_become_jq_paths() {
    let cases = [
        (
            "a.\"b.c\".0.d-e",
            ".a.\"b.c\"[0].\"d-e\"",
            "a.\"b.c\".0",
            "d-e",
        ),
        ("a.'b.c'", ".a.\"b.c\"", "a", "\"b.c\""),
        ("a", ".a", "", "a"),
        ("0.a", ".[0].a", "0", "a"),
        ("a.b[0].c", ".a.b[0].c", "a.b[0]", "c"),
        ("a/b.c", ".\"a/b\".c", "a/b", "c"),
    ];
    let asked: String = cases
        .iter()
        .map(|(path, ..)| {
            let path = format!("'{}'", path.replace('\'', "'\\''"));
            format!("context::_convert_user_path_to_jq_path {path}; context::_dirname {path}; context::_basename {path}\n")
        })
        .collect();
    let finished = bash(
        &format!("__main__() {{\n{asked}}}"),
        &json!([{ "binding": "a" }]),
    );
    let wanted: String = cases
        .iter()
        .map(|(_, path, parent, last)| format!("{path}\n{parent}\n{last}\n"))
        .collect();
    assert_eq!((finished.status, finished.stdout), (Some(0), wanted));
}

#[test]
fn large_contexts_pass_unharmed() {
    // Far more than a pipe holds (64 KiB), so a reader that stops early would be noticed.
    let padding = "é".repeat(300_000);
    let context = json!({ "binding": "a.b.c", "type": "Validating", "padding": padding });
    let body = "__main__() { context::jq -r '.padding | length'; context::jq -n 1; }";
    let finished = bash(body, &json!([context]));
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("300000\n1\n", "")
    );
    assert_eq!(finished.status, Some(0));
}

#[test]
fn objects_are_converted_to_the_version_of_the_rule_with_or_without_its_group() {
    for (to, expected) in [("v2", "x.io/v2"), ("y.io/v2", "y.io/v2")] {
        let context = json!([{
            "binding": "b", "type": "Conversion", "fromVersion": "v1", "toVersion": to,
            "review": { "request": { "objects": [
                { "apiVersion": "x.io/v1", "spec": { "n": 1 } }, { "apiVersion": "x.io/v1", "spec": {} },
            ] } },
        }]);
        let body = "__on_conversion::b() { hook::convert '.spec.m = .spec.n | del(.spec.n)'; }";
        assert_eq!(
            bash(body, &context).json(),
            json!({ "convertedObjects": [
                { "apiVersion": expected, "spec": { "m": 1 } },
                { "apiVersion": expected, "spec": { "m": null } },
            ] })
        );
    }
}

#[test]
fn the_answer_functions_write_one_json_object() {
    let odd = "a \"quoted\" \\ back\\nslash & <é>\n\ttab\u{1}";
    let readable = "a \"quoted\" \\ back\\nslash & <é>\n\ttab ";
    let cases = [
        ("hook::allow", json!({ "allowed": true })),
        (
            "hook::deny \"$ODD\"",
            json!({ "allowed": false, "message": readable }),
        ),
        (
            "hook::deny \"$ODD\" 422",
            json!({ "allowed": false, "status": { "code": 422, "message": readable } }),
        ),
        ("hook::warn", json!({ "allowed": true, "warnings": [] })),
        (
            "hook::warn \"$ODD\" 'second one'",
            json!({ "allowed": true, "warnings": [readable, "second one"] }),
        ),
        (
            "hook::patch '[{\"op\":\"remove\",\"path\":\"/a\"}]'",
            json!({ "allowed": true, "patch": [{ "op": "remove", "path": "/a" }] }),
        ),
        ("hook::deny no; hook::allow", json!({ "allowed": true })),
        (
            "hook::fail_conversion \"$ODD\"",
            json!({ "failedMessage": readable }),
        ),
        // Older hooks know the file by this name only.
        (
            "unset ADMISSION_RESPONSE_PATH; hook::allow",
            json!({ "allowed": true }),
        ),
    ];
    for (call, wanted) in cases {
        let place = Workplace::new();
        let mut command = hook(&place, &format!("__main__() {{ {call}; }}"));
        command.env("ODD", odd);
        let finished = run(command, "[{\"binding\":\"a\"}]");
        assert_eq!(finished.json(), wanted, "{call}");
    }
    let finished = bash(
        "__main__() { hook::deny no way; }",
        &json!([{ "binding": "a" }]),
    );
    assert_eq!((finished.status, finished.answer.as_str()), (Some(1), ""));
    assert!(
        finished
            .stderr
            .starts_with("Error: hook::deny: 'way' is not an HTTP status code\n")
    );
}

#[test]
fn the_image_layout_works_and_takes_libraries_of_users() {
    let place = Workplace::new();
    let library = hooks().join("lib");
    let read = |path: &str| std::fs::read_to_string(library.join(path)).unwrap();
    let shell_lib = place.write("shell_lib.sh", &read("shell_lib.sh"));
    for part in ["answer.sh", "context.sh", "hook.sh"] {
        let path = format!("frameworks/shell/{part}");
        place.write(&path, &read(&path));
    }
    place.write(
        "frameworks/shell/team/greeting.sh",
        "declare -A GREETING=([en]=hello)",
    );
    place.write("frameworks/shell/.hidden.sh", "echo hidden");
    place.write("frameworks/shell/notes.txt", "echo notes");

    let body = "__main__() { echo \"${GREETING[en]} $(context::get binding)\"; }";
    let text = format!("source {}\n{body}\nhook::run \"$@\"\n", shell_lib.display());
    let mut command = Command::new("bash");
    command.arg(place.write("hooks/hook.sh", &text));
    let finished = run(command, "[{\"binding\":\"a\"}]");
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("hello a\n", "")
    );
}

#[test]
fn a_failure_for_the_user_is_marked_from_however_deep() {
    let body = "render() { hook::phase render; hook::fail \"Service 'api' not found\"$'\\n'\"and no other\"; }\n\
                __main__() { local text; text=$(render); hook::allow; }";
    let ended = bash(body, &json!([{ "binding": "b", "type": "Validating" }]));
    assert_eq!((ended.status, ended.answer.as_str()), (Some(1), ""));
    let marked: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|line| line.starts_with("FAIL") || line.starts_with("PHASE"))
        .collect();
    assert_eq!(
        marked,
        [
            "PHASE: render",
            "FAIL[render]: Service 'api' not found",
            "FAIL[render]: and no other"
        ]
    );
    let plain = bash(
        "__main__() { hook::fail plain; }",
        &json!([{ "binding": "b" }]),
    );
    assert_eq!(
        (plain.status, plain.stderr.as_str()),
        (Some(1), "FAIL: plain\n")
    );
}
