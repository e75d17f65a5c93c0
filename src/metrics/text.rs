//! How names, values and numbers are written in the Prometheus text format.
//!
//! Pure, on whichever thread holds a page's lock. Never refuses anything: what a page cannot show is kept from it before.

use std::borrow::Cow;
use std::fmt;

/// LIMIT: the longest number that is written, derived from `Number`: a sign, and 21 digits, or a point behind `0.`, five zeros and
/// 17 digits; a count has 20.
pub(super) const LONGEST_NUMBER: usize = 28;

/// A name in the plain alphabet of Prometheus; everything else becomes `_`, as on the original's page.
pub(super) fn shown_name(name: &str, may_have_colons: bool) -> Cow<'_, str> {
    let is_plain = |at: usize, letter: char| {
        letter.is_ascii_alphabetic()
            || letter == '_'
            || (letter == ':' && may_have_colons)
            || (letter.is_ascii_digit() && at > 0)
    };
    if name.char_indices().all(|(at, letter)| is_plain(at, letter)) {
        return Cow::Borrowed(name);
    }
    let letters = name.char_indices();
    letters
        .map(|(at, letter)| if is_plain(at, letter) { letter } else { '_' })
        .collect::<String>()
        .into()
}

/// A label value as it stands between quotes.
pub(super) fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// How long that is.
pub(super) fn escaped_length(value: &str) -> usize {
    let is_escaped = |byte: &u8| matches!(byte, b'\\' | b'"' | b'\n');
    value.len() + value.bytes().filter(|byte| is_escaped(byte)).count()
}

/// A number as Prometheus and the original write it; without the exponent, large ones would be hundreds of digits.
pub(super) struct Number(pub(super) f64);

impl fmt::Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value.is_infinite() {
            out.write_str(if value > 0.0 { "+Inf" } else { "-Inf" })
        } else if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) {
            write!(out, "{value:e}")
        } else {
            write!(out, "{value}")
        }
    }
}
