//! Crontab expressions in the dialect of the original (robfig cron v2): parse, and find the next time to fire.
//!
//! Pure except for reading zone files. Own code, because no crate has this dialect: seconds come first and are optional, `7` is
//! no weekday, `5/15` runs to the end of the range, and a `*` in one of the day fields makes both count. A step of 0, which
//! hangs the original, is refused.

use std::fmt;
use std::ops::RangeInclusive;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::duration;

/// How far ahead a time is looked for before the schedule counts as one that never fires.
const HORIZON_YEARS: i16 = 5;

/// A parsed expression and the text it came from. Equal texts share one timer.
#[derive(Clone)]
pub(crate) struct Crontab {
    text: String,
    /// From a `TZ=` prefix; None means the zone of the process.
    zone: Option<TimeZone>,
    plan: Plan,
}

#[derive(Debug, Clone)]
enum Plan {
    /// Seconds between two runs, the first one interval after the schedule was enabled.
    Every(i64),
    At(Box<Fields>),
}

/// One bit for every value that matches.
#[derive(Debug, Clone)]
struct Fields {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// One of the day fields had a star: then both must match, else either.
    day_star: bool,
}

impl fmt::Display for Crontab {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl fmt::Debug for Crontab {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Crontab({:?})", self.text)
    }
}

impl PartialEq for Crontab {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Crontab {
    pub(crate) fn parse(text: &str) -> Result<Crontab, String> {
        let (zone, rest) = match text.strip_prefix("TZ=") {
            Some(prefixed) => {
                let (name, rest) = prefixed
                    .split_once(' ')
                    .ok_or_else(|| format!("Expected 5 or 6 fields, found 0: {text}"))?;
                (load_zone(name)?, rest.trim())
            }
            None => (None, text),
        };
        let plan = if rest.starts_with('@') {
            descriptor(rest)?
        } else {
            Plan::At(Box::new(fields(rest)?))
        };
        Ok(Crontab {
            text: text.to_owned(),
            zone,
            plan,
        })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The first time to fire after `after`; `local` is the zone of the process. None: never within five years.
    pub(crate) fn next(&self, after: Timestamp, local: &TimeZone) -> Option<Timestamp> {
        let fields = match &self.plan {
            Plan::Every(seconds) => return add_seconds(whole_second(after)?, *seconds),
            Plan::At(fields) => fields,
        };
        let zone = self.zone.as_ref().unwrap_or(local);
        let mut at = add_seconds(whole_second(after)?, 1)?.to_zoned(zone.clone());
        let last_year = at.year().checked_add(HORIZON_YEARS)?;
        while at.year() <= last_year {
            match fields.jump(&at) {
                None => return Some(at.timestamp()),
                Some(Jump::Month) => at = start_of(&at, at.date().last_of_month())?,
                Some(Jump::Day) => at = start_of(&at, at.date())?,
                // Real seconds and not the wall clock: an hour that is left out is passed over, one that is doubled counts twice.
                Some(Jump::Seconds(seconds)) => {
                    at = add_seconds(at.timestamp(), seconds)?.to_zoned(zone.clone());
                }
            }
        }
        None
    }
}

/// Where to look next when a moment does not match.
enum Jump {
    Month,
    Day,
    Seconds(i64),
}

impl Fields {
    fn jump(&self, at: &Zoned) -> Option<Jump> {
        let (minute, second) = (i64::from(at.minute()), i64::from(at.second()));
        if !has(self.months, at.month()) {
            Some(Jump::Month)
        } else if !self.matches_day(at) {
            Some(Jump::Day)
        } else if !has(self.hours, at.hour()) {
            Some(Jump::Seconds(3600 - minute * 60 - second))
        } else if !has(self.minutes, at.minute()) {
            Some(Jump::Seconds(60 - second))
        } else if !has(self.seconds, at.second()) {
            Some(Jump::Seconds(1))
        } else {
            None
        }
    }

