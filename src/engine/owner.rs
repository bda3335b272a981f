//! SHELL: a resource itself: how it is read, what is written to it, and what events it gets.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, ObjectMeta, Patch, PatchParams};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use super::cache::OwnerKey;
use super::child::{ChildSet, Live, MANAGER};
use super::claims::{Claim, Claimant};
use super::cluster::Cluster;
use super::error::Error;
use super::idle::Stop;
use super::queue::Key;
use super::reason;
use super::run::{Controller, Known};
use super::status::{condition, conditions};
use super::summary::{Facts, summarize};
use super::watch::{Broken, Said};
use super::workload::{Conditioned, Problem, Seen, Weight, Workload, describe};

/// What a reconcile has to say in the status.
pub(super) struct Report<'a> {
    pub seen: Seen<'a>,
    /// `None`: the spec was not understood, so nothing new is known of the children.
    pub live: Option<ChildSet<Live>>,
    pub problems: Vec<Problem>,
    pub wrote: bool,
}

/// A resource that this version cannot decode. It is reported on that resource alone; all others go on.
#[derive(Debug)]
pub struct Undecodable {
    pub(super) meta: ObjectMeta,
    pub(super) status: Value,
    /// The field. Never its value: it may be a secret.
    path: String,
}

impl<W: Workload> Controller<W> {
    /// Takes in what the watch of this kind says.
    pub(super) fn said(&self, cluster: &Cluster, scope: Option<&str>, said: Said) {
        if !matches!(said, Said::Object(_)) {
            cluster.said(&ApiResource::erase::<W>(&()), scope, &said);
        }
        match said {
            Said::Begin => {}
            Said::Object(object) => self.take(cluster, *object),
            Said::Gone(object) => {
                self.forget(cluster, &Key::new(&object.namespace().unwrap_or_default(), &object.name_any()));
            }
            Said::End(named) => self.forget_others(cluster, scope, &named),
            Said::Broken(Broken::KindMissing) => {
                tracing::warn!(
                    "the CRD {}.{} is not installed; waiting for it (`aiscope-operator crds | kubectl apply --server-side -f -`)",
                    W::plural(&()),
                    W::group(&()),
                );
                // A CRD that is removed takes its resources along.
                self.forget_others(cluster, scope, &HashSet::new());
            }
            Said::Broken(Broken::Refused(error) | Broken::Unreachable(error)) => {
                tracing::warn!(kind = %W::kind(&()), error, "watch broken; it is tried again");
            }
        }
    }

    fn take(&self, cluster: &Cluster, object: DynamicObject) {
        let key = Key::new(&object.namespace().unwrap_or_default(), &object.name_any());
        let uid = object.uid().unwrap_or_default();
        cluster.cache().set_owner(&uid, Arc::new(OwnerKey { kind: W::kind(&()).into(), key: key.clone() }));
        let ar = ApiResource::erase::<W>(&());
        let mut summary = summarize(&ar, &object, &[]);
        let wanted = match decode::<W>(object) {
            Err(bad) => {
                tracing::warn!(kind = %W::kind(&()), %key, field = bad.path, "resource cannot be decoded");
                self.resources().insert(key.clone(), Known::Undecodable(Arc::from(bad)));
                true
            }
            Ok(resource) => {
                self.claim(cluster, &resource);
                summary.facts = Facts::Offer(Box::new(resource.offer()));
                self.keep(resource)
            }
        };
        cluster.note(&ar, &key.namespace, &key.name, &summary, false);
        if wanted {
            self.enqueue(key);
        }
    }

    /// Keeps the newest state of a resource. Returns whether it is news.
    fn keep(&self, resource: W) -> bool {
        let mut resources = self.resources();
        let key = key_of(&resource);
        let news = match resources.get(&key) {
            Some(Known::Resource(old)) if version(&**old) > version(&resource) && old.uid() == resource.uid() => {
                return false;
            }
            Some(Known::Resource(old)) => differs(&**old, &resource),
            _ => true,
        };
        resources.insert(key, Known::Resource(Arc::new(resource)));
        news
    }

    /// Enters a resource's claim on the URL space, and wakes the neighbours when it is news.
    pub(super) fn claim(&self, cluster: &Cluster, resource: &W) {
        let claim = resource.claim(&self.platform);
        let mut cache = cluster.cache();
        let allowed = cache.hosts(&resource.namespace().unwrap_or_default());
        let claims: std::collections::BTreeSet<Claim> = claim.into_iter().filter(|c| allowed.allow(&c.host)).collect();
        let claimant = claimant(resource);
        let before = cache.claims.of(&claimant.uid).cloned().unwrap_or_default();
        if cache.claims.set(&claimant, claims.clone()) {
            let neighbours = cache.claiming(claims.iter().chain(&before).map(|c| &*c.host));
            drop(cache);
            for owner in neighbours {
                cluster.wake(&owner);
            }
        }
    }

