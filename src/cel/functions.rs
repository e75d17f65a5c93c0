//! Operators, conversions, collections and optionals of CEL, and the way to the other functions.
//!
//! Pure, any thread; owns nothing. A function is found by its name and by what its arguments are at run time; if nothing fits, that
//! is CEL's "no such overload". Whatever could make something much larger than its arguments asks the budget first.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::kubernetes;
use super::text;
use super::time::{Timestamp, duration_part, read_duration, show_duration};
use super::value::{
    Budget, Fault, List, Res, Value, double_of, equal, error, order, unknown, whole,
};

type Found<'a> = Option<Res<'a>>;

pub(super) fn call<'a>(name: &str, arguments: &[Value<'a>], budget: &Budget) -> Res<'a> {
    for argument in arguments {
        if let Value::Unknowable(name) = argument {
            return unknown(*name);
        }
    }
    operator(name, arguments, budget)
        .or_else(|| arithmetic(name, arguments))
        .or_else(|| conversion(name, arguments))
        .or_else(|| collection(name, arguments, budget))
        .or_else(|| optional(name, arguments))
        .or_else(|| moment(name, arguments))
        .or_else(|| text::call(name, arguments, budget))
        .or_else(|| kubernetes::call(name, arguments))
        .unwrap_or_else(|| error("no such overload"))
}

fn operator<'a>(name: &str, arguments: &[Value<'a>], budget: &Budget) -> Found<'a> {
    let truth = |truth: Result<bool, Fault>| Some(truth.map(Value::Bool));
    let ordered = |a, b, fits: fn(Ordering) -> bool| truth(order(a, b).map(fits));
    match (name, arguments) {
        ("_==_", [a, b]) => truth(equal(a, b, budget)),
        ("_!=_", [a, b]) => truth(equal(a, b, budget).map(|equal| !equal)),
        ("_<_", [a, b]) => ordered(a, b, Ordering::is_lt),
        ("_<=_", [a, b]) => ordered(a, b, Ordering::is_le),
        ("_>_", [a, b]) => ordered(a, b, Ordering::is_gt),
        ("_>=_", [a, b]) => ordered(a, b, Ordering::is_ge),
        ("!_", [Value::Bool(value)]) => Some(Ok(Value::Bool(!value))),
        ("@in", [value, Value::List(list)]) => truth(contains(list, value, budget)),
        ("@in", [key, Value::Map(map)]) => Some(Ok(Value::Bool(map.get(key).is_some()))),
        ("type", [value]) => Some(Ok(Value::Type(value.type_name()))),
        ("dyn", [value]) => Some(Ok(value.clone())),
        _ => None,
    }
}

pub(super) fn contains<'a>(
    list: &List<'a>,
    value: &Value<'a>,
    budget: &Budget,
) -> Result<bool, Fault> {
    for element in list.iter() {
        if equal(&element, value, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn overflow<'a, T>(result: Option<T>, kind: &str, value: fn(T) -> Value<'a>) -> Found<'a> {
    Some(match result {
        Some(result) => Ok(value(result)),
        None => error(format!("{kind} overflow")),
    })
}

pub(super) fn arithmetic<'a>(name: &str, arguments: &[Value<'a>]) -> Found<'a> {
    match (name, arguments) {
        ("-_", [Value::Int(a)]) => overflow(a.checked_neg(), "integer", Value::Int),
        ("-_", [Value::Double(a)]) => Some(Ok(Value::Double(-a))),
        ("_/_", [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)]) => {
            Some(error("division by zero"))
        }
        ("_%_", [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)]) => {
            Some(error("modulus by zero"))
        }
        (_, [Value::Int(a), Value::Int(b)]) => {
            let result = match name {
                "_+_" => a.checked_add(*b),
                "_-_" => a.checked_sub(*b),
                "_*_" => a.checked_mul(*b),
                "_/_" => a.checked_div(*b),
                "_%_" => a.checked_rem(*b),
                _ => return None,
            };
            overflow(result, "integer", Value::Int)
        }
        (_, [Value::Uint(a), Value::Uint(b)]) => {
            let result = match name {
                "_+_" => a.checked_add(*b),
                "_-_" => a.checked_sub(*b),
                "_*_" => a.checked_mul(*b),
                "_/_" => a.checked_div(*b),
                "_%_" => a.checked_rem(*b),
                _ => return None,
            };
            overflow(result, "unsigned integer", Value::Uint)
        }
        (_, [Value::Double(a), Value::Double(b)]) => Some(Ok(Value::Double(match name {
            "_+_" => a + b,
            "_-_" => a - b,
            "_*_" => a * b,
            "_/_" => a / b,
            _ => return None,
        }))),
        ("_+_", [Value::Text(a), Value::Text(b)]) => Some(Ok(Value::text(format!("{a}{b}")))),
        ("_+_", [Value::Bytes(a), Value::Bytes(b)]) => Some(Ok(Value::Bytes(Cow::Owned(
            [a.as_ref(), b.as_ref()].concat(),
        )))),
        ("_+_", [Value::List(a), Value::List(b)]) => {
            Some(Ok(Value::list(a.iter().chain(b.iter()).collect())))
        }
        _ => time_arithmetic(name, arguments),
    }
}

