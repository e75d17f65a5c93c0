//! Manifests: from files, directories and standard input to objects that know where they are written.
//!
//! ```text
//! file -> documents (YAML, JSON, JSON after JSON) -> lists taken apart -> Manifest { object, file, line, document, template }
//! ```
//! Runs on the main thread and owns nothing afterwards. What cannot be read is handed on as a mistake with its place, beside all that
//! can; it never ends the reading of other files. It never guesses what a document is.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;
use serde_json::value::RawValue;

use super::outcome::Place;
use crate::yaml::{self, Node, Step, Tree};

/// LIMIT: one file. An export of a cluster with ten thousand objects is about 50 MB.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;
/// LIMIT: directories within directories. Repositories of manifests are rarely deeper than ten.
const MAX_DEPTH: usize = 64;
/// Standard input, as it is given and as it is shown.
const STDIN: &str = "-";
/// What `helm template` writes above each document.
const SOURCE: &str = "# Source: ";

/// One object, or one recorded AdmissionReview.
pub(super) struct Manifest {
    pub(super) place: Place,
    pub(super) object: Value,
    /// The document, which knows the line of every field.
    node: Node,
}

/// A document that is no manifest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) place: Place,
    pub(super) message: String,
}

/// What a path holds.
#[derive(Default)]
pub(super) struct Found {
    pub(super) manifests: Vec<Manifest>,
    pub(super) mistakes: Vec<Mistake>,
}

impl Manifest {
    pub(super) fn text(&self, pointer: &str) -> &str {
        let value = self.object.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default()
    }

    /// The line of the field that a message speaks of, or of the object itself. Such a field is written as `spec.replicas` or
    /// `spec.containers[0].image`; of several the one that leads deepest counts.
    pub(super) fn line_of(&self, message: &str) -> u64 {
        let is_path = |letter: char| letter.is_ascii_alphanumeric() || "._-[]/".contains(letter);
        let words = message.split(|letter: char| !is_path(letter));
        let paths = words.filter_map(|word| {
            let steps = steps(word.trim_end_matches(['.', '-', '/']));
            let (Step::Key(first), true) = (steps.first().copied()?, steps.len() > 1) else {
                return None;
            };
            self.node.entry(first)?;
            Some((steps.len(), self.node.line_at(&steps)))
        });
        let deepest = paths.max_by_key(|(depth, _)| *depth);
        deepest.map_or(self.place.line, |(_, line)| line)
    }
}

/// `spec.containers[0].image` as steps; nothing for what is no path.
fn steps(word: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    for part in word.trim_start_matches('.').split('.') {
        let (key, indexes) = part.split_once('[').unwrap_or((part, ""));
        if key.is_empty() {
            return Vec::new();
        }
        steps.push(Step::Key(key));
        for index in indexes.split(['[', ']']).filter(|index| !index.is_empty()) {
            match index.parse() {
                Ok(index) => steps.push(Step::Index(index)),
                Err(_) => return steps,
            }
        }
    }
    steps
}

/// Everything behind the paths, in their order. An error is a path that is not there or cannot be read.
pub(super) fn read(paths: &[String]) -> Result<Found, String> {
    let mut found = Found::default();
    for given in paths {
        if given == STDIN {
            let text = limited(io::stdin(), STDIN)?;
            found.add_file(STDIN, &text);
            continue;
        }
        let path = Path::new(given);
        let kind = fs::metadata(path)
            .map_err(|error| format!("manifests: '{given}' cannot be read: {error}"))?;
        if !kind.is_dir() {
            found.open(path)?;
            continue;
        }
        let mut files = Vec::new();
        collect(path, 0, &mut files)?;
        if files.is_empty() {
            return Err(format!(
                "manifests: directory '{given}' holds no file that ends in .yaml, .yml or .json"
            ));
        }
        for file in files {
            found.open(&file)?;
        }
    }
    Ok(found)
}

/// The manifests of a directory, at any depth, sorted by name. Links to directories are not followed, and neither hidden files nor tests
/// beside hooks are manifests.
fn collect(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let failed = |error: io::Error| {
        format!(
            "manifests: '{}' cannot be read: {error}",
            directory.display()
        )
    };
    if depth > MAX_DEPTH {
        let shown = directory.display();
        return Err(format!(
            "manifests: '{shown}' is nested deeper than {MAX_DEPTH} directories"
        ));
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        entries.push(entry.map_err(failed)?);
    }
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        if entry.file_type().map_err(failed)?.is_dir() {
            collect(&entry.path(), depth + 1, files)?;
        } else if is_manifest(&name) {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn is_manifest(name: &str) -> bool {
    let is_test = name.ends_with(".tests.yaml") || name.ends_with(".tests.yml");
    [".yaml", ".yml", ".json"]
        .iter()
        .any(|ending| name.ends_with(ending))
        && !is_test
}

/// All of a file, as text.
fn limited(reader: impl io::Read, shown: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    reader
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("manifests: '{shown}' cannot be read: {error}"))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(format!(
            "manifests: '{shown}' is larger than {MAX_FILE_BYTES} bytes; split it"
        ));
    }
    let text = String::from_utf8(bytes).map_err(|_error| {
        format!("manifests: '{shown}' is no text; write YAML or JSON in UTF-8")
    })?;
    // Editors of Windows put it at the start of a file.
    Ok(text
        .strip_prefix('\u{feff}')
        .map_or(text.clone(), str::to_owned))
}

