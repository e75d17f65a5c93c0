//! The values of an evaluation: what JSON, literals and functions yield; their equality and order.
//!
//! Any thread, no state of its own. Parts of the reviewed objects are borrowed, never copied. A JSON number without a fraction is
//! an int and one with a fraction a double, as Kubernetes reads them. Equality crosses the three kinds of number; order does, too.

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::rc::Rc;

use serde_json::Value as Json;

use super::network::{Cidr, Url};
use super::quantity::Quantity;
use super::time::Timestamp;
use super::version::Version;

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The API server has this error, too.
    Error(String),
    /// It cannot be told what the API server has.
    Unknown(String),
}

pub(super) type Res<'a> = Result<Value<'a>, Fault>;

pub(super) fn error<T>(words: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Error(words.into()))
}

pub(super) fn unknown<T>(words: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Unknown(words.into()))
}

#[derive(Clone, Debug)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    List(List<'a>),
    Map(Map<'a>),
    Optional(Option<Rc<Value<'a>>>),
    /// Nanoseconds.
    Duration(i64),
    Timestamp(Timestamp),
    Type(&'static str),
    Quantity(Quantity),
    Ip(IpAddr),
    Cidr(Cidr),
    Url(Rc<Url>),
    Semver(Rc<Version>),
    Format(&'static str),
    /// Something that is there, but not known to us: any use of it is a `Fault::Unknown` with this name.
    Unknowable(&'static str),
}

#[derive(Clone, Debug)]
pub(super) enum List<'a> {
    Json(&'a [Json]),
    Own(Rc<Vec<Value<'a>>>),
}

#[derive(Clone, Debug)]
pub(super) enum Map<'a> {
    Json(&'a serde_json::Map<String, Json>),
    Own(Rc<Vec<(Value<'a>, Value<'a>)>>),
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            List::Json(list) => list.len(),
            List::Own(list) => list.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            List::Json(list) => list.get(index).map(Value::from),
            List::Own(list) => list.get(index).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> Map<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Map::Json(map) => map.len(),
            Map::Own(map) => map.len(),
        }
    }

    pub(super) fn get(&self, key: &Value<'a>) -> Option<Value<'a>> {
        match (self, key) {
            (Map::Json(map), Value::Text(key)) => map.get(key.as_ref()).map(Value::from),
            (Map::Json(_), _) => None,
            (Map::Own(map), key) => map
                .iter()
                .find(|(own, _)| same_scalar(own, key))
                .map(|(_, value)| value.clone()),
        }
    }

    pub(super) fn entries(&self) -> Vec<(Value<'a>, Value<'a>)> {
        match self {
            Map::Json(map) => map
                .iter()
                .map(|(key, value)| (Value::Text(Cow::Borrowed(key)), Value::from(value)))
                .collect(),
            Map::Own(map) => map.as_ref().clone(),
        }
    }
}

impl<'a> From<&'a Json> for Value<'a> {
    fn from(json: &'a Json) -> Value<'a> {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(int), _) => Value::Int(int),
                (None, Some(double)) => Value::Double(double),
                (None, None) => Value::Unknowable("a number beyond all types"),
            },
            Json::String(text) => Value::Text(Cow::Borrowed(text)),
            Json::Array(list) => Value::List(List::Json(list)),
            Json::Object(map) => Value::Map(Map::Json(map)),
        }
    }
}

impl<'a> Value<'a> {
    pub(super) fn text(text: impl Into<String>) -> Value<'a> {
        Value::Text(Cow::Owned(text.into()))
    }

    pub(super) fn list(list: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::Own(Rc::new(list)))
    }

    pub(super) fn texts(texts: impl IntoIterator<Item = String>) -> Value<'a> {
        Value::list(texts.into_iter().map(Value::text).collect())
    }

    pub(super) fn map(entries: Vec<(Value<'a>, Value<'a>)>) -> Value<'a> {
        Value::Map(Map::Own(Rc::new(entries)))
    }

    pub(super) fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Rc::new(value)))
    }

    pub(super) fn int(value: usize) -> Value<'a> {
        Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }

    /// What `type()` says of it.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::Text(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Optional(_) => "optional_type",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Type(_) => "type",
            Value::Quantity(_) => "kubernetes.Quantity",
            Value::Ip(_) => "net.IP",
            Value::Cidr(_) => "net.CIDR",
            Value::Url(_) => "kubernetes.URL",
            Value::Semver(_) => "kubernetes.Semver",
            Value::Format(_) | Value::Unknowable(_) => "kubernetes.NamedFormat",
        }
    }

    /// How much there is to look at, in the sense of `Budget`.
    pub(super) fn weight(&self) -> usize {
        match self {
            Value::Text(text) => text.len() / 8,
            Value::Bytes(bytes) => bytes.len() / 8,
            Value::List(list) => list.len(),
            Value::Map(map) => map.len(),
            _ => 0,
        }
    }

    /// Whether it is the zero of its type, in the sense of `optional.ofNonZeroValue`.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) => true,
            Value::Double(value) => *value == 0.0,
            Value::Text(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::List(list) => list.len() == 0,
            Value::Map(map) => map.len() == 0,
            Value::Optional(value) => value.is_none(),
            Value::Duration(value) => *value == 0,
            _ => false,
        }
    }
}

