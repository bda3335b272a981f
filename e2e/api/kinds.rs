//! The other kinds: what each has that the first does not.

use std::time::Duration;

use aiscope_operator::api::{CodeServer, EasyService, JupyterNotebook, TrackingServer};
use aiscope_operator::kinds::{Ingress, Platform};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, Service, ServicePort};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::kit::{Case, Error, Outcome, Running, condition, holds, http_route, ingress_route, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("an_easy_service_becomes_ready_and_shows_its_deployments_counts", easy_service),
        trial("notebooks_and_code_servers_become_ready_and_are_listed_together", workspaces),
        trial("a_token_is_made_up_once_and_again_only_when_it_is_gone", token),
        trial("a_notebook_waits_for_its_tracking_server_and_heals", tracking_server),
        trial("routes_of_the_gateway_api_come_and_go_with_the_option_and_tell_what_the_gateway_says", gateway),
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

fn workspace() -> Value {
    json!({ "image": "image:1", "url": "http://ml.example.com/w" })
}

async fn workspaces() -> Outcome {
    let case = Case::new("workspaces").await?;
    let operator = case.operator();
    for kind in ["trackingserver", "jupyternotebook", "codeserver"] {
        case.kubectl(&["apply", "-f", &format!("manifests/samples/{kind}.yaml")]).await?;
    }
    let wait = ["wait", "--for=condition=Ready", "--timeout=60s"];
    for resource in ["jupyternotebook/lab", "codeserver/code", "trackingserver/mlflow"] {
        case.kubectl(&[&wait[..], &[resource]].concat()).await?;
    }
    let table = case.kubectl(&["get", "aiscope"]).await?;
    for line in [
        "codeserver.experiment.aiscope/code True Ready http://ml.example.com/code/",
        "jupyternotebook.experiment.aiscope/lab True Ready http://ml.example.com/lab/",
    ] {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert!(table.lines().any(|l| words(l).starts_with(&words(line))), "{table}");
    }
    // Nothing differs: nothing is written, also by another operator.
    let operator = silent_restart(&case, operator, Platform::default()).await?;
    let refused = case.kubectl(&["scale", "codeserver/code", "--replicas=2"]).await;
    assert!(refused.is_err(), "{refused:?}");
    case.kubectl(&["scale", "codeserver/code", "--replicas=0"]).await?;
    let stopped = case.until_stands::<CodeServer>("code").await?;
    assert_eq!(condition(&stopped, "Ready").map(|c| c.reason.as_str()), Some("ScaledToZero"));
    operator.stop().await
}

/// Restarts the operator, which has nothing to do and so requests nothing.
async fn silent_restart(case: &Case, operator: Running, platform: Platform) -> Result<Running, Error> {
    case.until_quiet(Duration::from_secs(1)).await?;
    let before = case.requests()?.len();
    operator.stop().await?;
    let operator = case.operator_with(platform, &[]);
    // It is served after the others have been looked at: they were in the first lists.
    case.apply::<EasyService>("mark", json!({ "size": 0, "image": "i" })).await?;
    case.until_stands::<EasyService>("mark").await?;
    case.until_quiet(Duration::from_secs(1)).await?;
    let mut after = case.requests()?.split_off(before);
    after.retain(|r| !r.name.starts_with("mark") && !r.uri.contains("/events"));
    assert!(after.is_empty(), "requests after a restart: {after:#?}");
    Ok(operator)
}

/// The value of a key of a Secret.
async fn value(case: &Case, secret: &str, key: &str) -> Result<Vec<u8>, Error> {
    let data = case.all::<Secret>().get(secret).await?.data.unwrap_or_default();
    data.get(key).map(|bytes| bytes.0.clone()).ok_or_else(|| format!("no {key} in {secret}").into())
}

async fn token() -> Outcome {
    let case = Case::new("token").await?;
    let operator = case.operator();
    case.apply::<JupyterNotebook>("a", workspace()).await?;
    case.until_stands::<JupyterNotebook>("a").await?;
    let first = value(&case, "a-token", "token").await?;
    assert!(first.len() == 43 && first.iter().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(b)));
    let generation = async || Ok::<_, Error>(case.all::<Deployment>().get("a").await?.metadata.generation);
    assert_eq!(generation().await?, Some(1), "the pod is started once, with the token");
    // Neither a restart nor a change of the spec changes it.
    operator.stop().await?;
    let operator = case.operator();
    let mut spec = workspace();
    spec["env"] = json!([{ "name": "NEW", "value": "1" }]);
    case.apply::<JupyterNotebook>("a", spec).await?;
    case.until_stands::<JupyterNotebook>("a").await?;
    assert_eq!(value(&case, "a-token", "token").await?, first);
    // Somebody puts in a value of their own: it stays, and the pod takes it up.
    let own = json!({ "stringData": { "token": "mine" } });
    case.all::<Secret>().patch("a-token", &PatchParams::default(), &Patch::Merge(own)).await?;
    case.until("a", "rolled", |d: &Deployment| d.metadata.generation == Some(3)).await?;
    assert_eq!(value(&case, "a-token", "token").await?, b"mine");
    // Gone as a key, and gone as a whole: a new one each time, and a pod that takes it up.
    let none = json!({ "data": { "token": null } });
    case.all::<Secret>().patch("a-token", &PatchParams::default(), &Patch::Merge(none)).await?;
    case.until("a", "rolled", |d: &Deployment| d.metadata.generation == Some(4)).await?;
    let second = value(&case, "a-token", "token").await?;
    case.all::<Secret>().delete("a-token", &DeleteParams::default()).await?;
    case.until("a", "rolled", |d: &Deployment| d.metadata.generation == Some(5)).await?;
    let third = value(&case, "a-token", "token").await?;
    assert!(first != second && second != third && third.len() == 43);
    case.until_stands::<JupyterNotebook>("a").await?;
    // It is nowhere else.
    let shown = format!(
        "{:?}{}{}",
        case.all::<JupyterNotebook>().get("a").await?,
        serde_json::to_string(&case.all::<Deployment>().get("a").await?)?,
        case.kubectl(&["get", "events", "-o", "yaml"]).await?
    );
    assert!(!shown.contains(std::str::from_utf8(&third)?), "the token is shown");
    // Somebody else's Secret of the name is left alone, and no pod uses it.
    let theirs = serde_json::from_value(json!({ "metadata": { "name": "b-token" }, "stringData": { "token": "x" } }))?;
    case.all::<Secret>().create(&PostParams::default(), &theirs).await?;
    let mut spec = workspace();
    spec["url"] = json!("http://ml.example.com/b");
    case.apply::<JupyterNotebook>("b", spec).await?;
    let told = case.until_told::<JupyterNotebook>("b", "Stalled", "NotOwned").await?;
    assert!(condition(&told, "Ready").is_some_and(|c| c.message.contains("Secret token/b-token")), "{told:#?}");
    assert!(case.all::<Deployment>().get_opt("b").await?.is_none());
    case.all::<Secret>().delete("b-token", &DeleteParams::default()).await?;
    case.until_stands::<JupyterNotebook>("b").await?;
    operator.stop().await
}