fn time_arithmetic<'a>(name: &str, arguments: &[Value<'a>]) -> Found<'a> {
    let moment = |result: Result<Timestamp, Fault>| Some(result.map(Value::Timestamp));
    match (name, arguments) {
        ("_+_", [Value::Duration(a), Value::Duration(b)]) => {
            overflow(a.checked_add(*b), "duration", Value::Duration)
        }
        ("_-_", [Value::Duration(a), Value::Duration(b)]) => {
            overflow(a.checked_sub(*b), "duration", Value::Duration)
        }
        (
            "_+_",
            [Value::Timestamp(a), Value::Duration(b)] | [Value::Duration(b), Value::Timestamp(a)],
        ) => moment(a.plus(i128::from(*b))),
        ("_-_", [Value::Timestamp(a), Value::Duration(b)]) => moment(a.plus(-i128::from(*b))),
        ("_-_", [Value::Timestamp(a), Value::Timestamp(b)]) => overflow(
            i64::try_from(a.nanos - b.nanos).ok(),
            "duration",
            Value::Duration,
        ),
        _ => None,
    }
}

/// A list index: the other kinds of number count if they are whole.
pub(super) fn position(index: &Value<'_>) -> Option<i64> {
    match index {
        Value::Int(index) => Some(*index),
        Value::Uint(index) => i64::try_from(*index).ok(),
        Value::Double(index) if index.fract() == 0.0 => i64::try_from(whole(*index)?).ok(),
        _ => None,
    }
}

/// A value in an error message.
pub(super) fn shown(value: &Value<'_>) -> String {
    match conversion("string", std::slice::from_ref(value)) {
        Some(Ok(Value::Text(text))) => text.into_owned(),
        _ => value.type_name().to_owned(),
    }
}

fn conversion<'a>(name: &str, arguments: &[Value<'a>]) -> Found<'a> {
    let [value] = arguments else {
        return None;
    };
    let refused = || {
        let from = value.type_name();
        error(format!("type conversion error from '{from}' to '{name}'"))
    };
    let parsed = |result: Option<Value<'a>>| Some(result.map_or_else(refused, Ok));
    match (name, value) {
        ("bool", Value::Bool(_))
        | ("bytes", Value::Bytes(_))
        | ("double", Value::Double(_))
        | ("duration", Value::Duration(_))
        | ("int", Value::Int(_))
        | ("string", Value::Text(_))
        | ("timestamp", Value::Timestamp(_))
        | ("uint", Value::Uint(_)) => Some(Ok(value.clone())),
        ("bool", Value::Text(text)) => parsed(match text.as_ref() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(Value::Bool(false)),
            _ => None,
        }),
        ("bytes", Value::Text(text)) => {
            Some(Ok(Value::Bytes(Cow::Owned(text.as_bytes().to_vec()))))
        }
        ("double", Value::Int(int)) => Some(Ok(Value::Double(double_of(i128::from(*int))))),
        ("double", Value::Uint(uint)) => Some(Ok(Value::Double(double_of(i128::from(*uint))))),
        ("double", Value::Text(text)) if text.contains(['_', 'x', 'X']) => {
            Some(unknown("a double in hexadecimal or with underscores"))
        }
        ("double", Value::Text(text)) => {
            let endless = text.contains(['i', 'I']);
            let value = text
                .parse()
                .ok()
                .filter(|value: &f64| endless || !value.is_infinite());
            parsed(value.map(Value::Double))
        }
        // Declared, but without an implementation on the API server's side.
        ("duration", Value::Int(_)) => parsed(None),
        ("duration", Value::Text(text)) => parsed(read_duration(text).map(Value::Duration)),
        ("timestamp", Value::Int(seconds)) => {
            let nanos = i128::from(*seconds) * 1_000_000_000;
            Some(Timestamp::new(nanos, 0).map(Value::Timestamp))
        }
        ("timestamp", Value::Text(text)) => Some(Timestamp::read(text).map(Value::Timestamp)),
        ("int" | "uint", _) => integer(name, value),
        ("string", _) => string(value),
        _ => None,
    }
}

