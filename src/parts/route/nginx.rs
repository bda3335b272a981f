//! PURE: an Ingress for ingress-nginx, with the annotations it needs to strip the path.
//!
//! One regular expression on a host makes ingress-nginx read every path of that host as one, unanchored at its end and the
//! longest first. So all paths here are written as such: `/p$` redirects and `/p/(.*)` strips; they never overlap.

use std::collections::BTreeMap;

use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    IngressTLS, ServiceBackendPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Route, slash};

/// The class whose controller is to serve the routes.
const CLASS: &str = "nginx";
const REGEX: (&str, &str) = ("use-regex", "true");
/// Artifacts are of any size.
const ANY_SIZE: (&str, &str) = ("proxy-body-size", "0");

/// The objects of a route: the redirect, the stripping one and the one for paths at the root, as far as each is needed.
#[must_use]
pub fn ingresses(route: &Route<'_>) -> Vec<Ingress> {
    if route.url.path.is_empty() {
        return vec![ingress(route, route.name, &[("/", "Prefix")], &[ANY_SIZE])];
    }
    let pattern = route.url.path_pattern();
    let there = route.url.to_string();
    let redirect = ingress(
        route,
        &slash(route.name),
        &[(&format!("{pattern}$"), "ImplementationSpecific")],
        &[REGEX, ("temporal-redirect", &there)],
    );
    let main = ingress(
        route,
        route.name,
        &[(&format!("{pattern}/(.*)"), "ImplementationSpecific")],
        &[REGEX, ("rewrite-target", "/$1"), ANY_SIZE],
    );
    let paths: Vec<(&str, &str)> = route.root_paths.iter().map(|path| (*path, "Prefix")).collect();
    let root = (!paths.is_empty()).then(|| ingress(route, &format!("{}-assets", route.name), &paths, &[ANY_SIZE]));
    [redirect, main].into_iter().chain(root).collect()
}

fn ingress(route: &Route<'_>, name: &str, paths: &[(&str, &str)], annotations: &[(&str, &str)]) -> Ingress {
    let backend = IngressBackend {
        service: Some(IngressServiceBackend {
            name: route.name.into(),
            port: Some(ServiceBackendPort { name: Some(route.port.into()), number: None }),
        }),
        resource: None,
    };
    let path = |&(path, kind): &(&str, &str)| HTTPIngressPath {
        path: Some(path.into()),
        path_type: kind.into(),
        backend: backend.clone(),
    };
    let annotations: BTreeMap<String, String> = annotations
        .iter()
        .map(|(key, value)| (format!("nginx.ingress.kubernetes.io/{key}"), (*value).into()))
        .collect();
    Ingress {
        metadata: ObjectMeta { name: Some(name.into()), annotations: Some(annotations), ..ObjectMeta::default() },
        spec: Some(IngressSpec {
            ingress_class_name: Some(CLASS.into()),
            rules: Some(vec![IngressRule {
                host: Some(route.url.host.clone()),
                http: Some(HTTPIngressRuleValue { paths: paths.iter().map(path).collect() }),
            }]),
            tls: route.tls.map(|secret| {
                vec![IngressTLS { hosts: Some(vec![route.url.host.clone()]), secret_name: Some(secret.into()) }]
            }),
            default_backend: None,
        }),
        status: None,
    }
}
