//! Starting, using and ending a testbed, as its users see it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::control::{self, Ask};
use crate::error::{Error, last_lines};
use crate::image::Image;
use crate::plan::Plan;
use crate::progress::{Step, say};
use crate::state::{self, Record};
use crate::supervisor::{MARK, Report};
use crate::{Node, audit, binaries, machine, node};

/// What kind of testbed to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name; by default one that nobody else has.
    pub name: String,
    /// What runs the pods.
    pub node: Node,
    /// Whether requests are recorded for [`Testbed::requests`].
    pub audit: bool,
    /// Further flags for the API server, such as `--feature-gates=X=true`.
    pub apiserver: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Self { name, node: Node::None, audit: true, apiserver: Vec::new() }
    }
}

/// A running Kubernetes. It ends with [`Testbed::stop`], when dropped, or when this process ends in whatever way.
#[derive(Debug)]
pub struct Testbed {
    pub(crate) plan: Plan,
    dir: PathBuf,
    kubeconfig: PathBuf,
    /// None for one that somebody else started.
    owned: Option<Owned>,
}

#[derive(Debug)]
struct Owned {
    supervisor: Child,
    /// Held open as long as the testbed is wanted.
    pipe: ChildStdin,
}

impl Testbed {
    /// Starts a testbed; returns when the API server is ready and, with a node, the node too.
    ///
    /// # Errors
    /// When something cannot be obtained, or does not start; the message holds the end of the log.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let node = resolve(options.node).await;
        let (tools, stages, images) = obtain(node).await?;
        let record = state::claim(&options.name, node)?;
        let plan = Plan {
            name: options.name,
            slot: record.slot,
            node,
            audit: options.audit,
            apiserver: options.apiserver,
            tools,
            stages,
            images,
        };
        let step = Step::begin(format!("starting testbed `{}` (node: {node})", plan.name));
        let begun = async {
            plan.write()?;
            let owned = spawn(&plan)?;
            first_report(&plan.name, owned).await
        };
        match step.watch(begun).await {
            Ok(owned) => Ok(Self::of(plan, Some(owned))),
            Err(error) => {
                // Ours until a supervisor has taken it over; a supervisor clears away after itself.
                if let Some(left) = Record::read(&plan.dir()).filter(|left| left.keeper == record.keeper) {
                    state::remove(&left);
                }
                Err(error)
            }
        }
    }

    /// A testbed that is already running, such as one of `cargo testbed up`. It goes on when this is dropped.
    ///
    /// # Errors
    /// When none of this name is running.
    pub fn attach(name: &str) -> Result<Self, Error> {
        let record =
            state::running(name).filter(|record| record.ready).ok_or_else(|| Error::Missing(name.to_owned()))?;
        Ok(Self::of(Plan::read(&state::dir(&record.name))?, None))
    }

    fn of(plan: Plan, owned: Option<Owned>) -> Self {
        let dir = plan.dir();
        Self { kubeconfig: dir.join("kubeconfig"), plan, dir, owned }
    }

    /// Lets go of it: it runs until `cargo testbed down` or [`down`].
    ///
    /// # Errors
    /// When its supervisor has ended.
    pub fn detach(self) -> Result<(), Error> {
        control::ask(&self.dir, &Ask::Detach)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// What runs the pods: never [`Node::Auto`].
    #[must_use]
    pub fn node(&self) -> Node {
        self.plan.node
    }

    /// Its directory: logs, certificates. Removed with it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The administrator's kubeconfig; it needs no other file.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// An administrator's client with this User-Agent.
    ///
    /// # Errors
    /// When the testbed has ended, or the User-Agent is no header value.
    pub fn client(&self, user_agent: &str) -> Result<kube::Client, Error> {
        crate::client(&self.kubeconfig, user_agent)
    }

    /// The path of a program: `kubectl`, `etcd`, ..., also `traefik` once it was fetched. An unknown name is returned as
    /// it is, to be looked up on `PATH`.
    #[must_use]
    pub fn tool(&self, name: &str) -> PathBuf {
        let known = self.plan.tools.get(name).cloned();
        let fetched =
            || Some(binaries::traefik_entry().join("bin/traefik")).filter(|file| name == "traefik" && file.is_file());
        known.or_else(fetched).unwrap_or_else(|| name.into())
    }

    /// The requests of clients whose User-Agent begins with this, in order of arrival.
    ///
    /// A request is recorded as its answer is sent: the very last one may need a moment to appear.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub fn requests(&self, user_agent_prefix: &str) -> Result<Vec<audit::Request>, Error> {
        audit::read(&self.dir.join("audit.log"), user_agent_prefix)
    }

    /// This machine's address as pods see it: what listens here can be reached from pods and from this machine, and
    /// from nowhere else. Only with a real node.
    #[must_use]
    pub fn node_address(&self) -> Option<IpAddr> {
        (self.plan.node == Node::Real).then(|| self.plan.host_address())
    }

    /// Makes an image known to the node, so that pods can name it. Takes a while for a large one; again costs little.
    ///
    /// # Errors
    /// Without a real node, or when the image cannot be built.
    pub async fn load_image(&self, image: Image) -> Result<(), Error> {
        self.require_real("an image")?;
        let archive = image.archive().await?;
        let step = Step::begin(format!("loading {}", image.reference()));
        step.watch(node::import(&self.plan, &archive, image.reference())).await
    }

    /// Some things make sense on a real node only.
    pub(crate) fn require_real(&self, what: &str) -> Result<(), Error> {
        if self.plan.node == Node::Real {
            return Ok(());
        }
        Err(Error::machine(format!("{what} needs a real node, this one is {}", self.plan.node), "use Node::Real"))
    }

    /// Fails when one of its programs has ended that should run.
    ///
    /// # Errors
    /// Names the program and the end of its log.
    pub fn check(&self) -> Result<(), Error> {
        control::ask(&self.dir, &Ask::Check)
    }

    /// Ends it and waits until nothing is left.
    ///
    /// # Errors
    /// When its supervisor cannot be waited for.
    pub async fn stop(mut self) -> Result<(), Error> {
        let Some(Owned { mut supervisor, pipe }) = self.owned.take() else { return down(&self.plan.name).await };
        drop(pipe);
        let dir = self.dir.clone();
        let waited = tokio::task::spawn_blocking(move || supervisor.wait()).await;
        waited.map_err(|error| Error::machine(error.to_string(), "try again"))?.map_err(Error::file(&dir)).map(drop)
    }
}

