//! SHELL: `run`.

use std::sync::Arc;

use kube::Config;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{RunArgs, ServingArgs};
use crate::engine::operator::Operator;
use crate::kinds::{self, Platform};
use crate::ops::metrics::Metrics;
use crate::ops::{client, http, telemetry};

/// Runs the operator until SIGTERM or SIGINT.
pub(super) fn run(args: RunArgs) -> Result<(), String> {
    telemetry::start(args.log_format, &args.log_level).map_err(|error| format!("--log-level: {error}"))?;
    // Two TLS libraries may be linked some day; one is chosen here, before the first connection.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(serve(args))
}

async fn serve(args: RunArgs) -> Result<(), String> {
    let config = Config::infer().await.map_err(|error| {
        format!("no cluster: {error}; run it in a pod, or set KUBECONFIG to a file that names a current context")
    })?;
    let (server, namespaces) = (config.cluster_url.to_string(), args.namespaces.clone());
    let metrics = Metrics::default();
    let meters = metrics.cluster("");
    let client = client::metered(config, &meters).map_err(|error| format!("{server}: {error}"))?;
    let platform = Arc::new(Platform::from(args.platform));
    let stop = CancellationToken::new();
    tokio::spawn(stop_on_signal(stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), server, ?namespaces, ingress = ?platform.ingress, "starting");
    answer(&args.serving, &metrics).await?;
    let operator = Operator::new(client, args.namespaces).concurrency(args.concurrency.into()).meters(meters);
    kinds::register(operator, &platform).run(stop).await;
    tracing::info!("stopped");
    Ok(())
}

/// Serves what others ask of it.
async fn answer(args: &ServingArgs, metrics: &Metrics) -> Result<(), String> {
    http::serve("metrics-bind-address", args.metrics_bind_address, http::metrics(metrics.clone())).await?;
    http::serve("health-probe-bind-address", args.health_probe_bind_address, http::probes(metrics)).await?;
    http::serve("debug-bind-address", args.debug_bind_address, http::debug(metrics.clone())).await?;
    Ok(())
}

/// Kubernetes ends a pod with SIGTERM, a person with Ctrl-C.
async fn stop_on_signal(stop: CancellationToken) {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return tracing::error!("signals cannot be caught; the operator ends without finishing what it does");
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping: what is under way is finished first");
    stop.cancel();
}
