//! A complete operator for a kind of one's own, on this crate's engine. A `Guestbook` keeps a `ConfigMap` with its `foo`.
//!
//! `cargo run --example guestbook -- crd | kubectl apply --server-side -f -` installs the kind, `cargo run --example guestbook`
//! runs the operator until Ctrl-C or SIGTERM. Everything else is the engine's: watches, server-side apply, ownership, repair
//! of what others edit or delete, conditions, events.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use aiscope_operator::api::common::ServerStatus;
use aiscope_operator::api::schema;
use aiscope_operator::engine::child::{ChildSet, Desired};
use aiscope_operator::engine::operator::Operator;
use aiscope_operator::engine::reason::INVALID_SPEC;
use aiscope_operator::engine::workload::{Blocked, Seen, Workload};
use aiscope_operator::ops::client;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ApiResource, ObjectMeta};
use kube::{Config, CustomResource, CustomResourceExt, KubeSchema, ResourceExt};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// 1. What users write.
#[derive(CustomResource, KubeSchema, Clone, Debug, Serialize, Deserialize)]
#[kube(group = "webapp.my.domain", version = "v1", kind = "Guestbook", namespaced, status = "ServerStatus")]
pub struct GuestbookSpec {
    /// What the guests read.
    pub foo: Option<String>,
}

/// 2. What stands behind it: a pure function, so it can be tested and rendered without a cluster.
impl Workload for Guestbook {
    /// Facts about the installation; this kind needs none.
    type Platform = ();

    /// Every kind of child there can be: watched, and pruned when it is no longer wanted.
    fn owns() -> Vec<ApiResource> {
        vec![ApiResource::erase::<ConfigMap>(&())]
    }

    fn children(&self, _seen: &Seen<'_>, (): &()) -> Result<ChildSet<Desired>, Blocked> {
        // The user's problem becomes a condition that says what to do.
        let words = self.spec.foo.clone().filter(|words| !words.is_empty());
        let words =
            words.ok_or_else(|| Blocked::new(INVALID_SPEC, "spec.foo is missing; say something to the guests"))?;
        let config = ConfigMap {
            metadata: ObjectMeta { name: Some(self.name_any()), ..ObjectMeta::default() },
            data: Some(BTreeMap::from([("foo".to_owned(), words)])),
            ..ConfigMap::default()
        };
        Ok(ChildSet::new().with(&config))
    }
}

/// 3. The operator.
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("crd") {
        println!("{}", serde_json::to_string_pretty(&schema::finish(Guestbook::crd()))?);
        return Ok(());
    }
    let client = client::connect(Config::infer().await?)?;
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    Operator::new(client, Vec::new()).with::<Guestbook>(Arc::new(())).run(stop).await;
    Ok(())
}

async fn stop_on_signal(stop: CancellationToken) -> std::io::Result<()> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    stop.cancel();
    Ok(())
}
