//! The only door to YAML.
//!
//! Text in, values out, on whichever thread asks (and for people who look inside, values in and text out: `emit`). The dialect
//! is that of Kubernetes tools: YAML 1.1 booleans (`yes`, `on`), old octals (`0644` is 420) and merge keys. A repeated key is refused, because one of the two values would be lost in
//! silence. Every text is read under limits, so that a small one cannot become a large tree. The grammar is a library's, which
//! hands us events; `reader.rs` makes trees of them and `scalar.rs` says what a scalar means. It holds no state, reads no
//! file and never evaluates tags.

mod emit;
mod reader;
mod scalar;
mod tree;

use std::fmt;

use granit_parser::Marker;

use reader::Reader;

pub(crate) use emit::emit;
pub(crate) use tree::{Entry, Node, Step, Tree, integer};

/// LIMIT: deepest nesting of lists and maps. Every property of a CRD schema costs two levels, and the schemas that embed a
/// whole Pod reach about 40. JSON readers stop at 128, so that nothing deeper would get far.
const MAX_DEPTH: usize = 100;

/// LIMIT: values and keys in one text. A manifest spends about 20 bytes on each, so this is a text of about 40 MB, more than
/// any file that a person keeps in a repository.
const MAX_NODES: usize = 2_000_000;

/// LIMIT: nodes in one object or one document of a stream. An API server takes objects of 3 MiB, which is 150 000 nodes as
/// people write them.
const MAX_OBJECT_NODES: usize = 300_000;

/// LIMIT: documents in one text; a dump of a middling cluster is about 10 000 objects.
pub(crate) const MAX_DOCUMENTS: usize = 50_000;

/// LIMIT: memory for what anchors and aliases copy. People share a few blocks of some lines; ten levels of ten aliases would
/// be 10^10 values. A value takes about 100 bytes, so this is 80 000 of them.
const MAX_COPIED_BYTES: usize = 8 * 1024 * 1024;

/// How plain scalars are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// As the tools of Kubernetes read a manifest.
    Kubernetes,
    /// The same, but of the booleans only `true` and `false`: how the original reads what hooks write.
    Stream,
    /// As texts, but for null, `true` and `false`.
    Text,
}

/// Why a text is not what was asked for. Line and column count from 1; both are 0 when the library knows no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) line: u64,
    pub(crate) column: u64,
    pub(crate) message: String,
    pub(crate) flaw: Flaw,
}

/// What is wrong, without anything of the text, for texts that may hold what nobody should read: `message` may quote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    Syntax,
    DuplicateKey,
    Key,
    /// A number that is not finite.
    Number,
    Tag,
    Merge,
    Alias,
    TooMuch,
    SecondDocument,
}

