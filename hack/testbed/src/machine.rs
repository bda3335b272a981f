//! What this machine is and has: packages, kernel settings, and whether it can carry a real node.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::command::{command, on_path, run};
use crate::error::Error;
use crate::progress::Step;

/// Where the controller-manager provisions volumes; the path is fixed in Kubernetes.
pub(crate) const HOST_PATHS: &str = "/tmp/hostpath_pv";

/// What kubelet sets in the whole kernel.
const SETTINGS: [&str; 6] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];

/// What a real node needs: a file, and the Debian package that has it. A package is installed only when its file is
/// missing: the machine may have containerd from elsewhere, which the package would replace.
const NODE_NEEDS: [(&str, &str); 8] = [
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("iptables", "iptables"),
    ("nft", "nftables"),
    ("conntrack", "conntrack"),
    ("socat", "socat"),
    ("ip", "iproute2"),
];

/// Kernel settings as they are now.
pub(crate) fn settings() -> BTreeMap<String, String> {
    SETTINGS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::fs::read_to_string(setting(name)).ok()?.trim().to_owned())))
        .collect()
}

/// Puts kernel settings back.
pub(crate) fn restore(settings: &BTreeMap<String, String>) {
    for (name, value) in settings {
        // Best effort: a setting that cannot be written was not changed either.
        let _ = std::fs::write(setting(name), value);
    }
}

fn setting(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name)
}

/// How many bytes of memory are free for the asking.
pub(crate) fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Whether this process may do what a node needs.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Why this machine cannot carry a real node, if so.
pub(crate) async fn no_real_node() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("this is not Linux".to_owned());
    }
    if !is_root() {
        return Some("it needs root".to_owned());
    }
    let probe = "probe";
    let usable = crate::cgroup::make(probe);
    crate::cgroup::remove(probe);
    if !usable {
        return Some("control groups cannot be made".to_owned());
    }
    if let Err(error) = namespaces().await {
        return Some(format!("namespaces cannot be made: {error}"));
    }
    let missing: Vec<&str> =
        NODE_NEEDS.iter().filter(|(file, _)| !present(file)).map(|(_, package)| *package).collect();
    ensure_packages(&missing).await.err().map(|error| error.to_string())
}

/// Whether a program is there, also where a user's PATH may not look; or a file.
fn present(file: &str) -> bool {
    PathBuf::from(file).is_absolute() && PathBuf::from(file).exists()
        || on_path(file).is_some()
        || ["/usr/sbin", "/sbin"].iter().any(|dir| PathBuf::from(dir).join(file).exists())
}

/// Tries the namespaces a node lives in.
async fn namespaces() -> Result<String, Error> {
    run(command("unshare").args([
        "--mount",
        "--net",
        "--pid",
        "--ipc",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "true",
    ]))
    .await
}

/// Installs the Debian packages that are missing.
///
/// # Errors
/// When this is not a Debian, not root, or apt fails.
pub async fn ensure_packages(packages: &[&str]) -> Result<(), Error> {
    let mut missing = Vec::new();
    for package in packages {
        if !installed(package).await {
            missing.push(*package);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if on_path("apt-get").is_none() || !is_root() {
        return Err(Error::machine(format!("missing: {list}"), "install them, or run as root on Debian or Ubuntu"));
    }
    // One apt at a time; the lock of apt itself fails at once instead of waiting.
    let _lock = crate::cache::lock("apt").await?;
    let step = Step::begin(format!("installing Debian packages: {list}"));
    step.watch(install(&missing)).await
}

/// A `python3` that has pip; installed when the machine has none.
pub(crate) async fn pip() -> Result<tokio::process::Command, Error> {
    if run(command("python3").args(["-m", "pip", "--version"])).await.is_err() {
        ensure_packages(&["python3", "python3-pip"]).await?;
    }
    let mut pip = command("python3");
    pip.args(["-m", "pip"]);
    Ok(pip)
}

/// Installs with the lists that are there; fetches new lists only when that does not work.
async fn install(packages: &[&str]) -> Result<(), Error> {
    // Never at the price of a package the machine has.
    const INSTALL: [&str; 4] = ["install", "--yes", "--no-install-recommends", "--no-remove"];
    if apt(&INSTALL, packages).await.is_ok() {
        return Ok(());
    }
    apt(&["update"], &[]).await?;
    apt(&INSTALL, packages).await
}

async fn apt(arguments: &[&str], packages: &[&str]) -> Result<(), Error> {
    let mut apt = command("apt-get");
    // Services would be started by their packages; the testbed runs its own.
    apt.args(arguments).args(packages).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    run(&mut apt).await.map(drop)
}

async fn installed(package: &str) -> bool {
    let mut query = command("dpkg-query");
    run(query.args(["--show", "--showformat=${db:Status-Status}", package]))
        .await
        .is_ok_and(|status| status == "installed")
}

/// The Debian mirror this machine uses, as apt knows it. The machine may have other sources too.
pub(crate) async fn debian_mirror() -> Option<String> {
    let mut apt = command("apt-get");
    apt.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Label: Debian"]);
    if let Some(mirror) = run(&mut apt).await.ok().and_then(|uris| uris.lines().next().map(str::to_owned)) {
        return Some(mirror);
    }
    // The lists were never fetched: what the files say.
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    files
        .extend(std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path()));
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).find_map(|text| mirror(&text))
}

/// The first address in `URIs:` or in a `deb` line that looks like Debian's own archive.
fn mirror(sources: &str) -> Option<String> {
    sources
        .lines()
        .filter(|line| line.starts_with("URIs:") || line.starts_with("deb "))
        .flat_map(str::split_whitespace)
        .find(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian"))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_read_from_both_formats() {
        let new = "Types: deb\n# http://old/debian\nURIs: http://mirror.example/debian\nSuites: bookworm\n";
        let old = "deb [signed-by=/x] http://security.example/ x\ndeb http://mirror.example/debian bookworm main\n";
        assert_eq!(mirror(new).as_deref(), Some("http://mirror.example/debian"));
        assert_eq!(mirror(old).as_deref(), Some("http://mirror.example/debian"));
        assert_eq!(mirror("# nothing\n"), None);
    }
}
