//! The functions over strings: CEL's own, the extension with `split`, `replace` and `format`, and regular expressions.
//!
//! Pure, any thread; owns nothing. Positions count characters. The engine of regular expressions is the one that jq filters bring;
//! it reads nearly what RE2 reads, and a pattern in which the two might differ is unknown, not guessed.

use regex_bites::Regex;

use super::time::show_duration;
use super::value::{Budget, Fault, List, Res, Value, error, unknown};

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

fn quote(text: &str) -> String {
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

fn format<'a>(pattern: &str, arguments: &List<'a>, budget: &Budget) -> Res<'a> {
    let mut text = String::new();
    let mut next = 0;
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        if rest.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        let mut precision = None;
        if rest.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            let Ok(parsed) = digits.parse::<usize>() else {
                return error("error while parsing the precision");
            };
            // More digits than a double has; beyond that it is a way to ask for memory.
            precision = Some(parsed.min(400));
        }
        let Some(argument) = arguments.get(next) else {
            return error(format!("index {next} out of range"));
        };
        next += 1;
        let Some(clause) = rest.next() else {
            return error("unexpected end of string");
        };
        let part = format_clause(clause, precision, &argument)?;
        budget.spend(part.len() / 8 + 1)?;
        text.push_str(&part);
    }
    Ok(Value::text(text))
}

fn format_clause(
    clause: char,
    precision: Option<usize>,
    value: &Value<'_>,
) -> Result<String, Fault> {
    if let Value::Unknowable(name) = value {
        return unknown(*name);
    }
    match (clause, value) {
        ('s', _) => shown(value, false),
        ('d', Value::Int(int)) => Ok(int.to_string()),
        ('d', Value::Uint(uint)) => Ok(uint.to_string()),
        ('b', Value::Bool(value)) => Ok(u8::from(*value).to_string()),
        ('f', Value::Double(value)) if value.is_finite() => {
            Ok(grouped(&format!("{value:.*}", precision.unwrap_or(6))))
        }
        ('e' | 'f', Value::Double(_) | Value::Text(_)) => {
            unknown("the clauses %e and %f of format for other than plain numbers")
        }
        ('b' | 'o' | 'x' | 'X', Value::Int(int)) => {
            let sign = if *int < 0 { "-" } else { "" };
            Ok(format!("{sign}{}", radix(clause, int.unsigned_abs())))
        }
        ('b' | 'o' | 'x' | 'X', Value::Uint(uint)) => Ok(radix(clause, *uint)),
        ('x' | 'X', Value::Text(text)) => Ok(hex(clause, text.as_bytes())),
        ('x' | 'X', Value::Bytes(bytes)) => Ok(hex(clause, bytes)),
        ('d' | 'b' | 'o' | 'x' | 'X' | 'e' | 'f', _) => {
            let given = value.type_name();
            error(format!("the clause %{clause} cannot be used on {given}"))
        }
        _ => error(format!("unrecognized formatting clause {clause:?}")),
    }
}

fn radix(clause: char, value: u64) -> String {
    match clause {
        'b' => format!("{value:b}"),
        'o' => format!("{value:o}"),
        'x' => format!("{value:x}"),
        _ => format!("{value:X}"),
    }
}

fn hex(clause: char, octets: &[u8]) -> String {
    octets
        .iter()
        .map(|octet| {
            if clause == 'x' {
                format!("{octet:02x}")
            } else {
                format!("{octet:02X}")
            }
        })
        .collect()
}

/// Commas between groups of three digits, since the API server formats for American readers.
fn grouped(number: &str) -> String {
    let (sign, rest) = match number.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", number),
    };
    let (whole, fraction) = rest.split_once('.').unwrap_or((rest, ""));
    let mut text = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// A value by `%s`; inside of a list or a map it looks like a literal.
fn shown(value: &Value<'_>, inside: bool) -> Result<String, Fault> {
    let wrapped = |name: &str, text: String| {
        if inside {
            format!("{name}({text:?})")
        } else {
            text
        }
    };
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) if inside && value.is_finite() => format!("{value:.6}"),
        Value::Double(value) => double(*value),
        Value::Text(text) if inside => quote(text),
        Value::Text(text) => text.clone().into_owned(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if inside => format!("b{}", quote(text)),
            Ok(text) => text.to_owned(),
            Err(_) => return error("invalid UTF-8 in bytes, cannot convert to string"),
        },
        Value::Duration(nanos) => wrapped("duration", show_duration(*nanos)),
        Value::Timestamp(moment) => wrapped("timestamp", moment.shown()?),
        Value::Type(name) => (*name).to_owned(),
        Value::List(list) => {
            let parts: Result<Vec<String>, Fault> =
                list.iter().map(|element| shown(&element, true)).collect();
            format!("[{}]", parts?.join(", "))
        }
        Value::Map(map) => {
            let mut parts = Vec::new();
            for (key, value) in map.entries() {
                parts.push(format!("{}:{}", shown(&key, true)?, shown(&value, true)?));
            }
            parts.sort();
            format!("{{{}}}", parts.join(", "))
        }
        Value::Unknowable(name) => return unknown(*name),
        other => {
            return error(format!(
                "the clause %s cannot be used on {}",
                other.type_name()
            ));
        }
    })
}

