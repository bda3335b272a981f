//! Against a real API server, with the real garbage collector and a simulated node.

mod digest;

use libtest_mimic::Trial;

/// All of them.
pub fn trials() -> Vec<Trial> {
    digest::trials()
}
