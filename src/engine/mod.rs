//! The engine: from a resource to standing children, for any kind. It knows nothing about MLflow or routes.

pub mod act;
pub mod ask;
mod attempt;
pub mod backoff;
pub mod cache;
pub mod certificate;
pub mod child;
pub mod claims;
pub mod cluster;
pub mod digest;
pub mod error;
pub mod hosts;
pub mod idle;
mod inspect;
pub mod meters;
pub mod operator;
mod owner;
pub mod plan;
pub mod queue;
pub mod reason;
pub mod run;
pub mod status;
pub mod summary;
pub mod watch;
mod words;
pub mod workload;
