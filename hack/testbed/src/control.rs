//! What may be asked of a running supervisor: one line of JSON each way over a socket in the testbed's directory.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::keeper::Program;

/// A wish.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Keep a program running.
    Start(Box<Program>),
    /// Stop one, then remove its directory.
    Stop { name: String, dir: Option<PathBuf> },
    /// Do not end with the process that started the supervisor.
    Detach,
    /// Fail when a program that should run has ended.
    Check,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Failed(String),
}

pub(crate) fn socket(dir: &Path) -> PathBuf {
    dir.join("control")
}

/// Asks and waits for the answer. Blocking, so that `Drop` can ask too; every answer comes within seconds.
pub(crate) fn ask(dir: &Path, ask: &Ask) -> Result<(), Error> {
    let path = socket(dir);
    let mut stream = UnixStream::connect(&path).map_err(Error::file(&path))?;
    let mut line = serde_json::to_string(ask).map_err(Error::format("control"))?;
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(Error::file(&path))?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(Error::file(&path))?;
    match serde_json::from_str(&answer).map_err(Error::format("control"))? {
        Answer::Done => Ok(()),
        Answer::Failed(message) => {
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Err(Error::Start { name, message })
        }
    }
}
