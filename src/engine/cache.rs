//! PURE: what is known of the objects in a cluster. The watches and the replies to our own writes fill it.
//!
//! *Guarantees.* Of two states of an object the newer resourceVersion wins, so a watch that lags behind our own write
//! never takes it back. A relist removes what it did not name, except what we wrote while it ran.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use kube::api::ApiResource;

use super::claims::{Claimant, Claims};
use super::hosts::Hosts;
use super::plan::{Found, Settled};
use super::queue::Key;
use super::summary::{Facts, Owner, Summary};

/// Where a kind's watch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Not listed yet.
    Pending,
    /// Listed, and followed since.
    Done,
    /// The API server does not serve the kind.
    KindMissing,
    /// Never listed; the server's words.
    Refused(Box<str>),
}

/// What is known of the objects of all watched kinds.
#[derive(Debug, Default)]
pub struct Cache {
    kinds: Vec<Kind>,
    /// By uid of the controller owner: kind, namespace, name.
    owned: HashMap<Box<str>, BTreeSet<Place>>,
    /// Why pods do not run, by the owner label's value, then by name.
    pods: HashMap<Box<str>, Pods>,
    /// What events say of volume claims, by the claim's uid.
    volumes: HashMap<Box<str>, Box<str>>,
    /// Who wants to know of an object that it does not own: a referenced Secret, a foreign object in the way.
    interests: HashMap<Address, BTreeSet<Arc<OwnerKey>>>,
    /// The same, by who wants to know.
    interested: HashMap<Arc<OwnerKey>, Vec<Address>>,
    /// Resources by uid.
    owners: HashMap<Box<str>, Arc<OwnerKey>>,
    /// Kinds of resources: what they control makes no claim of its own.
    workloads: Vec<Box<str>>,
    /// Who serves which part of the URL space.
    pub claims: Claims,
    /// The hosts that a namespace without the annotation may name.
    pub default_hosts: Hosts,
    /// Those of the annotated namespaces.
    hosts: HashMap<Box<str>, Hosts>,
}

/// Index of a kind, namespace, name.
type Place = (usize, Box<str>, Box<str>);
/// A resource's pods: why each does not run.
type Pods = BTreeMap<Box<str>, Option<Box<str>>>;

/// A resource of any kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerKey {
    /// Its kind.
    pub kind: Box<str>,
    /// Its namespace and name.
    pub key: Key,
}

/// Kind, namespace and name of an object.
pub type Address = (Box<str>, Box<str>, Box<str>);

#[derive(Debug)]
struct Kind {
    ar: ApiResource,
    /// By scope (a namespace, or all).
    listings: BTreeMap<Option<String>, Listing>,
    objects: HashMap<Box<str>, HashMap<Box<str>, Entry>>,
    /// Written by us since the running relist began.
    written: HashSet<(Box<str>, Box<str>)>,
}

#[derive(Debug)]
struct Entry {
    summary: Summary,
    settled: Option<Settled>,
}

impl Cache {
    /// A cache for these kinds, each listed by these scopes (namespaces, or `None` for all), for resources of the kinds
    /// `workloads`.
    #[must_use]
    pub fn new(
        kinds: impl IntoIterator<Item = ApiResource>,
        scopes: &[Option<String>],
        workloads: impl IntoIterator<Item = String>,
    ) -> Self {
        let listings: BTreeMap<_, _> = scopes.iter().map(|s| (s.clone(), Listing::Pending)).collect();
        let kinds = kinds.into_iter().map(|ar| Kind {
            ar,
            listings: listings.clone(),
            objects: HashMap::new(),
            written: HashSet::new(),
        });
        let workloads = workloads.into_iter().map(Into::into).collect();
        Self { kinds: kinds.collect(), workloads, ..Self::default() }
    }

    fn index(&self, ar: &ApiResource) -> Option<usize> {
        self.kinds.iter().position(|k| k.ar.kind == ar.kind && k.ar.group == ar.group)
    }

