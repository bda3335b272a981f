//! PURE: constructors that the kinds share, one file per part.

pub mod credentials;
pub mod deployment;
pub mod host_allow;
pub mod network_policy;
pub mod quantity;
pub mod route;
pub mod service;
pub mod tls;
pub mod url;
pub mod volume;
