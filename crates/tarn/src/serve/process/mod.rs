//! The process itself: its memory is private, and it ends when it is asked to. Its descriptors, its log, its memory and
//! what it tells systemd have files of their own.

pub(in crate::serve) mod descriptors;
pub(in crate::serve) mod logging;
pub(in crate::serve) mod memory;
pub(in crate::serve) mod notify;

use std::time::Duration;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};
use tokio::runtime::Builder;

use crate::failure::{Failure, Result};

/// How long after a signal the program ends at the latest.
pub(in crate::serve) const LAST_MOMENT: Duration = Duration::from_secs(9);

/// How long the log has for the reason.
const LOG_TIME: Duration = Duration::from_millis(100);

/// Keeps API keys and the master key, which are in the memory of the engine, out of core dumps and from other processes
/// of the same user. What the engine starts is not affected: executing a program resets the first, and only the
/// soft limit is changed.
pub(in crate::serve) fn keep_memory_private() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "cannot keep other processes from reading the memory of the engine");
    }
    let maximum = getrlimit(Resource::Core).maximum;
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum }) {
        tracing::warn!(%error, "cannot switch off core dumps");
    }
}

/// Ends the program this time after the signal, whatever its tasks do.
pub(in crate::serve) fn end_after_signal(last_moment: Duration) -> Result<()> {
    after_signal(move || {
        wait(last_moment);
        // On a thread of its own, because a reader of the log that has stopped reading could block it.
        std::thread::spawn(|| tracing::error!("the engine did not stop in time; the program ends"));
        wait(LOG_TIME);
        std::process::exit(1);
    })
}

/// Calls `act` after a signal. A thread with a runtime of its own waits for the signal, because tasks that block could
/// keep the runtime of the engine from noticing it. The signals are caught when this returns.
fn after_signal(act: impl FnOnce() + Send + 'static) -> Result<()> {
    let failed = |e| Failure::with_cause("cannot catch signals", e);
    let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
    let signalled = {
        let _entered = runtime.enter();
        super::stop_signals()?
    };
    std::thread::spawn(move || {
        runtime.block_on(signalled);
        act();
    });
    Ok(())
}

#[allow(clippy::disallowed_methods, reason = "no task and no test waits for this thread")]
fn wait(duration: Duration) {
    std::thread::sleep(duration);
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    use rustix::process::{Pid, Signal, getpid, kill_process};

    use super::*;

    /// Other processes of the same user cannot read the memory of the engine, and it leaves no core file.
    #[test]
    fn memory_is_private() {
        keep_memory_private();
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        assert_eq!(getrlimit(Resource::Core).current, Some(0));
    }

    /// The signal is noticed although the only thread of the runtime is blocked.
    #[tokio::test]
    async fn signal_is_noticed_while_runtime_is_blocked() {
        let (noticed, notices) = mpsc::channel();
        after_signal(move || noticed.send(()).unwrap()).unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        notices.recv_timeout(Duration::from_secs(20)).expect("the thread notices the signal");
    }

    /// What the child process prints when it may be asked to end.
    const PREPARED: &str = "prepared";

    /// A program whose tasks do not end is ended, with a status that says that it failed.
    #[test]
    fn stuck_program_ends_after_signal() {
        let program = std::env::current_exe().unwrap();
        let name = format!("{}::stuck_program", module_path!().split_once("::").unwrap().1);
        let arguments = [&name, "--exact", "--ignored", "--nocapture"];
        let mut child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        assert!(lines.any(|line| line.ends_with(PREPARED)), "the child did not start");
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1));
    }

    #[tokio::test]
    #[ignore = "it does not end by itself: another test runs it in a process of its own"]
    async fn stuck_program() {
        end_after_signal(Duration::ZERO).unwrap();
        println!("{PREPARED}");
        // The only thread of the runtime is blocked, as by a task that computes for ever.
        loop {
            std::thread::park();
        }
    }
}
