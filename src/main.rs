//! argv only: `aiscope-operator run | crds | render | status | completion`.

use std::process::ExitCode;

use aiscope_operator::cli::Cli;

fn main() -> ExitCode {
    Cli::read().command.execute()
}