async fn tracking_server() -> Outcome {
    let case = Case::new("wiring").await?;
    let operator = case.operator();
    let mut spec = workspace();
    spec["trackingServerRef"] = json!("mlflow");
    case.apply::<JupyterNotebook>("a", spec).await?;
    let told = case.until_told::<JupyterNotebook>("a", "Degraded", "TrackingServerMissing").await?;
    let message = condition(&told, "Ready").map(|c| c.message.clone()).unwrap_or_default();
    assert!(message.contains("TrackingServer mlflow") && message.contains("create it"), "{message}");
    assert!(case.all::<Deployment>().get_opt("a").await?.is_none());
    let mut server = minimal();
    server["s3_endpoint_url"] = json!("http://store.example.com");
    server["aws_access_key"] = json!("AKIA");
    server["aws_secret_key"] = json!("hunter2");
    case.serve("mlflow", server.clone()).await?;
    case.until_stands::<JupyterNotebook>("a").await?;
    let text = serde_json::to_string(&case.all::<Deployment>().get("a").await?.spec)?;
    for part in [
        r#"{"name":"MLFLOW_TRACKING_URI","value":"http://mlflow.wiring.svc:5000"}"#,
        r#"{"name":"MLFLOW_S3_ENDPOINT_URL","value":"http://store.example.com"}"#,
        r#"{"name":"AWS_SECRET_ACCESS_KEY","valueFrom":{"secretKeyRef":{"key":"AWS_SECRET_ACCESS_KEY","name":"mlflow-env"}}}"#,
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("hunter2"));
    // It follows what it refers to, and keeps running when that goes.
    server["s3_endpoint_url"] = json!("http://other.example.com");
    case.serve("mlflow", server).await?;
    let there = |d: &Deployment| serde_json::to_string(d).is_ok_and(|text| text.contains("http://other.example.com"));
    case.until("a", "wired anew", there).await?;
    case.all::<TrackingServer>().delete("mlflow", &DeleteParams::default()).await?;
    case.until_told::<JupyterNotebook>("a", "Degraded", "TrackingServerMissing").await?;
    assert!(there(&case.all::<Deployment>().get("a").await?));
    // A restart finds it as it was.
    case.serve("mlflow", minimal()).await?;
    case.until_stands::<JupyterNotebook>("a").await?;
    let operator = silent_restart(&case, operator, Platform::default()).await?;
    operator.stop().await
}

