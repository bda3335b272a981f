//! SHELL: the command line.

mod crds;
mod remedy;
mod render;
mod run;
mod status;
pub mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use self::status::{ClusterArgs, Output, StatusArgs};
use crate::engine::hosts::Hosts;
use crate::kinds::{Gateway, Ingress, Platform, Proxy};
use crate::ops::http::Bind;
use crate::ops::telemetry::LogFormat;
use crate::parts::host_allow::private_networks;
use crate::parts::network_policy::Network;

/// Keeps tracking servers and the rest of a machine-learning platform standing on Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "aiscope-operator", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What a newcomer does first.
const EXAMPLES: &str = "\
Examples:
  aiscope-operator crds | kubectl apply --server-side -f -    install the resource definitions
  aiscope-operator run --ingress traefik                      run with the current context
  aiscope-operator render -f trackingserver.yaml              see what it would apply
  aiscope-operator status -A                                  see how all resources are, and what to do next";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the custom resource definitions, or write one file each into a directory.
    Crds {
        /// Where to; without it they are printed as one multi-document YAML.
        dir: Option<PathBuf>,
    },
    /// Print what `run` would apply for the resources in some manifests, without a cluster.
    Render(RenderArgs),
    /// Run the operator, in a pod or with the current context of a kubeconfig, until SIGTERM.
    Run(RunArgs),
    /// Print how all resources are, and the next step for each that needs one. Ends with 0 when all are ready.
    Status(StatusArgs),
    /// Print a completion script, for a shell to source.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

impl Cli {
    /// Reads the command line. Installed under the name `kubectl-aiscope` the program is a plugin of kubectl, and its help
    /// names it as people call it: `kubectl aiscope`.
    #[must_use]
    pub fn read() -> Self {
        let mut arguments = std::env::args_os().peekable();
        let plugin = arguments.peek().is_some_and(|name| is_plugin(Path::new(name)));
        let matches = command(plugin).get_matches_from(arguments);
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

fn is_plugin(program: &Path) -> bool {
    program.file_stem().is_some_and(|name| name == "kubectl-aiscope")
}

fn command(plugin: bool) -> clap::Command {
    if !plugin {
        return Cli::command();
    }
    let examples = EXAMPLES.replace("aiscope-operator", "kubectl aiscope");
    Cli::command().name("kubectl-aiscope").bin_name("kubectl aiscope").after_help(examples)
}

/// Arguments of `render`.
#[derive(Args, Clone, Debug)]
pub struct RenderArgs {
    /// Manifests, any number of documents each; `-` is the standard input. Other objects in them (a Secret, a volume claim)
    /// count as already there. A resource without metadata.uid is rendered with the all-zero uid.
    #[arg(short = 'f', long = "filename", required = true, num_args = 1.., value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How to print.
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Yaml)]
    pub output: Format,
    /// The cluster that it is for.
    #[command(flatten)]
    pub platform: PlatformArgs,
}

/// How to print objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Documents behind `---`.
    Yaml,
    /// A `List`.
    Json,
}

/// Facts about the cluster, the same for every resource.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub struct PlatformArgs {
    /// Which ingress controller serves the routes. Changing it removes the other one's routes.
    #[arg(long, value_enum, env = "AISCOPE_INGRESS", default_value_t = Ingress::Traefik)]
    pub ingress: Ingress,
    /// The Gateway that serves the routes, with `--ingress gateway`. Its listeners must admit routes from the namespaces of
    /// the resources, and have the certificates.
    #[arg(long, env = "AISCOPE_GATEWAY", required_if_eq("ingress", "gateway"), value_name = "NAMESPACE/NAME")]
    pub gateway: Option<Gateway>,
    /// DNS domain of Services: what follows `.svc.` in the names that pods call each other by.
    #[arg(long, env = "AISCOPE_CLUSTER_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    pub cluster_domain: String,
    /// Patterns of addresses by which pods are called directly, e.g. `100.64.*`; a server answers to these as its own
    /// name. Default: the private networks.
    #[arg(long = "pod-network", env = "AISCOPE_POD_NETWORKS", value_delimiter = ',', value_name = "PATTERN")]
    pub pod_networks: Vec<String>,
    /// Namespace of the pods of the ingress controller: with `networkPolicy: true` they are let in, beside the pods of the
    /// resource's own namespace.
    #[arg(long, env = "AISCOPE_PROXY_NAMESPACE", value_name = "NAMESPACE")]
    pub proxy_namespace: Option<String>,
    /// Labels of these pods, when others of that namespace are not to be let in.
    #[arg(
        long = "proxy-label", env = "AISCOPE_PROXY_LABELS", value_delimiter = ',', value_name = "KEY=VALUE",
        requires = "proxy_namespace", value_parser = label
    )]
    pub proxy_labels: Vec<(String, String)>,
    /// Networks to let in likewise: of a proxy that is no pod (a load balancer, the host network), and of the API server,
    /// through which unused workspaces are found.
    #[arg(long = "proxy-network", env = "AISCOPE_PROXY_NETWORKS", value_delimiter = ',', value_name = "CIDR")]
    pub proxy_networks: Vec<Network>,
    /// Hosts that a namespace without the annotation `aiscope.io/allowed-hosts` may name: `*` is any, `.example.com` every
    /// host below it, `ml.example.com` that one; empty means none.
    #[arg(long, env = "AISCOPE_ALLOWED_HOSTS", default_value = "*", value_name = "HOST,...")]
    pub allowed_hosts: String,
}

/// Reads `key=value`.
fn label(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("must be KEY=VALUE")?;
    Ok((key.into(), value.into()))
}