/// Decides what `auto` is, and says why.
async fn resolve(node: Node) -> Node {
    if node != Node::Auto {
        return node;
    }
    match machine::no_real_node().await {
        None => {
            say("node: real, this machine can carry one");
            Node::Real
        }
        Some(reason) => {
            say(&format!("node: simulated, because {reason}"));
            Node::Simulated
        }
    }
}

type Parts = (BTreeMap<String, PathBuf>, Vec<PathBuf>, Vec<PathBuf>);

/// Everything that must be there before a testbed can start.
async fn obtain(node: Node) -> Result<Parts, Error> {
    if node == Node::Real
        && let Some(reason) = machine::no_real_node().await
    {
        return Err(Error::machine(format!("no real node: {reason}"), "use a simulated one: `--node simulated`"));
    }
    let tools = binaries::obtain(&binaries::needed(node)).await?;
    let stages = if node == Node::Simulated { binaries::kwok_stages().await? } else { Vec::new() };
    let images = if node == Node::Real { vec![Image::Pause.archive().await?] } else { Vec::new() };
    Ok((tools, stages, images))
}

/// Builds and fetches everything a testbed of this kind needs, so that the next one starts in seconds.
///
/// # Errors
/// When something cannot be obtained.
pub async fn prepare(node: Node) -> Result<(), Error> {
    let node = resolve(node).await;
    let (tools, _, _) = obtain(node).await?;
    if node == Node::Real {
        for image in [Image::Mlflow, Image::Jupyter, Image::CodeServer, Image::Web] {
            image.archive().await?;
        }
        crate::traefik::prepare().await?;
        binaries::obtain_one("versitygw").await?;
        crate::stores::install_postgres().await?;
    }
    binaries::report(&tools);
    Ok(())
}

