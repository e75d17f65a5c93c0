//! The only door to the YAML library.
//!
//! Text in, values out, on whichever thread asks (and for people who look inside, values in and text out: `emit`). The dialect is that of Kubernetes tools: YAML 1.1 booleans (`yes`, `on`),
//! old octals (`0644` is 420) and merge keys. A repeated key is refused, because one of the two values would be lost in
//! silence. Every document is read under a budget, so that a small text cannot become a large tree. It holds no state,
//! reads no file and never evaluates tags.

mod emit;
mod tree;

use std::fmt;

use serde_saphyr::{DuplicateKeyPolicy, Options};

pub(crate) use emit::emit;
pub(crate) use tree::{Node, Step, Tree, integer};

/// LIMIT: deepest nesting of lists and maps. Every property of a CRD schema costs two levels, and the schemas that embed a
/// whole Pod reach about 40. A level costs up to 40 KiB of stack in a build without optimisation, so that 48 levels stay
/// below the 2 MiB that our threads have.
const MAX_DEPTH: usize = 48;

/// LIMIT: nodes in one text. A manifest spends about 20 bytes a node, so this is a text of about 40 MB, more than any file
/// that a person keeps in a repository.
const MAX_NODES: usize = 2_000_000;

/// LIMIT: nodes in one object or one document of a stream. An API server takes objects of 3 MiB, which is 150 000 nodes as people write them.
const MAX_OBJECT_NODES: usize = 300_000;

/// LIMIT: documents in one text; a dump of a middling cluster is about 10 000 objects.
const MAX_DOCUMENTS: usize = 50_000;

/// LIMIT: nodes that aliases may add. People share a few blocks by anchor; ten levels of ten aliases would be 10^10.
const MAX_ALIASED_NODES: usize = 100_000;

/// Why a text is not what was asked for. Line and column count from 1; both are 0 when the library knows no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) line: u64,
    pub(crate) column: u64,
    pub(crate) message: String,
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

/// Reads a text that holds exactly one document.
pub(crate) fn parse(text: &str) -> Result<Node, Error> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| readable(&error))
}

/// The same for texts whose values are meant as text, such as a kubeconfig: `y` and `N` are names there, and no booleans.
pub(crate) fn parse_plain(text: &str) -> Result<Node, Error> {
    let mut options = options();
    options.strict_booleans = true;
    options.legacy_octal_numbers = false;
    serde_saphyr::from_str_with_options(text, options).map_err(|error| readable(&error))
}

/// The same as `parse` for one object of the cluster, which is never as large as a file that people keep.
pub(crate) fn parse_object(text: &str) -> Result<Node, Error> {
    let options = options_for(MAX_OBJECT_NODES);
    serde_saphyr::from_str_with_options(text, options).map_err(|error| readable(&error))
}

/// Reads a text of any number of documents and shows them one by one, so that there is never more than one tree. Empty documents
/// are left out. `yes` and `on` are texts here, `0644` is 420: that is how the original reads what hooks write. Stops at the first
/// error, of the text or of `each`, and says before how many documents it came.
pub(crate) fn each_document<E>(
    text: &str,
    mut each: impl FnMut(&Node) -> Result<(), E>,
) -> Result<Result<(), E>, (usize, Error)> {
    let mut options = options_for(MAX_OBJECT_NODES);
    options.strict_booleans = true;
    let mut bytes = text.as_bytes();
    let documents = serde_saphyr::read_with_options::<_, Node>(&mut bytes, options);
    for (read, document) in documents.enumerate() {
        let node = document.map_err(|error| (read, readable(&error)))?;
        if let Err(refused) = each(&node) {
            return Ok(Err(refused));
        }
    }
    Ok(Ok(()))
}

fn options() -> Options {
    options_for(MAX_NODES)
}

fn options_for(nodes: usize) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: nodes,
            // A node is at most a start and an end, a document likewise.
            max_events: 2 * (nodes + MAX_DOCUMENTS),
            max_documents: MAX_DOCUMENTS,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_ALIASED_NODES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// The library ends its message with the place, which we keep apart so that the caller can put the file name before it.
fn readable(error: &serde_saphyr::Error) -> Error {
    let error = error.without_snippet();
    let text = one_line(&error.to_string());
    match error.location() {
        Some(place) => {
            let (line, column) = (place.line(), place.column());
            let suffix = format!(" at line {line}, column {column}");
            Error {
                line,
                column,
                message: text.strip_suffix(&suffix).unwrap_or(&text).to_owned(),
            }
        }
        None => Error {
            line: 0,
            column: 0,
            message: text,
        },
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
}
