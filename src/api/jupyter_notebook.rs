//! PURE: `JupyterNotebook`, a JupyterLab server.
#![allow(clippy::duplicated_attributes, reason = "printer columns share their type")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::common::ServerStatus;
use super::workspace::WorkspaceSpec;

/// What is wanted of a JupyterLab server.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "experiment.aiscope",
    version = "v1alpha2",
    kind = "JupyterNotebook",
    plural = "jupyternotebooks",
    singular = "jupyternotebook",
    shortname = "jn",
    category = "aiscope",
    namespaced,
    status = "ServerStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "JupyterLab: its volume, certificate, token, Deployment, Service and route.",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct JupyterNotebookSpec {
    /// What it has in common with other kinds.
    #[serde(flatten)]
    pub workspace: WorkspaceSpec,
    /// A `TrackingServer` in this namespace: notebooks find it and its artifact store without further ado.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracking_server_ref: Option<String>,
}
