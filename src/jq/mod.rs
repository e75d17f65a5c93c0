//! The only door to jq: compile a filter once, apply it to a JSON value.
//!
//! Whichever thread asks runs it; a `Filter` is immutable and shared by `Arc`. Filters are trusted configuration: there is no
//! step limit, and a filter that recurses needs the 2 MiB stack that `threads::spawn` gives. What a filter never can do here:
//! end the process (`halt` only ends the filter), read the environment (`env` and `$ENV` are empty), read further inputs, load
//! a module or write to our output. Differences from C jq are those of the jaq library.

mod assign;
mod bound;
#[cfg(test)]
mod compared;
mod place;

use std::fmt;

use jaq_core::data::JustLut;
use jaq_core::load::parse::Def;
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars};
use jaq_json::{Num, Val};
use serde::Deserialize;
use serde_json::{Map, Number, Value};

/// Definitions that jq has and jaq lacks, or that must behave differently here. They stand behind jaq's own and shadow them.
/// `join` prints null as nothing, as jq does. `halt_error` writes to nobody, so it is an ordinary error.
const PRELUDE: &str = r#"
def env: {};
def halt: halt(0);
def halt_error: error;
def halt_error($code): error;
def debug: .;
def debug(message): .;
def stderr: .;
def IN(s): any(s == .; .);
def IN(source; s): any(source == s; .);
def INDEX(f): reduce .[] as $x ({}; . + {($x | f | tostring): $x});
def INDEX(stream; f): reduce stream as $x ({}; . + {($x | f | tostring): $x});
def leaf_paths: paths(scalars);
def join($separator): reduce .[] as $x (null;
  (if . == null then "" else . + $separator end)
  + ($x | if . == null then "" elif type == "boolean" or type == "number" then tojson else . end)) // "";
def @csv: map(if type == "string" then "\"" + gsub("\""; "\"\"") + "\"" elif . == null then "" else tostring end) | join(",");
def @tsv: map(if type == "string" then gsub("\\\\"; "\\\\") | gsub("\t"; "\\t") | gsub("\n"; "\\n") | gsub("\r"; "\\r")
  elif . == null then "" else tostring end) | join("\t");
"#;

/// Definitions of jaq that the prelude replaces because they reach a native function that is not let in.
const REPLACED: &[&str] = &["halt", "halt_error", "debug", "stderr"];

/// Native functions that reach outside the filter: the process's environment, its error output, further inputs.
const BANNED: &[&str] = &["env", "debug_empty", "stderr_empty", "input", "inputs"];

/// What the program is called once its assignments are helped.
const PROGRAM: &str = "__program";

/// LIMIT: deepest nesting of a result. serde_json refuses to read more than 128 levels, and so would the hook's reader.
const MAX_RESULT_DEPTH: usize = 128;

