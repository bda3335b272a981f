//! A hub and its members: real API servers each.

use std::sync::Arc;
use std::time::Duration;

use aiscope_operator::api::{Cluster, EasyService};
use aiscope_operator::fleet::run::{Options, run};
use aiscope_operator::kinds::Platform;
use aiscope_operator::ops::metrics::Metrics;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use testbed::{Node, Testbed};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::kit::{DEADLINE, Error, Outcome, bare, gitops, install_crds, trial, until};

pub fn trials() -> Vec<Trial> {
    vec![trial("members_of_a_fleet_are_kept_refused_swapped_and_left", members)]
}

struct Fleet {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

fn start(hub: &Testbed) -> Result<Fleet, Error> {
    let stop = CancellationToken::new();
    let options = Options {
        metrics: Metrics::default(),
        namespace: "default".into(),
        platform: Arc::new(Platform::default()),
        concurrency: 4,
        install: true,
        allow_proxies: false,
        period: Duration::from_secs(1),
    };
    Ok(Fleet { task: tokio::spawn(run(hub.client("fleet")?, options, stop.clone())), stop })
}

async fn give(client: &Client, secret: &str, kubeconfig: &str) -> Outcome {
    let body = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": secret },
        "data": { "kubeconfig": ByteString(kubeconfig.as_bytes().to_vec()) },
    });
    Api::<Secret>::namespaced(client.clone(), "default")
        .patch(secret, &PatchParams::apply("tester").force(), &Patch::Apply(&body))
        .await?;
    Ok(())
}

async fn apply(client: &Client, name: &str, more: Value) -> Outcome {
    let mut spec = json!({ "connection": { "secretRef": { "name": name, "key": "kubeconfig" } } });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let body = json!({ "apiVersion": "cluster.aiscope/v1alpha1", "kind": "Cluster", "metadata": { "name": name }, "spec": spec });
    Api::<Cluster>::all(client.clone()).patch(name, &gitops(), &Patch::Apply(&body)).await?;
    Ok(())
}

/// Waits until a condition of a member has this status and reason at its current generation.
async fn told(client: &Client, name: &str, type_: &str, status: &str, reason: &str) -> Result<Cluster, Error> {
    let is = |cluster: Option<&Cluster>| {
        cluster.is_some_and(|cluster| {
            cluster.status.iter().flat_map(|s| &s.conditions).any(|c| {
                c.type_ == type_
                    && c.status == status
                    && c.reason == reason
                    && c.observed_generation == cluster.metadata.generation
            })
        })
    };
    let what = format!("{type_}={status} {reason}");
    until(Api::all(client.clone()), name, &what, is).await?.ok_or("gone".into())
}

