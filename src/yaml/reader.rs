//! From the parser's events to trees: anchors, merge keys, repeated keys, and the limits on all of it.
//!
//! One `Reader` reads one text, on whichever thread asks, and owns the anchors of the document it is in. The recursion is as
//! deep as the document, which `MAX_DEPTH` bounds, also through aliases. A copy is made only when an alias asks for one, and
//! only after it was weighed. It never reads a file and never follows an include.

use std::collections::{BTreeMap, HashSet};

use granit_parser::{Event, Parser, Span, StrInput};

use super::tree::{Entry, Node, Tree};
use super::{Dialect, Error, Flaw, MAX_COPIED_BYTES, MAX_DEPTH, MAX_DOCUMENTS, scalar};

pub(super) struct Reader<'text> {
    parser: Parser<'text, StrInput<'text>>,
    dialect: Dialect,
    /// LIMIT: values and keys in one document.
    max_nodes: usize,
    documents: usize,
    /// What the anchors of this document name, by the parser's number for them.
    anchors: BTreeMap<usize, Tree>,
    nodes: usize,
    copied: usize,
}

impl<'text> Reader<'text> {
    pub(super) fn new(text: &'text str, dialect: Dialect, max_nodes: usize) -> Self {
        Reader {
            parser: Parser::new_from_str_with_options(
                text,
                granit_parser::options! { emit_comments: false },
            ),
            dialect,
            max_nodes,
            documents: 0,
            anchors: BTreeMap::new(),
            nodes: 0,
            copied: 0,
        }
    }

    /// The next document, or none at the end of the text. After an error nothing more is to be asked for.
    pub(super) fn document(&mut self) -> Result<Option<Node>, Error> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(None),
                Event::DocumentStart(..) => {
                    self.documents += 1;
                    if self.documents > MAX_DOCUMENTS {
                        let text = format!("more than {MAX_DOCUMENTS} documents; split the text");
                        return Err(error(&span, Flaw::TooMuch, text));
                    }
                    // An anchor is known in its own document only.
                    self.anchors.clear();
                    (self.nodes, self.copied) = (0, 0);
                    return self.node(0).map(Some);
                }
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'text>, Span), Error> {
        let (event, span) = match self.parser.next_event() {
            Some(Ok(next)) => next,
            Some(Err(refused)) => {
                return Err(Error::at(refused.marker(), Flaw::Syntax, refused.info()));
            }
            None => (Event::StreamEnd, Span::default()),
        };
        if event.is_node() {
            self.nodes += 1;
            if self.nodes > self.max_nodes {
                let text = format!("more than {} values; split the text", self.max_nodes);
                return Err(error(&span, Flaw::TooMuch, text));
            }
        }
        Ok((event, span))
    }

    /// The value that comes next; `depth` lists and maps are open around it.
    fn node(&mut self, depth: usize) -> Result<Node, Error> {
        let (event, span) = self.next()?;
        self.node_from(event, &span, depth)
    }

    fn node_from(&mut self, event: Event<'text>, span: &Span, depth: usize) -> Result<Node, Error> {
        let (tree, anchor) = match event {
            Event::Alias(anchor) => return self.copy(anchor, span, depth),
            Event::Scalar(text, style, anchor, tag) => {
                let tree = scalar::resolve(&text, style, tag.as_deref(), self.dialect)
                    .map_err(|(flaw, text)| error(span, flaw, text))?;
                (tree, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                scalar::check_tag(tag.as_deref(), "seq")
                    .map_err(|text| error(span, Flaw::Tag, text))?;
                (self.sequence(span, depth)?, anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                scalar::check_tag(tag.as_deref(), "map")
                    .map_err(|text| error(span, Flaw::Tag, text))?;
                (self.mapping(span, depth)?, anchor)
            }
            _ => return Err(error(span, Flaw::Syntax, "a value is missing here")),
        };
        self.remember(anchor, &tree, span)?;
        Ok(Node {
            line: line(span),
            tree,
        })
    }

    /// Keeps what an anchor names; 0 is the parser's word for none.
    fn remember(&mut self, anchor: usize, tree: &Tree, span: &Span) -> Result<(), Error> {
        if anchor != 0 {
            self.pay(tree, span)?;
            self.anchors.insert(anchor, tree.clone());
        }
        Ok(())
    }

    fn sequence(&mut self, span: &Span, depth: usize) -> Result<Tree, Error> {
        let depth = deeper(span, depth, 1)?;
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Tree::Array(items));
            }
            items.push(self.node_from(event, &span, depth)?);
        }
    }

    fn mapping(&mut self, span: &Span, depth: usize) -> Result<Tree, Error> {
        let depth = deeper(span, depth, 1)?;
        let mut entries = Vec::new();
        let mut merged = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            if is_merge(&event) {
                self.merge(&mut merged, depth)?;
                continue;
            }
            let key = self.key(event, &span)?;
            if !seen.insert(key.clone()) {
                return Err(error(
                    &span,
                    Flaw::DuplicateKey,
                    format!("duplicate key '{key}'"),
                ));
            }
            entries.push(Entry {
                key,
                line: line(&span),
                node: self.node(depth)?,
            });
        }
        // What the mapping says itself wins, then what it took over first.
        for entry in merged {
            if seen.insert(entry.key.clone()) {
                entries.push(entry);
            }
        }
        Ok(Tree::Object(entries))
    }

    /// The name of an entry as it is written: `yes: 1` has the key "yes", as JSON would.
    fn key(&mut self, event: Event<'text>, span: &Span) -> Result<String, Error> {
        let tree = match event {
            Event::Scalar(text, style, anchor, tag) => {
                if scalar::is_null_key(&text, style, tag.as_deref()) {
                    return Err(error(
                        span,
                        Flaw::Key,
                        "a key is empty; quote it if it is meant",
                    ));
                }
                scalar::check_tag(tag.as_deref(), "str")
                    .map_err(|text| error(span, Flaw::Tag, text))?;
                let tree = Tree::String(text.into_owned());
                self.remember(anchor, &tree, span)?;
                tree
            }
            Event::Alias(anchor) => self.copy(anchor, span, 0)?.tree,
            _ => Tree::Null,
        };
        match tree {
            Tree::String(key) => Ok(key),
            _ => Err(error(
                span,
                Flaw::Key,
                "a key must be text, and no list or map",
            )),
        }
    }

    /// Adds the entries behind a `<<`: those of one mapping, or of several in a list.
    fn merge(&mut self, merged: &mut Vec<Entry>, depth: usize) -> Result<(), Error> {
        let (event, span) = self.next()?;
        let node = self.node_from(event, &span, depth)?;
        let sources = match node.tree {
            Tree::Null => Vec::new(),
            Tree::Array(items) => items,
            tree => vec![Node { tree, ..node }],
        };
        for source in sources {
            match source.tree {
                Tree::Object(entries) => merged.extend(entries),
                _ => return Err(error(&span, Flaw::Merge, Flaw::Merge.to_string())),
            }
        }
        Ok(())
    }

    /// What an alias stands for, which is on the alias's line, while everything inside stays where it was written.
    fn copy(&mut self, anchor: usize, span: &Span, depth: usize) -> Result<Node, Error> {
        let Some(source) = self.anchors.remove(&anchor) else {
            return Err(error(
                span,
                Flaw::Alias,
                "this alias names a value that it is part of",
            ));
        };
        deeper(span, depth, height(&source))?;
        self.pay(&source, span)?;
        let node = Node {
            line: line(span),
            tree: source.clone(),
        };
        self.anchors.insert(anchor, source);
        Ok(node)
    }

    /// Counts a copy before it is made.
    fn pay(&mut self, tree: &Tree, span: &Span) -> Result<(), Error> {
        self.copied = self.copied.saturating_add(weight(tree));
        if self.copied > MAX_COPIED_BYTES {
            let text = "anchors and aliases repeat too much; write the values out";
            return Err(error(span, Flaw::TooMuch, text));
        }
        Ok(())
    }
}

