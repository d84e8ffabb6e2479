//! The events of jobs.

use crate::ids::ClusterId;

verbs! {
    /// What happens to a job.
    JobEvent {
        /// A user created it as a draft.
        "job.create" Created { name: String, cluster: ClusterId, teardown: bool }
        /// A user queued it on its cluster.
        "job.start" Queued { cluster: ClusterId }
        /// Its commands were observed to run.
        "job.started" Started { cluster: ClusterId, attempt: u32 }
        /// An attempt failed, and it was queued again.
        "job.retried" Retried { attempt: u32, reason: String }
        /// A user began to stop it, in this state.
        "job.cancel" CancelBegun { was: String }
        /// It ended, with its log and its outputs stored.
        "job.ended" Ended { status: String, exit_code: Option<u8>, attempt: u32 }
        /// A user removed it.
        "job.delete" Deleted { status: String }
        /// A user got signed URLs of its files. The same is recorded once a minute.
        "job.sign_urls" UrlsSigned { grant: String, count: u64 }
    }
}
