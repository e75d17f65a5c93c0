//! The metrics that a hook left in `$METRICS_PATH`: a stream of JSON documents, read and checked before any of them counts.
//!
//! Pure, on the thread that ran the hook. One document that cannot be used refuses the whole file, and every error names the
//! document and the metric; only an unknown action is passed over, as in the original. Never shows a value: whatever a hook put
//! into a label is its own business. `metrics` says what the operations do.

use std::fmt;

use log::{error, warn};
use serde_json::{Deserializer, Map, Value};

use crate::metrics::{Change, Metrics, Operation, shown_label};

/// LIMIT: documents in one file. Four times as many as there can be series of hooks.
const MOST_DOCUMENTS: usize = 40_000;
/// LIMIT: bytes of a metric's name or of a label's. The longest names of well-known exporters have less than a hundred.
const MOST_NAME_BYTES: usize = 200;
/// LIMIT: labels of one operation. Each is a column in every query; `metrics` allows twice as many under one name.
const MOST_LABELS: usize = 32;
/// LIMIT: bytes of a group's name. Every series keeps its own copy of it. As long as the name of a file, which a group often is.
const MOST_GROUP_BYTES: usize = 256;
/// LIMIT: what the labels of one operation may hold, names and values together. A label names something; a text of this length is
/// a log line and belongs there.
const MOST_LABEL_BYTES: usize = 4 * 1024;
/// LIMIT: buckets of a histogram. Each is a series to Prometheus, whose own defaults are 11.
const MOST_BUCKETS: usize = 100;
/// LIMIT: complaints about one file that are shown; the first ones tell what is wrong with the rest.
const MOST_SHOWN: usize = 10;
/// LIMIT: how much of a name an error repeats.
const SHOWN_NAME: usize = 200;

/// The buckets of a histogram that names an empty list, as in the original: those of the Prometheus clients.
const DEFAULT_BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Why a metrics file cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MetricError {
    /// A document is not what a metric is made of.
    Unreadable {
        document: usize,
        reason: String,
    },
    TooMany,
    /// The documents can be read, but some lack something. In their order; at least one.
    Invalid(Vec<Flaw>),
}

/// What is wrong with one document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flaw {
    document: usize,
    name: String,
    text: String,
}

impl fmt::Display for MetricError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { document, reason } => write!(
                out,
                "got bad metrics: metrics file, document {document}: {reason}"
            ),
            Self::TooMany => write!(
                out,
                "got bad metrics: metrics file: more than {MOST_DOCUMENTS} documents; write fewer, or use a histogram"
            ),
            // The list of the original, which log readers know.
            Self::Invalid(flaws) => {
                match flaws.len() {
                    1 => out.write_str("1 error occurred:\n")?,
                    count => writeln!(out, "{count} errors occurred:")?,
                }
                for flaw in flaws.iter().take(MOST_SHOWN) {
                    writeln!(out, "\t* {flaw}")?;
                }
                if let Some(more) = flaws.len().checked_sub(MOST_SHOWN).filter(|more| *more > 0) {
                    writeln!(out, "\t* and {more} more")?;
                }
                out.write_str("\n")
            }
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (document, name, text) = (self.document, &self.name, &self.text);
        write!(
            out,
            "metrics file, document {document}, metric '{name}': {text}"
        )
    }
}

impl std::error::Error for MetricError {}

/// The usable content of a metrics file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Batch {
    operations: Vec<Operation>,
    /// For the log.
    skipped: Vec<String>,
}

impl Batch {
    pub(crate) fn parse(file: &[u8]) -> Result<Batch, MetricError> {
        let mut batch = Batch::default();
        let mut flaws = Vec::new();
        for (index, read) in Deserializer::from_slice(file).into_iter().enumerate() {
            if index >= MOST_DOCUMENTS {
                return Err(MetricError::TooMany);
            }
            let document = index + 1;
            let unreadable = |reason: String| MetricError::Unreadable { document, reason };
            // The messages of the parser say where, and repeat nothing of the text.
            let value: Value = read.map_err(|error| unreadable(error.to_string()))?;
            let read = Document::read(&value).map_err(unreadable)?;
            match read.meant() {
                Meant::Operation(operation) => batch.operations.push(operation),
                Meant::Unknown(action) => batch.skipped.push(format!(
                    "unknown action in shoperation.MetricOperation: {action}"
                )),
                Meant::Flawed(texts) => flaws.extend(texts.into_iter().map(|text| Flaw {
                    document,
                    name: shortened(read.name).to_owned(),
                    text,
                })),
            }
        }
        if flaws.is_empty() {
            return Ok(batch);
        }
        Err(MetricError::Invalid(flaws))
    }

