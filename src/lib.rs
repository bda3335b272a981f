//! aiscope-operator: a team writes a short custom resource, the operator keeps everything behind it standing.

pub mod api;
pub mod cli;
pub mod engine;
pub mod kinds;
pub mod ops;
pub mod parts;
pub mod render;