/// Says of a route what a Gateway's controller would.
async fn say(case: &Case, name: &str, accepted: bool) -> Outcome {
    let routes = case.dynamic(&http_route());
    let route = routes.get(name).await?;
    let (status, reason) = if accepted { ("True", "Accepted") } else { ("False", "NotAllowedByListeners") };
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": "the other side's words",
            "observedGeneration": route.metadata.generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let conditions = [condition("Accepted", status, reason), condition("ResolvedRefs", "True", "ResolvedRefs")];
    let parent = &route.data["spec"]["parentRefs"][0];
    let parents = json!([{ "parentRef": parent, "controllerName": "example.com/gateway", "conditions": conditions }]);
    let status = json!({ "status": { "parents": parents } });
    routes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

async fn gateway() -> Outcome {
    let case = Case::new("gateway").await?;
    let by_gateway =
        || Platform { ingress: Ingress::Gateway, gateway: "infra/web".parse().ok(), ..Platform::default() };
    let operator = case.operator_with(by_gateway(), &[]);
    case.serve("a", minimal()).await?;
    let mut notebook = workspace();
    notebook["url"] = json!("https://ml.example.com/nb");
    case.apply::<JupyterNotebook>("nb", notebook).await?;
    case.until_told::<TrackingServer>("a", "Reconciling", "RouteNotAccepted").await?;
    say(&case, "a", false).await?;
    let told = case.until_told::<TrackingServer>("a", "Degraded", "RouteNotAccepted").await?;
    let message = condition(&told, "Ready").map(|c| c.message.clone()).unwrap_or_default();
    assert!(
        message.contains("HTTPRoute a") && message.contains("NotAllowedByListeners: the other side's"),
        "{message}"
    );
    say(&case, "a", true).await?;
    case.until_ready("a").await?;
    crate::kit::until(case.dynamic(&http_route()), "nb", "there", |r: Option<&_>| r.is_some()).await?;
    say(&case, "nb", true).await?;
    case.until_stands::<JupyterNotebook>("nb").await?;
    let spec = |route: &DynamicObject| route.data["spec"].to_string();
    let routes = case.dynamic(&http_route());
    assert!(spec(&routes.get("a").await?).contains("ReplacePrefixMatch"));
    assert!(!spec(&routes.get("nb").await?).contains("ReplacePrefixMatch"), "JupyterLab keeps its path");
    // Nothing differs after a restart, although the API server writes defaults into lists.
    let operator = silent_restart(&case, operator, by_gateway()).await?;
    // Another option leaves nothing behind.
    operator.stop().await?;
    let operator = case.operator();
    case.until("a", "routed by Traefik", |ts: &TrackingServer| holds(ts, "Ready", "True")).await?;
    crate::kit::until(case.dynamic(&http_route()), "a", "gone", |r: Option<&_>| r.is_none()).await?;
    crate::kit::until(case.dynamic(&http_route()), "nb", "gone", |r: Option<&_>| r.is_none()).await?;
    assert!(case.dynamic(&ingress_route()).get_opt("nb").await?.is_some());
    // A route that somebody else made holds its place.
    let theirs = serde_json::from_value(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": { "name": "theirs" },
        "spec": { "hostnames": ["taken.example.com"], "rules": [{ "matches": [{ "path": { "value": "/x" } }] }] },
    }))?;
    case.dynamic(&http_route()).create(&PostParams::default(), &theirs).await?;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let mut taken = minimal();
    taken["url"] = json!("http://taken.example.com/x/y");
    case.serve("b", taken).await?;
    let told = case.until_reason("b", "Stalled", "RouteConflict").await?;
    assert!(condition(&told, "Ready").is_some_and(|c| c.message.contains("HTTPRoute gateway/theirs")), "{told:#?}");
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