fn integer<'a>(name: &str, value: &Value<'a>) -> Found<'a> {
    let signed = name == "int";
    let wide = match value {
        Value::Int(int) => i128::from(*int),
        Value::Uint(uint) => i128::from(*uint),
        // The two ends of the range are refused, too, since their doubles are not exact.
        Value::Double(double) => match whole(*double) {
            Some(i) if !signed || (i > i128::from(i64::MIN) && i < i128::from(i64::MAX)) => i,
            _ => return Some(error("integer overflow")),
        },
        Value::Duration(nanos) if signed => i128::from(*nanos),
        Value::Timestamp(moment) if signed => moment.nanos.div_euclid(1_000_000_000),
        Value::Text(text) if signed || !text.starts_with('+') => match text.parse::<i128>() {
            Ok(wide) => wide,
            Err(_) => {
                return Some(error(format!(
                    "type conversion error from 'string' to '{name}'"
                )));
            }
        },
        Value::Text(_) => return Some(error("type conversion error from 'string' to 'uint'")),
        _ => return None,
    };
    if signed {
        overflow(i64::try_from(wide).ok(), "integer", Value::Int)
    } else {
        overflow(u64::try_from(wide).ok(), "unsigned integer", Value::Uint)
    }
}

fn string<'a>(value: &Value<'a>) -> Found<'a> {
    Some(Ok(Value::text(match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => text::double(*value),
        Value::Duration(nanos) => show_duration(*nanos),
        Value::Timestamp(moment) => match moment.shown() {
            Ok(text) => text,
            Err(fault) => return Some(Err(fault)),
        },
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Some(error("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Ip(address) => address.to_string(),
        Value::Cidr(network) => network.shown(),
        Value::Type(name) => (*name).to_owned(),
        _ => return None,
    })))
}

fn collection<'a>(name: &str, arguments: &[Value<'a>], budget: &Budget) -> Found<'a> {
    match (name, arguments) {
        ("size", [Value::Text(text)]) => Some(Ok(Value::int(text.chars().count()))),
        ("size", [Value::Bytes(bytes)]) => Some(Ok(Value::int(bytes.len()))),
        ("size", [Value::List(list)]) => Some(Ok(Value::int(list.len()))),
        ("size", [Value::Map(map)]) => Some(Ok(Value::int(map.len()))),
        ("isSorted", [Value::List(list)]) => Some(is_sorted(list)),
        ("sum", [Value::List(list)]) => Some(sum(list)),
        ("min", [Value::List(list)]) => Some(extreme(list, "min", Ordering::Greater)),
        ("max", [Value::List(list)]) => Some(extreme(list, "max", Ordering::Less)),
        ("first", [Value::List(list)]) => Some(Ok(end_of(list.get(0)))),
        ("last", [Value::List(list)]) => Some(Ok(end_of(list.iter().next_back()))),
        ("indexOf", [Value::List(list), value]) => Some(index_of(list.iter(), value, budget)),
        ("lastIndexOf", [Value::List(list), value]) => {
            let found = index_of(list.iter().rev(), value, budget);
            Some(found.map(|found| match found {
                Value::Int(index) if index >= 0 => match Value::int(list.len()) {
                    Value::Int(length) => Value::Int(length - 1 - index),
                    other => other,
                },
                other => other,
            }))
        }
        ("sets.contains", [Value::List(a), Value::List(b)]) => Some(within(b, a, budget)),
        ("sets.equivalent", [Value::List(a), Value::List(b)]) => {
            Some(within(a, b, budget).and_then(|inside| match inside {
                Value::Bool(true) => within(b, a, budget),
                other => Ok(other),
            }))
        }
        ("sets.intersects", [Value::List(a), Value::List(b)]) => Some(intersect(a, b, budget)),
        _ => None,
    }
}

