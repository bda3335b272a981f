//! A real node: containerd, kubelet and kube-proxy in namespaces of their own.
//!
//! Their first process holds the mount, network, process and IPC namespaces. When it dies, the kernel kills every
//! container, drops every mount and removes every link, address and firewall table of the node, so nothing can be
//! forgotten. One link joins the node to this machine: `10.231.SLOT.1` here, `10.231.SLOT.2` there. Routes over it
//! make pods and services reachable from here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::command::{command, run, words};
use crate::control_plane::program;
use crate::error::{Error, log_tail};
use crate::keeper::{Keeper, Program};
use crate::node_config::{self, PAUSE};
use crate::plan::Plan;
use crate::process::Process;
use crate::supervisor::INIT;
use crate::{cgroup, machine, state};

/// How long containerd may take to listen.
const CONTAINERD: Duration = Duration::from_secs(30);
/// With this much memory free, images are kept in it: on disk, unpacking waits for every file to be written, and ending
/// a container makes the kernel write out everything of every program on that disk.
const MEMORY_FOR_IMAGES: u64 = 8 << 30;

/// Everything but the control groups and users.
const NAMESPACES: [&str; 4] = ["--mount", "--net", "--pid", "--ipc"];

/// Makes the node's namespaces and the link to them.
pub(crate) async fn namespaces(plan: &Plan, keeper: &Mutex<Keeper>) -> Result<(), Error> {
    let hidden = ["/var/lib", "/var/log", "/run"];
    if hidden.iter().any(|dir| plan.dir().starts_with(dir)) {
        return Err(Error::machine("the node has its own /var/lib, /var/log and /run", "set TESTBED_STATE elsewhere"));
    }
    let outer = keeper.lock().await.start(init(plan)?)?;
    let first = first_process(plan, keeper, outer).await?;
    state::write(&plan.dir().join("node.pid"), first.pid().to_string())?;
    keeper.lock().await.wait_for(first);
    let mut shell = shell(plan, SETUP);
    shell.args([plan.file("lib"), plan.file("podlogs"), plan.file("volumes"), machine::HOST_PATHS.to_owned()]);
    shell.arg(if machine::available_memory() >= MEMORY_FOR_IMAGES { "tmpfs" } else { "disk" });
    run(&mut shell).await?;
    link(plan, first).await
}

/// What the node sees: a `/var/lib` of its own for containerd, kubelet and CNI, which know no other place for some of
/// their files, and provisioned volumes where the controller-manager makes them.
const SETUP: &str = r#"
mount --make-rshared /
mkdir -p "$1" "$2" "$3" "$4"
mount --bind "$3" "$4"
mount --bind "$1" /var/lib
mount --bind "$2" /var/log
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock /var/lib/containerd
[ "$5" = disk ] || mount -t tmpfs -o mode=711 tmpfs /var/lib/containerd
ip link set lo up
echo 1 > /proc/sys/net/ipv4/ip_forward
"#;

/// A shell in the node's namespaces; its arguments are still to be given.
fn shell(plan: &Plan, script: &str) -> tokio::process::Command {
    let words = inside(plan, &NAMESPACES, ["sh", "-ec", script, "sh"].map(str::to_owned).to_vec());
    let mut shell = command(&words[0]);
    shell.args(&words[1..]);
    shell
}

/// The first process; the kernel ends the others with it, and it ends with the supervisor.
fn init(plan: &Plan) -> Result<Program, Error> {
    let exe = std::env::current_exe().map_err(Error::file(&PathBuf::from("/proc/self/exe")))?;
    let mut argv: Vec<String> = ["unshare", "--fork", "--kill-child=KILL", "--mount-proc", "--propagation", "private"]
        .into_iter()
        .chain(NAMESPACES)
        .map(str::to_owned)
        .collect();
    argv.push(exe.display().to_string());
    let mut init = program(plan, "node", Vec::new());
    init.argv = argv;
    init.env.insert(INIT.to_owned(), plan.dir().display().to_string());
    Ok(init)
}

