//! PURE: what the derive macros cannot say about a CRD's schema.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

/// Fields of a spec that embed types of Kubernetes: their own documentation is long and stands elsewhere.
const EMBEDDED: [&str; 8] =
    ["resources", "env", "envs", "ports", "tolerations", "podSecurityContext", "securityContext", "imagePullSecrets"];

/// Completes a derived CRD: a resource that no one has looked at yet is "in progress" to every GitOps tool, and
/// embedded types of Kubernetes lose their descriptions (they are most of the bytes).
#[must_use]
pub fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        let root = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut());
        let Some(properties) = root.and_then(|r| r.properties.as_mut()) else { continue };
        properties.values_mut().for_each(without_defaults);
        if let Some(status) = properties.get_mut("status") {
            status.default = Some(JSON(json!({ "observedGeneration": -1 })));
        }
        let spec = properties.get_mut("spec").and_then(|s| s.properties.as_mut());
        for (_, field) in spec.into_iter().flatten().filter(|(name, _)| EMBEDDED.contains(&name.as_str())) {
            let own = field.description.take();
            without_descriptions(field);
            field.description = own;
        }
    }
    crd
}

fn without_descriptions(schema: &mut JSONSchemaProps) {
    schema.description = None;
    each_below(schema, without_descriptions);
}

/// A default that the API server writes into a spec is a difference to every GitOps tool.
fn without_defaults(schema: &mut JSONSchemaProps) {
    schema.default = None;
    each_below(schema, without_defaults);
}

fn each_below(schema: &mut JSONSchemaProps, visit: fn(&mut JSONSchemaProps)) {
    schema.properties.iter_mut().flatten().for_each(|(_, child)| visit(child));
    match schema.items.as_mut() {
        Some(JSONSchemaPropsOrArray::Schema(item)) => visit(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(visit),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(more)) = schema.additional_properties.as_mut() {
        visit(more);
    }
}

/// A string that may also be empty: "not given".
#[must_use]
pub fn reclaim_policy(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "nullable": true, "enum": ["", "Delete", "Retain"] })
}