fn end_of(element: Option<Value<'_>>) -> Value<'_> {
    element.map_or(Value::Optional(None), Value::some)
}

fn within<'a>(inner: &List<'a>, outer: &List<'a>, budget: &Budget) -> Res<'a> {
    for value in inner.iter() {
        if !contains(outer, &value, budget)? {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn intersect<'a>(a: &List<'a>, b: &List<'a>, budget: &Budget) -> Res<'a> {
    for value in a.iter() {
        if contains(b, &value, budget)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

fn index_of<'a>(
    list: impl Iterator<Item = Value<'a>>,
    value: &Value<'a>,
    budget: &Budget,
) -> Res<'a> {
    for (index, element) in list.enumerate() {
        if equal(&element, value, budget)? {
            return Ok(Value::int(index));
        }
    }
    Ok(Value::Int(-1))
}

fn is_sorted<'a>(list: &List<'a>) -> Res<'a> {
    let mut before: Option<Value<'a>> = None;
    for element in list.iter() {
        if let Some(before) = &before
            && order(before, &element)?.is_gt()
        {
            return Ok(Value::Bool(false));
        }
        before = Some(element);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(list: &List<'a>) -> Res<'a> {
    let mut elements = list.iter();
    let Some(mut total) = elements.next() else {
        return Ok(Value::Int(0));
    };
    if !matches!(
        total,
        Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)
    ) {
        return error("no such overload");
    }
    for element in elements {
        total =
            arithmetic("_+_", &[total, element]).unwrap_or_else(|| error("no such overload"))?;
    }
    Ok(total)
}

/// The first of the elements that no other one is `worse` than.
fn extreme<'a>(list: &List<'a>, name: &str, worse: Ordering) -> Res<'a> {
    let mut best: Option<Value<'a>> = None;
    for element in list.iter() {
        best = match best {
            Some(best) if order(&best, &element)? != worse => Some(best),
            _ => Some(element),
        };
    }
    best.map_or_else(|| error(format!("{name} called on empty list")), Ok)
}

fn optional<'a>(name: &str, arguments: &[Value<'a>]) -> Found<'a> {
    match (name, arguments) {
        ("optional.of", [value]) => Some(Ok(Value::some(value.clone()))),
        ("optional.none", []) => Some(Ok(Value::Optional(None))),
        ("optional.ofNonZeroValue", [value]) if value.is_zero() => Some(Ok(Value::Optional(None))),
        ("optional.ofNonZeroValue", [value]) => Some(Ok(Value::some(value.clone()))),
        ("hasValue", [Value::Optional(value)]) => Some(Ok(Value::Bool(value.is_some()))),
        ("value", [Value::Optional(None)]) => Some(error("optional.none() dereference")),
        ("value", [Value::Optional(Some(value))]) => Some(match value.as_ref() {
            Value::Unknowable(name) => unknown(*name),
            value => Ok(value.clone()),
        }),
        ("optional.unwrap" | "unwrapOpt", [Value::List(list)]) => {
            let mut values = Vec::new();
            for element in list.iter() {
                match element {
                    Value::Optional(value) => {
                        values.extend(value.map(|value| value.as_ref().clone()))
                    }
                    _ => return Some(error("no such overload")),
                }
            }
            Some(Ok(Value::list(values)))
        }
        _ => None,
    }
}

fn moment<'a>(name: &str, arguments: &[Value<'a>]) -> Found<'a> {
    let found = match arguments {
        [Value::Duration(nanos)] => duration_part(*nanos, name).map(|part| Ok(Some(part))),
        [Value::Timestamp(moment)] => Some(moment.get(name, None)),
        [Value::Timestamp(moment), Value::Text(zone)] => Some(moment.get(name, Some(zone))),
        _ => None,
    };
    match found? {
        Ok(part) => part.map(|part| Ok(Value::Int(part))),
        Err(fault) => Some(Err(fault)),
    }
}
