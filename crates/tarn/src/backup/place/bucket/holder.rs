//! Which process has the lock of a bucket.

use std::fs;

use serde::{Deserialize, Serialize};
use tarn_base::plain;
use tarn_model::Ids as _;

use crate::environment::RandomIds;
use crate::failure::Failure;

/// What the object has: the process, and how often it has renewed the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Holder {
    /// Different for each use of a place.
    pub(super) id: String,
    /// The start of the kernel, the namespace of processes, the process in it and when it was started.
    boot: String,
    namespace: String,
    process: u32,
    started: String,
    /// The name of the host, for people.
    host: String,
    renewals: u64,
}

impl Holder {
    /// This process.
    pub(super) fn this() -> Holder {
        let process = std::process::id();
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Holder {
            id: format!("{:016x}{:016x}", RandomIds.bits(), RandomIds.bits()),
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned(),
            namespace: namespace.to_string_lossy().into_owned(),
            process,
            started: start_of(process).unwrap_or_default(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            renewals: 0,
        }
    }

    /// Whether the process runs; `None` if that cannot be seen from here.
    pub(super) fn is_running(&self, this: &Holder) -> Option<bool> {
        let is_visible = !self.boot.is_empty() && self.boot == this.boot && self.namespace == this.namespace;
        is_visible.then(|| start_of(self.process).is_some_and(|started| started == self.started))
    }

    /// A process that left something that is not understood.
    pub(super) fn unknown() -> Holder {
        Holder { host: "an unknown host".to_owned(), boot: String::new(), process: 0, ..Holder::this() }
    }

    /// The same process, after it has renewed the lock once more.
    pub(super) fn renewed(&self) -> Holder {
        Holder { renewals: self.renewals + 1, ..self.clone() }
    }

    /// A process of this host that has ended.
    #[cfg(test)]
    pub(super) fn of_dead_process() -> Holder {
        Holder { started: "1".to_owned(), ..Holder::this() }
    }

    /// A process of another host.
    #[cfg(test)]
    pub(super) fn of_host(boot: &str) -> Holder {
        Holder { boot: boot.to_owned(), ..Holder::this() }
    }

    /// The process, for people.
    pub(super) fn shown(&self) -> String {
        format!("process {} on {}", self.process, plain(&self.host, 100))
    }

    /// The failure because the process uses the place.
    pub(super) fn busy(&self) -> Failure {
        Failure(format!("another process uses the backups: {}; try again later", self.shown()))
    }
}

/// When a process was started; `None` if there is none.
fn start_of(process: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in parentheses, may have spaces.
    text.rsplit_once(") ")?.1.split(' ').nth(19).map(str::to_owned)
}