impl From<PlatformArgs> for Platform {
    fn from(args: PlatformArgs) -> Self {
        let PlatformArgs { ingress, gateway, cluster_domain, pod_networks, .. } = args;
        let labels = args.proxy_labels.into_iter().collect();
        let proxy = Proxy { namespace: args.proxy_namespace, labels, networks: args.proxy_networks };
        let pod_networks = if pod_networks.is_empty() { private_networks() } else { pod_networks };
        let hosts = Hosts::read(&args.allowed_hosts);
        Self { ingress, gateway, cluster_domain, pod_networks, proxy, hosts }
    }
}

/// Arguments of `run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The cluster that it runs in.
    #[command(flatten)]
    pub platform: PlatformArgs,
    /// Namespaces to look after; may be repeated. Default: all, which needs a `ClusterRole`.
    #[arg(
        long = "namespace",
        short = 'n',
        env = "AISCOPE_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE"
    )]
    pub namespaces: Vec<String>,
    /// How many resources are worked on at the same time. More make a mass change faster and the API server busier.
    #[arg(long, env = "AISCOPE_CONCURRENCY", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..), value_name = "N")]
    pub concurrency: u16,
    /// Also look after the clusters that `Cluster` resources name, with the same kinds and options.
    #[arg(long, env = "AISCOPE_FLEET", requires = "operator_namespace")]
    pub fleet: bool,
    /// The operator's own namespace, where the Secrets of `Cluster`s are.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub operator_namespace: Option<String>,
    /// Install and update the CRDs in member clusters; the kubeconfigs must allow it.
    #[arg(long, env = "AISCOPE_INSTALL_CRDS", requires = "fleet")]
    pub install_crds: bool,
    /// Take kubeconfigs that go through a proxy (`proxy-url`).
    #[arg(long, env = "AISCOPE_ALLOW_MEMBER_PROXIES", requires = "fleet")]
    pub allow_member_proxies: bool,
    /// Where it answers.
    #[command(flatten)]
    pub serving: ServingArgs,
    /// How to write the log.
    #[arg(long, value_enum, env = "AISCOPE_LOG_FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// What to log: a level, or directives such as `info,aiscope_operator=debug`.
    #[arg(long, env = "AISCOPE_LOG_LEVEL", default_value = "info", value_name = "FILTER")]
    pub log_level: String,
}

/// Where it answers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Serving")]
pub struct ServingArgs {
    /// Where Prometheus reads /metrics: plain HTTP, names kinds but no resource. Usually `:8080`; `0` is off.
    #[arg(long, env = "AISCOPE_METRICS_BIND_ADDRESS", default_value = "0", value_name = "ADDRESS")]
    pub metrics_bind_address: Bind,
    /// Where the kubelet asks: /healthz, the controllers get on; /readyz, their caches are filled. Usually `:8081`;
    /// `0` is off.
    #[arg(long, env = "AISCOPE_HEALTH_PROBE_BIND_ADDRESS", default_value = "0", value_name = "ADDRESS")]
    pub health_probe_bind_address: Bind,
    /// Where /debug/resources says how each resource stands. It names what all tenants have: keep it on the loopback
    /// address, `127.0.0.1:8082`, and use `kubectl port-forward`. `0` is off.
    #[arg(long, env = "AISCOPE_DEBUG_BIND_ADDRESS", default_value = "0", value_name = "ADDRESS")]
    pub debug_bind_address: Bind,
}

impl Command {
    /// Does it.
    #[must_use]
    pub fn execute(self) -> ExitCode {
        let outcome = match self {
            Self::Crds { dir } => crds::print(dir.as_deref()).map(|()| true),
            Self::Render(args) => render::print(args),
            Self::Run(args) => run::run(args).map(|()| true),
            Self::Status(args) => status::print(&args),
            Self::Completion { shell } => complete(shell).map(|()| true),
        };
        match outcome {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(message) => {
                eprintln!("{message}");
                ExitCode::FAILURE
            }
        }
    }
}

fn complete(shell: clap_complete::Shell) -> Result<(), String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "aiscope-operator", &mut script);
    print(&String::from_utf8_lossy(&script))
}

/// Prints, and ends quietly when nobody reads on (`| head`).
fn print(text: &str) -> Result<(), String> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("standard output: {error}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_the_gateway_api_need_a_gateway() {
        let read = |more: &[&str]| Cli::try_parse_from(["x", "run"].iter().chain(more)).is_ok();
        assert!(!read(&["--ingress=gateway"]) && read(&["--ingress=gateway", "--gateway=infra/web"]));
        assert!(!read(&["--ingress=gateway", "--gateway=web"]) && read(&["--ingress=nginx"]));
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        command(true).debug_assert();
    }

    #[test]
    fn as_a_plugin_of_kubectl_its_help_names_it_so() {
        assert!(is_plugin(Path::new("/usr/bin/kubectl-aiscope")) && !is_plugin(Path::new("aiscope-operator")));
        let help = command(true).render_long_help().to_string();
        assert!(help.contains("Usage: kubectl aiscope <COMMAND>") && !help.contains("aiscope-operator"), "{help}");
    }

    #[test]
    fn completions_know_every_command() {
        let mut script = Vec::new();
        clap_complete::generate(clap_complete::Shell::Bash, &mut Cli::command(), "aiscope-operator", &mut script);
        let script = String::from_utf8(script).unwrap();
        for command in Cli::command().get_subcommands() {
            assert!(script.contains(command.get_name()), "{}", command.get_name());
        }
    }
}
