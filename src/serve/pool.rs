//! The executor threads that decide reviews: one crossbeam channel, many takers, a limit on how many there are.
//!
//! A connection thread hands over a job and waits for the answer until the job's deadline; a job whose deadline has passed
//! before a thread is free is not begun. Threads are started when they are first needed and then stay: starting one for each
//! review would cost more than it saves, and an idle one costs a few pages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use log::error;

use super::runner::seconds;
use crate::message::Event;
use crate::threads::{self, panic_text};

/// How many jobs may wait for a thread, for each thread there may be. What is beyond is refused at once: it would only wait to
/// be too late.
const WAITING_PER_THREAD: usize = 16;

/// What is to be done; taken by the thread that does it, or by the waiting side when it is too late, so that a job which nobody
/// waits for holds no memory.
type Work<T> = Arc<Mutex<Option<Box<dyn FnOnce() -> T + Send>>>>;

/// A piece of work that ends in an answer of type `T`.
struct Job<T> {
    work: Work<T>,
    reply: Sender<T>,
    deadline: Instant,
}

/// The threads and the channel to them.
pub(crate) struct Pool<T> {
    name: &'static str,
    jobs: Sender<Job<T>>,
    taker: Receiver<Job<T>>,
    /// Jobs that wait or are being done.
    outstanding: Arc<AtomicUsize>,
    started: AtomicUsize,
    limit: usize,
    events: Sender<Event>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// More jobs wait than can be done in time.
    Full,
    /// The deadline passed.
    Late,
    /// The work panicked.
    Broken,
}

impl Refused {
    /// What is told to whoever waited, at most for `limit`.
    pub(crate) fn reason(self, limit: Duration) -> String {
        match self {
            Refused::Full => "too many requests are waiting; try again".to_owned(),
            Refused::Late => format!("no answer within {}", seconds(limit)),
            Refused::Broken => "the operator failed; its log says why".to_owned(),
        }
    }
}

impl<T: Send + 'static> Pool<T> {
    /// At most `limit` threads, called `<name>:<number>`.
    pub(crate) fn new(name: &'static str, limit: usize, events: Sender<Event>) -> Self {
        let limit = limit.max(1);
        let (jobs, taker) = bounded(limit.saturating_mul(WAITING_PER_THREAD));
        Pool {
            name,
            jobs,
            taker,
            outstanding: Arc::default(),
            started: AtomicUsize::new(0),
            limit,
            events,
        }
    }

    /// Runs `work` on an executor thread and waits for its answer, at most until `deadline` plus `grace` for work that ends
    /// itself at its deadline and needs a moment to say so.
    pub(crate) fn run(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        deadline: Instant,
        grace: Duration,
    ) -> Result<T, Refused> {
        let (reply, answer) = bounded(1);
        let work: Work<T> = Arc::new(Mutex::new(Some(Box::new(work))));
        let job = Job {
            work: Arc::clone(&work),
            reply,
            deadline,
        };
        self.outstanding.fetch_add(1, Ordering::AcqRel);
        if self.jobs.try_send(job).is_err() {
            self.outstanding.fetch_sub(1, Ordering::AcqRel);
            return Err(Refused::Full);
        }
        self.ensure_taker();
        let limit = deadline.saturating_duration_since(Instant::now()) + grace;
        answer.recv_timeout(limit).map_err(|error| {
            drop(taken(&work));
            match error {
                RecvTimeoutError::Timeout => Refused::Late,
                // The thread dropped the reply: it found the deadline passed, or the work panicked.
                RecvTimeoutError::Disconnected if Instant::now() >= deadline => Refused::Late,
                RecvTimeoutError::Disconnected => Refused::Broken,
            }
        })
    }

    /// Starts one more thread if there are more jobs than threads and the limit allows it.
    fn ensure_taker(&self) {
        let wanted = self.limit.min(self.outstanding.load(Ordering::Acquire));
        let grown = self
            .started
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |started| {
                (started < wanted).then(|| started + 1)
            });
        let Ok(number) = grown else {
            return;
        };
        let taker = self.taker.clone();
        let outstanding = Arc::clone(&self.outstanding);
        let spawned = threads::spawn(
            &format!("{}:{number}", self.name),
            &self.events,
            move || {
                serve(&taker, &outstanding);
            },
        );
        if let Err(error) = spawned {
            self.started.fetch_sub(1, Ordering::AcqRel);
            error!("cannot start an executor thread: {error}");
        }
    }
}

/// Takes jobs until the pool is dropped.
fn serve<T>(taker: &Receiver<Job<T>>, outstanding: &AtomicUsize) {
    while let Ok(job) = taker.recv() {
        do_job(&job);
        outstanding.fetch_sub(1, Ordering::AcqRel);
    }
}

fn do_job<T>(job: &Job<T>) {
    if Instant::now() >= job.deadline {
        return;
    }
    let Some(work) = taken(&job.work) else {
        return;
    };
    // A panic ends one review, not the thread that the next one needs. Dropping the reply tells the waiting side.
    match catch_unwind(AssertUnwindSafe(work)) {
        // The waiting side may have given up; then nobody needs the answer.
        Ok(answer) => drop(job.reply.send(answer)),
        Err(payload) => error!("a review panicked: {}", panic_text(payload.as_ref())),
    }
}

fn taken<T>(work: &Work<T>) -> Option<Box<dyn FnOnce() -> T + Send>> {
    work.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(limit: usize) -> (Pool<usize>, Receiver<Event>) {
        let (sender, receiver) = bounded(64);
        (Pool::new("executor", limit, sender), receiver)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn every_answer_belongs_to_its_question() {
        let (pool, _events) = pool(4);
        std::thread::scope(|scope| {
            for number in 0..200 {
                let pool = &pool;
                let asked = scope.spawn(move || pool.run(move || number, soon(), Duration::ZERO));
                assert_eq!(asked.join().unwrap(), Ok(number));
            }
        });
        assert!(pool.started.load(Ordering::Acquire) <= 4);
    }

    #[test]
    fn a_job_that_is_too_late_is_never_begun() {
        let (pool, _events) = pool(1);
        let (release, released) = bounded::<()>(0);
        let (begin, began) = bounded::<()>(1);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let work = move || {
                    begin.send(()).unwrap();
                    let _ = released.recv();
                    1
                };
                pool.run(work, soon(), Duration::ZERO)
            });
            began.recv().unwrap();
            let begun = Arc::new(AtomicUsize::new(0));
            let seen = Arc::clone(&begun);
            let late = pool.run(
                move || seen.fetch_add(1, Ordering::AcqRel),
                Instant::now() + Duration::from_millis(30),
                Duration::ZERO,
            );
            assert_eq!(late, Err(Refused::Late));
            drop(release);
            assert_eq!(first.join().unwrap(), Ok(1));
            assert_eq!(pool.run(|| 2, soon(), Duration::ZERO), Ok(2));
            assert_eq!(begun.load(Ordering::Acquire), 0);
        });
    }
}
