//! Jobs: commands that run on a cluster, their logs and the files that are kept of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Response for GET /job/init.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobInitResponse {
    /// A template of a job file, in TOML, with comments.
    pub empty_tp_config: String,
    /// The same, under another name.
    pub config: String,
    /// What to do with it.
    pub message: String,
}

/// Request body for POST /job/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobCreateRequest {
    /// The text of the job file, in TOML.
    #[schema(min_length = 1, max_length = 262144)]
    pub tp_config: String,
    /// The cluster that it runs on, by ID or name.
    #[schema(min_length = 1, max_length = 100)]
    pub cluster_id: String,
    /// Whether the cluster is destroyed when the job has ended and its log and outputs are stored.
    #[schema(default = false)]
    pub teardown_cluster: Option<bool>,
    /// Whether the job has files, which must be uploaded before it starts.
    #[schema(default = true)]
    pub files: Option<bool>,
    /// Whether the job is started at once; only for a job without files.
    #[schema(default = false)]
    pub start: Option<bool>,
}

/// Response for POST /job/create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobCreateResponse {
    /// TensorPool job ID
    pub job_id: String,
    /// Where to upload the files: PUT a tar.gz there, once. Null for a job without files.
    pub upload_url: Option<String>,
    /// Status message
    pub message: String,
}

/// Response for POST /job/start/{job_id} and POST /job/cancel/{job_id}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobStatusResponse {
    /// TensorPool job ID
    pub job_id: String,
    /// Its state.
    pub status: JobStatus,
    /// Status message
    pub message: String,
}

/// Response for DELETE /job/delete/{job_id}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobDeleteResponse {
    /// TensorPool job ID
    pub job_id: String,
    /// Status message
    pub message: String,
}

/// Response for PUT /job/upload/{job_id}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobUploadResponse {
    /// TensorPool job ID
    pub job_id: String,
    /// How many bytes were received.
    pub bytes: u64,
    /// Status message
    pub message: String,
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum JobStatus {
    Pending,
    Running,
    Canceling,
    Completed,
    Error,
    Failed,
    Canceled,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobInfo {
    /// TensorPool job ID
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its state.
    pub status: JobStatus,
    /// The exit code of the command that ended it; null while there is none.
    pub exit_code: Option<u8>,
    /// ID of the cluster it runs on.
    pub cluster_id: String,
    /// Name of that cluster; null once the cluster is deleted.
    pub cluster_name: Option<String>,
    /// Type of the instances of that cluster.
    pub instance_type: String,
    /// What it waits for, since when it runs and where, or how it ended.
    pub message: String,
    /// The same.
    pub public_message: String,
    /// The same.
    pub explanation: String,
    /// When it was created.
    pub created_at: String,
    /// When its commands first ran.
    pub started_at: Option<String>,
    /// When it ended, with its log and outputs stored.
    pub ended_at: Option<String>,
    /// Whether the cluster is destroyed after it.
    pub teardown_cluster: bool,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// What it runs, in order.
    pub commands: Vec<String>,
    /// Globs of the files that are kept of it.
    pub outputs: Vec<String>,
    /// On which nodes of the cluster it runs: first or all.
    pub nodes: String,
    /// How many bytes its log has.
    pub log_bytes: u64,
    /// ID of the user who created it.
    pub owner: String,
    /// ID of the organization it belongs to.
    pub org_id: Option<String>,
}

/// Response for GET /job/list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobListResponse {
    /// The jobs, newest first.
    pub jobs: Vec<JobInfo>,
    /// Pass this as `cursor` to get the next page; null at the end.
    pub next_cursor: Option<String>,
    /// The list as a table.
    pub message: String,
}

/// Response for GET /job/info/{job_id}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobInfoResponse {
    /// The job.
    pub job_info: JobInfo,
    /// The same as text.
    pub message: String,
}

/// Response for GET /job/pull/{job_id}.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobPullResponse {
    /// Status message
    pub message: String,
    /// The outputs by their normalized relative paths, each with a URL that needs no key; null with dry_run.
    pub download_map: BTreeMap<String, Option<String>>,
    /// A command to run first; there is none.
    pub command: Option<String>,
    /// Whether the output of that command is shown.
    pub command_show_stdout: Option<bool>,
}
