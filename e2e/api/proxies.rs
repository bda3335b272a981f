//! Every kind of route carries the same requests through a real Traefik, and nothing of it is left when another is chosen.

use std::net::{SocketAddr, UdpSocket};

use aiscope_operator::api::{JupyterNotebook, TrackingServer};
use aiscope_operator::kinds::{Ingress, Platform};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, ResourceExt};
use libtest_mimic::Trial;
use serde_json::json;
use testbed::{Node, TraefikOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::{Case, DEADLINE, Error, Outcome, bare, install_crds, minimal, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial("every_kind_of_route_carries_the_same_requests_through_a_real_proxy", proxies)]
}

/// What a proxy replied.
#[derive(Debug)]
struct Reply {
    status: u16,
    location: String,
    body: String,
}

async fn proxies() -> Outcome {
    let testbed = Box::leak(Box::new(bare(Node::Simulated).await?));
    let traefik = testbed.traefik(TraefikOptions { nginx: true, gateway: true, ..TraefikOptions::default() }).await?;
    install_crds(testbed).await?;
    let case = Case::on(testbed, "proxies").await?;
    make_gateway(&case, traefik.http().port()).await?;
    let backend = backend().await?;
    for (service, port) in [("a", "server"), ("nb", "http")] {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "metadata": { "name": format!("{service}-here"), "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4", "endpoints": [{ "addresses": [backend.ip()], "conditions": { "ready": true } }],
            "ports": [{ "name": port, "port": backend.port(), "protocol": "TCP" }],
        }))?;
        case.all::<EndpointSlice>().create(&PostParams::default(), &slice).await?;
    }
    let at = |path: &str| json!(format!("http://ml.example.com:{}{path}", traefik.http().port()));
    let mut server = minimal();
    // No pod: the requests go to the backend in this process.
    server["size"] = json!(0);
    server["url"] = at("/team");
    case.serve("a", server).await?;
    let notebook = json!({ "image": "i", "size": 0, "url": at("/lab") });
    case.apply::<JupyterNotebook>("nb", notebook).await?;
    for ingress in [Ingress::Traefik, Ingress::Nginx, Ingress::Gateway] {
        let gateway = "infra/web".parse().ok();
        let operator = case.operator_with(Platform { ingress, gateway, ..Platform::default() }, &[]);
        carried(traefik.http()).await.map_err(|error| format!("{ingress:?}: {error}"))?;
        case.until_stands::<TrackingServer>("a").await?;
        case.until_stands::<JupyterNotebook>("nb").await?;
        operator.stop().await?;
        let operator = case.operator_with(Platform { ingress: Ingress::None, ..Platform::default() }, &[]);
        for path in ["/team", "/team/x", "/lab/x"] {
            until_reply(traefik.http(), path, "404", |reply| reply.status == 404).await?;
        }
        operator.stop().await?;
    }
    Ok(())
}

/// The requests that every kind of route carries.
async fn carried(proxy: SocketAddr) -> Outcome {
    let host = format!("ml.example.com:{}", proxy.port());
    for (path, arrives) in [
        ("/team/", "/"),
        ("/team/api/2.0/x?y=1%2F2", "/api/2.0/x?y=1%2F2"),
        ("/lab/", "/lab/"),
        ("/lab/api/kernels?a=b", "/lab/api/kernels?a=b"),
    ] {
        let wanted = format!("{arrives} {host}");
        until_reply(proxy, path, &wanted, |reply| reply.status == 200 && reply.body == wanted).await?;
    }
    for path in ["/team", "/lab"] {
        let there =
            |reply: &Reply| (301..=308).contains(&reply.status) && reply.location.ends_with(&format!("{path}/"));
        let reply = until_reply(proxy, path, "redirected", there).await?;
        let whole = format!("http://{host}{path}/");
        assert!(reply.location == whole || reply.location == format!("{path}/"), "{reply:?}");
    }
    for beside in ["/teams", "/laboratory/x", "/"] {
        until_reply(proxy, beside, "404", |reply| reply.status == 404).await?;
    }
    for path in ["/team/ws", "/lab/api/kernels/1/channels"] {
        let mut stream = TcpStream::connect(proxy).await?;
        let upgrade = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(upgrade.as_bytes()).await?;
        let reply = head(&mut stream).await?;
        assert!(reply.starts_with("HTTP/1.1 101"), "{path}: {reply}");
        stream.write_all(b"to and fro").await?;
        let mut echo = [0; 10];
        tokio::time::timeout(DEADLINE, stream.read_exact(&mut echo)).await??;
        assert_eq!(&echo, b"to and fro");
    }
    Ok(())
}

/// Asks until the reply is as wanted; tells the last one when the time is over.
async fn until_reply(proxy: SocketAddr, path: &str, what: &str, is: impl Fn(&Reply) -> bool) -> Result<Reply, Error> {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let reply = ask(proxy, path).await?;
        if is(&reply) {
            return Ok(reply);
        }
        if tokio::time::Instant::now() > end {
            return Err(format!("{path} is not {what}, but {reply:?}").into());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

async fn ask(proxy: SocketAddr, path: &str) -> Result<Reply, Error> {
    let mut stream = TcpStream::connect(proxy).await?;
    let host = format!("ml.example.com:{}", proxy.port());
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no reply")?;
    let location = head.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap_or_default();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or("no status")?;
    Ok(Reply { status, location: location.to_owned(), body: body.to_owned() })
}

/// The head of a request or reply.
async fn head(stream: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// A server that tells each request's path and host, and echoes what comes over a WebSocket's connection.
async fn backend() -> Result<SocketAddr, Error> {
    // An address of this machine that may stand in an EndpointSlice; no packet is sent.
    let probe = UdpSocket::bind("0.0.0.0:0")?;
    probe.connect("192.0.2.1:9")?;
    let listener = TcpListener::bind((probe.local_addr()?.ip(), 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that goes away ends its own connection only.
            tokio::spawn(async move { answer(stream).await.ok() });
        }
    });
    Ok(address)
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut read = BufReader::new(read);
    let request = head(&mut read).await?;
    let path = request.split(' ').nth(1).unwrap_or_default();
    let host = request.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap_or_default();
    if request.to_lowercase().contains("upgrade: websocket") {
        let accepted = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        write.write_all(accepted.as_bytes()).await?;
        return tokio::io::copy(&mut read, &mut write).await.map(drop);
    }
    let body = format!("{path} {host}");
    let reply = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    write.write_all(reply.as_bytes()).await
}

/// The platform's Gateway, which admits routes of every namespace.
async fn make_gateway(case: &Case, port: u16) -> Outcome {
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": "infra" } }))?;
    Api::all(case.client.clone()).create(&PostParams::default(), &namespace).await?;
    let gateway: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": { "name": "web" },
        "spec": { "gatewayClassName": "traefik", "listeners": [{
            "name": "http", "protocol": "HTTP", "port": port, "allowedRoutes": { "namespaces": { "from": "All" } },
        }] },
    }))?;
    let ar = ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "Gateway"));
    let api: Api<DynamicObject> = Api::namespaced_with(case.client.clone(), &namespace.name_any(), &ar);
    api.create(&PostParams::default(), &gateway).await?;
    Ok(())
}
