//! The schedule thread: knows when each crontab fires next, and says so.
//!
//! ```text
//! enabled crontab -> timer (one for equal texts) -> due -> Event::Tick
//! ```
//! Owns the timers. Wakes when one is due and otherwise hardly ever; what was missed, because the process was held up, is not
//! made up for. Never knows which hooks a crontab belongs to: that is for `dispatch`.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, never, select, unbounded};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::hook::crontab::Crontab;
use crate::message::Event;
use crate::threads;

/// Waiting does not notice that the clock was set. On a node without a battery that is years at the first contact with a time
/// server; this bounds how late a schedule can be because of it.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

struct Timer {
    text: Arc<str>,
    crontab: Crontab,
    /// None: never.
    due: Option<Timestamp>,
}

/// The timers and the zone that crontabs without one are in.
struct Schedule {
    timers: Vec<Timer>,
    zone: TimeZone,
    /// When it last looked at the clock.
    looked: Timestamp,
}

/// Starts the thread, which ends when `stopped` is closed. Crontabs sent to the sender are enabled.
pub(crate) fn start(
    events: &Sender<Event>,
    stopped: Receiver<Infallible>,
) -> io::Result<Sender<Crontab>> {
    let (enable, enabled) = unbounded();
    let ticks = events.clone();
    threads::spawn("schedule", events, move || {
        serve(&enabled, &stopped, &ticks)
    })?;
    Ok(enable)
}

fn serve(enabled: &Receiver<Crontab>, stopped: &Receiver<Infallible>, ticks: &Sender<Event>) {
    // The zone is looked up when something is in it: that reads the names of all zones, which an operator without schedules
    // need not hold.
    let first = select! {
        recv(enabled) -> crontab => crontab,
        recv(stopped) -> _ => return,
    };
    let Ok(first) = first else {
        // Nothing will ever be enabled.
        let _ = stopped.recv();
        return;
    };
    let mut schedule = Schedule::new(TimeZone::system(), Timestamp::now());
    schedule.enable(first, Timestamp::now());
    let mut enabled = enabled.clone();
    loop {
        let wait = schedule.wait(Timestamp::now());
        let timeout = wait.map_or_else(never, crossbeam_channel::after);
        select! {
            recv(enabled) -> crontab => match crontab {
                Ok(crontab) => schedule.enable(crontab, Timestamp::now()),
                // Nothing more will be enabled; what is goes on.
                Err(_) => enabled = never(),
            },
            recv(stopped) -> _ => return,
            recv(timeout) -> _ => for crontab in schedule.due(Timestamp::now()) {
                if ticks.send(Event::Tick { crontab }).is_err() {
                    return;
                }
            },
        }
    }
}

impl Schedule {
    fn new(zone: TimeZone, now: Timestamp) -> Schedule {
        Schedule {
            timers: Vec::new(),
            zone,
            looked: now,
        }
    }

    /// Equal texts share the timer of the first.
    fn enable(&mut self, crontab: Crontab, now: Timestamp) {
        if self.timers.iter().any(|timer| timer.crontab == crontab) {
            return;
        }
        self.timers.push(Timer {
            text: Arc::from(crontab.text()),
            due: crontab.next(now, &self.zone),
            crontab,
        });
    }

    /// How long to wait for the next timer. None: there is nothing to wait for.
    fn wait(&self, now: Timestamp) -> Option<Duration> {
        let next = self.timers.iter().filter_map(|timer| timer.due).min()?;
        let left = Duration::try_from(next.duration_since(now)).unwrap_or(Duration::ZERO);
        Some(left.min(LONGEST_WAIT))
    }

