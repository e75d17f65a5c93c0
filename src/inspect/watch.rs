//! `queue list --watch`: the same answer again and again until Ctrl-C.
//!
//! On a terminal the view takes the other screen and is drawn over itself in one write, line by line, so that nothing flickers; what is
//! left behind at the end is the screen as it was. Into a pipe or a file it writes one block after the other. An operator that goes away
//! is waited for: a view that ends by itself when things go wrong would be of little use.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};

use super::ask::{Question, ask};
use crate::threads;

/// Other screen, no cursor, lines cut at the edge and not wrapped.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
/// Where drawing begins; what a shorter line or view leaves of the former one is erased.
const HOME: &str = "\x1b[H";
const ERASE_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";
/// Threads whose end could be an event: that of the signals.
const ENDS: usize = 1;
/// A screen that does not tell its size.
const USUAL_ROWS: usize = 24;
/// The line that says what is shown, and an empty one.
const HEADING: usize = 2;

/// Shows until told to stop, or until nobody reads any more.
pub(super) fn watch(
    socket: &Path,
    question: &Question,
    every: Duration,
    is_terminal: bool,
    out: &mut dyn Write,
) -> Result<(), String> {
    // The end of the signal thread needs no event here: without it `signals` is closed, which ends the view as well.
    let (events, _) = bounded(ENDS);
    let (_, signals) = threads::spawn_signals(&events)
        .map_err(|error| format!("start the signal thread: {error}"))?;
    // A wrong path is told at once; later the operator may come and go.
    let mut answer = ask(socket, question).map_err(|error| error.to_string())?;
    let mut show = |answer: &[u8], is_first: bool| -> io::Result<()> {
        if !is_terminal {
            let separator: &[u8] = if is_first { b"" } else { b"\n" };
            out.write_all(separator)?;
            out.write_all(answer)?;
            return out.flush();
        }
        let text = String::from_utf8_lossy(answer);
        let enter = if is_first { ENTER } else { "" };
        let screen = screen(&heading(socket, every), &text, rows());
        out.write_all(format!("{enter}{screen}").as_bytes())?;
        out.flush()
    };
    let mut is_first = true;
    loop {
        if show(&answer, is_first).is_err() {
            return Ok(());
        }
        is_first = false;
        if !matches!(signals.recv_timeout(every), Err(RecvTimeoutError::Timeout)) {
            break;
        }
        answer = ask(socket, question).unwrap_or_else(|error| {
            // A screen cuts long lines, and the remedy stands at the end.
            let separator = if is_terminal { ";\n" } else { "; " };
            let text = error.to_string().replace("; ", separator);
            format!("{text}\n").into_bytes()
        });
    }
    if is_terminal {
        let _ = out.write_all(LEAVE.as_bytes());
        let _ = out.flush();
    }
    Ok(())
}

fn heading(socket: &Path, every: Duration) -> String {
    let now = jiff::Zoned::now().strftime("%H:%M:%S");
    let seconds = every.as_secs_f64();
    format!(
        "{now}  queues of {}, every {seconds}s, Ctrl-C ends",
        socket.display()
    )
}

/// One frame, as it is written.
fn screen(heading: &str, text: &str, rows: usize) -> String {
    let mut frame = String::from(HOME);
    let lines = fitted(text, rows.saturating_sub(HEADING));
    let lines = [heading.to_owned(), String::new()].into_iter().chain(lines);
    for (index, line) in lines.enumerate() {
        if index > 0 {
            frame.push_str("\r\n");
        }
        frame.push_str(&line);
        frame.push_str(ERASE_LINE);
    }
    frame.push_str(ERASE_BELOW);
    frame
}

/// As many lines as there is room for: of every queue as many tasks as leave room for all queues and the summary, which is what
/// counts when queues are long.
fn fitted(text: &str, room: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut shown = shortened(&lines, usize::MAX);
    for tasks in (0..room).rev() {
        if shown.len() <= room {
            return shown;
        }
        shown = shortened(&lines, tasks);
    }
    shown.truncate(room);
    shown
}

/// The lines with at most so many tasks of each queue.
fn shortened(lines: &[&str], tasks: usize) -> Vec<String> {
    let mut shown = Vec::new();
    let mut count = 0;
    let tell_hidden = |shown: &mut Vec<String>, count: usize| {
        if count > tasks {
            shown.push(format!("    ... {} more", count - tasks));
        }
    };
    for line in lines {
        if is_task(line) {
            count += 1;
            if count <= tasks {
                shown.push((*line).to_owned());
            }
            continue;
        }
        tell_hidden(&mut shown, count);
        count = 0;
        shown.push((*line).to_owned());
    }
    tell_hidden(&mut shown, count);
    shown
}

/// ` 1. HookRun:…`
fn is_task(line: &str) -> bool {
    let number = line.trim_start().split_once(". ").map(|(number, _)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn rows() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    let rows = size.map_or(0, |size| usize::from(size.ws_row));
    if rows == 0 { USUAL_ROWS } else { rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_draws_over_the_former_one_without_clearing_the_screen() {
        let frame = screen("h", "a\nb\n", 24);
        assert_eq!(frame, "\x1b[Hh\x1b[K\r\n\x1b[K\r\na\x1b[K\r\nb\x1b[K\x1b[J");
        assert!(!frame.contains("\x1b[2J"));
    }

    #[test]
    fn every_queue_and_the_summary_have_their_place_however_long_a_queue_is() {
        let tasks: String = (1..=100).map(|n| format!("{n:>2}. task\n")).collect();
        let text =
            format!("Queue a\n\n{tasks}\nQueue b\n\n 1. x\n 2. y\n\nSummary:\n- total 102\n");
        assert_eq!(
            fitted(&text, 12),
            [
                "Queue a",
                "",
                " 1. task",
                "    ... 99 more",
                "",
                "Queue b",
                "",
                " 1. x",
                "    ... 1 more",
                "",
                "Summary:",
                "- total 102"
            ]
        );
        assert_eq!(
            fitted(&text, 13).len(),
            13,
            "two tasks of each, no line for the second queue"
        );
        for room in 0..120 {
            assert!(fitted(&text, room).len() <= room, "{room}");
        }
        assert_eq!(fitted(&text, 200).len(), text.lines().count());
    }
}
