//! Provisioned volumes that any user may write to.
//!
//! Kubernetes makes their directories for root alone and gives a host path to no group, so a pod that does not run as
//! root could not use its volume, as it could any real one.

use std::mem::MaybeUninit;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::error::Error;

/// Opens every volume as it appears, until the supervisor ends.
pub(crate) fn open_as_they_appear(dir: PathBuf) -> Result<(), Error> {
    let events = inotify::init(CreateFlags::CLOEXEC).map_err(|error| Error::file(&dir)(error.into()))?;
    inotify::add_watch(&events, &dir, WatchFlags::CREATE).map_err(|error| Error::file(&dir)(error.into()))?;
    std::thread::spawn(move || {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(events, &mut buffer);
        while let Ok(event) = events.next() {
            if let Some(name) = event.file_name().and_then(|name| name.to_str().ok()) {
                // It may be gone again.
                let _ = std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(0o777));
            }
        }
    });
    Ok(())
}
