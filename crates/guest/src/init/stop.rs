//! The end of an instance.

use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep};

/// How long programs have to end in order.
const GRACE: Duration = Duration::from_secs(5);

/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(10);

/// Ends every process but this one: asks first, then kills. Only for the first process of an instance; collecting the ended
/// goes on beside.
pub async fn end_all_processes() {
    signal_all(Signal::TERM);
    hang_up_shells();
    signal_all(Signal::CONT);
    if !all_gone_within(GRACE).await {
        signal_all(Signal::KILL);
        all_gone_within(GRACE).await;
    }
}

/// The kernel takes the process group 1 of this call for everybody that the caller may signal but himself.
fn signal_all(signal: Signal) {
    let _ = rustix::process::kill_process_group(Pid::INIT, signal);
}

async fn all_gone_within(time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while rustix::process::test_kill_process_group(Pid::INIT).is_ok() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(LOOK).await;
    }
    true
}

/// Interactive shells ignore the polite signal and would cost everybody the whole grace; they end when their line is dead.
/// Programs that handle the polite signal are left alone with it.
fn hang_up_shells() {
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|pid| *pid != Pid::INIT) else { continue };
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if ignores(&status, Signal::TERM) {
            let _ = rustix::process::kill_process(pid, Signal::HUP);
        }
    }
}

/// Whether a process ignores a signal, by the text of its status.
fn ignores(status: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal.as_raw() - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "Name:\tbash\nSigBlk:\t0000000000004000\nSigIgn:\t0000000000384004\n";
        assert!(ignores(status, Signal::TERM));
        assert!(!ignores(status, Signal::HUP));
        assert!(!ignores("", Signal::TERM));
    }
}
