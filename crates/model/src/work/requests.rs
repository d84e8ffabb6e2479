//! Durable requests: the work behind an asynchronous call, as the API shows it and as the runner does it.

use std::time::Duration;

use crate::ids::{ClusterId, RequestId, VolumeId};
use crate::users::Owner;
use crate::{Refused, Time};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
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
}

/// What a request does, and to which objects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RequestKind {
    ClaimCluster(ClusterId),
    ReleaseCluster(ClusterId),
    EditCluster(ClusterId),
    RestartCluster(ClusterId),
    CreateStorage(VolumeId),
    DestroyStorage(VolumeId),
    AttachStorage(AttachmentChange),
    DetachStorage(AttachmentChange),
    EditStorage(VolumeId),
}

/// The attachment that a request makes or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentChange {
    pub volume: VolumeId,
    pub cluster: ClusterId,
    /// Whether it is done without a restart of the nodes.
    pub live: bool,
}

impl RequestKind {
    /// Returns the kind of this type, if the objects fit it. `live` is ignored by types that have no such choice.
    pub fn new(name: RequestType, cluster: Option<ClusterId>, volume: Option<VolumeId>, live: bool) -> Option<Self> {
        Some(match (name, cluster, volume) {
            (RequestType::ClusterClaim, Some(cluster), None) => RequestKind::ClaimCluster(cluster),
            (RequestType::ClusterRelease, Some(cluster), None) => RequestKind::ReleaseCluster(cluster),
            (RequestType::ClusterEdit, Some(cluster), None) => RequestKind::EditCluster(cluster),
            (RequestType::ClusterRestart, Some(cluster), None) => RequestKind::RestartCluster(cluster),
            (RequestType::StorageCreate, None, Some(volume)) => RequestKind::CreateStorage(volume),
            (RequestType::StorageDestroy, None, Some(volume)) => RequestKind::DestroyStorage(volume),
            (RequestType::StorageAttach, Some(cluster), Some(volume)) => {
                RequestKind::AttachStorage(AttachmentChange { volume, cluster, live })
            }
            (RequestType::StorageDetach, Some(cluster), Some(volume)) => {
                RequestKind::DetachStorage(AttachmentChange { volume, cluster, live })
            }
            (RequestType::StorageEdit, None, Some(volume)) => RequestKind::EditStorage(volume),
            (_, _, _) => return None,
        })
    }

    /// Returns the type, without the objects.
    pub fn request_type(&self) -> RequestType {
        match self {
            RequestKind::ClaimCluster(_) => RequestType::ClusterClaim,
            RequestKind::ReleaseCluster(_) => RequestType::ClusterRelease,
            RequestKind::EditCluster(_) => RequestType::ClusterEdit,
            RequestKind::RestartCluster(_) => RequestType::ClusterRestart,
            RequestKind::CreateStorage(_) => RequestType::StorageCreate,
            RequestKind::DestroyStorage(_) => RequestType::StorageDestroy,
            RequestKind::AttachStorage(_) => RequestType::StorageAttach,
            RequestKind::DetachStorage(_) => RequestType::StorageDetach,
            RequestKind::EditStorage(_) => RequestType::StorageEdit,
        }
    }

    /// Returns the cluster and the volume that it concerns; not every request concerns both.
    pub fn objects(&self) -> (Option<&ClusterId>, Option<&VolumeId>) {
        match self {
            RequestKind::ClaimCluster(cluster) | RequestKind::ReleaseCluster(cluster) => (Some(cluster), None),
            RequestKind::EditCluster(cluster) | RequestKind::RestartCluster(cluster) => (Some(cluster), None),
            RequestKind::AttachStorage(change) | RequestKind::DetachStorage(change) => {
                (Some(&change.cluster), Some(&change.volume))
            }
            RequestKind::CreateStorage(volume) | RequestKind::DestroyStorage(volume) => (None, Some(volume)),
            RequestKind::EditStorage(volume) => (None, Some(volume)),
        }
    }

