//! Stops programs that call themselves without an end, or that nest a value deeper with every step: both would exhaust the stack.
//!
//! `assign.rs` puts the question `__deep` in front of every definition of a program, and behind every step of its loops; the answer is
//! found here, on the thread that applies the filter. How much of the stack is in use is seen by the address of a local variable.

use std::cell::Cell;

use jaq_core::data::JustLut;
use jaq_core::native::{Fun, bome, run, v};
use jaq_core::{Cv, load::parse::Term};
use jaq_json::Val;

/// LIMIT: stack that calls may use; a quarter of what threads that apply filters have. What follows the last question needs the rest.
const MAX_STACK: usize = 2 * 1024 * 1024;

/// LIMIT: levels of a value between two steps. A result may have 128.
const MAX_NESTING: usize = 1000;

/// A value is looked at in one of so many steps, because it has to be looked at as a whole.
const STEPS: usize = 64;

/// The question, as a program calls it.
const DEEP: &str = "__deep";

thread_local! {
    static BEGINNING: Cell<usize> = const { Cell::new(0) };
    static STEP: Cell<usize> = const { Cell::new(0) };
}

/// From here on the stack is counted.
pub(super) fn begin() {
    BEGINNING.set(here());
}

pub(super) fn native() -> Fun<JustLut<Val>> {
    run((DEEP, v(0), |cv: Cv<'_, JustLut<Val>>| {
        bome(Ok(Val::Bool(is_deep(&cv.1))))
    }))
}

/// The term, unless the question is answered with yes.
pub(super) fn guarded(term: Term<&str>) -> Term<&str> {
    let message = Term::Str(
        None,
        vec![jaq_core::load::lex::StrPart::Str(
            "the program calls itself too often or nests a value too deeply",
        )],
    );
    let stop = Term::Call("error", vec![message]);
    Term::IfThenElse(
        vec![(Term::Call(DEEP, Vec::new()), stop)],
        Some(Box::new(term)),
    )
}

fn is_deep(value: &Val) -> bool {
    if BEGINNING.get().abs_diff(here()) > MAX_STACK {
        return true;
    }
    let step = STEP.get().wrapping_add(1);
    STEP.set(step);
    step.is_multiple_of(STEPS) && is_nested(value, MAX_NESTING)
}

fn is_nested(value: &Val, levels: usize) -> bool {
    let Some(levels) = levels.checked_sub(1) else {
        return true;
    };
    match value {
        Val::Arr(items) => items.iter().any(|item| is_nested(item, levels)),
        Val::Obj(entries) => entries.values().any(|entry| is_nested(entry, levels)),
        _ => false,
    }
}

#[inline(never)]
fn here() -> usize {
    let local = 0_u8;
    std::hint::black_box(std::ptr::from_ref(&local)).addr()
}
