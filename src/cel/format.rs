//! `format`, the function that puts values into a text, as the API server does it for American readers.
//!
//! Pure, any thread; owns nothing. Clauses whose output depends on more of a language than commas are unknown, not guessed.

use super::text::{double, quote};
use super::time::show_duration;
use super::value::{Budget, Fault, List, Res, Value, error, unknown};

pub(super) fn format<'a>(pattern: &str, arguments: &List<'a>, budget: &Budget) -> Res<'a> {
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
