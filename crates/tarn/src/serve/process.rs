//! The process itself: its memory is private, and it ends when it is asked to.

use std::future::Future;
use std::time::Duration;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// How long after a signal the program ends at the latest.
pub(super) const LAST_MOMENT: Duration = Duration::from_secs(9);

/// Keeps API keys and the master key, which are in the memory of the engine, out of core dumps and from other processes
/// of the same user. What the engine starts is not affected: executing a program resets the first, and only the
/// soft limit is changed.
pub(super) fn keep_memory_private() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "cannot keep other processes from reading the memory of the engine");
    }
    let maximum = getrlimit(Resource::Core).maximum;
    if let Err(error) = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum }) {
        tracing::warn!(%error, "cannot switch off core dumps");
    }
}

/// Ends the program some time after the signal, whatever its tasks do. A thread of its own waits, because a task that
/// blocks could keep a timer of the runtime from firing.
pub(super) async fn end_after(signalled: impl Future<Output = ()>) {
    signalled.await;
    std::thread::spawn(|| {
        wait(LAST_MOMENT);
        tracing::error!("the engine did not stop in time; the program ends");
        std::process::exit(1);
    });
}

#[allow(clippy::disallowed_methods, reason = "no task and no test waits for this thread")]
fn wait(duration: Duration) {
    std::thread::sleep(duration);
}
