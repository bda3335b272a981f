//! PURE: stopping a workspace that nobody uses: how it is asked, and what its status remembers.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::core::object::HasStatus;
use serde_json::Value;

use crate::api::common::{ServerStatus, given};
use crate::api::workspace::WorkspaceSpec;
use crate::engine::idle::{Stop, WAKE_ANNOTATION, holds};
use crate::engine::reason::INVALID_SPEC;
use crate::engine::workload::{Blocked, Workload};

/// `spec.idleTimeout`, which Kubernetes spells as Go does: `1h30m`.
pub(super) fn timeout(spec: &WorkspaceSpec) -> Result<Option<SignedDuration>, Blocked> {
    let Some(text) = given(spec.idle_timeout.as_ref()) else { return Ok(None) };
    let parsed: Option<kube::core::Duration> = text.parse().ok();
    let positive = parsed.filter(|d| !d.is_negative()).map(std::time::Duration::from).filter(|d| !d.is_zero());
    match positive.and_then(|d| SignedDuration::try_from(d).ok()) {
        Some(timeout) => Ok(Some(timeout)),
        None => Err(Blocked::new(
            INVALID_SPEC,
            format!("spec.idleTimeout {text:?} is no duration above 0; write it like 2h or 1h30m"),
        )),
    }
}

/// The stop that the status has, if it still holds.
pub(super) fn stop<W: Workload + HasStatus<Status = ServerStatus>>(owner: &W) -> Option<Stop> {
    let status = owner.status()?;
    let stop = Stop { at: status.stopped_at.as_ref()?.0, generation: status.stopped_generation? };
    let wake = owner.annotations().get(WAKE_ANNOTATION).map(String::as_str);
    holds(stop, owner.meta().generation, wake).then_some(stop)
}

/// What `Ready` says of it.
pub(super) fn words<W: Workload>(owner: &W, stop: Stop) -> String {
    format!(
        "stopped at {at}, because nobody used it for spec.idleTimeout; to start it: kubectl annotate --overwrite \
         --namespace {namespace} {kind} {name} {WAKE_ANNOTATION}=$(date -u +%Y-%m-%dT%H:%M:%SZ)",
        at = stop.at,
        namespace = owner.namespace().unwrap_or_default(),
        kind = W::kind(&()).to_lowercase(),
        name = owner.name_any(),
    )
}

/// Keeps in the status what holds.
pub(super) fn remember<W: Workload + HasStatus<Status = ServerStatus>>(owner: &W, status: &mut ServerStatus) {
    if let (Some(_), Some(old)) = (stop(owner), owner.status()) {
        status.stopped_at.clone_from(&old.stopped_at);
        status.stopped_generation = old.stopped_generation;
        status.last_activity.clone_from(&old.last_activity);
    }
}

/// Enters a stop.
pub(super) fn enter(stop: Stop, used: Timestamp, status: &mut ServerStatus) {
    let whole = |at: Timestamp| Some(Time(Timestamp::from_second(at.as_second()).unwrap_or(at)));
    status.stopped_at = whole(stop.at);
    status.stopped_generation = Some(stop.generation);
    // The beginning of time stands for "never".
    status.last_activity = whole(used).filter(|at| at.0 > Timestamp::UNIX_EPOCH);
}

/// Jupyter: `/api/status` and `/api/kernels`. A kernel that works is use, however long it says nothing.
pub(super) fn of_jupyter(answers: &[Value], now: Timestamp) -> Option<Timestamp> {
    let [status, kernels] = answers else { return None };
    let works = |kernel: &Value| matches!(kernel["execution_state"].as_str(), Some("busy" | "starting"));
    if kernels.as_array()?.iter().any(works) {
        return Some(now);
    }
    status["last_activity"].as_str()?.parse().ok()
}

/// code-server: `/healthz`, with its heartbeat in milliseconds; 0 before the first user.
pub(super) fn of_code_server(answers: &[Value], now: Timestamp) -> Option<Timestamp> {
    let answer = answers.first()?;
    match answer["status"].as_str()? {
        "alive" => Some(now),
        "expired" => Timestamp::from_millisecond(answer["lastHeartbeat"].as_i64()?).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::MAX;

    #[test]
    fn a_kernel_that_works_is_use_and_half_an_answer_is_none() {
        let status = json!({ "last_activity": "2026-01-02T03:04:05.6Z", "kernels": 1 });
        let kernels = |state: &str| json!([{ "execution_state": "idle" }, { "execution_state": state }]);
        let at = "2026-01-02T03:04:05.6Z".parse().ok();
        assert_eq!(of_jupyter(&[status.clone(), kernels("idle")], NOW), at);
        assert_eq!(of_jupyter(&[status.clone(), kernels("busy")], NOW), Some(NOW));
        assert_eq!(of_jupyter(std::slice::from_ref(&status), NOW), None);
        assert_eq!(of_jupyter(&[json!({ "message": "Forbidden" }), kernels("idle")], NOW), None);
        assert_eq!(of_jupyter(&[status, json!({})], NOW), None);
    }

    #[test]
    fn a_heartbeat_is_use_and_none_yet_is_the_beginning_of_time() {
        let answer = |status: &str, beat: i64| [json!({ "status": status, "lastHeartbeat": beat })];
        assert_eq!(of_code_server(&answer("alive", 5), NOW), Some(NOW));
        assert_eq!(of_code_server(&answer("expired", 0), NOW), Some(Timestamp::UNIX_EPOCH));
        assert_eq!(of_code_server(&answer("expired", 90_000), NOW), Timestamp::from_second(90).ok());
        assert_eq!(of_code_server(&[json!({})], NOW), None);
    }

    #[test]
    fn a_timeout_is_spelled_as_kubernetes_spells_durations() {
        let of = |text: &str| timeout(&WorkspaceSpec { idle_timeout: Some(text.into()), ..WorkspaceSpec::default() });
        assert_eq!(of("1h30m"), Ok(Some(SignedDuration::from_mins(90))));
        assert_eq!(of(""), Ok(None));
        for bad in ["soon", "0s", "-1h", "2"] {
            assert!(of(bad).is_err_and(|b| b.message.contains("spec.idleTimeout")), "{bad}");
        }
    }
}
