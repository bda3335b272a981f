//! The route back ends, each through the real Traefik's provider for it.

use aiscope_operator::api::{CodeServer, JupyterNotebook};
use aiscope_operator::kinds::{Gateway, Ingress, Platform};
use futures::{SinkExt, StreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, GroupVersionKind, Patch};
use libtest_mimic::Trial;
use serde_json::json;
use testbed::Image;
use tokio_tungstenite::tungstenite::Message;

use super::http::Visitor;
use super::{Site, host, site, with_volume};
use crate::kit::{Case, DEADLINE, Outcome, gitops, trial};

pub fn trials() -> Vec<Trial> {
    vec![trial("every_route_back_end_carries_pages_calls_web_sockets_and_tls_alike", alike)]
}

async fn alike() -> Outcome {
    let site = site().await?;
    site.testbed.load_image(Image::Web).await?;
    let case = site.case("alike").await?;
    let made = site.certificate(&case)?;
    let (cert, key) = (std::fs::read_to_string(&made.certificate)?, std::fs::read_to_string(&made.key)?);
    gateway(site, &case, &cert, &key).await?;

    let (platform, lab, code) = ("/platform", "/lab.a", "/code");
    let [platform, lab, code] = [platform, lab, code].map(|path| site.https(&case, path));
    let plain = format!("http://plain.example.com:{}/team/code", site.traefik.http().port());
    let mut server = with_volume(&platform);
    (server["cert"], server["key"]) = (json!(cert), json!(key));
    case.serve("mlflow", server).await?;
    let spec = |url: &str| json!({ "size": 1, "image": Image::Web.reference(), "url": url, "cert": cert, "key": key });
    case.apply::<JupyterNotebook>("lab", spec(&lab)).await?;
    case.apply::<CodeServer>("code", spec(&code)).await?;
    case.apply::<CodeServer>("plain", json!({ "size": 1, "image": Image::Web.reference(), "url": plain })).await?;

    let gateway = Some(Gateway { namespace: case.namespace.clone(), name: "door".into() });
    for (ingress, provider) in [
        (Ingress::Traefik, "kubernetescrd"),
        (Ingress::Nginx, "kubernetesingressnginx"),
        (Ingress::Gateway, "kubernetesgateway"),
    ] {
        let operator = case.operator_with(Platform { ingress, gateway: gateway.clone(), ..Platform::default() }, &[]);
        case.until_ready("mlflow").await?;
        case.until_stands::<JupyterNotebook>("lab").await?;
        case.until_stands::<CodeServer>("code").await?;
        case.until_stands::<CodeServer>("plain").await?;
        only(site, &case, provider).await?;
        let requests = async {
            mlflow(&Visitor::new(&platform, Some(&made.ca))?).await?;
            for (url, stripped) in [(&lab, false), (&code, true), (&plain, true)] {
                arrives(&Visitor::new(url, Some(&made.ca))?, stripped).await?;
            }
            Ok(())
        };
        let outcome: Outcome = requests.await;
        outcome.map_err(|error| format!("{ingress:?}: {error}"))?;
        operator.stop().await?;
    }
    Ok(())
}

/// The door of all routes of the Gateway API, which has the certificate.
async fn gateway(site: &Site, case: &Case, cert: &str, key: &str) -> Outcome {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "door" }, "type": "kubernetes.io/tls",
        "stringData": { "tls.crt": cert, "tls.key": key },
    });
    case.all::<Secret>().patch("door", &gitops(), &Patch::Apply(secret)).await?;
    let tls = json!({ "certificateRefs": [{ "name": "door" }] });
    let listeners = json!([
        { "name": "http", "protocol": "HTTP", "port": site.traefik.http().port() },
        { "name": "https", "protocol": "HTTPS", "port": site.traefik.https().port(), "hostname": host(case), "tls": tls },
    ]);
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "Gateway"));
    let door = json!({
        "apiVersion": kind.api_version, "kind": kind.kind, "metadata": { "name": "door" },
        "spec": { "gatewayClassName": "traefik", "listeners": listeners },
    });
    case.dynamic(&kind).patch("door", &gitops(), &Patch::Apply(door)).await?;
    Ok(())
}

/// Waits until Traefik has taken up the routes of this provider and forgotten those of the others.
async fn only(site: &Site, case: &Case, provider: &str) -> Outcome {
    let traefik = Visitor::new(&format!("http://{}", site.traefik.api()), None)?;
    let mut again = tokio::time::interval(std::time::Duration::from_millis(50));
    let mut last = Vec::new();
    let taken = tokio::time::timeout(DEADLINE, async {
        loop {
            again.tick().await;
            let routers = traefik.get("/api/http/routers?per_page=1000").await?.json()?;
            let ours = routers.as_array().into_iter().flatten().filter(|router| {
                ["name", "rule"].iter().any(|key| router[key].as_str().is_some_and(|t| t.contains(&case.namespace)))
            });
            last = ours.map(|router| router["provider"].as_str().unwrap_or_default().to_owned()).collect();
            if last.len() >= 4 && last.iter().all(|other| other == provider) {
                return Outcome::Ok(());
            }
        }
    });
    taken.await.map_err(|_| format!("not all routers are of {provider}: {last:?}"))?
}

/// The real MLflow: its page and its API.
async fn mlflow(visitor: &Visitor) -> Outcome {
    let page = visitor.until_there("/").await?;
    assert!(page.body.contains("<title>MLflow</title>"), "{page:?}");
    redirects(visitor).await?;
    let found = visitor.get("/api/2.0/mlflow/experiments/search?max_results=1").await?;
    assert_eq!(found.json()?["experiments"][0]["name"], "Default", "{found:?}");
    Ok(())
}

/// Without the slash at its end the URL leads to the one with it: same scheme, host and port.
async fn redirects(visitor: &Visitor) -> Outcome {
    let reply = visitor.get("").await?;
    assert!(matches!(reply.status, 301 | 302 | 307 | 308), "{reply:?}");
    let there = visitor.url.join(reply.header("Location").ok_or("no Location")?)?;
    assert_eq!(there.as_str(), format!("{}/", visitor.url), "{reply:?}");
    Ok(())
}

/// Requests arrive as they were sent, but for a path that is stripped.
async fn arrives(visitor: &Visitor, stripped: bool) -> Outcome {
    visitor.until_there("/").await?;
    redirects(visitor).await?;
    let place = if stripped { "" } else { visitor.url.path() };
    for (method, path, body) in
        [("GET", "/", ""), ("POST", "/api/x%20y?a=1&b=%2F", "some text"), ("PUT", "/deep/er/", "")]
    {
        let reply = visitor.send(method, path, body).await?;
        let wanted = json!({
            "method": method, "path": format!("{place}{path}"), "host": visitor.authority(),
            "scheme": visitor.url.scheme(), "body": body,
        });
        assert_eq!(reply.json()?, wanted, "{method} {}{path}", visitor.url);
    }
    let neighbour = visitor.get("x/").await?;
    assert_eq!(neighbour.status, 404, "a neighbour of {} is not its own: {neighbour:?}", visitor.url);

    let mut socket = visitor.socket("/socket").await?;
    for text in ["hello".to_owned(), "long ".repeat(1000)] {
        socket.send(Message::text(text.clone())).await?;
        let echo = tokio::time::timeout(DEADLINE, socket.next()).await?.ok_or("the socket closed")??;
        assert_eq!(echo.to_text()?, text);
    }
    socket.close(None).await?;
    Ok(())
}
