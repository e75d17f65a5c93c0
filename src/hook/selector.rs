//! Label and field selectors: what they mean, how the API server wants to read them, and whether it would accept them.
//!
//! Pure values. The rules and the words of refusals are those of Kubernetes, because the API server would say the same about
//! the same selector, only much later.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct LabelSelector {
    pub(crate) match_labels: BTreeMap<String, String>,
    pub(crate) match_expressions: Vec<LabelRequirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LabelRequirement {
    pub(crate) key: String,
    pub(crate) operator: LabelOperator,
    pub(crate) values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LabelOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelOperator {
    pub(crate) fn parse(text: &str) -> Option<LabelOperator> {
        Some(match text {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            _ => return None,
        })
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
        }
    }
}

/// One condition on a field, such as `status.phase!=Running`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FieldRequirement {
    pub(crate) field: String,
    pub(crate) equal: bool,
    pub(crate) value: String,
}

impl fmt::Display for FieldRequirement {
    /// The form of the `fieldSelector` parameter. Backslash, comma and equals sign in a value are escaped for it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = if self.equal { "=" } else { "!=" };
        write!(out, "{}{operator}", self.field)?;
        for letter in self.value.chars() {
            if matches!(letter, '\\' | ',' | '=') {
                out.write_str("\\")?;
            }
            write!(out, "{letter}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelSelector {
    /// The form of the `labelSelector` parameter, in a stable order, so that equal selectors give equal texts.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self
            .match_labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let expressions = self.match_expressions.iter().map(|requirement| {
            let key = &requirement.key;
            let values = requirement.values.join(",");
            match requirement.operator {
                LabelOperator::In => format!("{key} in ({values})"),
                LabelOperator::NotIn => format!("{key} notin ({values})"),
                LabelOperator::Exists => key.clone(),
                LabelOperator::DoesNotExist => format!("!{key}"),
            }
        });
        let parts: Vec<String> = labels.chain(expressions).collect();
        out.write_str(&parts.join(","))
    }
}

impl LabelSelector {
    /// The form that webhook configurations hold.
    pub(crate) fn to_json(&self) -> Value {
        let mut object = serde_json::Map::new();
        if !self.match_labels.is_empty() {
            object.insert("matchLabels".to_owned(), json!(self.match_labels));
        }
        if !self.match_expressions.is_empty() {
            let expressions: Vec<Value> = self
                .match_expressions
                .iter()
                .map(|requirement| {
                    let mut expression = json!({
                        "key": requirement.key,
                        "operator": requirement.operator.as_str(),
                    });
                    if let (false, Some(fields)) =
                        (requirement.values.is_empty(), expression.as_object_mut())
                    {
                        fields.insert("values".to_owned(), json!(requirement.values));
                    }
                    expression
                })
                .collect();
            object.insert("matchExpressions".to_owned(), Value::Array(expressions));
        }
        Value::Object(object)
    }

    /// Whether an object with these labels is selected. As for the API server, `NotIn` takes an object without the label.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.match_labels.iter().all(equal)
            && self.match_expressions.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                let listed = value.is_some_and(|value| requirement.values.contains(value));
                match requirement.operator {
                    LabelOperator::In => listed,
                    LabelOperator::NotIn => !listed,
                    LabelOperator::Exists => value.is_some(),
                    LabelOperator::DoesNotExist => value.is_none(),
                }
            })
    }

    /// What the API server would refuse about this selector; the first thing found.
    pub(crate) fn problem(&self) -> Option<String> {
        for (key, value) in &self.match_labels {
            if let Some(problem) = key_problem(key) {
                return Some(format!("key: Invalid value: {key:?}: {problem}"));
            }
            if let Some(problem) = value_problem(value) {
                return Some(format!(
                    "values[0][{key}]: Invalid value: {value:?}: {problem}"
                ));
            }
        }
        self.match_expressions.iter().find_map(requirement_problem)
    }
}

fn requirement_problem(requirement: &LabelRequirement) -> Option<String> {
    let LabelRequirement { key, values, .. } = requirement;
    if let Some(problem) = key_problem(key) {
        return Some(format!("key: Invalid value: {key:?}: {problem}"));
    }
    match requirement.operator {
        LabelOperator::In | LabelOperator::NotIn if values.is_empty() => Some(
            "values: Invalid value: []string{}: for 'in', 'notin' operators, values set can't be empty"
                .to_owned(),
        ),
        LabelOperator::Exists | LabelOperator::DoesNotExist if !values.is_empty() => Some(format!(
            "values: Invalid value: {}: values set must be empty for exists and does not exist",
            go_strings(values)
        )),
        _ => values.iter().enumerate().find_map(|(index, value)| {
            value_problem(value)
                .map(|problem| format!("values[{index}][{key}]: Invalid value: {value:?}: {problem}"))
        }),
    }
}