impl fmt::Display for Flaw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Flaw::Syntax => "this is not YAML",
            Flaw::DuplicateKey => "duplicate key",
            Flaw::Key => "a key must be text, and neither empty nor a list or a map",
            Flaw::Number => "a number is not finite; quote it if it is text",
            Flaw::Tag => "a tag does not fit its value",
            Flaw::Merge => "`<<` takes a map or a list of maps",
            Flaw::Alias => "an alias names a value that it is part of",
            Flaw::TooMuch => "too deep, too many values or documents, or too many copies",
            Flaw::SecondDocument => "a second document begins here; only one is expected",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return out.write_str(&self.message);
        }
        write!(
            out,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl std::error::Error for Error {}

impl Error {
    fn at(place: &Marker, flaw: Flaw, message: String) -> Self {
        let count = |number: usize| u64::try_from(number).unwrap_or_default();
        Error {
            line: count(place.line()),
            // The library counts columns from 0.
            column: count(place.col()) + 1,
            message,
            flaw,
        }
    }
}

/// Reads a text that holds exactly one document; an empty text is one that says nothing.
pub(crate) fn parse(text: &str) -> Result<Node, Error> {
    single(Reader::new(text, Dialect::Kubernetes, MAX_NODES))
}

/// The same for texts whose values are meant as text, such as a kubeconfig: `y`, `0644` and `1.10` are names there.
pub(crate) fn parse_plain(text: &str) -> Result<Node, Error> {
    single(Reader::new(text, Dialect::Text, MAX_NODES))
}

/// The same as `parse` for one object of the cluster, which is never as large as a file that people keep.
pub(crate) fn parse_object(text: &str) -> Result<Node, Error> {
    single(Reader::new(text, Dialect::Kubernetes, MAX_OBJECT_NODES))
}

/// Reads a text of any number of documents and shows them one by one, so that there is never more than one tree. Empty documents
/// are left out. `yes` and `on` are texts here, `0644` is 420: that is how the original reads what hooks write. Stops at the first
/// error, of the text or of `each`, and says before how many documents it came.
pub(crate) fn each_document<E>(
    text: &str,
    mut each: impl FnMut(&Node) -> Result<(), E>,
) -> Result<Result<(), E>, (usize, Error)> {
    let mut reader = Reader::new(text, Dialect::Stream, MAX_OBJECT_NODES);
    let mut read = 0;
    while let Some(node) = reader.document().map_err(|error| (read, error))? {
        if matches!(node.tree, Tree::Null) {
            continue;
        }
        read += 1;
        if let Err(refused) = each(&node) {
            return Ok(Err(refused));
        }
    }
    Ok(Ok(()))
}

/// Reads manifests: a text of any number of documents, as the tools of Kubernetes read it. Lines count from the start of the text. Hands
/// over what was read before the first mistake; says before how many documents that was.
pub(crate) fn each_manifest(text: &str, mut each: impl FnMut(Node)) -> Result<(), (usize, Error)> {
    let mut reader = Reader::new(text, Dialect::Kubernetes, MAX_NODES);
    let mut read = 0;
    while let Some(node) = reader.document().map_err(|error| (read, error))? {
        if !matches!(node.tree, Tree::Null) {
            read += 1;
            each(node);
        }
    }
    Ok(())
}

fn single(mut reader: Reader<'_>) -> Result<Node, Error> {
    let first = reader.document()?.unwrap_or(Node {
        line: 1,
        tree: Tree::Null,
    });
    match reader.document()? {
        None => Ok(first),
        Some(second) => Err(Error {
            line: second.line,
            column: 1,
            message: Flaw::SecondDocument.to_string(),
            flaw: Flaw::SecondDocument,
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(text: &str, expected: &Value) {
        let read = parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(&read.to_value(), expected, "{text:?}");
    }

    #[test]
    fn scalars_are_read_as_kubernetes_tools_read_them() {
        check("a: yes", &json!({"a": true}));
        check("a: off", &json!({"a": false}));
        check("a: 0644", &json!({"a": 420}));
        check("a: 0o644", &json!({"a": 420}));
        check("a: \"0644\"", &json!({"a": "0644"}));
        check("a: 12345678901", &json!({"a": 12_345_678_901_u64}));
        check("a: ~", &json!({"a": null}));
        check("a: 1.5", &json!({"a": 1.5}));
        check("a: v1", &json!({"a": "v1"}));
        check(
            "a: 2020-01-01T00:00:00Z",
            &json!({"a": "2020-01-01T00:00:00Z"}),
        );
        check(
            "base: &b {x: 1}\nc: {<<: *b, y: 2}",
            &json!({"base": {"x": 1}, "c": {"x": 1, "y": 2}}),
        );
    }

    #[test]
    fn json_is_yaml() {
        check(
            "{\n\t\"configVersion\": \"v1\",\n\t\"schedule\": [{\"crontab\":\"* * * * *\"}]\n}\n",
            &json!({"configVersion": "v1", "schedule": [{"crontab": "* * * * *"}]}),
        );
    }

    #[test]
    fn a_repeated_key_is_refused_with_its_place() {
        let error = parse("a: 1\nb: 2\na: 3\n").unwrap_err();
        assert_eq!((error.line, error.column), (3, 1), "{error}");
        assert!(error.message.contains("duplicate"), "{error}");
    }

    #[test]
    fn an_error_is_one_line_that_names_the_place_once() {
        for text in ["a: [1, 2\nb: 3\n", "a: b: c"] {
            let shown = parse(text).unwrap_err().to_string();
            assert!(!shown.contains('\n'), "{shown}");
            assert_eq!(shown.matches("line ").count(), 1, "{shown}");
        }
    }

    #[test]
    fn a_small_text_cannot_become_a_large_tree() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let previous = level - 1;
            let aliases = vec![format!("*a{previous}"); 10].join(", ");
            bomb.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        parse(&bomb).unwrap_err();
        parse(&"[".repeat(100_000)).unwrap_err();
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        parse(&deep(MAX_DEPTH + 1)).unwrap_err();
        parse(&deep(MAX_DEPTH - 1)).unwrap();
    }

    #[test]
    fn entries_are_taken_over_behind_those_of_the_mapping_itself() {
        check(
            "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\nd: {<<: *a, <<: *b}\ne: {<<: ~, x: 1}",
            &json!({
                "a": {"x": 1, "y": 1},
                "b": {"y": 2, "z": 2},
                "c": {"x": 3, "y": 1, "z": 2},
                "d": {"x": 1, "y": 1, "z": 2},
                "e": {"x": 1},
            }),
        );
        check("{'<<': 1}", &json!({"<<": 1}));
        for text in ["<<: 1", "<<: [1]", "a: &a [1]\nb: {<<: *a}"] {
            parse(text).unwrap_err();
        }
    }

    #[test]
    fn an_alias_is_a_copy_on_the_line_of_the_alias() {
        let node = parse("a: &a\n  x: 1\n\nb: *a\n").unwrap();
        let copy = node.entry("b").unwrap();
        assert_eq!((copy.line, copy.node.line), (4, 4));
        assert_eq!(copy.node.entry("x").unwrap().line, 2);
        check("&k a: 1\nb: {*k : *k}", &json!({"a": 1, "b": {"a": "a"}}));
    }

    #[test]
    fn an_alias_of_nothing_or_of_what_holds_it_is_refused() {
        for text in ["a: *b", "a: &a [*a]", "a: &a 1\n---\nb: *a"] {
            parse(text).unwrap_err();
        }
    }

    #[test]
    fn a_key_is_text_as_it_is_written() {
        check(
            "{yes: 1, 0644: 2, 1.10: 3, '~': 4, !!str : 5}",
            &json!({"yes": 1, "0644": 2, "1.10": 3, "~": 4, "": 5}),
        );
        for text in [
            "~: 1",
            ": 1",
            "null: 1",
            "[a]: 1",
            "? {a: 1}\n: 2",
            "{1: a, \"1\": b}",
        ] {
            parse(text).unwrap_err();
        }
    }

    #[test]
    fn a_text_is_one_document_or_none() {
        for text in ["", "\n", "# only a comment\n", "---\n", "---\n...\n"] {
            check(text, &Value::Null);
        }
        check("%YAML 1.1\n---\na: 1\n...\n", &json!({"a": 1}));
        let error = parse("a: 1\n---\nb: 2\n").unwrap_err();
        assert_eq!(error.line, 3, "{error}");
    }

    #[test]
    fn copies_are_weighed_by_their_text_and_bounded_in_depth() {
        let long = "x".repeat(MAX_COPIED_BYTES / 50);
        parse(&format!("a: &a {long}\nb: [{}]", ["*a"; 40].join(", "))).unwrap();
        parse(&format!("a: &a {long}\nb: [{}]", ["*a"; 60].join(", "))).unwrap_err();
        let mut tower = String::from("a0: &a0 [1]\n");
        for level in 1..=MAX_DEPTH {
            tower.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        let error = parse(&tower).unwrap_err();
        assert!(error.message.contains("nested"), "{error}");
    }

    #[test]
    fn another_reader_of_the_same_dialect_agrees() {
        let scalars = [
            "",
            "~",
            "yes",
            "Off",
            "y",
            "0",
            "-0",
            "0644",
            "-0644",
            "0o17",
            "0x1F",
            "0b11",
            "1_000",
            "1__0",
            "0_7",
            "0899",
            "1.5",
            "-.5",
            "1.",
            "1e3",
            "inf",
            "12:30",
            "18446744073709551616",
            "-9223372036854775809",
            "v1",
            "'x'",
            "!!str 12",
            "! 5",
            "!!int '5'",
            "!own 5",
            "[1, {a: b}]",
            "|\n  a\n  b\n",
            ">\n  a\n  b\n",
            "&x 1",
            "a b",
            "\"\\u00e9\"",
        ];
        let options = serde_saphyr::options! { legacy_octal_numbers: true };
        for scalar in scalars {
            for text in [format!("k: {scalar}\n"), format!("- {scalar}\n")] {
                let other: Value =
                    serde_saphyr::from_str_with_options(&text, options.clone()).unwrap();
                let ours = parse(&text).unwrap().to_value();
                // Whole floats are integers here.
                let same = ours == other
                    || ours[0].as_f64().or(ours["k"].as_f64())
                        == other[0].as_f64().or(other["k"].as_f64());
                assert!(same, "{text:?}: {ours} {other}");
            }
        }
    }

    #[test]
    fn documents_come_one_by_one_with_the_lines_of_the_whole_text() {
        let text = "---\na: yes\nb: 0644\n---\n# nothing\n---\n\nc: 1\n---\n- 2\n";
        let mut seen = Vec::new();
        let end = each_document(text, |node| {
            seen.push((
                node.entry("c").map_or(0, |entry| entry.line),
                node.to_value(),
            ));
            if node.entry("c").is_some() {
                Err("enough")
            } else {
                Ok(())
            }
        });
        assert_eq!(end.unwrap(), Err("enough"));
        assert_eq!(
            seen,
            [(0, json!({"a": "yes", "b": 420})), (8, json!({"c": 1}))]
        );
        let (before, error) =
            each_document("a: 1\n---\nb: [1\n", |_| Ok::<(), ()>(())).unwrap_err();
        assert_eq!(before, 1, "{error}");
    }
}
