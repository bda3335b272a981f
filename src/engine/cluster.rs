//! SHELL: what all controllers of one cluster share: the client, the cache and the watches of children.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Event, Namespace, PersistentVolumeClaim, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cache::{Cache, Change, Listing, OwnerKey};
use super::child::OWNER_LABEL;
use super::hosts;
use super::meters::{Inspect, Meters};
use super::plan::Found;
use super::queue::Key;
use super::summary::{self, Facts, Owner, Summary};
use super::watch::{Broken, Kick, Said, Watch, follow, follow_crds};
use super::words;

/// One cluster, as every controller sees it.
pub struct Cluster {
    /// How to reach it.
    pub client: Client,
    /// Field managers of earlier controllers.
    pub legacy: Vec<&'static str>,
    scopes: Vec<Option<String>>,
    cache: Mutex<Cache>,
    controllers: HashMap<Box<str>, Arc<dyn Wake>>,
    kicks: HashMap<String, watch::Sender<u64>>,
    listed: watch::Sender<u64>,
    /// What is counted.
    pub meters: Arc<Meters>,
    gate: Option<watch::Receiver<bool>>,
}

/// A controller, as the watches see it.
pub trait Wake: Inspect {
    /// Reconciles a resource soon.
    fn wake(&self, key: Key);

    /// How many resources there are: all, Ready, Degraded.
    fn counts(&self) -> [i64; 3];

    /// The hosts that a namespace may name are others than before.
    fn rehost(&self, cluster: &Cluster, namespace: &str);
}

impl Cluster {
    /// A cluster whose `kinds` (of children and of resources) are watched in `scopes` (namespaces, or `None` for all).
    #[must_use]
    pub fn new(
        client: Client,
        scopes: Vec<Option<String>>,
        kinds: Vec<ApiResource>,
        legacy: Vec<&'static str>,
        controllers: HashMap<Box<str>, Arc<dyn Wake>>,
    ) -> Self {
        let workloads = controllers.keys().map(ToString::to_string);
        let cache = Cache::new(kinds, &scopes, workloads.collect::<Vec<_>>());
        let cache = Mutex::new(cache);
        let (kicks, listed) = (HashMap::new(), watch::Sender::new(0));
        Self { client, legacy, scopes, cache, controllers, kicks, listed, meters: Arc::default(), gate: None }
    }

    /// The cache, for a moment: never across an await.
    pub fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes a resource of any kind.
    pub fn wake(&self, owner: &OwnerKey) {
        if let Some(controller) = self.controllers.get(&owner.kind) {
            controller.wake(owner.key.clone());
        }
    }

    /// With these meters; nothing is acted upon until `gate` opens.
    #[must_use]
    pub fn with(self, meters: Arc<Meters>, gate: Option<watch::Receiver<bool>>) -> Self {
        Self { meters, gate, ..self }
    }

    /// Returns when the controllers may act.
    pub async fn may_act(&self) {
        if let Some(gate) = &self.gate
            && gate.clone().wait_for(|open| *open).await.is_err()
        {
            // Whoever could open it is gone.
            std::future::pending::<()>().await;
        }
    }

    /// The controllers, by kind.
    pub(super) fn inspect(&self) -> impl Iterator<Item = (&str, &dyn Inspect)> {
        self.controllers.iter().map(|(kind, controller)| (&**kind, &**controller as &dyn Inspect))
    }

    /// What the cache still waits for, in words.
    pub(super) fn unsynced(&self) -> Option<String> {
        self.cache().unsynced()
    }

    /// Returns when every watch of these kinds has listed, or is known not to be able to.
    pub async fn listed(&self, kinds: &[ApiResource]) {
        let mut changes = self.listed.subscribe();
        // The sender lives as long as `self`.
        let _ = changes.wait_for(|_| self.cache().complete(kinds)).await;
    }

    /// The namespaces watched, or `None` for all.
    #[must_use]
    pub fn scopes(&self) -> &[Option<String>] {
        &self.scopes
    }

    /// Changes when the kind's CRD appears or changes; of a kind without one, when any kind has listed.
    #[must_use]
    pub fn kick(&self, ar: &ApiResource) -> Kick {
        self.kicks.get(&crd_name(ar)).unwrap_or(&self.listed).subscribe()
    }

    /// Names the kinds whose watches are kicked when their CRD appears.
    #[must_use]
    pub fn kicking(mut self, kinds: impl IntoIterator<Item = ApiResource>) -> Self {
        self.kicks.extend(kinds.into_iter().map(|ar| (crd_name(&ar), watch::Sender::new(0))));
        self
    }

