//! What is said once and then seldom: trouble that lasts must stay visible in the log and not bury the rest of it.
//!
//! Used by the webhook threads for what keeps them from being well, and by connection threads for conversions that nobody can do.
//! Owns what was said and when; the caller writes the line. It never logs by itself.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// LIMIT: reasons that are told apart. Versions of custom resources come from outside; more than this many at once share a place.
const REASONS: usize = 64;

/// Reasons, each with the last time it was said.
pub(super) struct Complaints {
    interval: Duration,
    said: BTreeMap<String, Said>,
}

struct Said {
    at: Instant,
    /// How often it was kept back since.
    kept_back: u64,
    is_current: bool,
}

impl Complaints {
    pub(super) fn every(interval: Duration) -> Complaints {
        Complaints {
            interval,
            said: BTreeMap::new(),
        }
    }

    /// Whether the reason is to be said now, and how often it was kept back since it was said last.
    pub(super) fn due(&mut self, reason: &str, now: Instant) -> Option<u64> {
        let is_full = self.said.len() >= REASONS && !self.said.contains_key(reason);
        let reason = if is_full { "" } else { reason };
        match self.said.get_mut(reason) {
            Some(said) if now.saturating_duration_since(said.at) < self.interval => {
                said.kept_back = said.kept_back.saturating_add(1);
                said.is_current = true;
                None
            }
            Some(said) => {
                said.at = now;
                said.is_current = true;
                Some(std::mem::take(&mut said.kept_back))
            }
            None => {
                let said = Said {
                    at: now,
                    kept_back: 0,
                    is_current: true,
                };
                self.said.insert(reason.to_owned(), said);
                Some(0)
            }
        }
    }

    /// A new look at everything begins: what is still wrong will be complained about again.
    pub(super) fn begin_round(&mut self) {
        for said in self.said.values_mut() {
            said.is_current = false;
        }
    }

    /// The look is done: what was not complained about is over. True if there was trouble and none is left.
    pub(super) fn end_round(&mut self) -> bool {
        let had_trouble = !self.said.is_empty();
        self.said.retain(|_, said| said.is_current);
        had_trouble && self.said.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_same_reason_is_said_once_and_then_seldom_with_a_count() {
        let mut complaints = Complaints::every(MINUTE);
        let start = Instant::now();
        assert_eq!(complaints.due("a", start), Some(0));
        assert_eq!(complaints.due("b", start), Some(0));
        for second in 1..60 {
            assert_eq!(
                complaints.due("a", start + Duration::from_secs(second)),
                None
            );
        }
        assert_eq!(complaints.due("a", start + MINUTE), Some(59));
        assert_eq!(complaints.due("a", start + MINUTE), None);
    }

    #[test]
    fn it_is_well_again_only_when_nothing_is_complained_about_any_more() {
        let mut complaints = Complaints::every(MINUTE);
        let now = Instant::now();
        complaints.begin_round();
        assert!(!complaints.end_round(), "there was no trouble");
        for _ in 0..3 {
            complaints.begin_round();
            complaints.due("no Service", now);
            complaints.due("no certificate", now);
            assert!(!complaints.end_round());
        }
        complaints.begin_round();
        assert_eq!(complaints.due("no Service", now), None);
        assert!(!complaints.end_round(), "one of two is over");
        complaints.begin_round();
        assert!(complaints.end_round());
        complaints.begin_round();
        assert!(!complaints.end_round(), "that was said already");
        assert_eq!(complaints.due("no Service", now), Some(0));
    }

    #[test]
    fn reasons_from_outside_do_not_fill_the_memory() {
        let mut complaints = Complaints::every(MINUTE);
        let now = Instant::now();
        let said = (0..1000).filter(|number| complaints.due(&number.to_string(), now).is_some());
        assert_eq!(said.count(), REASONS + 1);
        assert_eq!(complaints.said.len(), REASONS + 1);
    }
}
