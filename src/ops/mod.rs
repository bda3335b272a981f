//! SHELL: what a running operator needs around the engine: its client, its logs, its signals.

pub mod client;
pub mod telemetry;
