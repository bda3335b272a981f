//! The whole testbed, for real: `TESTBED_TESTS=none,simulated,real cargo test -p testbed --test whole`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::json;
use testbed::{Image, Node, Options, Testbed, TraefikOptions};

fn main() {
    testbed::supervise_if_asked();
    let wanted = std::env::var("TESTBED_TESTS").unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for (name, test) in [("none", Node::None), ("simulated", Node::Simulated), ("real", Node::Real)] {
        if wanted.split(',').any(|one| one == name) {
            let begun = Instant::now();
            runtime.block_on(run(test));
            println!("{name}: ok ({:.1} s)", begun.elapsed().as_secs_f32());
        } else {
            println!("{name}: skipped, not in TESTBED_TESTS");
        }
    }
}

async fn run(node: Node) {
    let begun = Instant::now();
    let testbed = Testbed::start(Options { node, ..Options::default() }).await.unwrap();
    println!("started in {:.1} s", begun.elapsed().as_secs_f32());
    requests_are_seen_in_order(&testbed).await;
    if node == Node::Simulated {
        deployment_becomes_available(&testbed, "anything:1", json!({})).await;
    }
    if node == Node::Real {
        mlflow_logs_a_run_through_traefik_into_real_stores(&testbed).await;
    }
    let dir = testbed.dir().to_owned();
    let begun = Instant::now();
    testbed.stop().await.unwrap();
    println!("stopped in {:.1} s", begun.elapsed().as_secs_f32());
    assert!(!dir.exists());
}

async fn requests_are_seen_in_order(testbed: &Testbed) {
    let maps: Api<ConfigMap> = Api::namespaced(testbed.client("whole/1").unwrap(), "default");
    let map = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    maps.get("a").await.unwrap();
    assert!(maps.get("b").await.is_err());
    let seen: Vec<_> = testbed
        .requests("whole/")
        .unwrap()
        .into_iter()
        .map(|request| (request.verb, request.resource, request.name, request.code))
        .collect();
    let expected = [("create", "a", 201), ("get", "a", 200), ("get", "b", 404)]
        .map(|(verb, name, code)| (verb.to_owned(), "configmaps".to_owned(), name.to_owned(), code));
    assert_eq!(seen, expected);
}

async fn deployment_becomes_available(testbed: &Testbed, image: &str, container: serde_json::Value) {
    let deployments: Api<Deployment> = Api::namespaced(testbed.client("whole/2").unwrap(), "default");
    let mut spec = json!({"name": "web", "image": image, "imagePullPolicy": "IfNotPresent"});
    spec.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}},
                 "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                    "containers": [spec]}}}
    });
    deployments.patch("web", &PatchParams::apply("whole"), &Patch::Apply(deployment)).await.unwrap();
    let available = |deployment: Option<&Deployment>| {
        deployment.and_then(|it| it.status.as_ref()?.available_replicas).is_some_and(|count| count > 0)
    };
    let wait = await_condition(deployments, "web", available);
    tokio::time::timeout(Duration::from_secs(180), wait).await.expect("available in time").unwrap();
}

async fn mlflow_logs_a_run_through_traefik_into_real_stores(testbed: &Testbed) {
    testbed.load_image(Image::Mlflow).await.unwrap();
    let s3 = testbed.s3(&["artifacts"]).await.unwrap();
    let postgres = testbed.postgres().await.unwrap();
    let traefik = testbed.traefik(TraefikOptions { gateway: true, nginx: true, ..Default::default() }).await.unwrap();
    let begun = Instant::now();
    let command = format!(
        "exec mlflow server --host 0.0.0.0 --port 5000 --backend-store-uri {} --artifacts-destination s3://artifacts \
         --serve-artifacts --allowed-hosts '*'",
        postgres.uri()
    );
    let container = json!({
        "command": ["sh", "-c", command],
        "env": [
            {"name": "MLFLOW_S3_ENDPOINT_URL", "value": s3.endpoint()},
            {"name": "AWS_ACCESS_KEY_ID", "value": s3.access_key()},
            {"name": "AWS_SECRET_ACCESS_KEY", "value": s3.secret_key()},
        ],
        "ports": [{"containerPort": 5000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": 5000}, "periodSeconds": 1},
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": true, "readOnlyRootFilesystem": true,
                            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    });
    deployment_becomes_available(testbed, Image::Mlflow.reference(), container).await;
    println!("MLflow answers /health after {:.1} s", begun.elapsed().as_secs_f32());
    route(&testbed.client("whole/3").unwrap()).await;
    let code = "
import mlflow, os, tempfile
mlflow.set_tracking_uri(os.environ['URI'])
with mlflow.start_run() as run:
    mlflow.log_metric('loss', 0.5)
    mlflow.log_text('hello', 'note.txt')
print(mlflow.artifacts.load_text(f'runs:/{run.info.run_id}/note.txt'))
";
    let mut python = testbed.mlflow_python().await.unwrap();
    let begun = Instant::now();
    let output = python.args(["-c", code]).env("URI", format!("http://{}", traefik.http())).output().unwrap();
    println!("MLflow's client took {:.1} s", begun.elapsed().as_secs_f32());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("hello"), "{text} {}", String::from_utf8_lossy(&output.stderr));
    assert!(s3.bucket("artifacts").join("0").is_dir());
    let api = traefik.api();
    drop(traefik);
    assert!(std::net::TcpStream::connect(api).is_err());
}

async fn route(client: &Client) {
    let object = |group: &str, version: &str, kind: &str| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::<DynamicObject>::namespaced_with(client.clone(), "default", &resource)
    };
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 5000}]},
    });
    let route = json!({
        "apiVersion": "traefik.io/v1alpha1", "kind": "IngressRoute", "metadata": {"name": "web"},
        "spec": {"entryPoints": ["web"], "routes": [{"kind": "Rule", "match": "PathPrefix(`/`)",
                 "services": [{"name": "web", "port": 80}]}]},
    });
    let parameters = PatchParams::apply("whole");
    object("", "v1", "Service").patch("web", &parameters, &Patch::Apply(service)).await.unwrap();
    object("traefik.io", "v1alpha1", "IngressRoute").patch("web", &parameters, &Patch::Apply(route)).await.unwrap();
}
