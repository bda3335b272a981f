//! A node that only says it runs pods: kwok answers for its kubelet.

use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::Patch;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Mutex;

use crate::bring_up::apply;
use crate::control_plane::program;
use crate::error::Error;
use crate::keeper::{Keeper, Program};
use crate::plan::Plan;

/// Starts kwok and makes its node.
pub(crate) async fn start(plan: &Plan, keeper: &Mutex<Keeper>, client: &Client) -> Result<(), Error> {
    keeper.lock().await.start(kwok(plan))?;
    let name = plan.node_name();
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
        "status": {
            "allocatable": {"cpu": "1000", "memory": "4Ti", "pods": "20000"},
            "capacity": {"cpu": "1000", "memory": "4Ti", "pods": "20000"},
        },
    });
    Api::<KubeNode>::all(client.clone()).patch(&name, &apply(), &Patch::Apply(node)).await?;
    Ok(())
}

fn kwok(plan: &Plan) -> Program {
    let mut flags = vec![
        format!("--kubeconfig={}", plan.pki("kwok.kubeconfig")),
        "--manage-all-nodes=false".to_owned(),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
        format!("--cidr={}", plan.pod_range()),
        "--node-lease-duration-seconds=40".to_owned(),
        // No HTTP server: it would take a port.
        "--server-address=".to_owned(),
    ];
    flags.extend(plan.stages.iter().map(|stage| format!("--config={}", stage.display())));
    program(plan, "kwok", flags)
}
