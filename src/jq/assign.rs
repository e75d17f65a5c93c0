//! Changes as jq makes them: `.metadata.labels.a = "b"` makes the labels, `.[] |= empty` and `del(.[0], .[1])` remove what was meant
//! and nothing else. The library refuses the first and gets the others wrong, since it changes a value while it follows the path.
//!
//! Pure, on the parsed program before it is compiled: each of jq's assignments becomes a call of a definition below, which lists the
//! paths first and then lets `place.rs` change the value at each of them.
//!
//! ```text
//! p = f      ->  __assign(p; f)
//! p |= f     ->  __update(p; f)
//! p += f     ->  f as $__value | __update(p; . + $__value)         and so on for every operator
//! ```

use jaq_core::load::lex::StrPart;
use jaq_core::load::parse::{BinaryOp, Def, Pattern, Term};
use jaq_core::ops::Math;
use jaq_core::path::{Part, Path};

use super::depth::guarded;

/// Definitions that the changed program calls, and those of jq that go the same way.
pub(super) const DEFINITIONS: &str = r#"
def __assign(p; $value): [path(p)] as $paths | __set($paths; $value);
def __update(p; f): [path(p)] as $paths | __change($paths; f);
def getpath($path): if ($path | length) > 256 then error("a path is longer than 256 keys")
  else reduce $path[] as $key (.; .[$key]) end;
def setpath($path; $value): __set([$path]; $value);
def delpaths($paths): __delete($paths);
def del(p): [path(p)] as $paths | __delete($paths);
def map_values(f): __update(.[]; f);
"#;

const ASSIGN: &str = "__assign";
const UPDATE: &str = "__update";
const TIMES: &str = "__times";
const VALUE: &str = "$__value";

/// The program with its changes made by our definitions.
pub(super) fn help(term: Term<&str>) -> Term<&str> {
    let boxed = |term: Box<Term<_>>| Box::new(help(*term));
    match term {
        Term::BinOp(left, operator, right) => binary(help(*left), operator, help(*right)),
        Term::Call(name, arguments) => Term::Call(name, all(arguments)),
        Term::Arr(inner) => Term::Arr(inner.map(boxed)),
        Term::Obj(entries) => Term::Obj(
            entries
                .into_iter()
                .map(|(key, value)| (help(key), value.map(help)))
                .collect(),
        ),
        Term::Neg(inner) => Term::Neg(boxed(inner)),
        Term::Label(name, inner) => Term::Label(name, boxed(inner)),
        Term::Fold(name, source, pattern, bodies) => {
            let mut bodies = all(bodies);
            if let Some(step) = bodies.get_mut(1) {
                let made = Box::new(std::mem::take(step));
                *step = Term::BinOp(made, BinaryOp::Pipe(None), Box::new(guarded(Term::Id)));
            }
            Term::Fold(name, boxed(source), pattern, bodies)
        }
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
                    body: guarded(help(definition.body)),
                    ..definition
                })
                .collect(),
            boxed(inner),
        ),
        Term::Path(head, Path(parts)) => {
            let parts = parts.into_iter().map(|(part, opt)| (part_of(part), opt));
            Term::Path(boxed(head), Path(parts.collect()))
        }
        Term::Str(format, parts) => {
            let parts = parts.into_iter().map(|part| match part {
                StrPart::Term(inner) => StrPart::Term(help(inner)),
                other => other,
            });
            Term::Str(format, parts.collect())
        }
        other => other,
    }
}

fn all(terms: Vec<Term<&str>>) -> Vec<Term<&str>> {
    terms.into_iter().map(help).collect()
}

fn part_of(part: Part<Term<&str>>) -> Part<Term<&str>> {
    match part {
        Part::Index(index) => Part::Index(help(index)),
        Part::Range(from, to) => Part::Range(from.map(help), to.map(help)),
    }
}

fn binary<'s>(
    left: Term<&'s str>,
    operator: BinaryOp<&'s str>,
    right: Term<&'s str>,
) -> Term<&'s str> {
    let change = match operator {
        BinaryOp::Assign => return Term::Call(ASSIGN, vec![left, right]),
        BinaryOp::Update => return Term::Call(UPDATE, vec![left, right]),
        BinaryOp::Math(Math::Mul) => return Term::Call(TIMES, vec![left, right]),
        BinaryOp::UpdateMath(Math::Mul) => Term::Call(TIMES, vec![Term::Id, Term::Var(VALUE)]),
        BinaryOp::UpdateMath(math) => Term::BinOp(
            Box::new(Term::Id),
            BinaryOp::Math(math),
            Box::new(Term::Var(VALUE)),
        ),
        BinaryOp::UpdateAlt => Term::BinOp(
            Box::new(Term::Id),
            BinaryOp::Alt,
            Box::new(Term::Var(VALUE)),
        ),
        other => return Term::BinOp(Box::new(left), other, Box::new(right)),
    };
    // The right side sees the value as it was.
    Term::BinOp(
        Box::new(right),
        BinaryOp::Pipe(Some(Pattern::Var(VALUE))),
        Box::new(Term::Call(UPDATE, vec![left, change])),
    )
}
