//! SHELL: puts the kinds of one cluster together and runs them.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Client;
use kube::api::ApiResource;
use kube::runtime::events::{Recorder, Reporter};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::child::MANAGER;
use super::cluster::{Cluster, Wake};
use super::hosts::Hosts;
use super::meters::Meters;
use super::run::Controller;
use super::workload::Workload;

/// How many resources are reconciled at once unless told otherwise: enough to keep the API server busy.
pub const CONCURRENCY: usize = 16;

type Start = Box<dyn FnOnce(Arc<Cluster>, Arc<Semaphore>, CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// The controllers of one cluster.
///
/// *Guarantees.* Every child of every resource converges to what [`Workload::children`] says, whatever fails on the
/// way; nothing that is not the resource's own is written or deleted; nothing is requested when nothing differs.
/// *Assumptions.* One operator acts on a cluster at a time; it may list and watch what the kinds own, and Secrets.
pub struct Operator {
    client: Client,
    scopes: Vec<Option<String>>,
    concurrency: usize,
    hosts: Hosts,
    meters: Arc<Meters>,
    gate: Option<watch::Receiver<bool>>,
    children: Vec<ApiResource>,
    resources: Vec<ApiResource>,
    legacy: Vec<&'static str>,
    controllers: HashMap<Box<str>, Arc<dyn Wake>>,
    starts: Vec<Start>,
}

impl Operator {
    /// An operator without kinds, for these namespaces (none: all).
    #[must_use]
    pub fn new(client: Client, namespaces: Vec<String>) -> Self {
        let scopes = if namespaces.is_empty() { vec![None] } else { namespaces.into_iter().map(Some).collect() };
        Self {
            client,
            scopes,
            concurrency: CONCURRENCY,
            hosts: Hosts::default(),
            meters: Arc::default(),
            gate: None,
            children: vec![ApiResource::erase::<Secret>(&())],
            resources: Vec::new(),
            legacy: Vec::new(),
            controllers: HashMap::new(),
            starts: Vec::new(),
        }
    }

    /// How many resources are reconciled at once.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// The hosts that resources of a namespace without the annotation [`super::hosts::ANNOTATION`] may name; else any.
    #[must_use]
    pub fn hosts(mut self, hosts: Hosts) -> Self {
        self.hosts = hosts;
        self
    }

    /// What counts, and shows how the resources are.
    #[must_use]
    pub fn meters(mut self, meters: Arc<Meters>) -> Self {
        self.meters = meters;
        self
    }

    /// Acts only once this is true: until then it watches and fills its caches, and neither writes nor asks anything.
    /// It does not stop when this turns false again: whoever loses the right to act ends the process.
    #[must_use]
    pub fn when(mut self, open: watch::Receiver<bool>) -> Self {
        self.gate = Some(open);
        self
    }

    /// Adds a kind.
    #[must_use]
    pub fn with<W: Workload>(mut self, platform: Arc<W::Platform>) -> Self {
        for ar in W::owns() {
            if !self.children.contains(&ar) {
                self.children.push(ar);
            }
        }
        self.resources.push(ApiResource::erase::<W>(&()));
        self.legacy
            .extend(W::legacy().managers.iter().filter(|m| !self.legacy.contains(m)).copied().collect::<Vec<_>>());
        let reporter = Reporter { controller: MANAGER.into(), instance: None };
        let controller = Controller::<W>::new(platform, Recorder::new(self.client.clone(), reporter));
        self.controllers.insert(W::kind(&()).into(), controller.clone());
        self.starts.push(Box::new(move |cluster, slots, stop| controller.run(cluster, slots, stop).boxed()));
        self
    }

    /// The kinds of resources that it looks after, and the kinds of their children.
    #[must_use]
    pub fn kinds(&self) -> (&[ApiResource], &[ApiResource]) {
        (&self.resources, &self.children)
    }

    /// Counts the resources of each kind while it runs: all, Ready, Degraded.
    pub fn counter(&self) -> impl Fn() -> Vec<(String, [i64; 3])> + Send + Sync + 'static {
        let controllers: Vec<_> =
            self.resources.iter().filter_map(|ar| self.controllers.get_key_value(&*ar.kind)).collect();
        let controllers: Vec<_> = controllers.into_iter().map(|(kind, c)| (kind.to_string(), c.clone())).collect();
        move || controllers.iter().map(|(kind, controller)| (kind.clone(), controller.counts())).collect()
    }

    /// Runs until `stop`; reconciles under way are finished first.
    pub async fn run(self, stop: CancellationToken) {
        let kicked: Vec<_> = self.children.iter().chain(&self.resources).cloned().collect();
        let watched = kicked.iter().cloned().chain([ApiResource::erase::<Namespace>(&())]).collect();
        let cluster = Cluster::new(self.client, self.scopes, watched, self.legacy, self.controllers);
        cluster.cache().default_hosts = self.hosts;
        let cluster = Arc::new(cluster.kicking(kicked).with(self.meters.clone(), self.gate));
        self.meters.watch(&cluster);
        let slots = Arc::new(Semaphore::new(self.concurrency));
        let mut watches = JoinSet::new();
        cluster.start(&self.children, &mut watches);
        let mut controllers: JoinSet<()> =
            self.starts.into_iter().map(|start| start(cluster.clone(), slots.clone(), stop.clone())).collect();
        loop {
            let ended = tokio::select! {
                ended = controllers.join_next() => ended,
                Some(ended) = watches.join_next() => Some(ended),
            };
            match ended {
                None => break,
                Some(Ok(())) => {}
                Some(Err(panic)) => {
                    tracing::error!(%panic, "part of the operator has ended; only a new process can help");
                    self.meters.broke();
                }
            }
        }
        watches.shutdown().await;
    }
}
