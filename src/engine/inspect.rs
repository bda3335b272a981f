//! SHELL: a controller as it is looked at from outside, from what it keeps anyway.

use std::time::Instant;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, ObjectMeta};

use super::cluster::Cluster;
use super::meters::{Inspect, Load, Standing, Tally, locked};
use super::plan::Found;
use super::queue::{Key, Place};
use super::run::{Controller, Known};
use super::status::condition::{DEGRADED, READY};
use super::summary::Facts;
use super::workload::{Conditioned, Workload};

impl<W: Workload> Inspect for Controller<W> {
    fn load(&self, now: Instant) -> Load {
        let (depth, added) = {
            let queue = self.queue();
            (queue.depth(now) as u64, queue.added())
        };
        let turns = locked(&self.turns);
        let ages = || turns.running.values().map(|since| now.saturating_duration_since(*since));
        Load {
            depth,
            added,
            active: turns.running.len() as u64,
            longest: ages().max().unwrap_or_default(),
            unfinished: ages().sum(),
            slots: turns.slots as u64,
            still: turns.moved.map(|moved| now.saturating_duration_since(moved)),
        }
    }

    fn tally(&self, cluster: &Cluster) -> Tally {
        let mut tally = Tally::default();
        for (key, known) in &*self.resources() {
            tally.add(&conditions(known), certificate(cluster, key));
        }
        tally
    }

    fn standings(&self, cluster: &Cluster) -> Vec<Standing> {
        let now = Instant::now();
        let mut all: Vec<Standing> = self
            .resources()
            .iter()
            .map(|(key, known)| {
                let meta = meta(known);
                let children = cluster.cache().owned(meta.uid.as_deref().unwrap_or_default(), &key.namespace).count();
                Standing {
                    queue: match self.queue().place(key, now) {
                        Some(Place::Running) => "running",
                        Some(Place::Due) => "due",
                        Some(Place::Waiting) => "waiting",
                        None => "none",
                    },
                    failures: self.failures(key),
                    ..standing(key, meta, &conditions(known), children)
                }
            })
            .collect();
        all.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        all
    }
}

fn standing(key: &Key, meta: &ObjectMeta, conditions: &[Condition], children: usize) -> Standing {
    let find = |type_: &str| conditions.iter().find(|c| c.type_ == type_);
    let (ready, degraded) = (find(READY), find(DEGRADED));
    let speaking = degraded.filter(|c| c.status == "True").or(ready);
    Standing {
        namespace: (*key.namespace).into(),
        name: (*key.name).into(),
        ready: ready.map(|c| c.status.as_str().into()),
        degraded: degraded.map(|c| c.status.as_str().into()),
        reason: speaking.map(|c| c.reason.as_str().into()),
        generation: meta.generation.unwrap_or_default(),
        observed_generation: ready.and_then(|c| c.observed_generation),
        queue: "none",
        failures: 0,
        children,
    }
}

fn meta<W: Workload>(known: &Known<W>) -> &ObjectMeta {
    match known {
        Known::Resource(resource) => resource.meta(),
        Known::Undecodable(bad) => &bad.meta,
    }
}

fn conditions<W: Workload>(known: &Known<W>) -> Vec<Condition> {
    match known {
        Known::Resource(resource) => resource.status().map(|s| s.conditions().to_vec()).unwrap_or_default(),
        Known::Undecodable(bad) => serde_json::from_value(bad.status["conditions"].clone()).unwrap_or_default(),
    }
}

/// When the certificate in the Secret of a resource's name ends: its route uses that one, whoever made it.
fn certificate(cluster: &Cluster, key: &Key) -> Option<Timestamp> {
    let cache = cluster.cache();
    let Found::Present(summary, _) = cache.find(&ApiResource::erase::<Secret>(&()), &key.namespace, &key.name) else {
        return None;
    };
    match &summary.facts {
        Facts::Secret(facts) => facts.certificate.as_ref()?.as_ref().ok().map(|certificate| certificate.not_after),
        _ => None,
    }
}
