//! Reports for machines, held against what their readers demand, with names and messages that try to break out of them.
//!
//! SARIF is checked with the part of its schema that we use (`tests/fixtures/sarif-2.1.0-part.json`, every object closed), JUnit by a
//! real XML parser against the elements and attributes that Jenkins' schema allows (`tests/fixtures/junit-check.py`).

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{OBEDIENT, examples, one};
use crate::support::{Env, repository};

/// What a name may hold that means something to XML, YAML, TAP, GitHub, a terminal or an address.
const HOSTILE: &str = "<a b=\"c\">&'x' ]]> # \\ \u{7}\u{1b}[31m ::error::x %0A, y: z\nline";

/// A hook with an odd name whose suite has a case for every status.
fn hostile() -> Env {
    let script = OBEDIENT.replace(
        "deny) ",
        "deny) printf 'bell \\007 <&> ]]> ::error::\\n' >&2; ",
    );
    let env = Env::new().hook("odd #1%.sh", &script);
    let name = json!(HOSTILE).to_string();
    let failing = one("deny", "{allowed: true}").replace("the case", &name);
    let skipped = one("deny", "{allowed: false}").replace("the case", "skipped");
    let passing = one("deny", "{allowed: false}").replace("the case", "passing");
    let wrong = one("deny", "{allowed: false}").replace("judge.example.com", "none");
    let rest = [skipped + "  requires: [no-such-program]\n", passing, wrong];
    let rest = rest.concat().replace("tests:\n", "");
    env.write("hooks/odd #1%.tests.yaml", format!("{failing}{rest}"));
    env
}

fn report(env: &Env, form: &str) -> String {
    let output = env.run(&["test", "-o", form]);
    assert_eq!(output.code, Some(2), "{}", output.all());
    assert_eq!(output.stderr, "", "{form}");
    output.stdout
}

/// The few words of JSON Schema that the fixture uses.
fn check(value: &Value, schema: &Value, root: &Value, path: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        return check(value, &root["definitions"][name], root, path);
    }
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{path}: {value}");
    }
    match schema["type"].as_str() {
        None => {}
        Some("object") => {
            let fields = value
                .as_object()
                .unwrap_or_else(|| panic!("{path}: {value}"));
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(
                    fields.contains_key(name.as_str().unwrap()),
                    "{path} lacks {name}"
                );
            }
            for (name, value) in fields {
                let known = schema["properties"].get(name);
                let known =
                    known.unwrap_or_else(|| panic!("{path}.{name} is no part of the schema"));
                check(value, known, root, &format!("{path}.{name}"));
            }
        }
        Some("array") => {
            let items = value
                .as_array()
                .unwrap_or_else(|| panic!("{path}: {value}"));
            assert!(
                items.len() as u64 >= schema["minItems"].as_u64().unwrap_or(0),
                "{path}"
            );
            for (index, item) in items.iter().enumerate() {
                check(item, &schema["items"], root, &format!("{path}[{index}]"));
            }
        }
        Some("integer") => {
            let number = value.as_i64().unwrap_or_else(|| panic!("{path}: {value}"));
            assert!(
                number >= schema["minimum"].as_i64().unwrap_or(i64::MIN),
                "{path}: {number}"
            );
        }
        Some("string") => {
            let text = value.as_str().unwrap_or_else(|| panic!("{path}: {value}"));
            if let Some(pattern) = schema["pattern"].as_str() {
                let regex = regex_bites::Regex::new(pattern).unwrap();
                assert!(regex.is_match(text), "{path}: {text:?} is not {pattern}");
            }
        }
        Some("boolean") => assert!(value.is_boolean(), "{path}: {value}"),
        Some(other) => panic!("the fixture has a type {other}"),
    }
}

