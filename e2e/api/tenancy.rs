//! Many tenants on one cluster: who may reach what.

use aiscope_operator::api::{CodeServer, EasyService, JupyterNotebook, TrackingServer};
use aiscope_operator::engine::workload::Workload;
use aiscope_operator::kinds::{Platform, Proxy};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::kit::{Case, Outcome, condition, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial("a_network_policy_stands_in_front_of_the_pods_of_every_kind_and_goes_when_turned_off", network_policy)]
}

async fn network_policy() -> Outcome {
    let case = Case::new("shielded").await?;
    let proxy = Proxy { namespace: Some("traefik".into()), ..Proxy::default() };
    let operator = case.operator_with(Platform { proxy, ..Platform::default() }, &[]);
    on_and_off::<TrackingServer>(&case, "a", minimal()).await?;
    on_and_off::<JupyterNotebook>(&case, "b", json!({ "image": "i", "url": "http://ml.example.com/b" })).await?;
    on_and_off::<CodeServer>(&case, "c", json!({ "image": "i", "url": "http://ml.example.com/c" })).await?;
    on_and_off::<EasyService>(&case, "d", json!({ "size": 1, "image": "i", "ports": [{ "port": 80 }] })).await?;
    operator.stop().await?;
    // Nobody told this operator where the proxy is: it says so, and lets nobody in instead.
    let operator = case.operator();
    let mut spec = minimal();
    spec["networkPolicy"] = json!(true);
    case.serve("a", spec).await?;
    let told = case.until_reason("a", "Degraded", "ProxyUnknown").await?;
    assert_eq!(condition(&told, "Ready").map(|c| c.status.as_str()), Some("True"));
    operator.stop().await
}

async fn on_and_off<W: Workload>(case: &Case, name: &str, mut spec: Value) -> Outcome {
    spec["networkPolicy"] = json!(true);
    case.apply::<W>(name, spec.clone()).await?;
    case.until_stands::<W>(name).await?;
    let rules = case.all::<NetworkPolicy>().get(name).await?.spec.and_then(|spec| spec.ingress).unwrap_or_default();
    let from = serde_json::to_value(rules.first().and_then(|rule| rule.from.clone()))?;
    let proxy = json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "traefik" } } });
    assert_eq!(from, json!([{ "podSelector": {} }, proxy]), "{name}");
    spec["networkPolicy"] = json!(false);
    case.apply::<W>(name, spec).await?;
    case.until_gone::<NetworkPolicy>(name).await?;
    case.until_stands::<W>(name).await.map(drop)
}
