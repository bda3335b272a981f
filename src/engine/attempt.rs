//! SHELL: one attempt to make the children of a resource what they should be: plan, act, look again.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::ApiResource;

use super::cache::Address;
use super::child::{ChildSet, Desired, Live};
use super::cluster::Cluster;
use super::digest;
use super::error::Error;
use super::meters::Work;
use super::plan::{Found, Plan, Settled, Step, plan};
use super::workload::{Problem, Workload};
use super::{act as request, owner, status};

/// How often a reconcile looks again when an object was not what the cache said.
const ROUNDS: u32 = 3;

/// What one attempt came to.
pub(super) struct Outcome {
    pub live: ChildSet<Live>,
    pub problems: Vec<Problem>,
    /// Something was written.
    pub wrote: bool,
    /// Something failed that only another try can mend.
    pub retry: bool,
    /// A value was made up; what uses it was held back until the next decision.
    pub minted: bool,
}

/// Plans and acts until nothing is left to do, and looks again when an object was not what the cache said.
pub(super) async fn attempt<W: Workload>(cluster: &Cluster, resource: &W, desired: &ChildSet<Desired>) -> Outcome {
    let namespace = resource.namespace().unwrap_or_default();
    let mut outcome =
        Outcome { live: ChildSet::default(), problems: Vec::new(), wrote: false, retry: false, minted: false };
    let work = cluster.meters.work(&W::kind(&()));
    for round in 1..=ROUNDS {
        let plan = todo(cluster, resource, desired);
        outcome.problems.clone_from(&plan.problems);
        match act(cluster, &work, &namespace, &plan, &mut outcome).await {
            Ok(()) => {
                outcome.minted = plan.mints();
                break;
            }
            Err(error) if error.is_surprise() && round < ROUNDS => {}
            Err(error) => {
                outcome.problems.push(error.problem());
                outcome.retry = true;
                break;
            }
        }
    }
    if !outcome.wrote && !outcome.retry {
        for child in &desired.items {
            work.child(&child.ar.kind, |count| count.unchanged += 1);
        }
    }
    outcome.live = live(cluster, &namespace, desired);
    outcome
}

/// The plan as the cache stands, and what the resource waits for.
fn todo<W: Workload>(cluster: &Cluster, resource: &W, desired: &ChildSet<Desired>) -> Plan {
    let namespace = resource.namespace().unwrap_or_default();
    let uid = resource.uid().unwrap_or_default();
    let mut cache = cluster.cache();
    let plan = {
        let find = |ar: &ApiResource, name: &str| cache.find(ar, &namespace, name);
        plan(resource, desired, find, cache.owned(&uid, &namespace))
    };
    let address = |kind: &str, name: &str| -> Address { (kind.into(), namespace.as_str().into(), name.into()) };
    let mut interests: BTreeSet<Address> = resource.refs().iter().map(|r| address(&r.ar.kind, &r.name)).collect();
    if !plan.problems.is_empty() {
        interests.extend(desired.items.iter().map(|d| address(&d.ar.kind, &d.name)));
    }
    cache.set_interests(&Arc::new(owner::key(resource)), interests.into_iter().collect());
    plan
}

/// Performs the plan's steps; prunes only when every one succeeded and none was held back.
async fn act(cluster: &Cluster, work: &Work, namespace: &str, plan: &Plan, outcome: &mut Outcome) -> Result<(), Error> {
    let mut first_error = None;
    for step in &plan.steps {
        let kind = &step.target().1.kind;
        work.child(kind, |count| count.applied += 1);
        match perform(cluster, namespace, step).await {
            Ok(()) => outcome.wrote = true,
            // The other children do not depend on this one's success.
            Err(error) => {
                work.child(kind, |count| count.conflicts += u64::from(error.is_surprise()));
                first_error = first_error.or(Some(error));
            }
        }
    }
    if let Some(error) = first_error {
        return Err(error);
    }
    for prune in &plan.prunes {
        let pruned = request::prune(&cluster.client, namespace, prune).await;
        refresh(cluster, namespace, &prune.ar, &prune.name).await?;
        let surprise = pruned.as_ref().is_err_and(Error::is_surprise);
        work.child(&prune.ar.kind, |count| {
            count.pruned += u64::from(pruned.is_ok());
            count.conflicts += u64::from(surprise);
        });
        pruned?;
        outcome.wrote = true;
    }
    Ok(())
}

async fn perform(cluster: &Cluster, namespace: &str, step: &Step) -> Result<(), Error> {
    let (object, ar) = step.target();
    let name = object.name_any();
    match request::perform(&cluster.client, namespace, step, &cluster.legacy).await {
        Ok(applied) => {
            let summary = cluster.learn(ar, &applied, true);
            let desired = digest::of_desired(object);
            let live = summary.digest.filter(|live| *live != desired && !matches!(step, Step::Mint(..)));
            if let Some(live) = live {
                cluster.cache().settle(ar, namespace, &name, Settled { desired, live });
            }
            Ok(())
        }
        Err(error) => {
            if error.is_surprise() {
                refresh(cluster, namespace, ar, &name).await?;
            }
            Err(error)
        }
    }
}

/// What the live children still wait for.
pub(super) fn judge<W: Workload>(cluster: &Cluster, resource: &W, live: &ChildSet<Live>) -> Vec<Problem> {
    let cache = cluster.cache();
    let pods = cache.pod_words(&resource.uid().unwrap_or_default());
    status::judge(live, pods, |claim| cache.volume_words(claim))
}

/// Reads one object anew into the cache, because it was not what the cache said.
async fn refresh(cluster: &Cluster, namespace: &str, ar: &ApiResource, name: &str) -> Result<(), Error> {
    match request::look(&cluster.client, namespace, ar, name).await? {
        Some(object) => drop(cluster.learn(ar, &object, true)),
        None => drop(cluster.cache().remove(ar, namespace, name, None)),
    }
    Ok(())
}

/// The wanted children as they stand.
fn live(cluster: &Cluster, namespace: &str, desired: &ChildSet<Desired>) -> ChildSet<Live> {
    let cache = cluster.cache();
    let items = desired.items.iter().map(|child| {
        let summary = match cache.find(&child.ar, namespace, &child.name) {
            Found::Present(summary, _) => Some(summary.clone()),
            _ => None,
        };
        Live { ar: child.ar.clone(), name: child.name.clone(), summary }
    });
    ChildSet { items: items.collect(), settled: desired.settled.clone(), ..ChildSet::default() }
}