/// The run of a SARIF log that fits the schema.
fn sarif(text: &str) -> Value {
    let log: Value = serde_json::from_str(text).unwrap();
    let path = repository().join("tests/fixtures/sarif-2.1.0-part.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    check(&log, &schema, &schema, "log");
    let run = &log["runs"][0];
    for result in run["results"].as_array().unwrap() {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(
            run["tool"]["driver"]["rules"][index]["id"],
            result["ruleId"]
        );
    }
    run.clone()
}

fn junit(text: &str) -> Value {
    let mut reader = Command::new("python3")
        .arg(repository().join("tests/fixtures/junit-check.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    reader
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let read = reader.wait_with_output().unwrap();
    assert!(read.status.success(), "{text}");
    serde_json::from_slice(&read.stdout).unwrap()
}

#[test]
fn sarif_has_a_rule_for_the_hook_a_result_for_each_failure_and_a_note_for_a_skip() {
    let run = sarif(&report(&hostile(), "sarif"));
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 2, "{run}");
    let place = &results[0]["locations"][0]["physicalLocation"];
    assert_eq!(
        place["artifactLocation"]["uri"],
        "hooks/odd%20%231%25.tests.yaml"
    );
    assert_eq!(place["artifactLocation"]["uriBaseId"], "%SRCROOT%");
    assert_eq!(place["region"]["startLine"], 2);
    assert_eq!(results[0]["ruleId"], "odd #1%.sh");
    let text = results[0]["message"]["text"].as_str().unwrap();
    assert!(text.starts_with(HOSTILE), "{text}");
    let invocation = &run["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], false);
    let notes = invocation["toolExecutionNotifications"].as_array().unwrap();
    assert_eq!(notes.len(), 1, "{invocation}");
}

#[test]
fn junit_can_be_read_by_an_xml_parser_and_its_numbers_add_up() {
    let suites = junit(&report(&hostile(), "junit"));
    assert_eq!(suites[0]["name"], "odd #1%.sh");
    assert_eq!(suites[0]["file"], "hooks/odd #1%.tests.yaml");
    let cases = suites[0]["cases"].as_array().unwrap();
    let ends: Vec<_> = cases
        .iter()
        .map(|case| case["ended"][0][0].as_str())
        .collect();
    assert_eq!(
        ends,
        [Some("failure"), Some("skipped"), None, Some("error")]
    );
    // XML 1.0 has no bell and no escape.
    let readable = HOSTILE.replace(['\u{7}', '\u{1b}'], "\u{fffd}");
    assert_eq!(cases[0]["name"], readable.as_str());
    let body = cases[0]["ended"][0][2].as_str().unwrap();
    assert!(body.starts_with("hooks/odd #1%.tests.yaml:2: "), "{body}");
    assert!(body.contains("bell \u{fffd} <&> ]]> ::error::"), "{body}");
}

#[test]
fn tap_has_one_line_for_each_case_and_yaml_behind_failures() {
    let text = report(&hostile(), "tap");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    assert_eq!(lines[..2], ["TAP version 14", "1..4"]);
    assert!(
        lines[2].starts_with("not ok 1 - odd \\#1%.sh: <a b"),
        "{text}"
    );
    assert!(
        lines[3].ends_with(": skipped # SKIP there is no no-such-program in PATH"),
        "{text}"
    );
    assert_eq!(lines[4], "ok 3 - odd \\#1%.sh: passing");
    assert!(lines[5].starts_with("not ok 4 - "), "{text}");
    assert_eq!(lines.len(), 6, "{text}");
    let block = text.split("  ---\n").nth(1).unwrap();
    let block: String = block
        .split("  ...\n")
        .next()
        .unwrap()
        .lines()
        .map(|line| format!("{}\n", &line[2..]))
        .collect();
    let told: Value =
        serde_saphyr::from_str(&block).unwrap_or_else(|error| panic!("{error}\n{block}"));
    assert_eq!(told["at"]["line"], 2);
    assert!(
        told["details"].as_str().unwrap().contains("bell \u{7}"),
        "{told}"
    );
}

#[test]
fn github_gets_commands_that_nothing_can_break_out_of() {
    let text = report(&hostile(), "github");
    let commands: Vec<&str> = text.lines().collect();
    assert_eq!(commands.len(), 4, "{text}");
    assert!(
        commands[0].starts_with(
            "::error file=hooks/odd #1%25.tests.yaml,line=2,title=odd #1%25.sh%3A <a b"
        ),
        "{text}"
    );
    assert!(
        commands[0].contains("%3A%3Aerror%3A%3Ax %250A%2C y%3A z%0Aline::verdict:%0A"),
        "{text}"
    );
    assert!(commands[1].starts_with("::notice file="), "{text}");
    assert!(
        commands[2].starts_with("::error file=hooks/odd #1%25.tests.yaml,line="),
        "{text}"
    );
    assert_eq!(commands[3], "1 passed, 1 failed, 1 errors, 1 skipped");
    assert!(!text.contains(['\u{7}', '\u{1b}']), "{text:?}");
}

#[test]
fn json_has_everything() {
    let report: Value = serde_json::from_str(&report(&hostile(), "json")).unwrap();
    for (key, count) in [("passed", 1), ("failed", 1), ("errors", 1), ("skipped", 1)] {
        assert_eq!(report[key], count, "{report}");
    }
    let case = &report["cases"][0];
    assert_eq!(case["name"], HOSTILE);
    assert_eq!(case["hook"], "odd #1%.sh");
    assert_eq!(
        (&case["status"], &case["line"]),
        (&json!("failed"), &json!(2))
    );
}

#[test]
fn a_name_cannot_move_the_cursor() {
    let output = hostile().run(&["test"]);
    assert!(
        !output.stdout.contains(['\u{7}', '\u{1b}']),
        "{:?}",
        output.stdout
    );
    assert!(output.stdout.contains("\\u{1b}[31m"), "{}", output.stdout);
}

#[test]
fn the_reports_of_a_review_point_at_the_line_of_the_field_in_a_file_of_many_objects() {
    let env = Env::new();
    let map = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n  labels: {{policy.example.com/enforce: \"true\"}}\n"
        )
    };
    let text = format!(
        "# first\n\n{}---\n{}---\n\n# {HOSTILE:?}\n{}",
        map("a"),
        map("b"),
        map("c")
    );
    env.write("odd #1%.yaml", &text);
    let lines: Vec<u64> = (1..)
        .zip(text.lines())
        .filter(|(_, line)| line.starts_with("  labels"))
        .map(|(number, _)| number)
        .collect();
    let hooks = format!("--hooks-dir={}", examples().display());
    let review = |form: &str| {
        let output = env.run(&["review", &hooks, "-f", "odd #1%.yaml", "-o", form]);
        assert_eq!(output.code, Some(1), "{}", output.all());
        output.stdout
    };
    let run = sarif(&review("sarif"));
    let results = run["results"].as_array().unwrap();
    let place = |result: &Value| result["locations"][0]["physicalLocation"].clone();
    let found: Vec<u64> = results
        .iter()
        .map(|result| place(result)["region"]["startLine"].as_u64().unwrap())
        .collect();
    assert_eq!(found, lines);
    assert_eq!(
        place(&results[0])["artifactLocation"]["uri"],
        "odd%20%231%25.yaml"
    );
    assert_eq!(results[0]["ruleId"], "require-owner.policy.example.com");
    let suites = junit(&review("junit"));
    assert_eq!(suites[0]["name"], "odd #1%.yaml");
    let findings: Value = serde_json::from_str(&review("json")).unwrap();
    assert_eq!(findings["exitCode"], 1);
    for form in ["tap", "github"] {
        assert!(review(form).contains("Namespace a has no owner"), "{form}");
    }
}
