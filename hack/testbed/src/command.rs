//! Short-lived commands: run, wait, and say what went wrong.

use std::process::Stdio;

use tokio::process::Command;

use crate::error::Error;

/// A command that dies with this process.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command and returns what it wrote to standard output.
pub(crate) async fn run(command: &mut Command) -> Result<String, Error> {
    let line = describe(command);
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .await
        .map_err(|error| Error::Command { command: line.clone(), status: error.to_string(), output: String::new() })?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::Command { command: line, status: output.status.to_string(), output: format!("{stdout}\n{stderr}") })
}

/// Runs one shell-like list of words: `ip link set tb0 up`.
pub(crate) async fn words(line: &str) -> Result<String, Error> {
    let mut words = line.split_whitespace();
    let mut command = command(words.next().unwrap_or_default());
    run(command.args(words)).await
}

/// The program and its arguments; long ones are cut.
fn describe(command: &Command) -> String {
    let command = command.as_std();
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    if line.len() > 240 { line.chars().take(240).chain("...".chars()).collect() } else { line }
}

/// Whether a program is on `PATH`.
pub(crate) fn on_path(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
