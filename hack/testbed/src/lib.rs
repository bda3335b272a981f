//! A real Kubernetes on this one machine, from package registries alone.
//!
//! ```text
//! Testbed::start ── prepare ──► binaries, image    found, cached or built, in the caller's process
//!       │           claim ────► state              a name, a slot, a directory
//!       └─ spawn ─► supervisor ─► bring_up ─► control_plane, simulated | node
//!             pipe      └─ keeper: every program; ends with the caller, however that ends
//! ```
//!
//! A program that uses this library calls [`supervise_if_asked`] first in its `main()`.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod audit;
mod binaries;
mod bring_up;
mod cache;
mod cgroup;
mod command;
mod control;
mod control_plane;
mod error;
mod extras;
mod image;
mod keeper;
mod machine;
mod mlflow;
mod node;
mod node_config;
mod pki;
mod plan;
mod ports;
mod process;
mod progress;
mod service;
mod simulated;
mod state;
mod stores;
mod supervisor;
mod testbed;
mod traefik;
mod volumes;

use std::path::Path;
use std::task::{Context, Poll, Waker};

use serde::{Deserialize, Serialize};

pub use audit::Request;
pub use error::Error;
pub use extras::Certificate;
pub use image::Image;
pub use machine::ensure_packages;
pub use stores::{Postgres, S3};
pub use supervisor::supervise_if_asked;
pub use testbed::{Options, Status, Testbed, down, prepare, status};
pub use traefik::{Traefik, TraefikOptions};

/// What runs the pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Node {
    /// Nothing: pods stay Pending. The quickest.
    #[default]
    None,
    /// kwok: pods become Ready in about a second and run nothing.
    Simulated,
    /// containerd and kubelet: pods really run. Needs root on Linux.
    Real,
    /// `real` where this machine allows it, else `simulated`.
    Auto,
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Simulated => "simulated",
            Self::Real => "real",
            Self::Auto => "auto",
        })
    }
}

/// A client that says who it is, so that its requests can be told from others' in the audit log.
pub(crate) fn client(kubeconfig: &Path, user_agent: &str) -> Result<kube::Client, Error> {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let options = kube::config::KubeConfigOptions::default();
    let load = std::pin::pin!(kube::Config::from_custom_kubeconfig(kubeconfig, &options));
    // Asynchronous only for kubeconfigs that run programs; ours hold everything and are ready at once.
    let Poll::Ready(config) = load.poll(&mut Context::from_waker(Waker::noop())) else {
        return Err(Error::machine("this kubeconfig is not of a testbed", "use the one of `cargo testbed kubeconfig`"));
    };
    let mut config = config?;
    let value = http::HeaderValue::from_str(user_agent).map_err(Error::format("User-Agent"))?;
    config.headers.push((http::header::USER_AGENT, value));
    Ok(kube::Client::try_from(config)?)
}
