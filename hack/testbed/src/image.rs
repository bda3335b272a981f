//! Container images without a container engine and without a registry: a root directory, packed as a docker archive.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::command::{command, run};
use crate::error::Error;
use crate::node_config::PAUSE;
use crate::progress::{Step, say};
use crate::{cache, machine, state};

/// An image the testbed can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[non_exhaustive]
pub enum Image {
    /// What holds a pod's namespaces. Loaded at start.
    Pause,
    /// `mlflow:3.17.2`: MLflow with boto3 and psycopg2 on Debian. Runs as any user, on a read-only root.
    Mlflow,
}

const MLFLOW: &str = "docker.io/library/mlflow:3.17.2";
const WHEELS: [&str; 3] = ["mlflow==3.17.2", "boto3", "psycopg2-binary"];
const DEBIAN: &str = "bookworm";
/// The Python of that Debian.
const PYTHON: &str = "3.11";
const PACKAGES: &str = "python3,python3-distutils,ca-certificates,libgomp1";
/// Counts changes to the recipe that none of the pins shows.
const RECIPE: &str = "1";

/// Where the wheels go: Debian's Python looks there by itself.
const SITE: &str = "usr/local/lib/python3.11/dist-packages";
/// `mlflow` on `PATH`: the script pip makes names the interpreter of the machine that ran pip.
const LAUNCHER: &str = "#!/usr/bin/python3\nimport sys\nfrom mlflow.cli import cli\nsys.exit(cli())\n";

const PAUSE_SOURCES: [(&str, &str); 2] =
    [("go.mod", include_str!("../go/pause/go.mod")), ("main.go", include_str!("../go/pause/main.go"))];

impl Image {
    /// What a pod writes in `image`.
    #[must_use]
    pub fn reference(self) -> &'static str {
        match self {
            Self::Pause => PAUSE,
            Self::Mlflow => MLFLOW,
        }
    }

    /// The archive, from the cache or built now.
    pub(crate) async fn archive(self) -> Result<PathBuf, Error> {
        Ok(self.entry().await?.join("image.tar"))
    }

    /// The cache entry: `image.tar`, and for MLflow the unpacked `rootfs`.
    pub(crate) async fn entry(self) -> Result<PathBuf, Error> {
        match self {
            Self::Pause => {
                let key = cache::key(&[PAUSE_SOURCES[0].1, PAUSE_SOURCES[1].1, RECIPE]);
                cache::entry(&format!("image-pause-{key}"), pause).await
            }
            Self::Mlflow => {
                let key = cache::key(&[&WHEELS.join(" "), DEBIAN, PYTHON, PACKAGES, LAUNCHER, RECIPE]);
                cache::entry(&format!("image-mlflow-{key}"), mlflow).await
            }
        }
    }
}

async fn pause(dir: PathBuf) -> Result<(), Error> {
    let root = dir.join("rootfs");
    state::make_dir(&root)?;
    for (name, content) in PAUSE_SOURCES {
        state::write(&dir.join(name), content)?;
    }
    let mut go = command("go");
    go.current_dir(&dir).env("CGO_ENABLED", "0").env("GOWORK", "off").env("GOFLAGS", "");
    go.args(["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", "rootfs/pause", "."]);
    run(&mut go).await?;
    pack(&dir, PAUSE, json!({"Entrypoint": ["/pause"], "User": "65535:65535"})).await
}

async fn mlflow(dir: PathBuf) -> Result<(), Error> {
    say("making the MLflow image from Debian and PyPI packages (once; kept in the cache)");
    machine::ensure_packages(&["debootstrap"]).await?;
    let root = dir.join("rootfs");
    Step::begin("  Debian").watch(debian(&root)).await?;
    Step::begin("  Python packages").watch(wheels(&root)).await?;
    prune(&root).await?;
    let launcher = root.join("usr/local/bin/mlflow");
    state::write(&launcher, LAUNCHER)?;
    run(command("chmod").arg("755").arg(&launcher)).await?;
    Step::begin("  compiling Python").watch(compile(&root)).await?;
    let config = json!({
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "LANG=C.UTF-8",
                "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"],
        "Cmd": ["mlflow", "server", "--host", "0.0.0.0", "--port", "5000"],
        "WorkingDir": "/tmp",
    });
    Step::begin("  packing").watch(pack(&dir, MLFLOW, config)).await
}

