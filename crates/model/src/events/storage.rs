//! The events of volumes. What ends an attachment is an event of the cluster.

use serde::{Deserialize, Serialize};

use crate::ids::{ClusterId, InstanceId, RequestId};

verbs! {
    /// What happens to a volume.
    VolumeEvent {
        /// A user created it.
        "storage.create" Created { name: String, size_gb: u64 }
        /// Its creation on the host has begun.
        "storage.creating" Creating { state: String }
        /// It was observed to exist.
        "storage.ready" Ready { state: String }
        /// A user changed it. It may have to grow.
        "storage.edit" Edited { name: String, deletion_protection: bool, grows_to_gb: Option<u64> }
        /// A change of its size has ended; it was observed to have this size.
        "storage.resized" Resized { size_gb: u64 }
        /// A user began to attach it to a cluster.
        "storage.attach" AttachBegun { cluster: ClusterId, live: bool }
        /// A user began to detach it from a cluster.
        "storage.detach" DetachBegun { cluster: ClusterId, live: bool }
        /// Processes that did not release it in time were killed; of many, only the first are listed.
        "storage.processes_killed" ProcessesKilled {
            node: String,
            instance: InstanceId,
            request: RequestId,
            processes: Vec<KilledProcess>,
            count: u64,
        }
        /// It failed: it could not be created or removed, or was observed to be missing or damaged for this reason.
        "storage.failed" Failed {
            #[serde(default, skip_serializing_if = "Option::is_none")]
            state: Option<String>,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reason: Option<String>,
        }
        /// It was observed to be intact again.
        "storage.recovered" Recovered { size_gb: u64 }
        /// A user began to destroy it.
        "storage.destroy" DestroyBegun { name: String }
        /// It was observed to be gone.
        "storage.destroyed" Destroyed { state: String }
        /// It exists on the host and has no row; it is left alone.
        "machine.volume_unknown" Unknown {}
    }
}

/// A process that was killed because it used a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KilledProcess {
    /// Its id inside of the instance.
    pub pid: u32,
    /// The name of its program, as far as it is printable.
    pub program: String,
}
