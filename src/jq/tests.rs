//! Tests of filters: results, errors, and what a filter cannot reach.

use serde_json::json;

use super::*;

fn run(program: &str, input: &Value) -> Result<Value, Error> {
    Filter::compile(program)?.apply(input)
}

#[test]
fn results_are_single_several_or_none() {
    let pod = json!({"metadata": {"name": "a", "labels": {"z": "1", "b": "2"}}, "spec": {"n": [1, 2, 3]}});
    for (program, expected) in [
        (".metadata.labels", json!({"b": "2", "z": "1"})),
        (".metadata.nothing.deeper", Value::Null),
        (".nope.labels // {}", json!({})),
        (".spec.n[]", json!([1, 2, 3])),
        (".metadata.name, .spec.n[0]", json!(["a", 1])),
        ("empty", Value::Null),
        (".metadata.name | select(. == \"b\")", Value::Null),
        ("[.spec.n[] | select(. > 1)]", json!([2, 3])),
        ("null", Value::Null),
        (
            "{name: .metadata.name, n: (.spec.n | add)}",
            json!({"name": "a", "n": 6}),
        ),
        ("4 / 2", json!(2)),
        ("1.5", json!(1.5)),
        ("1 / 0", json!(f64::MAX)),
        ("nan", Value::Null),
        ("pow(2; 10)", json!(1024)),
        (
            "12345678901234567890",
            json!(12_345_678_901_234_567_890_u64),
        ),
        ("\"aGk=\" | @base64d", json!("hi")),
        ("[1, null, \"a\", true] | join(\",\")", json!("1,,a,true")),
        ("[] | join(\",\")", json!("")),
        ("[\"a\\\"b\", 1, null] | @csv", json!("\"a\"\"b\",1,")),
        ("[\"a\\tb\", 1] | @tsv", json!("a\\tb\t1")),
        ("2 | IN(1, 2)", json!(true)),
        ("[{\"k\": \"x\"}] | INDEX(.k)", json!({"x": {"k": "x"}})),
        (
            ".metadata.labels | to_entries | map(.key) | sort",
            json!(["b", "z"]),
        ),
        ("del(.spec) | keys", json!(["metadata"])),
        (".metadata.name | test(\"^[a-z]$\")", json!(true)),
        ("[limit(2; .spec.n[])]", json!([1, 2])),
        ("debug | stderr | .metadata.name", json!("a")),
        ("[..|strings] | length", json!(3)),
    ] {
        let result = run(program, &pod).unwrap_or_else(|error| panic!("{program}: {error}"));
        assert_eq!(result, expected, "{program}");
    }
}

/// As C jq does it; the library alone refuses to look into null.
#[test]
fn assignment_makes_what_is_above_and_deletion_needs_nothing() {
    for (program, input, expected) in [
        (".a.b.c = 1", json!({}), json!({"a": {"b": {"c": 1}}})),
        (
            ".a.b = (.a | length)",
            json!({"x": 1}),
            json!({"x": 1, "a": {"b": 0}}),
        ),
        (
            ".a.b |= (. // 5)",
            json!({"a": {"b": 1}}),
            json!({"a": {"b": 1}}),
        ),
        (".a.b += 2", json!({"a": null}), json!({"a": {"b": 2}})),
        (".a.b //= 3", json!({}), json!({"a": {"b": 3}})),
        (
            ".a[\"b/c\"].d = 1 | .e.f = 2",
            json!({}),
            json!({"a": {"b/c": {"d": 1}}, "e": {"f": 2}}),
        ),
        (
            "if true then .a.b = 1 else . end",
            json!({}),
            json!({"a": {"b": 1}}),
        ),
        (
            "map(.a.b = 1)",
            json!([{}, {"a": {"b": 0}}]),
            json!([{"a": {"b": 1}}, {"a": {"b": 1}}]),
        ),
        ("def f: .a.b = 1; f", json!({}), json!({"a": {"b": 1}})),
        (
            ".a.b = (1, 2)",
            json!({}),
            json!([{"a": {"b": 1}}, {"a": {"b": 2}}]),
        ),
        ("del(.a.b.c)", json!({"x": 1}), json!({"x": 1})),
        ("del(.a.b, .x)", json!({"x": 1, "y": 2}), json!({"y": 2})),
        (
            "del(.a.b)",
            json!({"a": {"b": 1, "c": 2}}),
            json!({"a": {"c": 2}}),
        ),
        ("del(.a[0])", json!({"a": [1, 2]}), json!({"a": [2]})),
        (
            "del(.a[] | select(. > 1))",
            json!({"a": [1, 2]}),
            json!({"a": [1]}),
        ),
        (
            "(.a[] | select(.n == 1)).m.o = 2",
            json!({"a": [{"n": 1, "m": {}}]}),
            json!({"a": [{"n": 1, "m": {"o": 2}}]}),
        ),
    ] {
        let filter = Filter::compile(program).unwrap();
        assert_eq!(filter.apply(&input), Ok(expected), "{program}");
    }
    // What is there and is no object stays an error.
    let wrong = Filter::compile(".a.b = 1").unwrap();
    wrong.apply(&json!({"a": 1})).unwrap_err();
}

