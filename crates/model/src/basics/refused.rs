//! Every refusal of a domain rule, by name. Each has a stable `code` that clients see.

/// Why a rule refuses a change. The text says what the problem is and what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Refused {
    #[error(
        "{what} {id} has deletion protection; first turn it off with an edit that sets deletion_protection to false"
    )]
    DeletionProtected { what: &'static str, id: String },
    #[error("the cluster is {state}; wait until it is RUNNING or FAILED")]
    ClusterBusy { state: &'static str },
    #[error("the cluster is {state}, and this needs one that is RUNNING; its info shows what it waits for")]
    ClusterNotRunning { state: &'static str },
    #[error("the cluster failed and has no nodes that could be restarted; destroy it and create another")]
    ClusterNotRestartable,
    #[error("the cluster is being destroyed or already gone")]
    ClusterGone,
    #[error("a volume is being attached to or detached from the cluster; wait for that request to end")]
    AttachmentBusy,
    #[error(
        "cluster {cluster} already has storage {volume} attached; detach it first, a cluster has at most one volume"
    )]
    ClusterHasStorage { cluster: String, volume: String },
    #[error("storage {volume} is not attached to cluster {cluster}")]
    NotAttached { volume: String, cluster: String },
    #[error("the storage is {state}, not READY; wait until it is")]
    StorageNotReady { state: &'static str },
    #[error("the storage has failed: {reason}")]
    StorageFailed { reason: String },
    #[error(
        "storage {volume}, which is attached to the cluster, has failed, and without it the nodes would not start again: {reason}. \
         Detach it first"
    )]
    AttachedStorageFailed { volume: String, reason: String },
    #[error(
        "the storage is in use: {volume_users}; end these processes, or detach without live: then processes that do not end in time are killed"
    )]
    StorageInUse { volume_users: String },
    #[error("the storage is being destroyed or already gone")]
    StorageGone,
    #[error("the storage is attached to {clusters}; detach it first")]
    StorageAttached { clusters: String },
    #[error("storage can only grow: it has {has_gb} GB, {wanted_gb} GB were asked for")]
    StorageShrinks { has_gb: u64, wanted_gb: u64 },
    #[error("a volume can grow to at most 100 times its first size: {limit_gb} GB here")]
    StorageGrowsTooFar { limit_gb: u64 },
    #[error("job {job} has ended already, it is {status}")]
    JobEnded { job: String, status: &'static str },
    #[error("job {job} is {status}; only jobs that have ended can be deleted, cancel it first")]
    JobNotEnded { job: String, status: &'static str },
    #[error("job {job} was started already")]
    JobStarted { job: String },
    #[error("job {job} waits for its files; upload them first")]
    JobWithoutFiles { job: String },
    #[error("cluster {cluster} will be torn down after job {job}, so it takes no more jobs; create another cluster")]
    ClusterTornDown { cluster: String, job: String },
    #[error(
        "the {whose} may have {limit} {what}, has {used} and this asks for {more}; ask for less, destroy what is not needed, or ask \
         an administrator of the engine for a higher limit"
    )]
    LimitReached { whose: &'static str, what: &'static str, limit: String, used: String, more: String },
    #[error(
        "{waiting} clusters of the {whose} wait for capacity, and no more than {limit} may wait; wait until one of them starts, \
         destroy one, or ask an administrator of the engine for a higher limit"
    )]
    TooManyWaiting { whose: &'static str, limit: u64, waiting: u64 },
    #[error("you have {limit} S3 keys that work, which is the limit; revoke one of them first")]
    TooManyS3Keys { limit: usize },
    #[error("the GPU is {health}; only a FATAL GPU has to be cleared, others recover by themselves")]
    GpuNotFatal { health: &'static str },
    #[error("the state {from} does not allow '{transition}'")]
    Transition { from: &'static str, transition: &'static str },
}

impl Refused {
    /// Returns the stable code of this refusal.
    pub fn code(&self) -> &'static str {
        match self {
            Refused::DeletionProtected { .. } => "deletion_protected",
            Refused::ClusterBusy { .. } => "cluster_busy",
            Refused::ClusterNotRunning { .. } => "cluster_not_running",
            Refused::ClusterNotRestartable => "cluster_not_restartable",
            Refused::ClusterGone => "cluster_gone",
            Refused::AttachmentBusy => "attachment_busy",
            Refused::ClusterHasStorage { .. } => "cluster_has_storage",
            Refused::NotAttached { .. } => "not_attached",
            Refused::StorageNotReady { .. } => "storage_not_ready",
            Refused::StorageFailed { .. } | Refused::AttachedStorageFailed { .. } => "storage_failed",
            Refused::StorageInUse { .. } => "storage_in_use",
            Refused::StorageGone => "storage_gone",
            Refused::StorageAttached { .. } => "storage_attached",
            Refused::StorageShrinks { .. } => "storage_cannot_shrink",
            Refused::StorageGrowsTooFar { .. } => "storage_grows_too_far",
            Refused::JobEnded { .. } => "job_ended",
            Refused::JobNotEnded { .. } => "job_not_ended",
            Refused::JobStarted { .. } => "job_started",
            Refused::JobWithoutFiles { .. } => "job_without_files",
            Refused::ClusterTornDown { .. } => "cluster_torn_down",
            Refused::LimitReached { .. } | Refused::TooManyWaiting { .. } => "limit_reached",
            Refused::TooManyS3Keys { .. } => "too_many_s3_keys",
            Refused::GpuNotFatal { .. } => "gpu_not_fatal",
            Refused::Transition { .. } => "wrong_state",
        }
    }
}
