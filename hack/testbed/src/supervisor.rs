//! The one process that owns everything of a testbed, and puts everything away.
//!
//! It is this same program started again with [`MARK`] set. It lives in a session of its own, so the terminal's signals
//! do not reach it, and ends when its owner does: it reads a pipe that only the owner can write to.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

use crate::control::{Answer, Ask, socket};
use crate::error::Error;
use crate::keeper::Keeper;
use crate::plan::Plan;
use crate::process::Process;
use crate::state::{self, Record};
use crate::{Node, bring_up, machine};

/// Set to the testbed's directory in a process that is to be its supervisor.
pub(crate) const MARK: &str = "AISCOPE_TESTBED_SUPERVISE";
/// Set in the process that is to be the first one in a node's namespaces.
pub(crate) const INIT: &str = "AISCOPE_TESTBED_INIT";

/// What the supervisor tells its owner on standard output, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    Progress(String),
    Ready,
    Failed(String),
}

/// Call this first in `main()`: a process that was started as a testbed's supervisor becomes it and never returns;
/// any other one goes on.
pub fn supervise_if_asked() {
    let work: fn(&Path) -> i32 = if std::env::var_os(INIT).is_some() { |_| init() } else { supervise };
    let Some(dir) = std::env::var_os(INIT).or_else(|| std::env::var_os(MARK)) else { return };
    std::process::exit(work(Path::new(&dir)));
}

/// One thread only: see [`Keeper::start`].
fn runtime() -> Option<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().ok()
}

/// The first process of a node's namespaces: it buries orphans, and when it is killed all the others die.
fn init() -> i32 {
    let Some(runtime) = runtime() else { return 1 };
    runtime.block_on(async {
        let Ok(mut children) = signal(SignalKind::child()) else { return 1 };
        loop {
            children.recv().await;
            while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
        }
    })
}

fn supervise(dir: &Path) -> i32 {
    // Fails only when this is a session's leader already, which is as good.
    let _ = rustix::process::setsid();
    // Orphans of a node's programs come to us, so that they are buried at once; see `Keeper::stop_all`.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let Some(runtime) = runtime() else { return 1 };
    let result = runtime.block_on(run(dir));
    // A thread may still be reading standard input, which may never end.
    runtime.shutdown_background();
    match result {
        Ok(()) => 0,
        Err(error) => {
            report(&Report::Failed(error.to_string()));
            1
        }
    }
}

/// The owner may be gone; then nobody is interested.
fn report(report: &Report) {
    if let Ok(line) = serde_json::to_string(report) {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// One line for the owner to show.
pub(crate) fn progress(line: impl Into<String>) {
    report(&Report::Progress(line.into()));
}

async fn run(dir: &Path) -> Result<(), Error> {
    let plan = Plan::read(dir)?;
    let record = record(&plan)?;
    let keeper = Rc::new(Mutex::new(Keeper::default()));
    let result = live(&plan, &record, &keeper).await;
    if let Err(error) = &result {
        report(&Report::Failed(keep_logs(&plan, &error.to_string())));
    }
    keeper.lock().await.stop_all().await;
    let lock = state::lock(&state::root().join("lock"));
    state::remove(&record);
    drop(lock);
    Ok(())
}

/// Keeps the logs of a testbed that did not start, the last one's only; returns the message that names them there.
fn keep_logs(plan: &Plan, message: &str) -> String {
    let (logs, kept) = (plan.dir().join("logs"), state::cache().join("last-failure"));
    let _ = std::fs::remove_dir_all(&kept);
    if state::make_dir(&state::cache()).is_err() || std::fs::rename(&logs, &kept).is_err() {
        return message.to_owned();
    }
    message.replace(&logs.display().to_string(), &kept.display().to_string())
}

/// From now on this process is the one to look for.
fn record(plan: &Plan) -> Result<Record, Error> {
    let keeper = Process::current().ok_or_else(|| Error::machine("/proc cannot be read", "mount it"))?;
    let mut record = Record {
        name: plan.name.clone(),
        slot: plan.slot,
        node: plan.node,
        keeper,
        ready: false,
        settings: BTreeMap::new(),
    };
    if plan.node == Node::Real {
        let others = state::all().into_iter().filter(|other| other.name != plan.name && other.keeper.alive());
        // Another node has changed the settings already; it remembers what they were.
        let known = others.map(|other| other.settings).find(|settings| !settings.is_empty());
        record.settings = known.unwrap_or_else(machine::settings);
    }
    record.write()?;
    Ok(record)
}

/// Brings everything up and serves until it is time to go.
async fn live(plan: &Plan, record: &Record, keeper: &Rc<Mutex<Keeper>>) -> Result<(), Error> {
    let path = socket(&plan.dir());
    let listener = UnixListener::bind(&path).map_err(Error::file(&path))?;
    let detached = Rc::new(Cell::new(false));
    let mut term = signal(SignalKind::terminate()).map_err(Error::file(&path))?;
    // The terminal's interrupt is for the owner; its end is what ends us.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::file(&path))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(Error::file(&path))?;
    let ignored = async {
        loop {
            tokio::select! { _ = interrupt.recv() => {}, _ = hangup.recv() => {} }
        }
    };
    let up = async {
        bring_up::all(plan, keeper).await?;
        Record { ready: true, ..record.clone() }.write()?;
        report(&Report::Ready);
        serve(&listener, keeper, &detached).await
    };
    tokio::select! {
        result = up => result,
        () = ignored => Ok(()),
        () = owner_gone(&detached) => Ok(()),
        _ = term.recv() => Ok(()),
    }
}

/// Ends when the owner has, unless it has let go.
async fn owner_gone(detached: &Cell<bool>) {
    let mut byte = [0];
    let mut pipe = tokio::io::stdin();
    while pipe.read(&mut byte).await.is_ok_and(|read| read > 0) {}
    if detached.get() {
        std::future::pending::<()>().await;
    }
}

async fn serve(listener: &UnixListener, keeper: &Mutex<Keeper>, detached: &Cell<bool>) -> Result<(), Error> {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            // One at a time: answers are quick, and a client that hangs is cut off.
            let _ = tokio::time::timeout(Duration::from_secs(10), answer(stream, keeper, detached)).await;
        }
    }
}

async fn answer(mut stream: UnixStream, keeper: &Mutex<Keeper>, detached: &Cell<bool>) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut line = String::new();
    BufReader::new(read).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(ask) => obey(ask, &mut *keeper.lock().await, detached).await,
        Err(error) => Answer::Failed(error.to_string()),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    write.write_all(&line).await
}

async fn obey(ask: Ask, keeper: &mut Keeper, detached: &Cell<bool>) -> Answer {
    let result = match ask {
        Ask::Start(program) => keeper.start(*program).map(drop),
        Ask::Check => keeper.check(),
        Ask::Detach => {
            detached.set(true);
            Ok(())
        }
        Ask::Stop { name, dir } => {
            keeper.stop(&name).await;
            if let Some(dir) = dir {
                let _ = std::fs::remove_dir_all(dir);
            }
            Ok(())
        }
    };
    result.map_or_else(|error| Answer::Failed(error.to_string()), |()| Answer::Done)
}
