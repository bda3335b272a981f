//! SHELL: logs.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For a person.
    Text,
    /// One JSON object a line, for a collector.
    Json,
}

/// Starts logging to standard error. `level` is a level or a filter such as `info,aiscope_operator=debug`.
///
/// # Errors
/// When `level` is neither.
pub fn start(format: LogFormat, level: &str) -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = EnvFilter::builder().parse(level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // Colours are for a terminal; in a file they are noise.
    let builder = builder.with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => builder.with_target(false).init(),
        LogFormat::Json => builder.json().flatten_event(true).with_span_list(false).init(),
    }
    Ok(())
}
