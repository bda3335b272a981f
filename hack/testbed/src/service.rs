//! Programs beside Kubernetes that a test starts and ends: a proxy, an object store, a database.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::control::{self, Ask};
use crate::error::{Error, log_tail};
use crate::keeper::{Ending, Program};
use crate::plan::Plan;
use crate::state;

/// How long such a program may take to answer.
const READY: Duration = Duration::from_mins(1);

/// A program the supervisor keeps running for us; dropping this stops it and removes its directory.
#[derive(Debug)]
pub(crate) struct Service {
    pub name: String,
    /// Its own directory, inside the testbed's.
    pub dir: PathBuf,
    pub log: PathBuf,
    testbed: PathBuf,
}

impl Service {
    /// A name and a directory for a program of this kind.
    pub(crate) fn new(plan: &Plan, kind: &str) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Several processes may attach to one testbed.
        let name = format!("{kind}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let dir = plan.dir().join(&name);
        state::make_dir(&dir)?;
        Ok(Self { log: plan.log(&name), testbed: plan.dir(), name, dir })
    }

    /// Has it started by the supervisor.
    pub(crate) fn start(&self, argv: Vec<String>, env: &[(&str, String)], ending: Ending) -> Result<(), Error> {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let program = Program { name: self.name.clone(), argv, env, log: self.log.clone(), ending };
        control::ask(&self.testbed, &Ask::Start(Box::new(program)))
    }

    /// Waits until it answers.
    pub(crate) async fn ready<F: Future<Output = bool>>(&self, answers: impl Fn() -> F) -> Result<(), Error> {
        let deadline = Instant::now() + READY;
        while !answers().await {
            control::ask(&self.testbed, &Ask::Check)?;
            if Instant::now() >= deadline {
                return Err(Error::Program {
                    program: self.name.clone(),
                    what: format!("did not answer within {} s", READY.as_secs()),
                    log: self.log.clone(),
                    output: log_tail(&self.log),
                });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // When the supervisor has ended, so has the program.
        let _ = control::ask(&self.testbed, &Ask::Stop { name: self.name.clone(), dir: Some(self.dir.clone()) });
    }
}

/// The status line's code of a plain HTTP GET, or nothing when nobody answers.
pub(crate) async fn http_status(address: SocketAddr, path: &str) -> Option<u16> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        stream.write_all(request.as_bytes()).ok()?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).ok()?;
        std::str::from_utf8(&head[9..]).ok()?.parse().ok()
    })
    .await
    .ok()?
}
