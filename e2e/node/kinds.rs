//! The other kinds with the real programs in their pods.

use aiscope_operator::api::{CodeServer, EasyService, JupyterNotebook};
use aiscope_operator::engine::workload::Workload;
use futures::{SinkExt, StreamExt};
use k8s_openapi::api::core::v1::{Node, Pod, Secret, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use testbed::Image;
use tokio_tungstenite::tungstenite::Message;

use super::http::{Socket, Visitor};
use super::site;

use crate::kit::{Case, DEADLINE, Error, Outcome, holds, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("jupyterlab_runs_code_for_its_token_keeps_its_home_and_knows_its_tracking_server", jupyter_notebook),
        trial("code_server_opens_for_its_password_and_keeps_its_home", code_server),
        trial("an_easy_service_answers_at_its_cluster_ip_and_at_its_node_port", easy_service),
    ]
}

/// The key of a Secret that was made up.
pub(super) async fn minted(case: &Case, name: &str, key: &str) -> Result<String, Error> {
    let secret = case.all::<Secret>().get(name).await?;
    let value = secret.data.and_then(|mut data| data.remove(key)).ok_or("no such key")?;
    Ok(String::from_utf8(value.0)?)
}

/// Deletes a workspace's pod and waits until there is another.
async fn replace_pod<W: Workload>(case: &Case, name: &str) -> Outcome {
    let pods = ListParams::default().labels(&format!("app.kubernetes.io/instance={name}"));
    case.all::<Pod>().delete_collection(&DeleteParams::default(), &pods).await?;
    case.until(name, "not Ready while its pod is gone", |w: &W| holds(w, "Ready", "False")).await?;
    case.until_stands::<W>(name).await.map(drop)
}

async fn jupyter_notebook() -> Outcome {
    let site = site().await?;
    site.testbed.load_image(Image::Jupyter).await?;
    site.testbed.load_image(Image::Web).await?;
    let case = site.case("lab").await?;
    let operator = case.operator();
    // What is served there is of no matter: that it is found is.
    let server = json!({ "size": 1, "image": Image::Web.reference(), "url": site.http(&case, "/platform") });
    let url = site.http(&case, "/lab");
    case.apply::<JupyterNotebook>(
        "lab",
        json!({
            "size": 1, "image": Image::Jupyter.reference(), "url": url, "trackingServerRef": "mlflow",
            "volumeSize": "1Gi", "storageClassName": "standard",
        }),
    )
    .await?;
    case.until_told::<JupyterNotebook>("lab", "Degraded", "TrackingServerMissing").await?;
    case.serve("mlflow", server).await?;
    case.until_stands::<JupyterNotebook>("lab").await?;

    let stranger = Visitor::new(&url, None)?;
    stranger.until_there("/api").await?;
    assert_eq!(stranger.get("/api/status").await?.status, 403);
    assert!(stranger.socket("/api/kernels/1/channels").await.is_err());
    let token = minted(&case, "lab-token", "token").await?;
    let person = Visitor::new(&url, None)?.with("Authorization", format!("token {token}"));
    assert_eq!(person.get("/api/status").await?.status, 200);
    let page = person.get("/lab").await?;
    assert!(page.status == 200 && page.body.contains("<title>JupyterLab</title>"), "{page:?}");

    // There is no DNS in these pods: the name is looked at, the Service is asked by its address.
    let uri = "http://mlflow.lab.svc:5000";
    let service = case.all::<Service>().get("mlflow").await?.spec.and_then(|s| s.cluster_ip).ok_or("no address")?;
    let code = format!(
        "import os, urllib.request\nopen('note', 'w').write('kept')\n\
         uri = os.environ['MLFLOW_TRACKING_URI']\n\
         answer = urllib.request.urlopen(uri.replace('mlflow.lab.svc', '{service}') + '/health')\n\
         (uri, answer.status, os.getcwd())"
    );
    let value = execute(&person, &code).await?;
    assert!(value.contains(uri) && value.contains(", 200, '/home/jovyan')"), "{value}");

    replace_pod::<JupyterNotebook>(&case, "lab").await?;
    person.until_there("/api").await?;
    let note = person.get("/api/contents/note?content=1").await?;
    assert_eq!(note.json()?["content"], "kept", "{note:?}");
    assert_eq!(execute(&person, "6 * 7").await?, "42", "the token is the same, and so is all else");
    operator.stop().await
}

/// Starts a kernel, has it run some code, and returns the value of its last line.
pub(super) async fn execute(person: &Visitor, code: &str) -> Result<String, Error> {
    let kernel = person.send("POST", "/api/kernels", "{}").await?.json()?;
    let id = kernel["id"].as_str().ok_or_else(|| format!("no kernel: {kernel}"))?;
    let mut socket = person.socket(&format!("/api/kernels/{id}/channels")).await?;
    let header =
        json!({ "msg_id": "1", "msg_type": "execute_request", "session": "s", "username": "", "version": "5.3" });
    let content = json!({ "code": code, "silent": false, "store_history": true, "allow_stdin": false });
    let request = json!({
        "channel": "shell", "header": header, "parent_header": {}, "metadata": {}, "content": content, "buffers": [],
    });
    socket.send(Message::text(request.to_string())).await?;
    tokio::time::timeout(DEADLINE, result(&mut socket)).await?
}