    /// Every watch has listed, or is known not to be able to.
    #[must_use]
    pub fn complete(&self, kinds: &[ApiResource]) -> bool {
        kinds
            .iter()
            .filter_map(|ar| self.index(ar))
            .all(|i| !self.kinds[i].listings.values().any(|l| *l == Listing::Pending))
    }

    /// The first watch that has not listed, in words; `None`: all have, or their kinds are not served.
    #[must_use]
    pub fn unsynced(&self) -> Option<String> {
        self.kinds.iter().find_map(|kind| {
            kind.listings.values().find_map(|listing| match listing {
                Listing::Pending => Some(format!("{} is not listed yet", kind.ar.plural)),
                Listing::Refused(words) => Some(format!("{} cannot be listed: {words}", kind.ar.plural)),
                Listing::Done | Listing::KindMissing => None,
            })
        })
    }

    /// Sets where a kind's watch stands. Returns whether that is news.
    pub fn set_listing(&mut self, ar: &ApiResource, scope: Option<&str>, listing: Listing) -> bool {
        let Some(kind) = self.index(ar).map(|i| &mut self.kinds[i]) else { return false };
        let slot = kind.listings.entry(scope.map(Into::into)).or_insert(Listing::Pending);
        // A watch that breaks after it has listed keeps what it knows.
        if *slot == listing || (*slot == Listing::Done && matches!(listing, Listing::Refused(_))) {
            return false;
        }
        *slot = listing;
        true
    }

    /// A relist begins.
    pub fn begin(&mut self, ar: &ApiResource) {
        if let Some(i) = self.index(ar) {
            self.kinds[i].written.clear();
        }
    }

    /// A relist ended having named `seen`: removes and returns the rest of the scope.
    pub fn end(
        &mut self,
        ar: &ApiResource,
        scope: Option<&str>,
        seen: &HashSet<(Box<str>, Box<str>)>,
    ) -> Vec<(Box<str>, Box<str>, Summary)> {
        let Some(i) = self.index(ar) else { return Vec::new() };
        let kind = &self.kinds[i];
        let gone: Vec<_> = kind
            .objects
            .iter()
            .filter(|(namespace, _)| scope.is_none_or(|s| *s == ***namespace))
            .flat_map(|(namespace, names)| names.keys().map(|name| (namespace.clone(), name.clone())))
            .filter(|key| !seen.contains(key) && !kind.written.contains(key))
            .collect();
        gone.into_iter().filter_map(|(ns, name)| self.remove(ar, &ns, &name, None).map(|s| (ns, name, s))).collect()
    }

    /// Takes a state of an object, from a watch or from the reply to a write, unless a newer one is known. Returns the
    /// state it replaced, if that was another.
    pub fn insert(&mut self, ar: &ApiResource, namespace: &str, name: &str, summary: Summary, written: bool) -> Change {
        let Some(i) = self.index(ar) else { return Change::None };
        let key = (i, namespace.into(), name.into());
        let kind = &mut self.kinds[i];
        if written {
            kind.written.insert((namespace.into(), name.into()));
        }
        let names = kind.objects.entry(namespace.into()).or_default();
        let mut settled = None;
        let mut before = None;
        if let Some(old) = names.get(name) {
            if old.summary.version > summary.version || old.summary == summary {
                return Change::None;
            }
            settled = old.settled.filter(|_| old.summary.uid == summary.uid);
            before = Some(old.summary.clone());
        }
        self.link(&key, before.as_ref(), Some(&summary));
        let change = Change::of(before, &summary);
        self.kinds[i].objects.entry(namespace.into()).or_default().insert(name.into(), Entry { summary, settled });
        change
    }

    /// Removes an object; with `uid`, only that incarnation.
    pub fn remove(&mut self, ar: &ApiResource, namespace: &str, name: &str, uid: Option<&str>) -> Option<Summary> {
        let i = self.index(ar)?;
        let names = self.kinds[i].objects.get_mut(namespace)?;
        if uid.is_some_and(|uid| names.get(name).is_some_and(|e| *e.summary.uid != *uid)) {
            return None;
        }
        let entry = names.remove(name)?;
        if names.is_empty() {
            self.kinds[i].objects.remove(namespace);
        }
        self.volumes.remove(&entry.summary.uid);
        self.link(&(i, namespace.into(), name.into()), Some(&entry.summary), None);
        Some(entry.summary)
    }

