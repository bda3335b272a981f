//! PURE: `EasyService`, a Deployment and its Service in a few lines. Field names are fixed.
#![allow(clippy::duplicated_attributes, reason = "printer columns share their type")]

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, ServicePort};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::common::ServerStatus;

/// What is wanted of a service.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "app.kubebuilder.io",
    version = "v1",
    kind = "EasyService",
    plural = "easyservices",
    singular = "easyservice",
    shortname = "es",
    category = "aiscope",
    namespaced,
    status = "ServerStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Any image that serves something: its Deployment and Service.",
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
pub struct EasyServiceSpec {
    /// Replicas; 0 stops it.
    #[schemars(range(min = 0))]
    pub size: i32,
    /// Container image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Resources of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Environment variables of the container; of several of one name the last counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envs: Option<Vec<EnvVar>>,
    /// Ports of the Service; without any there is none. A port that names a `nodePort` makes the Service a `NodePort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<ServicePort>>,
    /// Lets only the pods of this namespace and the proxy of the routes reach the pods; unset or false: everybody. It takes a
    /// network plugin that enforces a `NetworkPolicy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<bool>,
}
