//! aiscope-operator: a team writes a short custom resource, the operator keeps everything behind it standing.

pub mod engine;
pub mod ops;
