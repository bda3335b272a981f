//! Against a real API server, with the real garbage collector and a simulated node.

mod cli;
mod control;
mod digest;
mod fleet;
mod idle;
mod input;
mod install;
mod kinds;
mod library;
mod lifecycle;
mod ops;
mod ownership;
mod proxies;
mod routes;
mod silence;
mod tenancy;
mod volumes;

use libtest_mimic::Trial;

/// All of them.
pub fn trials() -> Vec<Trial> {
    [
        silence::trials(),
        tenancy::trials(),
        digest::trials(),
        fleet::trials(),
        lifecycle::trials(),
        volumes::trials(),
        ownership::trials(),
        input::trials(),
        install::trials(),
        idle::trials(),
        routes::trials(),
        cli::trials(),
        control::trials(),
        kinds::trials(),
        library::trials(),
        ops::trials(),
        proxies::trials(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
