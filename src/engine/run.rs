//! SHELL: the controller of one kind: its resources, its queue, and the driver that names the phases.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ApiResource;
use kube::runtime::events::Recorder;
use kube::runtime::watcher;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::ask;
use super::attempt::{attempt, judge};
use super::backoff;
use super::child::stamp;
use super::claims::Conflict;
use super::cluster::{Cluster, Wake};
use super::error::Error;
use super::hosts::Hosts;
use super::idle::{self, Stop, Verdict};
use super::meters::{Work, locked};
use super::owner::{self, Report, Undecodable};
use super::plan::Found;
use super::queue::{Key, Queue};
use super::status::condition::{DEGRADED, READY};
use super::watch::{Watch, follow};
use super::workload::{Blocked, Conditioned, Observed, Problem, Ref, Seen, Weight, Workload};

/// A reconcile that takes longer is given up and tried again.
const DEADLINE: Duration = Duration::from_mins(2);
/// The safety net under the watches. It costs no request when nothing differs.
const RESYNC: Duration = Duration::from_mins(10);
const FIRST: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_mins(5);

/// The controller of one kind in one cluster.
pub struct Controller<W: Workload> {
    pub(super) platform: Arc<W::Platform>,
    pub(super) recorder: Recorder,
    queue: Mutex<Queue>,
    woken: Notify,
    pub(super) turns: Mutex<Turns>,
    resources: Mutex<HashMap<Key, Known<W>>>,
    failures: Mutex<HashMap<Key, u32>>,
    /// When workloads with an idle timeout were last known to be used.
    used: Mutex<HashMap<Key, Timestamp>>,
}

/// The reconciles under way, as they are looked at from outside.
#[derive(Default)]
pub(super) struct Turns {
    /// Since when each runs.
    pub running: HashMap<Key, Instant>,
    /// When one began or ended, or the controller began to work.
    pub moved: Option<Instant>,
    /// How many may run at once.
    pub slots: usize,
}

/// A resource as the watch last told it.
pub(super) enum Known<W> {
    /// Decoded.
    Resource(Arc<W>),
    /// This version cannot decode it.
    Undecodable(Arc<Undecodable>),
}

/// What the cache knew at the time of a decision.
struct View {
    objects: Vec<Observed>,
    conflict: Option<Conflict>,
    hosts: Hosts,
}

/// When a resource is wanted again although nothing wakes it.
enum Next {
    /// It is gone.
    Gone,
    /// Nothing is left to do, until then at the latest.
    Settled(Option<Duration>),
    /// Something failed that only another try can mend.
    Retry,
}

impl<W: Workload> Wake for Controller<W> {
    fn wake(&self, key: Key) {
        // A resource that is not there has nothing to reconcile; it is queued when it appears.
        if self.resources().contains_key(&key) {
            self.enqueue(key);
        }
    }

    fn counts(&self) -> [i64; 3] {
        let resources = self.resources();
        let mut counts = [0; 3];
        for known in resources.values() {
            let Known::Resource(resource) = known else {
                // What cannot be decoded is told on the resource as Degraded.
                counts[0] += 1;
                counts[2] += 1;
                continue;
            };
            let is = |type_: &str| {
                let conditions = resource.status().map(Conditioned::conditions).unwrap_or_default();
                i64::from(conditions.iter().any(|c| c.type_ == type_ && c.status == "True"))
            };
            counts[0] += 1;
            counts[1] += is(READY);
            counts[2] += is(DEGRADED);
        }
        counts
    }

    fn rehost(&self, cluster: &Cluster, namespace: &str) {
        let here: Vec<Arc<W>> = self
            .resources()
            .values()
            .filter_map(|known| match known {
                Known::Resource(resource) if resource.namespace().as_deref() == Some(namespace) => {
                    Some(resource.clone())
                }
                _ => None,
            })
            .collect();
        for resource in here {
            self.claim(cluster, &resource);
            self.enqueue(owner::key(&*resource).key);
        }
    }
}

impl<W: Workload> Controller<W> {
    /// A controller that has nothing to do yet.
    #[must_use]
    pub fn new(platform: Arc<W::Platform>, recorder: Recorder) -> Arc<Self> {
        Arc::new(Self {
            platform,
            recorder,
            queue: Mutex::default(),
            woken: Notify::new(),
            turns: Mutex::default(),
            resources: Mutex::default(),
            failures: Mutex::default(),
            used: Mutex::default(),
        })
    }

