//! The order in which a testbed comes up.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node as KubeNode, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::{Error, log_tail};
use crate::keeper::Keeper;
use crate::plan::Plan;
use crate::supervisor::progress;
use crate::{Node, control_plane, node, simulated, volumes};

/// How long a node may take to be Ready.
const NODE_READY: Duration = Duration::from_mins(2);

/// Brings everything up; whatever was started is the keeper's when this fails.
pub(crate) async fn all(plan: &Plan, keeper: &Mutex<Keeper>) -> Result<(), Error> {
    let begun = Instant::now();
    let after = |what: &str| progress(format!("{what} ({:.1}s)", begun.elapsed().as_secs_f32()));
    control_plane::directories(plan)?;
    volumes::open_as_they_appear(plan.dir().join("volumes"))?;
    if plan.node == Node::Real {
        node::namespaces(plan, keeper).await?;
    }
    let client = control_plane::start(plan, keeper).await?;
    after("the API server is ready");
    storage_class(&client).await?;
    match plan.node {
        Node::None | Node::Auto => {}
        Node::Simulated => simulated::start(plan, keeper, &client).await?,
        Node::Real => node::start(plan, keeper).await?,
    }
    if plan.node != Node::None {
        node_ready(plan, keeper, &client).await?;
        after("the node is Ready");
    }
    service_account(plan, keeper, &client).await
}

async fn storage_class(client: &Client) -> Result<(), Error> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "standard",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/host-path",
        "allowVolumeExpansion": true,
    });
    Api::<StorageClass>::all(client.clone()).patch("standard", &apply(), &Patch::Apply(class)).await?;
    Ok(())
}

pub(crate) fn apply() -> PatchParams {
    PatchParams::apply("testbed").force()
}

async fn node_ready(plan: &Plan, keeper: &Mutex<Keeper>, client: &Client) -> Result<(), Error> {
    let nodes: Api<KubeNode> = Api::all(client.clone());
    let ready = async || {
        let node = nodes.get_opt(&plan.node_name()).await.ok().flatten()?;
        let conditions = node.status?.conditions?;
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True").then_some(())
    };
    poll(plan, keeper, if plan.node == Node::Real { "kubelet" } else { "kwok" }, "node", ready).await
}

/// A Pod made before its namespace's account exists is refused; the first test should not run into that.
async fn service_account(plan: &Plan, keeper: &Mutex<Keeper>, client: &Client) -> Result<(), Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let there = async || accounts.get_opt("default").await.ok().flatten().map(drop);
    poll(plan, keeper, "kube-controller-manager", "default service account", there).await
}

/// Asks again and again until there is an answer.
async fn poll<F>(plan: &Plan, keeper: &Mutex<Keeper>, program: &str, what: &str, ask: F) -> Result<(), Error>
where
    F: AsyncFn() -> Option<()>,
{
    let deadline = Instant::now() + NODE_READY;
    let mut interval = tokio::time::interval(Duration::from_millis(100));
    while ask().await.is_none() {
        keeper.lock().await.check()?;
        if Instant::now() >= deadline {
            let log = plan.log(program);
            return Err(Error::Program {
                program: program.to_owned(),
                what: format!("did not bring the {what} about within {} s", NODE_READY.as_secs()),
                output: log_tail(&log),
                log,
            });
        }
        interval.tick().await;
    }
    Ok(())
}
