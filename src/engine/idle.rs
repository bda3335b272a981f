//! PURE: when a workload that nobody uses is stopped, and when it runs again.
//!
//! The stop lives in the status; the spec is never edited (GitOps would fight it). It ends with any change of the spec, or
//! with an annotation that is newer. To know is to ask the workload itself, and the earliest moment at which an answer can
//! matter is known beforehand: so it is asked once in each `timeout`, not polled. Unknown is never idle.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// An RFC 3339 time: a stop from before it is over.
pub const WAKE_ANNOTATION: &str = "aiscope.io/wake";

/// How to find out whether a workload is used.
#[derive(Clone, Debug)]
pub struct Idle {
    /// How long it may go unused.
    pub timeout: SignedDuration,
    /// The Service that leads to it, in its namespace.
    pub service: String,
    /// Name of the Service's port.
    pub port: &'static str,
    /// What to ask for, in this order; each answers with JSON.
    pub paths: Vec<String>,
    /// The token that lets the question in: name of a Secret, and its key.
    pub token: Option<(String, &'static str)>,
    /// Reads the answers: when it was last used; `None` when they do not say.
    pub read: fn(&[Value], Timestamp) -> Option<Timestamp>,
}

/// A stop, as the status has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// When it was decided.
    pub at: Timestamp,
    /// The generation of the spec that it was decided for.
    pub generation: i64,
}

/// Whether a stop still holds. `wake` is the annotation's value; one that is no time wakes nothing.
#[must_use]
pub fn holds(stop: Stop, generation: Option<i64>, wake: Option<&str>) -> bool {
    let woken = wake.and_then(|text| text.parse::<Timestamp>().ok());
    generation == Some(stop.generation) && woken.is_none_or(|at| at <= stop.at)
}

/// What to do about a workload that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It cannot be idle before then.
    Later(Timestamp),
    /// It may be idle: ask.
    Ask,
}

/// `since` is when it last became ready, `used` when it was last known to be used.
#[must_use]
pub fn next(timeout: SignedDuration, since: Timestamp, used: Option<Timestamp>, now: Timestamp) -> Next {
    let due = since.max(used.unwrap_or(since)).checked_add(timeout).unwrap_or(Timestamp::MAX);
    if due > now { Next::Later(due) } else { Next::Ask }
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody has used it for as long as is allowed.
    Stop,
    /// It was used then.
    Used(Timestamp),
    /// Ask again then. Spread by `chance` (0 to 1), so that a thousand are not asked at once.
    Unknown(Timestamp),
}

/// Judges the answer to a question that was due.
#[must_use]
pub fn judge(timeout: SignedDuration, used: Option<Timestamp>, now: Timestamp, chance: f64) -> Verdict {
    let Some(used) = used else {
        let wait = (timeout / 10).clamp(SignedDuration::from_secs(5), SignedDuration::from_mins(5));
        let spread = SignedDuration::from_secs_f64(wait.as_secs_f64() * (1.0 + chance.clamp(0.0, 1.0)));
        return Verdict::Unknown(now.checked_add(spread).unwrap_or(Timestamp::MAX));
    };
    match used.checked_add(timeout) {
        Ok(end) if end <= now => Verdict::Stop,
        _ => Verdict::Used(used),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    #[test]
    fn a_stop_ends_with_a_new_spec_or_a_newer_wake_and_with_nothing_else() {
        let stop = Stop { at: at(0), generation: 3 };
        for (generation, wake, held) in [
            (Some(3), None, true),
            (Some(4), None, false),
            (Some(3), Some("1970-01-01T00:00:01Z"), false),
            (Some(3), Some("1970-01-01T00:00:00Z"), true),
            (Some(3), Some("1969-12-31T23:00:00Z"), true),
            (Some(3), Some("now"), true),
        ] {
            assert_eq!(holds(stop, generation, wake), held, "{generation:?} {wake:?}");
        }
    }

    #[test]
    fn it_is_asked_only_when_the_answer_can_matter() {
        assert_eq!(next(HOUR, at(0), None, at(3599)), Next::Later(at(3600)));
        assert_eq!(next(HOUR, at(0), None, at(3600)), Next::Ask);
        assert_eq!(next(HOUR, at(0), Some(at(1000)), at(3600)), Next::Later(at(4600)));
        // Used before it last became ready: it has its whole time again.
        assert_eq!(next(HOUR, at(9000), Some(at(1000)), at(9001)), Next::Later(at(12600)));
    }

    #[test]
    fn unknown_is_never_idle() {
        assert_eq!(judge(HOUR, None, at(9_999_999), 0.0), Verdict::Unknown(at(9_999_999 + 300)));
        assert_eq!(judge(HOUR, None, at(0), 1.0), Verdict::Unknown(at(600)));
        assert_eq!(judge(HOUR, Some(at(0)), at(3600), 0.0), Verdict::Stop);
        assert_eq!(judge(HOUR, Some(at(1)), at(3600), 0.0), Verdict::Used(at(1)));
    }
}
