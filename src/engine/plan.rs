//! PURE: from what is wanted and what is observed to the requests that make them equal; none when they are.

use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};

use super::child::{ChildSet, Desired, Want, retained_for};
use super::digest::{self, Digest};
use super::reason;
use super::summary::{Facts, Owner, Summary};
use super::workload::{Problem, Weight, Workload, describe};

/// What the cache knows of an object by kind and name.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// The API server does not serve the kind.
    KindMissing,
    /// The kind cannot be listed; the server's words.
    Unlisted(&'a str),
    /// No such object.
    Absent,
    /// The object, and what an apply of `Settled::desired` left in it.
    Present(&'a Summary, Option<Settled>),
}

/// Where the server rewrites a value (a Quantity), the live digest never equals the wanted one. So the pair that the
/// last apply left behind is remembered: as long as neither moves, an apply would change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The digest that was applied.
    pub desired: Digest,
    /// The digest of our fields that it left.
    pub live: Digest,
}

/// One request.
#[derive(Clone, Debug)]
pub enum Step {
    /// Apply an object that is not there: refused by the server if it is there after all.
    Create(Box<DynamicObject>, ApiResource),
    /// Apply over our own object, provided its uid is this one.
    Apply(Box<DynamicObject>, ApiResource, Box<str>),
    /// First make the fields of an earlier manager ours, then apply.
    TakeOver(Box<DynamicObject>, ApiResource, Box<str>),
    /// Apply a Secret with a value that is made up below this key; without a uid, it is not there.
    Mint(Box<DynamicObject>, ApiResource, String, Option<Box<str>>),
}

impl Step {
    /// The object that is written, and its kind.
    #[must_use]
    pub fn target(&self) -> (&DynamicObject, &ApiResource) {
        let (Self::Create(object, ar)
        | Self::Apply(object, ar, _)
        | Self::TakeOver(object, ar, _)
        | Self::Mint(object, ar, ..)) = self;
        (object, ar)
    }
}

/// Delete an object that is ours and no longer wanted, provided it is still the one we saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// Its kind.
    pub ar: ApiResource,
    /// Its name.
    pub name: String,
    /// Precondition.
    pub uid: Box<str>,
    /// Precondition.
    pub version: u64,
}

/// What to do for one resource.
#[derive(Debug, Default)]
pub struct Plan {
    /// In order.
    pub steps: Vec<Step>,
    /// After every step succeeded.
    pub prunes: Vec<Prune>,
    /// Why the plan is not complete; then nothing is pruned.
    pub problems: Vec<Problem>,
}

/// Computes the plan. `owned` are the objects whose controller owner is this resource.
pub fn plan<'a, W: Workload>(
    owner: &W,
    desired: &ChildSet<Desired>,
    find: impl Fn(&ApiResource, &str) -> Found<'a>,
    owned: impl IntoIterator<Item = (&'a ApiResource, &'a str, &'a Summary)>,
) -> Plan {
    let mut plan = Plan::default();
    let mut missing: Vec<&ApiResource> = Vec::new();
    let mut held: Vec<(&str, &str)> = Vec::new();
    for child in &desired.items {
        let Some(object) = child.object() else { continue };
        if child.needs.iter().any(|(kind, name)| held.contains(&(kind, name))) {
            held.push((&child.ar.kind, &child.name));
            continue;
        }
        match find(&child.ar, &child.name) {
            Found::KindMissing if missing.contains(&&child.ar) => {}
            Found::KindMissing => missing.push(&child.ar),
            found => match step(owner, child, object, found) {
                Ok(step) => {
                    // What uses the value is decided when it is there.
                    held.extend(matches!(step, Some(Step::Mint(..))).then_some((&*child.ar.kind, &*child.name)));
                    plan.steps.extend(step);
                }
                Err(problem) => {
                    held.push((&child.ar.kind, &child.name));
                    plan.problems.push(problem);
                }
            },
        }
    }
    plan.problems.extend((!missing.is_empty()).then(|| kind_missing(&missing)));
    if plan.problems.is_empty() && !plan.mints() {
        let uid = owner.uid().unwrap_or_default();
        let orphans = owned.into_iter().filter(|(ar, name, summary)| {
            let wanted =
                desired.items.iter().any(|d| d.name == **name && d.ar.kind == ar.kind && d.ar.group == ar.group);
            !wanted && !summary.deleting && controls(&uid, summary) && summary.label.as_deref() == Some(&uid)
        });
        plan.prunes = orphans
            .map(|(ar, name, summary)| Prune {
                ar: ar.clone(),
                name: name.into(),
                uid: summary.uid.clone(),
                version: summary.version,
            })
            .collect();
    }
    plan
}

impl Plan {
    /// A value is made up, so that the children have to be decided anew.
    #[must_use]
    pub fn mints(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Mint(..)))
    }
}

/// `uid` is the object's controller owner.
#[must_use]
pub fn controls(uid: &str, summary: &Summary) -> bool {
    matches!(&summary.owner, Owner::Controller { uid: owner, .. } if **owner == *uid)
}

