//! The tree that the parser builds, the checker reads and completes, and the evaluator walks.
//!
//! Plain values, any thread. Macros are already expanded here: a comprehension is a node of its own. The tree knows its height,
//! because everything that walks it does so by recursion.

#[derive(Clone, Debug)]
pub(super) struct Expr {
    pub(super) node: Node,
    /// Where it begins, counted in characters.
    pub(super) at: usize,
    /// One more than the highest child.
    pub(super) height: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    Literal(Literal),
    Name(String),
    Select {
        operand: Box<Expr>,
        field: String,
        mode: Mode,
    },
    Index {
        operand: Box<Expr>,
        index: Box<Expr>,
        optional: bool,
    },
    /// Operators are calls, too, under the names that CEL gives them (`_+_`).
    Call {
        function: String,
        target: Option<Box<Expr>>,
        arguments: Vec<Expr>,
    },
    List(Vec<Element>),
    Map(Vec<Entry>),
    /// A chain of `&&` or `||` is one node, so that a long one is not a high one.
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Choice(Box<[Expr; 3]>),
    Fold(Box<Fold>),
    /// `optMap` and `optFlatMap`.
    OptionalMap {
        target: Box<Expr>,
        variable: String,
        body: Box<Expr>,
        flat: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// The name of a type used as a value.
    Type(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Plain,
    /// `has(a.b)`.
    Test,
    /// `a.?b`.
    Optional,
}

#[derive(Clone, Debug)]
pub(super) struct Element {
    pub(super) optional: bool,
    pub(super) value: Expr,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) optional: bool,
    pub(super) key: Expr,
    pub(super) value: Expr,
}

/// One of the macros that walk a list or a map.
#[derive(Clone, Debug)]
pub(super) struct Fold {
    pub(super) kind: FoldKind,
    pub(super) range: Expr,
    /// The element of a list, the key of a map; the index if there is a second variable.
    pub(super) first: String,
    pub(super) second: Option<String>,
    pub(super) filter: Option<Expr>,
    pub(super) body: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map` and `transformList`.
    List,
    Filter,
    TransformMap,
    TransformMapEntry,
}

impl Node {
    /// The children, for measuring.
    pub(super) fn children(&self) -> Vec<&Expr> {
        match self {
            Node::Literal(_) | Node::Name(_) => Vec::new(),
            Node::Select { operand, .. } => vec![operand],
            Node::Index { operand, index, .. } => vec![operand, index],
            Node::Call {
                target, arguments, ..
            } => target.iter().map(Box::as_ref).chain(arguments).collect(),
            Node::List(elements) => elements.iter().map(|element| &element.value).collect(),
            Node::Map(entries) => entries
                .iter()
                .flat_map(|entry| [&entry.key, &entry.value])
                .collect(),
            Node::All(operands) | Node::Any(operands) => operands.iter().collect(),
            Node::Choice(parts) => parts.iter().collect(),
            Node::Fold(fold) => [&fold.range, &fold.body]
                .into_iter()
                .chain(&fold.filter)
                .collect(),
            Node::OptionalMap { target, body, .. } => vec![target, body],
        }
    }
}
