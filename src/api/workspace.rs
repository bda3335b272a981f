//! PURE: what the kinds for one person's work have in common: a program behind a public URL, with a home that lasts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    EnvVar, LocalObjectReference, PodSecurityContext, ResourceRequirements, SecurityContext, Toleration,
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::common::{ReclaimPolicy, Sensitive};
use super::schema::reclaim_policy;
use super::tracking_server::url_rule;

/// The common fields. An empty string means "not given" everywhere.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSpec {
    /// 1, as when unset, or 0 to stop it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub size: Option<i32>,
    /// Container image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The public URL: its scheme, host, port and path decide the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new(url_rule()).message(
        "must be http:// or https://, a host, and at most a port and a path of letters, digits and ._~+:@,=!-; no user, query or fragment"
    ))]
    pub url: Option<String>,
    /// Size of the home's volume, e.g. `10Gi`. A volume is made when `storageClassName` is given too; without one the home
    /// ends with the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_size: Option<String>,
    /// Storage class of the volume. A volume is made when `volumeSize` is given too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// Whether turning the volume off, or deleting this resource, deletes the data: `Delete` (as when unset) or `Retain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "reclaim_policy")]
    pub volume_reclaim_policy: Option<ReclaimPolicy>,
    /// Certificate chain, PEM, leaf first. A TLS Secret is made when `key` is given too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<String>,
    /// The certificate's private key, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Sensitive>,
    /// Resources of the container; unset means requests of 100m and 512Mi and no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// More environment variables; one of the same name counts instead of the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    /// How long it may go unused before it is stopped, e.g. `2h` or `1h30m`; unset means for ever. It runs again when the spec
    /// changes, or when the annotation `aiscope.io/wake` gets a time after `status.stoppedAt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<String>,
    /// Lets only the pods of this namespace and the proxy of the routes reach the pods; unset or false: everybody. It takes a
    /// network plugin that enforces a `NetworkPolicy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<bool>,
    /// Secrets to pull the image with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// Labels of the nodes to run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Tolerations of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerations: Option<Vec<Toleration>>,
    /// Security context of the pod, instead of the operator's (not root, uid, gid and fsGroup 1000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security_context: Option<PodSecurityContext>,
    /// Security context of the container, instead of the operator's (restricted).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
}
