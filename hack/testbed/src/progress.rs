//! One line on standard error for every step that takes a while, so that nobody wonders what a long step is doing.

use std::time::{Duration, Instant};

/// A step under way; says when it ends, and every few seconds that it still runs.
pub(crate) struct Step {
    what: String,
    begun: Instant,
}

/// How often a step that runs long says so.
const HEARTBEAT: Duration = Duration::from_secs(5);

impl Step {
    /// Announces a step.
    pub(crate) fn begin(what: impl Into<String>) -> Self {
        let step = Self { what: what.into(), begun: Instant::now() };
        say(&format!("{} ...", step.what));
        step
    }

    /// Says that the step is done, when it took long enough to wonder.
    pub(crate) fn done(self) {
        if self.begun.elapsed() >= Duration::from_secs(1) {
            say(&format!("{} done ({})", self.what, elapsed(self.begun.elapsed())));
        }
    }

    /// Waits for `work` and reports on it in the meantime.
    pub(crate) async fn watch<T>(self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut heartbeat = tokio::time::interval_at(tokio::time::Instant::now() + HEARTBEAT, HEARTBEAT);
        loop {
            tokio::select! {
                result = &mut work => {
                    self.done();
                    return result;
                }
                _ = heartbeat.tick() => say(&format!("{} ... {}", self.what, elapsed(self.begun.elapsed()))),
            }
        }
    }
}

/// One line on standard error.
pub(crate) fn say(line: &str) {
    eprintln!("testbed: {line}");
}

/// `75 s` reads as `1m15s`.
fn elapsed(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds >= 60 {
        format!("{}m{:02}s", seconds / 60, seconds % 60)
    } else {
        format!("{:.1}s", duration.as_secs_f32())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_times_are_in_minutes() {
        assert_eq!(elapsed(Duration::from_secs(75)), "1m15s");
        assert_eq!(elapsed(Duration::from_millis(2340)), "2.3s");
    }
}
