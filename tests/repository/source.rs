//! Rust source reduced to what the compiler acts on: comments, the insides of texts, and inline tests are blanked out, so that a
//! search in it finds code and nothing else. Lines keep their numbers.

/// The code of a file without its inline test module, which by our rule is the last item.
pub(super) fn code(text: &str) -> String {
    let blanked = blank(text);
    match blanked.find("#[cfg(test)]\nmod ") {
        Some(at) if !starts_other_file(&blanked[at..]) => blanked[..at].to_owned(),
        _ => blanked,
    }
}

/// `mod tests;`: the tests are in a file of their own, and code may follow.
fn starts_other_file(from_attribute: &str) -> bool {
    let declaration = from_attribute.lines().nth(1).unwrap_or_default();
    declaration.trim_end().ends_with(';')
}

/// Replaces comments, the contents of string and character literals by spaces.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (skip, length) = if rest.starts_with(b"//") {
            (0, until(rest, b"\n", 0))
        } else if rest.starts_with(b"/*") {
            (0, block_comment(rest))
        } else if let Some(hashes) = raw_string(bytes, at) {
            let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
            (1, until(rest, &end, hashes + 2) + end.len())
        } else if rest[0] == b'"' {
            (1, quoted(rest, b'"'))
        } else if let Some(length) = character(rest) {
            (1, length)
        } else {
            at += 1;
            continue;
        };
        // The quotes stay, so that the code still reads as code.
        let (first, last) = (at + skip, (at + length).saturating_sub(skip));
        for byte in out.iter_mut().take(last).skip(first) {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += length.max(1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn until(rest: &[u8], end: &[u8], from: usize) -> usize {
    let tail = rest.get(from..).unwrap_or_default();
    let found = tail.windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |position| from + position)
}

/// Block comments nest.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// How many hashes a raw string at this place has, if one starts here.
fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    let in_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if bytes[at] != b'r' || (in_word && before != Some(&b'b')) {
        return None;
    }
    let hashes = bytes[at + 1..]
        .iter()
        .take_while(|byte| **byte == b'#')
        .count();
    (bytes.get(at + 1 + hashes) == Some(&b'"')).then_some(hashes)
}

/// The length of a literal with its quotes.
fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// The length of a character literal, which a lifetime is not.
fn character(rest: &[u8]) -> Option<usize> {
    if rest[0] != b'\'' {
        return None;
    }
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted(rest, b'\''));
    }
    let text = std::str::from_utf8(&rest[1..rest.len().min(5)]);
    let shown = text.unwrap_or_else(|error| {
        std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).unwrap_or_default()
    });
    let length = 1 + shown.chars().next()?.len_utf8();
    (rest.get(length) == Some(&b'\'')).then_some(length + 1)
}

/// The places where a word stands by itself.
pub(super) fn places(code: &str, word: &str) -> Vec<usize> {
    let in_word = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = code.as_bytes();
    let starts_word = in_word(word.as_bytes().first());
    let ends_word = in_word(word.as_bytes().last());
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(|at| !starts_word || !in_word(at.checked_sub(1).and_then(|at| bytes.get(at))))
        .filter(|at| !ends_word || !in_word(bytes.get(at + word.len())))
        .collect()
}

/// The line of a place, from 1.
pub(super) fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

#[test]
fn only_code_is_left_of_source() {
    let text = r##"use crate::a; // crate::b
/* crate::c /* nested */ crate::d */
let x = "crate::e \" crate::f"; let c = '"'; let l: &'static str = r#"crate::g " "#;
let d = '\''; crate::h::i();
#[cfg(test)]
mod tests { use crate::j; }
"##;
    let code = code(text);
    let found: Vec<_> = places(&code, "crate::")
        .into_iter()
        .map(|at| &code[at + 7..at + 8])
        .collect();
    assert_eq!(found, ["a", "h"], "{code}");
    assert_eq!(line_of(&code, code.find("crate::h").unwrap()), 4);
    assert!(places("unsafe_code x.unsafe() unsafer", "unsafe").len() == 1);
}
