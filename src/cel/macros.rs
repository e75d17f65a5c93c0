//! The macros of CEL: calls that become nodes of their own (`has`, `all`, `exists`, `map`, `filter`, `optMap` and their relatives).
//!
//! Part of the parser, on its thread and with its state. Which macro a call is, its name and number of arguments decide; a call that
//! is none stays a call, and the checker says whether it exists.

use super::ParseError;
use super::parser::{Parsed, Parser};
use super::syntax::{Expr, Fold, FoldKind, Mode, Node};

impl Parser {
    pub(super) fn presence(&self, at: usize, argument: Expr) -> Parsed {
        match argument.node {
            Node::Select { operand, field, .. } => {
                let mode = Mode::Test;
                self.make(
                    at,
                    Node::Select {
                        operand,
                        field,
                        mode,
                    },
                )
            }
            _ => Err(self.error(at, "has() needs a field, such as has(object.spec)")),
        }
    }

    /// A call on a value: a macro if name and number of arguments say so.
    pub(super) fn member_call(
        &self,
        at: usize,
        target: Expr,
        function: String,
        arguments: Vec<Expr>,
    ) -> Parsed {
        if matches!(function.as_str(), "optMap" | "optFlatMap") && arguments.len() == 2 {
            let mut arguments = arguments.into_iter();
            let variable = self.variable(arguments.next())?;
            let flat = function == "optFlatMap";
            let body = arguments.next().ok_or_else(|| self.expected("a body"))?;
            let node = Node::OptionalMap {
                target: Box::new(target),
                variable,
                body: Box::new(body),
                flat,
            };
            return self.make(at, node);
        }
        let kind = match (function.as_str(), arguments.len()) {
            ("all", 2 | 3) => Some((FoldKind::All, arguments.len() == 3, false)),
            ("exists", 2 | 3) => Some((FoldKind::Exists, arguments.len() == 3, false)),
            ("exists_one", 2 | 3) | ("existsOne", 3) => {
                Some((FoldKind::ExistsOne, arguments.len() == 3, false))
            }
            ("map", 2 | 3) => Some((FoldKind::List, false, arguments.len() == 3)),
            ("filter", 2) => Some((FoldKind::Filter, false, false)),
            ("transformList", 3 | 4) => Some((FoldKind::List, true, arguments.len() == 4)),
            ("transformMap", 3 | 4) => Some((FoldKind::TransformMap, true, arguments.len() == 4)),
            ("transformMapEntry", 3 | 4) => {
                Some((FoldKind::TransformMapEntry, true, arguments.len() == 4))
            }
            _ => None,
        };
        if let Some((kind, two_variables, filtered)) = kind {
            return self.fold(at, kind, target, arguments, (two_variables, filtered));
        }
        let target = Some(Box::new(target));
        self.make(
            at,
            Node::Call {
                function,
                target,
                arguments,
            },
        )
    }

    fn fold(
        &self,
        at: usize,
        kind: FoldKind,
        range: Expr,
        arguments: Vec<Expr>,
        (two_variables, filtered): (bool, bool),
    ) -> Parsed {
        let mut arguments = arguments.into_iter();
        let first = self.variable(arguments.next())?;
        let second = if two_variables {
            Some(self.variable(arguments.next())?)
        } else {
            None
        };
        if second.as_ref() == Some(&first) {
            return Err(self.error(at, "the two variables need different names"));
        }
        let filter = if filtered { arguments.next() } else { None };
        let body = arguments
            .next()
            .ok_or_else(|| self.error(at, "the macro needs a body"))?;
        let fold = Fold {
            kind,
            range,
            first,
            second,
            filter,
            body,
        };
        self.make(at, Node::Fold(Box::new(fold)))
    }

    fn variable(&self, argument: Option<Expr>) -> Result<String, ParseError> {
        match argument {
            Some(Expr {
                node: Node::Name(name),
                ..
            }) => Ok(name),
            Some(other) => Err(self.error(other.at, "the variable of a macro is a plain name")),
            None => Err(self.expected("a variable")),
        }
    }
}