#[test]
fn no_input_is_null() {
    assert_eq!(run(".", &Value::Null), Ok(Value::Null));
    assert_eq!(run(".a.b", &Value::Null), Ok(Value::Null));
}

#[test]
fn a_program_that_cannot_be_compiled_says_why() {
    for (program, word) in [
        ("", "term"),
        (".a |", "term"),
        ("{", "closing brace"),
        (".a ]", "']'"),
        ("nosuch", "nosuch"),
        ("$nosuch", "$nosuch"),
        ("input", "input"),
        ("[inputs]", "inputs"),
        ("import \"a\" as a; .", "modules are not available"),
        ("\"unclosed", "closing quote"),
    ] {
        let error = Filter::compile(program).expect_err(program).to_string();
        assert!(error.contains(word), "{program}: {error}");
        assert!(!error.contains('\n'), "{program}: {error}");
    }
}

#[test]
fn an_error_while_running_is_a_value() {
    for program in [
        ".a.b",
        "error(\"boom\")",
        "1 + \"a\"",
        "\"x\" | fromjson",
        "halt_error",
        "{} | halt_error(3)",
    ] {
        assert!(
            matches!(run(program, &json!({"a": 1})), Err(Error::Run(_))),
            "{program}"
        );
    }
    assert_eq!(
        run("error(\"boom\")", &Value::Null),
        Err(Error::Run("\"boom\"".to_owned()))
    );
}

#[test]
fn halt_ends_the_filter_and_not_the_process() {
    assert_eq!(run("halt", &json!(1)), Ok(Value::Null));
    assert_eq!(run("1, halt, 2", &json!(1)), Ok(json!(1)));
}

#[test]
fn the_environment_is_empty() {
    assert_eq!(run("env", &Value::Null), Ok(json!({})));
    assert_eq!(run("$ENV", &Value::Null), Ok(json!({})));
    assert_eq!(
        run("env.PATH, $ENV.PATH", &Value::Null),
        Ok(json!([null, null]))
    );
}

#[test]
fn the_input_is_not_changed_and_text_gives_the_same_as_a_value() {
    let input = json!({"a": {"b": 1}, "big": 9_223_372_036_854_775_807_i64});
    let copy = input.clone();
    let filter = Filter::compile(".a.b = 2 | .big").unwrap();
    assert_eq!(
        filter.apply(&input),
        Ok(json!(9_223_372_036_854_775_807_i64))
    );
    assert_eq!(input, copy);
    let text = Input::read(input.to_string().as_bytes()).unwrap();
    assert_eq!(filter.apply_to(&text), filter.apply(&input));
    assert!(matches!(Input::read(b"{"), Err(Error::Input(_))));
    let deep = "[".repeat(200_000);
    assert!(matches!(Input::read(deep.as_bytes()), Err(Error::Input(_))));
}

#[test]
fn a_result_that_is_too_deep_is_refused() {
    assert_eq!(
        run("reduce range(300) as $i (1; [.])", &Value::Null),
        Err(Error::TooDeep)
    );
}

#[test]
fn a_filter_can_be_shared_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Filter>();
}
