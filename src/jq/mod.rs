//! The only door to jq: compile a filter once, apply it to a JSON value.
//!
//! Whichever thread asks runs it; a `Filter` is immutable and shared by `Arc`. Filters are trusted configuration: there is no
//! step limit. The objects are not: none can exhaust the stack, which is the 8 MiB that `threads::spawn` gives. What a filter never
//! can do here: end the process (`halt` only ends the filter), read the environment (`env` and `$ENV` are empty), read further inputs, load
//! a module or write to our output. Differences from C jq are those of the jaq library.

mod assign;
mod bound;
pub(crate) mod child;
#[cfg(test)]
mod compared;
mod depth;
#[cfg(test)]
mod exhaustion;
mod place;
#[cfg(test)]
mod tests;

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
    /// Compiles a program. An empty text is refused here; a binding without a filter has no `Filter` at all. Refused is also what
    /// could exhaust the stack, which the library uses without a limit.
    pub(crate) fn compile(text: &str) -> Result<Filter, Error> {
        bound::check(text).map_err(Error::Unsafe)?;
        Filter::compile_apart(text)
    }

    /// The same without the check, in a process that may die of it.
    fn compile_apart(text: &str) -> Result<Filter, Error> {
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
            .chain(place::natives())
            .chain([depth::native()]);
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
    #[cfg(test)]
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

    /// The library panics for a few inputs; that is the end of this run and of nothing else.
    fn run(&self, input: Val) -> Result<Value, Error> {
        depth::begin();
        let run = std::panic::AssertUnwindSafe(|| self.run_unprotected(input));
        std::panic::catch_unwind(run)
            .unwrap_or_else(|_| Err(Error::Run("the program cannot be run".to_owned())))
    }

    fn run_unprotected(&self, input: Val) -> Result<Value, Error> {
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
