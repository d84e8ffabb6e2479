//! The events of hosts and their GPUs. Until hosts have names, the object of an event of a host is `host` or `machine`.

use serde::{Deserialize, Serialize};

use crate::ids::{ClusterId, InstanceId};

verbs! {
    /// What happens to a host.
    HostEvent {
        /// It was drained: it accepts no new clusters.
        "host.drain" Drained { reason: Option<String> }
        /// It accepts new clusters again.
        "host.undrain" Undrained { reason: Option<String> }
        /// It was restarted, and this was lost or continues.
        "machine.rebooted" Rebooted { #[serde(flatten)] losses: RebootLosses }
        /// The database was bound to another installation.
        "machine.adopted" Adopted { installation: String, earlier: Option<String> }
        /// The database was restored from a backup, and this ended.
        "machine.restored" Restored { #[serde(flatten)] losses: RestoreLosses }
        /// The clock jumped, and the deadlines of open requests moved with it.
        "clock.jumped" ClockJumped { by_us: i64, open_requests: u64 }
    }
}

verbs! {
    /// What happens to a GPU.
    GpuEvent {
        /// It was drained: it is not assigned again.
        "gpu.drain" Drained { reason: Option<String> }
        /// It may be assigned again.
        "gpu.undrain" Undrained { reason: Option<String> }
        /// An administrator cleared its fault, or it was missing and was forgotten.
        "gpu.clear" Cleared { #[serde(flatten)] clearance: GpuClearance }
        /// It is healthy again.
        "gpu.good" Good { reason: Option<String>, instance: Option<InstanceId>, cluster: Option<ClusterId> }
        /// It has a fault and is not offered.
        "gpu.bad" Bad { reason: Option<String>, instance: Option<InstanceId>, cluster: Option<ClusterId> }
        /// It has a fault that only an operator can repair.
        "gpu.fatal" Fatal { reason: Option<String>, instance: Option<InstanceId>, cluster: Option<ClusterId> }
    }
}

/// What became of a GPU that an administrator cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum GpuClearance {
    /// It was missing, and is no longer known.
    Forgotten { forgotten: bool },
    /// It is known, and still drained if there is a reason.
    Kept { reason: Option<String> },
}

/// What a restart of the host has ended or lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebootLosses {
    /// Clusters that are being restarted; their own events record the outcome.
    pub clusters_coming_back: u64,
    /// Clusters that failed, because they cannot be restarted or the operator does not want it.
    pub clusters_failed: u64,
    /// Requests that continue.
    pub requests_resumed: u64,
    /// Jobs that were running.
    pub jobs_interrupted: u64,
    /// Volumes that are damaged or missing.
    pub volumes_lost: u64,
    /// Nodes whose disk is missing.
    pub disks_missing: u64,
    /// Nodes that the database knows and the host does not have.
    pub instances_missing: u64,
    /// Instances and volumes that the host has and the database does not know.
    pub unknown: u64,
}

/// What a restore could not bring back, and what it kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreLosses {
    /// The clusters that ran or waited, by id and name. They are FAILED, and can be destroyed.
    pub clusters: Vec<String>,
    /// How many requests were in progress. They are FAILED.
    pub requests: u64,
    /// How many jobs had not ended. They have failed.
    pub jobs: u64,
    /// The volumes whose data is not on the new host, by id and name. They are FAILED until their data is found.
    pub volumes_missing: Vec<String>,
    /// How many volumes have their data.
    pub volumes: u64,
}
