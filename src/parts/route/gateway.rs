//! PURE: the Gateway API's `HTTPRoute`: hand-written types with the fields that are written here.
//!
//! Lists are atomic there, and the API server writes defaults into their items. So every field with a default is written:
//! then what is read back is what was applied. TLS is the Gateway's own.
//! Fields: <https://gateway-api.sigs.k8s.io/reference/spec/#httproute>.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

use super::Route;
use crate::parts::service::named;

/// Group of the Gateway API.
const GROUP: &str = "gateway.networking.k8s.io";

/// Spec of an `HTTPRoute`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "HTTPRoute",
    plural = "httproutes",
    namespaced,
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteSpec {
    /// The Gateways that serve it.
    pub parent_refs: Vec<Reference>,
    /// The hosts.
    pub hostnames: Vec<String>,
    /// What goes where.
    pub rules: Vec<Rule>,
}

/// Names an object: a Gateway or a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Its group; empty for the core group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; the route's own when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The Service's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// The Service's share of the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i32>,
}

/// One rule of an `HTTPRoute`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// One of these matches.
    pub matches: Vec<Match>,
    /// What a request passes on its way, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<Filter>,
    /// Where it goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backend_refs: Vec<Reference>,
}

/// What a request must be like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Match {
    /// Its path.
    pub path: PathMatch,
}

/// What a path must be like. A prefix counts whole segments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathMatch {
    /// `Exact` or `PathPrefix`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The path.
    pub value: String,
}

/// A step on the way; the field of its type is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Filter {
    /// `URLRewrite` or `RequestRedirect`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Another path for the Service.
    #[serde(default, rename = "urlRewrite", skip_serializing_if = "Option::is_none")]
    pub url_rewrite: Option<Rewrite>,
    /// Another URL for the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_redirect: Option<Redirect>,
}

/// Another path for the Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rewrite {
    /// The path.
    pub path: NewPath,
}

/// Another URL for the client; the host stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Redirect {
    /// The scheme.
    pub scheme: String,
    /// The port. Without it the client is sent to the Gateway's own, which may stand behind another.
    pub port: u16,
    /// The path.
    pub path: NewPath,
    /// The status of the reply.
    pub status_code: u16,
}

/// A path in place of another; the field of its type is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewPath {
    /// `ReplaceFullPath` or `ReplacePrefixMatch`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The whole path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_full_path: Option<String>,
    /// What stands instead of the prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replace_prefix_match: Option<String>,
}

/// The route.
#[must_use]
pub fn http_route(route: &Route<'_>) -> HTTPRoute {
    let prefix = route.url.prefix();
    let parent = route.gateway.map(|gateway| Reference {
        group: GROUP.into(),
        kind: "Gateway".into(),
        namespace: Some(gateway.namespace.clone()),
        name: gateway.name.clone(),
        ..Reference::default()
    });
    let whole = if prefix.is_empty() { "/" } else { &prefix };
    let strip = (route.strip && !prefix.is_empty()).then(strip);
    let mut rules = vec![to_service(route, &[whole], strip)];
    if !prefix.is_empty() {
        // An exact path goes before any prefix.
        rules.insert(0, Rule { matches: vec![path("Exact", &prefix)], filters: vec![slash(route)], ..Rule::default() });
        if !route.root_paths.is_empty() {
            rules.push(to_service(route, route.root_paths, None));
        }
    }
    HTTPRoute {
        metadata: named(route.name),
        spec: HTTPRouteSpec {
            parent_refs: parent.into_iter().collect(),
            hostnames: vec![route.url.host.clone()],
            rules,
        },
    }
}

fn to_service(route: &Route<'_>, prefixes: &[&str], filter: Option<Filter>) -> Rule {
    let service = Reference {
        kind: "Service".into(),
        name: route.name.into(),
        port: Some(route.number),
        weight: Some(1),
        ..Reference::default()
    };
    Rule {
        matches: prefixes.iter().map(|prefix| path("PathPrefix", prefix)).collect(),
        filters: filter.into_iter().collect(),
        backend_refs: vec![service],
    }
}

fn path(kind: &str, value: &str) -> Match {
    Match { path: PathMatch { kind: kind.into(), value: value.into() } }
}

fn strip() -> Filter {
    let path =
        NewPath { kind: "ReplacePrefixMatch".into(), replace_prefix_match: Some("/".into()), ..NewPath::default() };
    Filter { kind: "URLRewrite".into(), url_rewrite: Some(Rewrite { path }), ..Filter::default() }
}

/// Adds the missing slash.
fn slash(route: &Route<'_>) -> Filter {
    let full = Some(format!("{}/", route.url.prefix()));
    let redirect = Redirect {
        scheme: route.url.scheme().into(),
        port: route.url.port.unwrap_or(if route.url.secure { 443 } else { 80 }),
        path: NewPath { kind: "ReplaceFullPath".into(), replace_full_path: full, ..NewPath::default() },
        status_code: 302,
    };
    Filter { kind: "RequestRedirect".into(), request_redirect: Some(redirect), ..Filter::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::claims::of_http_route;
    use crate::parts::url::PublicUrl;

    #[test]
    fn a_route_serves_the_part_that_is_claimed() {
        for text in ["http://ml.example.com", "https://ml.example.com:8443/team/a.b"] {
            let url = PublicUrl::parse(text).unwrap();
            let route = Route {
                name: "a",
                port: "server",
                number: 5000,
                url: &url,
                tls: None,
                root_paths: &[],
                strip: true,
                gateway: None,
            };
            let made = serde_json::to_value(http_route(&route)).unwrap();
            assert_eq!(&*of_http_route(&made), &[url.claim()]);
        }
    }
}