    fn matches_day(&self, at: &Zoned) -> bool {
        let day = has(self.days, at.day());
        let weekday = has(self.weekdays, at.weekday().to_sunday_zero_offset());
        if self.day_star {
            day && weekday
        } else {
            day || weekday
        }
    }
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits.checked_shr(value).unwrap_or(0) & 1 == 1)
}

fn whole_second(at: Timestamp) -> Option<Timestamp> {
    Timestamp::from_second(at.as_second()).ok()
}

fn add_seconds(at: Timestamp, seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(at.as_second().checked_add(seconds)?).ok()
}

/// The first moment of the day after `date`, in the zone of `at`.
fn start_of(at: &Zoned, date: jiff::civil::Date) -> Option<Zoned> {
    let next = date
        .tomorrow()
        .ok()?
        .to_zoned(at.time_zone().clone())
        .ok()?;
    // A zone that skips a day must not make us stand still.
    if next.timestamp() > at.timestamp() {
        Some(next)
    } else {
        Some(add_seconds(at.timestamp(), 1)?.to_zoned(at.time_zone().clone()))
    }
}

fn load_zone(name: &str) -> Result<Option<TimeZone>, String> {
    match name {
        "" | "UTC" => Ok(Some(TimeZone::UTC)),
        "Local" => Ok(None),
        _ => {
            let loaded = if name.starts_with('/') {
                std::fs::read(name)
                    .map_err(|error| error.to_string())
                    .and_then(|file| TimeZone::tzif(name, &file).map_err(|error| error.to_string()))
            } else {
                TimeZone::get(name).map_err(|error| error.to_string())
            };
            loaded
                .map(Some)
                .map_err(|error| format!("Provided bad location {name}: {error}"))
        }
    }
}

fn descriptor(text: &str) -> Result<Plan, String> {
    let spelled = match text {
        "@yearly" | "@annually" => "0 0 0 1 1 *",
        "@monthly" => "0 0 0 1 * *",
        "@weekly" => "0 0 0 * * 0",
        "@daily" | "@midnight" => "0 0 0 * * *",
        "@hourly" => "0 0 * * * *",
        _ => {
            let interval = text
                .strip_prefix("@every ")
                .ok_or_else(|| format!("Unrecognized descriptor: {text}"))?;
            let every = duration::parse(interval)
                .map_err(|error| format!("Failed to parse duration {text}: {error}"))?;
            let seconds = i64::try_from(every.as_secs()).unwrap_or(i64::MAX);
            return Ok(Plan::Every(seconds.max(1)));
        }
    };
    Ok(Plan::At(Box::new(fields(spelled)?)))
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

fn fields(text: &str) -> Result<Fields, String> {
    let mut parts: Vec<&str> = text.split_whitespace().collect();
    if parts.len() == 5 {
        parts.insert(0, "0");
    }
    let [seconds, minutes, hours, days, months, weekdays] = parts.as_slice() else {
        return Err(format!(
            "Expected 5 or 6 fields, found {}: {text}",
            parts.len()
        ));
    };
    let star = |field: &str| field.split(',').any(|range| range.starts_with(['*', '?']));
    Ok(Fields {
        seconds: field(seconds, 0..=59, &[])?,
        minutes: field(minutes, 0..=59, &[])?,
        hours: field(hours, 0..=23, &[])?,
        days: field(days, 1..=31, &[])?,
        months: field(months, 1..=12, &MONTHS)?,
        weekdays: field(weekdays, 0..=6, &WEEKDAYS)?,
        day_star: star(days) || star(weekdays),
    })
}

fn field(text: &str, bounds: RangeInclusive<u32>, names: &[&str]) -> Result<u64, String> {
    let mut bits = 0;
    for range in text.split(',').filter(|range| !range.is_empty()) {
        bits |= range_bits(range, &bounds, names)?;
    }
    Ok(bits)
}

/// `*`, `a` or `a-b`, each with an optional `/step`.
fn range_bits(text: &str, bounds: &RangeInclusive<u32>, names: &[&str]) -> Result<u64, String> {
    let (min, max) = (*bounds.start(), *bounds.end());
    let (range, step) = match text.split_once('/') {
        Some((_, step)) if step.contains('/') => return Err(format!("Too many slashes: {text}")),
        Some((range, step)) => (range, Some(step)),
        None => (text, None),
    };
    let (low, high) = match range.split_once('-') {
        Some((low, high)) => (low, Some(high)),
        None => (range, None),
    };
    let (start, end) = if low == "*" || low == "?" {
        (min, max)
    } else {
        let start = number(low, min, names, text)?;
        match high {
            Some(high) if high.contains('-') => return Err(format!("Too many hyphens: {text}")),
            Some(high) => (start, number(high, min, names, text)?),
            // `5/15` goes on to the end of the range.
            None if step.is_some() => (start, max),
            None => (start, start),
        }
    };
    let step = match step {
        Some(step) => number(step, 0, &[], text)?,
        None => 1,
    };
    if start < min {
        return Err(format!(
            "Beginning of range ({start}) below minimum ({min}): {text}"
        ));
    }
    if end > max {
        return Err(format!(
            "End of range ({end}) above maximum ({max}): {text}"
        ));
    }
    if start > end {
        return Err(format!(
            "Beginning of range ({start}) beyond end of range ({end}): {text}"
        ));
    }
    let step = usize::try_from(step)
        .ok()
        .filter(|step| *step > 0)
        .ok_or_else(|| format!("Step of range should be a positive number: {text}"))?;
    Ok((start..=end)
        .step_by(step)
        .fold(0, |bits, value| bits | 1 << value))
}

/// A number or, where the field has names, one of them in any case; the first name stands for `first`.
fn number(text: &str, first: u32, names: &[&str], whole: &str) -> Result<u32, String> {
    let lower = text.to_lowercase();
    if let Some(index) = names.iter().position(|name| *name == lower) {
        return Ok(first + u32::try_from(index).unwrap_or_default());
    }
    let parsed: i64 = text
        .parse()
        .map_err(|_error| format!("Failed to parse int from {text}: {whole}"))?;
    u32::try_from(parsed).map_err(|_error| {
        if parsed < 0 {
            format!("Negative number ({parsed}) not allowed: {whole}")
        } else {
            format!("Failed to parse int from {text}: {whole}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Germany, spelled out so that the test needs no zone files.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    fn next(text: &str, after: &str, zone: &TimeZone) -> Option<String> {
        Crontab::parse(text)
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .next(after.parse().unwrap(), zone)
            .map(|at| at.to_string())
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table of cases")]
    fn the_next_time_is_found() {
        let utc = TimeZone::UTC;
        for (text, after, expected) in [
            ("* * * * *", "2024-05-01T10:00:00Z", "2024-05-01T10:01:00Z"),
            (
                "* * * * * *",
                "2024-05-01T10:00:00.7Z",
                "2024-05-01T10:00:01Z",
            ),
            (
                "*/5 * * * *",
                "2024-05-01T10:03:20Z",
                "2024-05-01T10:05:00Z",
            ),
            (
                "5/15 * * * *",
                "2024-05-01T10:06:00Z",
                "2024-05-01T10:20:00Z",
            ),
            (
                "*/10 * * * * *",
                "2024-05-01T10:06:51Z",
                "2024-05-01T10:07:00Z",
            ),
            ("30 3 * * *", "2024-12-31T04:00:00Z", "2025-01-01T03:30:00Z"),
            ("0 0 29 2 *", "2024-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            (
                "0 0 1 JAN,jul *",
                "2024-03-01T00:00:00Z",
                "2024-07-01T00:00:00Z",
            ),
            (
                "0 12 * * MON-fri",
                "2024-05-03T13:00:00Z",
                "2024-05-06T12:00:00Z",
            ),
            // Neither day field has a star: either may match (the 13th, or a Friday).
            ("0 0 13 * 5", "2024-05-01T00:00:00Z", "2024-05-03T00:00:00Z"),
            // A star in one of them, also with a step: both must match (an odd day that is a Monday).
            (
                "0 0 */2 * 1",
                "2024-05-01T00:00:00Z",
                "2024-05-13T00:00:00Z",
            ),
            ("0 0 ? * 0", "2024-05-01T00:00:00Z", "2024-05-05T00:00:00Z"),
            ("@hourly", "2024-05-01T10:00:00Z", "2024-05-01T11:00:00Z"),
            ("@daily", "2024-05-01T10:00:00Z", "2024-05-02T00:00:00Z"),
            ("@midnight", "2024-05-01T10:00:00Z", "2024-05-02T00:00:00Z"),
            ("@weekly", "2024-05-01T10:00:00Z", "2024-05-05T00:00:00Z"),
            ("@monthly", "2024-05-01T10:00:00Z", "2024-06-01T00:00:00Z"),
            ("@yearly", "2024-05-01T10:00:00Z", "2025-01-01T00:00:00Z"),
            (
                "@every 90s",
                "2024-05-01T10:00:00.5Z",
                "2024-05-01T10:01:30Z",
            ),
            (
                "@every 1h30m10.9s",
                "2024-05-01T10:00:00Z",
                "2024-05-01T11:30:10Z",
            ),
            (
                "@every 10ms",
                "2024-05-01T10:00:00Z",
                "2024-05-01T10:00:01Z",
            ),
            (
                "TZ=UTC 0 6 * * *",
                "2024-05-01T10:00:00Z",
                "2024-05-02T06:00:00Z",
            ),
        ] {
            assert_eq!(next(text, after, &utc).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(next("0 0 30 2 *", "2024-05-01T10:00:00Z", &utc), None);
        assert_eq!(next(", * * * *", "2024-05-01T10:00:00Z", &utc), None);
    }

    #[test]
    fn clock_changes_skip_and_double_hours() {
        let zone = berlin();
        for (text, after, expected) in [
            ("0 6 * * *", "2024-05-01T05:00:00Z", "2024-05-02T04:00:00Z"),
            // 02:30 does not exist on 31 March 2024.
            ("30 2 * * *", "2024-03-30T12:00:00Z", "2024-04-01T00:30:00Z"),
            ("0 3 * * *", "2024-03-30T12:00:00Z", "2024-03-31T01:00:00Z"),
            // 02:30 exists twice on 27 October 2024.
            ("30 2 * * *", "2024-10-26T12:00:00Z", "2024-10-27T00:30:00Z"),
            ("30 2 * * *", "2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z"),
            ("30 2 * * *", "2024-10-27T01:30:00Z", "2024-10-28T01:30:00Z"),
        ] {
            assert_eq!(
                next(text, after, &zone).as_deref(),
                Some(expected),
                "{text} {after}"
            );
        }
        // A zone with half an hour, whose first tick the original passes over.
        let kolkata = TimeZone::posix("IST-5:30").unwrap();
        assert_eq!(
            next("0 10 * * *", "2024-05-01T04:00:00Z", &kolkata).as_deref(),
            Some("2024-05-01T04:30:00Z")
        );
    }

    #[test]
    fn what_is_no_crontab_is_refused_with_the_words_of_the_original() {
        for (text, expected) in [
            ("* * *", "Expected 5 or 6 fields, found 3: * * *"),
            ("", "Expected 5 or 6 fields, found 0: "),
            (
                "* * * * * * *",
                "Expected 5 or 6 fields, found 7: * * * * * * *",
            ),
            ("60 * * * *", "End of range (60) above maximum (59): 60"),
            ("* * 0 * *", "Beginning of range (0) below minimum (1): 0"),
            ("* * * * 7", "End of range (7) above maximum (6): 7"),
            (
                "5-1 * * * *",
                "Beginning of range (5) beyond end of range (1): 5-1",
            ),
            ("x * * * *", "Failed to parse int from x: x"),
            ("-1 * * * *", "Failed to parse int from : -1"),
            ("1-2-3 * * * *", "Too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "Too many slashes: 1/2/3"),
            (
                "*/0 * * * *",
                "Step of range should be a positive number: */0",
            ),
            ("@foo", "Unrecognized descriptor: @foo"),
            ("@every", "Unrecognized descriptor: @every"),
            (
                "@every soon",
                "Failed to parse duration @every soon: time: invalid duration \"soon\"",
            ),
            ("TZ=UTC", "Expected 5 or 6 fields, found 0: TZ=UTC"),
        ] {
            assert_eq!(
                Crontab::parse(text).map(|_| ()),
                Err(expected.to_owned()),
                "{text}"
            );
        }
        let error = Crontab::parse("TZ=No/Where * * * * *").unwrap_err();
        assert!(
            error.starts_with("Provided bad location No/Where: "),
            "{error}"
        );
    }
}