/// Why a filter could not be compiled or applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Error {
    /// The text is not a jq program.
    Syntax(String),
    /// The program names filters or variables that do not exist.
    Undefined(String),
    /// The input is not JSON.
    Input(String),
    /// The program ended with an error for this input. The text may quote a part of the input, so it is cut short, and a
    /// caller that handles Secrets must not log it.
    Run(String),
    /// The result is nested deeper than `MAX_RESULT_DEPTH`.
    TooDeep,
    /// A program that may be anything could end the process, so it is not compiled.
    Unsafe(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(detail) => write!(out, "syntax error: {detail}"),
            Self::Undefined(names) => write!(out, "not defined: {names}"),
            Self::Input(detail) => write!(out, "the input is not JSON: {detail}"),
            Self::Run(detail) => write!(out, "{detail}"),
            Self::Unsafe(reason) => out.write_str(reason),
            Self::TooDeep => write!(
                out,
                "the result is nested deeper than {MAX_RESULT_DEPTH} levels"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// A compiled jq program and the text it came from.
pub(crate) struct Filter {
    text: String,
    program: jaq_core::Filter<JustLut<Val>>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Filter").field(&self.text).finish()
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A JSON text that was read once, for any number of filters.
pub(crate) struct Input(Val);

impl Input {
    pub(crate) fn read(text: &[u8]) -> Result<Input, Error> {
        // serde_json reads the text, because its depth limit holds; jaq's own reader would overflow the stack.
        serde_json::from_slice(text)
            .map(Input)
            .map_err(|error| Error::Input(error.to_string()))
    }
}

impl Filter {
    /// The same for a program that a hook wrote while it ran, which must not be able to end the process: the library's stack
    /// grows with the nesting of a program and with its recursion, without an end.
    pub(crate) fn compile_bounded(text: &str) -> Result<Filter, Error> {
        bound::check(text).map_err(Error::Unsafe)?;
        Filter::compile(text)
    }

    /// Compiles a program. An empty text is refused here; a binding without a filter has no `Filter` at all.
    pub(crate) fn compile(text: &str) -> Result<Filter, Error> {
        let prelude = load::parse(PRELUDE, |parser| parser.defs()).unwrap_or_default();
        let helpers = load::parse(assign::DEFINITIONS, |parser| parser.defs()).unwrap_or_default();
        // A program that does not parse goes on as it is: the loader knows the words for what is wrong.
        let helped = load::parse(text, |parser| parser.term()).map(|term| Def {
            name: PROGRAM,
            args: Vec::new(),
            body: assign::help(term),
        });
        let standard = jaq_std::defs().filter(|definition| !REPLACED.contains(&definition.name));
        let code = if helped.is_some() { PROGRAM } else { text };
        let mut definitions: Vec<Def<&str>> = Vec::new();
        let ours = prelude.into_iter().chain(helpers);
        for definition in jaq_core::defs()
            .chain(standard)
            .chain(jaq_json::defs())
            .chain(ours)
        {
            definitions.push(definition);
        }
        definitions.extend(helped);
        let natives = jaq_core::funs()
            .chain(jaq_std::funs())
            .chain(jaq_json::funs())
            .filter(|native| !BANNED.contains(&native.0) && !place::REPLACED.contains(&native.0))
            .chain(place::natives());
        let arena = Arena::default();
        let file = File { code, path: () };
        let modules = Loader::new(definitions)
            .load(&arena, file)
            .map_err(|errors| Error::Syntax(syntax_text(errors)))?;
        let program = Compiler::default()
            .with_funs(natives)
            .with_global_vars(["$ENV"])
            .compile(modules)
            .map_err(|errors| {
                let names: Vec<String> = errors
                    .into_iter()
                    .flat_map(|(_, names)| names)
                    .map(|(name, what)| format!("{} '{name}'", what.as_str()))
                    .collect();
                Error::Undefined(names.join(", "))
            })?;
        Ok(Filter {
            text: text.to_owned(),
            program,
        })
    }

    /// The program as it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Applies the program: no result is `null`, one result is itself, several are an array of them.
    pub(crate) fn apply(&self, input: &Value) -> Result<Value, Error> {
        self.run(Val::deserialize(input).map_err(|error| Error::Input(error.to_string()))?)
    }

    /// As `apply`, for a text that was read before: no tree of `Value`s is built for it.
    pub(crate) fn apply_to(&self, input: &Input) -> Result<Value, Error> {
        self.run(input.0.clone())
    }

    fn run(&self, input: Val) -> Result<Value, Error> {
        let environment = Val::obj(std::iter::empty().collect());
        let state = Ctx::<JustLut<Val>>::new(&self.program.lut, Vars::new([environment]));
        let mut results = Vec::new();
        for result in self.program.id.run((state, input)) {
            match result {
                Ok(value) => results.push(json(&value, 0)?),
                Err(exception) => match exception.get_err() {
                    Ok(error) => return Err(Error::Run(cut(&error.to_string()))),
                    // Only `halt` is left. The library's own unwrapping would exit the process here.
                    Err(_halt) => break,
                },
            }
        }
        Ok(match (results.pop(), results.is_empty()) {
            (None, _) => Value::Null,
            (Some(only), true) => only,
            (Some(last), false) => {
                results.push(last);
                Value::Array(results)
            }
        })
    }
}

/// The words of the library's errors: what was expected, and what stood there instead.
fn syntax_text(errors: load::Errors<&str, ()>) -> String {
    let mut words = Vec::new();
    for (_, error) in errors {
        match error {
            load::Error::Io(imports) => {
                words.extend(
                    imports.into_iter().map(|(path, _)| {
                        format!("cannot import '{path}': modules are not available")
                    }),
                );
            }
            load::Error::Lex(tokens) => {
                words.extend(tokens.into_iter().map(|(expected, rest)| {
                    format!("expected {}{}", expected.as_str(), before(rest))
                }))
            }
            load::Error::Parse(terms) => {
                words.extend(terms.into_iter().map(|(expected, rest)| {
                    format!("expected {}{}", expected.as_str(), before(rest))
                }))
            }
        }
    }
    words.join(", ")
}

fn before(rest: &str) -> String {
    let start: String = rest.chars().take(20).collect();
    if start.is_empty() {
        " before the end".to_owned()
    } else {
        format!(" at '{start}'")
    }
}

/// LIMIT: an error text is one log line; jq quotes whole values in it.
fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}

/// Turns a result into JSON. Keys come out sorted, whole numbers without a fraction, as in the original's engine.
fn json(value: &Val, depth: usize) -> Result<Value, Error> {
    if depth > MAX_RESULT_DEPTH {
        return Err(Error::TooDeep);
    }
    Ok(match value {
        Val::Null => Value::Null,
        Val::Bool(bool) => Value::Bool(*bool),
        Val::Num(number) => json_number(number),
        Val::BStr(bytes) | Val::TStr(bytes) => {
            Value::String(String::from_utf8_lossy(bytes).into_owned())
        }
        Val::Arr(items) => Value::Array(
            items
                .iter()
                .map(|item| json(item, depth + 1))
                .collect::<Result<_, _>>()?,
        ),
        Val::Obj(entries) => {
            let mut object = Map::new();
            for (key, entry) in entries.iter() {
                let key = match key {
                    Val::BStr(bytes) | Val::TStr(bytes) => {
                        String::from_utf8_lossy(bytes).into_owned()
                    }
                    other => other.to_string(),
                };
                object.insert(key, json(entry, depth + 1)?);
            }
            Value::Object(object)
        }
    })
}

fn json_number(number: &Num) -> Value {
    let float = match number {
        Num::Int(int) => return Value::from(*int),
        Num::Float(float) => *float,
        // Large integers and literals keep their digits as far as JSON numbers of this program reach (64 bits, then a float).
        Num::BigInt(_) | Num::Dec(_) => {
            return number
                .to_string()
                .parse::<Number>()
                .map_or(Value::Null, Value::Number);
        }
    };
    // JSON has no NaN and no infinity: jq prints null and the largest number.
    let float = if float.is_infinite() {
        f64::MAX.copysign(float)
    } else {
        float
    };
    match whole(float) {
        Some(int) => Value::from(int),
        None => Number::from_f64(float).map_or(Value::Null, Value::Number),
    }
}

/// The integer that a float stands for, if it is one that floats hold exactly.
fn whole(float: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53
    if float.fract() != 0.0 || float.abs() > EXACT {
        return None;
    }
    format!("{float:.0}").parse().ok()
}

#[cfg(test)]
mod tests {
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

    /// T13: what these would cost is the stack, and with it the process.
    #[test]
    fn a_program_that_may_be_anything_cannot_exhaust_the_stack() {
        for depth in [100, 100_000] {
            let repeated = |before: &str, after: &str| {
                format!("{}.{}", before.repeat(depth), after.repeat(depth))
            };
            for program in [
                repeated("(", ")"),
                repeated("[", "]"),
                repeated("{a:", "}"),
                repeated("", "|."),
                repeated("", "+1"),
                repeated("", ",1"),
                repeated("", ".a"),
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
                format!(".{} = 1", repeated("a", "")),
            ] {
                if let Ok(filter) = Filter::compile_bounded(&program) {
                    let _ = filter.apply(&json!({"a": 1}));
                }
            }
        }
        for recursive in [
            "def f: 1 + f; f",
            "def f: f | f; f",
            "def f: def g: f; g; f",
            "def f(g): f(f(g)); f(.)",
        ] {
            let error = Filter::compile_bounded(recursive).unwrap_err();
            assert!(matches!(error, Error::Unsafe(_)), "{recursive}: {error:?}");
        }
        for usual in [
            ".metadata.labels.\"a/b\" = \"c\" | del(.metadata.annotations.x) | .spec.template.spec.containers |= map(if .name == \"a\" then .image = \"b\" else . end)",
            "def f(x): x + 1; .a = f(.a)",
            "0 | until(. > 100000; . + 1)",
            "[limit(100000; repeat(1))] | length",
            "reduce range(100000) as $i (0; . + $i)",
        ] {
            Filter::compile_bounded(usual).unwrap();
        }
        let long = Filter::compile_bounded("[limit(100000; repeat(1))] | length").unwrap();
        assert_eq!(long.apply(&json!(null)), Ok(json!(100_000)));
        let long = Filter::compile_bounded("0 | until(. > 100000; . + 1)").unwrap();
        assert_eq!(long.apply(&json!(null)), Ok(json!(100_001)));
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

    #[test]
    fn a_filter_can_be_shared_between_threads() {
        fn check<T: Send + Sync>() {}
        check::<Filter>();
    }
}
