//! etcd, API server, controller-manager and scheduler.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::{Error, log_tail};
use crate::keeper::{Ending, Keeper, Program};
use crate::pki::{self, Authority};
use crate::plan::Plan;
use crate::supervisor::progress;
use crate::{Node, audit, machine, node, ports, state};

/// How long the API server may take. A machine that compiles at the same time is slow.
const READY: Duration = Duration::from_secs(90);
/// How often to begin again when somebody took a port between choosing and binding.
const ATTEMPTS: usize = 3;

struct Ports {
    etcd: u16,
    peer: u16,
    server: u16,
}

/// Starts the control plane and waits for `/readyz`.
pub(crate) async fn start(plan: &Plan, keeper: &Mutex<Keeper>) -> Result<kube::Client, Error> {
    let authority = certificates(plan)?;
    state::write(&plan.dir().join("audit-policy.yaml"), audit::POLICY)?;
    let mut attempt = 1;
    let client = loop {
        match serve(plan, keeper, &authority).await {
            Ok(client) => break client,
            Err(error) if attempt < ATTEMPTS && error.to_string().contains("address already in use") => {
                attempt += 1;
                progress("a port was taken; trying others");
                for name in ["kube-apiserver", "etcd"] {
                    keeper.lock().await.stop(name).await;
                    let _ = std::fs::remove_file(plan.log(name));
                }
            }
            Err(error) => return Err(error),
        }
    };
    let mut keeper = keeper.lock().await;
    keeper.start(controller_manager(plan))?;
    keeper.start(scheduler(plan))?;
    Ok(client)
}

fn certificates(plan: &Plan) -> Result<Authority, Error> {
    let authority = Authority::create(&plan.dir().join("pki"))?;
    let loopback = "127.0.0.1".to_owned();
    let mut hosts = pki::hosts(
        &[
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ],
        &[plan.host_address()],
    );
    hosts.push(loopback.clone());
    // The first address of the service range is the service `kubernetes`.
    hosts.push(plan.service_range().replace(".0/16", ".1"));
    authority.serving("apiserver", &hosts)?;
    authority.serving("etcd", &[loopback, "localhost".to_owned()])?;
    authority.client_files("etcd-client", "etcd-client", "testbed")?;
    authority.client_files("kubelet-client", "kube-apiserver-kubelet-client", "system:masters")?;
    pki::signing_key(&plan.dir().join("pki"), "service-accounts")?;
    Ok(authority)
}

/// etcd and the API server on ports that are free right now.
async fn serve(plan: &Plan, keeper: &Mutex<Keeper>, authority: &Authority) -> Result<kube::Client, Error> {
    let [etcd, peer, server] = ports::free(plan.slot, 3)[..] else {
        return Err(Error::machine("there are no three free ports on 127.0.0.1", "end some programs"));
    };
    let ports = Ports { etcd, peer, server };
    let address = format!("https://{}:{server}", plan.server_address());
    let kubeconfig =
        |file: &str, user: &str, group: &str| authority.kubeconfig(&plan.dir().join(file), &address, user, group);
    kubeconfig("kubeconfig", "admin", "system:masters")?;
    kubeconfig("pki/controller-manager.kubeconfig", "system:kube-controller-manager", "testbed")?;
    kubeconfig("pki/scheduler.kubeconfig", "system:kube-scheduler", "testbed")?;
    kubeconfig("pki/kwok.kubeconfig", "system:kwok", "system:masters")?;
    kubeconfig("pki/proxy.kubeconfig", "system:kube-proxy", "testbed")?;
    kubeconfig("pki/kubelet.kubeconfig", &format!("system:node:{}", plan.node_name()), "system:nodes")?;
    if plan.node == Node::Real {
        authority.serving("kubelet", &pki::hosts(&[&plan.node_name()], &[plan.node_ip()]))?;
    }
    {
        let mut keeper = keeper.lock().await;
        keeper.start(etcd_program(plan, &ports))?;
        keeper.start(api_server(plan, &ports))?;
    }
    let client = crate::client(&plan.dir().join("kubeconfig"), "testbed")?;
    await_ready(plan, keeper, &client).await?;
    Ok(client)
}

