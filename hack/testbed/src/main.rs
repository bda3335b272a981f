//! `cargo testbed`: a real Kubernetes on this machine.

mod more;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use testbed::{Error, Image, Node, Options, Testbed};

/// A real Kubernetes 1.36 on this one machine, without containers, virtual machines or an image registry.
///
/// The first `up` builds what it needs (about ten minutes, kept in the cache); later ones take seconds.
#[derive(Parser)]
#[command(name = "testbed", bin_name = "cargo testbed", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

const EXAMPLES: &str = "\
Examples:
  export KUBECONFIG=$(cargo testbed up)          start one, use it
  cargo testbed up --name other --node none      a second one beside it, control plane only
  cargo testbed status                           what is running
  cargo testbed down                             end it; nothing is left behind

Environment:
  TESTBED_CACHE      what was built and fetched    [default: ~/.cache/aiscope-testbed]
  TESTBED_STATE      running testbeds              [default: ~/.local/state/aiscope-testbed]
  KUBEBUILDER_ASSETS programs to use as they are, when they are of Kubernetes 1.36";

#[derive(Subcommand)]
enum Action {
    /// Start a testbed and print its kubeconfig's path. It runs until `down`.
    Up {
        #[command(flatten)]
        which: Which,
        /// What runs the pods.
        #[arg(long, value_enum, default_value_t = Node::Auto)]
        node: Node,
    },
    /// End a testbed and remove everything it made.
    Down(Which),
    /// Print the path of a testbed's kubeconfig.
    Kubeconfig(Which),
    /// List the running testbeds.
    Status,
    /// Make an image known to a testbed's real node and print what a pod writes in `image`.
    Load {
        #[command(flatten)]
        which: Which,
        /// Which one.
        #[arg(value_enum)]
        image: Image,
    },
    /// Build and fetch everything, start nothing.
    Prepare {
        /// For which kind of node.
        #[arg(long, value_enum, default_value_t = Node::Auto)]
        node: Node,
    },
    #[command(flatten)]
    More(more::More),
}

#[derive(clap::Args)]
struct Which {
    /// The testbed's name: several run side by side.
    #[arg(long, default_value = "default")]
    name: String,
}

fn main() -> ExitCode {
    testbed::supervise_if_asked();
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    match runtime.block_on(act(arguments.command)) {
        Ok(output) => {
            if !output.is_empty() {
                println!("{output}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("testbed: error: {error}");
    ExitCode::FAILURE
}

/// Does what was asked; returns what belongs on standard output.
async fn act(action: Action) -> Result<String, Error> {
    match action {
        Action::Up { which, node } => {
            let testbed = Testbed::start(Options { name: which.name, node, ..Options::default() }).await?;
            let path = testbed.kubeconfig().display().to_string();
            testbed.detach()?;
            Ok(path)
        }
        Action::Down(which) => testbed::down(&which.name).await.map(|()| String::new()),
        Action::Kubeconfig(which) => Ok(Testbed::attach(&which.name)?.kubeconfig().display().to_string()),
        Action::Status => Ok(table(&testbed::status()?)),
        Action::Load { which, image } => {
            Testbed::attach(&which.name)?.load_image(image).await?;
            Ok(image.reference().to_owned())
        }
        Action::Prepare { node } => testbed::prepare(node).await.map(|()| String::new()),
        Action::More(more) => more::act(more).await,
    }
}

fn table(testbeds: &[testbed::Status]) -> String {
    let mut lines = vec![format!("{:<20} {:<10} {:<9} {:>8}  KUBECONFIG", "NAME", "NODE", "STATE", "PID")];
    lines.extend(testbeds.iter().map(|one| {
        let state = if one.ready { "ready" } else { "starting" };
        format!("{:<20} {:<10} {state:<9} {:>8}  {}", one.name, one.node, one.pid, one.kubeconfig.display())
    }));
    lines.join("\n")
}
