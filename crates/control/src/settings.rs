//! Limits and policies of the control plane, as the operator configures them.

use std::time::Duration;

use tarn_model::access::Policy;
use tarn_model::limits::{DEFAULT_WAITING, Limits};
use tarn_model::line::Rules;

/// Limits and policies of the control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How long the work of a request may take before it is undone.
    pub work_deadline: Duration,
    /// How long a claim may wait for capacity.
    pub capacity_deadline: Duration,
    /// How long a cluster that holds its capacity may wait for its image.
    pub image_pull_deadline: Duration,
    /// The registries that container images may come from; `None` allows all.
    pub allowed_registries: Option<Vec<String>>,
    /// How long one try of a step may take. A step that reports progress gets this time again after each report.
    pub step_timeout: Duration,
    /// How long the lease of a dead runner keeps other runners away from its requests.
    pub lease: Duration,
    /// How many requests are worked on at the same time.
    pub parallel: u32,
    /// Which clusters may have volumes.
    pub eligibility: Eligibility,
    /// How much of the pool of volumes may be promised, as a factor of its size.
    pub storage_overcommit: f64,
    /// How many gigabytes of the pool may be used; `None` allows all of it.
    pub storage_cap_gb: Option<u64>,
    /// How long processes have to release a volume when it is detached.
    pub detach_grace: Duration,
    /// How often the instances are compared with the database.
    pub instances_every: Duration,
    /// What happens to the clusters that ran when the host was rebooted.
    pub after_reboot: AfterReboot,
    /// How often the GPUs are observed.
    pub gpus_every: Duration,
    /// How long a GPU must be without faults before it is offered again.
    pub gpu_recovery: Duration,
    /// How long an instance without a row must exist before it is removed.
    pub orphan_grace: Duration,
    /// The limits of organizations and users that have none of their own. The limit on objects comes from the
    /// configuration of object storage.
    pub limits: Limits,
    /// What members of an organization may do to each other.
    pub access: Policy,
    /// When claims that wait reserve capacity.
    pub line: Rules,
    pub jobs: JobSettings,
}

/// Limits of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSettings {
    /// The maximum size of the uploaded archive of a job's files.
    pub max_upload_bytes: u64,
    /// The maximum total size of a job's files.
    pub max_unpacked_bytes: u64,
    /// The maximum number of a job's files.
    pub max_files: u64,
    /// How much of a job's output is kept. The rest is dropped, and the owner is informed.
    pub max_log_bytes: u64,
    /// The maximum total size of the output files that are kept for a job.
    pub max_output_bytes: u64,
    /// How long a job waits for its files and its start before it is removed.
    pub draft_timeout: Duration,
    /// How long the URL of an output is valid.
    pub output_url: Duration,
    /// How long a stopped job has to end before it is killed.
    pub stop_grace: Duration,
    /// How long a job and everything kept for it remain after its end.
    pub keep: Duration,
}

impl Default for JobSettings {
    fn default() -> Self {
        JobSettings {
            max_upload_bytes: 10 << 30,
            max_unpacked_bytes: 100 << 30,
            max_files: 1_000_000,
            max_log_bytes: 10 << 30,
            max_output_bytes: 100 << 30,
            draft_timeout: Duration::from_secs(3600),
            output_url: Duration::from_secs(3600),
            stop_grace: Duration::from_secs(10),
            keep: Duration::from_secs(30 * 24 * 3600),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            work_deadline: Duration::from_secs(15 * 60),
            capacity_deadline: Duration::from_secs(24 * 3600),
            image_pull_deadline: Duration::from_secs(2 * 3600),
            allowed_registries: None,
            step_timeout: Duration::from_secs(120),
            lease: Duration::from_secs(10),
            parallel: 32,
            eligibility: Eligibility::Any,
            storage_overcommit: 1.0,
            storage_cap_gb: None,
            detach_grace: Duration::from_secs(10),
            instances_every: Duration::from_secs(5),
            after_reboot: AfterReboot::Start,
            gpus_every: Duration::from_secs(5),
            gpu_recovery: Duration::from_secs(30),
            orphan_grace: Duration::from_secs(60),
            access: Policy::default(),
            limits: Limits { waiting: Some(DEFAULT_WAITING), ..Limits::default() },
            line: Rules::default(),
            jobs: JobSettings::default(),
        }
    }
}

impl Settings {
    /// How long one try of a step may take, including the time for processes to release a volume.
    pub(crate) fn step_limit(&self) -> Duration {
        self.step_timeout.saturating_add(self.detach_grace)
    }
}

/// What happens to the clusters that ran when the host was rebooted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterReboot {
    /// The engine restarts them.
    #[default]
    Start,
    /// They are marked as failed until a user restarts them.
    Leave,
}

/// Which clusters may have volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eligibility {
    /// All clusters for which the driver supports it.
    #[default]
    Any,
    /// As the original service: clusters with several nodes, and clusters without GPUs.
    Tensorpool,
}