async fn members() -> Outcome {
    let (hub, one, two) = tokio::try_join!(bare(Node::None), bare(Node::None), bare(Node::None))?;
    install_crds(&hub).await?;
    let client = hub.client("tester")?;
    let fleet = start(&hub)?;
    let (first, second) = (std::fs::read_to_string(one.kubeconfig())?, std::fs::read_to_string(two.kubeconfig())?);

    // A Secret that comes later; the CRDs are installed by the operator.
    apply(&client, "one", json!({})).await?;
    told(&client, "one", "Ready", "False", "SecretMissing").await?;
    give(&client, "one", &first).await?;
    let cluster = told(&client, "one", "Ready", "True", "Ready").await?;
    assert_eq!(cluster.finalizers(), ["cluster.aiscope/stop"]);
    assert!(cluster.status.unwrap().version.is_some_and(|v| v.starts_with("v1.")));

    // The controllers run there.
    let there = one.client("tester")?;
    let service = json!({ "apiVersion": "app.kubebuilder.io/v1", "kind": "EasyService", "metadata": { "name": "web" }, "spec": { "size": 1, "image": "x" } });
    let services: Api<EasyService> = Api::namespaced(there.clone(), "default");
    services.patch("web", &gitops(), &Patch::Apply(&service)).await?;
    let deployments: Api<Deployment> = Api::namespaced(there.clone(), "default");
    until(deployments.clone(), "web", "there", |d| d.is_some()).await?;
    let counted = |c: Option<&Cluster>| c.and_then(|c| c.status.as_ref()).is_some_and(|s| s.resources == Some(1));
    until(Api::<Cluster>::all(client.clone()), "one", "counted", counted).await?;

    // Another name for the same cluster, and for the hub itself.
    give(&client, "again", &first).await?;
    apply(&client, "again", json!({})).await?;
    told(&client, "again", "Stalled", "True", "DuplicateMember").await?;
    give(&client, "self", &std::fs::read_to_string(hub.kubeconfig())?).await?;
    apply(&client, "self", json!({})).await?;
    told(&client, "self", "Stalled", "True", "DuplicateMember").await?;

    // A bad new kubeconfig leaves the old controllers running, and nothing of it is told.
    give(&client, "one", &first.replace("client-key-data:", "tokenFile: /s3cr3t\n    client-key-data:")).await?;
    let cluster = told(&client, "one", "Stalled", "True", "KubeconfigTokenFile").await?;
    assert!(!serde_json::to_string(&cluster.status)?.contains("s3cr3t"));
    told(&client, "one", "ControllersRunning", "True", "Progressing").await?;
    deployments.delete("web", &DeleteParams::default()).await?;
    until(deployments.clone(), "web", "there again", |d| d.is_some_and(|d| d.metadata.deletion_timestamp.is_none()))
        .await?;

    // A good one takes over.
    give(&client, "one", &first).await?;
    told(&client, "one", "Ready", "True", "Ready").await?;

    // A second member that breaks does not touch the first.
    give(&client, "two", &second).await?;
    apply(&client, "two", json!({ "kinds": ["EasyService"] })).await?;
    told(&client, "two", "Ready", "True", "Ready").await?;
    two.stop().await?;
    told(&client, "two", "Reachable", "False", "Unreachable").await?;
    told(&client, "one", "Ready", "True", "Ready").await?;

    // Its deletion is not held up.
    let clusters: Api<Cluster> = Api::all(client.clone());
    clusters.delete("two", &DeleteParams::default()).await?;
    until(clusters.clone(), "two", "gone", |c| c.is_none()).await?;

    // The operator ends: no finalizer is left; it starts: all is as before.
    fleet.stop.cancel();
    tokio::time::timeout(DEADLINE, fleet.task).await??;
    assert!(clusters.get("one").await?.finalizers().is_empty());
    let fleet = start(&hub)?;
    until(clusters.clone(), "one", "running again", |c| c.is_some_and(|c| !c.finalizers().is_empty())).await?;

    // Paused, and deleted together with the workloads: not one request afterwards.
    apply(&client, "one", json!({ "deletionPolicy": "Delete" })).await?;
    told(&client, "one", "Ready", "True", "Ready").await?;
    clusters.delete("again", &DeleteParams::default()).await?;
    until(clusters.clone(), "again", "gone", |c| c.is_none()).await?;
    clusters.delete("one", &DeleteParams::default()).await?;
    until(clusters.clone(), "one", "gone", |c| c.is_none()).await?;
    assert!(services.get_opt("web").await?.is_none(), "the workload is deleted with its Cluster");
    // Every request that came before this one is in the log when this one is.
    let log = |agent: &str| one.requests(agent);
    one.client("after")?.apiserver_version().await?;
    while log("after")?.is_empty() {
        tokio::task::yield_now().await;
    }
    let requests = log("aiscope-operator")?.len();
    tokio::time::sleep(Duration::from_secs(3)).await; // Three periods in which a member that is left over would ask.
    assert_eq!(log("aiscope-operator")?.len(), requests);
    fleet.stop.cancel();
    tokio::time::timeout(DEADLINE, fleet.task).await??;
    Ok(())
}
