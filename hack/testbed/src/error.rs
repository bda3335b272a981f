//! What can go wrong, said so that the reader knows what to do next.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Why a testbed could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory could not be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A command failed.
    #[error("`{command}` failed ({status}){}", tail(output))]
    Command {
        /// The command line.
        command: String,
        /// Its exit status, or why it could not be started.
        status: String,
        /// The last lines it wrote.
        output: String,
    },
    /// A program of the testbed ended or did not become ready.
    #[error("{program} {what}; its log is {}{}", log.display(), tail(output))]
    Program {
        /// Its name.
        program: String,
        /// What it did wrong.
        what: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of that file.
        output: String,
    },
    /// The testbed could not be started.
    #[error("testbed `{name}` did not start: {message}")]
    Start {
        /// Its name.
        name: String,
        /// What the supervisor said.
        message: String,
    },
    /// A testbed of this name is already running.
    #[error("testbed `{0}` is already running; use another --name, or end it: `cargo testbed down --name {0}`")]
    Exists(String),
    /// No testbed of this name is running.
    #[error("no testbed `{0}` is running; `cargo testbed status` lists them, `cargo testbed up --name {0}` starts it")]
    Missing(String),
    /// This machine lacks something.
    #[error("{what}; {remedy}")]
    Machine {
        /// What is missing.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// The API server refused a request.
    #[error("Kubernetes: {0}")]
    Kubernetes(#[from] Box<kube::Error>),
    /// The kubeconfig could not be used.
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// A certificate could not be made.
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// Something that should have been JSON or YAML was not.
    #[error("{what}: {message}")]
    Format {
        /// What was read or written.
        what: String,
        /// What was wrong with it.
        message: String,
    },
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kubernetes(Box::new(error))
    }
}

impl Error {
    /// For `map_err` on file operations.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }

    /// For `map_err` on parsing and printing.
    pub(crate) fn format<E: std::fmt::Display>(what: &str) -> impl FnOnce(E) -> Self {
        let what = what.to_owned();
        move |error| Self::Format { what, message: error.to_string() }
    }

    /// A machine that lacks something, and the remedy.
    pub(crate) fn machine(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Machine { what: what.into(), remedy: remedy.into() }
    }
}

/// The last lines of a text, indented under a message.
fn tail(output: &str) -> String {
    let mut text = String::new();
    for line in last_lines(output, 12) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n    | {line}");
    }
    text
}

/// The last `count` lines that are not empty.
pub(crate) fn last_lines(text: &str, count: usize) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].to_vec()
}

/// The end of a log file, or nothing when there is none.
pub(crate) fn log_tail(path: &Path) -> String {
    std::fs::read(path).map_or_else(
        |_| String::new(),
        |bytes| {
            let start = bytes.len().saturating_sub(8192);
            last_lines(&String::from_utf8_lossy(&bytes[start..]), 12).join("\n")
        },
    )
}
