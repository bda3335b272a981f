//! SHELL: what the controllers of one cluster count, and what can be seen of them from outside.
//!
//! Counters are kept here. What is a matter of now (queues, conditions) is read from the controllers when somebody asks:
//! that costs no memory and is never out of step. [`crate::ops::metrics`] writes both as Prometheus reads them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use serde::Serialize;

use super::cluster::Cluster;
use super::status::condition::{DEGRADED, READY, STALLED};

/// Buckets of controller-runtime's `controller_runtime_reconcile_time_seconds`, fewer.
const RECONCILE_SECONDS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];
/// Buckets of controller-runtime's `workqueue_queue_duration_seconds`, fewer.
const QUEUE_SECONDS: [f64; 9] = [0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 300.0, 1000.0];
/// With work due and none begun or ended for this long, the controllers are stuck: a reconcile ends after two minutes.
const STUCK: Duration = Duration::from_mins(5);

/// The meters of one cluster's controllers, and the window to look at them. Give the same one to
/// [`super::operator::Operator::meters`] and to the cluster's client.
#[derive(Default)]
pub struct Meters {
    cluster: Box<str>,
    work: Mutex<BTreeMap<Box<str>, Arc<Work>>>,
    sent: Mutex<BTreeMap<Sent, u64>>,
    restarts: Mutex<BTreeMap<Box<str>, u64>>,
    running: Mutex<Weak<Cluster>>,
    broken: AtomicBool,
}

/// A sort of request to the API server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sent {
    /// The HTTP status of the reply; `None`: there was none.
    pub code: Option<u16>,
    /// The HTTP method.
    pub method: Arc<str>,
    /// Host and port.
    pub host: Arc<str>,
}

/// What one controller counts.
pub struct Work {
    /// Reconciles that left nothing to do.
    pub succeeded: Counter,
    /// Reconciles that named a time for the next one.
    pub revisits: Counter,
    /// Reconciles that failed and are tried again.
    pub failed: Counter,
    /// Reconciles that ended by a panic; counted as failed too.
    pub panics: Counter,
    /// Reconciles that were given up because they took too long; counted as failed too.
    pub timeouts: Counter,
    /// How long each took, seconds.
    pub took: Histogram,
    /// How long each was due before it began, seconds.
    pub waited: Histogram,
    /// Status writes.
    pub statuses: Counter,
    children: Mutex<BTreeMap<Box<str>, Children>>,
}

/// What a controller did to children of one kind, in objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// Server-side applies sent.
    pub applied: u64,
    /// Found as wanted: no request.
    pub unchanged: u64,
    /// Deleted, because no longer wanted.
    pub pruned: u64,
    /// Requests refused because the object was not as believed (409, or 404 on a change).
    pub conflicts: u64,
}

/// How many resources of a kind there are, and how they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub total: u64,
    /// How many have a condition True, by its type and reason.
    pub conditions: BTreeMap<(Box<str>, Box<str>), u64>,
    /// When the first of their certificates ends.
    pub certificate: Option<Timestamp>,
}

/// A controller's queue at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Resources that are due and wait.
    pub depth: u64,
    /// Resources ever due.
    pub added: u64,
    /// Reconciles under way.
    pub active: u64,
    /// The age of the oldest of them.
    pub longest: Duration,
    /// The ages of all of them together.
    pub unfinished: Duration,
    /// How many may be under way at once.
    pub slots: u64,
    /// Time since a reconcile began or ended; `None`: the controller has not begun to work.
    pub still: Option<Duration>,
}

/// How one resource stands, as `/debug/resources` shows it. Nothing of its spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Standing {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Status of the condition `Ready`.
    pub ready: Option<Box<str>>,
    /// Status of the condition `Degraded`.
    pub degraded: Option<Box<str>>,
    /// Reason of `Degraded` when that is True, else of `Ready`.
    pub reason: Option<Box<str>>,
    /// `metadata.generation`.
    pub generation: i64,
    /// The generation that the conditions speak of.
    pub observed_generation: Option<i64>,
    /// `waiting`, `due` or `running`.
    pub queue: &'static str,
    /// Reconciles that failed in a row; 0: the last one succeeded.
    pub failures: u32,
    /// Objects in the cluster that it controls.
    pub children: usize,
}