    /// Forgets the resources of a scope that a list did not name.
    fn forget_others(&self, cluster: &Cluster, scope: Option<&str>, named: &HashSet<(Box<str>, Box<str>)>) {
        let known: Vec<Key> = self.resources().keys().cloned().collect();
        let here = known.into_iter().filter(|key| scope.is_none_or(|s| *s == *key.namespace));
        for key in here.filter(|key| !named.contains(&((*key.namespace).into(), (*key.name).into()))) {
            self.forget(cluster, &key);
        }
    }

    fn forget(&self, cluster: &Cluster, key: &Key) {
        let uid = match self.resources().remove(key) {
            Some(Known::Resource(resource)) => resource.uid(),
            Some(Known::Undecodable(bad)) => bad.meta.uid.clone(),
            None => None,
        };
        let Some(uid) = uid else { return };
        let mut cache = cluster.cache();
        let claims = cache.claims.of(&uid).cloned().unwrap_or_default();
        cache.remove_owner(&uid);
        let neighbours = cache.claiming(claims.iter().map(|c| &*c.host));
        drop(cache);
        for owner in neighbours {
            cluster.wake(&owner);
        }
    }

    /// Writes the status, if it differs, and the event that goes with a change.
    pub(super) async fn report(&self, cluster: &Cluster, resource: &W, report: Report<'_>) -> Result<(), Error> {
        let Report { seen, live, problems, wrote } = report;
        let old = resource.status().cloned().unwrap_or_default();
        let generation = resource.meta().generation.unwrap_or_default();
        let mut status = if live.is_some() { W::Status::default() } else { old.clone() };
        let children = live.as_ref();
        let none = ChildSet::default();
        status.settle(
            generation,
            conditions(old.conditions(), generation, children.unwrap_or(&none), &problems, seen.now),
        );
        if let Some(live) = children {
            resource.extend_status(&seen, live, &mut status);
        }
        if status != old {
            let ar = ApiResource::erase::<W>(&());
            let body = serde_json::to_value(&status).unwrap_or_default();
            cluster.meters.work(&W::kind(&())).statuses.inc();
            let Some(object) = write_status(cluster, &ar, resource.meta(), body).await? else { return Ok(()) };
            if let Ok(resource) = decode::<W>(object) {
                self.keep(resource);
            }
        }
        self.tell(resource, old.conditions(), status.conditions(), wrote).await;
        Ok(())
    }

    /// Writes a stop into the status; the next reconcile acts on it.
    pub(super) async fn stop(&self, cluster: &Cluster, resource: &W, stop: Stop, used: Timestamp) -> Result<(), Error> {
        let mut status = resource.status().cloned().unwrap_or_default();
        resource.stopped(stop, used, &mut status);
        let body = serde_json::to_value(&status).unwrap_or_default();
        let written = write_status(cluster, &ApiResource::erase::<W>(&()), resource.meta(), body).await?;
        if let Some(Ok(resource)) = written.map(decode::<W>) {
            self.keep(resource);
        }
        Ok(())
    }

    /// Events for a person who watches: what changed and now stands, or what went wrong. Never one per reconcile.
    async fn tell(&self, resource: &W, old: &[Condition], new: &[Condition], wrote: bool) {
        let is =
            |list: &[Condition], type_: &str| list.iter().find(|c| c.type_ == type_ && c.status == "True").cloned();
        let news =
            |type_: &str| is(new, type_).filter(|now| is(old, type_).is_none_or(|before| before.reason != now.reason));
        let ready = is(new, condition::READY).is_some();
        let event = if let Some(now) = news(condition::DEGRADED) {
            (EventType::Warning, "FailedSync", format!("{}: {}", now.reason, now.message))
        } else if let Some(now) = news(condition::CERTIFICATE_EXPIRING) {
            (EventType::Warning, condition::CERTIFICATE_EXPIRING, now.message)
        } else if ready && (wrote || is(old, condition::READY).is_none()) {
            (EventType::Normal, "Synced", format!("{} synced successfully", capitalized(&W::kind(&()))))
        } else {
            return;
        };
        let (type_, reason, note) = event;
        let event = Event { type_, reason: reason.into(), note: Some(note), action: "Sync".into(), secondary: None };
        // An event is a courtesy: its loss fails nothing.
        if let Err(error) = self.recorder.publish(&event, &resource.object_ref(&())).await {
            tracing::debug!(object = describe(resource), %error, "event not written");
        }
    }
}