    /// Starts the watches of children, pods and volume events.
    pub fn start(self: &Arc<Self>, kinds: &[ApiResource], tasks: &mut JoinSet<()>) {
        for scope in &self.scopes {
            for ar in kinds {
                let watch = Watch { ar: ar.clone(), namespace: scope.clone(), config: watcher::Config::default() };
                let (cluster, ar, scope) = (self.clone(), ar.clone(), scope.clone());
                let (client, kick) = (self.client.clone(), self.kick(&ar));
                tasks.spawn(follow(client, watch, kick, self.meters.clone(), move |said| {
                    cluster.said(&ar, scope.as_deref(), &said);
                }));
            }
            let (cluster, all) = (self.clone(), scope.clone());
            let config = watcher::Config::default();
            // One namespace can be watched by name: a right to all of them is not needed.
            let config = scope.iter().fold(config, |config, name| config.fields(&format!("metadata.name={name}")));
            let watch = Watch { ar: ApiResource::erase::<Namespace>(&()), namespace: None, config };
            tasks.spawn(follow(
                self.client.clone(),
                watch,
                self.listed.subscribe(),
                self.meters.clone(),
                move |said| {
                    cluster.namespace(all.as_deref(), &said);
                },
            ));
            let cluster = self.clone();
            let config = watcher::Config::default().labels(OWNER_LABEL);
            let watch = Watch { ar: ApiResource::erase::<Pod>(&()), namespace: scope.clone(), config };
            let (client, kick) = (self.client.clone(), self.listed.subscribe());
            tasks.spawn(follow(client, watch, kick, self.meters.clone(), move |said| cluster.pod(said)));
            let cluster = self.clone();
            let fields = "involvedObject.kind=PersistentVolumeClaim,type=Warning";
            let config = watcher::Config::default().fields(fields);
            let watch = Watch { ar: ApiResource::erase::<Event>(&()), namespace: scope.clone(), config };
            let (client, kick) = (self.client.clone(), self.listed.subscribe());
            tasks.spawn(follow(client, watch, kick, self.meters.clone(), move |said| cluster.event(said)));
        }
        let cluster = self.clone();
        tasks.spawn(follow_crds(self.client.clone(), move |name| {
            if let Some(kick) = cluster.kicks.get(name) {
                kick.send_modify(|n| *n += 1);
            }
        }));
    }

    /// Takes in what the watch of a kind says of its objects.
    pub(super) fn said(&self, ar: &ApiResource, scope: Option<&str>, said: &Said) {
        match said {
            Said::Begin => self.cache().begin(ar),
            Said::Object(object) => drop(self.learn(ar, object, false)),
            Said::Gone(object) => {
                let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
                let uid = object.uid();
                let gone = self.cache().remove(ar, &namespace, &name, uid.as_deref());
                if let Some(summary) = gone {
                    self.tell(ar, &namespace, &name, None, Some(&summary));
                }
            }
            Said::End(named) => {
                self.vanish(ar, scope, named);
                self.listing(ar, scope, &Listing::Done);
            }
            Said::Broken(Broken::KindMissing) => {
                // A CRD that is removed takes its objects along.
                self.vanish(ar, scope, &HashSet::new());
                self.listing(ar, scope, &Listing::KindMissing);
            }
            Said::Broken(Broken::Refused(words)) => self.listing(ar, scope, &Listing::Refused(words.as_str().into())),
            Said::Broken(Broken::Unreachable(error)) => {
                tracing::warn!(kind = ar.kind, error, "watch broken; it is tried again");
            }
        }
    }

    /// Takes a state of a child into the cache and wakes whom it concerns. Returns its summary.
    pub fn learn(&self, ar: &ApiResource, object: &DynamicObject, written: bool) -> Summary {
        let summary = summary::summarize(ar, object, &self.legacy);
        self.note(ar, &object.namespace().unwrap_or_default(), &object.name_any(), &summary, written);
        summary
    }

    /// Takes a summary into the cache and wakes whom it concerns.
    pub(super) fn note(&self, ar: &ApiResource, namespace: &str, name: &str, summary: &Summary, written: bool) {
        let change = self.cache().insert(ar, namespace, name, summary.clone(), written);
        if let Change::Some(before) = change
            && !written
        {
            self.tell(ar, namespace, name, Some(summary), before.as_deref());
        }
    }

    /// Wakes whom a change concerns: owners, those who asked for this object, and neighbours of a changed route.
    fn tell(&self, ar: &ApiResource, namespace: &str, name: &str, after: Option<&Summary>, before: Option<&Summary>) {
        let states = || after.into_iter().chain(before);
        for summary in states() {
            if let Some(owner) = owner_of(summary, namespace) {
                self.wake(&owner);
            }
        }
        let mut others = self.cache().interested(&ar.kind, namespace, name);
        let claims = |s: Option<&Summary>| match s.map(|s| &s.facts) {
            Some(Facts::Route(route)) => route.claims.clone(),
            _ => Box::default(),
        };
        if claims(after) != claims(before) {
            let (new, old) = (claims(after), claims(before));
            let hosts = new.iter().chain(&old).map(|c| &*c.host);
            others.extend(self.cache().claiming(hosts));
        }
        for owner in others {
            self.wake(&owner);
        }
    }