    /// What is to be recorded, in the order of the file.
    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Records everything, under the name of the hook. What cannot be recorded is told in the log and left out, as in the original.
    pub(crate) fn apply(&self, hook: &str, metrics: &Metrics) {
        for skipped in self.skipped.iter().take(MOST_SHOWN) {
            warn!(hook = hook; "{skipped}");
        }
        if self.operations.is_empty() {
            return;
        }
        let ignored = metrics.apply(hook, &self.operations);
        for reason in ignored.iter().take(MOST_SHOWN) {
            error!(hook = hook, count = ignored.len(); "{reason}");
        }
    }
}

/// What a document says, with the types that it must have.
struct Document<'a> {
    name: &'a str,
    action: &'a str,
    group: &'a str,
    value: Option<f64>,
    buckets: Option<Vec<f64>>,
    labels: Vec<(String, String)>,
}

/// What a document means.
enum Meant {
    Operation(Operation),
    Unknown(String),
    Flawed(Vec<String>),
}

impl Document<'_> {
    fn read(value: &Value) -> Result<Document<'_>, String> {
        // Null is a document without any field to the original.
        let members = match value {
            Value::Null => None,
            Value::Object(members) => Some(members),
            _ => return Err("a JSON object is expected".to_owned()),
        };
        let add = number(members, "add")?;
        let set = number(members, "set")?;
        let mut action = string(members, "action")?;
        let mut value = number(members, "value")?;
        match (add, set) {
            (Some(amount), None) => (action, value) = ("add", Some(amount)),
            (None, Some(amount)) => (action, value) = ("set", Some(amount)),
            _ => {}
        }
        Ok(Document {
            name: string(members, "name")?,
            action,
            group: string(members, "group")?,
            value,
            buckets: buckets(members)?,
            labels: labels(members)?,
        })
    }

    fn meant(&self) -> Meant {
        // How the original's storage calls its actions; its messages show these words.
        let storage_action = match self.action {
            "add" => "CounterAdd",
            "set" => "GaugeSet",
            "observe" => "HistogramObserve",
            "expire" => {
                return match self.group_flaw() {
                    Some(flaw) => Meant::Flawed(vec![flaw]),
                    None => Meant::Operation(self.operation(Change::Expire)),
                };
            }
            unknown => return Meant::Unknown(shortened(unknown).to_owned()),
        };
        let mut flaws = Vec::new();
        if self.name.is_empty() {
            flaws.push(format!(
                "'name' is required when action is not 'expire': {storage_action}"
            ));
        }
        if self.name.len() > MOST_NAME_BYTES {
            flaws.push(format!("'name' has more than {MOST_NAME_BYTES} bytes"));
        }
        flaws.extend(self.group_flaw());
        if self.value.is_none() {
            flaws.push(format!("'value' is required for action '{storage_action}'"));
        }
        if self.action == "add" && self.value.is_some_and(|amount| amount < 0.0) {
            flaws.push("a counter cannot go down; use 'set'".to_owned());
        }
        if self.action == "observe" {
            flaws.extend(self.bucket_flaw(storage_action));
        }
        flaws.extend(self.label_flaw());
        match (self.value, flaws.is_empty()) {
            (Some(value), true) => Meant::Operation(self.operation(match self.action {
                "add" => Change::Add(value),
                "set" => Change::Set(value),
                _ => Change::Observe {
                    value,
                    bounds: self.bounds(),
                },
            })),
            _ => Meant::Flawed(flaws),
        }
    }

    fn operation(&self, change: Change) -> Operation {
        Operation {
            name: self.name.to_owned(),
            labels: self.labels.clone(),
            group: (!self.group.is_empty()).then(|| self.group.to_owned()),
            change,
        }
    }

    fn bounds(&self) -> Vec<f64> {
        match &self.buckets {
            Some(bounds) if !bounds.is_empty() => bounds.clone(),
            _ => DEFAULT_BUCKETS.to_vec(),
        }
    }

    fn bucket_flaw(&self, storage_action: &str) -> Option<String> {
        let Some(bounds) = &self.buckets else {
            return Some(format!(
                "'buckets' is required for action '{storage_action}'"
            ));
        };
        if bounds.len() > MOST_BUCKETS {
            return Some(format!("'buckets' has more than {MOST_BUCKETS} items"));
        }
        let mut pairs = bounds.iter().zip(bounds.iter().skip(1));
        let is_rising = pairs.all(|(low, high)| low < high);
        (!is_rising).then(|| "'buckets' must be in rising order".to_owned())
    }

    fn group_flaw(&self) -> Option<String> {
        let is_long = self.group.len() > MOST_GROUP_BYTES;
        is_long.then(|| format!("'group' has more than {MOST_GROUP_BYTES} bytes"))
    }

    fn label_flaw(&self) -> Option<String> {
        if self.labels.len() > MOST_LABELS {
            return Some(format!("'labels' has more than {MOST_LABELS} labels"));
        }
        let sizes = self
            .labels
            .iter()
            .map(|(name, value)| name.len() + value.len());
        if sizes.sum::<usize>() > MOST_LABEL_BYTES {
            return Some(format!("'labels' has more than {MOST_LABEL_BYTES} bytes"));
        }
        let mut names = self.labels.iter().map(|(name, _)| name.as_str());
        if names.clone().any(str::is_empty) {
            return Some("'labels' has an empty name".to_owned());
        }
        if let Some(name) = names.clone().find(|name| name.len() > MOST_NAME_BYTES) {
            let name = shortened(name);
            return Some(format!(
                "label '{name}...': the name has more than {MOST_NAME_BYTES} bytes"
            ));
        }
        if let Some(name) = names
            .clone()
            .find(|name| shown_label(name).starts_with("__"))
        {
            return Some(format!(
                "label '{name}': names that begin with '__' when they are shown are reserved by Prometheus"
            ));
        }
        let takes_le = self.action == "observe" && names.any(|name| shown_label(name) == "le");
        takes_le.then(|| "label 'le' is that of a histogram's buckets".to_owned())
    }
}

