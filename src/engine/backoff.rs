//! PURE: how long to wait before the next try.

use std::time::Duration;

/// The wait after `failures` failures in a row: doubling from `first` up to `cap`, of which the last half is spread by
/// `chance` (0 to 1) so that a thousand resources that failed together do not come back together.
#[must_use]
pub fn delay(first: Duration, cap: Duration, failures: u32, chance: f64) -> Duration {
    let whole = first.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1).min(30))).min(cap);
    whole.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_the_cap_and_keeps_at_least_half() {
        let at = |failures, chance| delay(Duration::from_secs(1), Duration::from_mins(1), failures, chance).as_millis();
        assert_eq!(
            [at(1, 1.0), at(2, 1.0), at(3, 1.0), at(7, 1.0), at(4_000_000_000, 1.0)],
            [1000, 2000, 4000, 60_000, 60_000]
        );
        assert_eq!([at(1, 0.0), at(3, 0.0)], [500, 2000]);
    }
}
