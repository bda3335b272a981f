//! PURE: Traefik's `IngressRoute` and `Middleware`: hand-written types with the fields that are written here.
//!
//! A rule is written from values that [`PublicUrl`](super::PublicUrl) has vetted, in double quotes. `PathPrefix("/p")`
//! would match `/pfoo` too, a neighbour's, so the exact path and everything below `/p/` are named instead.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::{Route, slash};
use crate::parts::service::named;

/// Spec of an `IngressRoute`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(group = "traefik.io", version = "v1alpha1", kind = "IngressRoute", namespaced, schema = "disabled")]
#[serde(rename_all = "camelCase")]
pub struct IngressRouteSpec {
    /// The ports of Traefik that serve it, by name.
    #[serde(default)]
    pub entry_points: Vec<String>,
    /// What goes where.
    pub routes: Vec<Rule>,
    /// Serves TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<RouteTls>,
}

/// One rule of an `IngressRoute`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Always `Rule`.
    pub kind: String,
    /// The expression.
    #[serde(rename = "match")]
    pub matcher: String,
    /// What a request passes on its way, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub middlewares: Vec<MiddlewareRef>,
    /// Where it goes.
    pub services: Vec<Target>,
}

/// Names a `Middleware` in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MiddlewareRef {
    /// Its name.
    pub name: String,
}

/// Names a port of a Service in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The Service.
    pub name: String,
    /// Name of its port.
    pub port: String,
}

/// The certificate of an `IngressRoute`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteTls {
    /// A Secret in the same namespace.
    pub secret_name: String,
}

/// Spec of a `Middleware`; one of the fields is set.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(group = "traefik.io", version = "v1alpha1", kind = "Middleware", namespaced, schema = "disabled")]
#[serde(rename_all = "camelCase")]
pub struct MiddlewareSpec {
    /// Cuts a prefix off the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strip_prefix: Option<StripPrefix>,
    /// Redirects by the whole URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_regex: Option<RedirectRegex>,
}

/// Cuts a prefix off the path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StripPrefix {
    /// The prefixes.
    pub prefixes: Vec<String>,
}

/// Redirects by the whole URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RedirectRegex {
    /// What must match.
    pub regex: String,
    /// Where to.
    pub replacement: String,
    /// Browsers may remember it.
    pub permanent: bool,
}

/// For a URL with a path: one that adds the missing slash, one that strips the path.
#[must_use]
pub fn middlewares(route: &Route<'_>) -> Vec<Middleware> {
    let prefix = route.url.prefix();
    if prefix.is_empty() {
        return Vec::new();
    }
    let redirect = RedirectRegex {
        regex: format!(r"^https?://[^/]+{}(\?.*)?$", route.url.path_pattern()),
        // Relative to what the client sees, whatever stands in front of Traefik: TLS, another port, another name.
        replacement: format!("{prefix}/${{1}}"),
        permanent: false,
    };
    let with = |name: &str, spec| Middleware { metadata: named(name), spec };
    vec![
        with(&slash(route.name), MiddlewareSpec { redirect_regex: Some(redirect), ..MiddlewareSpec::default() }),
        with(
            route.name,
            MiddlewareSpec { strip_prefix: Some(StripPrefix { prefixes: vec![prefix] }), ..MiddlewareSpec::default() },
        ),
    ]
}

/// The route itself.
#[must_use]
pub fn ingress_route(route: &Route<'_>) -> IngressRoute {
    let entry_points = if route.tls.is_some() { &["websecure", "web"][..] } else { &["web"] };
    let rule = |matcher: String, middlewares: Vec<MiddlewareRef>| Rule {
        kind: "Rule".into(),
        matcher,
        middlewares,
        services: vec![Target { name: route.name.into(), port: route.port.into() }],
    };
    let passed =
        middlewares(route).into_iter().filter_map(|m| m.metadata.name).map(|name| MiddlewareRef { name }).collect();
    let mut routes = vec![rule(matcher(route), passed)];
    if !route.url.path.is_empty() && !route.root_paths.is_empty() {
        let paths: Vec<String> = route.root_paths.iter().map(|path| format!("PathPrefix({path:?})")).collect();
        routes.push(rule(format!("{} && ({})", host(route), paths.join(" || ")), Vec::new()));
    }
    IngressRoute {
        metadata: named(route.name),
        spec: IngressRouteSpec {
            entry_points: entry_points.iter().map(|&e| e.to_owned()).collect(),
            routes,
            tls: route.tls.map(|secret| RouteTls { secret_name: secret.to_owned() }),
        },
    }
}

fn matcher(route: &Route<'_>) -> String {
    let prefix = route.url.prefix();
    if prefix.is_empty() {
        host(route)
    } else {
        format!(r#"{} && (Path("{prefix}") || PathPrefix("{prefix}/"))"#, host(route))
    }
}

fn host(route: &Route<'_>) -> String {
    format!(r#"Host("{}")"#, route.url.host)
}