    /// Returns the id of its object. An attachment is about its volume.
    pub fn object_id(&self) -> &str {
        match self {
            RequestKind::ClaimCluster(cluster) | RequestKind::ReleaseCluster(cluster) => cluster.as_str(),
            RequestKind::EditCluster(cluster) | RequestKind::RestartCluster(cluster) => cluster.as_str(),
            RequestKind::AttachStorage(change) | RequestKind::DetachStorage(change) => change.volume.as_str(),
            RequestKind::CreateStorage(volume) | RequestKind::DestroyStorage(volume) => volume.as_str(),
            RequestKind::EditStorage(volume) => volume.as_str(),
        }
    }
}

/// The status of a request, as clients see it.
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

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// No runner has worked on it.
    New,
    /// It waits in the capacity queue, before its first step; it holds nothing then.
    Queued,
    /// Its steps run.
    Forward {
        next: u32,
    },
    /// It has failed, and its steps are undone.
    Undoing {
        left: u32,
        why: String,
    },
    Completed {
        steps: u32,
    },
    /// It has ended. A request that was cancelled was not undone, and has no `why`.
    Failed {
        left: u32,
        why: Option<String>,
    },
}

impl Progress {
    /// A runner has leased it.
    pub fn lease(self) -> Result<Self, Refused> {
        match self {
            Progress::New => Ok(Progress::Forward { next: 0 }),
            Progress::Queued | Progress::Forward { .. } | Progress::Undoing { .. } => Ok(self),
            Progress::Completed { .. } | Progress::Failed { .. } => self.refuse("lease"),
        }
    }

    /// This many steps are done or undone.
    pub fn advance(self, steps: u32) -> Result<Self, Refused> {
        match self {
            Progress::New | Progress::Queued => Ok(Progress::Forward { next: steps }),
            Progress::Forward { next } => Ok(Progress::Forward { next: next + steps }),
            Progress::Undoing { left, why } => Ok(Progress::Undoing { left: left.saturating_sub(steps), why }),
            Progress::Completed { .. } | Progress::Failed { .. } => self.refuse("advance"),
        }
    }

    /// Its undo begins with the current step, which may have happened completely, partly or not at all.
    pub fn undo(self, why: String) -> Result<Self, Refused> {
        match self {
            Progress::New | Progress::Queued => Ok(Progress::Undoing { left: 1, why }),
            Progress::Forward { next } => Ok(Progress::Undoing { left: next + 1, why }),
            Progress::Undoing { .. } | Progress::Completed { .. } | Progress::Failed { .. } => self.refuse("undo"),
        }
    }

    /// All of its steps are done.
    pub fn complete(self) -> Result<Self, Refused> {
        match self {
            Progress::New | Progress::Forward { .. } => Ok(Progress::Completed { steps: self.step() }),
            Progress::Queued | Progress::Undoing { .. } => self.refuse("complete"),
            Progress::Completed { .. } | Progress::Failed { .. } => self.refuse("complete"),
        }
    }

    /// It ends without success: undone as far as possible, or cancelled.
    pub fn fail(self) -> Result<Self, Refused> {
        match self {
            Progress::New | Progress::Queued | Progress::Forward { .. } => {
                Ok(Progress::Failed { left: self.step(), why: None })
            }
            Progress::Undoing { left, why } => Ok(Progress::Failed { left, why: Some(why) }),
            Progress::Completed { .. } | Progress::Failed { .. } => self.refuse("fail"),
        }
    }

    /// Returns the number of the next step or, once it has failed, the number of steps that are left to undo.
    pub fn step(&self) -> u32 {
        match self {
            Progress::New | Progress::Queued => 0,
            Progress::Forward { next: step } | Progress::Completed { steps: step } => *step,
            Progress::Undoing { left, .. } | Progress::Failed { left, .. } => *left,
        }
    }

