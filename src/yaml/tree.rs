//! A document as a tree that remembers the line of every key and value.
//!
//! It keeps the order of the document, so that errors come in that order, and knows no schema. Plain values, made by the
//! reader on whichever thread asks and owned by the caller; nothing here reads text.

use serde_json::{Map, Number, Value};

/// A value and the line it stands on. Lines count from 1; 0 means that the place is not known.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) line: u64,
    pub(crate) tree: Tree,
}

#[derive(Debug, Clone)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Node>),
    Object(Vec<Entry>),
}

/// One key of an object with its own line, which differs from the value's when that begins below.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: u64,
    pub(crate) node: Node,
}

/// A step of a path into the tree.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl Node {
    /// The word that schema errors use for what was found.
    pub(crate) fn type_name(&self) -> &'static str {
        match &self.tree {
            Tree::Null => "null",
            Tree::Bool(_) => "boolean",
            Tree::Number(_) => "number",
            Tree::String(_) => "string",
            Tree::Array(_) => "array",
            Tree::Object(_) => "object",
        }
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.tree {
            Tree::Object(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The line of the last part of the path that exists: of the key itself, or of the nearest thing around it.
    pub(crate) fn line_at(&self, path: &[Step<'_>]) -> u64 {
        let mut node = self;
        let mut line = self.line;
        for step in path {
            let next = match (step, &node.tree) {
                (Step::Key(key), _) => node.entry(key).map(|entry| (entry.line, &entry.node)),
                (Step::Index(index), Tree::Array(items)) => {
                    items.get(*index).map(|item| (item.line, item))
                }
                (Step::Index(_), _) => None,
            };
            let Some((next_line, next_node)) = next else {
                break;
            };
            (line, node) = (next_line, next_node);
        }
        line
    }

    /// The same as a JSON value. Whole numbers written as floats become integers, as the original's decoder takes them.
    pub(crate) fn to_value(&self) -> Value {
        match &self.tree {
            Tree::Null => Value::Null,
            Tree::Bool(bool) => Value::Bool(*bool),
            Tree::Number(number) => {
                integer(number).map_or_else(|| Value::Number(number.clone()), Value::from)
            }
            Tree::String(text) => Value::String(text.clone()),
            Tree::Array(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Tree::Object(entries) => Value::Object(
                entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.node.to_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

/// The integer that a number stands for, if it is a whole one: `10` and `10.0` alike.
pub(crate) fn integer(number: &Number) -> Option<i64> {
    if let Some(int) = number.as_i64() {
        return Some(int);
    }
    let float = number.as_f64()?;
    if float.fract() == 0.0 {
        format!("{float:.0}").parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_key_and_value_knows_its_line() {
        let node = crate::yaml::parse(
            "configVersion: v1\nkubernetes:\n- kind: Pod\n  nameSelector:\n    matchNames:\n    - a\n    - b\nonStartup: 10.0\n",
        )
        .unwrap();
        let line = |path: &[Step<'_>]| node.line_at(path);
        assert_eq!(line(&[Step::Key("configVersion")]), 1);
        assert_eq!(line(&[Step::Key("kubernetes")]), 2);
        assert_eq!(line(&[Step::Key("kubernetes"), Step::Index(0)]), 3);
        let selector = [
            Step::Key("kubernetes"),
            Step::Index(0),
            Step::Key("nameSelector"),
        ];
        assert_eq!(line(&selector), 4);
        assert_eq!(
            line(&[
                selector[0],
                selector[1],
                selector[2],
                Step::Key("matchNames"),
                Step::Index(1)
            ]),
            7
        );
        // What does not exist is reported where it would have to be.
        assert_eq!(
            line(&[Step::Key("kubernetes"), Step::Index(0), Step::Key("queue")]),
            3
        );
        assert_eq!(
            node.to_value(),
            json!({"configVersion": "v1", "kubernetes": [{"kind": "Pod", "nameSelector": {"matchNames": ["a", "b"]}}], "onStartup": 10})
        );
    }

    #[test]
    fn json_has_lines_too() {
        let node: Node =
            crate::yaml::parse("{\n  \"configVersion\": \"v1\",\n  \"onStartup\": 1\n}").unwrap();
        assert_eq!(node.line_at(&[Step::Key("onStartup")]), 3);
        assert_eq!(node.type_name(), "object");
    }
}
