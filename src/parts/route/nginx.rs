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
    let annotations = [REGEX, ANY_SIZE, ("rewrite-target", "/$1")];
    let main = ingress(
        route,
        route.name,
        &[(&format!("{pattern}/(.*)"), "ImplementationSpecific")],
        if route.strip { &annotations } else { &annotations[..2] },
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::claims::of_ingress;
    use crate::parts::url::PublicUrl;

    proptest! {
        #[test]
        fn an_ingress_serves_the_part_that_is_claimed_and_nothing_beside_it(
            path in prop_oneof!["(/\\PC{0,12}){0,3}", "(/[a-zA-Z0-9._~+:@,=!-]{1,8}){0,3}"]
        ) {
            let Ok(url) = PublicUrl::parse(&format!("http://ml.example.com{path}")) else { return Ok(()) };
            let route = Route { name: "a", port: "server", number: 5000, url: &url, tls: None, root_paths: &[], strip: true, gateway: None };
            let made = ingresses(&route);
            let mut matching = 0;
            for ingress in &made {
                let spec = serde_json::json!({ "spec": ingress.spec });
                let claims = of_ingress(&spec);
                prop_assert_eq!(&*claims, &[url.claim()]);
                let pattern = spec["spec"]["rules"][0]["http"]["paths"][0]["path"].as_str().unwrap();
                let regex = regex::Regex::new(&format!("^{pattern}")).unwrap();
                let prefix = url.prefix();
                matching += usize::from(regex.is_match(&format!("{prefix}/"))) + usize::from(regex.is_match(&prefix));
                if !prefix.is_empty() {
                    let beside = format!("{prefix}x/y");
                    prop_assert!(!regex.is_match(&beside), "{} matches {}", pattern, beside);
                }
            }
            // The whole host is one path, which an empty text does not match; a prefix has one for each of its two forms.
            prop_assert_eq!(matching, made.len());
        }
    }
}