/// Starts this program again, as the supervisor.
fn spawn(plan: &Plan) -> Result<Owned, Error> {
    let program = std::env::current_exe().map_err(Error::file(Path::new("/proc/self/exe")))?;
    let log = plan.dir().join("supervisor.log");
    let errors = std::fs::File::create(&log).map_err(Error::file(&log))?;
    let mut command = Command::new(&program);
    command.env(MARK, plan.dir()).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
    let mut supervisor = command.spawn().map_err(Error::file(&program))?;
    let pipe = supervisor.stdin.take().ok_or_else(|| Error::machine("no pipe to the supervisor", "try again"))?;
    Ok(Owned { supervisor, pipe })
}

/// Shows what the supervisor says until it is ready or has failed.
async fn first_report(name: &str, mut owned: Owned) -> Result<Owned, Error> {
    let name = name.to_owned();
    let output = owned.supervisor.stdout.take();
    let read = tokio::task::spawn_blocking(move || {
        let mut strange = Vec::new();
        for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Report::Progress(text)) => say(&text),
                Ok(Report::Ready) => return Ok(()),
                Ok(Report::Failed(message)) => return Err(message),
                Err(_) => strange.push(line),
            }
        }
        let said = strange.join("\n");
        Err(format!(
            "its supervisor ended; does main() begin with testbed::supervise_if_asked()? It said:\n{}",
            last_lines(&said, 12).join("\n")
        ))
    });
    match read.await.map_err(|error| Error::machine(error.to_string(), "try again"))? {
        Ok(()) => Ok(owned),
        Err(message) => {
            let Owned { mut supervisor, pipe } = owned;
            drop(pipe);
            // It clears away first; then the directory is gone.
            let _ = tokio::task::spawn_blocking(move || supervisor.wait()).await;
            Err(Error::Start { name, message })
        }
    }
}

/// Ends a testbed by name, whoever started it, and waits until nothing is left.
///
/// # Errors
/// When none of this name is there, or it does not end.
pub async fn down(name: &str) -> Result<(), Error> {
    let Some(record) = Record::read(&state::dir(name)) else { return Err(Error::Missing(name.to_owned())) };
    record.keeper.signal(Signal::TERM);
    let step = Step::begin(format!("ending testbed `{name}`"));
    if !step.watch(record.keeper.ended(Duration::from_mins(1))).await {
        return Err(Error::machine(
            format!("the supervisor of `{name}`, process {}, does not end", record.keeper.pid()),
            "kill it; the next command sweeps what it leaves",
        ));
    }
    let _lock = state::lock(&state::root().join("lock"))?;
    state::sweep();
    Ok(())
}

/// A line of `cargo testbed status`.
#[derive(Clone, Debug)]
pub struct Status {
    /// The testbed's name.
    pub name: String,
    /// What runs its pods.
    pub node: Node,
    /// The supervisor's process id.
    pub pid: i32,
    /// False while it starts.
    pub ready: bool,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
}

/// The running testbeds. Sweeps what killed ones left.
///
/// # Errors
/// When the state directory cannot be used.
pub fn status() -> Result<Vec<Status>, Error> {
    let _lock = state::lock(&state::root().join("lock"))?;
    state::sweep();
    let line = |record: Record| Status {
        kubeconfig: state::dir(&record.name).join("kubeconfig"),
        pid: record.keeper.pid(),
        ready: record.ready,
        node: record.node,
        name: record.name,
    };
    Ok(state::all().into_iter().map(line).collect())
}
