//! PURE: `Cluster`, a member in which the operator of this cluster keeps the workloads. Field names are fixed.
#![allow(clippy::duplicated_attributes, reason = "printer columns share their type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::common::{SecretKey, Sensitive};
use crate::engine::workload::Conditioned;

/// How a member is reached and what runs in it.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cluster.aiscope",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    singular = "cluster",
    category = "aiscope",
    status = "ClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A cluster in which this operator keeps the workloads.",
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Resources", type_ = "integer", json_path = ".status.resources"),
    printcolumn(name = "Ready Resources", type_ = "integer", json_path = ".status.readyResources"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// How to connect: a kubeconfig that holds all it needs.
    #[x_kube(validation = Rule::new("(has(self.kubeconfig) && size(self.kubeconfig) > 0) != has(self.secretRef)").message(
        "give exactly one of kubeconfig and secretRef"
    ))]
    pub connection: Connection,
    /// The kinds to look after there; unset means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "kinds")]
    #[x_kube(validation = Rule::new("!('JupyterNotebook' in self) || 'TrackingServer' in self").message(
        "JupyterNotebook needs TrackingServer beside it, which it may refer to"
    ))]
    pub kinds: Option<Vec<String>>,
    /// Stops the controllers there; what they keep goes on running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Which ingress controller serves the routes there; unset means the operator's own `--ingress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "ingress")]
    pub ingress: Option<String>,
    /// The Gateway there, `namespace/name`, with `ingress: gateway`; unset means the operator's own `--gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// What becomes of the workloads there when this is deleted: `Leave` (as when unset) or `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "deletion_policy")]
    pub deletion_policy: Option<DeletionPolicy>,
}

/// A kubeconfig, inline or in a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// The kubeconfig, base64. `secretRef` is the better way: whoever may read this resource may act in that cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bytes")]
    pub kubeconfig: Option<Sensitive>,
    /// A Secret in the operator's namespace that has the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretKey>,
}

/// What becomes of a member's workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// They go on running, without an operator.
    #[default]
    #[serde(alias = "")]
    Leave,
    /// The resources are deleted, and what belongs to them with them.
    Delete,
}

/// How a member is.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// The generation of the spec that this status is about; -1 until the operator has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready` and `Degraded` are always there, and what they come from: `Reachable`, `Authorized`, `CRDsPresent`,
    /// `ControllersRunning`.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// What the API server says that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// When the credentials end, if that can be told (client certificate, JWT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_not_after: Option<Time>,
    /// Resources there, of all kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<i64>,
    /// Those that are Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_resources: Option<i64>,
    /// The same by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["kind".into()]))]
    pub kinds: Vec<KindCount>,
}

/// How many resources of one kind there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KindCount {
    /// The kind.
    pub kind: String,
    /// All of them.
    pub total: i64,
    /// Those that are Ready.
    pub ready: i64,
    /// Those that are Degraded.
    pub degraded: i64,
}

impl Conditioned for ClusterStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn settle(&mut self, generation: i64, conditions: Vec<Condition>) {
        self.observed_generation = Some(generation);
        self.conditions = conditions;
    }
}

/// What the API server checks for us: that it is base64. A kubeconfig of more than 256 KiB is refused either way.
fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "nullable": true, "format": "byte", "maxLength": 350_000 })
}

fn kinds(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "nullable": true, "x-kubernetes-list-type": "set", "maxItems": 16,
        "items": { "type": "string", "enum": crate::kinds::NAMES },
    })
}

fn ingress(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "nullable": true, "enum": ["", "traefik", "nginx", "gateway", "none"] })
}

fn deletion_policy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "nullable": true, "enum": ["", "Leave", "Delete"] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inline_kubeconfig_is_never_shown() {
        let json = r#"{ "connection": { "kubeconfig": "c2VjcmV0" } }"#;
        let spec: ClusterSpec = serde_json::from_str(json).unwrap();
        assert_eq!(Sensitive::given(spec.connection.kubeconfig.as_ref()), Some("c2VjcmV0"));
        assert!(!format!("{spec:?}").contains("c2VjcmV0"));
    }
}
