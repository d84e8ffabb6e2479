//! What the driver and its helper say to each other: one JSON text per line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything the helper has to know to start an instance; the first line on its input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The instance's id.
    pub(crate) id: String,
    /// Its host name.
    pub(crate) hostname: String,
    /// The image: `root` and `hide` below this directory.
    pub(crate) image: PathBuf,
    /// The instance's own disk.
    pub(crate) disk: PathBuf,
    /// The instance's directory for what lives while it runs.
    pub(crate) run: PathBuf,
    /// The guest binary.
    pub(crate) guest: PathBuf,
    /// The first user and group id of the machine that is the instance's; its `root`.
    pub(crate) id_base: u32,
    /// Its control group, from the root of the hierarchy.
    pub(crate) cgroup: String,
    /// The CPUs it may run on.
    pub(crate) cpus: String,
    /// Memory in bytes.
    pub(crate) memory_bytes: u64,
    /// How many processes and threads it may have.
    pub(crate) pids: i64,
}

/// What the driver answers when the network is there and the process is on record: the instance may begin. Anything else,
/// also the end of the driver, means that it must not.
pub(crate) const BEGIN: &str = "begin";

/// What the helper says, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The namespaces exist; this process keeps them, and the network may be connected to it.
    Namespaces {
        /// The process.
        pid: u32,
    },
    /// The instance is complete and waits to begin.
    Created {
        /// Its first process.
        pid: u32,
    },
    /// It runs.
    Begun,
    /// It did not work; nothing of it is left running.
    Failed {
        /// Why, for the operator.
        reason: String,
    },
}
