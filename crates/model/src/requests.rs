//! Durable requests: the work behind an asynchronous call, as the API shows it and as the runner carries it out.

use std::time::Duration;

use crate::Time;
use crate::ids::{ClusterId, RequestId, VolumeId};
use crate::users::Owner;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum RequestType {
    ClusterClaim,
    ClusterRelease,
    ClusterEdit,
    ClusterRestart,
    StorageCreate,
    StorageDestroy,
    StorageAttach,
    StorageDetach,
    StorageEdit,
}

impl RequestType {
    /// Every type, in the order of the documentation.
    pub const ALL: [RequestType; 9] = [
        RequestType::ClusterClaim,
        RequestType::ClusterRelease,
        RequestType::ClusterEdit,
        RequestType::ClusterRestart,
        RequestType::StorageCreate,
        RequestType::StorageDestroy,
        RequestType::StorageAttach,
        RequestType::StorageDetach,
        RequestType::StorageEdit,
    ];

    /// The name that the API shows and the database keeps.
    pub fn name(self) -> &'static str {
        match self {
            RequestType::ClusterClaim => "CLUSTER_CLAIM",
            RequestType::ClusterRelease => "CLUSTER_RELEASE",
            RequestType::ClusterEdit => "CLUSTER_EDIT",
            RequestType::ClusterRestart => "CLUSTER_RESTART",
            RequestType::StorageCreate => "STORAGE_CREATE",
            RequestType::StorageDestroy => "STORAGE_DESTROY",
            RequestType::StorageAttach => "STORAGE_ATTACH",
            RequestType::StorageDetach => "STORAGE_DETACH",
            RequestType::StorageEdit => "STORAGE_EDIT",
        }
    }

    /// The reverse of [`RequestType::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether the object of the request is the volume rather than the cluster.
    pub fn is_about_storage(self) -> bool {
        match self {
            RequestType::ClusterClaim | RequestType::ClusterRelease => false,
            RequestType::ClusterEdit | RequestType::ClusterRestart => false,
            RequestType::StorageCreate | RequestType::StorageDestroy | RequestType::StorageAttach => true,
            RequestType::StorageDetach | RequestType::StorageEdit => true,
        }
    }
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum RequestStatus {
    Pending,
    Processing,
    Retrying,
    Completed,
    Failed,
}

impl RequestStatus {
    /// Every status.
    pub const ALL: [RequestStatus; 5] = [
        RequestStatus::Pending,
        RequestStatus::Processing,
        RequestStatus::Retrying,
        RequestStatus::Completed,
        RequestStatus::Failed,
    ];

    /// The name that the API shows and the database keeps.
    pub fn name(self) -> &'static str {
        match self {
            RequestStatus::Pending => "PENDING",
            RequestStatus::Processing => "PROCESSING",
            RequestStatus::Retrying => "RETRYING",
            RequestStatus::Completed => "COMPLETED",
            RequestStatus::Failed => "FAILED",
        }
    }

    /// The reverse of [`RequestStatus::name`].
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether nothing will change any more.
    pub fn is_terminal(self) -> bool {
        match self {
            RequestStatus::Completed | RequestStatus::Failed => true,
            RequestStatus::Pending | RequestStatus::Processing | RequestStatus::Retrying => false,
        }
    }
}

/// A request as a row: what the API shows and the runner leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its id.
    pub id: RequestId,
    /// What it does.
    pub kind: RequestType,
    /// How far it is.
    pub status: RequestStatus,
    /// Who may see it.
    pub owner: Owner,
    /// The cluster it concerns, if any.
    pub cluster: Option<ClusterId>,
    /// The volume it concerns, if any.
    pub volume: Option<VolumeId>,
    /// Whether it waits for capacity: it stands in the line and holds nothing.
    pub waiting: bool,
    /// The number of the step to do next or, while it is undone, the number of steps still to undo.
    pub step: u32,
    /// Why it is being undone; `None` while it goes forward.
    pub failure: Option<String>,
    /// How often the present step has failed in a row.
    pub attempts: u32,
    /// When the runner should look at it next.
    pub due: Time,
    /// When it is given up: undone and FAILED.
    pub deadline: Time,
    /// The text for the caller.
    pub message: Option<String>,
    /// When it was accepted.
    pub created: Time,
    /// When it ended.
    pub ended: Option<Time>,
    /// The fencing number: each lease raises it, and only the holder of the present one may write.
    pub epoch: i64,
}

impl Request {
    /// The id of the cluster or volume it is about.
    pub fn object_id(&self) -> Option<&str> {
        match self.kind.is_about_storage() {
            true => self.volume.as_ref().map(VolumeId::as_str),
            false => self.cluster.as_ref().map(ClusterId::as_str),
        }
    }
}

/// How long to wait before the next try after `attempts` failures in a row: doubling from 200 ms to at most 15 s, with up to
/// half of it taken off at random so that many failures do not come back at once.
pub fn backoff(attempts: u32, bits: u64) -> Duration {
    let full = 200u64.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(15_000);
    Duration::from_millis(full - bits % (full / 2 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for kind in RequestType::ALL {
            assert_eq!(RequestType::from_name(kind.name()), Some(kind));
        }
        for status in RequestStatus::ALL {
            assert_eq!(RequestStatus::from_name(status.name()), Some(status));
        }
    }

    proptest::proptest! {
        #[test]
        fn backoff_stays_in_its_bounds(attempts: u32, bits: u64) {
            let wait = backoff(attempts, bits);
            proptest::prop_assert!(wait >= Duration::from_millis(100) && wait <= Duration::from_secs(15));
        }
    }
}