    /// Remembers what an apply of `settled.desired` left behind.
    pub fn settle(&mut self, ar: &ApiResource, namespace: &str, name: &str, settled: Settled) {
        if let Some(i) = self.index(ar)
            && let Some(entry) = self.kinds[i].objects.get_mut(namespace).and_then(|names| names.get_mut(name))
        {
            entry.settled = Some(settled);
        }
    }

    /// Keeps the owner index and the claims of routes that others made in step.
    fn link(&mut self, key: &Place, before: Option<&Summary>, after: Option<&Summary>) {
        if let Some(Owner::Controller { uid, .. }) = before.map(|s| &s.owner)
            && let Some(set) = self.owned.get_mut(uid)
        {
            set.remove(key);
            if set.is_empty() {
                self.owned.remove(uid);
            }
        }
        if let Some(Owner::Controller { uid, .. }) = after.map(|s| &s.owner) {
            self.owned.entry(uid.clone()).or_default().insert(key.clone());
        }
        if let Some(Summary { facts: Facts::Route(_), uid, .. }) = before {
            self.claims.remove(uid);
        }
        // A route of a resource speaks through its resource, also one that an earlier controller made.
        if let Some(Summary { facts: Facts::Route(route), uid, created, owner, .. }) = after
            && !matches!(owner, Owner::Controller { kind, .. } if self.workloads.contains(kind))
        {
            let name = format!("{} {}/{}", self.kinds[key.0].ar.kind, key.1, key.2).into();
            let claimant = Claimant { created: *created, uid: uid.clone(), name };
            self.claims.set(&claimant, route.claims.iter().cloned().collect());
        }
    }

    /// Sets which objects a resource wants to know of.
    pub fn set_interests(&mut self, owner: &Arc<OwnerKey>, addresses: Vec<Address>) {
        if self.interested.get(owner).map_or(addresses.is_empty(), |old| *old == addresses) {
            return;
        }
        for address in self.interested.remove(owner).unwrap_or_default() {
            if let Some(set) = self.interests.get_mut(&address) {
                set.remove(owner);
                if set.is_empty() {
                    self.interests.remove(&address);
                }
            }
        }
        for address in &addresses {
            self.interests.entry(address.clone()).or_default().insert(owner.clone());
        }
        if !addresses.is_empty() {
            self.interested.insert(owner.clone(), addresses);
        }
    }

    /// Who wants to know of an object.
    #[must_use]
    pub fn interested(&self, kind: &str, namespace: &str, name: &str) -> Vec<Arc<OwnerKey>> {
        let address: Address = (kind.into(), namespace.into(), name.into());
        self.interests.get(&address).into_iter().flatten().cloned().collect()
    }

    /// Who wants to know of any object of a kind.
    #[must_use]
    pub fn interested_in(&self, kind: &str) -> Vec<Arc<OwnerKey>> {
        self.interests.iter().filter(|((k, _, _), _)| **k == *kind).flat_map(|(_, set)| set).cloned().collect()
    }

    /// A resource is there.
    pub fn set_owner(&mut self, uid: &str, owner: Arc<OwnerKey>) {
        self.owners.insert(uid.into(), owner);
    }

    /// A resource is gone: nobody asks on its behalf any more.
    pub fn remove_owner(&mut self, uid: &str) {
        if let Some(owner) = self.owners.remove(uid) {
            self.set_interests(&owner, Vec::new());
        }
        self.claims.remove(uid);
    }

    /// A resource by uid.
    #[must_use]
    pub fn owner(&self, uid: &str) -> Option<Arc<OwnerKey>> {
        self.owners.get(uid).cloned()
    }