fn step<W: Workload>(
    owner: &W,
    child: &Desired,
    object: &DynamicObject,
    found: Found<'_>,
) -> Result<Option<Step>, Problem> {
    let (ar, boxed) = (&child.ar, || Box::new(object.clone()));
    let (summary, settled) = match found {
        Found::Unlisted(words) => {
            return Err(problem(Weight::Fails, reason::REJECTED, format!("{} cannot be listed: {words}", ar.plural)));
        }
        Found::KindMissing | Found::Absent => {
            return Ok(Some(match &child.want {
                Want::Minted(_, key) => Step::Mint(boxed(), ar.clone(), key.clone(), None),
                _ => Step::Create(boxed(), ar.clone()),
            }));
        }
        Found::Present(summary, settled) => (summary, settled),
    };
    standing(owner, ar, &object.name_any(), summary)?;
    if let Want::Minted(_, key) = &child.want {
        let there = matches!(&summary.facts, Facts::Secret(facts) if facts.keys.iter().any(|k| **k == **key));
        return Ok((!there).then(|| Step::Mint(boxed(), ar.clone(), key.clone(), Some(summary.uid.clone()))));
    }
    if summary.legacy {
        return Ok(Some(Step::TakeOver(boxed(), ar.clone(), summary.uid.clone())));
    }
    let noop = is_noop(summary, settled, digest::of_desired(object));
    Ok((!noop).then(|| Step::Apply(boxed(), ar.clone(), summary.uid.clone())))
}

/// Whether an apply of an object with the digest `wanted` would change nothing.
#[must_use]
pub fn is_noop(summary: &Summary, settled: Option<Settled>, wanted: Digest) -> bool {
    summary.digest.is_some_and(|live| live == wanted || settled == Some(Settled { desired: wanted, live }))
}

/// Whether an object of a child's name may be written: it is ours, and stays.
fn standing<W: Workload>(owner: &W, ar: &ApiResource, name: &str, summary: &Summary) -> Result<(), Problem> {
    let uid = owner.uid().unwrap_or_default();
    let what = format!("{} {}/{name}", ar.kind, owner.namespace().unwrap_or_default());
    match &summary.owner {
        Owner::Controller { uid: theirs, .. } if **theirs == *uid => {}
        Owner::Retained(whom) if **whom == *retained_for(owner) => {}
        Owner::Controller { kind, name, .. } if **kind == *W::kind(&()) && **name == *owner.name_any() => {
            return Err(problem(
                Weight::Waits,
                reason::TERMINATING,
                format!("{what} belongs to an earlier {kind} of this name and is being garbage-collected"),
            ));
        }
        other => {
            let whose = match other {
                Owner::Controller { kind, name, .. } => format!("belongs to {kind} {name}"),
                _ => "was made by someone else".into(),
            };
            return Err(problem(
                Weight::Stalls,
                reason::NOT_OWNED,
                format!("{what} {whose} and is left alone: rename or delete it, or rename {}", describe(owner)),
            ));
        }
    }
    if summary.deleting {
        let message = format!("{what} is being deleted; it is made again when it is gone");
        return Err(problem(Weight::Waits, reason::TERMINATING, message));
    }
    Ok(())
}

fn kind_missing(kinds: &[&ApiResource]) -> Problem {
    let names: Vec<_> = kinds.iter().map(|ar| format!("{}.{} ({})", ar.plural, ar.group, ar.version)).collect();
    let message = format!(
        "the API server does not serve {}, so the route is not written: install the CRDs of this ingress controller, or run \
         the operator with another --ingress",
        names.join(", ")
    );
    problem(Weight::Stalls, reason::ROUTE_KIND_MISSING, message)
}

