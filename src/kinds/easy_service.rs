//! PURE: `EasyService`: any image that serves something.
//!
//! | field | child |
//! |---|---|
//! | `size`, `image`, `resources`, `envs` | Deployment `<name>` |
//! | `networkPolicy` | NetworkPolicy `<name>` |
//! | `ports` | Service `<name>`, `NodePort` when a port names one; the Deployment's container ports |

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use kube::api::ApiResource;

use super::Platform;
use super::site::show_deployment;
use crate::api::EasyService;
use crate::api::common::{ServerStatus, given};
use crate::engine::child::{ChildSet, Desired, Live, NO_UID};
use crate::engine::reason::INVALID_SPEC;
use crate::engine::workload::{Blocked, Legacy, Seen, Workload};
use crate::parts::deployment::{self, Replace};
use crate::parts::network_policy::{Proxy, shielding};
use crate::parts::service::{check_name, named};

/// The label that an earlier controller selected pods by; a selector is immutable.
const LABEL: &str = "app";

impl Workload for EasyService {
    type Platform = Platform;

    fn owns() -> Vec<ApiResource> {
        vec![
            ApiResource::erase::<Service>(&()),
            ApiResource::erase::<NetworkPolicy>(&()),
            ApiResource::erase::<Deployment>(&()),
        ]
    }

    fn children(&self, _seen: &Seen<'_>, platform: &Platform) -> Result<ChildSet<Desired>, Blocked> {
        let name = self.name_any();
        check_name(&name)?;
        if self.spec.size < 0 {
            return Err(Blocked::new(INVALID_SPEC, "spec.size must be 0 or more"));
        }
        let ports = read_ports(self.spec.ports.as_deref().unwrap_or_default())?;
        let deployment = self.deployment(&name, &ports)?;
        let shield = (self.spec.network_policy == Some(true)).then(|| shield(&name, &ports, &platform.proxy));
        let set = ChildSet::new().with_each(service(&name, ports)).with_each(shield);
        Ok(set.with(&deployment).needing::<NetworkPolicy>(name))
    }

    fn extend_status(&self, _seen: &Seen<'_>, live: &ChildSet<Live>, status: &mut ServerStatus) {
        let name = self.name_any();
        let first = self.spec.ports.iter().flatten().next();
        status.url = first.map(|port| address(&name, &self.namespace().unwrap_or_default(), port));
        show_deployment(status, &name, &selector(&name), live);
    }

    fn legacy() -> Legacy {
        Legacy { managers: &["controller-manager"], ..Legacy::default() }
    }
}

impl EasyService {
    /// Nothing is asked of the image: it may start as root, write where it likes and listen when it likes.
    fn deployment(&self, name: &str, ports: &[ServicePort]) -> Result<Deployment, Blocked> {
        let image = given(self.spec.image.as_ref())
            .ok_or_else(|| Blocked::new(INVALID_SPEC, "spec.image is missing; name a container image"))?;
        let container = Container {
            name: name.into(),
            image: Some(image.into()),
            image_pull_policy: Some("IfNotPresent".into()),
            ports: Some(container_ports(ports)),
            env: Some(deployment::overlaid(Vec::new(), self.spec.envs.as_deref().unwrap_or_default())),
            resources: Some(deployment::resources(self.spec.resources.as_ref(), &[], &[])?),
            ..Container::default()
        };
        let whole = deployment::Parts {
            name: name.into(),
            replicas: self.spec.size,
            selector: selector(name),
            owner: self.uid().unwrap_or_else(|| NO_UID.into()),
            annotations: BTreeMap::new(),
            replace: Replace::NewFirst,
            progress_deadline_seconds: 600,
            pod: PodSpec { containers: vec![container], ..PodSpec::default() },
        };
        Ok(whole.build())
    }
}

fn selector(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(LABEL.to_owned(), name.to_owned())])
}

/// Makes explicit what is a key or has a default: an apply tells ports apart by number and protocol.
fn read_ports(ports: &[ServicePort]) -> Result<Vec<ServicePort>, Blocked> {
    let (mut keys, mut names) = (BTreeSet::new(), BTreeSet::new());
    let mut read = Vec::new();
    for (at, port) in ports.iter().enumerate() {
        let invalid = |what: &str| Err(Blocked::new(INVALID_SPEC, format!("spec.ports[{at}]{what}")));
        let protocol = given(port.protocol.as_ref()).unwrap_or("TCP").to_owned();
        let name = given(port.name.as_ref()).map(str::to_owned);
        if name.is_none() && ports.len() > 1 {
            return invalid(".name is missing; every port needs a name when there is more than one");
        }
        if !keys.insert((port.port, protocol.clone())) || !names.insert(name.clone()) {
            return invalid(" has the number or the name of another one; give it its own");
        }
        read.push(ServicePort {
            name,
            target_port: port.target_port.clone().or(Some(IntOrString::Int(port.port))),
            node_port: port.node_port.filter(|number| *number != 0),
            protocol: Some(protocol),
            ..port.clone()
        });
    }
    Ok(read)
}

/// No cluster IP, no node port that is not asked for: an apply leaves alone what it does not name, and for a port that gets
/// another number the API server carries the node port over by its name.
fn service(name: &str, ports: Vec<ServicePort>) -> Option<Service> {
    let type_ = if ports.iter().any(|port| port.node_port.is_some()) { "NodePort" } else { "ClusterIP" };
    (!ports.is_empty()).then(|| Service {
        metadata: named(name),
        spec: Some(ServiceSpec {
            type_: Some(type_.into()),
            selector: Some(selector(name)),
            ports: Some(ports),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// The targets of the ports are what is open.
fn shield(name: &str, ports: &[ServicePort], proxy: &Proxy) -> NetworkPolicy {
    let targets = ports.iter().map(|port| {
        let target = port.target_port.clone().unwrap_or(IntOrString::Int(port.port));
        (target, port.protocol.as_deref().unwrap_or("TCP"))
    });
    shielding(name, selector(name), targets, proxy)
}

/// Each target once. A target that is a name gets the number of its port.
fn container_ports(ports: &[ServicePort]) -> Vec<ContainerPort> {
    let mut all: Vec<ContainerPort> = Vec::new();
    for port in ports {
        let (name, number) = match &port.target_port {
            Some(IntOrString::Int(number)) => (None, *number),
            Some(IntOrString::String(name)) => (Some(name.clone()), port.port),
            None => (None, port.port),
        };
        let same = |other: &&mut ContainerPort| other.container_port == number && other.protocol == port.protocol;
        match all.iter_mut().find(same) {
            Some(other) => other.name = other.name.take().or(name),
            None => all.push(ContainerPort {
                name,
                container_port: number,
                protocol: port.protocol.clone(),
                ..ContainerPort::default()
            }),
        }
    }
    all
}

/// The address within the cluster.
fn address(name: &str, namespace: &str, port: &ServicePort) -> String {
    let secure = port.port == 443 || port.app_protocol.as_deref() == Some("https");
    let (scheme, usual) = if secure { ("https", 443) } else { ("http", 80) };
    let number = if port.port == usual { String::new() } else { format!(":{}", port.port) };
    format!("{scheme}://{name}.{namespace}.svc{number}/")
}

#[cfg(test)]
mod tests {
    use crate::api::EasyService;
    use crate::kinds::golden;

    #[test]
    fn every_case_gives_the_children_on_record() {
        golden::check::<EasyService>("easy_service");
    }
}
