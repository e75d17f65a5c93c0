//! Between the threads that log and the output: a bounded buffer and the thread that empties it.
//!
//! A caller appends its line under a lock that is never held across I/O, and goes on. The writer thread takes all there is and
//! writes it; while there is nothing it sleeps. When the output is blocked, the buffer fills up, further lines are dropped and
//! counted, and one line tells the number once something can be written again. A broken output costs lines, never the process.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

/// LIMIT: bytes that wait for the output: about 5000 lines of usual length, and a small part of the memory that the process may
/// have. The writer holds as much again while it writes.
const MAX_WAITING: usize = 1024 * 1024;

/// LIMIT: a buffer that has grown beyond this is given back after use, so that one burst does not cost memory for ever.
const KEPT_CAPACITY: usize = 32 * 1024;

/// The callers' end. The writer thread ends when it is dropped.
pub(super) struct Sink(Arc<Shared>);

struct Shared {
    waiting: Mutex<Waiting>,
    /// There is something to write, or the sink is gone.
    filled: Condvar,
    /// Everything is written.
    drained: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    count: u64,
    /// Lines that found no room or that the output refused, not told yet.
    dropped: u64,
    writer_sleeps: bool,
    writing: bool,
    closed: bool,
}

impl Shared {
    /// A thread that panicked while it held the lock had at worst appended half a line.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink {
    /// The sink and the body of its writer thread. `notice` makes the line that tells how many were dropped.
    pub(super) fn new(
        output: impl Write + AsFd + Send + 'static,
        notice: impl Fn(u64) -> String + Send + 'static,
    ) -> (Sink, impl FnOnce() + Send + 'static) {
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
        });
        let writer = Arc::clone(&shared);
        (Sink(shared), move || run(&writer, output, notice))
    }

    /// Takes a line that ends with a newline. Never waits for the output.
    pub(super) fn push(&self, line: &str) {
        let mut waiting = self.0.lock();
        if waiting.lines.len().saturating_add(line.len()) > MAX_WAITING {
            waiting.dropped = waiting.dropped.saturating_add(1);
            return;
        }
        waiting.lines.extend_from_slice(line.as_bytes());
        waiting.count = waiting.count.saturating_add(1);
        let wake = waiting.writer_sleeps;
        drop(waiting);
        if wake {
            self.0.filled.notify_one();
        }
    }

    /// Waits until all lines are written or refused, at most for `timeout`. Says whether they are.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        let waiting = self.0.lock();
        let (waiting, _) = self
            .0
            .drained
            .wait_timeout_while(waiting, timeout, |w| w.writing || !w.lines.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        !waiting.writing && waiting.lines.is_empty()
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.filled.notify_one();
    }
}

/// The writer thread.
fn run(shared: &Shared, mut output: impl Write + AsFd, notice: impl Fn(u64) -> String) {
    let mut batch: Vec<u8> = Vec::new();
    // Whether the last attempt stopped in the middle of a line, which the next one must not continue.
    let mut torn = false;
    let mut waiting = shared.lock();
    loop {
        while waiting.lines.is_empty() {
            if waiting.closed {
                return;
            }
            waiting.writer_sleeps = true;
            waiting = shared
                .filled
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
            waiting.writer_sleeps = false;
        }
        std::mem::swap(&mut batch, &mut waiting.lines);
        let count = std::mem::take(&mut waiting.count);
        let dropped = std::mem::take(&mut waiting.dropped);
        waiting.writing = true;
        drop(waiting);

        if torn {
            batch.insert(0, b'\n');
        }
        if dropped > 0 {
            batch.extend_from_slice(notice(dropped).as_bytes());
        }
        let result = write_whole(&mut output, &batch);
        torn = match result {
            Ok(()) => false,
            Err(written) => written > 0 || torn,
        };
        batch.clear();
        batch.shrink_to(KEPT_CAPACITY);

        waiting = shared.lock();
        waiting.writing = false;
        if result.is_err() {
            // Not tried again before there is something new to say: a closed pipe would keep this thread busy for ever.
            let lost = count.saturating_add(dropped);
            waiting.dropped = waiting.dropped.saturating_add(lost);
        }
        if waiting.lines.is_empty() {
            shared.drained.notify_all();
        }
    }
}