fn is_merge(event: &Event<'_>) -> bool {
    matches!(event, Event::Scalar(text, style, _, tag) if scalar::is_merge(text, *style, tag.as_deref()))
}

fn deeper(span: &Span, depth: usize, levels: usize) -> Result<usize, Error> {
    let depth = depth + levels;
    if depth > MAX_DEPTH {
        let text = format!("nested deeper than {MAX_DEPTH} lists and maps");
        return Err(error(span, Flaw::TooMuch, text));
    }
    Ok(depth)
}

/// How many lists and maps are inside each other.
fn height(tree: &Tree) -> usize {
    let inside = match tree {
        Tree::Array(items) => items.iter().map(|item| height(&item.tree)).max(),
        Tree::Object(entries) => entries.iter().map(|entry| height(&entry.node.tree)).max(),
        _ => return 0,
    };
    1 + inside.unwrap_or(0)
}

/// The memory that a copy takes, near enough.
fn weight(tree: &Tree) -> usize {
    let inside = match tree {
        Tree::String(text) => text.len(),
        Tree::Array(items) => items.iter().map(|item| weight(&item.tree)).sum(),
        Tree::Object(entries) => entries
            .iter()
            .map(|entry| entry.key.len() + weight(&entry.node.tree))
            .sum(),
        _ => 0,
    };
    size_of::<Entry>() + inside
}

fn line(span: &Span) -> u64 {
    u64::try_from(span.start.line()).unwrap_or_default()
}

fn error(span: &Span, flaw: Flaw, message: impl Into<String>) -> Error {
    Error::at(&span.start, flaw, message.into())
}
