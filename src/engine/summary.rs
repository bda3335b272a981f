//! PURE: reduces a live object to the little the engine keeps of it. The object itself is dropped.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

use super::certificate::Certificate;
use super::child::{MANAGER, OWNER_LABEL, RETAINED_ANNOTATION};
use super::claims::Claim;
use super::digest::{self, Digest};

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
    /// Managers (operation `Update`, main resource) with fields in this object, as far as `legacy` names them.
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
    /// The URL space that a route of any kind serves.
    Route(Box<[Claim]>),
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

/// Reduces a live object. `legacy` names the managers of [`super::workload::Legacy`].
#[must_use]
pub fn summarize(object: &DynamicObject, legacy: &[&str]) -> Summary {
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
        facts: facts(object),
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

fn facts(object: &DynamicObject) -> Facts {
    let types = object.types.as_ref();
    let (api, kind) = types.map_or(("", ""), |t| (t.api_version.as_str(), t.kind.as_str()));
    match (api, kind) {
        ("apps/v1", "Deployment") => parse::<Deployment>(object).map(|d| deployment(&d)),
        ("v1", "PersistentVolumeClaim") => parse::<PersistentVolumeClaim>(object).map(volume),
        ("v1", "Secret") => parse::<Secret>(object).map(secret),
        ("networking.k8s.io/v1", "Ingress") => Some(Facts::Route(super::claims::of_ingress(&object.data))),
        ("traefik.io/v1alpha1", "IngressRoute") => Some(Facts::Route(super::claims::of_ingress_route(&object.data))),
        _ => None,
    }
    .unwrap_or(Facts::Plain)
}

fn parse<K: serde::de::DeserializeOwned>(object: &DynamicObject) -> Option<K> {
    let mut value = object.data.clone();
    // The typed decoder wants the metadata field present; its content is read from `object` instead.
    value.as_object_mut()?.insert("metadata".into(), Value::Object(serde_json::Map::new()));
    K::deserialize(value).ok().map(|k: K| k)
}

fn deployment(d: &Deployment) -> Facts {
    let spec = d.spec.as_ref();
    let status = d.status.clone().unwrap_or_default();
    let condition = |type_: &str, value: &str, reason: Option<&str>| {
        status
            .conditions
            .iter()
            .flatten()
            .find(|c| c.type_ == type_ && c.status == value && (reason.is_none() || c.reason.as_deref() == reason))
            .map(|c| c.message.as_deref().unwrap_or_default().into())
    };
    Facts::Deployment(Box::new(DeploymentFacts {
        generation: d.metadata.generation.unwrap_or_default(),
        observed_generation: status.observed_generation.unwrap_or_default(),
        wanted: spec.and_then(|s| s.replicas).unwrap_or(1),
        replicas: status.replicas.unwrap_or_default(),
        updated: status.updated_replicas.unwrap_or_default(),
        ready: status.ready_replicas.unwrap_or_default(),
        available: status.available_replicas.unwrap_or_default(),
        unavailable: status.unavailable_replicas.unwrap_or_default(),
        deadline_exceeded: condition("Progressing", "False", Some("ProgressDeadlineExceeded")),
        replica_failure: condition("ReplicaFailure", "True", None),
    }))
}

fn volume(claim: PersistentVolumeClaim) -> Facts {
    let spec = claim.spec.unwrap_or_default();
    let request = spec.resources.and_then(|r| r.requests).and_then(|mut r| r.remove("storage"));
    Facts::Volume(Box::new(VolumeFacts {
        phase: claim.status.and_then(|s| s.phase).unwrap_or_default().into(),
        storage_class: spec.storage_class_name.map(Into::into),
        request: request.map(|q| q.0).unwrap_or_default().into(),
    }))
}

fn secret(secret: Secret) -> Facts {
    let data = secret.data.unwrap_or_default();
    let pem = |key: &str| data.get(key).map(|bytes| bytes.0.as_slice());
    let certificate = match (pem("tls.crt"), pem("tls.key")) {
        (None, None) => None,
        (cert, key) => Some(Certificate::parse(cert.unwrap_or_default(), key.unwrap_or_default())),
    };
    Facts::Secret(Box::new(SecretFacts {
        content: digest::of_bytes(data.iter().map(|(k, v)| (k.as_str(), v.0.as_slice()))),
        keys: data.keys().map(|k| k.as_str().into()).collect(),
        certificate,
    }))
}
