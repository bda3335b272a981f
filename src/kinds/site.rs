//! PURE: what the kinds with a public URL share: the fields of their specs, their route and their status.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::ApiResource;

use super::{Ingress, Platform};
use crate::api::common::{ReclaimPolicy, Sensitive, ServerStatus, given};
use crate::engine::child::{ChildSet, Desired, Live, NO_UID};
use crate::engine::claims::Claim;
use crate::engine::hosts::ANNOTATION;
use crate::engine::reason::{HOST_NOT_ALLOWED, INVALID_SPEC, PROXY_UNKNOWN, ROUTE_CONFLICT};
use crate::engine::summary::Facts;
use crate::engine::workload::{Blocked, Seen, Weight, Workload};
use crate::parts::network_policy::shielding;
use crate::parts::route::{self, Route};
use crate::parts::service;
use crate::parts::tls::Tls;
use crate::parts::url::PublicUrl;
use crate::parts::volume::Volume;

/// The fields that every such spec has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish<'a> {
    pub image: Option<&'a String>,
    pub size: Option<i32>,
    pub url: Option<&'a String>,
    pub volume_size: Option<&'a String>,
    pub storage_class_name: Option<&'a String>,
    pub volume_reclaim_policy: Option<ReclaimPolicy>,
    pub cert: Option<&'a String>,
    pub key: Option<&'a Sensitive>,
    pub network_policy: Option<bool>,
}

/// A spec whose common fields have been understood.
pub(super) struct Site<'a> {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub image: &'a str,
    pub size: i32,
    pub url: PublicUrl,
    pub volume: Volume,
    pub tls: Tls,
    /// Only the pods of the namespace and the proxy may reach it.
    pub shielded: bool,
}

/// Every kind of child that such a resource can have.
pub(super) fn owns() -> Vec<ApiResource> {
    let mut kinds = vec![
        ApiResource::erase::<Secret>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<NetworkPolicy>(&()),
        ApiResource::erase::<Deployment>(&()),
    ];
    kinds.extend(route::owns());
    kinds
}

impl<'a> Wish<'a> {
    fn parsed_url(&self) -> Option<PublicUrl> {
        PublicUrl::parse(given(self.url)?).ok()
    }

    /// The part of the URL space that `url` asks for.
    pub(super) fn claim(&self, platform: &Platform) -> Option<Claim> {
        self.parsed_url().filter(|_| platform.ingress != Ingress::None).map(|url| url.claim())
    }

