//! argv only: `aiscope-operator run | crds | render`.

use std::process::ExitCode;

use aiscope_operator::cli::Cli;
use clap::Parser;

fn main() -> ExitCode {
    Cli::parse().command.execute()
}
