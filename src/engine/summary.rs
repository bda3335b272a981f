//! PURE: reduces a live object to the little the engine keeps of it. The object itself is dropped.

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use serde::Deserialize;
use serde_json::Value;

use super::certificate::Certificate;
use super::child::{MANAGER, OWNER_LABEL, RETAINED_ANNOTATION};
use super::claims::{self, Claim};
use super::digest::{self, Digest};
use super::workload::Offer;

/// What is kept of an object: a few hundred bytes, whatever its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`; numeric order within a kind is the API's promise since Kubernetes 1.35 (KEP-5504)
    /// and etcd's before.
    pub version: u64,
    /// The controller owner.
    pub owner: Owner,
    /// The owner label's value.
    pub label: Option<Box<str>>,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The digest of the fields that our field manager owns; `None` when it owns none.
    pub digest: Option<Digest>,
    /// A manager of an earlier controller owns fields in it.
    pub legacy: bool,
    /// When it was made, seconds since the epoch.
    pub created: i64,
    /// What its kind is watched for.
    pub facts: Facts,
}

/// Who controls an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It has no controller owner, and nobody may take it up.
    Nobody,
    /// It has no controller owner, but was kept for `Kind/name`.
    Retained(Box<str>),
    /// It has this controller owner.
    Controller {
        /// Kind of the owner.
        kind: Box<str>,
        /// Name of the owner.
        name: Box<str>,
        /// Uid of the owner.
        uid: Box<str>,
    },
}

/// What is watched for, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// Its presence and fields suffice.
    Plain,
    /// A Deployment's progress.
    Deployment(Box<DeploymentFacts>),
    /// A volume claim's phase and size.
    Volume(Box<VolumeFacts>),
    /// A Secret's content, reduced.
    Secret(Box<SecretFacts>),
    /// A route of any kind.
    Route(Box<RouteFacts>),
    /// What a resource offers to those that refer to it.
    Offer(Box<Offer>),
}

/// What a route serves, and whether anybody serves it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RouteFacts {
    /// The URL space that it serves.
    pub claims: Box<[Claim]>,
    /// What the other side says of it.
    pub acceptance: Acceptance,
}

/// What the controller of a route's Gateway says of the route.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Acceptance {
    /// It serves it; or routes of this kind carry no such word.
    #[default]
    Accepted,
    /// It has not looked at this generation yet.
    Awaited,
    /// It does not serve it; its words.
    Refused(Box<str>),
}

/// A Deployment's progress, as `kubectl rollout status` judges it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DeploymentFacts {
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
    /// `spec.replicas`.
    pub wanted: i32,
    /// `status.replicas`.
    pub replicas: i32,
    /// `status.updatedReplicas`.
    pub updated: i32,
    /// `status.readyReplicas`.
    pub ready: i32,
    /// `status.availableReplicas`.
    pub available: i32,
    /// `status.unavailableReplicas`.
    pub unavailable: i32,
    /// The message of `Progressing=False`, reason `ProgressDeadlineExceeded`.
    pub deadline_exceeded: Option<Box<str>>,
    /// The message of `ReplicaFailure=True` (a quota, an admission rule).
    pub replica_failure: Option<Box<str>>,
}

/// A volume claim's phase and size.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct VolumeFacts {
    /// `status.phase`.
    pub phase: Box<str>,
    /// `spec.storageClassName`.
    pub storage_class: Option<Box<str>>,
    /// `spec.resources.requests.storage`, as written.
    pub request: Box<str>,
}

/// A Secret's content, reduced: nothing of it can be read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFacts {
    /// Changes exactly when `data` changes.
    pub content: Digest,
    /// The keys of `data`.
    pub keys: Box<[Box<str>]>,
    /// `tls.crt` and `tls.key`, judged; `None` when the Secret has neither.
    pub certificate: Option<Result<Certificate, Box<str>>>,
}

/// Reduces a live object of the kind `ar` (the items of a list do not name theirs). `legacy` names the managers of [`super::workload::Legacy`].
#[must_use]
pub fn summarize(ar: &ApiResource, object: &DynamicObject, legacy: &[&str]) -> Summary {
    let meta = &object.metadata;
    let managed = meta.managed_fields.as_deref().unwrap_or_default();
    Summary {
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        version: meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default(),
        owner: owner(object),
        label: object.labels().get(OWNER_LABEL).map(|l| l.as_str().into()),
        deleting: meta.deletion_timestamp.is_some(),
        digest: managed.iter().find(|entry| is_ours(entry)).and_then(|entry| {
            let fields = entry.fields_v1.as_ref()?;
            Some(digest::of_live(object, &fields.0))
        }),
        legacy: managed.iter().any(|entry| is_legacy(entry, legacy)),
        created: meta.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second()),
        facts: facts(ar, object),
    }
}

