//! Python programs on Debian.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::{RECIPE, pack};
use crate::command::{command, run};
use crate::error::Error;
use crate::progress::{Step, say};
use crate::{cache, machine, state};

/// An image of wheels.
pub(super) struct Recipe {
    /// What a pod writes in `image`.
    pub reference: &'static str,
    name: &'static str,
    wheels: &'static [&'static str],
    /// A program on `PATH`: the script pip makes names the interpreter of the machine that ran pip.
    launcher: &'static str,
    command: &'static [&'static str],
}

pub(super) const MLFLOW: Recipe = Recipe {
    reference: "docker.io/library/mlflow:3.17.2",
    name: "mlflow",
    wheels: &["mlflow==3.17.2", "boto3", "psycopg2-binary"],
    launcher: "#!/usr/bin/python3\nimport sys\nfrom mlflow.cli import cli\nsys.exit(cli())\n",
    command: &["mlflow", "server", "--host", "0.0.0.0", "--port", "5000"],
};

pub(super) const JUPYTER: Recipe = Recipe {
    reference: "docker.io/library/jupyterlab:4.6.6",
    name: "jupyter",
    wheels: &["jupyterlab==4.6.6"],
    // `jupyter lab` would start the script `jupyter-lab`, which pip puts where the image does not look.
    launcher: "#!/usr/bin/python3\nimport sys\nfrom jupyterlab.labapp import main\nsys.exit(main(sys.argv[2:]))\n",
    command: &["jupyter", "lab"],
};

const DEBIAN: &str = "bookworm";
/// The Python of that Debian.
const PYTHON: &str = "3.11";
const PACKAGES: &str = "python3,python3-distutils,ca-certificates,libgomp1";

/// Where the wheels go: Debian's Python looks there by itself.
const SITE: &str = "usr/local/lib/python3.11/dist-packages";

/// The cache entry: `image.tar`, and the unpacked `rootfs`.
pub(super) async fn entry(recipe: &Recipe) -> Result<PathBuf, Error> {
    let key = cache::key(&[&recipe.wheels.join(" "), DEBIAN, PYTHON, PACKAGES, recipe.launcher, RECIPE]);
    cache::entry(&format!("image-{}-{key}", recipe.name), async |dir| make(recipe, dir).await).await
}

async fn make(recipe: &Recipe, dir: PathBuf) -> Result<(), Error> {
    say(&format!("making the {} image from Debian and PyPI packages (once; kept in the cache)", recipe.name));
    let root = dir.join("rootfs");
    base(&root).await?;
    Step::begin("  Python packages").watch(wheels(&root, recipe.wheels)).await?;
    prune(&root).await?;
    let launcher = root.join("usr/local/bin").join(recipe.name);
    state::write(&launcher, recipe.launcher)?;
    run(command("chmod").arg("755").arg(&launcher)).await?;
    Step::begin("  compiling Python").watch(compile(&root)).await?;
    let config = json!({
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "LANG=C.UTF-8",
                "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"],
        "Cmd": recipe.command,
        "WorkingDir": "/tmp",
    });
    Step::begin("  packing").watch(pack(&dir, recipe.reference, config)).await
}

/// Copies the Debian that all images begin with; it is made once.
pub(super) async fn base(root: &Path) -> Result<(), Error> {
    let key = cache::key(&[DEBIAN, PACKAGES, RECIPE]);
    let name = format!("image-debian-{key}");
    let debian = cache::entry(&name, async |dir| {
        machine::ensure_packages(&["debootstrap"]).await?;
        let root = dir.join("rootfs");
        Step::begin("  Debian").watch(debian(&root)).await?;
        prune(&root).await
    });
    let debian = debian.await?.join("rootfs");
    run(command("cp").args(["-a", "--reflink=auto"]).args([&debian, root])).await.map(drop)
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
async fn wheels(root: &Path, names: &[&str]) -> Result<(), Error> {
    let mut pip = machine::pip().await?;
    pip.args(["install", "--quiet", "--no-compile", "--no-cache-dir", "--root-user-action=ignore"]);
    pip.args(["--python-version", PYTHON, "--implementation", "cp", "--only-binary=:all:"]);
    for glibc in ["manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28", "manylinux_2_34"] {
        pip.args(["--platform", &format!("{glibc}_{}", std::env::consts::ARCH)]);
    }
    pip.arg("--target").arg(root.join(SITE)).args(names);
    run(&mut pip).await.map(drop)
}

/// What neither a program nor a look at a failure needs; a third of MLflow's size.
async fn prune(root: &Path) -> Result<(), Error> {
    const SCRIPT: &str = "cd \"$1\"
rm -rf var/cache/apt/* var/lib/apt/lists/* var/log/* usr/share/doc usr/share/man usr/share/locale usr/share/info
find usr/local/lib -depth -type d -name tests -not -path '*/mlflow/*' -exec rm -rf {} +
find . -xdev -name '*.pyc' -delete
# Static files of JupyterLab and its kernel's description are looked for below the interpreter's own prefix.
for dir in share etc; do [ ! -d \"$2/$dir\" ] || cp -a \"$2/$dir\" usr/; done
rm -rf \"$2/bin\" \"$2/share\" \"$2/etc\" \"$2/pyarrow/include\"";
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