    /// Returns why it is or was undone.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Progress::New | Progress::Queued | Progress::Forward { .. } | Progress::Completed { .. } => None,
            Progress::Undoing { why, .. } => Some(why),
            Progress::Failed { why, .. } => why.as_deref(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Progress::New => "NEW",
            Progress::Queued => "QUEUED",
            Progress::Forward { .. } => "FORWARD",
            Progress::Undoing { .. } => "UNDOING",
            Progress::Completed { .. } => "COMPLETED",
            Progress::Failed { .. } => "FAILED",
        }
    }

    fn refuse(&self, transition: &'static str) -> Result<Self, Refused> {
        Err(Refused::Transition { from: self.name(), transition })
    }
}

/// A request as a row: what the API shows and the runner leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub id: RequestId,
    pub kind: RequestKind,
    pub owner: Owner,
    pub progress: Progress,
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
    /// Returns the status that clients see.
    pub fn status(&self) -> RequestStatus {
        match self.progress {
            Progress::New => RequestStatus::Pending,
            Progress::Completed { .. } => RequestStatus::Completed,
            Progress::Failed { .. } => RequestStatus::Failed,
            Progress::Queued | Progress::Forward { .. } | Progress::Undoing { .. } if self.attempts > 0 => {
                RequestStatus::Retrying
            }
            Progress::Queued => RequestStatus::Pending,
            Progress::Forward { .. } | Progress::Undoing { .. } => RequestStatus::Processing,
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
    use crate::rendering::{Transition, render_states};

    #[test]
    fn request_names_parse_back() {
        for kind in RequestType::ALL {
            assert_eq!(RequestType::from_name(kind.name()), Some(kind));
        }
        for status in RequestStatus::ALL {
            assert_eq!(RequestStatus::from_name(status.name()), Some(status));
        }
    }

    /// The kind of a type is of that type, and exists for the objects of that type only.
    #[test]
    fn request_kinds_have_their_objects() {
        let (cluster, volume) =
            ("c-000000000001".parse::<ClusterId>().unwrap(), "s-000000000001".parse::<VolumeId>().unwrap());
        for name in RequestType::ALL {
            let fit = |cluster, volume| RequestKind::new(name, cluster, volume, true);
            let (of_cluster, of_volume) = (fit(Some(cluster.clone()), None), fit(None, Some(volume.clone())));
            let both = fit(Some(cluster.clone()), Some(volume.clone()));
            assert_eq!(fit(None, None), None);
            let kinds: Vec<_> = [of_cluster, of_volume, both].into_iter().flatten().collect();
            let [kind] = kinds.as_slice() else { panic!("{name:?} fits several objects: {kinds:?}") };
            assert_eq!(kind.request_type(), name);
            let (cluster, volume) = kind.objects();
            let object = volume.map(VolumeId::as_str).or(cluster.map(ClusterId::as_str));
            assert_eq!(Some(kind.object_id()), object);
        }
    }

    #[test]
    fn request_transitions_are_documented() {
        let why = || "why".to_owned();
        let states = [
            Progress::New,
            Progress::Queued,
            Progress::Forward { next: 2 },
            Progress::Undoing { left: 2, why: why() },
            Progress::Completed { steps: 2 },
            Progress::Failed { left: 0, why: Some(why()) },
        ];
        let transitions: [Transition<Progress>; 5] = [
            ("lease", Progress::lease),
            ("advance", |progress| progress.advance(1)),
            ("undo", |progress| progress.undo("why".to_owned())),
            ("complete", Progress::complete),
            ("fail", Progress::fail),
        ];
        render_states("request", &states, Progress::name, &transitions);
    }

    /// A failed step and the ones before it are undone; a cancelled request is not.
    #[test]
    fn request_undo_begins_with_the_current_step() {
        let undoing = Progress::Forward { next: 2 }.undo("why".to_owned()).unwrap();
        assert_eq!((undoing.step(), undoing.failure()), (3, Some("why")));
        let failed = undoing.advance(1).and_then(|progress| progress.advance(2)).and_then(Progress::fail).unwrap();
        assert_eq!(failed, Progress::Failed { left: 0, why: Some("why".to_owned()) });
        assert_eq!(Progress::Forward { next: 1 }.fail().unwrap(), Progress::Failed { left: 1, why: None });
    }
}