impl Found {
    fn open(&mut self, path: &Path) -> Result<(), String> {
        let shown = path.to_string_lossy();
        let file = fs::File::open(path)
            .map_err(|error| format!("manifests: '{shown}' cannot be read: {error}"))?;
        let text = limited(file, &shown)?;
        self.add_file(&shown, &text);
        Ok(())
    }

    /// The documents of one file. The first mistake ends the file, because nobody can tell where it ends.
    fn add_file(&mut self, file: &str, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let mut documents = 0;
        let mut each = |node: Node| {
            documents += 1;
            let place = Place {
                file: file.to_owned(),
                line: node.line,
                document: documents,
                source: source(&lines, node.line),
            };
            self.add_document(place, node);
        };
        let read = match json_after_json(text) {
            Some(parts) => parts.into_iter().try_for_each(|(line, part)| {
                let mut node = yaml::parse(part).map_err(|mut error| {
                    error.line += line;
                    (0, error)
                })?;
                shift(&mut node, line);
                each(node);
                Ok(())
            }),
            None => yaml::each_manifest(text, each),
        };
        if let Err((_, error)) = read {
            let place = Place {
                file: file.to_owned(),
                line: error.line.max(1),
                document: documents + 1,
                source: None,
            };
            let message = format!("document {}: {error}", documents + 1);
            self.mistakes.push(Mistake { place, message });
        }
    }

    /// An object, or the objects of a list.
    fn add_document(&mut self, place: Place, node: Node) {
        let text = |key: &str| match &node.entry(key)?.node.tree {
            Tree::String(text) if !text.is_empty() => Some(text.as_str()),
            _ => None,
        };
        let flaw = match (&node.tree, text("apiVersion"), text("kind")) {
            (Tree::Object(_), Some(_), Some(_)) => None,
            (Tree::Object(_), None, _) => Some("apiVersion, which must be a text".to_owned()),
            (Tree::Object(_), _, None) => Some("kind, which must be a text".to_owned()),
            _ => Some(format!("fields: it is a {}", node.type_name())),
        };
        if let Some(flaw) = flaw {
            let message = format!("document {} has no {flaw}", place.document);
            self.mistakes.push(Mistake { place, message });
            return;
        }
        let (api_version, kind) = (text("apiVersion"), text("kind").unwrap_or_default());
        let of_kind = kind.strip_suffix("List");
        match (of_kind, node.entry("items").map(|items| &items.node.tree)) {
            (Some(of_kind), Some(Tree::Array(items))) => {
                for item in items {
                    let place = Place {
                        line: item.line,
                        ..place.clone()
                    };
                    let mut item = item.clone();
                    // What a server lists leaves out what the list says already.
                    if !of_kind.is_empty() {
                        complete(&mut item, "kind", of_kind);
                        complete(&mut item, "apiVersion", api_version.unwrap_or_default());
                    }
                    self.add_document(place, item);
                }
            }
            _ => self.manifests.push(Manifest {
                object: node.to_value(),
                place,
                node,
            }),
        }
    }
}

/// Adds a field that is not there.
fn complete(node: &mut Node, key: &str, value: &str) {
    let line = node.line;
    if node.entry(key).is_some() {
        return;
    }
    if let Tree::Object(entries) = &mut node.tree {
        entries.push(yaml::Entry {
            key: key.to_owned(),
            line,
            node: Node {
                line,
                tree: Tree::String(value.to_owned()),
            },
        });
    }
}

/// The parts of a text that holds one JSON document after the other, as recorders write them, each with the lines before it. None for
/// anything else: one document alone is YAML, too.
fn json_after_json(text: &str) -> Option<Vec<(u64, &str)>> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let mut parts = Vec::new();
    let (mut line, mut counted) = (0_u64, 0);
    while let Some(part) = stream.next() {
        let part = part.ok()?.get();
        let start = stream.byte_offset().checked_sub(part.len())?;
        let before = text.get(counted..start)?.matches('\n').count();
        line += u64::try_from(before).ok()?;
        counted = start;
        parts.push((line, part));
    }
    (parts.len() > 1).then_some(parts)
}

