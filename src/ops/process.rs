//! SHELL: what the kernel says of this process (`/proc`, so Linux only).

use std::fs;

/// Clock ticks a second in `/proc`, the same on every Linux that Rust runs on.
const TICKS: f64 = 100.0;

/// This process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// CPU time, of the kernel on its behalf included.
    pub cpu_seconds: f64,
    /// Memory in use.
    pub resident_bytes: u64,
    /// Open files and connections.
    pub open_files: u64,
    /// When it began, seconds since the epoch.
    pub start_seconds: f64,
}

/// Reads it; `None` where there is no such `/proc`.
#[must_use]
pub fn read() -> Option<Process> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the program's name, which may hold anything: state is field 3, utime 14, stime 15, starttime 22 (proc(5)).
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(Process {
        cpu_seconds: (ticks(14)? + ticks(15)?) / TICKS,
        resident_bytes: resident.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024,
        open_files: fs::read_dir("/proc/self/fd").ok()?.count() as u64,
        start_seconds: boot + ticks(22)? / TICKS,
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_has_memory_files_and_a_past() {
        let process = super::read().unwrap();
        assert!(
            process.resident_bytes > 1 << 20 && process.open_files >= 3 && process.start_seconds > 1e9,
            "{process:?}"
        );
    }
}
