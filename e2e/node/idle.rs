//! Workspaces that nobody uses, with the real programs to say so.

use aiscope_operator::api::{CodeServer, JupyterNotebook};
use aiscope_operator::engine::workload::Workload;
use k8s_openapi::api::apps::v1::Deployment;
use libtest_mimic::Trial;
use serde_json::json;
use testbed::Image;

use super::http::Visitor;
use super::kinds::{execute, minted};
use super::site;

use crate::kit::{Case, Error, Outcome, condition, holds, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_notebook_is_stopped_when_its_kernels_are_done_and_nobody_comes_and_wakes_again", notebook),
        trial("a_code_server_without_a_heartbeat_is_stopped", code_server),
    ]
}

async fn until_idle<W: Workload>(case: &Case, name: &str) -> Result<W, Error> {
    let idle = |w: &W| holds(w, "Ready", "True") && condition(w, "Ready").is_some_and(|c| c.reason == "Idle");
    let stopped = case.until(name, "stopped", idle).await?;
    case.until(name, "without pods", |d: &Deployment| d.spec.as_ref().is_some_and(|s| s.replicas == Some(0))).await?;
    Ok(stopped)
}

async fn notebook() -> Outcome {
    let site = site().await?;
    site.testbed.load_image(Image::Jupyter).await?;
    let case = site.case("idlelab").await?;
    let operator = case.operator();
    let url = site.http(&case, "/lab");
    let spec = json!({ "size": 1, "image": Image::Jupyter.reference(), "url": url, "idleTimeout": "8s" });
    case.apply::<JupyterNotebook>("lab", spec).await?;
    case.until_stands::<JupyterNotebook>("lab").await?;
    let token = minted(&case, "lab-token", "token").await?;
    let person = Visitor::new(&url, None)?.with("Authorization", format!("token {token}"));
    person.until_there("/api/status").await?;
    // A kernel that works says nothing for far longer than the timeout.
    assert_eq!(execute(&person, "import time\ntime.sleep(20)\n6 * 7").await?, "42");
    let asked = case.requests()?.into_iter().filter(|r| r.uri.contains("/proxy/lab/api/status")).collect::<Vec<_>>();
    assert!(!asked.is_empty() && asked.iter().all(|r| !r.uri.contains(&token)), "{asked:?}");
    let stopped: JupyterNotebook = until_idle(&case, "lab").await?;
    let status = stopped.status.clone().unwrap_or_default();
    assert!(status.last_activity.is_some() && status.last_activity < status.stopped_at, "{status:?}");
    assert_eq!(stopped.spec.workspace.size, Some(1), "the spec was edited");
    let wake = "aiscope.io/wake=2100-01-01T00:00:00Z";
    case.kubectl(&["annotate", "jupyternotebook", "lab", wake]).await?;
    person.until_there("/api/status").await?;
    operator.stop().await
}

async fn code_server() -> Outcome {
    let site = site().await?;
    site.testbed.load_image(Image::CodeServer).await?;
    let case = site.case("idlecode").await?;
    let operator = case.operator();
    let url = site.http(&case, "/code");
    let spec = json!({ "size": 1, "image": Image::CodeServer.reference(), "url": url, "idleTimeout": "3s" });
    case.apply::<CodeServer>("code", spec).await?;
    until_idle::<CodeServer>(&case, "code").await?;
    operator.stop().await
}