/// A controller, as those see it who look at it.
pub trait Inspect: Send + Sync {
    /// Its queue.
    fn load(&self, now: Instant) -> Load;
    /// Its resources, counted.
    fn tally(&self, cluster: &Cluster) -> Tally;
    /// Its resources, each.
    fn standings(&self, cluster: &Cluster) -> Vec<Standing>;
}

impl Meters {
    /// Meters for the cluster of this name; the empty name is the operator's own cluster.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self { cluster: cluster.into(), ..Self::default() }
    }

    /// The cluster's name.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The counters of a kind's controller.
    #[must_use]
    pub fn work(&self, kind: &str) -> Arc<Work> {
        locked(&self.work).entry(kind.into()).or_default().clone()
    }

    /// Counts a request.
    pub fn sent(&self, sent: Sent) {
        *locked(&self.sent).entry(sent).or_default() += 1;
    }

    /// Counts the break of a watch.
    pub fn restarted(&self, kind: &str) {
        *locked(&self.restarts).entry(kind.into()).or_default() += 1;
    }

    /// All requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<(Sent, u64)> {
        locked(&self.sent).iter().map(|(sent, count)| (sent.clone(), *count)).collect()
    }

    /// How often the watch of each kind broke and was begun anew.
    #[must_use]
    pub fn restarts(&self) -> Vec<(Box<str>, u64)> {
        locked(&self.restarts).iter().map(|(kind, count)| (kind.clone(), *count)).collect()
    }

    /// The counters of each kind's controller.
    #[must_use]
    pub fn works(&self) -> Vec<(Box<str>, Arc<Work>)> {
        locked(&self.work).iter().map(|(kind, work)| (kind.clone(), work.clone())).collect()
    }

    /// The queue of each kind's controller.
    #[must_use]
    pub fn loads(&self) -> Vec<(Box<str>, Load)> {
        self.each(|_, controller| controller.load(Instant::now()))
    }

    /// The resources of each kind, counted. Empty while the operator does not run.
    #[must_use]
    pub fn tallies(&self) -> Vec<(Box<str>, Tally)> {
        self.each(|cluster, controller| controller.tally(cluster))
    }

    /// The resources of each kind.
    #[must_use]
    pub fn standings(&self) -> Vec<(Box<str>, Vec<Standing>)> {
        self.each(|cluster, controller| controller.standings(cluster))
    }

    fn each<T>(&self, see: impl Fn(&Cluster, &dyn Inspect) -> T) -> Vec<(Box<str>, T)> {
        let Some(cluster) = locked(&self.running).upgrade() else { return Vec::new() };
        let mut all: Vec<(Box<str>, T)> =
            cluster.inspect().map(|(kind, one)| (kind.into(), see(&cluster, one))).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// What the caches still wait for; `None`: nothing, all are filled. An operator that only stands by fills them too.
    #[must_use]
    pub fn unsynced(&self) -> Option<String> {
        match locked(&self.running).upgrade() {
            None => Some("the controllers do not run".into()),
            Some(cluster) => cluster.unsynced(),
        }
    }

    /// Why the controllers do not get on, if they do not. Only a new process can help.
    #[must_use]
    pub fn stuck(&self) -> Option<String> {
        if self.broken.load(Ordering::Relaxed) {
            return Some("a controller or a watch ended by a panic".into());
        }
        stuck(&self.loads())
    }

    /// Part of the operator has ended for good.
    pub(super) fn broke(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// The controllers run now.
    pub(super) fn watch(&self, cluster: &Arc<Cluster>) {
        *locked(&self.running) = Arc::downgrade(cluster);
    }
}

/// The controllers share their slots: one that waits for the others is not stuck.
fn stuck(loads: &[(Box<str>, Load)]) -> Option<String> {
    let (kind, load) = loads.iter().find(|(_, load)| load.still.is_some() && load.depth + load.active > 0)?;
    let still = loads.iter().filter_map(|(_, load)| load.still).min()?;
    let words = format!("{} {kind} due, {} under way, and nothing moved for {still:?}", load.depth, load.active);
    (still > STUCK).then_some(words)
}

impl Default for Work {
    fn default() -> Self {
        Self {
            succeeded: Counter::default(),
            revisits: Counter::default(),
            failed: Counter::default(),
            panics: Counter::default(),
            timeouts: Counter::default(),
            took: Histogram::new(RECONCILE_SECONDS),
            waited: Histogram::new(QUEUE_SECONDS),
            statuses: Counter::default(),
            children: Mutex::default(),
        }
    }
}

impl Work {
    /// Counts something done to children of a kind.
    pub fn child(&self, kind: &str, count: impl FnOnce(&mut Children)) {
        count(locked(&self.children).entry(kind.into()).or_default());
    }

    /// What was done to children, by kind.
    #[must_use]
    pub fn children(&self) -> Vec<(Box<str>, Children)> {
        locked(&self.children).iter().map(|(kind, counts)| (kind.clone(), *counts)).collect()
    }
}

impl Tally {
    /// Counts a resource in.
    pub fn add(&mut self, conditions: &[Condition], certificate: Option<Timestamp>) {
        self.total += 1;
        for now in conditions.iter().filter(|c| c.status == "True") {
            *self.conditions.entry((now.type_.as_str().into(), now.reason.as_str().into())).or_default() += 1;
        }
        self.certificate = self.certificate.into_iter().chain(certificate).min();
    }

    /// How many are Ready.
    #[must_use]
    pub fn ready(&self) -> u64 {
        self.of(READY)
    }

    /// How many are Degraded.
    #[must_use]
    pub fn degraded(&self) -> u64 {
        self.of(DEGRADED)
    }

    /// How many are Stalled.
    #[must_use]
    pub fn stalled(&self) -> u64 {
        self.of(STALLED)
    }

    fn of(&self, type_: &str) -> u64 {
        self.conditions.iter().filter(|((t, _), _)| **t == *type_).map(|(_, count)| count).sum()
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meters").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn condition(type_: &str, status: &str, reason: &str) -> Condition {
        Condition {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: String::new(),
            observed_generation: None,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
        }
    }

    #[test]
    fn a_tally_counts_true_conditions_by_reason_and_keeps_the_first_certificate_to_end() {
        let mut tally = Tally::default();
        let at = |second| Timestamp::from_second(second).ok();
        tally.add(&[condition("Ready", "True", "Ready"), condition("Degraded", "True", "CertificateExpired")], at(9));
        tally.add(&[condition("Ready", "True", "Idle"), condition("Degraded", "False", "AsExpected")], at(3));
        tally.add(&[condition("Ready", "False", "Rejected"), condition("Stalled", "True", "Rejected")], None);
        assert_eq!((tally.total, tally.ready(), tally.degraded(), tally.stalled()), (3, 2, 1, 1));
        assert_eq!(tally.certificate, at(3));
    }

    #[test]
    fn controllers_are_stuck_only_when_work_is_due_and_none_of_them_moves() {
        let load = |depth, active, still: Option<u64>| Load {
            depth,
            active,
            still: still.map(Duration::from_mins),
            ..Load::default()
        };
        let stuck =
            |loads: &[Load]| stuck(&loads.iter().map(|load| ("Kind".into(), *load)).collect::<Vec<_>>()).is_some();
        assert!(stuck(&[load(1, 0, Some(6)), load(0, 0, Some(7))]), "due, and nobody moves");
        assert!(stuck(&[load(0, 1, Some(6))]), "under way for ever");
        assert!(!stuck(&[load(1, 0, Some(6)), load(0, 0, Some(1))]), "another one uses the slots");
        assert!(!stuck(&[load(0, 0, Some(60))]), "nothing to do");
        assert!(!stuck(&[load(9, 0, None)]), "it stands by");
    }
}
