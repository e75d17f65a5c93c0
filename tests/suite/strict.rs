//! Mistakes in suites: a test that is not understood is never a test that passes.

use super::{OBEDIENT, one, suite};
use crate::support::Env;

/// The suite cannot be used, and says so.
#[track_caller]
fn refused(cases: &str, told: &[&str]) {
    let output = suite(cases).run(&["test"]);
    assert_eq!(output.code, Some(2), "{cases}\n{}", output.all());
    for text in told {
        let all = output.all();
        assert!(all.contains(text), "{text:?} is not in\n{all}");
    }
}

#[test]
fn a_mistake_is_told_with_its_line_and_what_was_probably_meant() {
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}";
    let request = |request: &str| {
        format!(
            "tests:\n- name: a\n  binding: judge.example.com\n  request: {request}\n  expect: {{allowed: true}}\n"
        )
    };
    #[rustfmt::skip]
    let table = [
        ("test: []\n".to_owned(), "judge.tests.yaml:1", "a suite has no key \"test\"; did you mean `tests`?"),
        ("tests: []\n".to_owned(), "judge.tests.yaml:1", "at least one case"),
        ("tests:\n- nam: x\n".to_owned(), "judge.tests.yaml:2", "did you mean `name`?"),
        ("tests:\n- name: x\n  request: {object: {}}\n".to_owned(), "judge.tests.yaml:2", "needs `expect`"),
        (one("deny", "{}"), "judge.tests.yaml:5", "expect is empty"),
        (one("deny", "{mesage: x}"), "judge.tests.yaml:5", "did you mean `message`?"),
        (one("deny", "{allowed: nope}"), "judge.tests.yaml:5", "must be true or false, not string"),
        (one("deny", "{allowed: true, message: x}"), "judge.tests.yaml:5", "allowed has no message"),
        (one("deny", "{allowed: false, patched: {}}"), "judge.tests.yaml:5", "`patched` cannot hold"),
        (one("deny", "{message: /(/}"), "judge.tests.yaml:5", "no regular expression"),
        (one("deny", "{converted: []}"), "judge.tests.yaml:5", "expect has no key \"converted\""),
        (one("deny", "{deterministic: 1}"), "judge.tests.yaml:5", "2 to 100"),
        (one("deny", "{allowed: false}").replace("judge.", "juge."), "judge.tests.yaml:3", "did you mean `judge.example.com`?"),
        (one("deny", "{allowed: false}").replace("  binding: judge.example.com\n", ""), "judge.tests.yaml:2", "name the `binding` of the case: judge.example.com, change.example.com"),
        (format!("{}  snapshots: {{map: []}}\n", one("deny", "{allowed: false}")), "judge.tests.yaml:6", "did you mean `maps`?"),
        (format!("{}  commands: {{a/b: {{}}}}\n", one("deny", "{allowed: false}")), "judge.tests.yaml:6", "no command"),
        (request("{operation: PATCH}"), "judge.tests.yaml:4", "CREATE, UPDATE, DELETE or CONNECT"),
        (request(&format!("{{operation: UPDATE, object: {object}}}")), "judge.tests.yaml:4", "an object and an oldObject"),
        (request(&format!("{{operation: DELETE, object: {object}}}")), "judge.tests.yaml:4", "what goes is the oldObject"),
        ("tests:\n- name: a\n  context: Scheduled\n  expect: {exit: 0}\n".to_owned(), "judge.tests.yaml:3", "a context has the type"),
        ("tests:\n- name: a\n  context: {type: Schedule, object: {}}\n  expect: {exit: 0}\n".to_owned(), "judge.tests.yaml:3", "has no `object`"),
        ("tests:\n- name: a\n  context: Conversion\n  expect: {exit: 0}\n".to_owned(), "judge.tests.yaml:3", "needs `fromVersion`"),
        ("tests: [\n".to_owned(), "judge.tests.yaml:", "FAIL read the suite"),
        (format!("{0}{1}", one("deny", "{allowed: false}"), one("deny", "{allowed: false}").replace("tests:\n", "")), "judge.tests.yaml:6", "is here twice, first on line 2"),
    ];
    for (cases, place, told) in table {
        refused(&cases, &[place, told]);
    }
}

#[test]
fn one_suite_that_cannot_be_read_does_not_keep_the_others_from_running() {
    let env = suite(&one("deny", "{allowed: false}")).hook("other.sh", OBEDIENT);
    env.write("hooks/other.tests.yaml", "tests: 5\n");
    let output = env.run(&["test"]);
    assert_eq!(output.code, Some(2));
    let told = "1 passed, 0 failed, 1 could not run, 0 skipped";
    assert!(output.stdout.contains(told), "{}", output.stdout);
}

#[test]
fn a_suite_belongs_to_the_hook_beside_it() {
    let env = Env::new();
    let cases = one("deny", "{allowed: false}");
    env.write("hooks/deep/judge.tests.yaml", &cases);
    let alone = env.run(&["test"]);
    assert_eq!(alone.code, Some(2));
    assert!(
        alone.stdout.contains("there is no hook `judge`"),
        "{}",
        alone.stdout
    );

    env.write_hook("deep/judge.sh", OBEDIENT);
    let found = env.run(&["test"]).ok();
    assert!(
        found.contains("deep/judge.sh  hooks/deep/judge.tests.yaml"),
        "{found}"
    );
    for path in [
        "hooks/deep",
        "hooks/deep/judge.sh",
        "hooks/deep/judge.tests.yaml",
    ] {
        assert!(env.run(&["test", path]).ok().contains("1 passed"), "{path}");
    }

    env.write_hook("deep/judge.py", OBEDIENT);
    let several = env.run(&["test"]);
    assert_eq!(several.code, Some(2));
    assert!(
        several.stdout.contains("judge.py.tests.yaml"),
        "{}",
        several.stdout
    );
    env.write("hooks/deep/judge.sh.tests.yaml", &cases);
    std::fs::remove_file(env.hooks_dir().join("deep/judge.tests.yaml")).unwrap();
    assert!(env.run(&["test"]).ok().contains("1 passed"));
}

#[test]
fn nothing_to_test_is_no_success() {
    let empty = Env::new().quiet_hook().run(&["test"]);
    assert_eq!(empty.code, Some(2), "{}", empty.all());
    assert!(empty.stdout.contains("no tests here"), "{}", empty.stdout);
    let env = suite(&one("deny", "{allowed: false}"));
    let none = env.run(&["test", "--run", "no such case"]);
    assert_eq!(none.code, Some(2));
    assert!(
        none.stdout.contains("--run \"no such case\""),
        "{}",
        none.stdout
    );
    for arguments in [
        &["test", "--run", "("][..],
        &["test", "-o", "pdf"],
        &["test", "nowhere"],
    ] {
        assert_eq!(env.run(arguments).code, Some(2), "{arguments:?}");
    }
}

#[test]
fn a_case_whose_hook_is_broken_did_not_run_and_that_is_a_failure() {
    let env = Env::new().hook("judge.sh", "#!/bin/sh\necho 'configVersion: v9'\n");
    env.write("hooks/judge.tests.yaml", one("deny", "{allowed: false}"));
    let output = env.run(&["test"]);
    assert_eq!(output.code, Some(1), "{}", output.all());
    assert!(output.stdout.contains("did not run: "), "{}", output.stdout);
}