/// How much one evaluation may do. The API server has such a limit, too (a cost of a million), counted in another way: where ours
/// is reached nothing can be said of theirs.
pub(super) struct Budget(Cell<usize>);

/// A node of the tree costs 1, a text an eighth of its length. An expression that the API server would finish costs it at most a
/// million; four times that leaves room for the different count, and takes well below a second.
const MOST_STEPS: usize = 4_000_000;

impl Budget {
    pub(super) fn full() -> Budget {
        Budget(Cell::new(MOST_STEPS))
    }

    pub(super) fn spend(&self, steps: usize) -> Result<(), Fault> {
        match self.0.get().checked_sub(steps) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => {
                self.0.set(0);
                unknown(format!("an expression of more than {MOST_STEPS} steps"))
            }
        }
    }
}

/// Equality of everything that has no parts.
fn same_scalar(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Text(a), Value::Text(b)) => a == b,
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a.nanos == b.nanos,
        (Value::Type(a), Value::Type(b)) | (Value::Format(a), Value::Format(b)) => a == b,
        (Value::Quantity(a), Value::Quantity(b)) => a.nanos == b.nanos,
        (Value::Ip(a), Value::Ip(b)) => a == b,
        (Value::Cidr(a), Value::Cidr(b)) => a == b,
        (Value::Url(a), Value::Url(b)) => a.text == b.text,
        (Value::Semver(a), Value::Semver(b)) => a.order(b) == Ordering::Equal,
        (a, b) => numbers(a, b) == Some(Some(Ordering::Equal)),
    }
}

pub(super) fn equal<'a>(a: &Value<'a>, b: &Value<'a>, budget: &Budget) -> Result<bool, Fault> {
    budget.spend(1)?;
    match (a, b) {
        (Value::Unknowable(name), _) | (_, Value::Unknowable(name)) => unknown(*name),
        (Value::List(a), Value::List(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(&a, &b, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, value) in a.entries() {
                if let Map::Own(own) = b {
                    budget.spend(own.len())?;
                }
                match b.get(&key) {
                    Some(other) if equal(&value, &other, budget)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::Optional(a), Value::Optional(b)) => match (a, b) {
            (Some(a), Some(b)) => equal(a, b, budget),
            (a, b) => Ok(a.is_none() && b.is_none()),
        },
        (a, b) => {
            budget.spend(a.weight())?;
            Ok(same_scalar(a, b))
        }
    }
}

/// The order of two numbers of any kinds: nothing if one is no number, nothing within if one is not a number in the other sense.
fn numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Option<Ordering>> {
    let wide = |value: &Value<'_>| match value {
        Value::Int(value) => Some(i128::from(*value)),
        Value::Uint(value) => Some(i128::from(*value)),
        _ => None,
    };
    let double = |value: &Value<'_>| match value {
        Value::Int(value) => Some(double_of(i128::from(*value))),
        Value::Uint(value) => Some(double_of(i128::from(*value))),
        Value::Double(value) => Some(*value),
        _ => None,
    };
    if let (Some(a), Some(b)) = (wide(a), wide(b)) {
        return Some(Some(a.cmp(&b)));
    }
    Some(double(a)?.partial_cmp(&double(b)?))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the API server rounds to the nearest double here, too"
)]
pub(super) fn double_of(value: i128) -> f64 {
    value as f64
}

/// The whole part, if it fits into 64 bits with room to spare on both sides.
#[expect(
    clippy::cast_possible_truncation,
    reason = "dropping the fraction is what is asked for; the range is checked"
)]
pub(super) fn whole(value: f64) -> Option<i128> {
    (value.is_finite() && value.abs() < 1e30).then_some(value as i128)
}

pub(super) fn order(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, Fault> {
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::Text(a), Value::Text(b)) => Ok(a.cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.nanos.cmp(&b.nanos)),
        (a, b) => match numbers(a, b) {
            Some(Some(ordering)) => Ok(ordering),
            Some(None) => error("NaN values cannot be ordered"),
            None => error("no such overload"),
        },
    }
}