/// The child of `unshare`, once it has started to be the first process.
async fn first_process(plan: &Plan, keeper: &Mutex<Keeper>, outer: u32) -> Result<Process, Error> {
    let exe = std::env::current_exe().map_err(Error::file(&PathBuf::from("/proc/self/exe")))?;
    let children = PathBuf::from(format!("/proc/{outer}/task/{outer}/children"));
    let deadline = Instant::now() + CONTAINERD;
    while Instant::now() < deadline {
        keeper.lock().await.check()?;
        let child = std::fs::read_to_string(&children).ok().and_then(|pids| pids.trim().parse().ok());
        // `unshare` makes the namespaces first; its child runs our program when they are complete.
        if let Some(first) = child.and_then(Process::find)
            && std::fs::read_link(format!("/proc/{}/exe", first.pid())).is_ok_and(|program| program == exe)
        {
            return Ok(first);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(Error::Program {
        program: "node".to_owned(),
        what: "did not make its namespaces".to_owned(),
        output: log_tail(&plan.log("node")),
        log: plan.log("node"),
    })
}

/// A command line that runs in some of the node's namespaces.
pub(crate) fn inside(plan: &Plan, namespaces: &[&str], argv: Vec<String>) -> Vec<String> {
    let first = std::fs::read_to_string(plan.dir().join("node.pid")).unwrap_or_default();
    let mut words = vec!["nsenter".to_owned(), format!("--target={first}")];
    words.extend(namespaces.iter().map(|namespace| (*namespace).to_owned()));
    words.push("--".to_owned());
    words.extend(argv);
    words
}

async fn link(plan: &Plan, first: Process) -> Result<(), Error> {
    let (device, here, there) = (format!("aiscope{}", plan.slot), plan.host_address(), plan.node_ip());
    words(&format!("ip link add {device} type veth peer name eth0 netns {}", first.pid())).await?;
    words(&format!("ip address add {here}/30 dev {device}")).await?;
    words(&format!("ip link set {device} up")).await?;
    let mut node =
        shell(plan, r#"ip address add "$1/30" dev eth0; ip link set eth0 up; ip route add default via "$2""#);
    run(node.args([there.to_string(), here.to_string()])).await?;
    for range in [plan.pod_range(), plan.service_range()] {
        words(&format!("ip route add {range} via {there}")).await?;
    }
    Ok(())
}

/// Starts the node's programs.
pub(crate) async fn start(plan: &Plan, keeper: &Mutex<Keeper>) -> Result<(), Error> {
    if !cgroup::make(&plan.name) {
        return Err(Error::machine("control groups cannot be made", "use a simulated node: `--node simulated`"));
    }
    node_config::write(plan)?;
    keeper.lock().await.start(containerd(plan))?;
    containerd_listens(plan, keeper).await?;
    for image in &plan.images {
        import(plan, image, PAUSE).await?;
    }
    let mut keeper = keeper.lock().await;
    keeper.start(kubelet(plan))?;
    keeper.start(kube_proxy(plan))?;
    Ok(())
}

/// Brings an image archive into containerd, unless it is there. The packed layer is not needed once it is unpacked.
pub(crate) async fn import(plan: &Plan, archive: &Path, reference: &str) -> Result<(), Error> {
    const SCRIPT: &str = r#"
export CONTAINERD_NAMESPACE=k8s.io
ctr images list --quiet | grep -qxF "$2" && exit
ctr images import "$1"
ctr content rm "$(tar -xOf "$1" config.json | grep -o 'sha256:[0-9a-f]*')"
"#;
    run(shell(plan, SCRIPT).arg(archive).arg(reference)).await.map(drop)
}

async fn containerd_listens(plan: &Plan, keeper: &Mutex<Keeper>) -> Result<(), Error> {
    let deadline = Instant::now() + CONTAINERD;
    while run(shell(plan, "ctr version").arg("")).await.is_err() {
        keeper.lock().await.check()?;
        if Instant::now() >= deadline {
            let log = plan.log("containerd");
            let what = "does not listen".to_owned();
            return Err(Error::Program { program: "containerd".to_owned(), what, output: log_tail(&log), log });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn in_node(plan: &Plan, name: &str, flags: Vec<String>) -> Program {
    let mut program = program(plan, name, flags);
    program.argv = inside(plan, &NAMESPACES, program.argv);
    let path = std::env::var("PATH").unwrap_or_default();
    // runc, nft and mount lie where a user's PATH may not look.
    program.env.insert("PATH".to_owned(), format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
    program
}

fn containerd(plan: &Plan) -> Program {
    in_node(plan, "containerd", vec![format!("--config={}", plan.file("node/containerd.toml"))])
}

fn kubelet(plan: &Plan) -> Program {
    let flags = vec![
        format!("--config={}", plan.file("node/kubelet.yaml")),
        format!("--kubeconfig={}", plan.pki("kubelet.kubeconfig")),
        format!("--hostname-override={}", plan.node_name()),
        format!("--node-ip={}", plan.node_ip()),
    ];
    in_node(plan, "kubelet", flags)
}

fn kube_proxy(plan: &Plan) -> Program {
    let flags = vec![
        format!("--kubeconfig={}", plan.pki("proxy.kubeconfig")),
        format!("--hostname-override={}", plan.node_name()),
        "--proxy-mode=nftables".to_owned(),
        // The limit belongs to the whole machine; leave it.
        "--conntrack-max-per-core=0".to_owned(),
        format!("--cluster-cidr={}", plan.pod_range()),
    ];
    in_node(plan, "kube-proxy", flags)
}
