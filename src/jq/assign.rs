//! Assignment below what is not there, as jq does it: `.metadata.labels.a = "b"` makes the labels, `del(.metadata.labels.a)` of an
//! object without labels changes nothing. The library refuses both, since it never looks into null for a change.
//!
//! Pure, on the parsed program before it is compiled. Only paths of plain keys are helped, which is what people write:
//!
//! ```text
//! .a.b = f      ->  . as $in | (.a |= made) | .a.b = ($in | f)          made: null becomes {}
//! del(.a.b)     ->  if .a | is_object then del(.a.b) else . end
//! ```

use jaq_core::load::parse::{BinaryOp, Def, Term};
use jaq_core::path::{Opt, Part, Path};

/// Definitions that the changed program calls; no program can hold such names.
pub(super) const DEFINITIONS: &str = r#"
def __made: if . == null then {} else . end;
def __is_object: type == "object";
"#;

const MADE: &str = "__made";
const IS_OBJECT: &str = "__is_object";
const INPUT: &str = "$__input";

/// The program with helped assignments.
pub(super) fn help(term: Term<&str>) -> Term<&str> {
    let boxed = |term: Box<Term<_>>| Box::new(help(*term));
    match term {
        Term::BinOp(left, operator, right) => binary(help(*left), operator, help(*right)),
        Term::Call("del", arguments) => {
            let mut arguments: Vec<_> = arguments.into_iter().map(help).collect();
            match (arguments.pop(), arguments.is_empty()) {
                (Some(path), true) => delete(path),
                (last, _) => Term::Call("del", arguments.into_iter().chain(last).collect()),
            }
        }
        Term::Call(name, arguments) => Term::Call(name, arguments.into_iter().map(help).collect()),
        Term::Arr(inner) => Term::Arr(inner.map(boxed)),
        Term::Obj(entries) => Term::Obj(
            entries
                .into_iter()
                .map(|(key, value)| (key, value.map(help)))
                .collect(),
        ),
        Term::Neg(inner) => Term::Neg(boxed(inner)),
        Term::Label(name, inner) => Term::Label(name, boxed(inner)),
        Term::Fold(name, source, pattern, bodies) => Term::Fold(
            name,
            boxed(source),
            pattern,
            bodies.into_iter().map(help).collect(),
        ),
        Term::TryCatch(inner, catch) => Term::TryCatch(boxed(inner), catch.map(boxed)),
        Term::IfThenElse(branches, otherwise) => Term::IfThenElse(
            branches
                .into_iter()
                .map(|(condition, then)| (help(condition), help(then)))
                .collect(),
            otherwise.map(boxed),
        ),
        Term::Def(definitions, inner) => Term::Def(
            definitions
                .into_iter()
                .map(|definition| Def {
                    body: help(definition.body),
                    ..definition
                })
                .collect(),
            boxed(inner),
        ),
        Term::Path(head, path) => Term::Path(boxed(head), path),
        other => other,
    }
}

fn binary<'s>(
    left: Term<&'s str>,
    operator: BinaryOp<&'s str>,
    right: Term<&'s str>,
) -> Term<&'s str> {
    let is_change = matches!(
        operator,
        BinaryOp::Assign | BinaryOp::Update | BinaryOp::UpdateMath(_) | BinaryOp::UpdateAlt
    );
    let above = if is_change { above(&left) } else { Vec::new() };
    if above.is_empty() {
        return Term::BinOp(Box::new(left), operator, Box::new(right));
    }
    // The right side sees the object as it was; that of an update sees the value itself.
    let right = match operator {
        BinaryOp::Update => right,
        _ => pipe(Term::Var(INPUT), right),
    };
    let change = Term::BinOp(Box::new(left), operator, Box::new(right));
    let made = above.into_iter().rev().fold(change, |rest, path| {
        let make = Term::Call(MADE, Vec::new());
        pipe(
            Term::BinOp(Box::new(path), BinaryOp::Update, Box::new(make)),
            rest,
        )
    });
    let pattern = jaq_core::load::parse::Pattern::Var(INPUT);
    Term::BinOp(
        Box::new(Term::Id),
        BinaryOp::Pipe(Some(pattern)),
        Box::new(made),
    )
}

fn delete(path: Term<&str>) -> Term<&str> {
    if let Term::BinOp(left, BinaryOp::Comma, right) = path {
        return pipe(delete(*left), delete(*right));
    }
    let parent = above(&path).pop();
    let delete = Term::Call("del", vec![path]);
    match parent {
        Some(parent) => {
            let test = pipe(optional(parent), Term::Call(IS_OBJECT, Vec::new()));
            Term::IfThenElse(vec![(test, delete)], Some(Box::new(Term::Id)))
        }
        None => delete,
    }
}

/// The paths above the last key of a path of plain keys, shortest first; none for any other term.
fn above<'s>(term: &Term<&'s str>) -> Vec<Term<&'s str>> {
    let Term::Path(head, Path(parts)) = term else {
        return Vec::new();
    };
    let is_key =
        |part: &(Part<_>, Opt)| matches!(part, (Part::Index(Term::Str(None, _)), Opt::Essential));
    if !matches!(**head, Term::Id) || !parts.iter().all(is_key) {
        return Vec::new();
    }
    (1..parts.len())
        .map(|length| {
            let parts = parts.iter().take(length).cloned().collect();
            Term::Path(Box::new(Term::Id), Path(parts))
        })
        .collect()
}

/// The same path, with nothing where it cannot be followed.
fn optional(term: Term<&str>) -> Term<&str> {
    Term::TryCatch(
        Box::new(term),
        Some(Box::new(Term::Call("null", Vec::new()))),
    )
}

fn pipe<'s>(left: Term<&'s str>, right: Term<&'s str>) -> Term<&'s str> {
    Term::BinOp(Box::new(left), BinaryOp::Pipe(None), Box::new(right))
}
