//! End-to-end tests: the operator against a real API server, and on a real node.
//!
//! `cargo test --test e2e` runs all; `-- '[api]'` only those that need no real node, `-- '[node]'` those that do,
//! `-- '[faults]'` the many runs of `hack/faults`; `-- --list` names them.

#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod api;
mod faults;
mod kit;
mod node;

use libtest_mimic::Arguments;

fn main() {
    testbed::supervise_if_asked();
    let mut arguments = Arguments::from_args();
    // Tests wait more than they work, so more of them than there are processors run side by side.
    arguments.test_threads = arguments.test_threads.or(Some(6));
    // The supervisors of the testbeds notice the end of this process, whatever ends it, and clear everything away.
    let api = api::trials().into_iter().chain(faults::sample()).map(|trial| trial.with_kind("api"));
    let node = node::trials().into_iter().map(|trial| trial.with_kind("node"));
    let faults = faults::trials().into_iter().map(|trial| trial.with_kind("faults"));
    libtest_mimic::run(&arguments, api.chain(node).chain(faults).collect()).exit();
}
