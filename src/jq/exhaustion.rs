//! Tests: neither a program nor an object can exhaust the stack, and with it end the process.

use serde_json::{Value, json};

use super::{Error, Filter};

/// What `threads::spawn` gives to threads that compile and apply filters.
const STACK: usize = 8 * 1024 * 1024;

#[expect(
    clippy::disallowed_methods,
    reason = "a test needs the stack of a watch"
)]
fn on_the_stack_of_a_watch(body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(body);
    thread.unwrap().join().unwrap();
}

fn run(program: &str, input: &Value) -> Result<Value, Error> {
    Filter::compile(program)?.apply(input)
}

/// C4: what a hook prints for `--config` may be anything.
#[test]
fn no_program_can_exhaust_the_stack() {
    on_the_stack_of_a_watch(|| {
        let chain_of_lists = (0..100).fold(json!(1), |inner, _| json!([inner]));
        for depth in [10, 60, 100, 140, 200, 290, 5_000, 100_000] {
            let repeated = |before: &str, after: &str| {
                format!("{}.{}", before.repeat(depth), after.repeat(depth))
            };
            let chain: String = (1..depth)
                .map(|number| format!("def f{number}: [f{}]; ", number - 1))
                .collect();
            for program in [
                repeated("(", ")"),
                repeated("[", "]"),
                repeated("{a:", "}"),
                repeated("", "|."),
                repeated("", "|.a"),
                repeated("", "+1"),
                repeated("", ",1"),
                repeated("", ".a"),
                repeated("", ".[0]?"),
                repeated("-", ""),
                repeated("if . then ", " end"),
                repeated("if ", " then . end"),
                repeated("try ", ""),
                repeated("def f: ", "; ."),
                repeated("\"\\(", ")\""),
                repeated(". as $x | ", ""),
                repeated("label $x | ", ""),
                repeated("reduce . as $x (.;", ")"),
                repeated("", " and 1"),
                repeated("map(", ")"),
                repeated("walk(", ")"),
                repeated("with_entries(", ")"),
                repeated("first(", ")"),
                repeated("any(", ")"),
                repeated("sub(\"a\";", ")"),
                repeated("del(", ")"),
                repeated("limit(1;", ")"),
                format!(".{} = 1", repeated("a", "")),
                // What is in comments and in texts is no program, and hides none.
                ".|#;\n".repeat(depth) + ".",
                "[#]\n".repeat(depth) + "1" + &"]".repeat(depth),
                ".|\"),;\"|".repeat(depth) + ".",
                "(#\\\n)\n".repeat(depth) + "." + &")".repeat(depth),
                format!("def f0: .; {chain} f{}", depth - 1),
            ] {
                let filter = match Filter::compile(&program) {
                    Ok(filter) => filter,
                    Err(error) => {
                        let is_deep = matches!(error, Error::Unsafe(_));
                        assert!(depth > 10 || !is_deep, "{program}: {error}");
                        continue;
                    }
                };
                let _ = filter.apply(&json!(1));
                // These visit everything below every item, so that a deep value takes for ever.
                if !["walk", "with_entries", "sub"]
                    .iter()
                    .any(|slow| program.starts_with(slow))
                {
                    let _ = filter.apply(&chain_of_lists);
                }
            }
        }
    });
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let error = Filter::compile(&deep).unwrap_err();
    assert!(matches!(error, Error::Unsafe(_)), "{error:?}");
}

