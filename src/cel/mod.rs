//! CEL, the Common Expression Language, as Kubernetes evaluates it in the `matchConditions` of webhooks.
//!
//! Pure: text and JSON in, a verdict out, on any thread; owns nothing between calls. `Expression::parse` refuses what the API
//! server refuses at registration, `Expression::evaluate` says what it would decide. Where that cannot be said — `authorizer`, a
//! pattern that two engines may read differently — the answer names the reason instead of guessing. It never reads a file, never
//! asks a cluster, and no input makes it panic or run for long.

mod check;
mod evaluate;
mod format;
mod functions;
mod kubernetes;
mod lexer;
mod macros;
mod network;
mod parser;
mod pattern;
mod quantity;
mod signatures;
mod syntax;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod time;
mod types;
mod value;
mod version;

use std::fmt;

use serde_json::Value as Json;

/// An expression is written by a person. The longest in the Kubernetes documentation has below 1 KiB.
const LONGEST_SOURCE: usize = 16 * 1024;

/// An expression that the API server would register, or one beyond our limits, which is never judged.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    tree: Result<syntax::Expr, String>,
}

/// Why the API server would not register an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParseError {
    /// Both from 1.
    pub(crate) line: usize,
    pub(crate) column: usize,
    words: String,
    /// It is our limit, not the API server's.
    beyond_us: bool,
}

/// What an expression may ask for. Absent is `null`, as `oldObject` is on creation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Variables<'a> {
    pub(crate) object: Option<&'a Json>,
    pub(crate) old_object: Option<&'a Json>,
    /// The AdmissionRequest without its objects; empty fields are absent, as Kubernetes leaves them out.
    pub(crate) request: Option<&'a Json>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Bool(bool),
    /// The API server has an error, too, and goes by the failurePolicy.
    Error(String),
    /// It depends on what is not known here, named by the text.
    CannotJudge(String),
}

impl Expression {
    pub(crate) fn parse(source: &str) -> Result<Expression, ParseError> {
        let characters: Vec<char> = source.chars().collect();
        if source.len() > LONGEST_SOURCE {
            let words = format!("an expression longer than {LONGEST_SOURCE} bytes");
            return Ok(Expression { tree: Err(words) });
        }
        let mut tree = match parser::parse(source) {
            Err(error) if error.beyond_us => {
                return Ok(Expression {
                    tree: Err(error.words),
                });
            }
            parsed => parsed?,
        };
        check::check(&mut tree).map_err(|(at, words)| ParseError::at(&characters, at, words))?;
        Ok(Expression { tree: Ok(tree) })
    }

    pub(crate) fn evaluate(&self, variables: &Variables<'_>) -> Outcome {
        let tree = match &self.tree {
            Ok(tree) => tree,
            Err(limit) => return Outcome::CannotJudge(limit.clone()),
        };
        match evaluate::evaluate(tree, variables) {
            Ok(value) => Outcome::Bool(value),
            Err(value::Fault::Error(words)) => Outcome::Error(words),
            Err(value::Fault::Unknown(words)) => Outcome::CannotJudge(words),
        }
    }
}

impl ParseError {
    fn at(source: &[char], at: usize, words: String) -> ParseError {
        let before = source.get(..at.min(source.len())).unwrap_or_default();
        let line_start = before
            .iter()
            .rposition(|c| *c == '\n')
            .map_or(0, |at| at + 1);
        ParseError {
            line: before.iter().filter(|c| **c == '\n').count() + 1,
            column: before.len() - line_start + 1,
            words,
            beyond_us: false,
        }
    }

    fn beyond(words: String) -> ParseError {
        ParseError {
            line: 1,
            column: 1,
            words,
            beyond_us: true,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParseError {
            line,
            column,
            words,
            ..
        } = self;
        write!(f, "line {line}, column {column}: {words}")
    }
}

impl std::error::Error for ParseError {}
