//! The whole testbed, for real: `TESTBED_TESTS=none,simulated,real,killed-none,killed-real cargo test -p testbed --test whole`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
    if std::env::var_os("TESTBED_HOLD").is_some() {
        hold();
    }
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
    for node in ["none", "real"] {
        if wanted.split(',').any(|one| one == format!("killed-{node}")) {
            killed(node, owner);
            println!("killed-{node}: nothing is left when the owner is killed");
            killed(node, supervisor);
            println!("killed-{node}: nothing is left when the supervisor is killed");
        }
    }
}

/// Starts everything and waits to be killed.
fn hold() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let node = if std::env::var("TESTBED_HOLD").unwrap() == "real" { Node::Real } else { Node::None };
    runtime.block_on(async {
        let testbed = Testbed::start(Options { node, ..Options::default() }).await.unwrap();
        let _s3 = testbed.s3(&["b"]).await.unwrap();
        let _postgres = testbed.postgres().await.unwrap();
        let _traefik = testbed.traefik(TraefikOptions::default()).await.unwrap();
        if node == Node::Real {
            deployment_becomes_available(&testbed, Image::Pause.reference(), json!({})).await;
        }
        println!("holding {}", testbed.dir().display());
        std::future::pending::<()>().await;
    });
}

/// Kills the owner of a testbed, or its supervisor, and looks for what is left.
fn killed(node: &str, victim: fn(&Child, &Path) -> String) {
    let me = std::env::current_exe().unwrap();
    let mut owner = Command::new(me).env("TESTBED_HOLD", node).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines().map_while(Result::ok);
    let dir = lines.find_map(|line| line.strip_prefix("holding ").map(PathBuf::from)).expect("it starts");
    let name = dir.file_name().unwrap().to_str().unwrap().to_owned();
    let pid = victim(&owner, &dir);
    assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut left = left_of(&name);
    while !left.is_empty() && Instant::now() < deadline {
        std::thread::yield_now();
        // When the supervisor was killed, its directory and control groups wait for the next command.
        testbed::status().unwrap();
        left = left_of(&name);
    }
    let _ = owner.kill();
    owner.wait().unwrap();
    assert!(left.is_empty(), "{left:#?}");
}

/// Processes, mounts, links and control groups that name a testbed.
fn left_of(name: &str) -> Vec<String> {
    let output = |command: &str| {
        let output = Command::new("sh").args(["-c", command]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let processes = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null";
    let mentions =
        [output(processes), output("cat /proc/mounts"), output("find /sys/fs/cgroup -type d -name 'aiscope*'")];
    let mut left: Vec<String> =
        mentions.iter().flat_map(|text| text.lines()).filter(|line| line.contains(name)).map(str::to_owned).collect();
    // Other testbeds may run beside this one; their links are of other slots.
    let running = testbed::status().unwrap();
    left.extend(running.iter().filter(|one| one.name == name).map(|one| format!("{one:?}")));
    if running.is_empty() {
        left.extend(
            output("ip -brief link; ip route; nft list tables")
                .lines()
                .filter(|line| line.contains("aiscope") || line.contains("kube-proxy"))
                .map(str::to_owned),
        );
        left.extend(Path::new("/tmp/hostpath_pv").exists().then(|| "/tmp/hostpath_pv".to_owned()));
    }
    left
}

fn owner(owner: &Child, _: &Path) -> String {
    owner.id().to_string()
}

fn supervisor(_: &Child, dir: &Path) -> String {
    let state: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("state.json")).unwrap()).unwrap();
    state["keeper"]["pid"].to_string()
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
    tokio::time::timeout(Duration::from_mins(3), wait).await.expect("available in time").unwrap();
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
    route(&testbed.client("whole/3").unwrap(), traefik.http()).await;
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

/// Waits until a host's route leads to MLflow.
async fn answers(address: SocketAddr, host: &str) {
    let url = format!("http://{address}/health");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let curl = Command::new("curl").args(["-s", "-H", &format!("Host: {host}"), &url]).output().unwrap();
        let text = String::from_utf8_lossy(&curl.stdout).into_owned();
        if text == "OK" {
            return;
        }
        assert!(Instant::now() < deadline, "{host}: {text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// One service, and a route of each kind that leads to it.
async fn route(client: &Client, address: SocketAddr) {
    let apply = async |group: &str, version: &str, kind: &str, spec: serde_json::Value| {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let objects = Api::<DynamicObject>::namespaced_with(client.clone(), "default", &resource);
        let object = json!({
            "apiVersion": resource.api_version, "kind": kind, "metadata": {"name": "web"}, "spec": spec,
        });
        objects.patch("web", &PatchParams::apply("whole"), &Patch::Apply(object)).await.unwrap();
    };
    let service = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 5000}]});
    apply("", "v1", "Service", service).await;
    let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
    let http = json!({"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]});
    let rules = json!({"ingressClassName": "nginx", "rules": [{"host": "nginx.test", "http": http}]});
    apply("networking.k8s.io", "v1", "Ingress", rules).await;
    let listeners = json!([{"name": "http", "protocol": "HTTP", "port": address.port()}]);
    let gateway = json!({"gatewayClassName": "traefik", "listeners": listeners});
    apply("gateway.networking.k8s.io", "v1", "Gateway", gateway).await;
    let rules = json!([{"backendRefs": [{"name": "web", "port": 80}]}]);
    let route = json!({"parentRefs": [{"name": "web"}], "hostnames": ["gateway.test"], "rules": rules});
    apply("gateway.networking.k8s.io", "v1", "HTTPRoute", route).await;
    answers(address, "nginx.test").await;
    answers(address, "gateway.test").await;
    // Last, for it takes every host: MLflow's client goes by address.
    let routes = json!([{"kind": "Rule", "match": "PathPrefix(`/`)", "services": [{"name": "web", "port": 80}]}]);
    apply("traefik.io", "v1alpha1", "IngressRoute", json!({"entryPoints": ["web"], "routes": routes})).await;
    answers(address, "crd.test").await;
}
