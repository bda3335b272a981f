//! PURE: a resource's volume: wanted, kept, or neither.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use super::quantity::Quantity;
use super::service::named;
use crate::api::common::ReclaimPolicy;
use crate::engine::child::{ChildSet, Desired, retained_for};
use crate::engine::reason::{INVALID_SPEC, VOLUME_CANNOT_SHRINK, VOLUME_CLASS_IMMUTABLE};
use crate::engine::summary::{Owner, Summary, VolumeFacts};
use crate::engine::workload::{Blocked, Problem, Seen, Weight, Workload};

/// What is decided about a volume.
#[derive(Clone, Debug, Default)]
pub struct Volume {
    /// The pod mounts it.
    pub mounted: bool,
    /// The claim as it is wanted.
    claim: Option<PersistentVolumeClaim>,
    /// The claim outlives the resource.
    retained: bool,
    /// The claim stays as it is.
    stays: Option<String>,
    problem: Option<Problem>,
}

impl Volume {
    /// Decides by `spec.volumeSize`, `spec.storageClassName` and `spec.volumeReclaimPolicy`: with both of the first two a
    /// claim is wanted, otherwise it is off.
    ///
    /// # Errors
    /// The size is not a quantity above zero.
    pub fn decide<W: Workload>(
        owner: &W,
        name: &str,
        wish: (Option<&str>, Option<&str>),
        policy: ReclaimPolicy,
        seen: &Seen<'_>,
    ) -> Result<Self, Blocked> {
        let ours = seen.volume(name).filter(|(summary, _)| is_ours(owner, summary));
        let (Some(size), Some(class)) = wish else { return Ok(Self::off(name, policy, ours)) };
        let size = Quantity::parse(size).filter(Quantity::is_positive).ok_or_else(|| {
            Blocked::new(INVALID_SPEC, format!("spec.volumeSize {size:?} is not a size; write e.g. 10Gi"))
        })?;
        Ok(Self {
            mounted: true,
            retained: policy == ReclaimPolicy::Retain,
            ..match ours.and_then(|(_, facts)| objection(name, size, class, facts)) {
                Some(problem) => Self { stays: Some(name.into()), problem: Some(problem), ..Self::default() },
                None => Self { claim: Some(claim(name, size.canonical(), Some(class))), ..Self::default() },
            }
        })
    }

    /// Turned off: it is pruned, unless it is to be kept; then it loses its owner but nothing else.
    fn off(name: &str, policy: ReclaimPolicy, ours: Option<(&Summary, &VolumeFacts)>) -> Self {
        match ours {
            Some((summary, facts)) if policy == ReclaimPolicy::Retain && !summary.deleting => Self {
                claim: Some(claim(name, facts.request.to_string(), facts.storage_class.as_deref())),
                retained: true,
                ..Self::default()
            },
            _ => Self::default(),
        }
    }

    /// Adds the claim and what is wrong with it.
    #[must_use]
    pub fn add_to(self, set: ChildSet<Desired>) -> ChildSet<Desired> {
        let mut set = match (&self.claim, self.retained) {
            (Some(claim), true) => set.with_retained(claim),
            (Some(claim), false) => set.with(claim),
            (None, _) => set,
        };
        if let Some(name) = self.stays {
            set = set.leaving::<PersistentVolumeClaim>(name);
        }
        set.problems.extend(self.problem);
        set
    }
}

/// Whether a claim is the resource's: controlled by it, or kept for one of its kind and name.
fn is_ours<W: Workload>(owner: &W, claim: &Summary) -> bool {
    match &claim.owner {
        Owner::Controller { uid, .. } => owner.meta().uid.as_deref() == Some(uid),
        Owner::Retained(whom) => **whom == *retained_for(owner),
        Owner::Nobody => false,
    }
}

/// Why the claim that exists cannot become the wanted one.
fn objection(name: &str, size: Quantity, class: &str, facts: &VolumeFacts) -> Option<Problem> {
    let stalls = |reason, message| Some(Problem { weight: Weight::Stalls, reason, message });
    let has = facts.storage_class.as_deref().unwrap_or_default();
    if has != class {
        return stalls(
            VOLUME_CLASS_IMMUTABLE,
            format!(
                "PersistentVolumeClaim {name} has storage class {has:?}, spec.storageClassName asks for {class:?}; a class \
                 cannot be changed: set it back, or move the data to a new resource"
            ),
        );
    }
    if Quantity::parse(&facts.request).is_some_and(|current| size < current) {
        return stalls(
            VOLUME_CANNOT_SHRINK,
            format!(
                "PersistentVolumeClaim {name} has {}, spec.volumeSize asks for {}; a volume cannot shrink: set it to {} \
                 or more, or move the data to a new resource",
                facts.request,
                size.canonical(),
                facts.request
            ),
        );
    }
    None
}

fn claim(name: &str, size: String, class: Option<&str>) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: named(name),
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".into()]),
            storage_class_name: class.map(Into::into),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), Text(size))])),
                ..VolumeResourceRequirements::default()
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}
