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
    /// The certificate of the route ends soon; its reason says how soon.
    pub const CERTIFICATE_EXPIRING: &str = "CertificateExpiring";
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
    let blocking = headline(problems, |w| w < Weight::Degrades);
    let ready = blocking.is_none();
    let stalled = headline(problems, |w| w == Weight::Stalls);
    let degraded = headline(problems, |w| matches!(w, Weight::Stalls | Weight::Fails | Weight::Degrades));
    let settled = || match &live.settled {
        Some(words) => words.clone(),
        None if is_stopped(live) => (reason::SCALED_TO_ZERO, "stopped, as size 0 asks for".to_owned()),
        None => (reason::READY, format!("all {} children stand", live.items.len())),
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
        .extend(headline(problems, |w| w == Weight::Warns).map(|words| (condition::CERTIFICATE_EXPIRING, true, words)));
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn settled(old: &[Condition], generation: i64, problems: &[Problem], now: Timestamp) -> Vec<Condition> {
        conditions(old, generation, &ChildSet::default(), problems, now)
    }

    fn problem(weight: Weight) -> Problem {
        Problem { weight, reason: reason::REJECTED, message: "why".into() }
    }

    fn shown(conditions: &[Condition]) -> Vec<(&str, &str)> {
        conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str())).collect()
    }

    #[test]
    fn each_weight_shows_as_the_contract_says() {
        let rows = [
            (None, vec![("Ready", "True"), ("Degraded", "False")]),
            (Some(Weight::Waits), vec![("Ready", "False"), ("Degraded", "False"), ("Reconciling", "True")]),
            (Some(Weight::Fails), vec![("Ready", "False"), ("Degraded", "True"), ("Reconciling", "True")]),
            (Some(Weight::Stalls), vec![("Ready", "False"), ("Degraded", "True"), ("Stalled", "True")]),
            (Some(Weight::Degrades), vec![("Ready", "True"), ("Degraded", "True")]),
            (Some(Weight::Warns), vec![("Ready", "True"), ("Degraded", "False"), ("CertificateExpiring", "True")]),
        ];
        for (weight, wanted) in rows {
            let problems: Vec<_> = weight.into_iter().map(problem).collect();
            assert_eq!(shown(&settled(&[], 1, &problems, NOW)), wanted, "{weight:?}");
        }
    }

    #[test]
    fn stalled_and_reconciling_are_never_both_true() {
        let both = settled(&[], 1, &[problem(Weight::Waits), problem(Weight::Stalls)], NOW);
        assert_eq!(shown(&both), [("Ready", "False"), ("Degraded", "True"), ("Stalled", "True")]);
    }

    #[test]
    fn transition_time_moves_only_with_status_and_generation_is_refreshed_everywhere() {
        let later = Timestamp::from_second(90).unwrap();
        let first = settled(&[], 1, &[problem(Weight::Waits)], NOW);
        let second = settled(&first, 2, &[Problem { message: "another".into(), ..problem(Weight::Waits) }], later);
        assert!(second.iter().all(|c| c.observed_generation == Some(2) && c.last_transition_time.0 == NOW));
        let third = settled(&second, 2, &[], later);
        let moved = |type_: &str| third.iter().find(|c| c.type_ == type_).unwrap().last_transition_time.0;
        assert_eq!((moved("Ready"), moved("Degraded")), (later, NOW));
    }

    #[test]
    fn a_deployment_is_done_when_rollout_status_says_so() {
        let done = DeploymentFacts {
            generation: 2,
            observed_generation: 2,
            wanted: 1,
            replicas: 1,
            updated: 1,
            ready: 1,
            available: 1,
            ..Default::default()
        };
        assert_eq!(rollout(&done, None), None);
        for unfinished in [
            DeploymentFacts { observed_generation: 1, ..done.clone() },
            DeploymentFacts { updated: 0, ..done.clone() },
            DeploymentFacts { replicas: 2, ..done.clone() },
            DeploymentFacts { available: 0, unavailable: 1, ..done.clone() },
        ] {
            assert!(
                matches!(rollout(&unfinished, None), Some((Weight::Waits, reason::PROGRESSING, _))),
                "{unfinished:?}"
            );
        }
        let late = DeploymentFacts { available: 0, unavailable: 1, deadline_exceeded: Some("too late".into()), ..done };
        let told = rollout(&late, Some("pod p: ImagePullBackOff"));
        assert_eq!(
            told,
            Some((Weight::Stalls, reason::PROGRESS_DEADLINE_EXCEEDED, "too late: pod p: ImagePullBackOff".into()))
        );
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let cut = cut("é".repeat(MESSAGE_LIMIT));
        assert!(cut.len() <= MESSAGE_LIMIT + '…'.len_utf8() && cut.ends_with('…'));
    }
}
