//! The functions over strings: CEL's own, and the extension with `split` and `replace`.
//!
//! Pure, any thread; owns nothing. Positions count characters. What could grow asks the budget first; `format` and regular
//! expressions have files of their own.

use super::format::format;
use super::pattern::regular;
use super::value::{Budget, Fault, List, Res, Value, error};

type Found<'a> = Option<Res<'a>>;

pub(super) fn call<'a>(name: &str, arguments: &[Value<'a>], budget: &Budget) -> Found<'a> {
    let (Some(Value::Text(text)), rest) = (arguments.first(), arguments.get(1..)?) else {
        return match (name, arguments) {
            ("join", [Value::List(list)]) => Some(join(list, "", budget)),
            ("join", [Value::List(list), Value::Text(between)]) => {
                Some(join(list, between, budget))
            }
            _ => None,
        };
    };
    let truth = |truth: bool| Some(Ok(Value::Bool(truth)));
    match (name, rest) {
        ("contains", [Value::Text(part)]) => truth(text.contains(part.as_ref())),
        ("startsWith", [Value::Text(part)]) => truth(text.starts_with(part.as_ref())),
        ("endsWith", [Value::Text(part)]) => truth(text.ends_with(part.as_ref())),
        ("lowerAscii", []) => Some(Ok(Value::text(text.to_ascii_lowercase()))),
        ("upperAscii", []) => Some(Ok(Value::text(text.to_ascii_uppercase()))),
        ("trim", []) => Some(Ok(Value::text(text.trim()))),
        ("strings.quote", []) => Some(Ok(Value::text(quote(text)))),
        ("charAt", [Value::Int(at)]) => Some(char_at(text, *at)),
        ("substring", [Value::Int(start)]) => Some(substring(text, *start, None)),
        ("substring", [Value::Int(start), Value::Int(end)]) => {
            Some(substring(text, *start, Some(*end)))
        }
        ("indexOf", [Value::Text(part)]) => Some(index_of(text, part, None, false)),
        ("indexOf", [Value::Text(part), Value::Int(at)]) => {
            Some(index_of(text, part, Some(*at), false))
        }
        ("lastIndexOf", [Value::Text(part)]) => Some(index_of(text, part, None, true)),
        ("lastIndexOf", [Value::Text(part), Value::Int(at)]) => {
            Some(index_of(text, part, Some(*at), true))
        }
        ("split", [Value::Text(at)]) => Some(Ok(split(text, at, -1))),
        ("split", [Value::Text(at), Value::Int(most)]) => Some(Ok(split(text, at, *most))),
        ("replace", [Value::Text(old), Value::Text(new)]) => {
            Some(replace(text, old, new, -1, budget))
        }
        ("replace", [Value::Text(old), Value::Text(new), Value::Int(most)]) => {
            Some(replace(text, old, new, *most, budget))
        }
        ("format", [Value::List(list)]) => Some(format(text, list, budget)),
        ("matches" | "find" | "findAll", [Value::Text(pattern), rest @ ..]) => {
            Some(regular(name, text, pattern, rest, budget))
        }
        _ => None,
    }
}

fn join<'a>(list: &List<'a>, between: &str, budget: &Budget) -> Res<'a> {
    budget.spend(list.len().saturating_mul(between.len()) / 8)?;
    let mut parts = Vec::with_capacity(list.len());
    for element in list.iter() {
        match element {
            Value::Text(text) => parts.push(text),
            _ => return error("unsupported type conversion of an element to string"),
        }
    }
    Ok(Value::text(parts.join(between)))
}

pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A position in a text of so many characters; the end is one, too.
fn place(at: i64, length: usize) -> Result<usize, Fault> {
    match usize::try_from(at) {
        Ok(position) if position <= length => Ok(position),
        _ => error(format!("index out of range: {at}")),
    }
}

fn char_at<'a>(text: &str, at: i64) -> Res<'a> {
    let at = place(at, text.chars().count())?;
    let found: String = text.chars().skip(at).take(1).collect();
    Ok(Value::text(found))
}

fn substring<'a>(text: &str, start: i64, end: Option<i64>) -> Res<'a> {
    let length = text.chars().count();
    if let Some(end) = end.filter(|end| start > *end) {
        return error(format!(
            "invalid substring range. start: {start}, end: {end}"
        ));
    }
    let start = place(start, length)?;
    let end = end.map_or(Ok(length), |end| place(end, length))?;
    let part: String = text.chars().skip(start).take(end - start).collect();
    Ok(Value::text(part))
}

/// The first place from `at` on, or the last one up to it.
fn index_of<'a>(text: &str, part: &str, at: Option<i64>, last: bool) -> Res<'a> {
    let length = text.chars().count();
    if part.is_empty() {
        return Ok(match at {
            Some(at) => Value::Int(at),
            None if last => Value::int(length),
            None => Value::Int(0),
        });
    }
    let limit = match at {
        None if last => length,
        None => 0,
        Some(at) => match usize::try_from(at) {
            Ok(at) if at >= length => return Ok(Value::Int(-1)),
            Ok(at) => at,
            Err(_) => return error(format!("index out of range: {at}")),
        },
    };
    let places = text.char_indices().enumerate();
    let mut found = places.filter_map(|(index, (octet, _))| {
        let fits = if last { index <= limit } else { index >= limit };
        (fits && text.get(octet..)?.starts_with(part)).then_some(index)
    });
    let found = if last { found.last() } else { found.next() };
    Ok(found.map_or(Value::Int(-1), Value::int))
}

fn split<'a>(text: &str, at: &str, most: i64) -> Value<'a> {
    let parts: Vec<&str> = if at.is_empty() {
        // Between all characters, with nothing at the ends.
        let pieces = usize::try_from(most).unwrap_or(usize::MAX);
        let mut parts: Vec<&str> = Vec::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            if parts.len() + 1 >= pieces {
                break;
            }
            let (head, tail) = rest.split_at_checked(c.len_utf8()).unwrap_or((rest, ""));
            parts.push(head);
            rest = tail;
        }
        parts.extend((!rest.is_empty() && pieces > 0).then_some(rest));
        parts
    } else {
        match usize::try_from(most) {
            Ok(most) => text.splitn(most, at).collect(),
            Err(_) => text.split(at).collect(),
        }
    };
    Value::texts(parts.into_iter().map(str::to_owned))
}

fn replace<'a>(text: &str, old: &str, new: &str, most: i64, budget: &Budget) -> Res<'a> {
    let count = if old.is_empty() {
        text.chars().count() + 1
    } else {
        text.matches(old).count()
    };
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(count);
    budget.spend(most.saturating_mul(new.len()) / 8)?;
    Ok(Value::text(text.replacen(old, new, most)))
}

/// The shortest text that reads as this double, in the notation Go chooses.
pub(super) fn double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Go's shortest notation: plain from 0.0001 up to six digits before the point.
    if value == 0.0 || (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
