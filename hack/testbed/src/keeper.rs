//! The long-running programs of a testbed. Each one dies with the supervisor, whatever happens to it.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::error::{Error, log_tail};
use crate::process::Process;
use crate::supervisor::MARK;

/// How long a program may take to end before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// A program to keep running.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub name: String,
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    pub log: PathBuf,
    pub ending: Ending,
}

/// How a program is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ending {
    /// At once: it has nothing to put in order.
    Kill,
    /// It is asked, and killed when it takes too long.
    Terminate,
    /// The same for PostgreSQL, which otherwise waits for its clients to leave.
    Interrupt,
}

struct Kept {
    program: Program,
    child: Child,
}

/// The programs under way, in the order in which they were started.
#[derive(Default)]
pub(crate) struct Keeper {
    kept: Vec<Kept>,
    /// Processes that end because one of the programs does, and must have ended before anything is cleared away.
    dependants: Vec<Process>,
}

impl Keeper {
    /// Starts a program; its output goes to its log.
    ///
    /// The supervisor has one thread: the kernel ties a child's death signal to the thread that made it.
    pub(crate) fn start(&mut self, program: Program) -> Result<u32, Error> {
        let log = File::options().create(true).append(true).open(&program.log).map_err(Error::file(&program.log))?;
        let errors = log.try_clone().map_err(Error::file(&program.log))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).args(&program.argv).env_remove(MARK).envs(&program.env);
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let child = command.spawn().map_err(|error| Error::Command {
            command: program.argv.join(" "),
            status: format!("{error}; is util-linux's setpriv installed?"),
            output: String::new(),
        })?;
        let pid = child.id().unwrap_or_default();
        self.kept.push(Kept { program, child });
        Ok(pid)
    }

    /// Fails when a program has ended that should run.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        for kept in &mut self.kept {
            if let Ok(Some(status)) = kept.child.try_wait() {
                return Err(ended(&kept.program, status));
            }
        }
        Ok(())
    }

    /// Stops one program.
    pub(crate) async fn stop(&mut self, name: &str) {
        if let Some(index) = self.kept.iter().position(|kept| kept.program.name == name) {
            stop(vec![self.kept.remove(index)]).await;
        }
    }

    /// Stops them all: first those that came last and depend on the others, then everything else at once.
    pub(crate) async fn stop_all(&mut self) {
        let (expendable, careful): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.kept).into_iter().partition(|kept| kept.program.ending == Ending::Kill);
        stop(careful).await;
        stop(expendable).await;
        for dependant in std::mem::take(&mut self.dependants) {
            let deadline = Instant::now() + GRACE;
            while dependant.alive() && Instant::now() < deadline {
                // A process namespace ends only when its last dead process is buried, and those that were entered from
                // outside are ours to bury. All of our own children were waited for above.
                while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    /// Has [`Self::stop_all`] wait for a process that ends with one of the programs.
    pub(crate) fn wait_for(&mut self, dependant: Process) {
        self.dependants.push(dependant);
    }
}

/// TERM, wait, KILL; all in parallel.
async fn stop(mut programs: Vec<Kept>) {
    for kept in &programs {
        let asked = match kept.program.ending {
            Ending::Kill => Signal::KILL,
            Ending::Terminate => Signal::TERM,
            Ending::Interrupt => Signal::INT,
        };
        signal(kept, asked);
    }
    let deadline = Instant::now() + GRACE;
    for kept in &mut programs {
        if tokio::time::timeout_at(deadline, kept.child.wait()).await.is_err() {
            signal(kept, Signal::KILL);
            // After KILL it ends, or nothing can end it.
            let _ = kept.child.wait().await;
        }
    }
}

/// Not reaped yet, so the number is still its own.
fn signal(kept: &Kept, signal: Signal) {
    if let Some(pid) = kept.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn ended(program: &Program, status: ExitStatus) -> Error {
    Error::Program {
        program: program.name.clone(),
        what: format!("ended ({status})"),
        output: log_tail(&program.log),
        log: program.log.clone(),
    }
}
