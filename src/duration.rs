//! Durations as Go programs write them: `1h2m3.5s`, `100ms`, `-1.5h`, `0`.
//!
//! Pure. The grammar and the words of errors are Go's, because that is what hook authors have been shown until now.

use std::time::Duration;

/// Parses a duration. A negative one is zero: everything here that takes a duration treats "before now" as "at once".
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after
            .find(|letter: char| letter == '.' || letter.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(end).ok_or_else(invalid)?;
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let unit = nanoseconds(unit)
            .ok_or_else(|| format!("time: unknown unit {unit:?} in duration {text:?}"))?;
        let part = amount(whole, fraction, unit).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after;
    }
    // Go counts nanoseconds in 64 bits, which end after 292 years.
    if i64::try_from(total.as_nanos()).is_err() {
        return Err(invalid());
    }
    Ok(if negative { Duration::ZERO } else { total })
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or(("", text))
}

fn nanoseconds(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// `whole.fraction` units; digits of the fraction below a nanosecond are cut.
fn amount(whole: &str, fraction: &str, unit: u64) -> Option<Duration> {
    let whole: u64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut nanoseconds = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.chars().filter_map(|letter| letter.to_digit(10)) {
        place /= 10;
        nanoseconds = nanoseconds.checked_add(u64::from(digit).checked_mul(place)?)?;
    }
    Some(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, milliseconds) in [
            ("0", 0),
            ("5s", 5_000),
            ("1h2m3.5s", 3_723_500),
            ("100ms", 100),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("+3s", 3_000),
            ("-3s", 0),
            ("1500us", 1),
            ("1µs", 0),
            ("2m30s", 150_000),
        ] {
            assert_eq!(
                parse(text).map(|duration| duration.as_millis()),
                Ok(milliseconds),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_in_the_words_of_go() {
        for (text, expected) in [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            ("5", "time: missing unit in duration \"5\""),
            ("5d", "time: unknown unit \"d\" in duration \"5d\""),
            ("x", "time: invalid duration \"x\""),
            (".s", "time: invalid duration \".s\""),
            ("1s 2s", "time: unknown unit \"s \" in duration \"1s 2s\""),
            ("99999999999h", "time: invalid duration \"99999999999h\""),
            (
                "18446744073709551616s",
                "time: invalid duration \"18446744073709551616s\"",
            ),
        ] {
            assert_eq!(parse(text), Err(expected.to_owned()));
        }
    }
}
