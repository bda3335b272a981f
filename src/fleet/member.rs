//! SHELL: one member. The new connection is proven before the old one stops, and the old one has stopped before the new one
//! starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use kube::runtime::events::{Event, EventType};
use kube::{Api, Client, Resource as _, ResourceExt};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connect::{Needs, connect, probe};
use super::decide::{self, Controllers, Probe};
use super::lifetime::{Lifetime, base64};
use super::run::Hub;
use super::seats::{Claimant, Seat};
use super::vet::vet;
use crate::api::Cluster;
use crate::api::cluster::{DeletionPolicy, KindCount};
use crate::api::common::Sensitive;
use crate::engine::backoff;
use crate::engine::child::MANAGER;
use crate::engine::meters::Meters;
use crate::engine::operator::Operator;
use crate::engine::reason;
use crate::engine::workload::{Blocked, Conditioned as _, Problem, Weight};
use crate::kinds;

/// On a `Cluster` while its member runs.
pub const FINALIZER: &str = "cluster.aiscope/stop";
/// How long the deletion of a `Cluster` waits for its workloads to go, if that is wanted.
const FAREWELL: Duration = Duration::from_mins(1);
/// How long reconciles under way may take to finish before their connection is closed.
const GRACE: Duration = Duration::from_secs(10);
/// How often counts are looked at, and at most written.
const COUNT: Duration = Duration::from_secs(5);
const FIRST: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_secs(30);

/// What is wanted of a member.
#[derive(Clone)]
pub(super) struct Wanted {
    pub cluster: Arc<Cluster>,
    /// The version of the Secret that it refers to, if there is one.
    pub secret: Option<String>,
}

/// What a connection was made from: when it changes, a new one is made.
#[derive(Clone, PartialEq)]
struct Source {
    generation: Option<i64>,
    labels: BTreeMap<String, String>,
    secret: Option<String>,
}

/// A member's controllers.
struct Running {
    source: Source,
    seat: String,
    gate: CancellationToken,
    stop: CancellationToken,
    task: JoinHandle<()>,
    client: Client,
    kinds: (Vec<ApiResource>, Vec<ApiResource>),
    counter: Box<dyn Fn() -> Vec<(String, [i64; 3])> + Send + Sync>,
    lifetime: Option<Lifetime>,
}

/// The task of one member.
pub(super) struct Member {
    hub: Arc<Hub>,
    wanted: watch::Receiver<Wanted>,
    me: Claimant,
    running: Option<Running>,
    probe: Probe,
    blocked: Option<Problem>,
    lifetime: Option<Lifetime>,
    failures: u32,
    tried: Option<Source>,
    ask: Instant,
    seat: Option<String>,
}

impl Member {
    pub(super) fn new(hub: Arc<Hub>, wanted: watch::Receiver<Wanted>) -> Self {
        let cluster = wanted.borrow().cluster.clone();
        let me = Claimant {
            created: cluster.creation_timestamp().map_or(0, |t| t.0.as_second()),
            uid: cluster.uid().unwrap_or_default(),
            name: format!("Cluster {}", cluster.name_any()),
        };
        Self {
            hub,
            wanted,
            me,
            running: None,
            probe: Probe::default(),
            blocked: None,
            lifetime: None,
            failures: 0,
            tried: None,
            ask: Instant::now(),
            seat: None,
        }
    }