/// Lines of a part become lines of the whole.
fn shift(node: &mut Node, lines: u64) {
    node.line += lines;
    match &mut node.tree {
        Tree::Array(items) => items.iter_mut().for_each(|item| shift(item, lines)),
        Tree::Object(entries) => entries.iter_mut().for_each(|entry| {
            entry.line += lines;
            shift(&mut entry.node, lines);
        }),
        _ => {}
    }
}

/// The template that a comment between the separator and the document names.
fn source(lines: &[&str], line: u64) -> Option<String> {
    let above = usize::try_from(line).ok()?.checked_sub(1)?;
    let comments = lines.get(..above)?.iter().rev().map(|line| line.trim());
    let comments = comments.take_while(|line| line.is_empty() || line.starts_with('#'));
    let mut sources = comments.filter_map(|line| line.strip_prefix(SOURCE));
    sources.next().map(|source| source.trim().to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One object, for tests of other files.
    pub(in super::super) fn manifest(text: &str) -> Manifest {
        found(text).manifests.pop().unwrap()
    }

    fn found(text: &str) -> Found {
        let mut found = Found::default();
        found.add_file("a.yaml", text);
        found
    }

    /// Kind, name, line, document and template of every object, then the mistakes.
    fn check(text: &str, expected: &[&str]) {
        let found = found(text);
        let objects = found.manifests.iter().map(|manifest| {
            let Place {
                line,
                document,
                source,
                ..
            } = &manifest.place;
            let (kind, name) = (manifest.text("/kind"), manifest.text("/metadata/name"));
            let source = source.as_deref().unwrap_or("-");
            format!("{kind} {name} {line} {document} {source}")
        });
        let mistakes = found.mistakes.iter().map(|mistake| {
            let place = &mistake.place;
            format!("{}:{} {}", place.line, place.document, mistake.message)
        });
        let shown: Vec<String> = objects.chain(mistakes).collect();
        assert_eq!(shown, expected, "{text}");
    }

    #[test]
    fn lines_count_in_the_whole_file_and_templates_are_named() {
        check(
            "---\n# Source: shop/templates/a.yaml\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n\
             # only a comment\n---\n# Source: shop/templates/b.yaml\n# more\n\napiVersion: v1\nkind: Pod\nmetadata:\n  name: b\n...\n",
            &[
                "Pod a 3 1 shop/templates/a.yaml",
                "Pod b 12 2 shop/templates/b.yaml",
            ],
        );
    }

    #[test]
    fn lists_are_taken_apart() {
        check(
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n\
             - apiVersion: v1\n  kind: List\n  items:\n  - {apiVersion: v1, kind: Pod, metadata: {name: b}}\n",
            &["Pod a 4 1 -", "Pod b 10 1 -"],
        );
        check(
            "{\"kind\": \"PodList\", \"apiVersion\": \"v1\", \"items\": [\n{\"metadata\": {\"name\": \"a\"}}]}",
            &["Pod a 2 1 -"],
        );
        check(
            "apiVersion: v1\nkind: List\nitems: [1]\n",
            &["3:1 document 1 has no fields: it is a number"],
        );
    }

    #[test]
    fn json_may_follow_json() {
        check(
            "{\"apiVersion\": \"v1\",\n\"kind\": \"Pod\",\n\"metadata\": {\"name\": \"a\"}}\n\
             {\"apiVersion\": \"v1\", \"kind\": \"Pod\",\n\"metadata\": {\"name\": \"b\"}}\n",
            &["Pod a 1 1 -", "Pod b 4 2 -"],
        );
    }

    #[test]
    fn what_is_no_manifest_is_named_with_its_place() {
        check(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nkind: Pod\n---\napiVersion: v1\nkind: 1\n---\n- a\n",
            &[
                "Pod a 1 1 -",
                "5:2 document 2 has no apiVersion, which must be a text",
                "7:3 document 3 has no kind, which must be a text",
                "10:4 document 4 has no fields: it is a array",
            ],
        );
        let broken = found("apiVersion: v1\nkind: Pod\n---\na: [1,\nb: 2\n");
        assert_eq!(broken.manifests.len(), 1);
        let mistake = broken.mistakes.first().unwrap();
        assert!(mistake.place.line >= 4, "{mistake:?}");
        assert!(
            mistake.message.starts_with("document 2: line "),
            "{mistake:?}"
        );
    }

    #[test]
    fn a_message_leads_to_the_field_it_speaks_of() {
        let found = found(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - name: c\n    image: i\n  - name: d\n    image: j\n",
        );
        let manifest = found.manifests.first().unwrap();
        for (message, line) in [
            ("no", 1),
            ("see metadata.", 1),
            ("set metadata.labels.owner to somebody", 3),
            ("spec.containers[1].image is not allowed.", 10),
            ("`.spec.containers[0].image`, spec.containers", 8),
            ("spec.containers[9].x[y.z", 6),
            ("example.com/metadata", 1),
        ] {
            assert_eq!(manifest.line_of(message), line, "{message}");
        }
    }
}
