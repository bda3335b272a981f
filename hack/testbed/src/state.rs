//! What lies on disk while a testbed runs: one directory each, and in it who runs it.
//!
//! The directory is made under a lock, so two testbeds never take the same name or slot, and whatever a killed
//! supervisor left is swept by the next command.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Node;
use crate::cgroup;
use crate::error::Error;
use crate::process::Process;

/// How many testbeds may run side by side.
pub(crate) const SLOTS: u8 = 64;

/// What is known about a testbed from outside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub name: String,
    /// Distinguishes its ports and addresses from those of the others.
    pub slot: u8,
    pub node: Node,
    /// Who tears it down: first the process that makes it, then its supervisor.
    pub keeper: Process,
    /// False until everything is up.
    pub ready: bool,
    /// Kernel settings as they were before the node's kubelet set its own.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// Where testbeds live: `$TESTBED_STATE`, or in the user's state directory.
pub(crate) fn root() -> PathBuf {
    dir_from("TESTBED_STATE", "XDG_STATE_HOME", ".local/state")
}

/// Where what was built or fetched is kept: `$TESTBED_CACHE`, or in the user's cache directory.
pub(crate) fn cache() -> PathBuf {
    dir_from("TESTBED_CACHE", "XDG_CACHE_HOME", ".cache")
}

fn dir_from(own: &str, xdg: &str, home: &str) -> PathBuf {
    if let Some(dir) = std::env::var_os(own) {
        return dir.into();
    }
    let base = std::env::var_os(xdg).map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/tmp".into())).join(home),
        PathBuf::from,
    );
    base.join("aiscope-testbed")
}

/// Makes a directory and those above it.
pub(crate) fn make_dir(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(Error::file(path))
}

/// Writes a file in one step: whoever reads it sees the old or the new one.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Error> {
    let draft = path.with_extension("new");
    std::fs::write(&draft, content).map_err(Error::file(&draft))?;
    std::fs::rename(&draft, path).map_err(Error::file(path))
}

/// Waits for and takes a lock that the kernel releases with the process.
pub(crate) fn lock(path: &Path) -> Result<File, Error> {
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    let file = File::options().create(true).append(true).open(path).map_err(Error::file(path))?;
    file.lock().map_err(Error::file(path))?;
    Ok(file)
}

/// The directory of a testbed.
pub(crate) fn dir(name: &str) -> PathBuf {
    root().join(name)
}

impl Record {
    /// Reads the record of a testbed's directory.
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(dir.join("state.json")).ok()?).ok()
    }

    /// Writes it.
    pub(crate) fn write(&self) -> Result<(), Error> {
        let json = serde_json::to_vec_pretty(self).map_err(Error::format("state.json"))?;
        write(&dir(&self.name).join("state.json"), json)
    }
}

/// Every testbed, running or left behind, by name.
pub(crate) fn all() -> Vec<Record> {
    let Ok(entries) = std::fs::read_dir(root()) else { return Vec::new() };
    let mut records: Vec<Record> = entries.flatten().filter_map(|entry| Record::read(&entry.path())).collect();
    records.sort_by(|a, b| a.name.cmp(&b.name));
    records
}

/// A running testbed by name.
pub(crate) fn running(name: &str) -> Option<Record> {
    Record::read(&dir(name)).filter(|record| record.keeper.alive())
}

/// Takes a name and a free slot, after sweeping what dead supervisors left.
pub(crate) fn claim(name: &str, node: Node) -> Result<Record, Error> {
    if name.is_empty()
        || name.len() > 40
        || !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    {
        return Err(Error::machine(format!("`{name}` is no name for a testbed"), "use a-z, 0-9 and -, at most 40"));
    }
    let _lock = lock(&root().join("lock"))?;
    sweep();
    if running(name).is_some() {
        return Err(Error::Exists(name.to_owned()));
    }
    let taken: Vec<u8> = all().iter().map(|record| record.slot).collect();
    let slot = free_slot(&taken)
        .ok_or_else(|| Error::machine(format!("all {SLOTS} testbeds are taken"), "end some: `cargo testbed status`"))?;
    let keeper = Process::current().ok_or_else(|| Error::machine("/proc cannot be read", "mount it"))?;
    let record = Record { name: name.to_owned(), slot, node, keeper, ready: false, settings: BTreeMap::new() };
    make_dir(&dir(name))?;
    record.write()?;
    Ok(record)
}

/// The lowest number nobody has.
fn free_slot(taken: &[u8]) -> Option<u8> {
    (0..SLOTS).find(|slot| !taken.contains(slot))
}

/// Removes what testbeds left whose supervisor was killed; their processes died with it. Needs the lock.
pub(crate) fn sweep() {
    for record in all() {
        if !record.keeper.alive() {
            crate::progress::say(&format!("sweeping testbed `{}`, whose supervisor was killed", record.name));
            remove(&record);
        }
    }
}

/// Removes what a testbed has besides processes: control groups, kernel settings, its directory.
pub(crate) fn remove(record: &Record) {
    cgroup::remove(&record.name);
    let others = all().iter().any(|other| other.name != record.name && other.keeper.alive());
    if !others {
        crate::machine::restore(&record.settings);
        // Only the mount point; what lay in it was under the testbed's own directory. It fails when somebody else uses it.
        let _ = std::fs::remove_dir(crate::machine::HOST_PATHS);
    }
    let dir = dir(&record.name);
    // A container's last file may appear while the tree is being removed.
    for _ in 0..3 {
        if std::fs::remove_dir_all(&dir).is_ok() || !dir.exists() {
            return;
        }
    }
    crate::progress::say(&format!("could not remove {}; remove it by hand", dir.display()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_slot_is_taken() {
        assert_eq!(free_slot(&[]), Some(0));
        assert_eq!(free_slot(&[0, 1, 3]), Some(2));
        assert_eq!(free_slot(&(0..SLOTS).collect::<Vec<_>>()), None);
    }

    #[test]
    fn a_name_that_could_leave_the_directory_is_refused() {
        assert!(matches!(claim("../x", Node::None), Err(Error::Machine { .. })));
    }
}
