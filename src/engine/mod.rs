//! The engine: from a resource to standing children, for any kind. It knows nothing about MLflow or routes.

pub mod certificate;
pub mod child;
pub mod claims;
pub mod digest;
pub mod reason;
pub mod summary;
pub mod workload;