#[test]
fn programs_as_people_write_them_are_not_refused() {
    let fields: Vec<String> = (0..300).map(|n| format!("f{n}: .spec.f{n}.x")).collect();
    let definitions: String = (0..20)
        .map(|n| format!("def f{n}(x): if x then [.a, .b] | add else . end; "))
        .collect();
    for usual in [
        ".metadata.labels.\"a/b\" = \"c\" | del(.metadata.annotations.x) | .spec.template.spec.containers |= map(if .name == \"a\" then .image = \"b\" else . end)",
        "def f(x): x + 1; .a = f(.a)",
        "# a comment; with (brackets\n.a # and another",
        "\"text with ( [ { and \\(.a) \\\" | , ;\"",
        &format!("{{{}}}", fields.join(", ")),
        &format!("{definitions} f1(true)"),
        &format!("{}.a", ".a | ".repeat(100)),
    ] {
        if let Err(error) = Filter::compile(usual) {
            panic!("{usual}: {error}");
        }
    }
    let long = "[limit(100000; repeat(1))] | length";
    assert_eq!(run(long, &json!(null)), Ok(json!(100_000)));
    let until = "0 | until(. > 100000; . + 1)";
    assert_eq!(run(until, &json!(null)), Ok(json!(100_001)));
    let folded = "reduce range(100000) as $i (0; . + $i)";
    assert_eq!(run(folded, &json!(null)), Ok(json!(4_999_950_000_i64)));
    let last = "def f: if . > 100000 then . else . + 1 | f end; 0 | f";
    assert_eq!(run(last, &json!(null)), Ok(json!(100_001)));
}

/// A list that somebody made long must not be able to end the process by a definition that calls itself for each item.
#[test]
fn recursion_ends_before_the_stack_does() {
    on_the_stack_of_a_watch(|| {
        let sum = "def sum: if length == 0 then 0 else .[0] + (.[1:] | sum) end; sum";
        assert_eq!(run(sum, &json!([1, 2, 3])), Ok(json!(6)));
        let many = Value::from(vec![1; 5_000]);
        for endless in [
            sum,
            "def f: 1 + f; f",
            "def f: [f]; f",
            "def f: f | f; f",
            "def f: def g: [f]; g; f",
            "path(def f: .[0] | (f | .); f)",
            "reduce range(200000) as $i (.; [.])",
            "last(foreach range(200000) as $i (.; {a: .}))",
            "def f: if . == null then . else [.] | f end; f",
        ] {
            let error = run(endless, &many).unwrap_err();
            assert!(matches!(error, Error::Run(_)), "{endless}: {error:?}");
        }
    });
}

/// T13: objects come from anybody, and the stack is that of a watch.
#[test]
fn no_text_in_an_object_can_exhaust_the_stack_or_the_memory() {
    let hostile = json!({
        "deep": "[".repeat(200_000),
        "closed": format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)),
        "objects": "{\"a\":".repeat(100_000),
        "path": "a.".repeat(100_000),
        "count": 9_223_372_036_854_775_807_i64,
        "nested": serde_json::from_str::<Value>(&format!("{}{}", "[".repeat(120), "]".repeat(120))).unwrap(),
    });
    for program in [
        ".deep | fromjson",
        ".closed | fromjson",
        ".objects | fromjson",
        "[.[] | fromjson?] | length",
        ".closed | tonumber",
        "setpath(.path | split(\".\"); 1)",
        "getpath(.path | split(\".\")) = 1",
        "delpaths([.path | split(\".\")])",
        "\"aaaa\" * .count",
        ".x[.count] = 1",
        ".x[5000000] = 1",
    ] {
        assert!(
            matches!(
                run(program, &hostile),
                Err(Error::Run(_)) | Ok(Value::Number(_))
            ),
            "{program}"
        );
    }
    for program in [
        ".nested | tojson | length > 0",
        ".nested | [..] | length > 0",
        ".nested | walk(.) | length > 0",
        ".nested | flatten | length == 0",
        ".nested | tostring | fromjson | length > 0",
        ".nested | [paths] | length > 0",
        ".nested == .nested",
        "[.nested, .nested] | unique | length == 1",
        "(.nested | ..) |= . | true",
        "[.nested | recurse | @json] | length > 0",
    ] {
        assert_eq!(run(program, &hostile), Ok(json!(true)), "{program}");
    }
}
