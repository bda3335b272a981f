//! PURE: the `NetworkPolicy` of a workload: who may reach its pods.
//!
//! What a policy can name (<https://kubernetes.io/docs/concepts/services-networking/network-policies/>): pods by labels, and
//! networks. The kubelet's probes come from the pod's own node and always pass. A proxy on the host network, a load
//! balancer and the API server are no pods: they are named by network.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::service::named;

/// The label that the API server puts on every namespace: its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Where the proxy that serves the routes calls from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// The namespace of its pods; `None`: it is not known, or they are no pods.
    pub namespace: Option<String>,
    /// Labels of its pods; none: every pod of the namespace.
    pub labels: BTreeMap<String, String>,
    /// Networks from which it, or the API server with a question, calls.
    pub networks: Vec<Network>,
}

/// A network in CIDR notation, e.g. `10.0.0.0/24`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network(String);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (address, bits) = text.split_once('/')?;
            let most = if address.parse::<IpAddr>().ok()?.is_ipv4() { 32 } else { 128 };
            bits.parse::<u8>().ok().filter(|bits| *bits <= most)
        };
        read().map(|_| Self(text.to_owned())).ok_or_else(|| "must be a network such as 10.0.0.0/24".to_owned())
    }
}

impl Proxy {
    /// Nothing is known of it.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.namespace.is_none() && self.networks.is_empty()
    }

    fn peers(&self) -> impl Iterator<Item = NetworkPolicyPeer> {
        let selector = |labels: BTreeMap<String, String>| {
            Some(LabelSelector { match_labels: (!labels.is_empty()).then_some(labels), ..LabelSelector::default() })
        };
        let pods = self.namespace.as_ref().map(|namespace| NetworkPolicyPeer {
            namespace_selector: selector(BTreeMap::from([(NAMESPACE_NAME.to_owned(), namespace.clone())])),
            pod_selector: selector(self.labels.clone()).filter(|_| !self.labels.is_empty()),
            ..NetworkPolicyPeer::default()
        });
        let network = |Network(cidr): &Network| NetworkPolicyPeer {
            ip_block: Some(IPBlock { cidr: cidr.clone(), except: None }),
            ..NetworkPolicyPeer::default()
        };
        pods.into_iter().chain(self.networks.iter().map(network))
    }
}

/// A policy that lets the pods of the namespace and the proxy reach these ports (number or name in the pod, protocol) of the
/// selected pods, and nobody else anything. Without ports nobody reaches them.
#[must_use]
pub fn shielding<'a>(
    name: &str,
    selector: BTreeMap<String, String>,
    ports: impl IntoIterator<Item = (IntOrString, &'a str)>,
    proxy: &Proxy,
) -> NetworkPolicy {
    let port = |(port, protocol): (IntOrString, &str)| NetworkPolicyPort {
        port: Some(port),
        protocol: Some(protocol.to_owned()),
        end_port: None,
    };
    let ports: Vec<NetworkPolicyPort> = ports.into_iter().map(port).collect();
    let neighbours = NetworkPolicyPeer { pod_selector: Some(LabelSelector::default()), ..NetworkPolicyPeer::default() };
    // A rule without ports would mean every port.
    let rule = (!ports.is_empty()).then(|| NetworkPolicyIngressRule {
        from: Some(std::iter::once(neighbours).chain(proxy.peers()).collect()),
        ports: Some(ports),
    });
    NetworkPolicy {
        metadata: named(name),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector { match_labels: Some(selector), ..LabelSelector::default() }),
            policy_types: Some(vec!["Ingress".into()]),
            ingress: rule.map(|rule| vec![rule]),
            egress: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::child::strip;

    fn spec(ports: &[&str], proxy: &Proxy) -> serde_json::Value {
        let ports = ports.iter().map(|name| (IntOrString::String((*name).to_owned()), "TCP"));
        let selector = BTreeMap::from([("app".to_owned(), "a".to_owned())]);
        let mut value = serde_json::to_value(shielding("a", selector, ports, proxy)).unwrap();
        strip(&mut value);
        value["spec"].take()
    }

    #[test]
    fn neighbours_and_the_proxy_reach_the_named_port_and_nobody_else_anything() {
        let labels = BTreeMap::from([("app".to_owned(), "traefik".to_owned())]);
        let proxy =
            Proxy { namespace: Some("ingress".into()), labels, networks: vec!["192.0.2.0/24".parse().unwrap()] };
        let wanted = json!({
            "podSelector": { "matchLabels": { "app": "a" } },
            "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [
                    { "podSelector": {} },
                    {
                        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "ingress" } },
                        "podSelector": { "matchLabels": { "app": "traefik" } },
                    },
                    { "ipBlock": { "cidr": "192.0.2.0/24" } },
                ],
                "ports": [{ "port": "server", "protocol": "TCP" }],
            }],
        });
        assert_eq!(spec(&["server"], &proxy), wanted);
    }

    #[test]
    fn the_choice_of_every_pod_in_the_namespace_outlasts_the_removal_of_what_is_empty() {
        let alone = spec(&["server"], &Proxy::default());
        assert_eq!(alone["ingress"][0]["from"], json!([{ "podSelector": {} }]));
    }

    #[test]
    fn without_a_port_nobody_is_let_in() {
        let closed = spec(&[], &Proxy { namespace: Some("ingress".into()), ..Proxy::default() });
        assert_eq!(closed["ingress"], serde_json::Value::Null);
        assert_eq!(closed["policyTypes"], json!(["Ingress"]));
    }

    #[test]
    fn a_network_is_an_address_and_a_length() {
        for good in ["10.0.0.0/8", "0.0.0.0/0", "2001:db8::/32"] {
            assert!(good.parse::<Network>().is_ok(), "{good}");
        }
        for bad in ["10.0.0.0", "10.0.0.0/33", "10.*", "2001:db8::/129", "/8", ""] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
