//! Durable requests: the work behind an asynchronous call, as the API shows it and as the runner does it.

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

    /// Returns the name that the API shows and the database stores.
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

    /// Returns whether the object of the request is the volume and not the cluster.
    pub fn is_about_storage(self) -> bool {
        match self {
            RequestType::ClusterClaim | RequestType::ClusterRelease => false,
            RequestType::ClusterEdit | RequestType::ClusterRestart => false,
            RequestType::StorageCreate | RequestType::StorageDestroy | RequestType::StorageAttach => true,
            RequestType::StorageDetach | RequestType::StorageEdit => true,
        }
    }
}

/// The progress of a request.
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

    /// Returns the name that the API shows and the database stores.
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

    /// Returns whether the request has ended.
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
    pub id: RequestId,
    pub kind: RequestType,
    pub status: RequestStatus,
    pub owner: Owner,
    /// The cluster it concerns, if any.
    pub cluster: Option<ClusterId>,
    /// The volume it concerns, if any.
    pub volume: Option<VolumeId>,
    /// Whether it waits in the capacity queue; it holds nothing then.
    pub waiting: bool,
    /// The number of the next step or, while the request is undone, the number of steps left to undo.
    pub step: u32,
    /// Why it is being undone; `None` while it moves forward.
    pub failure: Option<String>,
    /// How often the present step failed in a row.
    pub attempts: u32,
    /// When the runner processes it next.
    pub due: Time,
    /// When it is undone and FAILED if it has not completed.
    pub deadline: Time,
    /// The text for the caller.
    pub message: Option<String>,
    pub created: Time,
    pub ended: Option<Time>,
    /// The fencing number: each lease raises it, and only the holder of the present lease may write.
    pub epoch: i64,
}

impl Request {
    /// Returns the id of the cluster or volume that it concerns.
    pub fn object_id(&self) -> Option<&str> {
        if self.kind.is_about_storage() {
            self.volume.as_ref().map(VolumeId::as_str)
        } else {
            self.cluster.as_ref().map(ClusterId::as_str)
        }
    }
}

/// Returns how long to wait before the next try after `attempts` failures in a row.
pub fn backoff(attempts: u32, bits: u64) -> Duration {
    tarn_base::backoff(Duration::from_millis(200), Duration::from_secs(15), attempts, bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_names_parse_back() {
        for kind in RequestType::ALL {
            assert_eq!(RequestType::from_name(kind.name()), Some(kind));
        }
        for status in RequestStatus::ALL {
            assert_eq!(RequestStatus::from_name(status.name()), Some(status));
        }
    }
}