async fn await_ready(plan: &Plan, keeper: &Mutex<Keeper>, client: &kube::Client) -> Result<(), Error> {
    let deadline = Instant::now() + READY;
    let mut interval = tokio::time::interval(Duration::from_millis(100));
    loop {
        interval.tick().await;
        keeper.lock().await.check()?;
        let request = http::Request::get("/readyz").body(Vec::new()).map_err(Error::format("request"))?;
        let answer = tokio::time::timeout(Duration::from_secs(2), client.request_text(request)).await;
        if matches!(answer, Ok(Ok(text)) if text == "ok") {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let log = plan.log("kube-apiserver");
            return Err(Error::Program {
                program: "kube-apiserver".to_owned(),
                what: format!("was not ready after {} s", READY.as_secs()),
                output: log_tail(&log),
                log,
            });
        }
    }
}

/// A program of the control plane: its data is thrown away, so it is killed rather than asked.
pub(crate) fn program(plan: &Plan, name: &str, flags: Vec<String>) -> Program {
    let mut argv = vec![plan.tool(name)];
    argv.extend(flags);
    Program { name: name.to_owned(), argv, env: BTreeMap::new(), log: plan.log(name), ending: Ending::Kill }
}

fn etcd_program(plan: &Plan, ports: &Ports) -> Program {
    let client = format!("https://127.0.0.1:{}", ports.etcd);
    let peer = format!("https://127.0.0.1:{}", ports.peer);
    let (certificate, key, ca) = (plan.pki("etcd.crt"), plan.pki("etcd.key"), plan.pki("ca.crt"));
    let flags = vec![
        "--name=testbed".to_owned(),
        format!("--data-dir={}", plan.file("etcd")),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=testbed={peer}"),
        // Without certificates any user of this machine could write to it.
        format!("--cert-file={certificate}"),
        format!("--key-file={key}"),
        format!("--trusted-ca-file={ca}"),
        "--client-cert-auth".to_owned(),
        format!("--peer-cert-file={certificate}"),
        format!("--peer-key-file={key}"),
        format!("--peer-trusted-ca-file={ca}"),
        "--peer-client-cert-auth".to_owned(),
        // Nothing here outlives the machine; waiting for the disk would only make tests slow.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    program(plan, "etcd", flags)
}

fn api_server(plan: &Plan, ports: &Ports) -> Program {
    let mut flags = vec![
        format!("--etcd-servers=https://127.0.0.1:{}", ports.etcd),
        format!("--etcd-cafile={}", plan.pki("ca.crt")),
        format!("--etcd-certfile={}", plan.pki("etcd-client.crt")),
        format!("--etcd-keyfile={}", plan.pki("etcd-client.key")),
        format!("--bind-address={}", plan.server_address()),
        format!("--advertise-address={}", plan.host_address()),
        format!("--secure-port={}", ports.server),
        format!("--tls-cert-file={}", plan.pki("apiserver.crt")),
        format!("--tls-private-key-file={}", plan.pki("apiserver.key")),
        format!("--client-ca-file={}", plan.pki("ca.crt")),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--service-cluster-ip-range={}", plan.service_range()),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", plan.pki("service-accounts.pub")),
        format!("--service-account-signing-key-file={}", plan.pki("service-accounts.key")),
        format!("--kubelet-client-certificate={}", plan.pki("kubelet-client.crt")),
        format!("--kubelet-client-key={}", plan.pki("kubelet-client.key")),
        format!("--kubelet-certificate-authority={}", plan.pki("ca.crt")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        // Without a node nobody can reach the service `kubernetes`, and a loopback address is refused for it.
        format!("--endpoint-reconciler-type={}", if plan.node == Node::Real { "master-count" } else { "none" }),
    ];
    if plan.audit {
        flags.extend([
            format!("--audit-policy-file={}", plan.file("audit-policy.yaml")),
            format!("--audit-log-path={}", plan.file("audit.log")),
            // Written before the answer is sent, and in one file.
            "--audit-log-mode=blocking".to_owned(),
            "--audit-log-maxsize=100000".to_owned(),
        ]);
    }
    flags.extend(plan.apiserver.iter().cloned());
    program(plan, "kube-apiserver", flags)
}

fn controller_manager(plan: &Plan) -> Program {
    let flags = vec![
        format!("--kubeconfig={}", plan.pki("controller-manager.kubeconfig")),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--use-service-account-credentials=true".to_owned(),
        format!("--service-account-private-key-file={}", plan.pki("service-accounts.key")),
        format!("--root-ca-file={}", plan.pki("ca.crt")),
        format!("--cluster-signing-cert-file={}", plan.pki("ca.crt")),
        format!("--cluster-signing-key-file={}", plan.pki("ca.key")),
        "--enable-hostpath-provisioner=true".to_owned(),
        // The defaults are for sharing an API server with many; here they would only be waited for.
        "--kube-api-qps=300".to_owned(),
        "--kube-api-burst=600".to_owned(),
    ];
    let mut program = program(plan, "kube-controller-manager", flags);
    program.argv = with_own_volumes(plan, program.argv);
    program
}

/// Provisioned volumes lie in one fixed place; it is made to lie in the testbed's directory, as this program sees it.
fn with_own_volumes(plan: &Plan, argv: Vec<String>) -> Vec<String> {
    if plan.node == Node::Real {
        return node::inside(plan, &["--mount"], argv);
    }
    if !machine::is_root() {
        return argv;
    }
    let script = format!("mkdir -p {0} \"$1\" && mount --bind \"$1\" {0} && shift && exec \"$@\"", machine::HOST_PATHS);
    let prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", &script, "sh", &plan.file("volumes")];
    prefix.iter().map(|word| (*word).to_owned()).chain(argv).collect()
}

fn scheduler(plan: &Plan) -> Program {
    let flags = vec![
        format!("--kubeconfig={}", plan.pki("scheduler.kubeconfig")),
        "--leader-elect=false".to_owned(),
        "--secure-port=0".to_owned(),
        "--kube-api-qps=300".to_owned(),
        "--kube-api-burst=600".to_owned(),
    ];
    program(plan, "kube-scheduler", flags)
}

/// The directories the programs expect.
pub(crate) fn directories(plan: &Plan) -> Result<(), Error> {
    ["logs", "pki", "etcd", "volumes"].iter().try_for_each(|dir| state::make_dir(&PathBuf::from(plan.file(dir))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(node: Node) -> Plan {
        Plan {
            name: "a".to_owned(),
            slot: 7,
            node,
            audit: true,
            apiserver: vec!["--v=4".to_owned()],
            tools: BTreeMap::from([("kube-apiserver".to_owned(), "/bin/kube-apiserver".into())]),
            stages: Vec::new(),
            images: Vec::new(),
        }
    }

    #[test]
    fn the_server_listens_on_loopback_unless_pods_must_reach_it() {
        let ports = Ports { etcd: 1, peer: 2, server: 3 };
        let argv = api_server(&plan(Node::None), &ports).argv;
        assert_eq!(argv[0], "/bin/kube-apiserver");
        assert!(argv.contains(&"--bind-address=127.0.0.1".to_owned()));
        assert!(argv.contains(&"--endpoint-reconciler-type=none".to_owned()));
        assert_eq!(argv.last().unwrap(), "--v=4");
        let argv = api_server(&plan(Node::Real), &ports).argv;
        assert!(argv.contains(&"--bind-address=10.231.7.1".to_owned()));
        assert!(argv.contains(&"--service-cluster-ip-range=10.167.0.0/16".to_owned()));
    }
}