    pub(super) fn resources(&self) -> MutexGuard<'_, HashMap<Key, Known<W>>> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enqueue(&self, key: Key) {
        self.queue().add(key, Instant::now());
        self.woken.notify_one();
    }

    /// Runs until `stop`, then waits for the reconciles under way. `slots` bounds how many run at once in the cluster.
    pub async fn run(self: Arc<Self>, cluster: Arc<Cluster>, slots: Arc<Semaphore>, stop: CancellationToken) {
        let mut watches = JoinSet::new();
        for scope in cluster.scopes() {
            let ar = ApiResource::erase::<W>(&());
            let watch = Watch { ar: ar.clone(), namespace: scope.clone(), config: watcher::Config::default() };
            let (controller, there, scope) = (self.clone(), cluster.clone(), scope.clone());
            let on = move |said| controller.said(&there, scope.as_deref(), said);
            watches.spawn(follow(cluster.client.clone(), watch, cluster.kick(&ar), cluster.meters.clone(), on));
        }
        let kinds = [W::owns(), W::refers(), vec![ApiResource::erase::<Namespace>(&())]].concat();
        tokio::select! {
            () = stop.cancelled() => return,
            () = async { cluster.listed(&kinds).await; cluster.may_act().await } => {}
        }
        let work = cluster.meters.work(&W::kind(&()));
        *locked(&self.turns) =
            Turns { moved: Some(Instant::now()), slots: slots.available_permits(), ..Turns::default() };
        let mut running = JoinSet::new();
        loop {
            while running.try_join_next().is_some() {}
            let next = self.queue().next(Instant::now());
            match next {
                Ok((key, due)) => {
                    let permit = tokio::select! {
                        () = stop.cancelled() => break,
                        permit = slots.clone().acquire_owned() => permit,
                    };
                    work.waited.observe(due.elapsed().as_secs_f64());
                    let (controller, cluster, work) = (self.clone(), cluster.clone(), work.clone());
                    running.spawn(async move {
                        let span = span::<W>(&key);
                        controller.turn(&cluster, &work, key).instrument(span).await;
                        drop(permit);
                    });
                }
                Err(at) => {
                    let until = at.map_or(RESYNC, |at| at.saturating_duration_since(Instant::now()));
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = self.woken.notified() => {}
                        () = tokio::time::sleep(until) => {}
                        Some(_) = running.join_next() => {}
                    }
                }
            }
        }
        while running.join_next().await.is_some() {}
    }

    /// One turn of one resource: reconcile within the deadline, then say when it is wanted again.
    async fn turn(self: &Arc<Self>, cluster: &Arc<Cluster>, work: &Work, key: Key) {
        let begun = self.began(&key);
        let (controller, there, wanted) = (self.clone(), cluster.clone(), key.clone());
        // A task of its own: a panic ends this reconcile, not the operator.
        // It ends with this turn, so that an operator that is aborted leaves nothing running.
        let task = tokio::spawn(async move { controller.reconcile(&there, &wanted).await }.in_current_span());
        let task = AbortOnDropHandle::new(task);
        let next = match tokio::time::timeout(DEADLINE, task).await {
            Ok(Ok(Ok(next))) => next,
            Ok(Ok(Err(error))) => {
                tracing::warn!(kind = %W::kind(&()), %key, error = %chain(&error), "reconcile failed; it is tried again");
                Next::Retry
            }
            Ok(Err(panic)) => {
                work.panics.inc();
                tracing::error!(kind = %W::kind(&()), %key, %panic, "reconcile ended by a panic; it is tried again");
                Next::Retry
            }
            Err(_) => {
                work.timeouts.inc();
                tracing::error!(kind = %W::kind(&()), %key, "reconcile took longer than {DEADLINE:?}; it is tried again");
                Next::Retry
            }
        };
        work.took.observe(begun.elapsed().as_secs_f64());
        match next {
            Next::Gone | Next::Settled(None) => &work.succeeded,
            Next::Settled(Some(_)) => &work.revisits,
            Next::Retry => &work.failed,
        }
        .inc();
        tracing::debug!(took = ?begun.elapsed(), "reconciled");
        self.ended(&key);
        let wait = self.wait(&key, &next);
        self.queue().done(&key, wait.map(|wait| Instant::now() + wait));
        self.woken.notify_one();
    }

    fn began(&self, key: &Key) -> Instant {
        let now = Instant::now();
        let mut turns = locked(&self.turns);
        turns.moved = Some(now);
        turns.running.insert(key.clone(), now);
        now
    }

    fn ended(&self, key: &Key) {
        let mut turns = locked(&self.turns);
        turns.moved = Some(Instant::now());
        turns.running.remove(key);
    }

    /// How often a resource's reconcile failed in a row.
    pub(super) fn failures(&self, key: &Key) -> u32 {
        locked(&self.failures).get(key).copied().unwrap_or_default()
    }

    fn wait(&self, key: &Key, next: &Next) -> Option<Duration> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match next {
            Next::Gone => {
                failures.remove(key);
                self.used().remove(key);
                None
            }
            Next::Settled(revisit) => {
                failures.remove(key);
                let resync = RESYNC.mul_f64(1.0 - fastrand::f64() / 10.0);
                Some(revisit.map_or(resync, |at| at.min(resync)))
            }
            Next::Retry => {
                let count = failures.entry(key.clone()).or_default();
                *count += 1;
                Some(backoff::delay(FIRST, CAP, *count, fastrand::f64()))
            }
        }
    }

    /// The driver: decide, act, judge, report.
    async fn reconcile(&self, cluster: &Cluster, key: &Key) -> Result<Next, Error> {
        let resource = match self.resources().get(key) {
            None => return Ok(Next::Gone),
            Some(Known::Undecodable(bad)) => Err(bad.clone()),
            Some(Known::Resource(resource)) => Ok(resource.clone()),
        };
        let now = now();
        let resource = match resource {
            Ok(resource) => resource,
            Err(bad) => {
                return bad.report(cluster, &ApiResource::erase::<W>(&()), now).await.map(|()| Next::Settled(None));
            }
        };
        owner::release(cluster, &*resource).await?;
        if resource.meta().deletion_timestamp.is_some() {
            return Ok(Next::Gone); // Owner references take the children along.
        }
        let view = self.view(cluster, &resource);
        let seen = Seen { objects: &view.objects, conflict: view.conflict.as_ref(), hosts: Some(&view.hosts), now };
        let desired = match resource.children(&seen, &self.platform) {
            Ok(desired) => stamp(&*resource, desired),
            Err(Blocked { reason, message }) => {
                let problem = Problem { weight: Weight::Stalls, reason, message };
                let report = Report { seen, live: None, problems: vec![problem], wrote: false };
                return self.report(cluster, &resource, report).await.map(|()| Next::Settled(None));
            }
        };
        let outcome = attempt(cluster, &*resource, &desired).await;
        if outcome.minted {
            return Ok(Next::Settled(Some(Duration::ZERO)));
        }
        let problems = [desired.problems.as_slice(), &outcome.problems, &judge(cluster, &*resource, &outcome.live)];
        let problems = problems.concat();
        let report = Report { seen, live: Some(outcome.live), problems, wrote: outcome.wrote };
        self.report(cluster, &resource, report).await?;
        if outcome.retry {
            return Ok(Next::Retry);
        }
        let asked = self.unused(cluster, key, now).await?;
        Ok(Next::Settled(desired.revisit.into_iter().chain(asked).min().map(|at| until(now, at))))
    }

    /// Stops a workload that nobody uses. Returns when to look again.
    async fn unused(&self, cluster: &Cluster, key: &Key, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        let resource = match self.resources().get(key) {
            Some(Known::Resource(resource)) => resource.clone(),
            _ => return Ok(None),
        };
        let conditions = resource.status().map(Conditioned::conditions).unwrap_or_default();
        let ready = conditions.iter().find(|c| c.type_ == READY && c.status == "True");
        let (Some(idle), Some(ready)) = (resource.idle(), ready) else { return Ok(None) };
        let used = self.used().get(key).copied();
        if let idle::Next::Later(at) = idle::next(idle.timeout, ready.last_transition_time.0, used, now) {
            // Spread, so that a thousand that were started together are not asked together.
            return Ok(Some(at.checked_add(idle.timeout / 10 * fastrand::i32(0..100) / 100).unwrap_or(at)));
        }
        let used = ask::last_used(&cluster.client, &key.namespace, &idle, now).await;
        match idle::judge(idle.timeout, used, now, fastrand::f64()) {
            Verdict::Unknown(at) => Ok(Some(at)),
            Verdict::Used(at) => {
                self.used().insert(key.clone(), at);
                Ok(Some(at.checked_add(idle.timeout).unwrap_or(Timestamp::MAX)))
            }
            Verdict::Stop => {
                let stop = Stop { at: now, generation: resource.meta().generation.unwrap_or_default() };
                // The stop is in the status before anything is stopped: it survives the end of this process.
                self.stop(cluster, &resource, stop, used.unwrap_or(now)).await?;
                Ok(Some(now))
            }
        }
    }

    fn used(&self) -> MutexGuard<'_, HashMap<Key, Timestamp>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the cache knows that bears on a resource.
    fn view(&self, cluster: &Cluster, resource: &W) -> View {
        let (namespace, name) = (resource.namespace().unwrap_or_default(), resource.name_any());
        let cache = cluster.cache();
        let named = resource.refs().into_iter().map(|Ref { ar, name }| (ar, name));
        let namesakes = W::owns().into_iter().map(|ar| (ar, name.clone()));
        let mut objects: Vec<Observed> = Vec::new();
        for (ar, name) in named.chain(namesakes) {
            if let Found::Present(summary, _) = cache.find(&ar, &namespace, &name) {
                objects.push(Observed { ar, name, summary: summary.clone() });
            }
        }
        for (ar, name, summary) in cache.owned(&resource.uid().unwrap_or_default(), &namespace) {
            objects.push(Observed { ar: ar.clone(), name: name.into(), summary: summary.clone() });
        }
        let claim = resource.claim(&self.platform);
        let conflict = claim.and_then(|claim| cache.claims.conflict(&owner::claimant(resource), &claim));
        View { objects, conflict, hosts: cache.hosts(&namespace).clone() }
    }
}

/// What every log line of one reconcile carries, in controller-runtime's words.
fn span<W: Workload>(key: &Key) -> tracing::Span {
    let id = format!("{:032x}", fastrand::u128(..));
    let controller = W::kind(&()).to_lowercase();
    tracing::info_span!("reconcile", controller, namespace = &*key.namespace, name = &*key.name, reconcileID = id)
}

/// The one place where the engine reads the clock.
fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "the shell's edge: everything below takes the time as an argument")]
    Timestamp::now()
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default() + FIRST
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |e| e.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