type Members<'a> = Option<&'a Map<String, Value>>;

/// A member of a document; null is the same as none. The original's decoder does not mind the case of keys.
fn member<'a>(members: Members<'a>, key: &str) -> Option<&'a Value> {
    let named = |(name, _): &(&String, &Value)| name.eq_ignore_ascii_case(key);
    let found = members?.iter().rfind(named);
    found
        .map(|(_, value)| value)
        .filter(|value| !value.is_null())
}

fn string<'a>(members: Members<'a>, key: &str) -> Result<&'a str, String> {
    match member(members, key) {
        None => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("'{key}' must be a string")),
    }
}

fn number(members: Members<'_>, key: &str) -> Result<Option<f64>, String> {
    let Some(value) = member(members, key) else {
        return Ok(None);
    };
    let number = value.as_f64();
    number
        .map(Some)
        .ok_or_else(|| format!("'{key}' must be a number"))
}

fn buckets(members: Members<'_>) -> Result<Option<Vec<f64>>, String> {
    let bounds: Option<Vec<f64>> = match member(members, "buckets") {
        None => return Ok(None),
        Some(Value::Array(items)) => items.iter().map(Value::as_f64).collect(),
        Some(_) => None,
    };
    bounds
        .map(Some)
        .ok_or_else(|| "'buckets' must be an array of numbers".to_owned())
}

fn labels(members: Members<'_>) -> Result<Vec<(String, String)>, String> {
    let labels = match member(members, "labels") {
        None => return Ok(Vec::new()),
        Some(Value::Object(labels)) => labels,
        Some(_) => return Err("'labels' must be an object with strings".to_owned()),
    };
    let text = |(name, value): (&String, &Value)| match value {
        Value::Null => Ok((name.clone(), String::new())),
        Value::String(text) => Ok((name.clone(), text.clone())),
        _ => Err(format!("label '{}' must be a string", shortened(name))),
    };
    labels.iter().map(text).collect()
}

