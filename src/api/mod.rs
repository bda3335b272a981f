//! PURE: the users' surface, one file per kind: spec, status, what the API server checks, printer columns. No behaviour.

pub mod common;
pub mod schema;
pub mod tracking_server;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use tracking_server::TrackingServer;

/// Every CRD of this operator, as it is installed and committed below `crds/`.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![schema::finish(TrackingServer::crd())]
}

/// The file of a CRD below `crds/`.
#[must_use]
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}
