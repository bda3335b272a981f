//! SHELL: one task for each watch, with its own backoff.
//!
//! kube-rs's `Controller` puts all watches under one backoff, so that one failing watch (a CRD that is not installed)
//! stalls everything (kube-rs#763); its shared streams lose wake-ups. Here a watch can only hold up itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};

use super::backoff;
use super::meters::Meters;

/// What to watch.
#[derive(Clone, Debug)]
pub struct Watch {
    /// The kind.
    pub ar: ApiResource,
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// Label and field selectors.
    pub config: watcher::Config,
}

/// What a watch says, in order.
#[derive(Debug)]
pub enum Said {
    /// A list begins.
    Begin,
    /// An object is there in this state.
    Object(Box<DynamicObject>),
    /// An object is gone; its last state.
    Gone(Box<DynamicObject>),
    /// A list ended; (namespace, name) of all it named.
    End(HashSet<(Box<str>, Box<str>)>),
    /// The watch is broken and will be tried again.
    Broken(Broken),
}

/// Why a watch is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The API server does not serve the kind: its CRD is not installed.
    KindMissing,
    /// The API server refused; its words.
    Refused(String),
    /// Anything that passes.
    Unreachable(String),
}

/// Counts the changes of a kind's CRD.
pub type Kick = tokio::sync::watch::Receiver<u64>;

const FIRST: Duration = Duration::from_millis(500);
const CAP: Duration = Duration::from_secs(30);

/// Follows a watch until the future is dropped. A change of `kick` (the kind's CRD has appeared or changed) ends a wait at
/// once. The same trouble is told once.
pub async fn follow(client: Client, watch: Watch, mut kick: Kick, meters: Arc<Meters>, mut on: impl FnMut(Said)) {
    let api: Api<DynamicObject> = match &watch.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &watch.ar),
        None => Api::all_with(client, &watch.ar),
    };
    let mut failures = 0;
    let mut told = None;
    loop {
        kick.mark_unchanged();
        // After an error the watcher lists anew, so a fresh one loses nothing.
        let mut events = std::pin::pin!(watcher(api.clone(), watch.config.clone()));
        let mut named = HashSet::new();
        let error = loop {
            match events.try_next().await {
                Ok(Some(watcher::Event::Init)) => {
                    named.clear();
                    on(Said::Begin);
                }
                Ok(Some(watcher::Event::InitApply(object))) => {
                    named.insert((object.namespace().unwrap_or_default().into(), object.name_any().into()));
                    on(Said::Object(Box::new(object)));
                }
                Ok(Some(watcher::Event::InitDone)) => {
                    failures = 0;
                    told = None;
                    on(Said::End(std::mem::take(&mut named)));
                }
                Ok(Some(watcher::Event::Apply(object))) => on(Said::Object(Box::new(object))),
                Ok(Some(watcher::Event::Delete(object))) => on(Said::Gone(Box::new(object))),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        failures += 1;
        meters.restarted(&watch.ar.kind);
        if let Some(error) = error {
            tracing::debug!(kind = watch.ar.kind, namespace = watch.namespace, %error, failures, "watch broken");
            let trouble = broken(&error);
            if told.as_ref() != Some(&trouble) {
                told = Some(trouble.clone());
                on(Said::Broken(trouble));
            }
        }
        let wait = backoff::delay(FIRST, CAP, failures, fastrand::f64());
        if let Ok(Ok(())) = tokio::time::timeout(wait, kick.changed()).await {
            failures = 0;
        }
    }
}

fn broken(error: &watcher::Error) -> Broken {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    let status = match error {
        InitialListFailed(kube::Error::Api(s))
        | WatchStartFailed(kube::Error::Api(s))
        | WatchFailed(kube::Error::Api(s))
        | WatchError(s) => s,
        other => return Broken::Unreachable(other.to_string()),
    };
    match status.code {
        404 => Broken::KindMissing,
        401 | 403 => Broken::Refused(status.message.clone()),
        _ => Broken::Unreachable(status.message.clone()),
    }
}

/// Tells when a CRD appears or changes, by `plural.group`. Without the right to watch CRDs it says nothing, and the
/// watches' own backoff has to do.
pub async fn follow_crds(client: Client, mut on: impl FnMut(&str)) {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::api::PartialObjectMeta;
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client);
    let mut failures = 0;
    loop {
        let mut events = watcher(api.clone(), watcher::Config::default()).boxed();
        while let Ok(Some(event)) = events.try_next().await {
            match event {
                watcher::Event::Apply(crd) | watcher::Event::InitApply(crd) => {
                    failures = 0;
                    on(&crd.name_any());
                }
                _ => {}
            }
        }
        failures += 1;
        tokio::time::sleep(backoff::delay(FIRST, CAP * 10, failures, fastrand::f64())).await;
    }
}
