//! PURE: the Deployment of a web application: one container, restricted by default.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, HTTPGetAction, HTTPHeader,
    PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements,
    SeccompProfile, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::quantity::canonical_resources;
use super::service::named;
use crate::engine::child::OWNER_LABEL;
use crate::engine::reason::INVALID_SPEC;
use crate::engine::workload::Blocked;

/// How pods are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// The old pod ends before the new one starts: for a volume or a database file that only one may use.
    OldFirst,
    /// The new pod is ready before the old one ends.
    NewFirst,
}

/// What a Deployment is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Name of the Deployment.
    pub name: String,
    /// Replicas.
    pub replicas: i32,
    /// Labels that select the pods; immutable.
    pub selector: BTreeMap<String, String>,
    /// Uid of the resource; a label tells the engine whose the pods are.
    pub owner: String,
    /// Annotations of the pods.
    pub annotations: BTreeMap<String, String>,
    /// How pods are replaced.
    pub replace: Replace,
    /// Seconds without progress after which a rollout counts as failed.
    pub progress_deadline_seconds: i32,
    /// The pod, as far as it is not the same for all.
    pub pod: PodSpec,
}

impl Parts {
    /// The Deployment.
    #[must_use]
    pub fn build(self) -> Deployment {
        let Self { name, replicas, selector, owner, annotations, replace, progress_deadline_seconds, pod } = self;
        let mut labels = selector.clone();
        labels.insert(OWNER_LABEL.into(), owner);
        let template = PodTemplateSpec {
            metadata: Some(ObjectMeta {
                labels: Some(labels),
                annotations: Some(annotations).filter(|a| !a.is_empty()),
                ..ObjectMeta::default()
            }),
            spec: Some(PodSpec {
                // A Service called `mlflow` would set MLFLOW_PORT=tcp://..., which the server takes for its own flag.
                enable_service_links: Some(false),
                automount_service_account_token: Some(false),
                termination_grace_period_seconds: Some(30),
                ..pod
            }),
        };
        Deployment {
            metadata: named(&name),
            spec: Some(DeploymentSpec {
                replicas: Some(replicas),
                selector: LabelSelector { match_labels: Some(selector), ..LabelSelector::default() },
                strategy: Some(strategy(replace)),
                progress_deadline_seconds: Some(progress_deadline_seconds),
                template,
                ..DeploymentSpec::default()
            }),
            status: None,
        }
    }
}

/// Both limits are always ours: when the type changes to `Recreate` they must go, and an apply removes only its own fields.
fn strategy(replace: Replace) -> DeploymentStrategy {
    match replace {
        Replace::OldFirst => DeploymentStrategy { type_: Some("Recreate".into()), rolling_update: None },
        Replace::NewFirst => DeploymentStrategy {
            type_: Some("RollingUpdate".into()),
            rolling_update: Some(RollingUpdateDeployment {
                max_surge: Some(IntOrString::Int(1)),
                max_unavailable: Some(IntOrString::Int(0)),
            }),
        },
    }
}

/// A TCP port of a container; the protocol is part of its key.
#[must_use]
pub fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.into()),
        container_port: number,
        protocol: Some("TCP".into()),
        ..ContainerPort::default()
    }
}

/// Adds the three probes: `start_seconds` to start, then 60 s of silence until a restart.
#[must_use]
pub fn probed(container: Container, port: &str, path: &str, start_seconds: i32) -> Container {
    let probe = |period: i32, failures: i32| Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.into()),
            port: IntOrString::String(port.into()),
            scheme: Some("HTTP".into()),
            // A kubelet sends the pod's address as Host, which an allow-list need not have.
            http_headers: Some(vec![HTTPHeader { name: "Host".into(), value: "localhost".into() }]),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period),
        timeout_seconds: Some(5),
        failure_threshold: Some(failures),
        ..Probe::default()
    };
    Container {
        startup_probe: Some(probe(3, start_seconds / 3)),
        readiness_probe: Some(probe(5, 3)),
        liveness_probe: Some(probe(15, 4)),
        ..container
    }
}

/// What the restricted Pod Security Standard asks of a container, and a read-only root file system if it can do with one.
#[must_use]
pub fn restricted(read_only: bool) -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
        read_only_root_filesystem: read_only.then_some(true),
        ..SecurityContext::default()
    }
}

/// What the restricted Pod Security Standard asks of a pod. The uid is given because an image may name its user by name
/// only, which `runAsNonRoot` cannot judge; the group makes a fresh volume writable.
#[must_use]
pub fn restricted_pod() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(1000),
        run_as_group: Some(1000),
        fs_group: Some(1000),
        fs_group_change_policy: Some("OnRootMismatch".into()),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None }),
        ..PodSecurityContext::default()
    }
}

/// An empty directory that ends with the pod, and its mount.
#[must_use]
pub fn scratch(name: &str, path: &str) -> (Volume, VolumeMount) {
    let volume = Volume { name: name.into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() };
    (volume, mount(name, path))
}

/// A claim's volume and its mount.
#[must_use]
pub fn claimed(name: &str, claim: &str, path: &str) -> (Volume, VolumeMount) {
    let source = PersistentVolumeClaimVolumeSource { claim_name: claim.into(), read_only: None };
    (Volume { name: name.into(), persistent_volume_claim: Some(source), ..Volume::default() }, mount(name, path))
}

fn mount(name: &str, path: &str) -> VolumeMount {
    VolumeMount { name: name.into(), mount_path: path.into(), ..VolumeMount::default() }
}

/// The resources that are given, written canonically; these defaults (requests, limits) when none are. All or nothing: a
/// default request above a given limit would be refused.
///
/// # Errors
/// One of them is not a quantity.
pub fn resources(
    given: Option<&ResourceRequirements>,
    requests: &[(&str, &str)],
    limits: &[(&str, &str)],
) -> Result<ResourceRequirements, Blocked> {
    let given = given.cloned().unwrap_or_default();
    let some = [&given.limits, &given.requests].into_iter().flatten().any(|list| !list.is_empty());
    let list = |defaults: &[(&str, &str)]| {
        let all = defaults.iter().map(|&(name, text)| (name.to_owned(), Text(text.to_owned())));
        (!defaults.is_empty()).then(|| all.collect())
    };
    let chosen =
        if some { given } else { ResourceRequirements { requests: list(requests), limits: list(limits), ..given } };
    canonical_resources(chosen).map_err(|field| {
        Blocked::new(INVALID_SPEC, format!("spec.resources.{field} is not a quantity; write e.g. 500m or 2Gi"))
    })
}

/// A variable with a plain value; none when it is empty, because the API server drops an empty value.
#[must_use]
pub fn variable(name: &str, value: &str) -> Option<EnvVar> {
    (!value.is_empty()).then(|| EnvVar { name: name.into(), value: Some(value.into()), value_from: None })
}

/// Adds the user's variables; one of the same name counts instead of ours, and of several the last.
#[must_use]
pub fn overlaid(ours: Vec<EnvVar>, users: &[EnvVar]) -> Vec<EnvVar> {
    users.iter().fold(ours, |mut all, extra| {
        let extra = EnvVar { value: extra.value.clone().filter(|v| !v.is_empty()), ..extra.clone() };
        match all.iter_mut().find(|v| v.name == extra.name) {
            Some(same) => *same = extra,
            None => all.push(extra),
        }
        all
    })
}
