//! PURE: the route from a public URL to a Service, one file per back end.

pub mod gateway;
pub mod nginx;
pub mod traefik;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::ApiResource;

use super::url::PublicUrl;
use crate::engine::child::{ChildSet, Desired};

/// Names the Gateway of all routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// `namespace/name`.
impl std::str::FromStr for Gateway {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.into(), name: name.into() })
            }
            _ => Err("name it by namespace/name"),
        }
    }
}

/// Which ingress controller serves the routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Ingress {
    /// Traefik, by `IngressRoute`.
    #[default]
    Traefik,
    /// ingress-nginx, by `Ingress` with its annotations.
    Nginx,
    /// Any implementation of the Gateway API, by `HTTPRoute` on the Gateway named by `--gateway`.
    Gateway,
    /// Nobody: no route.
    None,
}

/// A route that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Route<'a> {
    /// Name of the route's objects, and of the Service.
    pub name: &'a str,
    /// Name of the Service's port.
    pub port: &'a str,
    /// Its number.
    pub number: i32,
    /// The public URL.
    pub url: &'a PublicUrl,
    /// The Secret with the certificate; none for plain HTTP.
    pub tls: Option<&'a str>,
    /// Paths at the root of the host that are routed as they are, although the URL has a path.
    pub root_paths: &'a [&'a str],
    /// The path is stripped on the way.
    pub strip: bool,
    /// The Gateway that it belongs to, if it is one of the Gateway API.
    pub gateway: Option<&'a Gateway>,
}

/// Every kind of every back end: a change of the back end prunes what the old one left.
#[must_use]
pub fn owns() -> Vec<ApiResource> {
    vec![
        ApiResource::erase::<traefik::Middleware>(&()),
        ApiResource::erase::<traefik::IngressRoute>(&()),
        ApiResource::erase::<k8s_openapi::api::networking::v1::Ingress>(&()),
        ApiResource::erase::<gateway::HTTPRoute>(&()),
    ]
}

impl Ingress {
    /// A route of this kind can name its host by IP address.
    #[must_use]
    pub fn takes_addresses(self) -> bool {
        matches!(self, Self::Traefik | Self::None)
    }

    /// Adds the objects of a route.
    #[must_use]
    pub fn add(self, route: &Route<'_>, set: ChildSet<Desired>) -> ChildSet<Desired> {
        match self {
            Self::Traefik => {
                let middlewares = traefik::middlewares(route);
                let names: Vec<_> = middlewares.iter().map(ResourceExt::name_any).collect();
                let set =
                    set.with_each(middlewares).with(&traefik::ingress_route(route)).needing::<Service>(route.name);
                names.into_iter().fold(set, ChildSet::needing::<traefik::Middleware>)
            }
            Self::Nginx => nginx::ingresses(route)
                .iter()
                .fold(set, |set, ingress| set.with(ingress).needing::<Service>(route.name)),
            Self::Gateway => set.with(&gateway::http_route(route)).needing::<Service>(route.name),
            Self::None => set,
        }
    }
}

/// The name of the object that redirects the exact path to the one with a slash.
fn slash(name: &str) -> String {
    format!("{name}-slash")
}

#[cfg(test)]
mod tests {
    use kube::Resource;

    use super::*;

    #[test]
    fn the_kinds_of_the_back_ends_are_named_as_their_crds_name_them() {
        let names: Vec<String> = owns().iter().map(|ar| format!("{}/{}", ar.api_version, ar.plural)).collect();
        assert_eq!(
            names,
            [
                "traefik.io/v1alpha1/middlewares",
                "traefik.io/v1alpha1/ingressroutes",
                "networking.k8s.io/v1/ingresses",
                "gateway.networking.k8s.io/v1/httproutes"
            ]
        );
        assert_eq!(traefik::Middleware::kind(&()), "Middleware");
    }
}
