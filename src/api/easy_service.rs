//! PURE: `EasyService`, a Deployment and its Service in a few lines. Field names are fixed.
#![allow(clippy::duplicated_attributes, reason = "printer columns share their type")]

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, ServicePort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::engine::workload::Conditioned;

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
    status = "EasyServiceStatus",
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
}

/// Status of an [`EasyService`]: the Deployment's own counts beside the conditions.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EasyServiceStatus {
    /// The generation of the spec that this status is about; -1 until the operator has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready` and `Degraded` are always there; `Reconciling` and `Stalled` when they are True.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Where pods of the cluster find its first port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Pods that exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Pods of the current spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i32>,
    /// Pods that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// Pods that serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// Pods that are wanted and do not serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable_replicas: Option<i32>,
    /// Label selector of the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

impl Conditioned for EasyServiceStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn observed_generation(&self) -> Option<i64> {
        self.observed_generation
    }

    fn settle(&mut self, generation: i64, conditions: Vec<Condition>) {
        self.observed_generation = Some(generation);
        self.conditions = conditions;
    }
}