    /// A list did not name these any more.
    fn vanish(&self, ar: &ApiResource, scope: Option<&str>, named: &HashSet<(Box<str>, Box<str>)>) {
        let gone = self.cache().end(ar, scope, named);
        for (namespace, name, summary) in gone {
            self.tell(ar, &namespace, &name, None, Some(&summary));
        }
    }

    /// A kind's watch stands elsewhere than before: those it held back have another go.
    fn listing(&self, ar: &ApiResource, scope: Option<&str>, listing: &Listing) {
        let mut cache = self.cache();
        if !cache.set_listing(ar, scope, listing.clone()) {
            return;
        }
        let waiting = cache.interested_in(&ar.kind);
        drop(cache);
        match listing {
            Listing::KindMissing => {
                tracing::info!(kind = ar.kind, group = ar.group, "the API server does not serve this kind");
            }
            Listing::Refused(words) => tracing::warn!(kind = ar.kind, error = &**words, "watch refused"),
            Listing::Pending | Listing::Done => tracing::debug!(kind = ar.kind, scope, "listed"),
        }
        self.listed.send_modify(|n| *n += 1);
        for owner in waiting {
            self.wake(&owner);
        }
    }

    /// Takes in what the watch of namespaces says: of each, only the annotation is kept. Without the right to watch them none
    /// counts as annotated. One that is gone has no resources left.
    fn namespace(&self, scope: Option<&str>, said: &Said) {
        let ar = ApiResource::erase::<Namespace>(&());
        match said {
            Said::Object(namespace) => {
                let name = namespace.name_any();
                let annotation = namespace.annotations().get(hosts::ANNOTATION);
                let news = self.cache().set_hosts(&name, annotation.map(String::as_str));
                if news {
                    for controller in self.controllers.values() {
                        controller.rehost(self, &name);
                    }
                }
            }
            Said::Gone(namespace) => drop(self.cache().set_hosts(&namespace.name_any(), None)),
            Said::End(_) => self.listing(&ar, scope, &Listing::Done),
            Said::Broken(Broken::Refused(words)) => self.listing(&ar, scope, &Listing::Refused(words.as_str().into())),
            Said::Broken(Broken::Unreachable(error)) => {
                tracing::warn!(kind = ar.kind, error, "watch broken; it is tried again");
            }
            Said::Begin | Said::Broken(Broken::KindMissing) => {}
        }
    }

    fn pod(&self, said: Said) {
        match said {
            Said::Begin => self.cache().clear_pods(),
            Said::Object(pod) => self.pod_state(&pod),
            Said::Gone(pod) => {
                if let Some(uid) = pod.labels().get(OWNER_LABEL) {
                    self.cache().remove_pod(uid, &pod.name_any());
                }
            }
            Said::End(_) | Said::Broken(_) => {}
        }
    }

    fn pod_state(&self, pod: &DynamicObject) {
        let Some(uid) = pod.labels().get(OWNER_LABEL) else { return };
        let words = words::of_pod(pod);
        let mut cache = self.cache();
        let owner = cache.owner(uid).filter(|o| Some(&*o.key.namespace) == pod.namespace().as_deref());
        if cache.set_pod(uid, &pod.name_any(), words.map(Into::into))
            && let Some(owner) = owner
        {
            drop(cache);
            self.wake(&owner);
        }
    }

    fn event(&self, said: Said) {
        let Said::Object(event) = said else { return };
        let about = &event.data["involvedObject"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (uid, name) = (text(&about["uid"]), text(&about["name"]));
        let words = format!("{}: {}", text(&event.data["reason"]), text(&event.data["message"]));
        let ar = ApiResource::erase::<PersistentVolumeClaim>(&());
        let mut cache = self.cache();
        let namespace = event.namespace().unwrap_or_default();
        let owner = match cache.find(&ar, &namespace, &name) {
            Found::Present(summary, _) => owner_of(summary, &namespace),
            _ => None,
        };
        let Some(owner) = owner else { return };
        if cache.set_volume_words(&uid, &words) {
            drop(cache);
            self.wake(&owner);
        }
    }
}

/// Whose child an object is, or was kept to be.
fn owner_of(summary: &Summary, namespace: &str) -> Option<OwnerKey> {
    let (kind, name) = match &summary.owner {
        Owner::Controller { kind, name, .. } => (&**kind, &**name),
        Owner::Retained(whom) => whom.split_once('/')?,
        Owner::Nobody => return None,
    };
    Some(OwnerKey { kind: kind.into(), key: Key::new(namespace, name) })
}

/// A CRD's name.
fn crd_name(ar: &ApiResource) -> String {
    format!("{}.{}", ar.plural, ar.group)
}
