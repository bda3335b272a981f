//! PURE: what a kind tells the engine, and what the engine tells a kind.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use kube::core::{NamespaceResourceScope, object::HasStatus};
use kube::{Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};

use super::child::{ChildSet, Desired, Live};
use super::claims::{Claim, Conflict};
use super::hosts::Hosts;
use super::idle::{Idle, Stop};
use super::summary::{Facts, SecretFacts, Summary, VolumeFacts};

/// A custom resource whose children are a pure function of itself and what it refers to.
///
/// Nothing here is async and nothing here holds a client: an implementation cannot do I/O. The engine watches, applies,
/// prunes and writes the status.
pub trait Workload:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + HasStatus<Status: Conditioned>
    + Clone
    + std::fmt::Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    /// What deploy-time facts the kind needs, e.g. which ingress controller serves the routes.
    type Platform: Send + Sync + 'static;

    /// Every kind of child this kind can have, under any spec and any platform: one list, watched and pruned.
    fn owns() -> Vec<ApiResource>;

    /// Every kind that [`Workload::refs`] can name: Secrets, and kinds of resources that run in the same operator.
    #[must_use]
    fn refers() -> Vec<ApiResource> {
        vec![ApiResource::erase::<Secret>(&())]
    }

    /// The objects (same namespace) that `children` wants to see. The engine wakes the resource when one changes.
    fn refs(&self) -> Vec<Ref> {
        Vec::new()
    }

    /// What this resource offers to those in its namespace that refer to it.
    fn offer(&self) -> Offer {
        Offer::default()
    }

    /// The part of the URL space this resource asks for, if its spec names one that can be understood.
    fn claim(&self, _platform: &Self::Platform) -> Option<Claim> {
        None
    }

    /// The full set of children.
    ///
    /// # Errors
    /// [`Blocked`] when the spec is not understood: then no child is written and none is pruned.
    fn children(&self, seen: &Seen<'_>, platform: &Self::Platform) -> Result<ChildSet<Desired>, Blocked>;

    /// Fills the fields of the status that are this kind's own; the engine has set the conditions.
    fn extend_status(&self, _seen: &Seen<'_>, _live: &ChildSet<Live>, _status: &mut Self::Status) {}

    /// How to find out whether the workload is used; `None` while it does not run or may run unused for ever.
    fn idle(&self) -> Option<Idle> {
        None
    }

    /// Enters a stop into a status, because the workload was last used at `used`.
    fn stopped(&self, _stop: Stop, _used: Timestamp, _status: &mut Self::Status) {}

    /// What earlier controllers of this kind left behind and nobody else will remove.
    #[must_use]
    fn legacy() -> Legacy {
        Legacy::default()
    }
}

/// Names an object in the resource's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ref {
    /// Its kind.
    pub ar: ApiResource,
    /// Its name.
    pub name: String,
}

impl Ref {
    /// Names an object of the kind `K`.
    pub fn to<K: Resource<DynamicType = ()>>(name: impl Into<String>) -> Self {
        Self { ar: ApiResource::erase::<K>(&()), name: name.into() }
    }
}

/// What a resource offers to those that refer to it: variables for their pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Values by variable. Never a secret.
    pub plain: BTreeMap<String, String>,
    /// Name of a Secret and key in its data, by variable.
    pub secret: BTreeMap<String, (String, String)>,
}

/// Traces of an earlier controller, taken over at first contact.
#[derive(Clone, Copy, Debug, Default)]
pub struct Legacy {
    /// Finalizers on the resource that nobody handles any more.
    pub finalizers: &'static [&'static str],
    /// Field managers (operation `Update`) whose fields in the children become this operator's.
    pub managers: &'static [&'static str],
}

/// A status that carries the conditions of the contract.
pub trait Conditioned: Serialize + DeserializeOwned + PartialEq + Clone + Default + Send + Sync {
    /// `status.conditions` as they stand.
    fn conditions(&self) -> &[Condition];
    /// Sets both.
    fn settle(&mut self, generation: i64, conditions: Vec<Condition>);
}

/// The user's problem, not the cluster's: it becomes a condition and is not retried on a timer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Blocked {
    /// A constant of [`super::reason`].
    pub reason: &'static str,
    /// Names the object and the field, and says what to do. Never a secret value.
    pub message: String,
}

impl Blocked {
    /// A problem with its remedy.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// What is wrong or awaited although children can be computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How it shows in the conditions.
    pub weight: Weight,
    /// A constant of [`super::reason`].
    pub reason: &'static str,
    /// Names the object and says what to do. Never a secret value.
    pub message: String,
}

/// How a [`Problem`] shows in the conditions, heaviest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Only a person can help: `Ready=False`, `Degraded=True`, `Stalled=True`.
    Stalls,
    /// Not healthy and not on its way: `Ready=False`, `Degraded=True`, `Reconciling=True` (it is still tried).
    Fails,
    /// On its way: `Ready=False`, `Reconciling=True`.
    Waits,
    /// Works, but needs attention: `Degraded=True`; `Ready` is as the children are.
    Degrades,
    /// Works, and will need attention: `CertificateExpiring=True` and an event, nothing else.
    Warns,
}

/// What the engine has observed for one resource at the time of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Everything in the resource's namespace that bears on it.
    pub objects: &'a [Observed],
    /// The older resource that holds the claimed part of the URL space, if one does.
    pub conflict: Option<&'a Conflict>,
    /// The hosts that the namespace may name; `None`: any.
    pub hosts: Option<&'a Hosts>,
    /// The time of the decision.
    pub now: Timestamp,
}

/// One object in the resource's namespace: a child, a namesake of a child, or a referenced one.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Its kind.
    pub ar: ApiResource,
    /// Its name.
    pub name: String,
    /// What the engine keeps of it.
    pub summary: Summary,
}

impl Seen<'_> {
    /// An object by kind and name, whoever made it.
    #[must_use]
    pub fn get<K: Resource<DynamicType = ()>>(&self, name: &str) -> Option<&Summary> {
        self.objects
            .iter()
            .find(|o| o.name == name && o.ar.kind == K::kind(&()) && o.ar.group == K::group(&()))
            .map(|o| &o.summary)
    }

    /// A Secret by name, whoever made it.
    #[must_use]
    pub fn secret(&self, name: &str) -> Option<&SecretFacts> {
        match &self.get::<Secret>(name)?.facts {
            Facts::Secret(facts) => Some(facts),
            _ => None,
        }
    }

    /// What another resource offers; `None` when it is not there, or not understood.
    #[must_use]
    pub fn offer<W: Workload>(&self, name: &str) -> Option<&Offer> {
        match &self.get::<W>(name)?.facts {
            Facts::Offer(offer) => Some(offer),
            _ => None,
        }
    }

    /// A `PersistentVolumeClaim` by name together with its owner, whoever that is.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<(&Summary, &VolumeFacts)> {
        let summary = self.get::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(name)?;
        match &summary.facts {
            Facts::Volume(facts) => Some((summary, facts)),
            _ => None,
        }
    }
}

/// `Kind namespace/name`, as messages name an object.
pub fn describe<W: Workload>(owner: &W) -> String {
    format!("{} {}/{}", W::kind(&()), owner.namespace().unwrap_or_default(), owner.name_any())
}
