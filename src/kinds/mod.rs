//! PURE: the kinds, one file each: from a resource to its children. Each reads like the table "field -> child".

#[cfg(test)]
mod golden;
pub mod tracking_server;

use crate::parts::host_allow::private_networks;
pub use crate::parts::route::Ingress;

/// What the kinds know about the cluster they run in: facts of the installation, the same for every resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Which ingress controller serves the routes.
    pub ingress: Ingress,
    /// The DNS domain of Services.
    pub cluster_domain: String,
    /// Patterns of pod and node addresses that may be in a `Host` header.
    pub pod_networks: Vec<String>,
}

impl Default for Platform {
    fn default() -> Self {
        Self { ingress: Ingress::default(), cluster_domain: "cluster.local".into(), pod_networks: private_networks() }
    }
}
