//! The members: clusters in which the operator of this one keeps the workloads, one [`crate::api::Cluster`] each.
//!
//! ```text
//! Clusters, Secrets ──► a task for each member ──► vet, connect and probe ──► stop the old, start the new
//!      run.rs                member.rs               vet.rs, connect.rs        seats.rs: one for a cluster
//!                                └──► decide.rs: what is said of it
//! ```

pub mod connect;
pub mod decide;
pub mod lifetime;
pub mod member;
pub mod rights;
pub mod run;
pub mod seats;
pub mod vet;
