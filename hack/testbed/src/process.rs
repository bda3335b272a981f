//! Telling a live process from a dead one whose number was given away again.

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// A process, named so that no other can be taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pid: i32,
    /// In clock ticks since boot, from `/proc/PID/stat`.
    started: u64,
}

impl Process {
    /// This process.
    pub(crate) fn current() -> Option<Self> {
        Self::find(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// The process that has this number now.
    pub(crate) fn find(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, started) = state_and_start(&stat)?;
        // A zombie has ended; only its parent has not asked yet.
        (state != 'Z').then_some(Self { pid, started })
    }

    /// Its number.
    pub(crate) fn pid(self) -> i32 {
        self.pid
    }

    /// Whether it still runs.
    pub(crate) fn alive(self) -> bool {
        Self::find(self.pid) == Some(self)
    }

    /// Sends it a signal, unless it has ended.
    pub(crate) fn signal(self, signal: Signal) {
        if let (true, Some(pid)) = (self.alive(), Pid::from_raw(self.pid)) {
            // It may end between the two lines; then there is nothing left to signal.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Waits until it has ended; false when it still runs after `limit`.
    pub(crate) async fn ended(self, limit: std::time::Duration) -> bool {
        let deadline = tokio::time::Instant::now() + limit;
        while self.alive() {
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        true
    }
}

/// Fields 3 and 22 of `/proc/PID/stat`; the name in field 2 may itself hold spaces and parentheses.
fn state_and_start(stat: &str) -> Option<(char, u64)> {
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    let state = rest.next()?.chars().next()?;
    Some((state, rest.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_read_behind_a_hostile_name() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 1";
        assert_eq!(state_and_start(stat), Some(('S', 987_654)));
    }

    #[test]
    fn this_process_is_alive_and_one_with_another_start_is_not() {
        let me = Process::current().unwrap();
        assert!(me.alive());
        assert!(!Process { started: me.started + 1, ..me }.alive());
    }
}
