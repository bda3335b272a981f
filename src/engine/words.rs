//! PURE: a pod's own words on why it does not run.

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

/// Why a pod does not run, or `None` if it does or is on its way without complaint.
#[must_use]
pub fn of_pod(pod: &DynamicObject) -> Option<String> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = &pod.data["status"];
    let containers = ["initContainerStatuses", "containerStatuses"].into_iter();
    let containers = containers.flat_map(|field| status[field].as_array().into_iter().flatten());
    let mut words: Vec<String> = containers.filter_map(of_container).collect();
    words.extend(unscheduled(status));
    (!words.is_empty()).then(|| format!("pod {}: {}", pod.name_any(), words.join("; ")))
}

fn of_container(container: &Value) -> Option<String> {
    let name = container["name"].as_str().unwrap_or_default();
    let waiting = &container["state"]["waiting"];
    let ended = [&container["state"]["terminated"], &container["lastState"]["terminated"]];
    let ended = ended.into_iter().find(|t| t.is_object()).map(|t| {
        let code = t["exitCode"].as_i64().unwrap_or_default();
        let reason = t["reason"].as_str().unwrap_or("Error");
        let message = t["message"].as_str().unwrap_or_default().trim();
        let colon = if message.is_empty() { "" } else { ": " };
        format!("last exit {code} ({reason}){colon}{message}")
    });
    match waiting["reason"].as_str() {
        // The ordinary steps of a start are no complaint.
        None | Some("ContainerCreating" | "PodInitializing") => {
            (container["ready"] != true).then_some(ended).flatten().map(|e| format!("container {name}: {e}"))
        }
        Some(reason) => {
            let message = waiting["message"].as_str().map(|m| format!(": {m}")).unwrap_or_default();
            let ended = ended.map(|e| format!(", {e}")).unwrap_or_default();
            Some(format!("container {name}: {reason}{message}{ended}"))
        }
    }
}

fn unscheduled(status: &Value) -> Option<String> {
    let conditions = status["conditions"].as_array()?;
    let condition = conditions.iter().find(|c| c["type"] == "PodScheduled" && c["status"] == "False")?;
    Some(format!(
        "{}: {}",
        condition["reason"].as_str().unwrap_or("Unschedulable"),
        condition["message"].as_str().unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(status: &Value) -> DynamicObject {
        serde_json::from_value(
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "status": status }),
        )
        .unwrap()
    }

    #[test]
    fn a_pod_that_crashes_says_how_it_ended() {
        let status = json!({ "containerStatuses": [{
            "name": "c", "ready": false, "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off" } },
            "lastState": { "terminated": { "exitCode": 1, "reason": "Error", "message": "no such file\n" } },
        }] });
        let words = "pod p: container c: CrashLoopBackOff: back-off, last exit 1 (Error): no such file";
        assert_eq!(of_pod(&pod(&status)).as_deref(), Some(words));
    }

    #[test]
    fn an_ordinary_start_is_no_complaint() {
        let status = json!({ "containerStatuses": [
            { "name": "c", "ready": false, "state": { "waiting": { "reason": "ContainerCreating" } } },
        ] });
        assert_eq!(of_pod(&pod(&status)), None);
        assert_eq!(
            of_pod(&pod(&json!({ "containerStatuses": [{ "ready": true, "state": { "running": {} } }] }))),
            None
        );
    }

    #[test]
    fn a_pod_without_a_place_says_why() {
        let status = json!({ "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes" },
        ] });
        assert_eq!(of_pod(&pod(&status)).as_deref(), Some("pod p: Unschedulable: 0/1 nodes"));
    }
}