fn shortened(text: &str) -> &str {
    let end = (0..=SHOWN_NAME)
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default().min(text.len()))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Batch, String> {
        Batch::parse(text.as_bytes()).map_err(|error| error.to_string())
    }

    fn operation(name: &str, change: Change) -> Operation {
        Operation {
            name: name.to_owned(),
            labels: Vec::new(),
            group: None,
            change,
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &[Operation]) {
        assert_eq!(parse(text).unwrap().operations, expected, "{text}");
    }

    #[test]
    fn every_action_and_its_short_form_is_read() {
        check("", &[]);
        check(" \n", &[]);
        check(
            r#"{"name":"a","action":"add","value":2}"#,
            &[operation("a", Change::Add(2.0))],
        );
        check(
            r#"{"name":"a","add":1.5}"#,
            &[operation("a", Change::Add(1.5))],
        );
        check(
            r#"{"Name":"a","SET":-1}"#,
            &[operation("a", Change::Set(-1.0))],
        );
        check(
            r#"{"name":"a","set":1,"action":"add","value":9}"#,
            &[operation("a", Change::Set(1.0))],
        );
        // Both short forms: neither counts.
        check(
            r#"{"name":"a","set":1,"add":2,"action":"set","value":9}"#,
            &[operation("a", Change::Set(9.0))],
        );
        let observed = |value, bounds: &[f64]| Change::Observe {
            value,
            bounds: bounds.to_vec(),
        };
        check(
            r#"{"name":"a","action":"observe","value":0.3,"buckets":[0.1,1]}"#,
            &[operation("a", observed(0.3, &[0.1, 1.0]))],
        );
        check(
            r#"{"name":"a","action":"observe","value":0,"buckets":[]}"#,
            &[operation("a", observed(0.0, &DEFAULT_BUCKETS))],
        );
        // Documents need nothing between them; of a key that is there twice the last counts, and unknown keys do not matter.
        let expired = Operation {
            group: Some("g".to_owned()),
            ..operation("", Change::Expire)
        };
        check(
            r#"{"group":"g","action":"expire"}{"name":"a","set":1,"set":2,"more":[]}"#,
            &[expired, operation("a", Change::Set(2.0))],
        );
        let labelled = Operation {
            labels: vec![
                ("a".to_owned(), "1".to_owned()),
                ("b".to_owned(), String::new()),
            ],
            ..operation("x", Change::Set(1.0))
        };
        check(
            r#"{"name":"x","set":1,"labels":{"a":"1","b":null},"group":""}"#,
            &[labelled],
        );
    }

    #[test]
    fn an_unknown_action_is_passed_over_and_told() {
        let batch =
            parse("{\"name\":\"a\",\"set\":1}\n{\"action\":\"multiply\"}\n{}\nnull").unwrap();
        assert_eq!(batch.operations.len(), 1);
        assert_eq!(
            batch.skipped,
            ["multiply", "", ""]
                .map(|action| format!("unknown action in shoperation.MetricOperation: {action}"))
        );
    }

    #[test]
    fn what_is_no_metric_is_refused_with_its_document_and_without_its_value() {
        for (text, expected) in [
            (
                "{\"name\":\"a\",\"set\":1}\nnonsense",
                "document 2: expected ident at line 2 column 2",
            ),
            (
                "{\"name\":\"a\"",
                "document 1: EOF while parsing an object at line 1 column 11",
            ),
            (
                "name: a\nset: 1\n",
                "document 1: expected ident at line 1 column 2",
            ),
            ("[]", "document 1: a JSON object is expected"),
            ("{\"name\":7}", "document 1: 'name' must be a string"),
            ("{\"set\":\"s3cret\"}", "document 1: 'set' must be a number"),
            ("{\"value\":true}", "document 1: 'value' must be a number"),
            (
                "{\"buckets\":[1,\"s3cret\"]}",
                "document 1: 'buckets' must be an array of numbers",
            ),
            (
                "{\"labels\":[\"s3cret\"]}",
                "document 1: 'labels' must be an object with strings",
            ),
            (
                "{\"labels\":{\"a\":7}}",
                "document 1: label 'a' must be a string",
            ),
            (
                "{\"set\":1e999}",
                "document 1: number out of range at line 1 column 12",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(
                error,
                format!("got bad metrics: metrics file, {expected}"),
                "{text}"
            );
        }
    }

    /// The one flaw of a document of the metric `a`.
    #[track_caller]
    fn check_flaw(document: &Value, expected: &str) {
        let error = parse(&document.to_string()).unwrap_err();
        let expected =
            format!("1 error occurred:\n\t* metrics file, document 1, metric 'a': {expected}\n\n");
        assert_eq!(error, expected);
    }

    #[test]
    fn one_flaw_refuses_the_file_and_all_are_named_in_the_originals_words() {
        let text = r#"{"name":"good","set":1}
            {"action":"add","value":1}
            {"name":"b","action":"set"}
            {"name":"c","action":"observe"}"#;
        assert_eq!(
            parse(text).unwrap_err(),
            "4 errors occurred:\n\
             \t* metrics file, document 2, metric '': 'name' is required when action is not 'expire': CounterAdd\n\
             \t* metrics file, document 3, metric 'b': 'value' is required for action 'GaugeSet'\n\
             \t* metrics file, document 4, metric 'c': 'value' is required for action 'HistogramObserve'\n\
             \t* metrics file, document 4, metric 'c': 'buckets' is required for action 'HistogramObserve'\n\n"
        );
        for (text, expected) in [
            (
                json!({"name": "a", "add": -1}),
                "a counter cannot go down; use 'set'",
            ),
            (
                json!({"name": "a", "action": "observe", "value": 1, "buckets": [1, 1]}),
                "'buckets' must be in rising order",
            ),
            (
                json!({"name": "a", "set": 1, "labels": {"": "x"}}),
                "'labels' has an empty name",
            ),
            (
                json!({"name": "a", "set": 1, "labels": {"__x": "x"}}),
                "label '__x': names that begin with '__' when they are shown are reserved by Prometheus",
            ),
            (
                json!({"name": "a", "set": 1, "labels": {"._name__": "x"}}),
                "label '._name__': names that begin with '__' when they are shown are reserved by Prometheus",
            ),
            (
                json!({"name": "a", "set": 1, "labels": {"9_x": "x"}}),
                "label '9_x': names that begin with '__' when they are shown are reserved by Prometheus",
            ),
            (
                json!({"name": "a", "action": "observe", "value": 1, "buckets": [1], "labels": {"le": "x"}}),
                "label 'le' is that of a histogram's buckets",
            ),
        ] {
            check_flaw(&text, expected);
        }
    }

    #[test]
    fn names_groups_and_labels_may_be_as_long_as_told_and_no_longer() {
        let labels = |count: usize| -> Map<String, Value> {
            let names = (0..count).map(|number| format!("l{number}"));
            names.map(|name| (name, json!("v"))).collect()
        };
        let longest = json!({"name": "n".repeat(200), "set": 1, "group": "g".repeat(256), "labels": labels(32)});
        assert!(parse(&longest.to_string()).is_ok());
        let error = parse(&json!({"name": "n".repeat(201), "set": 1}).to_string()).unwrap_err();
        assert!(
            error.ends_with("': 'name' has more than 200 bytes\n\n"),
            "{error}"
        );
        for (text, expected) in [
            (
                json!({"name": "a", "set": 1, "group": "g".repeat(257)}),
                "'group' has more than 256 bytes",
            ),
            (
                json!({"name": "a", "action": "expire", "group": "g".repeat(257)}),
                "'group' has more than 256 bytes",
            ),
            (
                json!({"name": "a", "set": 1, "labels": labels(33)}),
                "'labels' has more than 32 labels",
            ),
            (
                json!({"name": "a", "set": 1, "labels": {"l".repeat(201): "x"}}),
                &format!(
                    "label '{}...': the name has more than 200 bytes",
                    "l".repeat(200)
                ),
            ),
            (
                json!({"name": "a", "set": 1, "labels": {"x": "y".repeat(5000)}}),
                "'labels' has more than 4096 bytes",
            ),
        ] {
            check_flaw(&text, expected);
        }
    }

    #[test]
    fn the_length_of_a_file_and_of_its_errors_is_bounded() {
        assert!(parse(&"{}".repeat(MOST_DOCUMENTS)).is_ok());
        let error = parse(&"{}".repeat(MOST_DOCUMENTS + 1)).unwrap_err();
        assert!(error.contains("more than 40000 documents"), "{error}");
        let error = parse(&"{\"labels\":".repeat(100_000)).unwrap_err();
        assert!(error.contains("document 1: recursion limit"), "{error}");
        let long = json!({"name": "\u{20ac}".repeat(1000), "set": 1}).to_string();
        let error = parse(&long.repeat(1000)).unwrap_err();
        assert!(error.starts_with("1000 errors occurred:\n"), "{error}");
        assert!(error.contains("\n\t* and 990 more\n"), "{error}");
        assert!(error.len() < 5000, "{}", error.len());
    }
}
