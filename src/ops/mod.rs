//! SHELL: what a running operator needs around the engine: its client, its logs, its metrics, its signals.

pub mod client;
pub mod http;
pub mod metrics;
pub mod process;
pub mod telemetry;

/// The name of the Lease that replicas share, unless told otherwise.
pub const LEASE: &str = "aiscope-operator";
