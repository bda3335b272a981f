//! Nothing is requested when nothing differs, and Ready is never stale.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use libtest_mimic::Trial;
use serde_json::json;

use crate::kit::{Case, Outcome, certificate, condition, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("200_resources_idle_for_a_minute_and_through_a_restart_without_one_request", idle_and_restart),
        trial("kubectl_wait_never_passes_on_a_stale_ready", never_stale),
    ]
}

async fn idle_and_restart() -> Outcome {
    let case = Case::new("silence").await?;
    let operator = case.operator();
    let (cert, key) = certificate("silence.example.com");
    for index in 0..200 {
        let mut spec = minimal();
        spec["url"] = json!(format!("https://silence.example.com/{index}"));
        spec["resources"] = json!({ "requests": { "memory": "1024Mi", "cpu": "0.5" } });
        spec["aws_secret_key"] = json!("secret");
        spec["cert"] = json!(cert);
        spec["key"] = json!(key);
        if index < 20 {
            spec["volumeSize"] = json!("1024Mi");
            spec["storageClassName"] = json!("standard");
        }
        case.serve(&format!("s{index}"), spec).await?;
    }
    for index in 0..200 {
        case.until_ready(&format!("s{index}")).await?;
    }
    case.until_quiet(Duration::from_secs(2)).await?;
    let before = case.requests()?.len();
    assert!(before >= 200 * 7, "the audit log is incomplete: {before} requests");
    // The one thing here that only time can show: that nothing happens.
    tokio::time::sleep(Duration::from_mins(1)).await;
    let idle = case.requests()?;
    assert_eq!(idle.len(), before, "requests while idle: {:#?}", &idle[before..]);
    operator.stop().await?;
    let operator = case.operator();
    let mut spec = minimal();
    spec["url"] = json!("http://silence.example.org/mark");
    case.serve("mark", spec).await?;
    // The new one is served after the old ones have been looked at: they were in the first list.
    case.until_ready("mark").await?;
    case.until_quiet(Duration::from_secs(2)).await?;
    let after = case.requests()?;
    let others: Vec<_> =
        after[before..].iter().filter(|r| !r.name.starts_with("mark") && !r.uri.contains("/events")).collect();
    assert!(others.is_empty(), "requests after a restart: {others:#?}");
    operator.stop().await
}

async fn never_stale() -> Outcome {
    let case = Case::new("stale").await?;
    let operator = case.operator();
    let spec = |round: usize| {
        let mut spec = minimal();
        spec["env"] = json!([{ "name": "ROUND", "value": round.to_string() }]);
        spec
    };
    case.serve("a", spec(0)).await?;
    for round in 1..=100 {
        let generation = case.serve("a", spec(round)).await?.metadata.generation;
        case.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "trackingserver/a"]).await?;
        let server = case.all::<aiscope_operator::api::TrackingServer>().get("a").await?;
        let deployment = case.all::<Deployment>().get("a").await?;
        let text = serde_json::to_string(&deployment.spec)?;
        assert!(
            text.contains(&format!(r#""name":"ROUND","value":"{round}""#)),
            "round {round}: Ready before the child was written"
        );
        assert_eq!(condition(&server, "Ready").and_then(|c| c.observed_generation), generation);
        let status = deployment.status.unwrap_or_default();
        assert_eq!(
            (status.observed_generation, status.updated_replicas),
            (deployment.metadata.generation, Some(1)),
            "round {round}"
        );
    }
    operator.stop().await
}
