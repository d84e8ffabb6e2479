//! What the first process of an instance does: take over descriptors from the driver, prepare the instance before the
//! first login, and end all other processes when it stops.

mod first_start;
mod image_sudo;
mod inherited_descriptors;

use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep};

pub use first_start::{install_sudo, prepare_instance};
pub use image_sudo::install_sudo_in_image;
pub use inherited_descriptors::{keep_exit_marker, take_control_socket, write_exit_marker};

/// How long programs may take to end.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How often to check whether they have.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Ends every process but this one: with TERM first, then with KILL. Only for the first process of an instance; reaping
/// continues concurrently.
pub async fn end_all_processes() {
    signal_all_processes(Signal::TERM);
    hang_up_shells();
    signal_all_processes(Signal::CONT);
    if !wait_until_alone(STOP_GRACE).await {
        signal_all_processes(Signal::KILL);
        wait_until_alone(STOP_GRACE).await;
    }
}

/// With process group 1, the kernel signals every process that the caller may signal, except the caller.
fn signal_all_processes(signal: Signal) {
    let _ = rustix::process::kill_process_group(Pid::INIT, signal);
}

async fn wait_until_alone(time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while rustix::process::test_kill_process_group(Pid::INIT).is_ok() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(POLL_INTERVAL).await;
    }
    true
}

/// Interactive shells ignore TERM and would always use up the grace period; they end on HUP. Programs that handle TERM
/// do not get it.
fn hang_up_shells() {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|pid| *pid != Pid::INIT) else { continue };
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if ignores_signal(&status, Signal::TERM) {
            let _ = rustix::process::kill_process(pid, Signal::HUP);
        }
    }
}

/// Returns whether a process ignores a signal, by the text of its status.
fn ignores_signal(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ignored signals are read from the status.
    #[test]
    fn ignored_signals_are_parsed() {
        let status = "Name:\tbash\nSigBlk:\t0000000000004000\nSigIgn:\t0000000000384004\n";
        assert!(ignores_signal(status, Signal::TERM));
        assert!(!ignores_signal(status, Signal::HUP));
        assert!(!ignores_signal("", Signal::TERM));
    }
}