    /// Understands the fields. `program` is what the image is to contain.
    pub(super) fn read<W: Workload>(self, owner: &W, program: &str, seen: &Seen<'_>) -> Result<Site<'a>, Blocked> {
        let name = owner.name_any();
        let invalid = |message: String| Blocked::new(INVALID_SPEC, message);
        service::check_name(&name)?;
        let text = given(self.url).ok_or_else(|| {
            invalid("spec.url is missing; give the public URL, e.g. https://ml.example.com/team".into())
        })?;
        let url = PublicUrl::parse(text).map_err(|why| invalid(format!("spec.url {why}")))?;
        let image = given(self.image)
            .ok_or_else(|| invalid(format!("spec.image is missing; name a container image with {program}")))?;
        if self.size.is_some_and(|size| size < 0) {
            return Err(invalid("spec.size must be 0 or more".into()));
        }
        let wanted = (given(self.volume_size), given(self.storage_class_name));
        let policy = self.volume_reclaim_policy.unwrap_or(ReclaimPolicy::Delete);
        let volume = Volume::decide(owner, &name, wanted, policy, seen)?;
        let certificate = (given(self.cert), Sensitive::given(self.key));
        Ok(Site {
            tls: Tls::decide(owner, &name, certificate, &url.host, seen),
            namespace: owner.namespace().unwrap_or_default(),
            uid: owner.uid().unwrap_or_else(|| NO_UID.into()),
            size: self.size.unwrap_or(1),
            shielded: self.network_policy == Some(true),
            name,
            image,
            url,
            volume,
        })
    }

    /// Fills the status. `labels` select the pods.
    pub(super) fn show<W: Workload>(
        &self,
        owner: &W,
        labels: &BTreeMap<String, String>,
        seen: &Seen<'_>,
        live: &ChildSet<Live>,
        status: &mut ServerStatus,
    ) {
        let name = owner.name_any();
        status.url = self.parsed_url().map(|url| url.to_string());
        show_deployment(status, &name, labels, live);
        // Also that of a Secret which somebody else made: the route uses it all the same.
        let tls = live.get::<Secret>(&name).or_else(|| seen.get::<Secret>(&name)).map(|s| &s.facts);
        status.certificate_not_after = match tls {
            Some(Facts::Secret(facts)) => {
                facts.certificate.as_ref().and_then(|c| c.as_ref().ok()).map(|c| Time(c.not_after))
            }
            _ => None,
        };
    }
}

/// Takes over the counts of a resource's Deployment, and the labels that select its pods.
pub(super) fn show_deployment(
    status: &mut ServerStatus,
    name: &str,
    labels: &BTreeMap<String, String>,
    live: &ChildSet<Live>,
) {
    let pairs: Vec<String> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
    status.selector = Some(pairs.join(","));
    if let Some(Facts::Deployment(facts)) = live.get::<Deployment>(name).map(|s| &s.facts) {
        status.replicas = Some(facts.replicas);
        status.updated_replicas = Some(facts.updated);
        status.ready_replicas = Some(facts.ready);
        status.available_replicas = Some(facts.available);
        status.unavailable_replicas = Some(facts.unavailable);
    }
}

impl Site<'_> {
    /// Adds certificate, volume, Service and network policy: the pods come later.
    pub(super) fn add_base(
        &self,
        set: ChildSet<Desired>,
        labels: &BTreeMap<String, String>,
        (port, number): (&str, i32),
        platform: &Platform,
    ) -> ChildSet<Desired> {
        let set = self.volume.clone().add_to(self.tls.clone().add_to(&self.name, set));
        let set = set.with(&service::cluster_ip(&self.name, labels.clone(), port, number));
        if !self.shielded {
            return set;
        }
        let ports = [(IntOrString::String(port.to_owned()), "TCP")];
        let set = set.with(&shielding(&self.name, labels.clone(), ports, &platform.proxy));
        if platform.ingress == Ingress::None || !platform.proxy.is_unknown() {
            return set;
        }
        let message = format!(
            "NetworkPolicy {} shuts the route's proxy out, because the operator does not know where it is; give the operator \
             --proxy-namespace, or set spec.networkPolicy to false",
            self.name
        );
        set.problem(Weight::Degrades, PROXY_UNKNOWN, message)
    }

    /// Adds the route to `port`, unless somebody older holds its place. The path is stripped on the way if asked.
    pub(super) fn add_route(
        &self,
        set: ChildSet<Desired>,
        (port, number): (&str, i32),
        (strip, root_paths): (bool, &[&str]),
        seen: &Seen<'_>,
        platform: &Platform,
    ) -> ChildSet<Desired> {
        if let Some(hosts) = seen.hosts.filter(|hosts| !hosts.allow(&self.url.claim().host)) {
            let message = format!(
                "namespace {} may not name the host {} (allowed: {hosts}), so there is no route; change spec.url, or have the \
                 namespace's annotation {ANNOTATION} changed",
                self.namespace, self.url.host
            );
            return set.problem(Weight::Stalls, HOST_NOT_ALLOWED, message);
        }
        if let Some(conflict) = seen.conflict {
            let message = format!(
                "{} holds {} or a part of it; change spec.url, or remove the other's",
                conflict.holder, self.url
            );
            return set.problem(Weight::Stalls, ROUTE_CONFLICT, message);
        }
        if !platform.ingress.takes_addresses() && self.url.is_address() {
            let message = "spec.url must name its host by DNS name: this kind of route cannot name an IP address";
            return set.problem(Weight::Stalls, INVALID_SPEC, message);
        }
        let tls = self.tls.served.as_deref();
        let gateway = platform.gateway.as_ref();
        let route = Route { name: &self.name, port, number, url: &self.url, tls, root_paths, strip, gateway };
        platform.ingress.add(&route, set)
    }
}
