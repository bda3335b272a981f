//! The other kinds: what each has that the first does not.

use aiscope_operator::api::EasyService;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::kit::{Case, Error, Outcome, condition, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("an_easy_service_becomes_ready_and_shows_its_deployments_counts", easy_service),
        trial("cluster_ip_and_node_ports_survive_every_change_of_ports", addresses_survive),
    ]
}

async fn easy_service() -> Outcome {
    let case = Case::new("easy").await?;
    let operator = case.operator();
    case.kubectl(&["apply", "-f", "manifests/samples/easyservice.yaml"]).await?;
    case.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "easyservice/web"]).await?;
    let counts = case.until_stands::<EasyService>("web").await?.status.unwrap_or_default();
    assert_eq!(
        (counts.replicas, counts.updated_replicas, counts.ready_replicas, counts.available_replicas),
        (Some(2), Some(2), Some(2), Some(2))
    );
    assert_eq!(counts.unavailable_replicas, Some(0));
    let table = case.kubectl(&["get", "aiscope"]).await?;
    let columns: Vec<&str> = table.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(
        &columns[..4],
        ["easyservice.app.kubebuilder.io/web", "True", "Ready", "http://web.easy.svc/"],
        "{table}"
    );
    case.kubectl(&["scale", "easyservice/web", "--replicas=0"]).await?;
    let stopped = case.until_stands::<EasyService>("web").await?;
    assert_eq!(condition(&stopped, "Ready").map(|c| c.reason.as_str()), Some("ScaledToZero"));
    case.apply::<EasyService>("web", json!({ "size": 1, "image": "nginx:1.7.9", "ports": [] })).await?;
    case.until_gone::<Service>("web").await?;
    case.until_stands::<EasyService>("web").await?;
    let bad = json!([{ "name": "a", "port": 80 }, { "name": "a", "port": 81 }]);
    case.apply::<EasyService>("web", json!({ "size": 1, "image": "nginx:1.7.9", "ports": bad })).await?;
    case.until_told::<EasyService>("web", "Stalled", "InvalidSpec").await?;
    operator.stop().await
}

/// Applies these ports, waits until they stand, and returns the Service's cluster IP and its ports.
async fn with_ports(case: &Case, ports: Value) -> Result<(String, Vec<ServicePort>), Error> {
    case.apply::<EasyService>("a", json!({ "size": 1, "image": "nginx", "ports": ports })).await?;
    case.until_stands::<EasyService>("a").await?;
    let spec = case.all::<Service>().get("a").await?.spec.ok_or("no spec")?;
    Ok((spec.cluster_ip.ok_or("no cluster IP")?, spec.ports.unwrap_or_default()))
}

/// The node port of the port with this name.
fn node_port(ports: &[ServicePort], name: &str) -> Option<i32> {
    ports.iter().find(|port| port.name.as_deref() == Some(name))?.node_port
}

async fn addresses_survive() -> Outcome {
    let case = Case::new("nodeports").await?;
    let operator = case.operator();
    let fixed = json!({ "name": "fixed", "port": 80, "nodePort": 31117 });
    let (address, ports) = with_ports(&case, json!([fixed, { "name": "free", "port": 81 }])).await?;
    let free = node_port(&ports, "free");
    assert!(free.is_some() && free != node_port(&ports, "fixed"), "{ports:?}");
    for (change, name, given) in [
        ("added", "free", json!([fixed, { "name": "free", "port": 81 }, { "name": "more", "port": 82 }])),
        ("other order", "free", json!([{ "name": "more", "port": 82 }, { "name": "free", "port": 81 }, fixed])),
        ("removed", "free", json!([fixed, { "name": "free", "port": 81 }])),
        ("renamed", "liberty", json!([fixed, { "name": "liberty", "port": 81 }])),
        ("renumbered", "liberty", json!([fixed, { "name": "liberty", "port": 8081 }])),
        ("another target", "liberty", json!([fixed, { "name": "liberty", "port": 8081, "targetPort": 9 }])),
        ("another protocol", "liberty", json!([fixed, { "name": "liberty", "port": 8081, "protocol": "UDP" }])),
        ("its number given", "liberty", json!([fixed, { "name": "liberty", "port": 8081, "nodePort": free }])),
        ("no longer given", "liberty", json!([fixed, { "name": "liberty", "port": 8081 }])),
    ] {
        let (now, ports) = with_ports(&case, given.clone()).await?;
        assert_eq!((now.as_str(), node_port(&ports, name)), (address.as_str(), free), "{change}: {ports:?}");
        assert_eq!(ports.len(), given.as_array().map_or(0, Vec::len), "{change}: {ports:?}");
        assert_eq!(node_port(&ports, "fixed"), Some(31117), "{change}");
    }
    // Somebody edits the port by hand, then it gets another number.
    case.kubectl(&[
        "patch",
        "service/a",
        "--type=json",
        "-p",
        r#"[{"op":"add","path":"/spec/ports/1/appProtocol","value":"http"}]"#,
    ])
    .await?;
    let (now, ports) = with_ports(&case, json!([fixed, { "name": "liberty", "port": 8082 }])).await?;
    assert_eq!((now.as_str(), node_port(&ports, "liberty")), (address.as_str(), free), "{ports:?}");
    assert_eq!(ports.len(), 2, "{ports:?}");
    // Without any node port that is asked for there is none, and the address stays.
    let (now, ports) = with_ports(&case, json!([{ "name": "liberty", "port": 8082 }])).await?;
    assert_eq!((now.as_str(), node_port(&ports, "liberty")), (address.as_str(), None), "{ports:?}");
    let text = serde_json::to_string(&case.all::<Deployment>().get("a").await?.spec)?;
    assert!(text.contains(r#""containerPort":8082"#) && !text.contains("8081"), "{text}");
    operator.stop().await
}