    /// The resources that claim something on these hosts.
    #[must_use]
    pub fn claiming<'a>(&self, hosts: impl IntoIterator<Item = &'a str>) -> Vec<Arc<OwnerKey>> {
        hosts.into_iter().flat_map(|host| self.claims.on_host(host)).filter_map(|uid| self.owner(&uid)).collect()
    }

    /// The hosts that the resources of a namespace may name.
    #[must_use]
    pub fn hosts(&self, namespace: &str) -> &Hosts {
        self.hosts.get(namespace).unwrap_or(&self.default_hosts)
    }

    /// Sets a namespace's annotation (`None`: it has none, or is gone). Returns whether that is news.
    pub fn set_hosts(&mut self, namespace: &str, annotation: Option<&str>) -> bool {
        let before = self.hosts(namespace).clone();
        match annotation {
            Some(text) => drop(self.hosts.insert(namespace.into(), Hosts::read(text))),
            None => drop(self.hosts.remove(namespace)),
        }
        *self.hosts(namespace) != before
    }

    /// What is known of one object.
    #[must_use]
    pub fn find(&self, ar: &ApiResource, namespace: &str, name: &str) -> Found<'_> {
        let Some(kind) = self.index(ar).map(|i| &self.kinds[i]) else { return Found::KindMissing };
        if let Some(entry) = kind.objects.get(namespace).and_then(|names| names.get(name)) {
            return Found::Present(&entry.summary, entry.settled);
        }
        match kind.listings.get(&Some(namespace.into())).or_else(|| kind.listings.get(&None)) {
            Some(Listing::KindMissing) => Found::KindMissing,
            Some(Listing::Refused(words)) => Found::Unlisted(words),
            _ => Found::Absent,
        }
    }

    /// The objects in `namespace` whose controller owner is `uid`.
    pub fn owned<'a>(
        &'a self,
        uid: &str,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a ApiResource, &'a str, &'a Summary)> {
        let keys = self.owned.get(uid).into_iter().flatten();
        keys.filter(move |(_, ns, _)| **ns == *namespace).filter_map(|(i, ns, name)| {
            let kind = &self.kinds[*i];
            Some((&kind.ar, &**name, &kind.objects.get(ns)?.get(name)?.summary))
        })
    }

    /// Sets why a pod does not run (`None`: it does). Returns whether that is news.
    pub fn set_pod(&mut self, owner: &str, pod: &str, words: Option<Box<str>>) -> bool {
        self.pods.entry(owner.into()).or_default().insert(pod.into(), words.clone()) != Some(words)
    }

    /// A pod is gone.
    pub fn remove_pod(&mut self, owner: &str, pod: &str) {
        if let Some(pods) = self.pods.get_mut(owner) {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods.remove(owner);
            }
        }
    }

    /// A relist of pods begins: all of them are named anew.
    pub fn clear_pods(&mut self) {
        self.pods.clear();
    }

    /// Why the newest pod of a resource that does not run does not.
    #[must_use]
    pub fn pod_words(&self, owner: &str) -> Option<&str> {
        self.pods.get(owner)?.values().rev().find_map(|words| words.as_deref())
    }

    /// Sets what an event says of a volume claim.
    pub fn set_volume_words(&mut self, claim: &str, words: &str) -> bool {
        self.volumes.insert(claim.into(), words.into()).as_deref() != Some(words)
    }

    /// What the last event says of a volume claim.
    #[must_use]
    pub fn volume_words(&self, claim: &str) -> Option<&str> {
        self.volumes.get(claim).map(|w| &**w)
    }
}

/// What an insertion changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing that anybody looks at.
    None,
    /// Something; the state before, if there was one.
    Some(Option<Box<Summary>>),
}

impl Change {
    /// Versions alone are no news: a change of a field that nobody looks at wakes nobody.
    fn of(before: Option<Summary>, after: &Summary) -> Self {
        match before {
            Some(before) if (Summary { version: after.version, ..before.clone() }) == *after => Self::None,
            before => Self::Some(before.map(Box::new)),
        }
    }
}