/// A list of strings as Go prints it, which is how Kubernetes shows it in refusals.
pub(super) fn go_strings(values: &[String]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Longest label name and label value, and longest DNS name, that Kubernetes takes.
const LABEL_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;

/// A label key is a name, or a DNS prefix, a slash and a name.
fn key_problem(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    match prefix {
        Some("") => return Some("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            if let Some(problem) = subdomain_problem(prefix) {
                return Some(format!("prefix part {problem}"));
            }
        }
        None => {}
    }
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > LABEL_MAX {
        return Some(format!(
            "name part must be no more than {LABEL_MAX} characters"
        ));
    }
    (!is_label_text(name)).then(|| format!("name part {NAME_RULE}"))
}

fn value_problem(value: &str) -> Option<String> {
    if value.len() > LABEL_MAX {
        return Some(format!("must be no more than {LABEL_MAX} characters"));
    }
    (!value.is_empty() && !is_label_text(value)).then(|| VALUE_RULE.to_owned())
}

fn is_label_text(text: &str) -> bool {
    text.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && text.ends_with(|letter: char| letter.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.'))
}

/// What is wrong with a lower-case DNS name, in the words of Kubernetes.
pub(super) fn subdomain_problem(name: &str) -> Option<String> {
    if name.len() > SUBDOMAIN_MAX {
        return Some(format!("must be no more than {SUBDOMAIN_MAX} characters"));
    }
    (!is_subdomain(name)).then(|| SUBDOMAIN_RULE.to_owned())
}

/// Lower-case labels of letters, digits and inner dashes, joined by dots.
pub(super) fn is_subdomain(name: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    name.len() <= SUBDOMAIN_MAX
        && name.split('.').all(|label| {
            label.starts_with(plain)
                && label.ends_with(plain)
                && label.chars().all(|letter| plain(letter) || letter == '-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> LabelRequirement {
        LabelRequirement {
            key: key.to_owned(),
            operator: LabelOperator::parse(operator).unwrap(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }
    }

    #[test]
    fn a_selector_has_a_query_form_and_a_json_form() {
        let selector = LabelSelector {
            match_labels: [
                ("b".to_owned(), "2".to_owned()),
                ("a".to_owned(), "1".to_owned()),
            ]
            .into(),
            match_expressions: vec![
                requirement("c", "In", &["x", "y"]),
                requirement("d", "NotIn", &["z"]),
                requirement("e", "Exists", &[]),
                requirement("f", "DoesNotExist", &[]),
            ],
        };
        assert_eq!(selector.to_string(), "a=1,b=2,c in (x,y),d notin (z),e,!f");
        assert_eq!(
            selector.to_json(),
            json!({
                "matchLabels": {"a": "1", "b": "2"},
                "matchExpressions": [
                    {"key": "c", "operator": "In", "values": ["x", "y"]},
                    {"key": "d", "operator": "NotIn", "values": ["z"]},
                    {"key": "e", "operator": "Exists"},
                    {"key": "f", "operator": "DoesNotExist"},
                ]
            })
        );
        assert_eq!(LabelSelector::default().to_string(), "");
        assert_eq!(selector.problem(), None);
    }

    #[test]
    fn a_field_condition_escapes_its_value() {
        let condition = FieldRequirement {
            field: "metadata.name".to_owned(),
            equal: false,
            value: "a=b,c\\d".to_owned(),
        };
        assert_eq!(condition.to_string(), "metadata.name!=a\\=b\\,c\\\\d");
    }

    #[test]
    fn a_selector_that_the_server_would_refuse_is_named() {
        for (key, operator, values, words) in [
            ("a", "In", &[][..], "values set can't be empty"),
            (
                "a",
                "Exists",
                &["x"][..],
                "values: Invalid value: []string{\"x\"}: values set must be empty",
            ),
            (
                "a b",
                "Exists",
                &[][..],
                "key: Invalid value: \"a b\": name part must consist of",
            ),
            ("", "Exists", &[][..], "name part must be non-empty"),
            ("/a", "Exists", &[][..], "prefix part must be non-empty"),
            (
                "A.b/c",
                "Exists",
                &[][..],
                "prefix part a lowercase RFC 1123",
            ),
            (
                "a",
                "In",
                &["-x"][..],
                "values[0][a]: Invalid value: \"-x\": a valid label must be",
            ),
        ] {
            let selector = LabelSelector {
                match_expressions: vec![requirement(key, operator, values)],
                ..LabelSelector::default()
            };
            let problem = selector.problem().unwrap_or_default();
            assert!(problem.contains(words), "{key} {operator}: {problem}");
        }
        let long = "x".repeat(64);
        let labels = |key: &str, value: &str| LabelSelector {
            match_labels: [(key.to_owned(), value.to_owned())].into(),
            ..LabelSelector::default()
        };
        assert!(labels("a", &long).problem().is_some());
        assert!(labels(&long, "a").problem().is_some());
        assert_eq!(labels("example.com/role", "").problem(), None);
    }
}
