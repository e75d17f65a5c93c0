//! Refuses programs that could exhaust the stack: too deeply nested ones, and those whose definitions call themselves.
//!
//! Pure, on the text and then on the parsed program. Nesting is estimated from above and without recursion of its own, so that no text
//! can do harm here. jq's own loops (`until`, `repeat`, `range`, `recurse`) need no stack and stay allowed; how long a program
//! takes, and how much it makes, is not looked at.

use jaq_core::load::{
    self,
    parse::{Def, Term},
};

/// LIMIT: nesting of a program, as counted here. A level costs up to 10 KiB of stack in a build without optimisation, and the
/// threads that apply filters have 2 MiB. The longest filters that were seen have some 40 steps.
const MAX_DEPTH: usize = 120;

const TOO_DEEP: &str = "the program is nested too deeply; use several operations";
const RECURSIVE: &str = "a definition calls itself; use until, recurse or walk";

/// Words that open something which the next words stand in.
const OPENING: [&str; 17] = [
    "if", "then", "elif", "else", "try", "catch", "reduce", "foreach", "def", "label", "as", "and",
    "or", "not", "import", "include", "__loc__",
];

pub(super) fn check(text: &str) -> Result<(), &'static str> {
    if depth(text) > MAX_DEPTH {
        return Err(TOO_DEEP);
    }
    match load::parse(text, |parser| parser.term()) {
        Some(term) if calls_itself(&term, &mut Vec::new()) => Err(RECURSIVE),
        // What does not parse is refused later, with better words.
        _ => Ok(()),
    }
}

/// How deep the nesting can be at most: within each open bracket every operator and every opening word may be a level of its own.
/// A comma ends what was counted in an object or a list of keys, and so does a semicolon between arguments. What is in strings
/// counts as well, because of interpolation.
fn depth(text: &str) -> usize {
    let mut levels: Vec<(char, usize)> = vec![(' ', 0)];
    let mut sum = 0_usize;
    let mut deepest = 0;
    let mut word = String::new();
    // Keys of a path follow each other without an operator; each is a level when the program runs.
    let mut keys = 0_usize;
    for letter in text.chars().chain([' ']) {
        if letter.is_alphanumeric() || letter == '_' {
            word.push(letter);
            continue;
        }
        let mut counted = usize::from(OPENING.contains(&word.as_str()));
        word.clear();
        match letter {
            '.' | '[' => keys += 1,
            '|' | ',' | ';' | '=' | '+' | '-' | '*' | '/' | '%' | '<' | '>' => keys = 0,
            _ => {}
        }
        match letter {
            '(' | '[' | '{' => {
                levels.push((letter, 0));
                counted += 1;
            }
            ')' | ']' | '}' if levels.len() > 1 => {
                let closed = levels.pop().map_or(0, |(_, count)| count);
                sum = sum.saturating_sub(closed);
            }
            '|' | '+' | '-' | '*' | '/' | '%' | '=' | '<' | '>' | '?' | '!' => counted += 1,
            ',' | ';' => match levels.last_mut() {
                // Definitions at the top follow each other without nesting, and commas elsewhere nest.
                Some((bracket, count)) if *bracket == '{' || letter == ';' => {
                    sum = sum.saturating_sub(*count);
                    *count = 0;
                }
                _ => counted += 1,
            },
            _ => {}
        }
        if let Some((_, count)) = levels.last_mut() {
            *count += counted;
            sum += counted;
        }
        deepest = deepest.max(sum).max(keys);
    }
    deepest
}

/// Whether a definition calls itself, or one that it stands in. `open` holds those.
fn calls_itself<'s>(term: &Term<&'s str>, open: &mut Vec<(&'s str, usize)>) -> bool {
    let mut any = |terms: &[&Term<&'s str>]| terms.iter().any(|term| calls_itself(term, open));
    match term {
        Term::Call(name, arguments) => {
            open.contains(&(*name, arguments.len()))
                || arguments
                    .iter()
                    .any(|argument| calls_itself(argument, open))
        }
        Term::Def(definitions, inner) => {
            definitions
                .iter()
                .any(|definition| defines_itself(definition, open))
                || calls_itself(inner, open)
        }
        Term::BinOp(left, _, right) => any(&[left, right]),
        Term::Arr(Some(inner)) | Term::Neg(inner) | Term::Label(_, inner) => any(&[inner]),
        Term::Obj(entries) => entries.iter().any(|(key, value)| {
            calls_itself(key, open)
                || value
                    .as_ref()
                    .is_some_and(|value| calls_itself(value, open))
        }),
        Term::Fold(_, source, _, bodies) => {
            calls_itself(source, open) || bodies.iter().any(|body| calls_itself(body, open))
        }
        Term::TryCatch(inner, catch) => {
            calls_itself(inner, open)
                || catch
                    .as_ref()
                    .is_some_and(|catch| calls_itself(catch, open))
        }
        Term::IfThenElse(branches, otherwise) => {
            branches
                .iter()
                .any(|(condition, then)| calls_itself(condition, open) || calls_itself(then, open))
                || otherwise
                    .as_ref()
                    .is_some_and(|term| calls_itself(term, open))
        }
        Term::Path(head, path) => {
            calls_itself(head, open)
                || path.0.iter().any(|(part, _)| match part {
                    jaq_core::path::Part::Index(index) => calls_itself(index, open),
                    jaq_core::path::Part::Range(from, to) => [from, to]
                        .into_iter()
                        .flatten()
                        .any(|bound| calls_itself(bound, open)),
                })
        }
        Term::Str(_, parts) => parts.iter().any(|part| match part {
            load::lex::StrPart::Term(inner) => calls_itself(inner, open),
            _ => false,
        }),
        _ => false,
    }
}

fn defines_itself<'s>(definition: &Def<&'s str>, open: &mut Vec<(&'s str, usize)>) -> bool {
    open.push((definition.name, definition.args.len()));
    let found = calls_itself(&definition.body, open);
    open.pop();
    found
}
