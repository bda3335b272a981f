//! SHELL: the operator's own HTTP: `/metrics`, `/healthz` and `/readyz`, `/debug/resources`. Three addresses, since three
//! sorts of people read them: Prometheus, the kubelet, and whoever may forward a port of the pod.
//!
//! Metrics are plain HTTP: they name kinds, never a resource, and a `NetworkPolicy` says who may read them. Rejected:
//! TLS with a certificate of its own, which Prometheus would have to be told not to check.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use axum::Router;
use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Map, Value};
use tokio::net::TcpListener;

use super::metrics::Metrics;

/// Where to listen, as controller-runtime spells it: `:8080`, `127.0.0.1:8080`, `[::1]:8080`; `0` is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// Nowhere.
    Off,
    /// On this port of every address.
    Any(u16),
    /// On this address.
    One(SocketAddr),
}

impl FromStr for Bind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "0" || text.is_empty() {
            return Ok(Self::Off);
        }
        let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
        let one = || text.parse().map(Self::One);
        port.map(Self::Any).map_or_else(one, Ok).map_err(|_| "give it as :8080, 127.0.0.1:8080, or 0 for off".into())
    }
}

impl Bind {
    async fn listen(self) -> io::Result<Option<TcpListener>> {
        Ok(Some(match self {
            Self::Off => return Ok(None),
            Self::One(address) => TcpListener::bind(address).await?,
            // Where the machine has no IPv6 there is still IPv4; a port that is taken is taken in both.
            Self::Any(port) => match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?
                }
                other => other?,
            },
        }))
    }
}

/// Serves in the background, until the process ends. Returns where.
///
/// # Errors
/// When it cannot listen there; names the flag.
pub async fn serve(flag: &str, bind: Bind, routes: Router) -> Result<Option<SocketAddr>, String> {
    let failed = |error: io::Error| format!("--{flag}: {error}; choose another address, or 0 for none");
    let Some(listener) = bind.listen().await.map_err(failed)? else { return Ok(None) };
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(flag, %address, "serving");
    tokio::spawn(async move { axum::serve(listener, routes).await });
    Ok(Some(address))
}

/// `/metrics`.
pub fn metrics(metrics: Metrics) -> Router {
    const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Router::new().route(
        "/metrics",
        get(async move || match metrics.text() {
            Ok(text) => ([(CONTENT_TYPE, OPENMETRICS)], text).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }),
    )
}

/// `/healthz`: the controllers get on. `/readyz`: their caches are filled; a replica that stands by is ready too. Both speak of
/// the operator's own cluster: a member that is away must not end the process for all others.
pub fn probes(metrics: &Metrics) -> Router {
    let (live, ready) = (metrics.clone(), metrics.clone());
    Router::new().route("/healthz", get(async move || answer(own(&live).and_then(|meters| meters.stuck())))).route(
        "/readyz",
        get(async move || answer(own(&ready).map_or(Some("not begun".into()), |meters| meters.unsynced()))),
    )
}

fn own(metrics: &Metrics) -> Option<std::sync::Arc<crate::engine::meters::Meters>> {
    metrics.clusters().into_iter().find(|meters| meters.cluster().is_empty())
}

fn answer(trouble: Option<String>) -> Response {
    match trouble {
        None => "ok\n".into_response(),
        Some(words) => (StatusCode::SERVICE_UNAVAILABLE, words + "\n").into_response(),
    }
}

/// `/debug/resources`: by cluster and kind, how each resource stands. It names what all tenants have, so it is for those
/// who may forward a port of the pod: listen on the loopback address only.
pub fn debug(metrics: Metrics) -> Router {
    Router::new().route(
        "/debug/resources",
        get(async move || {
            let clusters = metrics.clusters().into_iter().map(|meters| {
                let kinds = meters
                    .standings()
                    .into_iter()
                    .map(|(kind, all)| (kind.into(), serde_json::to_value(all).unwrap_or_default()));
                (meters.cluster().to_owned(), Value::Object(kinds.collect()))
            });
            let body = Value::Object(clusters.collect::<Map<_, _>>());
            ([(CONTENT_TYPE, "application/json")], body.to_string())
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_spelled_as_controller_runtime_does() {
        assert_eq!("0".parse(), Ok(Bind::Off));
        assert_eq!(":8080".parse(), Ok(Bind::Any(8080)));
        assert_eq!("127.0.0.1:9".parse(), Ok(Bind::One(([127, 0, 0, 1], 9).into())));
        assert!("8080".parse::<Bind>().unwrap_err().contains(":8080"));
        assert!(":80800".parse::<Bind>().is_err());
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_an_error_that_names_the_flag() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let bind = Bind::One(taken.local_addr().unwrap());
        let error = serve("metrics-bind-address", bind, Router::new()).await.unwrap_err();
        assert!(error.starts_with("--metrics-bind-address: ") && error.contains("0 for none"), "{error}");
    }

    #[test]
    fn an_operator_that_has_not_begun_is_alive_but_not_ready() {
        let metrics = Metrics::default();
        let meters = metrics.cluster("");
        assert_eq!(own(&metrics).map(|m| m.stuck().is_none()), Some(true));
        assert_eq!(answer(meters.unsynced()).status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer(None).status(), StatusCode::OK);
    }
}