    /// Runs until `stop`, or until the `Cluster` is gone; the controllers have stopped when it returns.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut seats = self.hub.seats.subscribe();
        loop {
            let Wanted { cluster, secret } = self.wanted.borrow_and_update().clone();
            if cluster.metadata.deletion_timestamp.is_some() {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = self.farewell(&cluster) => {}
                }
                break self.leave(&cluster).await;
            }
            let mut wanted = self.wanted.clone();
            let turn = async {
                self.turn(&cluster, secret).await;
                self.report(&cluster).await;
            };
            // Whatever a turn waits for, it may be cut short: nothing is stopped or started halfway, see `swap`.
            tokio::select! {
                () = stop.cancelled() => break self.leave(&cluster).await,
                changed = wanted.changed() => match changed { Ok(()) => continue, Err(_) => break self.leave(&cluster).await },
                () = turn => {}
            }
            tokio::select! {
                () = stop.cancelled() => break self.leave(&cluster).await,
                changed = self.wanted.changed() => if changed.is_err() { break self.leave(&cluster).await },
                _ = seats.changed() => if self.running.is_none() { self.ask = Instant::now() },
                () = tokio::time::sleep_until(self.ask.min(Instant::now() + COUNT)) => {}
            }
        }
    }

    async fn turn(&mut self, cluster: &Cluster, secret: Option<String>) {
        if self.running.as_ref().is_some_and(|r| r.task.is_finished()) {
            tracing::error!(
                cluster = cluster.name_any(),
                "the controllers ended by themselves; they are started again"
            );
            self.halt().await;
        }
        if cluster.spec.paused == Some(true) {
            self.halt().await;
            (self.probe, self.blocked) = (Probe::default(), None);
            self.ask = Instant::now() + self.hub.options.period;
            return;
        }
        let source = Source { generation: cluster.metadata.generation, labels: cluster.labels().clone(), secret };
        let heir = self.running.as_ref().and_then(|r| self.hub.seats.heir(&r.seat, &self.me));
        if heir.is_some() {
            self.halt().await;
        }
        if let Some(running) = self.running.as_ref().filter(|r| r.source == source) {
            if Instant::now() >= self.ask {
                let needs = Needs {
                    resources: &running.kinds.0,
                    children: &running.kinds.1,
                    install: self.hub.options.install,
                };
                self.probe = probe(&running.client, needs).await;
                self.blocked = None;
                self.ask = Instant::now() + self.hub.options.period.mul_f64(0.9 + fastrand::f64() / 5.0);
            }
            self.put_finalizer(cluster).await;
            return;
        }
        // The same again waits for its time; anything new is tried at once.
        if self.failures > 0 && self.tried.as_ref() == Some(&source) && Instant::now() < self.ask {
            return;
        }
        if self.tried.as_ref() != Some(&source) {
            self.failures = 0;
        }
        self.tried = Some(source.clone());
        match self.swap(cluster, source).await {
            Ok(()) => (self.failures, self.blocked) = (0, None),
            Err(problem) => {
                self.failures += 1;
                self.blocked = problem;
            }
        }
        let wait = if self.failures == 0 {
            self.hub.options.period
        } else {
            backoff::delay(FIRST, CAP, self.failures, fastrand::f64())
        };
        self.ask = Instant::now() + wait;
    }

    /// Proves the new connection, stops the old one, starts the new. `Err(None)`: the probe says why not.
    async fn swap(&mut self, cluster: &Cluster, source: Source) -> Result<(), Option<Problem>> {
        let stalls = |b: Blocked| Some(Problem { weight: Weight::Stalls, reason: b.reason, message: b.message });
        let (chosen, platform) = decide::wanted(cluster, &self.hub.options.platform).map_err(stalls)?;
        let bytes = self.read(cluster).await.map_err(Some)?;
        let vetted = vet(&bytes, self.hub.options.allow_proxies, now()).map_err(stalls)?;
        drop(bytes);
        let gate = CancellationToken::new();
        // Shown only once this connection is the one in use: until then the old one's figures stand.
        let meters = Arc::new(Meters::new(&cluster.name_any()));
        let client = connect(vetted.kubeconfig, &meters, gate.clone()).await.map_err(stalls)?;
        let operator =
            Operator::new(client.clone(), Vec::new()).concurrency(self.hub.options.concurrency).meters(meters.clone());
        let platform = Arc::new(platform);
        let operator = chosen.iter().fold(operator, |operator, name| kinds::register_one(operator, name, &platform));
        let kinds = (operator.kinds().0.to_vec(), operator.kinds().1.to_vec());
        let install = self.hub.options.install;
        self.probe = probe(&client, Needs { resources: &kinds.0, children: &kinds.1, install }).await;
        let Some(seat) = self.probe.cluster.clone().filter(|_| self.probe.proven()) else {
            self.give_up_seat();
            return Err(None);
        };
        if self.running.as_ref().is_none_or(|r| r.seat != seat) {
            self.give_up_seat();
            match self.hub.seats.take(&seat, &self.me) {
                Seat::Taken => {}
                Seat::Awaited(other) => {
                    self.seat = Some(seat);
                    let message = format!("{other} is younger, leads to the same cluster, and stops there first");
                    return Err(Some(Problem { weight: Weight::Waits, reason: reason::DUPLICATE_MEMBER, message }));
                }
                Seat::Refused(other) => {
                    let message = format!("{other} is older and leads to the same cluster: delete one of them");
                    return Err(Some(Problem { weight: Weight::Stalls, reason: reason::DUPLICATE_MEMBER, message }));
                }
            }
        }
        self.seat = Some(seat.clone());
        if !self.put_finalizer(cluster).await {
            self.hub.seats.leave(&seat, &self.me);
            let message = "the Cluster itself cannot be written; it is tried again".into();
            return Err(Some(Problem { weight: Weight::Waits, reason: reason::REQUEST_FAILED, message }));
        }
        self.stop_running(Some(&seat)).await;
        self.lifetime = vetted.lifetime;
        let counter = Box::new(operator.counter());
        self.hub.options.metrics.show(&meters);
        let stop = CancellationToken::new();
        tracing::info!(cluster = cluster.name_any(), kinds = ?chosen, "starting the controllers of a member");
        let task = tokio::spawn(operator.run(stop.clone()));
        self.running =
            Some(Running { source, seat, gate, stop, task, client, kinds, counter, lifetime: vetted.lifetime });
        Ok(())
    }

    /// The kubeconfig's bytes.
    async fn read(&self, cluster: &Cluster) -> Result<Vec<u8>, Problem> {
        let connection = &cluster.spec.connection;
        let stalls = |reason, message: String| Problem { weight: Weight::Stalls, reason, message };
        match (Sensitive::given(connection.kubeconfig.as_ref()), &connection.secret_ref) {
            (Some(inline), None) => base64(inline).ok_or_else(|| {
                stalls(
                    reason::KUBECONFIG_INVALID,
                    "spec.connection.kubeconfig is not base64: encode the file once".into(),
                )
            }),
            (None, Some(named)) => {
                let namespace = &self.hub.options.namespace;
                let what = format!("Secret {namespace}/{}", named.name);
                let secret = Api::<Secret>::namespaced(self.hub.client.clone(), namespace).get_opt(&named.name).await;
                let secret = secret.map_err(|_| Problem {
                    weight: Weight::Waits,
                    reason: reason::REQUEST_FAILED,
                    message: format!("{what} cannot be read; it is tried again"),
                })?;
                let data = secret.and_then(|secret| secret.data).and_then(|mut data| data.remove(&named.key));
                data.map(|bytes| bytes.0).ok_or_else(|| {
                    stalls(reason::SECRET_MISSING, format!("{what} with the key {:?} is missing: create it", named.key))
                })
            }
            _ => Err(stalls(
                reason::INVALID_SPEC,
                "spec.connection: give exactly one of kubeconfig and secretRef".into(),
            )),
        }
    }

    /// Stops the controllers and gives up the seat.
    async fn halt(&mut self) {
        self.stop_running(None).await;
        self.give_up_seat();
    }

    /// Stops the controllers; afterwards no request of theirs is sent. `kept`: the seat that goes on to the next.
    async fn stop_running(&mut self, kept: Option<&str>) {
        // It stays in `self` until it has stopped: this may be cut short and called again.
        let Some(running) = self.running.as_mut() else { return };
        running.stop.cancel();
        if !running.task.is_finished() && tokio::time::timeout(GRACE, &mut running.task).await.is_err() {
            running.gate.cancel();
            running.task.abort();
            let _ = (&mut running.task).await;
        }
        running.gate.cancel();
        if kept != Some(running.seat.as_str()) {
            self.hub.seats.leave(&running.seat, &self.me);
        }
        self.running = None;
    }

    fn give_up_seat(&mut self) {
        // The seat of what runs is given up when that has stopped.
        if let Some(seat) = self.seat.take().filter(|seat| self.running.as_ref().is_none_or(|r| r.seat != *seat)) {
            self.hub.seats.leave(&seat, &self.me);
        }
    }

    /// Ends everything. A `Cluster` whose member does not run has no finalizer.
    async fn leave(mut self, cluster: &Cluster) {
        self.halt().await;
        for failures in 1..=5 {
            match self.finalizers(cluster, &[]).await {
                Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => return,
                Ok(()) => return,
                Err(_) => tokio::time::sleep(backoff::delay(FIRST, CAP, failures, fastrand::f64())).await,
            }
        }
        tracing::warn!(cluster = cluster.name_any(), "finalizer {FINALIZER} could not be removed");
    }

    /// Deletes the workloads, if that is wanted.
    async fn farewell(&mut self, cluster: &Cluster) {
        if cluster.spec.deletion_policy.unwrap_or_default() != DeletionPolicy::Delete || !finalized(cluster) {
            return;
        }
        if self.running.is_none() {
            // After a restart: nothing runs yet, and nothing has to.
            let source = Source { generation: cluster.metadata.generation, labels: BTreeMap::new(), secret: None };
            let _ = tokio::time::timeout(FAREWELL / 2, self.swap(cluster, source)).await;
        }
        let Some(running) = &self.running else { return self.let_go(cluster, "the member cannot be reached").await };
        match tokio::time::timeout(FAREWELL, delete_all(&running.client, &running.kinds.0)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => self.let_go(cluster, "the member refused, or cannot be reached").await,
            Err(_) => self.let_go(cluster, "they were not gone in time").await,
        }
    }

    async fn let_go(&self, cluster: &Cluster, why: &str) {
        let seconds = FAREWELL.as_secs();
        self.tell(cluster, "LetGo", format!("workloads may be left in the member after {seconds} s: {why}")).await;
    }

    async fn tell(&self, cluster: &Cluster, reason: &str, note: String) {
        let event = Event {
            type_: EventType::Warning,
            reason: reason.into(),
            note: Some(note),
            action: "Sync".into(),
            secondary: None,
        };
        // An event is a courtesy: its loss fails nothing.
        let _ = self.hub.recorder.publish(&event, &cluster.object_ref(&())).await;
    }

    /// Puts the finalizer on, before anything runs. Returns whether it is there.
    async fn put_finalizer(&self, cluster: &Cluster) -> bool {
        finalized(cluster) || self.finalizers(cluster, &[FINALIZER]).await.is_ok()
    }

    /// The finalizers that are ours; those of others stay, since server-side apply knows whose is which.
    async fn finalizers(&self, cluster: &Cluster, ours: &[&str]) -> kube::Result<()> {
        let mut body = json!({
            "apiVersion": Cluster::api_version(&()), "kind": Cluster::kind(&()),
            "metadata": { "name": cluster.name_any(), "uid": cluster.uid() },
        });
        if !ours.is_empty() {
            body["metadata"]["finalizers"] = json!(ours);
        }
        let api: Api<DynamicObject> = Api::all_with(self.hub.client.clone(), &ApiResource::erase::<Cluster>(&()));
        api.patch(&cluster.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(&body)).await.map(drop)
    }

    /// Writes the status, if it differs.
    async fn report(&self, cluster: &Cluster) {
        // A status that was written a moment ago is no news.
        let newest = self.wanted.borrow().cluster.clone();
        let same = newest.metadata.generation == cluster.metadata.generation;
        let cluster = if same { newest } else { Arc::new(cluster.clone()) };
        let counts = self.running.iter().flat_map(|running| (running.counter)());
        let counts =
            counts.map(|(kind, [total, ready, degraded])| KindCount { kind, total, ready, degraded }).collect();
        let current = |r: &Running| {
            Some(r.source.generation) == Some(cluster.metadata.generation)
                && self.blocked.is_none()
                && self.failures == 0
        };
        let controllers = match &self.running {
            None => Controllers::Stopped,
            Some(running) if current(running) => Controllers::Running,
            Some(_) => Controllers::Earlier,
        };
        let lifetime = self.running.as_ref().map_or(self.lifetime, |r| r.lifetime);
        let member =
            decide::Member { probe: self.probe.clone(), blocked: self.blocked.clone(), controllers, lifetime, counts };
        let status = decide::status(&cluster, &member, now());
        let old = cluster.status.clone().unwrap_or_default();
        if status == old {
            return;
        }
        let body = json!({
            "apiVersion": Cluster::api_version(&()), "kind": Cluster::kind(&()),
            "metadata": { "name": cluster.name_any(), "uid": cluster.uid() },
            "status": status,
        });
        let api: Api<DynamicObject> = Api::all_with(self.hub.client.clone(), &ApiResource::erase::<Cluster>(&()));
        let written =
            api.patch_status(&cluster.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(&body)).await;
        if let Err(error) = written {
            return tracing::debug!(cluster = cluster.name_any(), %error, "status not written; it is tried again");
        }
        for type_ in ["Degraded", reason::CREDENTIALS_EXPIRING] {
            let is = |all: &[_]| {
                all.iter()
                    .find(|c: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
                        c.type_ == type_ && c.status == "True"
                    })
                    .cloned()
            };
            if let Some(news) =
                is(status.conditions()).filter(|c| is(old.conditions()).is_none_or(|o| o.reason != c.reason))
            {
                self.tell(&cluster, &news.reason, news.message).await;
            }
        }
    }
}

