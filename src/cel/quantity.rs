//! Kubernetes quantities ("100m", "1.5Gi"): reading, adding, comparing, and when one counts as an integer.
//!
//! Pure, any thread; owns nothing. The value is exact to the nano, which is where Kubernetes rounds up. Beside it stands the short
//! form in which Kubernetes keeps small amounts, since `isInteger` is a question about that form and not about the value: "1000m"
//! and "1.0" are no integers.

use super::value::double_of;

const NANO: i128 = 1_000_000_000;

/// Kubernetes cuts at the largest 64-bit integer.
const MOST: i128 = 9_223_372_036_854_775_807 * NANO;

#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    pub(super) nanos: i128,
    /// Value and power of ten, if it is kept that way.
    short: Option<(i64, i32)>,
}

impl Quantity {
    pub(super) fn of_int(value: i64) -> Quantity {
        Quantity {
            nanos: i128::from(value) * NANO,
            short: Some((value, 0)),
        }
    }

    /// Nothing if it is no quantity, nothing within if it is one that we cannot hold.
    pub(super) fn read(text: &str) -> Option<Option<Quantity>> {
        if text.is_empty() {
            return None;
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let negative = text.starts_with('-');
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(unsigned.len());
        let (whole, rest) = unsigned.split_at_checked(end)?;
        let whole = whole.trim_start_matches('0');
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => {
                let end = rest
                    .find(|c: char| !c.is_ascii_digit())
                    .unwrap_or(rest.len());
                rest.split_at_checked(end)?
            }
            None => ("", rest),
        };
        let (binary, exponent) = suffix_of(suffix)?;
        let short = short(whole, fraction, binary, exponent);
        let nanos = match short {
            Some((value, scale)) => scaled(value, scale),
            None => cut_nanos(whole, fraction, binary, exponent),
        };
        Some(nanos.map(|nanos| Quantity {
            nanos: if negative { -nanos } else { nanos },
            short: short.map(|(value, scale)| {
                if negative {
                    (-value, scale)
                } else {
                    (value, scale)
                }
            }),
        }))
    }

    pub(super) fn as_integer(self) -> Option<i64> {
        match self.short? {
            (value, scale) if scale >= 0 => {
                value.checked_mul(10_i64.checked_pow(u32::try_from(scale).ok()?)?)
            }
            _ => None,
        }
    }

    pub(super) fn as_double(self) -> f64 {
        match self.short {
            Some((value, scale)) if scale >= 0 => double_of(i128::from(value)) * 10_f64.powi(scale),
            Some((value, scale)) => double_of(i128::from(value)) / 10_f64.powi(-scale),
            None => double_of(self.nanos) / double_of(NANO),
        }
    }

    pub(super) fn plus(self, other: Quantity) -> Option<Quantity> {
        let short = match (self.short, other.short) {
            (Some((0, _)), other) => other,
            (Some(a), Some(b)) => add_short(a, b),
            _ => None,
        };
        Some(Quantity {
            nanos: self.nanos.checked_add(other.nanos)?,
            short,
        })
    }

    pub(super) fn minus(self, other: Quantity) -> Option<Quantity> {
        let negated = Quantity {
            nanos: -other.nanos,
            short: other
                .short
                .map(|(value, scale)| (value.saturating_neg(), scale)),
        };
        self.plus(negated)
    }
}

/// Whether powers of two, and the exponent.
fn suffix_of(suffix: &str) -> Option<(bool, i32)> {
    let index = |suffixes: &[&str]| suffixes.iter().position(|known| *known == suffix);
    if let Some(index) = index(&["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]) {
        return Some((false, i32::try_from(index).ok()? * 3 - 9));
    }
    if let Some(index) = index(&["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]) {
        return Some((true, (i32::try_from(index).ok()? + 1) * 10));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    Some((false, exponent.parse().ok()?))
}

/// The short form as nanos. Such amounts are not cut.
fn scaled(value: i64, scale: i32) -> Option<i128> {
    if value == 0 {
        return Some(0);
    }
    let power = u32::try_from(scale.checked_add(9)?).ok()?;
    i128::from(value).checked_mul(10_i128.checked_pow(power)?)
}

/// The value, rounded up to the nano and cut at the most.
fn cut_nanos(whole: &str, fraction: &str, binary: bool, exponent: i32) -> Option<i128> {
    let digits: String = whole.chars().chain(fraction.chars()).collect();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    // The power of ten that the digits are to be multiplied by, in nanos.
    let decimals = i32::try_from(fraction.len()).ok()?;
    let ten = if binary { 0 } else { exponent } - decimals + 9;
    let two = if binary {
        u32::try_from(exponent).ok()?
    } else {
        0
    };
    let length = i32::try_from(digits.len()).ok()?;
    // More digits than the most has: no need for arithmetic.
    if length.saturating_add(ten) > 29 {
        return Some(MOST);
    }
    if length.saturating_add(ten) < -20 {
        return Some(1);
    }
    let kept: String = digits.chars().take(30).collect();
    let dropped = digits.chars().skip(30).any(|c| c != '0');
    let ten = ten.saturating_add(length - i32::try_from(kept.len()).ok()?);
    let mut value: i128 = kept.parse().ok()?;
    let mut rest = dropped;
    value = match value.checked_mul(1_i128.checked_shl(two)?) {
        Some(value) => value,
        None => return Some(MOST),
    };
    if let Ok(up) = u32::try_from(ten) {
        value = value.checked_mul(10_i128.checked_pow(up)?).unwrap_or(MOST);
    } else {
        let divisor = 10_i128.checked_pow(ten.unsigned_abs());
        rest |= divisor.is_none_or(|divisor| value % divisor != 0);
        value = divisor.map_or(0, |divisor| value / divisor);
    }
    Some((value + i128::from(rest)).min(MOST))
}

/// The short form, by the rules of Kubernetes' fast path: at most 18 digits, no binary fraction, nothing below the nano.
fn short(whole: &str, fraction: &str, binary: bool, exponent: i32) -> Option<(i64, i32)> {
    let whole = if whole.is_empty() { "0" } else { whole };
    let length = i32::try_from(whole.len() + fraction.len()).ok()?;
    let (precision, scale, factor) = if binary {
        if !fraction.is_empty() {
            return None;
        }
        (
            15 - length - exponent * 3 / 10 - 1,
            0,
            1_i64.checked_shl(u32::try_from(exponent).ok()?)?,
        )
    } else {
        (18 - length, exponent, 1)
    };
    let scale = scale - i32::try_from(fraction.len()).ok()?;
    if precision < 0 || scale < -9 {
        return None;
    }
    let value: i64 = format!("{whole}{fraction}").parse().ok()?;
    Some((value.checked_mul(factor)?, scale))
}

fn add_short(a: (i64, i32), b: (i64, i32)) -> Option<(i64, i32)> {
    if b.0 == 0 {
        return Some(a);
    }
    let scale = a.1.min(b.1);
    let scaled = |(value, own): (i64, i32)| {
        value.checked_mul(10_i64.checked_pow(u32::try_from(own - scale).ok()?)?)
    };
    Some((scaled(a)?.checked_add(scaled(b)?)?, scale))
}