async fn debian(root: &Path) -> Result<(), Error> {
    let mirror = machine::debian_mirror()
        .await
        .ok_or_else(|| Error::machine("this machine's package sources name no Debian mirror", "run on Debian"))?;
    let mut debootstrap = command("debootstrap");
    debootstrap.args(["--variant=minbase", &format!("--include={PACKAGES}"), DEBIAN]).arg(root).arg(mirror);
    run(&mut debootstrap).await.map(drop)
}

/// Only wheels, and for the image's Python: this machine's may be another one.
async fn wheels(root: &Path) -> Result<(), Error> {
    let mut pip = machine::pip().await?;
    pip.args(["install", "--quiet", "--no-compile", "--no-cache-dir", "--root-user-action=ignore"]);
    pip.args(["--python-version", PYTHON, "--implementation", "cp", "--only-binary=:all:"]);
    for glibc in ["manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28", "manylinux_2_34"] {
        pip.args(["--platform", &format!("{glibc}_{}", std::env::consts::ARCH)]);
    }
    pip.arg("--target").arg(root.join(SITE)).args(WHEELS);
    run(&mut pip).await.map(drop)
}

/// What neither MLflow nor a look at a failure needs; a third of the size.
async fn prune(root: &Path) -> Result<(), Error> {
    const SCRIPT: &str = "cd \"$1\"
rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* usr/share/doc usr/share/man usr/share/locale usr/share/info
find usr/local/lib -depth -type d -name tests -not -path '*/mlflow/*' -exec rm -rf {} +
find . -xdev -name '*.pyc' -delete
rm -rf \"$2/bin\" \"$2/pyarrow/include\"";
    run(command("sh").args(["-ec", SCRIPT, "sh"]).arg(root).arg(SITE)).await.map(drop)
}

/// A read-only root cannot keep what Python compiles, so every start would compile again.
async fn compile(root: &Path) -> Result<(), Error> {
    let mut python = command("chroot");
    python.arg(root).args(["python3", "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]);
    python.args([&format!("/{SITE}"), &format!("/usr/lib/python{PYTHON}")]);
    // Some packages carry files for other Pythons, which do not compile; they are not imported either.
    run(&mut python)
        .await
        .map(drop)
        .or_else(|error| if matches!(error, Error::Command { .. }) { Ok(()) } else { Err(error) })
}

/// Packs `rootfs` as `image.tar`: one layer, its configuration, and a manifest that names both.
async fn pack(dir: &Path, reference: &str, config: serde_json::Value) -> Result<(), Error> {
    let mut tar = command("tar");
    tar.current_dir(dir).args([
        "--sort=name",
        "--mtime=@0",
        "--numeric-owner",
        "-C",
        "rootfs",
        "-cf",
        "layer.tar",
        ".",
    ]);
    run(&mut tar).await?;
    let sum = run(command("sha256sum").current_dir(dir).arg("layer.tar")).await?;
    let digest = sum.split_whitespace().next().unwrap_or_default();
    let architecture = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "amd64" };
    let description = json!({
        "architecture": architecture, "os": "linux", "created": "1970-01-01T00:00:00Z", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [reference], "Layers": ["layer.tar"]}]);
    state::write(&dir.join("config.json"), description.to_string())?;
    state::write(&dir.join("manifest.json"), manifest.to_string())?;
    let mut tar = command("tar");
    tar.current_dir(dir).args(["--remove-files", "-cf", "image.tar", "manifest.json", "config.json", "layer.tar"]);
    run(&mut tar).await.map(drop)
}
