//! The `process_…` metrics that every program of this field shows: memory, processor time, open files, the time of the start.
//!
//! Runs on the thread that renders the page and reads `/proc/self`; owns nothing. What cannot be read is left out.

use std::fmt::Write as _;
use std::fs;

/// Linux shows times to programs in hundredths of a second (USER_HZ) on every architecture we are built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Adds this process to a page.
pub(super) fn render(text: &mut String) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let system = fs::read_to_string("/proc/stat").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let open = fs::read_dir("/proc/self/fd").map(Iterator::count);
    // The directory itself is open while it is read.
    let open = open.ok().map(|count| count.saturating_sub(1).to_string());
    for (name, kind, value) in [
        ("cpu_seconds_total", "counter", cpu_seconds(&stat)),
        ("max_fds", "gauge", most_files(&limits)),
        ("open_fds", "gauge", open),
        ("resident_memory_bytes", "gauge", resident_bytes(&status)),
        ("start_time_seconds", "gauge", start_seconds(&stat, &system)),
        ("virtual_memory_bytes", "gauge", field(&stat, 23)),
    ] {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "# HELP process_{name} process_{name}\n# TYPE process_{name} {kind}\nprocess_{name} {value}"
            );
        }
    }
}

/// A field of `/proc/self/stat`, numbered as in proc(5). The name before the third may hold anything.
fn field(stat: &str, number: usize) -> Option<String> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let field = after_name
        .split_ascii_whitespace()
        .nth(number.checked_sub(3)?)?;
    // Only what is a number may get onto the page.
    field.parse::<f64>().ok().map(|_| field.to_owned())
}

fn ticks(stat: &str, number: usize) -> Option<f64> {
    let ticks: f64 = field(stat, number)?.parse().ok()?;
    Some(ticks / TICKS_PER_SECOND)
}

fn cpu_seconds(stat: &str) -> Option<String> {
    Some((ticks(stat, 14)? + ticks(stat, 15)?).to_string())
}

fn resident_bytes(status: &str) -> Option<String> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024).to_string())
}

fn start_seconds(stat: &str, system: &str) -> Option<String> {
    let line = system
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?;
    let boot: f64 = line.trim().parse().ok()?;
    Some((boot + ticks(stat, 22)?).to_string())
}

fn most_files(limits: &str) -> Option<String> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    let limit: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_a_name_that_may_hold_anything() {
        let mut stat = String::from("7 (a) b (c) S");
        for number in 4..=24 {
            stat.push_str(&format!(" {number}00"));
        }
        assert_eq!(field(&stat, 23).as_deref(), Some("2300"));
        assert_eq!(cpu_seconds(&stat).as_deref(), Some("29"));
        assert_eq!(
            start_seconds(&stat, "cpu 1\nbtime 1000\n").as_deref(),
            Some("1022")
        );
        assert_eq!(
            resident_bytes("VmPeak: 9 kB\nVmRSS:\t  2 kB\n").as_deref(),
            Some("2048")
        );
        assert_eq!(
            most_files("Limit x\nMax open files            1024     4096     files\n").as_deref(),
            Some("1024")
        );
        for broken in ["", "7 (a", "7 (a) S x"] {
            assert_eq!(cpu_seconds(broken), None, "{broken}");
        }
    }

    #[test]
    fn this_process_has_all_of_them() {
        let mut text = String::new();
        render(&mut text);
        assert_eq!(text.matches("# TYPE process_").count(), 6, "{text}");
    }
}
