//! Subcommands for scripts: what `hack/demo` puts into a running testbed.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Subcommand;
use testbed::{Certificate, Error, Testbed, TraefikOptions};

use crate::Which;

/// What can be put into a running testbed.
#[derive(Subcommand)]
pub enum More {
    /// Print the path of one of a testbed's programs: kubectl, etcd, ...
    Tool {
        #[command(flatten)]
        which: Which,
        /// The program.
        program: String,
    },
    /// Print a testbed's directory: logs, certificates. It goes with the testbed.
    Dir(Which),
    /// Print what runs a testbed's pods: none, simulated or real.
    Node(Which),
    /// Install Traefik's CRDs.
    TraefikCrds(Which),
    /// Run Traefik in front of a testbed until it ends, and print where it takes HTTP and HTTPS.
    Traefik {
        #[command(flatten)]
        which: Which,
        /// The port for HTTPS; by default a free one.
        #[arg(long)]
        https: Option<u16>,
    },
    /// Keep a program running until the testbed ends, and print its log's path.
    Keep {
        #[command(flatten)]
        which: Which,
        /// What to call it.
        program: String,
        /// Its command line.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Make a throw-away certificate: ca.crt, server.crt and server.key.
    Certificate {
        /// The directory to make them in.
        #[arg(long)]
        dir: PathBuf,
        /// Its hosts.
        #[arg(required = true)]
        hosts: Vec<String>,
    },
    /// Run a Python that has MLflow, from the image of the server. It sees this machine's network and /tmp.
    Mlflow {
        #[command(flatten)]
        which: Which,
        /// A host and its address, for this program only.
        #[arg(long, value_parser = resolve, value_name = "HOST=ADDRESS")]
        resolve: Vec<(String, IpAddr)>,
        /// Python's arguments.
        #[arg(last = true)]
        arguments: Vec<String>,
    },
}

fn resolve(text: &str) -> Result<(String, IpAddr), String> {
    let (host, address) = text.split_once('=').ok_or("write HOST=ADDRESS")?;
    Ok((host.to_owned(), address.parse().map_err(|error| format!("{address}: {error}"))?))
}

/// Does it; returns what belongs on standard output.
pub async fn act(more: More) -> Result<String, Error> {
    match more {
        More::Tool { which, program } => Ok(which.attach()?.tool(&program).display().to_string()),
        More::Dir(which) => Ok(which.attach()?.dir().display().to_string()),
        More::Node(which) => Ok(which.attach()?.node().to_string()),
        More::TraefikCrds(which) => which.attach()?.install_traefik_crds().await.map(|()| String::new()),
        More::Traefik { which, https } => {
            let traefik = which.attach()?.traefik(TraefikOptions { https, ..TraefikOptions::default() }).await?;
            let addresses = format!("{} {}", traefik.http(), traefik.https());
            traefik.detach();
            Ok(addresses)
        }
        More::Keep { which, program, command } => Ok(which.attach()?.keep(&program, command)?.display().to_string()),
        More::Certificate { dir, hosts } => {
            Certificate::create(&dir, &hosts)?;
            Ok(String::new())
        }
        More::Mlflow { which, resolve, arguments } => mlflow(&which.attach()?, &resolve, arguments).await,
    }
}

async fn mlflow(testbed: &Testbed, hosts: &[(String, IpAddr)], arguments: Vec<String>) -> Result<String, Error> {
    let hosts: Vec<_> = hosts.iter().map(|(host, address)| (host.as_str(), *address)).collect();
    let mut client = testbed.mlflow_client(&hosts).await?;
    client.args(arguments);
    // From here on this process is the client; only a failure to become it returns.
    let error = std::os::unix::process::CommandExt::exec(&mut client);
    let what = format!("MLflow's client cannot be started: {error}");
    Err(Error::Machine { what, remedy: "install util-linux's unshare".to_owned() })
}

impl Which {
    fn attach(&self) -> Result<Testbed, Error> {
        Testbed::attach(&self.name)
    }
}
