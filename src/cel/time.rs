//! Durations and moments: how Go writes and reads them, and the getters of CEL.
//!
//! Pure, any thread; owns nothing. A moment keeps the offset it was written with, because its text shows it again. The time zone
//! database is the machine's; a zone that is not there is unknown, not wrong.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::value::{Fault, error, unknown};

const SECOND: i64 = 1_000_000_000;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The years 1 to 9999, in seconds from 1970, which is what CEL allows.
const FIRST: i128 = -62_135_596_800;
const LAST: i128 = 253_402_300_799;

#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamp {
    /// From 1970.
    pub(super) nanos: i128,
    /// Seconds east of Greenwich.
    offset: i32,
}

impl Timestamp {
    pub(super) fn new(nanos: i128, offset: i32) -> Result<Timestamp, Fault> {
        let seconds = nanos.div_euclid(i128::from(SECOND));
        if !(FIRST..=LAST).contains(&seconds) {
            return error("timestamp overflow");
        }
        Ok(Timestamp { nanos, offset })
    }

    pub(super) fn plus(self, nanos: i128) -> Result<Timestamp, Fault> {
        Timestamp::new(self.nanos.saturating_add(nanos), self.offset)
    }

    /// RFC 3339, as strict as Go.
    pub(super) fn read(text: &str) -> Result<Timestamp, Fault> {
        read_rfc3339(text).unwrap_or_else(|| error("invalid timestamp argument"))
    }

