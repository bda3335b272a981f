//! PURE: the users' surface, one file per kind: spec, status, what the API server checks, printer columns. No behaviour.

pub mod cluster;
pub mod code_server;
pub mod common;
pub mod easy_service;
pub mod jupyter_notebook;
pub mod schema;
pub mod tracking_server;
pub mod workspace;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub use cluster::Cluster;
pub use code_server::CodeServer;
pub use easy_service::EasyService;
pub use jupyter_notebook::JupyterNotebook;
pub use tracking_server::TrackingServer;

/// Every CRD of this operator, as it is installed and committed below `crds/`.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut crds = workloads();
    crds.push(schema::finish(Cluster::crd()));
    crds
}

/// The CRDs of the kinds that have children: what a member of a fleet needs.
#[must_use]
pub fn workloads() -> Vec<CustomResourceDefinition> {
    [TrackingServer::crd(), JupyterNotebook::crd(), CodeServer::crd(), EasyService::crd()].map(schema::finish).into()
}

/// The file of a CRD below `crds/`.
#[must_use]
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn version(crd: &CustomResourceDefinition) -> Value {
        serde_json::to_value(&crd.spec.versions[0]).unwrap()
    }

    #[test]
    fn a_resource_that_nobody_has_looked_at_is_in_progress_to_every_tool() {
        for crd in &crds() {
            let status = &version(crd)["schema"]["openAPIV3Schema"]["properties"]["status"];
            assert_eq!(status["default"], json!({ "observedGeneration": -1 }));
            assert_eq!(status["properties"]["conditions"]["x-kubernetes-list-type"], "map");
            assert_eq!(status["properties"]["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]));
        }
    }

    #[test]
    fn the_api_server_writes_nothing_into_a_spec_and_asks_for_no_field() {
        for crd in &crds() {
            let spec = &version(crd)["schema"]["openAPIV3Schema"]["properties"]["spec"];
            assert!(!spec.to_string().contains("\"default\":"), "{}", crd.spec.names.kind);
            // These two have always been required.
            let required = match crd.spec.names.kind.as_str() {
                "EasyService" => json!(["size"]),
                "Cluster" => json!(["connection"]),
                _ => Value::Null,
            };
            assert_eq!(spec["required"], required, "{}", crd.spec.names.kind);
        }
    }

    #[test]
    fn readiness_comes_first_in_a_listing() {
        for crd in &crds() {
            let columns = crd.spec.versions[0].additional_printer_columns.as_ref().unwrap();
            assert_eq!(columns[0].name, "Ready", "{}", crd.spec.names.kind);
        }
    }
}