/// Writes all of it, or says how much was written before the output refused.
fn write_whole(output: &mut (impl Write + AsFd), bytes: &[u8]) -> Result<(), usize> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match output.write(rest) {
            Ok(0) => return Err(written),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Someone who shares the descriptor made it non-blocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                await_room(output).map_err(|_| written)?;
            }
            Err(_) => return Err(written),
        }
    }
    Ok(())
}

fn await_room(output: &impl AsFd) -> io::Result<()> {
    let mut descriptor = [PollFd::new(output, PollFlags::OUT)];
    match poll(&mut descriptor, None) {
        Ok(_) => Ok(()),
        Err(error) if error == rustix::io::Errno::INTR => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::thread::JoinHandle;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[expect(clippy::disallowed_methods, reason = "a test has no main loop to tell")]
    fn start(output: io::PipeWriter) -> (Sink, JoinHandle<()>) {
        let (sink, body) = Sink::new(output, |dropped| format!("dropped {dropped}\n"));
        (sink, std::thread::spawn(body))
    }

    #[test]
    fn lines_arrive_in_order_and_flush_waits_for_them() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (sink, thread) = start(writer);
        for number in 0..100 {
            sink.push(&format!("{number}\n"));
        }
        assert!(sink.flush(LONG));
        drop(sink);
        thread.join().unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let expected: String = (0..100).map(|number| format!("{number}\n")).collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn a_blocked_output_blocks_nobody_and_losses_are_counted() {
        let (reader, writer) = io::pipe().unwrap();
        let (sink, thread) = start(writer);
        // More than the pipe, the writer's batch and the buffer can hold together. Nobody reads.
        let line = format!("{}\n", "x".repeat(1023));
        let pushed = 4096;
        for _ in 0..pushed {
            sink.push(&line);
        }
        assert!(!sink.flush(Duration::from_millis(10)));
        assert!(sink.0.lock().lines.len() <= MAX_WAITING);

        let mut seen = 0;
        let mut told = 0;
        for text in BufReader::new(reader).lines() {
            let text = text.unwrap();
            match text.strip_prefix("dropped ") {
                Some(count) => told += count.parse::<u64>().unwrap(),
                None => seen += 1,
            }
            if seen + told == pushed {
                break;
            }
        }
        assert!(told > 0);
        assert!(sink.flush(LONG));
        drop(sink);
        thread.join().unwrap();
    }

    #[test]
    fn a_broken_pipe_is_survived() {
        let (reader, writer) = io::pipe().unwrap();
        let (sink, thread) = start(writer);
        drop(reader);
        for _ in 0..3 {
            sink.push("lost\n");
            assert!(sink.flush(LONG));
        }
        assert_eq!(sink.0.lock().dropped, 3);
        drop(sink);
        thread.join().unwrap();
    }

    #[test]
    fn an_output_that_was_made_non_blocking_loses_nothing() {
        let (reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let (sink, thread) = start(writer);
        let line = format!("{}\n", "y".repeat(1023));
        // Larger than a pipe, smaller than the buffer.
        for _ in 0..512 {
            sink.push(&line);
        }
        let whole = BufReader::new(reader)
            .lines()
            .take(512)
            .filter(|text| text.as_ref().unwrap().len() == 1023)
            .count();
        assert_eq!(whole, 512);
        assert!(sink.flush(LONG));
        drop(sink);
        thread.join().unwrap();
    }

    #[test]
    fn an_idle_writer_keeps_no_large_buffer() {
        let (reader, writer) = io::pipe().unwrap();
        let (sink, thread) = start(writer);
        #[expect(clippy::disallowed_methods, reason = "a test has no main loop to tell")]
        let drain = std::thread::spawn(move || BufReader::new(reader).lines().count());
        for _ in 0..4 {
            sink.push(&format!("{}\n", "z".repeat(500_000)));
            assert!(sink.flush(LONG));
        }
        // The writer gives its buffer back before the next swap brings it here.
        assert!(sink.0.lock().lines.capacity() <= KEPT_CAPACITY);
        drop(sink);
        thread.join().unwrap();
        assert_eq!(drain.join().unwrap(), 4);
    }
}