/// Our own apply entry on the main resource.
#[must_use]
pub fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// An earlier controller's entry on the main resource.
#[must_use]
pub fn is_legacy(entry: &ManagedFieldsEntry, legacy: &[&str]) -> bool {
    entry.manager.as_deref().is_some_and(|m| legacy.contains(&m))
        && entry.operation.as_deref() == Some("Update")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

fn owner(object: &DynamicObject) -> Owner {
    match object.owner_references().iter().find(|r| r.controller == Some(true)) {
        Some(r) => {
            Owner::Controller { kind: r.kind.as_str().into(), name: r.name.as_str().into(), uid: r.uid.as_str().into() }
        }
        None => match object.annotations().get(RETAINED_ANNOTATION) {
            Some(whom) => Owner::Retained(whom.as_str().into()),
            None => Owner::Nobody,
        },
    }
}

fn facts(ar: &ApiResource, object: &DynamicObject) -> Facts {
    let route = |claims, acceptance| Facts::Route(Box::new(RouteFacts { claims, acceptance }));
    match (ar.api_version.as_str(), ar.kind.as_str()) {
        ("apps/v1", "Deployment") => Facts::Deployment(Box::new(deployment(object))),
        ("v1", "PersistentVolumeClaim") => Facts::Volume(Box::new(volume(&object.data))),
        ("v1", "Secret") => Facts::Secret(Box::new(secret(&object.data))),
        ("networking.k8s.io/v1", "Ingress") => route(claims::of_ingress(&object.data), Acceptance::Accepted),
        ("gateway.networking.k8s.io/v1", "HTTPRoute") => route(claims::of_http_route(&object.data), acceptance(object)),
        ("traefik.io/v1alpha1", "IngressRoute") => route(claims::of_ingress_route(&object.data), Acceptance::Accepted),
        _ => Facts::Plain,
    }
}

/// Every Gateway that is named must have accepted the route and found what it refers to.
fn acceptance(route: &DynamicObject) -> Acceptance {
    let generation = route.metadata.generation.unwrap_or_default();
    let parents = route.data["status"]["parents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let all = || parents.iter().flat_map(|parent| parent["conditions"].as_array().into_iter().flatten());
    let current = || all().filter(|c| c["observedGeneration"].as_i64().is_none_or(|seen| seen >= generation));
    let judging = |c: &&Value| c["type"] == "Accepted" || c["type"] == "ResolvedRefs";
    if let Some(bad) = current().filter(judging).find(|c| c["status"] == "False") {
        return Acceptance::Refused(format!("{}: {}", text(&bad["reason"]), text(&bad["message"])).into());
    }
    let accepted = current().filter(|c| c["type"] == "Accepted" && c["status"] == "True").count();
    if accepted > 0 && accepted >= parents.len() { Acceptance::Accepted } else { Acceptance::Awaited }
}

fn text(value: &Value) -> Box<str> {
    value.as_str().unwrap_or_default().into()
}

fn deployment(object: &DynamicObject) -> DeploymentFacts {
    let status = &object.data["status"];
    let count = |value: &Value| value.as_i64().and_then(|n| i32::try_from(n).ok());
    let condition = |type_: &str, value: &str| {
        let conditions = status["conditions"].as_array();
        conditions.into_iter().flatten().find(|c| c["type"] == type_ && c["status"] == value)
    };
    DeploymentFacts {
        generation: object.metadata.generation.unwrap_or_default(),
        observed_generation: status["observedGeneration"].as_i64().unwrap_or_default(),
        wanted: count(&object.data["spec"]["replicas"]).unwrap_or(1),
        replicas: count(&status["replicas"]).unwrap_or_default(),
        updated: count(&status["updatedReplicas"]).unwrap_or_default(),
        ready: count(&status["readyReplicas"]).unwrap_or_default(),
        available: count(&status["availableReplicas"]).unwrap_or_default(),
        unavailable: count(&status["unavailableReplicas"]).unwrap_or_default(),
        deadline_exceeded: condition("Progressing", "False")
            .filter(|c| c["reason"] == "ProgressDeadlineExceeded")
            .map(|c| text(&c["message"])),
        replica_failure: condition("ReplicaFailure", "True").map(|c| text(&c["message"])),
    }
}

fn volume(data: &Value) -> VolumeFacts {
    VolumeFacts {
        phase: text(&data["status"]["phase"]),
        storage_class: data["spec"]["storageClassName"].as_str().map(Into::into),
        request: text(&data["spec"]["resources"]["requests"]["storage"]),
    }
}

fn secret(data: &Value) -> SecretFacts {
    let entries = data["data"].as_object();
    let entries = || entries.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()));
    let decoded = |key: &str| {
        let value = data["data"].get(key)?;
        Some(ByteString::deserialize(value).map(|bytes| bytes.0).unwrap_or_default())
    };
    let certificate = match (decoded("tls.crt"), decoded("tls.key")) {
        (None, None) => None,
        (cert, key) => Some(Certificate::parse(&cert.unwrap_or_default(), &key.unwrap_or_default())),
    };
    SecretFacts {
        content: digest::of_bytes(entries().map(|(k, v)| (k, v.as_bytes()))),
        keys: entries().map(|(k, _)| k.into()).collect(),
        certificate,
    }
}
