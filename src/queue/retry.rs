//! How long a failed task waits before it is tried again, in the steps of the original. Pure; the caller brings the random number.

use std::time::Duration;

/// After the first failure, and the ground that later ones build on.
const FIRST: Duration = Duration::from_secs(5);
/// However often it failed.
const LONGEST: Duration = Duration::from_secs(32);
/// Up to this many earlier failures the pause doubles, by then it is as good as the longest.
const DOUBLINGS: u32 = 5;
/// Spread, in milliseconds, so that tasks which failed together are not tried together.
const SPREAD: u64 = 1000;
/// The steps of a pause, in milliseconds.
const STEP: u64 = 100;

/// The pause after a failure; `earlier` is how often the task had failed before. Any `random` is right.
pub(super) fn delay(earlier: u32, random: u64) -> Duration {
    if earlier == 0 {
        return FIRST;
    }
    if earlier > DOUBLINGS {
        return LONGEST;
    }
    let doubled = Duration::from_secs(1 << (earlier - 1));
    let spread = random % SPREAD / STEP * STEP;
    (FIRST + doubled + Duration::from_millis(spread)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute_with_a_spread_below_a_second() {
        for (earlier, least, most) in [
            (0, 5000, 5000),
            (1, 6000, 6900),
            (2, 7000, 7900),
            (3, 9000, 9900),
            (4, 13000, 13900),
            (5, 21000, 21900),
            (6, 32000, 32000),
            (7, 32000, 32000),
            (u32::MAX, 32000, 32000),
        ] {
            let delays = |random| delay(earlier, random).as_millis();
            assert_eq!(delays(0), least, "{earlier} failures");
            assert_eq!(delays(999), most, "{earlier} failures");
            assert_eq!(delays(u64::MAX) % 100, 0, "{earlier} failures");
            for random in 0..2000 {
                let delay = delays(random);
                assert!((least..=most).contains(&delay), "{earlier}: {delay}");
            }
        }
    }
}
