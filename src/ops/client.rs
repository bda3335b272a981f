//! SHELL: the connection to an API server.

use std::time::Duration;

use http::{HeaderValue, header::USER_AGENT};
use kube::client::ClientBuilder;
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;

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
    connect_until(config, CancellationToken::new())
}

/// The same, for a client that sends nothing any more, and waits for nothing, once `gate` is cancelled.
///
/// # Errors
/// As [`connect`].
pub fn connect_until(mut config: Config, gate: CancellationToken) -> kube::Result<Client> {
    config.connect_timeout = Some(CONNECT);
    config.default_retry = false;
    config
        .headers
        .push((USER_AGENT, HeaderValue::from_static(concat!("aiscope-operator/", env!("CARGO_PKG_VERSION")))));
    let gated = tower::util::MapFutureLayer::new(move |reply| {
        let gate = gate.clone();
        async move {
            tokio::select! {
                biased;
                () = gate.cancelled() => Err(tower::BoxError::from("this connection was closed")),
                reply = reply => reply,
            }
        }
    });
    let builder = ClientBuilder::try_from(config)?.with_layer(&tower::timeout::TimeoutLayer::new(REPLY));
    Ok(builder.with_layer(&gated).build())
}