    /// The crontabs that are due, each once however often it was missed, in the order in which they were enabled.
    fn due(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        let was_set_back = now < self.looked;
        self.looked = now;
        let mut due = Vec::new();
        for timer in &mut self.timers {
            let is_due = timer.due.is_some_and(|due| due <= now);
            if is_due {
                due.push(Arc::clone(&timer.text));
            }
            if is_due || was_set_back {
                timer.due = timer.crontab.next(now, &self.zone);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::bounded;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn schedule(crontabs: &[&str], now: &str) -> Schedule {
        let mut schedule = Schedule::new(TimeZone::UTC, at(now));
        for text in crontabs {
            schedule.enable(Crontab::parse(text).unwrap(), at(now));
        }
        schedule
    }

    fn due(schedule: &mut Schedule, now: &str) -> Vec<String> {
        let due = schedule.due(at(now));
        due.iter().map(|text| text.to_string()).collect()
    }

    #[test]
    fn equal_texts_share_a_timer_and_fire_once() {
        let mut schedule = schedule(
            &["* * * * *", "*/2 * * * *", "* * * * *"],
            "2024-05-01T10:00:30Z",
        );
        assert_eq!(
            schedule.wait(at("2024-05-01T10:00:30Z")),
            Some(Duration::from_secs(30))
        );
        assert!(due(&mut schedule, "2024-05-01T10:00:59.9Z").is_empty());
        assert_eq!(due(&mut schedule, "2024-05-01T10:01:00Z"), ["* * * * *"]);
        assert_eq!(
            due(&mut schedule, "2024-05-01T10:02:00.4Z"),
            ["* * * * *", "*/2 * * * *"]
        );
    }

    #[test]
    fn missed_times_are_not_made_up_for() {
        let mut schedule = schedule(&["* * * * * *"], "2024-05-01T10:00:00Z");
        assert_eq!(
            due(&mut schedule, "2024-05-01T10:05:00.3Z"),
            ["* * * * * *"]
        );
        assert!(due(&mut schedule, "2024-05-01T10:05:00.9Z").is_empty());
        assert_eq!(
            schedule.wait(at("2024-05-01T10:05:00.9Z")),
            Some(Duration::from_millis(100))
        );
    }

    #[test]
    fn an_interval_begins_when_it_is_enabled_and_does_not_drift() {
        let mut schedule = schedule(&["@every 90s"], "2024-05-01T10:00:00.7Z");
        assert_eq!(due(&mut schedule, "2024-05-01T10:01:30.2Z"), ["@every 90s"]);
        assert!(due(&mut schedule, "2024-05-01T10:02:59Z").is_empty());
        assert_eq!(due(&mut schedule, "2024-05-01T10:03:00.2Z"), ["@every 90s"]);
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        let mut schedule = schedule(&["0 3 * * *"], "2024-05-01T10:00:00Z");
        assert_eq!(
            schedule.wait(at("2024-05-01T10:00:00Z")),
            Some(LONGEST_WAIT)
        );
        // Set back by a day: the next time is that of the day it is now.
        assert!(due(&mut schedule, "2024-04-30T02:59:00Z").is_empty());
        assert_eq!(
            schedule.wait(at("2024-04-30T02:59:00Z")),
            Some(Duration::from_secs(60))
        );
    }

    #[test]
    fn without_anything_to_do_nothing_is_waited_for() {
        let schedule = schedule(&["0 0 30 2 *"], "2024-05-01T10:00:00Z");
        assert_eq!(schedule.wait(at("2024-05-01T10:00:00Z")), None);
    }

    #[test]
    fn the_thread_ticks_and_ends_when_told() {
        let (events, inbox) = bounded(16);
        let (stop, stopped) = bounded(0);
        let enable = start(&events, stopped).unwrap();
        let limit = Duration::from_secs(20);
        for text in ["@every 1s", "@every 1s"] {
            enable.send(Crontab::parse(text).unwrap()).unwrap();
        }
        drop(enable);
        for _ in 0..2 {
            let event = inbox.recv_timeout(limit).unwrap();
            assert!(matches!(event, Event::Tick { crontab } if &*crontab == "@every 1s"));
        }
        drop(stop);
        loop {
            match inbox.recv_timeout(limit).unwrap() {
                Event::Tick { .. } => {}
                Event::Exited { thread, panic } => {
                    assert_eq!((thread.as_str(), panic), ("schedule", None));
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
