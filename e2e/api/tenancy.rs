//! Many tenants on one cluster: who may reach what.

use aiscope_operator::api::{CodeServer, EasyService, JupyterNotebook, TrackingServer};
use aiscope_operator::engine::workload::Workload;
use aiscope_operator::kinds::{Platform, Proxy};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::kit::{Case, Outcome, condition, ingress_route, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("a_network_policy_stands_in_front_of_the_pods_of_every_kind_and_goes_when_turned_off", network_policy),
        trial("a_host_that_the_namespace_may_not_name_has_no_route_and_the_admission_policy_decides_alike", hosts),
    ]
}

/// Annotation, URL, and whether the one allows the other.
const HOSTS: [(Option<&str>, &str, bool); 12] = [
    (None, "http://any.example.org/", true),
    (Some("*"), "http://any.example.org/", true),
    (Some(""), "http://any.example.org/", false),
    (Some(".team-a.example.com"), "http://ml.team-a.example.com/x", true),
    (Some("*.team-a.example.com"), "https://x.ml.team-a.example.com:8443/x", true),
    (Some(".team-a.example.com"), "http://team-a.example.com/x", false),
    (Some(".team-a.example.com"), "http://evilteam-a.example.com/x", false),
    (Some("team-a.example.com"), "http://evilteam-a.example.com/x", false),
    (Some("team-a.example.com"), "http://ml.team-a.example.com/x", false),
    (Some("other.example.com , Team-A.example.com."), "http://TEAM-a.example.com.:80/x", true),
    (Some("."), "http://team-a.example.com/", false),
    (Some("127.0.0.1"), "http://team-a.example.com/", false),
];

async fn annotate(case: &Case, hosts: Option<&str>) -> Outcome {
    let patch = json!({ "metadata": { "annotations": { "aiscope.io/allowed-hosts": hosts } } });
    let api: Api<Namespace> = Api::all(case.client.clone());
    Ok(api.patch(&case.namespace, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)?)
}

fn at(url: &str) -> Value {
    json!({ "size": 0, "image": "i", "url": url })
}

async fn hosts() -> Outcome {
    let case = Case::new("hosts").await?;
    let operator = case.operator();
    // The operator alone: no policy is installed yet.
    for (index, (annotation, url, allowed)) in HOSTS.into_iter().enumerate() {
        annotate(&case, annotation).await?;
        let name = format!("a{index}");
        case.serve(&name, at(url)).await?;
        if allowed {
            case.until_ready(&name).await.map_err(|e| format!("{annotation:?} {url}: {e}"))?;
        } else {
            case.until_reason(&name, "Stalled", "HostNotAllowed")
                .await
                .map_err(|e| format!("{annotation:?} {url}: {e}"))?;
            assert!(case.dynamic(&ingress_route()).get_opt(&name).await?.is_none(), "{name} has a route");
        }
        case.all::<TrackingServer>().delete(&name, &DeleteParams::default()).await?;
        case.until_gone::<TrackingServer>(&name).await?;
    }
    // An annotation that moves takes the route, and gives it back; who may not name a host holds no place on it.
    annotate(&case, None).await?;
    case.serve("old", at("http://ml.hosts.example.com/")).await?;
    case.until_ready("old").await?;
    annotate(&case, Some("else.example.com")).await?;
    case.until_reason("old", "Stalled", "HostNotAllowed").await?;
    let gone = |route: Option<&DynamicObject>| route.is_none();
    crate::kit::until(case.dynamic(&ingress_route()), "old", "gone", gone).await?;
    let other = Case::new("hosts2").await?;
    let second = other.operator_with(Platform::default(), &["hosts"]);
    other.serve("young", at("http://ml.hosts.example.com/")).await?;
    other.until_ready("young").await?;
    second.stop().await?;
    other.all::<TrackingServer>().delete("young", &DeleteParams::default()).await?;
    other.until_gone::<TrackingServer>("young").await?;
    admission(&case).await?;
    annotate(&case, Some(".hosts.example.com")).await?;
    case.until_ready("old").await?;
    operator.stop().await
}

/// The same table, decided by the API server.
async fn admission(case: &Case) -> Outcome {
    case.kubectl(&["apply", "--server-side", "-k", "manifests/policy"]).await?;
    // What is there and not allowed any more is not held up.
    let asked =
        json!({ "apiVersion": "experiment.aiscope/v1alpha2", "kind": "TrackingServer", "metadata": { "name": "new" } });
    let dry = PatchParams { dry_run: true, ..crate::kit::gitops() };
    let ask = async |name: &str, url: &str| {
        let mut body = asked.clone();
        body["metadata"]["name"] = json!(name);
        body["spec"] = at(url);
        case.all::<TrackingServer>().patch(name, &dry, &Patch::Apply(&body)).await
    };
    let active = async {
        while ask("new", "http://any.example.org/").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(crate::kit::DEADLINE, active).await?;
    let labels = json!({ "metadata": { "labels": { "x": "y" } }, "spec": { "image": "j" } });
    case.all::<TrackingServer>().patch("old", &PatchParams::default(), &Patch::Merge(labels)).await?;
    let refused = ask("old", "http://moved.example.org/").await.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(refused.contains("may not name the host moved.example.org (allowed: else.example.com)"), "{refused}");
    for (annotation, url, allowed) in HOSTS {
        annotate(case, annotation).await?;
        // The policy sees the annotation by a watch of its own.
        let decided = async {
            while ask("new", url).await.is_ok() != allowed {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        let in_time = tokio::time::timeout(std::time::Duration::from_secs(10), decided).await;
        in_time.map_err(|_| format!("{annotation:?} {url}: the policy does not say {allowed}"))?;
    }
    Ok(())
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