async fn result(socket: &mut Socket) -> Result<String, Error> {
    while let Some(message) = socket.next().await {
        let Message::Text(text) = message? else { continue };
        let message: Value = serde_json::from_str(&text)?;
        match message["msg_type"].as_str() {
            Some("execute_result") => {
                return Ok(message["content"]["data"]["text/plain"].as_str().unwrap_or_default().to_owned());
            }
            Some("error") => return Err(text.as_str().into()),
            _ => {}
        }
    }
    Err("the kernel hung up".into())
}

async fn code_server() -> Outcome {
    let site = site().await?;
    site.testbed.load_image(Image::CodeServer).await?;
    let case = site.case("code").await?;
    let operator = case.operator();
    let (url, made) = (site.https(&case, "/team/code"), site.certificate(&case)?);
    let (cert, key) = (std::fs::read_to_string(&made.certificate)?, std::fs::read_to_string(&made.key)?);
    case.apply::<CodeServer>(
        "code",
        json!({
            "size": 1, "image": Image::CodeServer.reference(), "url": url, "cert": cert, "key": key,
            "volumeSize": "1Gi", "storageClassName": "standard",
        }),
    )
    .await?;
    case.until_stands::<CodeServer>("code").await?;

    let stranger = Visitor::new(&url, Some(&made.ca))?;
    stranger.until_there("/healthz").await?;
    let page = stranger.get("/").await?;
    let login = page.header("Location").ok_or("it lets everybody in")?;
    assert_eq!(format!("{url}/{}", login.trim_start_matches("./")), format!("{url}/login"), "relative: {page:?}");
    assert!(stranger.get("/login").await?.body.contains("<title>code-server login</title>"));
    let form = |password: &str| format!("password={password}&base=.&href={url}/login");
    let typist =
        Visitor::new(&url, Some(&made.ca))?.with("Content-Type", "application/x-www-form-urlencoded".to_owned());
    let refused = typist.send("POST", "/login", &form("guess")).await?;
    assert!(refused.status == 200 && refused.header("Set-Cookie").is_none(), "{refused:?}");
    let password = minted(&case, "code-password", "password").await?;
    let accepted = typist.send("POST", "/login", &form(&password)).await?;
    let cookie = accepted.header("Set-Cookie").ok_or_else(|| format!("{accepted:?}"))?;
    let uid = case.all::<CodeServer>().get("code").await?.metadata.uid.unwrap_or_default();
    assert!(cookie.contains(&uid) && cookie.contains("Path=/team/code"), "its own, and for its path: {cookie}");
    let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
    let person = Visitor::new(&url, Some(&made.ca))?.with("Cookie", cookie);
    let page = person.get("/?folder=/home/coder").await?;
    let editor = page.body.split_once("stable-").map(|(_, rest)| rest.split('/').next().unwrap_or_default().to_owned());
    let editor = editor.ok_or_else(|| format!("no editor: {page:?}"))?;

    // The editor's own socket: for this person, and for pages of this host alone.
    let socket = format!("/stable-{editor}?reconnectionToken=5f0d7f8c-0000-4000-8000-000000000000&reconnection=false");
    let mut opened = person.socket(&socket).await?;
    opened.close(None).await?;
    assert!(person.socket_from(&socket, "https://elsewhere.example.com").await.is_err());
    assert!(stranger.socket(&socket).await.is_err());
    assert_ne!(person.get("/proxy/8080/healthz").await?.status, 200, "ports of the pod are closed");

    case.kubectl(&["exec", "deployment/code", "--", "sh", "-c", "echo kept > ~/note"]).await?;
    replace_pod::<CodeServer>(&case, "code").await?;
    assert_eq!(case.kubectl(&["exec", "deployment/code", "--", "cat", "/home/coder/note"]).await?, "kept\n");
    person.until_there("/healthz").await?;
    assert_eq!(person.get("/?folder=/home/coder").await?.status, 200, "who was logged in still is");
    operator.stop().await
}

async fn easy_service() -> Outcome {
    let site = site().await?;
    site.testbed.load_image(Image::Web).await?;
    let case = site.case("easy").await?;
    let operator = case.operator();
    let sample = std::fs::read_to_string("manifests/samples/easyservice.yaml")?;
    let mut manifest: Value = serde_saphyr::from_str(&sample)?;
    manifest["spec"]["image"] = json!(Image::Web.reference());
    case.apply::<EasyService>("web", manifest["spec"].take()).await?;
    let stands = case.until_stands::<EasyService>("web").await?;
    assert_eq!(stands.status.and_then(|s| s.ready_replicas), Some(2));

    let service = case.all::<Service>().get("web").await?.spec.and_then(|s| s.cluster_ip).ok_or("no cluster IP")?;
    let nodes = Api::<Node>::all(case.client.clone()).list(&ListParams::default()).await?;
    let node = nodes.items.into_iter().filter_map(|n| n.status?.addresses).flatten().find(|a| a.type_ == "InternalIP");
    let node = node.ok_or("no address of the node")?.address;
    for address in [service, format!("{node}:31002")] {
        let reply = Visitor::new(&format!("http://{address}"), None)?.until_there("/some/path").await?.json()?;
        assert_eq!((&reply["path"], &reply["host"]), (&json!("/some/path"), &json!(address)));
    }
    operator.stop().await
}
