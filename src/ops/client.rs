//! SHELL: the connection to an API server.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, header::USER_AGENT};
use kube::client::{Body, ClientBuilder};
use kube::{Client, Config};
use tower::{Service, timeout::TimeoutLayer};

use crate::engine::meters::{Meters, Sent};

/// How long the API server may take to begin a reply. A watch begins its reply at once, so none is cut.
const REPLY: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);

/// A client for `config`, named so that audit logs and API priority tell it apart.
///
/// kube's own retries are off: they sleep up to minutes inside one call, and the queue's backoff does it better.
///
/// # Errors
/// When TLS or authentication cannot be set up from `config`.
pub fn connect(config: Config) -> kube::Result<Client> {
    metered(config, &Arc::default())
}

/// [`connect`], with every request counted.
///
/// # Errors
/// As [`connect`].
pub fn metered(mut config: Config, meters: &Arc<Meters>) -> kube::Result<Client> {
    config.connect_timeout = Some(CONNECT);
    config.default_retry = false;
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(concat!("aiscope-operator/", env!("CARGO_PKG_VERSION")))));
    let host: Arc<str> = config.cluster_url.authority().map_or("", |a| a.as_str()).into();
    let counted = tower::layer::layer_fn(|inner| Counted { inner, meters: meters.clone(), host: host.clone() });
    Ok(ClientBuilder::try_from(config)?.with_layer(&TimeoutLayer::new(REPLY)).with_layer(&counted).build())
}

/// Counts requests by their replies.
#[derive(Clone)]
struct Counted<S> {
    inner: S,
    meters: Arc<Meters>,
    host: Arc<str>,
}

impl<S, B> Service<Request<Body>> for Counted<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (meters, host, method) = (self.meters.clone(), self.host.clone(), request.method().as_str().into());
        let reply = self.inner.call(request);
        async move {
            let reply = reply.await;
            let code = reply.as_ref().ok().map(|response| response.status().as_u16());
            meters.sent(Sent { code, method, host });
            reply
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn every_request_is_counted_by_method_and_reply_and_no_reply_is_counted_too() {
        let meters = Arc::new(Meters::new("m"));
        let inner = tower::service_fn(|request: Request<Body>| async move {
            match request.uri().path() {
                "/away" => Err("no reply"),
                _ => Ok(Response::builder().status(409).body(()).unwrap_or_default()),
            }
        });
        let service = Counted { inner, meters: meters.clone(), host: "h:1".into() };
        for path in ["/", "/", "/away"] {
            let _ = service.clone().oneshot(Request::patch(path).body(Body::empty()).unwrap()).await;
        }
        let seen: Vec<_> =
            meters.requests().into_iter().map(|(sent, n)| (sent.code, sent.method, sent.host, n)).collect();
        let row = |code, n| (code, "PATCH".into(), "h:1".into(), n);
        assert_eq!(seen, [row(None, 1), row(Some(409), 2)]);
    }
}