impl Undecodable {
    /// Writes what is wrong to the resource's own status.
    ///
    /// # Errors
    /// The failed request.
    pub async fn report(&self, cluster: &Cluster, ar: &ApiResource, now: Timestamp) -> Result<(), Error> {
        let old: Vec<Condition> = serde_json::from_value(self.status["conditions"].clone()).unwrap_or_default();
        let generation = self.meta.generation.unwrap_or_default();
        let message = format!(
            "{} is not what version {} of the operator expects: correct the field, or install the CRD of this version",
            self.path,
            env!("CARGO_PKG_VERSION"),
        );
        let problem = Problem { weight: Weight::Stalls, reason: reason::INVALID_SPEC, message };
        let conditions = conditions(&old, generation, &ChildSet::default(), &[problem], now);
        if conditions == old && self.status["observedGeneration"] == generation {
            return Ok(());
        }
        let status = json!({ "observedGeneration": generation, "conditions": conditions });
        write_status(cluster, ar, &self.meta, status).await.map(drop)
    }
}

/// Removes what an earlier controller left in `metadata.finalizers`: nobody else will, and the resource could never be
/// deleted.
///
/// # Errors
/// The failed request.
pub(super) async fn release<W: Workload>(cluster: &Cluster, resource: &W) -> Result<(), Error> {
    let finalizers = resource.finalizers();
    let Some(at) = finalizers.iter().position(|f| W::legacy().finalizers.contains(&f.as_str())) else { return Ok(()) };
    let path = format!("/metadata/finalizers/{at}");
    let patch = json!([
        { "op": "test", "path": "/metadata/uid", "value": resource.uid() },
        { "op": "test", "path": path, "value": finalizers[at] },
        { "op": "remove", "path": path },
    ]);
    let ar = ApiResource::erase::<W>(&());
    let name = resource.name_any();
    let failed = |e| Error::new("remove the finalizer of", &ar, &name, e);
    let patch: json_patch::Patch = serde_json::from_value(patch).map_err(|e| failed(kube::Error::SerdeError(e)))?;
    let api: Api<W> = Api::namespaced(cluster.client.clone(), &resource.namespace().unwrap_or_default());
    match api.patch_metadata(&name, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
        // Gone, or changed meanwhile (422: a test failed): the watch brings the new state.
        Err(kube::Error::Api(s)) if s.is_not_found() || s.code == 422 => Ok(()),
        other => other.map(drop).map_err(failed),
    }
}

/// Applies a status to the resource with this uid. `None`: it is gone.
///
/// A conflict is a failure like any other. It may mean that another one has taken the name, which the watch brings; but
/// the API server also answers so when it has lost against other writers a few times, and then no event would follow.
async fn write_status(
    cluster: &Cluster,
    ar: &ApiResource,
    meta: &ObjectMeta,
    status: Value,
) -> Result<Option<DynamicObject>, Error> {
    let (namespace, name) = (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
    let body = json!({
        "apiVersion": ar.api_version, "kind": ar.kind,
        "metadata": { "name": name, "uid": meta.uid },
        "status": status,
    });
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client.clone(), namespace, ar);
    match api.patch_status(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&body)).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(s)) if s.is_not_found() => Ok(None),
        Err(e) => Err(Error::new("write the status of", ar, name, e)),
    }
}

fn decode<W: Workload>(mut object: DynamicObject) -> Result<W, Box<Undecodable>> {
    object.metadata.managed_fields = None;
    let mut value = object.data;
    if let (Value::Object(map), Ok(meta)) = (&mut value, serde_json::to_value(&object.metadata)) {
        map.insert("metadata".into(), meta);
    }
    let status = value.get("status").cloned();
    serde_path_to_error::deserialize(value).map_err(|e| {
        Box::new(Undecodable { meta: object.metadata, status: status.unwrap_or_default(), path: e.path().to_string() })
    })
}

/// Whether a change of a resource can change any decision.
fn differs<W: Workload>(old: &W, new: &W) -> bool {
    let (a, b) = (old.meta(), new.meta());
    a.uid != b.uid
        || a.generation != b.generation
        || a.annotations != b.annotations
        || a.finalizers != b.finalizers
        || a.deletion_timestamp != b.deletion_timestamp
        || old.status() != new.status()
}

fn version<W: Resource>(resource: &W) -> u64 {
    resource.resource_version().and_then(|v| v.parse().ok()).unwrap_or_default()
}

pub(super) fn key<W: Workload>(resource: &W) -> OwnerKey {
    OwnerKey { kind: W::kind(&()).into(), key: key_of(resource) }
}

fn key_of<W: Resource>(resource: &W) -> Key {
    Key::new(&resource.namespace().unwrap_or_default(), &resource.name_any())
}

pub(super) fn claimant<W: Workload>(resource: &W) -> Claimant {
    Claimant {
        created: resource.meta().creation_timestamp.as_ref().map_or(0, |t| t.0.as_second()),
        uid: resource.uid().unwrap_or_default().into(),
        name: describe(resource).into(),
    }
}

/// `TrackingServer` → `Trackingserver`, as the events have always spelled it.
fn capitalized(kind: &str) -> String {
    let lower = kind.to_lowercase();
    let mut chars = lower.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
