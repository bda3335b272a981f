//! PURE: `CodeServer`, a VS Code server.
#![allow(clippy::duplicated_attributes, reason = "printer columns share their type")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::common::ServerStatus;
use super::workspace::WorkspaceSpec;

/// What is wanted of a VS Code server.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "experiment.aiscope",
    version = "v1alpha2",
    kind = "CodeServer",
    plural = "codeservers",
    singular = "codeserver",
    shortname = "cs",
    category = "aiscope",
    namespaced,
    status = "ServerStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "VS Code in a browser: its volume, certificate, password, Deployment, Service and route.",
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
pub struct CodeServerSpec {
    /// What it has in common with other kinds.
    #[serde(flatten)]
    pub workspace: WorkspaceSpec,
    /// Also pass on `/proxy/<port>` to any port of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_proxy: Option<bool>,
}
