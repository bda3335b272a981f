//! Stopping a workspace that nobody uses. What the program itself answers is asked on the real node.

use aiscope_operator::api::CodeServer;
use aiscope_operator::engine::child::MANAGER;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::kit::{Case, Error, Outcome, condition, holds, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_stop_holds_through_a_restart_and_ends_with_a_wake_or_a_change", stop_and_wake),
        trial("an_idle_timeout_that_is_no_duration_is_told", no_duration),
    ]
}

fn spec(timeout: &str) -> Value {
    json!({ "image": "code-server:4", "url": "http://desk.example.com/ann", "idleTimeout": timeout })
}

/// Enters a stop as the operator does when the program says that nobody uses it.
async fn stop(case: &Case) -> Outcome {
    let server = case.all::<CodeServer>().get("desk").await?;
    let mut status = serde_json::to_value(&server.status)?;
    status["stoppedAt"] = json!("2026-01-01T00:00:00Z");
    status["stoppedGeneration"] = json!(server.metadata.generation);
    let body = json!({ "apiVersion": "experiment.aiscope/v1alpha2", "kind": "CodeServer", "status": status });
    case.all::<CodeServer>().patch_status("desk", &PatchParams::apply(MANAGER).force(), &Patch::Apply(body)).await?;
    Ok(())
}

async fn until_idle(case: &Case) -> Result<CodeServer, Error> {
    case.until("desk", "stopped", |s: &CodeServer| {
        holds(s, "Ready", "True") && condition(s, "Ready").is_some_and(|c| c.reason == "Idle")
    })
    .await
}

async fn until_running(case: &Case) -> Outcome {
    let running = |s: &CodeServer| {
        let status = s.status.clone().unwrap_or_default();
        condition(s, "Ready").is_some_and(|c| c.reason == "Ready")
            && status.ready_replicas == Some(1)
            && status.stopped_at.is_none()
    };
    case.until("desk", "running", running).await.map(drop)
}

async fn stop_and_wake() -> Outcome {
    let case = Case::new("idlestop").await?;
    let operator = case.operator();
    case.apply::<CodeServer>("desk", spec("2h")).await?;
    until_running(&case).await?;
    stop(&case).await?;
    let idle = until_idle(&case).await?;
    case.until("desk", "without pods", |d: &Deployment| d.spec.as_ref().is_some_and(|s| s.replicas == Some(0))).await?;
    assert_eq!(idle.spec.workspace.size, None, "the spec was edited");
    operator.stop().await?;
    let operator = case.operator();
    case.until_quiet(std::time::Duration::from_secs(1)).await?;
    until_idle(&case).await?;
    // The message says the exact command.
    let message = condition(&idle, "Ready").map(|c| c.message.clone()).unwrap_or_default();
    let (_, command) = message.split_once("kubectl ").ok_or("the message has no command")?;
    let command = format!("\"$KUBECTL\" {command}");
    let shell = tokio::process::Command::new("sh")
        .args(["-ec", &command])
        .env("KUBECTL", case.testbed.tool("kubectl"))
        .env("KUBECONFIG", case.testbed.kubeconfig())
        .output()
        .await?;
    assert!(shell.status.success(), "{command}: {shell:?}");
    until_running(&case).await?;
    stop(&case).await?;
    // That stop is from before the wake: it does not hold.
    until_running(&case).await?;
    case.kubectl(&["annotate", "codeserver", "desk", "aiscope.io/wake-"]).await?;
    stop(&case).await?;
    until_idle(&case).await?;
    case.apply::<CodeServer>("desk", spec("3h")).await?;
    until_running(&case).await?;
    operator.stop().await
}

async fn no_duration() -> Outcome {
    let case = Case::new("idletimeout").await?;
    let operator = case.operator();
    case.apply::<CodeServer>("desk", spec("soon")).await?;
    let told = case.until_told::<CodeServer>("desk", "Stalled", "InvalidSpec").await?;
    assert!(condition(&told, "Stalled").is_some_and(|c| c.message.contains("spec.idleTimeout")), "{told:?}");
    operator.stop().await
}
