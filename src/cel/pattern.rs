//! Regular expressions: `matches`, `find` and `findAll`.
//!
//! Pure, any thread; owns nothing. The engine is the one that jq filters bring. It reads nearly what RE2 reads; a pattern in which
//! the two might differ, or which it refuses, is unknown, not guessed. Both take time proportional to pattern and text.

use regex_bites::Regex;

use super::value::{Budget, Res, Value, error, unknown};

pub(super) fn regular<'a>(
    name: &str,
    text: &str,
    pattern: &str,
    rest: &[Value<'a>],
    budget: &Budget,
) -> Res<'a> {
    // The engine takes time proportional to the product.
    budget.spend(pattern.len() + (text.len() / 8).saturating_mul(pattern.len() / 4 + 1))?;
    if !is_understood_alike(pattern, text) {
        return unknown(format!("the regular expression {pattern:?}"));
    }
    let Ok(regex) = Regex::new(pattern) else {
        return unknown(format!("the regular expression {pattern:?}"));
    };
    let most = match rest {
        [] => usize::MAX,
        [Value::Int(most)] if name == "findAll" => usize::try_from(*most).unwrap_or(usize::MAX),
        _ => return error("no such overload"),
    };
    match name {
        "matches" => Ok(Value::Bool(regex.is_match(text))),
        "find" => Ok(Value::text(
            regex.find(text).map_or("", |found| found.as_str()),
        )),
        _ => {
            let found = regex.find_iter(text).take(most);
            Ok(Value::texts(found.map(|found| found.as_str().to_owned())))
        }
    }
}

/// Whether our engine and RE2 surely agree: no escapes or flags but those both have, no case folding beyond ASCII, nothing that one
/// of them calls an error.
fn is_understood_alike(pattern: &str, text: &str) -> bool {
    let mut rest = pattern.chars().peekable();
    let mut in_class = false;
    let mut repeated = false;
    while let Some(c) = rest.next() {
        let repeats = matches!(c, '*' | '+') || (c == '{' && !in_class);
        match c {
            '\\' => match rest.next() {
                Some(c) if c.is_ascii_punctuation() && !matches!(c, '<' | '>') => {}
                Some('d' | 'D' | 's' | 'S' | 'w' | 'W' | 'n' | 'r' | 't' | 'f' | 'v' | 'a') => {}
                Some('b' | 'B' | 'A' | 'z') if !in_class && rest.peek() != Some(&'{') => {}
                _ => return false,
            },
            '[' if !in_class => {
                in_class = true;
                rest.next_if_eq(&'^');
                // A bracket at the start is an ordinary character to RE2.
                if rest.peek() == Some(&']') {
                    return false;
                }
            }
            '[' if rest.next_if_eq(&':').is_some() => {
                // A named class, such as [:alpha:].
                while rest
                    .next_if(|c| c.is_ascii_alphabetic() || *c == '^')
                    .is_some()
                {}
                if rest.next() != Some(':') || rest.next() != Some(']') {
                    return false;
                }
            }
            '[' | '&' | '~' if in_class => return false,
            ']' => in_class = false,
            '(' if !in_class
                && rest.next_if_eq(&'?').is_some()
                && !flags_are_alike(&mut rest, pattern, text) =>
            {
                return false;
            }
            // Two repetitions in a row are an error to RE2 alone.
            _ if repeats && !in_class && repeated => return false,
            '{' if !in_class && !count_is_alike(&mut rest) => return false,
            _ => {}
        }
        repeated = repeats && !in_class;
    }
    true
}

/// After `(?`: a group that is not captured, or the flags that both have.
fn flags_are_alike(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    pattern: &str,
    text: &str,
) -> bool {
    for c in rest.by_ref() {
        match c {
            ':' | ')' => return true,
            'i' if pattern.is_ascii() && text.is_ascii() => {}
            's' | 'm' | 'U' | '-' => {}
            _ => return false,
        }
    }
    false
}

/// After `{`: one or two numbers of at most three digits, since RE2 stops at 1000.
fn count_is_alike(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    let mut digits = 0;
    let mut first = true;
    for c in rest.by_ref() {
        match c {
            '0'..='9' => digits += 1,
            ',' if first && digits > 0 => {
                first = false;
                digits = 0;
            }
            '}' => return digits > 0 || !first,
            _ => return false,
        }
        if digits > 3 {
            return false;
        }
    }
    false
}
