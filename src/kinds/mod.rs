//! PURE: the kinds, one file each: from a resource to its children. Each reads like the table "field -> child".

pub mod code_server;
pub mod easy_service;
#[cfg(test)]
mod golden;
pub mod jupyter_notebook;
mod site;
pub mod tracking_server;
mod unused;
mod workspace;

use std::sync::Arc;

use crate::api::{CodeServer, EasyService, JupyterNotebook, TrackingServer};
use kube::Resource;
use serde_json::Value;

use crate::engine::hosts::Hosts;
use crate::engine::operator::Operator;
use crate::engine::workload::{Offer, Workload};
use crate::parts::host_allow::private_networks;
pub use crate::parts::network_policy::Proxy;
pub use crate::parts::route::{Gateway, Ingress};

/// What the kinds know about the cluster they run in: facts of the installation, the same for every resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Which ingress controller serves the routes.
    pub ingress: Ingress,
    /// The Gateway that the routes belong to; needed for [`Ingress::Gateway`].
    pub gateway: Option<Gateway>,
    /// The DNS domain of Services.
    pub cluster_domain: String,
    /// Patterns of pod and node addresses that may be in a `Host` header.
    pub pod_networks: Vec<String>,
    /// Where the proxy that serves the routes calls from.
    pub proxy: Proxy,
    /// The hosts that a namespace without the annotation may name.
    pub hosts: Hosts,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            ingress: Ingress::default(),
            gateway: None,
            cluster_domain: "cluster.local".into(),
            pod_networks: private_networks(),
            proxy: Proxy::default(),
            hosts: Hosts::default(),
        }
    }
}

/// The kinds by name.
pub const NAMES: [&str; 4] = ["TrackingServer", "JupyterNotebook", "CodeServer", "EasyService"];

/// Adds every kind to an operator.
#[must_use]
pub fn register(operator: Operator, platform: &Arc<Platform>) -> Operator {
    NAMES.into_iter().fold(operator, |operator, name| register_one(operator, name, platform))
}

/// Adds the kind of this name; one that is none of ours adds nothing.
#[must_use]
pub fn register_one(operator: Operator, name: &str, platform: &Arc<Platform>) -> Operator {
    let operator = operator.hosts(platform.hosts.clone());
    match name {
        "TrackingServer" => operator.with::<TrackingServer>(platform.clone()),
        "JupyterNotebook" => operator.with::<JupyterNotebook>(platform.clone()),
        "CodeServer" => operator.with::<CodeServer>(platform.clone()),
        "EasyService" => operator.with::<EasyService>(platform.clone()),
        _ => operator,
    }
}

/// What a manifest offers to those that refer to it, if it is a resource that offers something.
#[must_use]
pub fn offer(manifest: &Value) -> Option<Offer> {
    let is =
        manifest["apiVersion"] == *TrackingServer::api_version(&()) && manifest["kind"] == *TrackingServer::kind(&());
    is.then(|| serde_json::from_value::<TrackingServer>(manifest.clone()).ok()).flatten().map(|server| server.offer())
}