fn problem(weight: Weight, reason: &'static str, message: String) -> Problem {
    Problem { weight, reason, message }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::TrackingServer;
    use crate::engine::child::{MANAGER, OWNER_LABEL, stamp};
    use crate::engine::summary::summarize;

    type Secret = k8s_openapi::api::core::v1::Secret;
    type Claim = k8s_openapi::api::core::v1::PersistentVolumeClaim;

    fn owner() -> TrackingServer {
        let owner = json!({ "metadata": { "name": "a", "namespace": "n", "uid": "u" }, "spec": {} });
        serde_json::from_value(owner).unwrap()
    }

    fn secret() -> Secret {
        serde_json::from_value(json!({ "metadata": { "name": "s" }, "data": { "k": "eA==" } })).unwrap()
    }

    fn desired() -> ChildSet<Desired> {
        stamp(&owner(), ChildSet::new().with(&secret()))
    }

    /// The Secret as it is live after our apply, changed by a merge of `change`.
    fn live(change: Value) -> Summary {
        let mut object = json!({
            "metadata": {
                "name": "s", "namespace": "n", "uid": "s-uid", "resourceVersion": "7",
                "labels": { OWNER_LABEL: "u" },
                "ownerReferences": [{ "apiVersion": "experiment.aiscope/v1alpha2", "kind": "TrackingServer", "name": "a",
                    "uid": "u", "controller": true, "blockOwnerDeletion": true }],
                "managedFields": [{ "manager": MANAGER, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {
                    "f:metadata": { "f:labels": { format!("f:{OWNER_LABEL}"): {} }, "f:ownerReferences": { "k:{\"uid\":\"u\"}": {} } },
                    "f:data": { "f:k": {} },
                } }],
            },
            "data": { "k": "eA==" },
        });
        merge(&mut object, change);
        summarize(&ApiResource::erase::<Secret>(&()), &serde_json::from_value(object).unwrap(), &["controller-manager"])
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from,
        }
    }

    fn plan_with(found: Found<'_>, owned: &[(&str, &Summary)]) -> Plan {
        let ar = ApiResource::erase::<Secret>(&());
        plan(&owner(), &desired(), |_, _| found, owned.iter().map(|(name, summary)| (&ar, *name, *summary)))
    }

    #[test]
    fn nothing_is_done_when_nothing_differs() {
        let plan = plan_with(Found::Present(&live(json!({})), None), &[]);
        assert!(plan.steps.is_empty() && plan.prunes.is_empty() && plan.problems.is_empty(), "{plan:?}");
    }

    #[test]
    fn what_differs_is_applied_to_the_incarnation_that_was_seen() {
        let plan = plan_with(Found::Present(&live(json!({ "data": { "k": "eQ==" } })), None), &[]);
        assert!(matches!(&plan.steps[..], [Step::Apply(_, _, uid)] if **uid == *"s-uid"), "{plan:?}");
        let plan = plan_with(Found::Absent, &[]);
        assert!(matches!(&plan.steps[..], [Step::Create(..)]), "{plan:?}");
    }

    #[test]
    fn an_object_of_somebody_elses_is_never_written_and_holds_up_every_prune() {
        let orphan = live(json!({}));
        for refs in
            [json!(null), json!([{ "apiVersion": "v1", "kind": "X", "name": "a", "uid": "other", "controller": true }])]
        {
            let foreign = live(json!({ "metadata": { "ownerReferences": refs } }));
            let plan = plan_with(Found::Present(&foreign, None), &[("old", &orphan)]);
            assert!(plan.steps.is_empty() && plan.prunes.is_empty(), "{plan:?}");
            assert_eq!(plan.problems[0].reason, reason::NOT_OWNED);
        }
    }

    #[test]
    fn only_what_carries_our_label_and_our_uid_is_pruned_with_both_preconditions() {
        let (ours, current) = (live(json!({})), live(json!({})));
        let unlabelled = live(json!({ "metadata": { "labels": { OWNER_LABEL: "other" } } }));
        let going = live(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }));
        let owned = [("s", &current), ("old", &ours), ("unlabelled", &unlabelled), ("going", &going)];
        let plan = plan_with(Found::Present(&current, None), &owned);
        let ar = ApiResource::erase::<Secret>(&());
        assert_eq!(plan.prunes, [Prune { ar, name: "old".into(), uid: "s-uid".into(), version: 7 }]);
    }

    #[test]
    fn a_child_of_the_dead_and_a_dying_child_are_waited_for() {
        let of_the_dead =
            json!([{ "apiVersion": "v", "kind": "TrackingServer", "name": "a", "uid": "before", "controller": true }]);
        let dying = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        for change in [json!({ "metadata": { "ownerReferences": of_the_dead } }), dying] {
            let plan = plan_with(Found::Present(&live(change), None), &[]);
            assert!(plan.steps.is_empty(), "{plan:?}");
            assert_eq!((plan.problems[0].reason, plan.problems[0].weight), (reason::TERMINATING, Weight::Waits));
        }
    }

    #[test]
    fn fields_of_an_earlier_manager_are_taken_over_once() {
        let entry =
            json!({ "manager": "controller-manager", "operation": "Update", "fieldsV1": { "f:data": { "f:k": {} } } });
        assert!(!live(json!({})).legacy);
        let plan = plan_with(Found::Present(&live(json!({ "metadata": { "managedFields": [entry] } })), None), &[]);
        assert!(matches!(&plan.steps[..], [Step::TakeOver(..)]), "{plan:?}");
    }

    #[test]
    fn a_child_waits_for_one_that_it_needs_and_that_is_not_ours() {
        let claim: Claim = serde_json::from_value(json!({ "metadata": { "name": "c" } })).unwrap();
        let set = stamp(&owner(), ChildSet::new().with(&secret()).with(&claim).needing::<Secret>("s"));
        let foreign = live(json!({ "metadata": { "ownerReferences": null } }));
        let find = |ar: &ApiResource, _: &str| match ar.kind.as_str() {
            "Secret" => Found::Present(&foreign, None),
            _ => Found::Absent,
        };
        let plan = plan(&owner(), &set, find, []);
        assert!(plan.steps.is_empty() && plan.problems.len() == 1, "{plan:?}");
    }
}