fn regular<'a>(
    name: &str,
    text: &str,
    pattern: &str,
    rest: &[Value<'a>],
    budget: &Budget,
) -> Res<'a> {
    // The engine takes time proportional to the product.
    budget.spend(pattern.len() + (text.len() / 8).saturating_mul(pattern.len() / 4 + 1))?;
    if !is_understood_alike(pattern, text) {
        return unknown(format!("the regular expression {pattern:?}"));
    }
    let Ok(regex) = Regex::new(pattern) else {
        return unknown(format!("the regular expression {pattern:?}"));
    };
    let most = match rest {
        [] => usize::MAX,
        [Value::Int(most)] if name == "findAll" => usize::try_from(*most).unwrap_or(usize::MAX),
        _ => return error("no such overload"),
    };
    match name {
        "matches" => Ok(Value::Bool(regex.is_match(text))),
        "find" => Ok(Value::text(
            regex.find(text).map_or("", |found| found.as_str()),
        )),
        _ => {
            let found = regex.find_iter(text).take(most);
            Ok(Value::texts(found.map(|found| found.as_str().to_owned())))
        }
    }
}

/// Whether our engine and RE2 surely agree: no escapes or flags but those both have, no case folding beyond ASCII, nothing that one
/// of them calls an error.
fn is_understood_alike(pattern: &str, text: &str) -> bool {
    let mut rest = pattern.chars().peekable();
    let mut in_class = false;
    let mut repeated = false;
    while let Some(c) = rest.next() {
        let repeats = matches!(c, '*' | '+') || (c == '{' && !in_class);
        match c {
            '\\' => match rest.next() {
                Some(c) if c.is_ascii_punctuation() && !matches!(c, '<' | '>') => {}
                Some('d' | 'D' | 's' | 'S' | 'w' | 'W' | 'n' | 'r' | 't' | 'f' | 'v' | 'a') => {}
                Some('b' | 'B' | 'A' | 'z') if !in_class && rest.peek() != Some(&'{') => {}
                _ => return false,
            },
            '[' if !in_class => {
                in_class = true;
                rest.next_if_eq(&'^');
                // A bracket at the start is an ordinary character to RE2.
                if rest.peek() == Some(&']') {
                    return false;
                }
            }
            '[' if rest.next_if_eq(&':').is_some() => {
                // A named class, such as [:alpha:].
                while rest
                    .next_if(|c| c.is_ascii_alphabetic() || *c == '^')
                    .is_some()
                {}
                if rest.next() != Some(':') || rest.next() != Some(']') {
                    return false;
                }
            }
            '[' | '&' | '~' if in_class => return false,
            ']' => in_class = false,
            '(' if !in_class => {
                if rest.next_if_eq(&'?').is_some() && !flags_are_alike(&mut rest, pattern, text) {
                    return false;
                }
            }
            // Two repetitions in a row are an error to RE2 alone.
            _ if repeats && !in_class && repeated => return false,
            '{' if !in_class => {
                if !count_is_alike(&mut rest) {
                    return false;
                }
            }
            _ => {}
        }
        repeated = repeats && !in_class;
    }
    true
}

/// After `(?`: a group that is not captured, or the flags that both have.
fn flags_are_alike(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    pattern: &str,
    text: &str,
) -> bool {
    for c in rest.by_ref() {
        match c {
            ':' | ')' => return true,
            'i' if pattern.is_ascii() && text.is_ascii() => {}
            's' | 'm' | 'U' | '-' => {}
            _ => return false,
        }
    }
    false
}

/// After `{`: one or two numbers of at most three digits, since RE2 stops at 1000.
fn count_is_alike(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    let mut digits = 0;
    let mut first = true;
    for c in rest.by_ref() {
        match c {
            '0'..='9' => digits += 1,
            ',' if first && digits > 0 => {
                first = false;
                digits = 0;
            }
            '}' => return digits > 0 || !first,
            _ => return false,
        }
        if digits > 3 {
            return false;
        }
    }
    false
}
