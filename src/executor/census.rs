//! Reading `/proc`: which processes are our children, what they belong to, and what they used.
//!
//! Runs on the reaper thread (scans) and on the thread of a run (its own zombie). Owns nothing, changes nothing. `/proc/PID/stat`
//! is used and not `/proc/PID/task/TID/children`, because the latter exists only on kernels built for checkpointing.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use rustix::process::Pid;

/// Linux shows times to programs in hundredths of a second (USER_HZ) on every architecture we are built for.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// LIMIT: a `stat` line has 52 numbers of at most 20 digits and a name of at most 64 bytes.
const STAT_BYTES: usize = 2048;

/// LIMIT: the kernel bounds one environment by a quarter of the stack limit, 2 MiB by default. Our variables are the first ones a
/// shell passes on or the last, so all of it is read.
const ENVIRON_BYTES: u64 = 2 * 1024 * 1024;

/// What one line of `/proc/PID/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) is_zombie: bool,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) usage: Usage,
}

/// What a process used: processor time, with that of the children that it waited for, in steps of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    /// The largest resident size of any one of its processes that was seen, in KiB. None for runs too short to be looked at.
    pub(crate) most_memory: Option<u32>,
}

/// LIMIT: processes of one run that are looked at for their memory; hooks are a shell and what it calls at the moment.
const LOOKED_AT: usize = 32;

/// The most memory, in KiB, that a process or one of its descendants that live now has had so far.
pub(super) fn most_memory(pid: Pid) -> Option<u32> {
    let mut most = None;
    let mut found = vec![pid.as_raw_pid()];
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        next += 1;
        most = most.max(peak(pid));
        // Exists only on kernels built for checkpointing; elsewhere the hook's own process has to do.
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let pids = children.split_ascii_whitespace();
        let room = LOOKED_AT.saturating_sub(found.len());
        found.extend(pids.filter_map(|pid| pid.parse::<i32>().ok()).take(room));
    }
    most
}

fn peak(pid: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// All children of a process that exist now. A process that comes or goes meanwhile may be missing.
pub(super) fn children_of(parent: Pid) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter_map(read_process)
        .filter(|process| process.parent == parent.as_raw_pid())
        .collect()
}

/// Nothing when the process is gone.
pub(super) fn read_process(pid: Pid) -> Option<Process> {
    let mut line = [0_u8; STAT_BYTES];
    let length = File::open(format!("/proc/{pid}/stat"))
        .ok()?
        .read(&mut line)
        .ok()?;
    parse_stat(pid, line.get(..length)?)
}

/// The value of a variable in the environment that a process was started with. Nothing when it is not ours to read.
pub(super) fn environment_value(pid: Pid, name: &str) -> Option<Vec<u8>> {
    let mut environment = Vec::new();
    File::open(format!("/proc/{pid}/environ"))
        .ok()?
        .take(ENVIRON_BYTES)
        .read_to_end(&mut environment)
        .ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        entry
            .strip_prefix(name.as_bytes())?
            .strip_prefix(b"=")
            .map(<[u8]>::to_vec)
    })
}

/// The name in the second field is chosen by the process and may hold spaces and brackets, so fields are counted from its last
/// closing bracket. Fields are numbered as in proc(5).
fn parse_stat(pid: Pid, line: &[u8]) -> Option<Process> {
    let after_name = line.iter().rposition(|byte| *byte == b')')? + 1;
    let text = std::str::from_utf8(line.get(after_name..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?; // 3
    let parent = fields.next()?.parse().ok()?; // 4
    let group = fields.next()?.parse().ok()?; // 5
    let mut times = fields
        .skip(8)
        .map_while(|field| field.parse::<u32>().ok())
        .map(|ticks| TICK.saturating_mul(ticks)); // 14 ..
    let (user, system) = (times.next()?, times.next()?);
    let (children_user, children_system) = (times.next()?, times.next()?);
    Some(Process {
        pid,
        is_zombie: matches!(state, "Z" | "X"),
        parent,
        group,
        usage: Usage {
            user: user.saturating_add(children_user),
            system: system.saturating_add(children_system),
            most_memory: None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_process_calls_itself() {
        let pid = Pid::from_raw(77).unwrap();
        for name in ["sh", "a) Z 1 (b", ") ) )", ""] {
            let line = format!(
                "77 ({name}) S 12 34 56 0 -1 4194304 100 200 0 0 3 4 10 20 20 0 1 0 999 0 0"
            );
            let process = parse_stat(pid, line.as_bytes()).unwrap();
            assert_eq!(
                (process.parent, process.group, process.is_zombie),
                (12, 34, false)
            );
            assert_eq!(process.usage.user, Duration::from_millis(130));
            assert_eq!(process.usage.system, Duration::from_millis(240));
        }
    }

    #[test]
    fn a_broken_stat_line_is_no_process() {
        let pid = Pid::from_raw(77).unwrap();
        for line in [
            "",
            "77",
            "77 (sh",
            "77 (sh)",
            "77 (sh) S",
            "77 (sh) S x y",
            "77 (sh) S 1 2 3",
        ] {
            assert_eq!(parse_stat(pid, line.as_bytes()), None, "{line}");
        }
    }
}