    pub(super) fn shown(self) -> Result<String, Fault> {
        let time = self.civil(self.offset)?;
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            time.year(),
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second()
        );
        let fraction = format!("{:09}", time.subsec_nanosecond());
        let fraction = fraction.trim_end_matches('0');
        if !fraction.is_empty() {
            text = format!("{text}.{fraction}");
        }
        if self.offset == 0 {
            return Ok(text + "Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs() / 60;
        Ok(format!(
            "{text}{sign}{:02}:{:02}",
            minutes / 60,
            minutes % 60
        ))
    }

    fn civil(self, offset: i32) -> Result<DateTime, Fault> {
        // By the calendar alone, since the moments of the library end two days before the year 9999 does.
        let nanos = self.nanos + i128::from(offset) * i128::from(SECOND);
        let seconds = i64::try_from(nanos.div_euclid(i128::from(SECOND))).ok();
        let rest = i32::try_from(nanos.rem_euclid(i128::from(SECOND))).ok();
        seconds
            .zip(rest)
            .and_then(|(seconds, rest)| EPOCH.checked_add(SignedDuration::new(seconds, rest)).ok())
            .ok_or_else(|| Fault::Error("timestamp overflow".to_owned()))
    }

    /// `getHours` and its like; without a zone it is UTC.
    pub(super) fn get(self, getter: &str, zone: Option<&str>) -> Result<Option<i64>, Fault> {
        let time = match zone {
            None => self.civil(0)?,
            Some(zone) if zone.contains(':') => self.civil(offset(zone)?)?,
            Some(zone) => {
                let zone = if zone.is_empty() { "UTC" } else { zone };
                let Ok(found) = TimeZone::get(zone) else {
                    return unknown(format!("the time zone {zone:?}"));
                };
                let moment = jiff::Timestamp::from_nanosecond(self.nanos);
                let moment = moment.map_err(|_| Fault::Error("timestamp overflow".to_owned()))?;
                found.to_datetime(moment)
            }
        };
        Ok(Some(match getter {
            "getFullYear" => i64::from(time.year()),
            "getMonth" => i64::from(time.month()) - 1,
            "getDayOfYear" => i64::from(time.day_of_year()) - 1,
            "getDayOfMonth" => i64::from(time.day()) - 1,
            "getDate" => i64::from(time.day()),
            "getDayOfWeek" => i64::from(time.weekday().to_sunday_zero_offset()),
            "getHours" => i64::from(time.hour()),
            "getMinutes" => i64::from(time.minute()),
            "getSeconds" => i64::from(time.second()),
            "getMilliseconds" => i64::from(time.subsec_nanosecond()) / 1_000_000,
            _ => return Ok(None),
        }))
    }
}

/// "+02:30", as the API server reads it: the sign may be missing.
fn offset(zone: &str) -> Result<i32, Fault> {
    let parsed = zone.split_once(':').and_then(|(hours, minutes)| {
        let hours: i32 = hours.parse().ok()?;
        let minutes: i32 = minutes.parse().ok()?;
        let minutes = if zone.starts_with('-') {
            -minutes
        } else {
            minutes
        };
        hours.checked_mul(60)?.checked_add(minutes)?.checked_mul(60)
    });
    parsed.ok_or_else(|| Fault::Error(format!("the time zone {zone:?} cannot be read")))
}

fn read_rfc3339(text: &str) -> Option<Result<Timestamp, Fault>> {
    let (date_time, rest) = text.split_at_checked(19)?;
    let shape_fits = date_time.chars().enumerate().all(|(index, c)| match index {
        4 | 7 => c == '-',
        10 => c == 'T',
        13 | 16 => c == ':',
        _ => c.is_ascii_digit(),
    });
    // There are no leap seconds in Go.
    if !shape_fits || date_time.ends_with("60") {
        return None;
    }
    let digits = rest.strip_prefix(['.', ',']).map_or(0, |fraction| {
        fraction.chars().take_while(char::is_ascii_digit).count() + 1
    });
    let (fraction, zone) = rest.split_at_checked(digits)?;
    if fraction.len() == 1 {
        return None;
    }
    let offset = match zone {
        "Z" => 0,
        _ => {
            let fits = zone.len() == 6
                && zone.chars().enumerate().all(|(index, c)| match index {
                    0 => matches!(c, '+' | '-'),
                    3 => c == ':',
                    _ => c.is_ascii_digit(),
                });
            if !fits {
                return None;
            }
            offset(zone).ok().filter(|offset| offset.abs() < 86_400)?
        }
    };
    let civil: DateTime = date_time.parse().ok()?;
    // More than nine digits are dropped.
    let nanos: String = fraction
        .chars()
        .skip(1)
        .chain("000000000".chars())
        .take(9)
        .collect();
    let seconds = civil.duration_since(EPOCH).as_secs();
    let nanos = i128::from(seconds) * i128::from(SECOND) + i128::from(nanos.parse::<i64>().ok()?);
    let nanos = nanos - i128::from(offset) * i128::from(SECOND);
    Some(Timestamp::new(nanos, offset))
}

/// Go's notation: "1h30m", "-1.5s", "0".
pub(super) fn read_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(end)?;
        let end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(end)?;
        rest = tail;
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => i128::from(SECOND),
            "m" => i128::from(SECOND) * 60,
            "h" => i128::from(SECOND) * 3600,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        // Nine digits of an hour are below a nanosecond's thousandth part of what counts.
        let fraction: String = fraction.chars().take(15).collect();
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let number = |text: &str| {
            if text.is_empty() {
                Some(0)
            } else {
                text.parse::<i64>().ok()
            }
        };
        total += i128::from(number(whole)?) * unit;
        total += i128::from(number(&fraction)?) * unit / scale;
        if total > i128::from(i64::MAX) + i128::from(negative) {
            return None;
        }
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Seconds with as many decimals as it takes.
pub(super) fn show_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let magnitude = nanos.unsigned_abs();
    let second = SECOND.unsigned_abs();
    let fraction = format!("{:09}", magnitude % second);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{dot}{fraction}s", magnitude / second)
}

pub(super) fn duration_part(nanos: i64, getter: &str) -> Option<i64> {
    match getter {
        "getHours" => Some(nanos / (SECOND * 3600)),
        "getMinutes" => Some(nanos / (SECOND * 60)),
        "getSeconds" => Some(nanos / SECOND),
        "getMilliseconds" => Some(nanos / 1_000_000),
        _ => None,
    }
}