fn finalized(cluster: &Cluster) -> bool {
    cluster.finalizers().iter().any(|f| f == FINALIZER)
}

/// Deletes every resource of these kinds and waits until the garbage collector has taken their children and them.
async fn delete_all(client: &Client, kinds: &[ApiResource]) -> kube::Result<()> {
    loop {
        let mut left = 0;
        for ar in kinds {
            let all: Api<DynamicObject> = Api::all_with(client.clone(), ar);
            for object in all.list_metadata(&ListParams::default()).await? {
                left += 1;
                if object.metadata.deletion_timestamp.is_some() {
                    continue;
                }
                let one: Api<DynamicObject> =
                    Api::namespaced_with(client.clone(), object.metadata.namespace.as_deref().unwrap_or_default(), ar);
                let preconditions = Preconditions { uid: object.metadata.uid.clone(), resource_version: None };
                let parameters =
                    DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
                match one
                    .delete(
                        object.metadata.name.as_deref().unwrap_or_default(),
                        &parameters.preconditions(preconditions),
                    )
                    .await
                {
                    Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => {}
                    other => drop(other?),
                }
            }
        }
        if left == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The one place of the fleet that reads the clock.
fn now() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "the shell's edge: everything below takes the time as an argument")]
    Timestamp::now()
}
