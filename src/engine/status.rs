//! PURE: from the live children and the problems to conditions, by the contract of kstatus.
//!
//! Order and meaning: <https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>. `Ready` and
//! `Degraded` are always there; `Stalled` and `Reconciling` only while True, and never both (kstatus takes the first).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use super::child::{ChildSet, Live};
use super::reason;
use super::summary::{Acceptance, DeploymentFacts, Facts};
use super::workload::{Problem, Weight};

/// Condition types.
pub mod condition {
    /// Every wanted child stands at its current generation and is healthy.
    pub const READY: &str = "Ready";
    /// Something is wrong that will not go away by waiting.
    pub const DEGRADED: &str = "Degraded";
    /// Only a person can help.
    pub const STALLED: &str = "Stalled";
    /// Converging.
    pub const RECONCILING: &str = "Reconciling";
}

/// A condition message is for a person to read; the API allows 32 KiB.
const MESSAGE_LIMIT: usize = 1024;

/// Judges the live children: what they still wait for. `volume_words` gives what events say of a claim by uid.
pub fn judge<'a>(
    live: &ChildSet<Live>,
    pod_words: Option<&str>,
    volume_words: impl Fn(&str) -> Option<&'a str>,
) -> Vec<Problem> {
    let stopped = is_stopped(live);
    let mut problems = Vec::new();
    let mut add = |weight, reason, message| problems.push(Problem { weight, reason, message });
    for child in &live.items {
        let what = format!("{} {}", child.ar.kind, child.name);
        let Some(summary) = &child.summary else {
            add(Weight::Waits, reason::PROGRESSING, format!("{what} does not stand yet"));
            continue;
        };
        match &summary.facts {
            Facts::Deployment(facts) => {
                if let Some((weight, reason, message)) = rollout(facts, pod_words) {
                    add(weight, reason, format!("{what}: {message}"));
                }
            }
            // A class that binds on first use waits for a pod: none is wanted.
            Facts::Volume(facts) if &*facts.phase != "Bound" && !stopped => {
                let words = volume_words(&summary.uid).unwrap_or("no event says why yet");
                let phase = if facts.phase.is_empty() { "Pending" } else { &facts.phase };
                add(Weight::Waits, reason::VOLUME_PENDING, format!("{what} is {phase}: {words}"));
            }
            Facts::Route(facts) => match &facts.acceptance {
                Acceptance::Accepted => {}
                Acceptance::Awaited => {
                    let message = format!("{what} is not accepted by its Gateway yet; see that the Gateway exists");
                    add(Weight::Waits, reason::ROUTE_NOT_ACCEPTED, message);
                }
                Acceptance::Refused(words) => {
                    let message = format!("{what} is refused by its Gateway: {words}");
                    add(Weight::Fails, reason::ROUTE_NOT_ACCEPTED, message);
                }
            },
            _ => {}
        }
    }
    problems
}

/// Every Deployment is wanted at 0 replicas, and there is one.
fn is_stopped(live: &ChildSet<Live>) -> bool {
    let mut wanted = live.items.iter().filter_map(|c| match c.summary.as_ref().map(|s| &s.facts) {
        Some(Facts::Deployment(facts)) => Some(facts.wanted),
        _ => None,
    });
    wanted.next().is_some_and(|first| first == 0 && wanted.all(|n| n == 0))
}

/// What a Deployment still waits for, as `kubectl rollout status` judges it.
fn rollout(d: &DeploymentFacts, pod_words: Option<&str>) -> Option<(Weight, &'static str, String)> {
    let words = pod_words.or(d.replica_failure.as_deref()).map(|w| format!(": {w}")).unwrap_or_default();
    if d.observed_generation < d.generation {
        return Some((Weight::Waits, reason::PROGRESSING, "the new spec is not observed yet".into()));
    }
    let done = d.updated == d.wanted && d.replicas == d.wanted && d.available == d.wanted && d.unavailable == 0;
    if done || (d.wanted == 0 && d.replicas == 0) {
        return None;
    }
    if let Some(message) = &d.deadline_exceeded {
        return Some((Weight::Stalls, reason::PROGRESS_DEADLINE_EXCEEDED, format!("{message}{words}")));
    }
    let counts = format!("{} of {} updated, {} available", d.updated, d.wanted, d.available);
    Some((Weight::Waits, reason::PROGRESSING, format!("{counts}{words}")))
}

/// The conditions for `generation`. `lastTransitionTime` moves only when `status` does; `observedGeneration` is
/// refreshed in every condition, because `kubectl wait` reads it there first.
#[must_use]
pub fn conditions(
    old: &[Condition],
    generation: i64,
    live: &ChildSet<Live>,
    problems: &[Problem],
    now: Timestamp,
) -> Vec<Condition> {
    let ready = problems.iter().all(|p| p.weight == Weight::Degrades);
    let stalled = headline(problems, |w| w == Weight::Stalls);
    let degraded = headline(problems, |w| w != Weight::Waits);
    let blocking = headline(problems, |w| w != Weight::Degrades);
    let settled = || match is_stopped(live) {
        true => (reason::SCALED_TO_ZERO, "stopped, as size 0 asks for".to_owned()),
        false => (reason::READY, format!("all {} children stand", live.items.len())),
    };
    let expected = || (reason::AS_EXPECTED, "nothing is wrong".to_owned());
    let mut wanted = vec![
        (condition::READY, ready, blocking.clone().unwrap_or_else(settled)),
        (condition::DEGRADED, degraded.is_some(), degraded.unwrap_or_else(expected)),
    ];
    match (stalled, blocking) {
        (Some(words), _) => wanted.push((condition::STALLED, true, words)),
        (None, Some(words)) => wanted.push((condition::RECONCILING, true, words)),
        (None, None) => {}
    }
    wanted
        .into_iter()
        .map(|(type_, is, (reason, message))| {
            let status = if is { "True" } else { "False" };
            let before = old.iter().find(|c| c.type_ == type_ && c.status == status);
            Condition {
                type_: type_.into(),
                status: status.into(),
                reason: reason.into(),
                message: cut(message),
                observed_generation: Some(generation),
                last_transition_time: before.map_or_else(|| whole_second(now), |c| c.last_transition_time.clone()),
            }
        })
        .collect()
}

/// The heaviest of the matching problems gives the reason; all of that weight speak.
fn headline(problems: &[Problem], of: impl Fn(Weight) -> bool) -> Option<(&'static str, String)> {
    let mut matching: Vec<_> = problems.iter().filter(|p| of(p.weight)).collect();
    matching.sort_by_key(|p| p.weight);
    let first = matching.first()?;
    let messages: Vec<_> = matching.iter().filter(|p| p.weight == first.weight).map(|p| p.message.as_str()).collect();
    Some((first.reason, messages.join("; ")))
}

/// The API server keeps whole seconds; anything finer would differ for ever.
fn whole_second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_LIMIT {
        let end = (0..=MESSAGE_LIMIT).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
        message.truncate(end);
        message.push('…');
    }
    message
}
