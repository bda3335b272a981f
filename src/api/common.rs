//! PURE: what the kinds have in common.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::workload::Conditioned;

/// A field's value; the empty string means "not given" everywhere.
#[must_use]
pub fn given(field: Option<&String>) -> Option<&str> {
    field.map(String::as_str).filter(|text| !text.trim().is_empty())
}

/// A string that is never shown: `Debug` shows at most that it is empty, so it cannot reach a log.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Sensitive(String);

impl Sensitive {
    /// The value, unless it is empty: "not given".
    #[must_use]
    pub fn given(field: Option<&Self>) -> Option<&str> {
        given(field.map(|sensitive| &sensitive.0))
    }
}

impl From<&str> for Sensitive {
    fn from(value: &str) -> Self {
        Self(value.to_owned())
    }
}

impl std::fmt::Debug for Sensitive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "<redacted>" })
    }
}

/// What happens to a volume that is turned off or whose resource is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReclaimPolicy {
    /// It is deleted, and the data with it.
    #[default]
    #[serde(alias = "")]
    Delete,
    /// It is kept, and taken up again by a resource of the same kind and name.
    Retain,
}

/// Names a Secret in the resource's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretName {
    /// Name of the Secret.
    #[serde(default)]
    pub name: String,
}

/// Names one key of a Secret in the resource's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKey {
    /// Name of the Secret.
    #[serde(default)]
    pub name: String,
    /// Key in its data.
    #[serde(default)]
    pub key: String,
}

/// Status of a resource that serves a web application.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// The generation of the spec that this status is about; -1 until the operator has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready` and `Degraded` are always there; `Reconciling` and `Stalled` when they are True.
    #[serde(default)]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Where users find it.
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
    /// Pods that have been ready for long enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i32>,
    /// Pods that are wanted and not available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable_replicas: Option<i32>,
    /// Label selector of the pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// When the certificate of the route ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_not_after: Option<Time>,
    /// When it was last used, as far as that mattered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_activity: Option<Time>,
    /// Since when it is stopped because nobody used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Time>,
    /// The generation of the spec that was stopped: another one runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_generation: Option<i64>,
}

impl Conditioned for ServerStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn settle(&mut self, generation: i64, conditions: Vec<Condition>) {
        self.observed_generation = Some(generation);
        self.conditions = conditions;
    }
}
