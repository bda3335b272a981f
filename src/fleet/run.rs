//! SHELL: watches `Cluster`s and the Secrets they may refer to, and keeps one task for each member.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::member::{Member, Wanted};
use super::seats::{Claimant, Seats};
use crate::api::Cluster;
use crate::engine::child::MANAGER;
use crate::engine::meters::Meters;
use crate::engine::watch::{Broken, Said, Watch, follow};
use crate::kinds::Platform;
use crate::ops::metrics::Metrics;

/// How a fleet is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The operator's own namespace: Secrets of `Cluster`s are here.
    pub namespace: String,
    /// What members have in common with the hub unless they say otherwise.
    pub platform: Arc<Platform>,
    /// How many resources are reconciled at once in each member.
    pub concurrency: usize,
    /// Where the members' figures are shown, under their names.
    pub metrics: Metrics,
    /// CRDs are installed and updated in members.
    pub install: bool,
    /// Kubeconfigs may go through a proxy.
    pub allow_proxies: bool,
    /// How often a member is asked whether all is well.
    pub period: Duration,
}

impl Options {
    /// How often a member is asked unless told otherwise.
    pub const PERIOD: Duration = Duration::from_secs(30);
}

/// What the members have in common.
pub(super) struct Hub {
    pub client: Client,
    pub options: Options,
    pub seats: Seats,
    pub recorder: Recorder,
}

#[derive(Default)]
struct Known {
    members: HashMap<String, watch::Sender<Wanted>>,
    /// Versions of the Secrets, by name. Their content is read when it is needed.
    secrets: HashMap<String, String>,
    tasks: JoinSet<()>,
}

/// Runs until `stop`; every member is stopped before it returns.
pub async fn run(client: Client, options: Options, stop: CancellationToken) {
    let reporter = Reporter { controller: MANAGER.into(), instance: None };
    let hub = Arc::new(Hub {
        recorder: Recorder::new(client.clone(), reporter),
        seats: Seats::default(),
        options,
        client: client.clone(),
    });
    tokio::select! {
        () = stop.cancelled() => return,
        () = seat_of_hub(&hub) => {}
    }
    let meters = Arc::<Meters>::default();
    let known = Arc::new(Mutex::new(Known::default()));
    let kick = watch::Sender::new(0);
    let clusters =
        Watch { ar: ApiResource::erase::<Cluster>(&()), namespace: None, config: watcher::Config::default() };
    let on_cluster = {
        let (known, hub, stop) = (known.clone(), hub.clone(), stop.clone());
        move |said| known.lock().unwrap_or_else(PoisonError::into_inner).cluster(said, &hub, &stop)
    };
    let secrets = Watch {
        ar: ApiResource::erase::<Secret>(&()),
        namespace: Some(hub.options.namespace.clone()),
        config: watcher::Config::default(),
    };
    let on_secret = {
        let known = known.clone();
        move |said| known.lock().unwrap_or_else(PoisonError::into_inner).secret(said)
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = follow(client.clone(), clusters, kick.subscribe(), meters.clone(), on_cluster) => {}
        () = follow(client, secrets, kick.subscribe(), meters, on_secret) => {}
    }
    let mut tasks = std::mem::take(&mut known.lock().unwrap_or_else(PoisonError::into_inner).tasks);
    while tasks.join_next().await.is_some() {}
}

/// The hub's own cluster is taken: its controllers run already.
async fn seat_of_hub(hub: &Hub) {
    loop {
        match Api::<Namespace>::all(hub.client.clone()).get("kube-system").await {
            Ok(namespace) => {
                let _ = hub.seats.take(&namespace.uid().unwrap_or_default(), &Claimant::hub());
                return;
            }
            Err(error) => tracing::warn!(%error, "no member is connected before the hub has told which cluster it is"),
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

impl Known {
    fn cluster(&mut self, said: Said, hub: &Arc<Hub>, stop: &CancellationToken) {
        match said {
            Said::Begin | Said::Broken(Broken::Unreachable(_)) => {}
            Said::Object(object) => self.take(*object, hub, stop),
            // A member without its sender stops.
            Said::Gone(object) => drop(self.members.remove(&object.name_any())),
            Said::End(named) => {
                let named: HashSet<_> = named.into_iter().map(|(_, name)| name.to_string()).collect();
                self.members.retain(|name, _| named.contains(name));
            }
            Said::Broken(Broken::KindMissing) => {
                tracing::warn!("the CRD clusters.cluster.aiscope is not installed; waiting for it");
                self.members.clear();
            }
            Said::Broken(Broken::Refused(error)) => tracing::warn!(error, "Clusters cannot be watched"),
        }
        while self.tasks.try_join_next().is_some() {}
    }

    fn take(&mut self, object: DynamicObject, hub: &Arc<Hub>, stop: &CancellationToken) {
        let name = object.name_any();
        let cluster = match object.try_parse::<Cluster>() {
            Ok(cluster) => Arc::new(cluster),
            // The words of a decoder may quote the kubeconfig.
            Err(_) => {
                return tracing::warn!(
                    cluster = name,
                    "this Cluster cannot be decoded: install the CRD of this version"
                );
            }
        };
        let secret = self.version(&cluster);
        if let Some(sender) = self.members.get(&name).filter(|sender| sender.borrow().cluster.uid() == cluster.uid()) {
            sender.send_replace(Wanted { cluster, secret });
            return;
        }
        let (sender, wanted) = watch::channel(Wanted { cluster, secret });
        self.tasks.spawn(Member::new(hub.clone(), wanted).run(stop.clone()));
        self.members.insert(name, sender);
    }

    fn secret(&mut self, said: Said) {
        match said {
            Said::Object(secret) => {
                let version = secret.resource_version().unwrap_or_default();
                self.secrets.insert(secret.name_any(), version);
            }
            Said::Gone(secret) => drop(self.secrets.remove(&secret.name_any())),
            Said::End(named) => {
                let named: HashSet<_> = named.into_iter().map(|(_, name)| name.to_string()).collect();
                self.secrets.retain(|name, _| named.contains(name));
            }
            Said::Begin => return,
            Said::Broken(_) => {
                return tracing::warn!("Secrets of the operator's namespace cannot be watched; it is tried again");
            }
        }
        for sender in self.members.values() {
            let secret = self.version(&sender.borrow().cluster);
            sender.send_if_modified(|wanted| {
                let news = wanted.secret != secret;
                wanted.secret = secret;
                news
            });
        }
    }

    fn version(&self, cluster: &Cluster) -> Option<String> {
        let reference = cluster.spec.connection.secret_ref.as_ref()?;
        self.secrets.get(&reference.name).cloned()
    }
}
