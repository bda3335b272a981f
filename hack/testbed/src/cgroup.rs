//! The control groups of a node's pods: one subtree in every hierarchy, named after the testbed.

use std::path::{Path, PathBuf};

const MOUNT: &str = "/sys/fs/cgroup";

/// The path of the subtree, as kubelet's `cgroupRoot` wants it.
pub(crate) fn root(name: &str) -> String {
    format!("/aiscope-testbed-{name}")
}

/// Makes the subtree in every hierarchy; false when the machine does not let us.
pub(crate) fn make(name: &str) -> bool {
    let hierarchies = hierarchies();
    !hierarchies.is_empty()
        && hierarchies.iter().all(|hierarchy| {
            let dir = hierarchy.join(&root(name)[1..]);
            std::fs::create_dir_all(&dir).is_ok() && inherit_cpuset(hierarchy, &dir)
        })
}

/// A v1 cpuset is empty when made, and nothing can run in an empty one.
fn inherit_cpuset(parent: &Path, dir: &Path) -> bool {
    ["cpuset.cpus", "cpuset.mems"].iter().all(|file| {
        let own = dir.join(file);
        // v2 has a file that may stay empty; it shows what is inherited in `.effective`.
        if !own.exists() || dir.join(format!("{file}.effective")).exists() {
            return true;
        }
        std::fs::read(parent.join(file)).is_ok_and(|value| std::fs::write(own, value).is_ok())
    })
}

/// Removes the subtree everywhere; its processes are gone.
pub(crate) fn remove(name: &str) {
    for hierarchy in hierarchies() {
        remove_tree(&hierarchy.join(&root(name)[1..]));
    }
}

/// The files in a control group cannot be removed; directories can, from the leaves up.
fn remove_tree(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(dir);
}

/// The mounted hierarchies: one with v2, one per controller with v1.
fn hierarchies() -> Vec<PathBuf> {
    mounted(&std::fs::read_to_string("/proc/self/mounts").unwrap_or_default())
}

fn mounted(mounts: &str) -> Vec<PathBuf> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (target, kind) = (fields.nth(1)?, fields.next()?);
            (target.starts_with(MOUNT) && kind.starts_with("cgroup")).then(|| PathBuf::from(target))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_control_groups_are_found() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\nproc /proc proc rw 0 0\n";
        assert_eq!(mounted(mounts), [Path::new("/sys/fs/cgroup/cpu"), Path::new("/sys/fs/cgroup/unified")]);
    }
}
