//! PURE: the Service of a web application.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::engine::reason::INVALID_SPEC;
use crate::engine::workload::Blocked;

/// A `ClusterIP` Service with one port; its target is the container port of the same name. Everything that is a key or has
/// a default that matters is explicit.
#[must_use]
pub fn cluster_ip(name: &str, selector: BTreeMap<String, String>, port_name: &str, port: i32) -> Service {
    Service {
        metadata: named(name),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".into()),
            selector: Some(selector),
            ports: Some(vec![ServicePort {
                name: Some(port_name.into()),
                port,
                protocol: Some("TCP".into()),
                target_port: Some(IntOrString::String(port_name.into())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// RFC 1035, which a Service's name must be; then every other child's name and label is legal too.
///
/// # Errors
/// It is not.
pub fn check_name(name: &str) -> Result<(), Blocked> {
    let legal = name.len() <= 63
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let message = || {
        format!(
            "metadata.name {name:?} cannot be the name of a Service; use at most 63 of a-z, 0-9 and -, starting with a letter"
        )
    };
    if legal { Ok(()) } else { Err(Blocked::new(INVALID_SPEC, message())) }
}

/// Metadata with a name; the engine stamps the rest.
#[must_use]
pub fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}
