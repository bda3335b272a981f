//! PURE: `TrackingServer`, an MLflow tracking server. Field names are fixed, spelling included.
#![allow(clippy::duplicated_attributes, reason = "printer columns share their type")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    EnvVar, LocalObjectReference, PodSecurityContext, ResourceRequirements, SecurityContext, Toleration,
};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::common::{ReclaimPolicy, SecretKey, SecretName, Sensitive, ServerStatus};
use super::schema::reclaim_policy;

/// What the API server can see of a bad `url`. It is a little wider than [`crate::parts::url`], which has the last word:
/// an allow-list of characters, no user information, no query. Kubernetes ratchets it: an old value that is not changed passes.
pub const URL_PATTERN: &str =
    r"^([hH][tT][tT][pP][sS]?://([A-Za-z0-9._-]|[^\x00-\x7F])+(:[0-9]*)?(/[A-Za-z0-9._~+:@,=!/-]*)?)?$";

/// What is wanted of an MLflow tracking server. An empty string means "not given" everywhere.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "experiment.aiscope",
    version = "v1alpha2",
    kind = "TrackingServer",
    plural = "trackingservers",
    singular = "trackingserver",
    shortname = "ts",
    category = "aiscope",
    namespaced,
    status = "ServerStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "An MLflow tracking server: its volume, certificate, credentials, Deployment, Service and route.",
    scale(
        spec_replicas_path = ".spec.size",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "S3_ENDPOINT_URL", type_ = "string", json_path = ".spec.s3_endpoint_url"),
    printcolumn(name = "ARTIFACT_ROOT", type_ = "string", json_path = ".spec.artifact_root"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct TrackingServerSpec {
    /// Replicas; 0 stops it, unset means 1. More than one needs a database server and no volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub size: Option<i32>,
    /// Container image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// S3 endpoint of the artifact store.
    #[serde(default, rename = "s3_endpoint_url", skip_serializing_if = "Option::is_none")]
    pub s3_endpoint_url: Option<String>,
    /// Access key of the artifact store, inline. `credentialsSecretRef` is the better way.
    #[serde(default, rename = "aws_access_key", skip_serializing_if = "Option::is_none")]
    pub aws_access_key: Option<Sensitive>,
    /// Secret key of the artifact store, inline. `credentialsSecretRef` is the better way.
    #[serde(default, rename = "aws_secret_key", skip_serializing_if = "Option::is_none")]
    pub aws_secret_key: Option<Sensitive>,
    /// A Secret in this namespace with the keys `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, which then count instead
    /// of the inline values, and optionally `BACKEND_URI` (or `MLFLOW_BACKEND_STORE_URI`), which counts when neither
    /// `backend_uri` nor `backendUriSecretRef` is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretName>,
    /// Where artifacts are kept, e.g. `s3://mlflow/`. Unset: below `/mlflow` with a volume, else in the pod until it ends.
    #[serde(default, rename = "artifact_root", skip_serializing_if = "Option::is_none")]
    pub artifact_root: Option<String>,
    /// The database, e.g. `sqlite:////mlflow/mlflow.db` or `postgresql://...`. Unset: SQLite below `/mlflow` with a volume,
    /// else in the pod until it ends. With a password in it, `backendUriSecretRef` is the better way.
    #[serde(default, rename = "backend_uri", skip_serializing_if = "Option::is_none")]
    pub backend_uri: Option<Sensitive>,
    /// The database URI from a Secret in this namespace; it counts instead of `backend_uri`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_uri_secret_ref: Option<SecretKey>,
    /// The public URL: its scheme, host, port and path decide the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    #[x_kube(validation = Rule::new(url_rule()).message(
        "must be http:// or https://, a host, and at most a port and a path of letters, digits and ._~+:@,=!-; no user, query or fragment"
    ))]
    pub url: Option<String>,
    /// Size of the volume, e.g. `10Gi`. A volume is made when `storageClassName` is given too.
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
    /// Also route `/static-files` and `/ajax-api` of the host, as MLflow 1.x needs. It takes the whole host for this resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legacy_root_assets: Option<bool>,
    /// Worker processes in a pod; unset means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<i32>,
    /// Runs MLflow's job consumers too; they need about 1 GiB more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_execution: Option<bool>,
    /// Resources of the container; what is not given here is chosen by `workers` and `jobExecution`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// More environment variables; one of the same name counts instead of the operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    /// Command of the container, for an image that is not plain MLflow. `args` alone are appended to the operator's command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Arguments of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Seconds without progress after which a rollout counts as failed; unset means 600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i32>,
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
    /// Security context of the container, instead of the operator's (restricted, read-only root file system).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
}

/// The CEL rule of `url`.
#[must_use]
pub fn url_rule() -> String {
    format!("self.matches(r'{URL_PATTERN}')")
}
