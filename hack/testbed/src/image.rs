//! Container images without a container engine and without a registry: a root directory, packed as a docker archive.

mod node_js;
mod python;

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::command::{command, run};
use crate::error::Error;
use crate::node_config::PAUSE;
use crate::{cache, state};

/// An image the testbed can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[non_exhaustive]
pub enum Image {
    /// What holds a pod's namespaces. Loaded at start.
    Pause,
    /// `mlflow:3.17.2`: MLflow with boto3 and psycopg2 on Debian. Runs as any user, on a read-only root.
    Mlflow,
    /// `jupyterlab:4.6.6` on Debian, with its kernel and a terminal.
    Jupyter,
    /// `code-server:4.139.1` on Debian, with what it needs to edit and for its terminal; without its assistants.
    CodeServer,
    /// `web:testbed`, of 9 MB: tells how a request arrived and echoes web sockets. It stands in for any program that
    /// serves: called as `mlflow`, `jupyter` or `code-server` it listens where that would.
    Web,
}

/// Counts changes to the recipes that none of the pins shows.
const RECIPE: &str = "1";

const WEB: &str = "docker.io/library/web:testbed";

const PAUSE_SOURCES: [(&str, &str); 2] =
    [("go.mod", include_str!("../go/pause/go.mod")), ("main.go", include_str!("../go/pause/main.go"))];
const WEB_SOURCES: [(&str, &str); 2] =
    [("go.mod", include_str!("../go/web/go.mod")), ("main.go", include_str!("../go/web/main.go"))];

impl Image {
    /// What a pod writes in `image`.
    #[must_use]
    pub fn reference(self) -> &'static str {
        match self {
            Self::Pause => PAUSE,
            Self::Mlflow => python::MLFLOW.reference,
            Self::Jupyter => python::JUPYTER.reference,
            Self::CodeServer => node_js::CODE_SERVER,
            Self::Web => WEB,
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
            Self::Mlflow => python::entry(&python::MLFLOW).await,
            Self::Jupyter => python::entry(&python::JUPYTER).await,
            Self::CodeServer => node_js::entry().await,
            Self::Web => {
                let key = cache::key(&[WEB_SOURCES[0].1, WEB_SOURCES[1].1, RECIPE]);
                cache::entry(&format!("image-web-{key}"), web).await
            }
        }
    }
}

async fn pause(dir: PathBuf) -> Result<(), Error> {
    go(&dir, &PAUSE_SOURCES, "pause").await?;
    pack(&dir, PAUSE, json!({"Entrypoint": ["/pause"], "User": "65535:65535"})).await
}

async fn web(dir: PathBuf) -> Result<(), Error> {
    go(&dir, &WEB_SOURCES, "bin/web").await?;
    for name in ["mlflow", "jupyter", "code-server"] {
        let link = dir.join("rootfs/bin").join(name);
        std::os::unix::fs::symlink("web", &link).map_err(Error::file(&link))?;
    }
    pack(&dir, WEB, json!({"Env": ["PATH=/bin"], "Entrypoint": ["web"]})).await
}

/// Builds a static program into the root directory.
async fn go(dir: &Path, sources: &[(&str, &str)], program: &str) -> Result<(), Error> {
    let file = dir.join("rootfs").join(program);
    state::make_dir(file.parent().unwrap_or(dir))?;
    for (name, content) in sources {
        state::write(&dir.join(name), content)?;
    }
    let mut go = command("go");
    go.current_dir(dir).env("CGO_ENABLED", "0").env("GOWORK", "off").env("GOFLAGS", "");
    go.args(["build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"]).arg(file).arg(".");
    run(&mut go).await.map(drop)
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
