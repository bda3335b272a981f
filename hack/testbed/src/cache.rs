//! What was built or fetched, kept for the next time. An entry is complete or absent: it is made aside and renamed.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::state;

/// Held while an entry is made, so that two testbeds do not make it twice.
pub(crate) async fn lock(name: &str) -> Result<File, Error> {
    let path = state::cache().join(format!("{name}.lock"));
    tokio::task::spawn_blocking(move || state::lock(&path))
        .await
        .map_err(|error| Error::machine(error.to_string(), "try again"))?
}

/// A short name for some content (FNV-1a, which stays the same from one compiler to the next): a changed pin never
/// finds the entry of the old one.
pub(crate) fn key(parts: &[&str]) -> String {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

/// Returns the directory of an entry, having it made by `make` in a directory aside when it is not there.
pub(crate) async fn entry<F, Fut>(name: &str, make: F) -> Result<PathBuf, Error>
where
    F: FnOnce(PathBuf) -> Fut,
    Fut: Future<Output = Result<(), Error>>,
{
    let path = state::cache().join(name);
    if path.is_dir() {
        return Ok(path);
    }
    let _lock = lock(name).await?;
    if path.is_dir() {
        return Ok(path);
    }
    let draft = state::cache().join(format!("{name}.draft"));
    clear(&draft)?;
    state::make_dir(&draft)?;
    make(draft.clone()).await?;
    std::fs::rename(&draft, &path).map_err(Error::file(&path))?;
    Ok(path)
}

/// Removes what a killed predecessor left.
fn clear(path: &Path) -> Result<(), Error> {
    if path.exists() { std::fs::remove_dir_all(path).map_err(Error::file(path)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_pin_has_another_key() {
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
        assert_ne!(key(&["a", "b"]), key(&["ab"]));
    }
}
