//! Ends what the tests have started when the test process itself cannot: it was interrupted, killed or aborted.
//!
//! A Rust test process runs no code at its end, and `Drop` does not run on a signal. So a small shell process holds the read end
//! of a pipe. It is told what is alive; when the pipe closes, for whatever reason, it ends what is left. It has a process group of
//! its own, so that the interrupt key of a terminal does not reach it.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use super::repository;

/// Lines are `+KIND VALUE` and `-KIND VALUE`. At the end of the input the rest is worked off, sorted, so in this order:
/// `a-up PID`: a start of a control plane that is under way, which undoes itself on TERM; `b-plane DIR`; `dir DIR`.
/// A folder's processes are those whose environment names it (see `Operator::offspring`).
const SCRIPT: &str = r#"
awk '/^\+/ { live[substr($0, 2)] = 1 } /^-/ { delete live[substr($0, 2)] } END { for (entry in live) print entry }' |
    sort | while read -r kind value; do
    case $kind in
    a-up)
        kill -s TERM "$value" && while kill -0 "$value"; do sleep 0.1; done
        ;;
    b-plane) "$0" down --kill --purge "$value" ;;
    dir)
        for file in /proc/[0-9]*/environ; do
            if grep -qF "$value/" "$file"; then
                pid=${file#/proc/}
                kill -s KILL "${pid%/environ}"
            fi
        done
        rm -rf -- "$value"
        ;;
    esac
done 2>/dev/null
"#;

/// Starting a control plane has a kind of its own (see `SCRIPT`).
pub(crate) const UP: &str = "a-up";
pub(crate) const PLANE: &str = "b-plane";

pub(crate) fn add(kind: &str, value: &str) {
    tell(&format!("+{kind} {value}\n"));
}

pub(crate) fn remove(kind: &str, value: &str) {
    tell(&format!("-{kind} {value}\n"));
}

fn tell(line: &str) {
    static WATCHDOG: OnceLock<Mutex<Child>> = OnceLock::new();
    let watchdog = WATCHDOG.get_or_init(|| Mutex::new(start()));
    // A panic of another test must not keep this one from cleaning up.
    let mut watchdog = watchdog
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(input) = &mut watchdog.stdin {
        input.write_all(line.as_bytes()).unwrap();
    }
}

/// Starts one. It keeps our stderr open until it has done its work, so that `scripts/test 2>&1 | less` and the like wait for it.
pub(crate) fn start() -> Child {
    Command::new("sh")
        .arg("-c")
        .arg(SCRIPT)
        .arg(repository().join("scripts/control-plane"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("the tests need sh and awk")
}
