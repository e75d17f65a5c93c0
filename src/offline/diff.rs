//! What a hook changed in an object, one line for each field, for people.
//!
//! Pure. A path is written as in the manifest (`spec.containers[0].image`); a value that was added or removed whole is one line of JSON.
//! What a Secret holds is never shown, only that it changed: reports end up in the logs of build servers.

use serde_json::Value;

/// LIMIT: letters of a value that are shown; more does not fit on a line.
const SHOWN: usize = 100;

/// One field that changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) sign: Sign,
    /// The path and the value.
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Added,
    Removed,
}

impl Sign {
    pub(super) fn letter(self) -> char {
        match self {
            Sign::Added => '+',
            Sign::Removed => '-',
        }
    }
}

/// All changes, in the order of the fields.
pub(super) fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let is_secret = before.get("kind").and_then(Value::as_str) == Some("Secret");
    let mut found = Found {
        changes: Vec::new(),
        is_secret,
    };
    found.compare(&mut String::new(), Some(before), Some(after));
    found.changes
}

struct Found {
    changes: Vec<Change>,
    is_secret: bool,
}

impl Found {
    fn compare(&mut self, path: &mut String, before: Option<&Value>, after: Option<&Value>) {
        if before == after {
            return;
        }
        match (before, after) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let added = new.keys().filter(|key| !old.contains_key(*key));
                for key in old.keys().chain(added) {
                    let dot = if path.is_empty() { "" } else { "." };
                    let step = if key.contains(['.', '/']) {
                        format!("[{key:?}]")
                    } else {
                        format!("{dot}{key}")
                    };
                    self.below(path, &step, old.get(key), new.get(key));
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                for index in 0..old.len().max(new.len()) {
                    self.below(path, &format!("[{index}]"), old.get(index), new.get(index));
                }
            }
            _ => {
                for (sign, value) in [(Sign::Removed, before), (Sign::Added, after)] {
                    if let Some(value) = value {
                        let text = format!("{path}: {}", self.shown(path, value));
                        self.changes.push(Change { sign, text });
                    }
                }
            }
        }
    }

    fn below(
        &mut self,
        path: &mut String,
        step: &str,
        before: Option<&Value>,
        after: Option<&Value>,
    ) {
        let length = path.len();
        path.push_str(step);
        self.compare(path, before, after);
        path.truncate(length);
    }

    fn shown(&self, path: &str, value: &Value) -> String {
        if self.is_secret && (path.starts_with("data") || path.starts_with("stringData")) {
            return "(secret)".to_owned();
        }
        let text = value.to_string();
        let mut shown: String = text.chars().take(SHOWN).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(before: &Value, after: &Value, expected: &[&str]) {
        let lines: Vec<String> = changes(before, after)
            .iter()
            .map(|change| format!("{} {}", change.sign.letter(), change.text))
            .collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn every_changed_field_is_a_line() {
        check(
            &json!({"spec": {"replicas": 1, "paused": true, "same": [1, {"a": 2}]}}),
            &json!({"spec": {"replicas": 2, "same": [1, {"a": 2, "b": 3}, "new"]}, "data": {"x": {}}}),
            &[
                "- spec.paused: true",
                "- spec.replicas: 1",
                "+ spec.replicas: 2",
                "+ spec.same[1].b: 3",
                "+ spec.same[2]: \"new\"",
                "+ data: {\"x\":{}}",
            ],
        );
        check(
            &json!({"metadata": {"labels": {}}}),
            &json!({"metadata": {"labels": {"example.com/team": "a"}}}),
            &["+ metadata.labels[\"example.com/team\"]: \"a\""],
        );
        check(&json!({"a": 1}), &json!({"a": 1}), &[]);
    }

    #[test]
    fn what_a_secret_holds_is_not_shown() {
        check(
            &json!({"kind": "Secret", "data": {"key": "b2xk"}}),
            &json!({"kind": "Secret", "data": {"key": "bmV3", "more": "eA=="}, "type": "Opaque"}),
            &[
                "- data.key: (secret)",
                "+ data.key: (secret)",
                "+ data.more: (secret)",
                "+ type: \"Opaque\"",
            ],
        );
    }
}
