//! The `[rate_limit]`, `[requests]` and `[limits]` sections.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tarn_control::{AfterReboot, Eligibility, Settings};
use tarn_model::limits::{DEFAULT_WAITING, Limits};

use super::Config;
use super::capacity::{AfterRebootName, EligibilityName};
use crate::failure::{Failure, Result};

/// The rate limit of one API key.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RateLimit {
    pub(crate) per_second: u32,
    pub(crate) burst: u32,
}

/// The `[requests]` section: deadlines and parallelism of requests.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Requests {
    work_deadline_seconds: u64,
    capacity_deadline_seconds: u64,
    image_pull_deadline_seconds: u64,
    step_timeout_seconds: u64,
    lease_seconds: u64,
    parallel: u32,
}

/// The default limits of each organization, and of each user without one; absent means unlimited. Limits that an
/// administrator sets take precedence. The limit of object bytes is in `[object_storage]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DefaultLimits {
    instances: Option<u64>,
    cpus: Option<f64>,
    gpus: Option<u64>,
    volume_gb: Option<u64>,
    pub(super) waiting: u64,
    /// Absent means a part of the disk that holds the objects.
    job_gb: Option<f64>,
}

/// No installation has more clusters that wait.
const MAX_WAITING: u64 = 1_000_000_000;

impl Default for DefaultLimits {
    fn default() -> Self {
        let waiting = DEFAULT_WAITING;
        DefaultLimits { instances: None, cpus: None, gpus: None, volume_gb: None, waiting, job_gb: None }
    }
}

impl DefaultLimits {
    pub(super) fn check(&self) -> Result<()> {
        for (key, value) in [("cpus", self.cpus), ("job_gb", self.job_gb)] {
            if let Some(value) = value.filter(|value| !(0.0..=1e9).contains(value)) {
                return Err(Failure(format!("limits.{key} must be a number from 0 to 1000000000, not {value}")));
            }
        }
        if self.waiting > MAX_WAITING {
            return Err(Failure(format!("limits.waiting must be at most {MAX_WAITING}")));
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits {
            instances: self.instances,
            cpu_milli: self.cpus.map(|cpus| (cpus * 1000.0).round() as u64),
            gpus: self.gpus,
            volume_gb: self.volume_gb,
            object_bytes: None,
            waiting: Some(self.waiting),
            job_bytes: self.job_gb.map(|gigabytes| (gigabytes * 1e9).round() as u64),
        }
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        RateLimit { per_second: 50, burst: 200 }
    }
}

impl Default for Requests {
    fn default() -> Self {
        let settings = Settings::default();
        Requests {
            work_deadline_seconds: settings.work_deadline.as_secs(),
            capacity_deadline_seconds: settings.capacity_deadline.as_secs(),
            image_pull_deadline_seconds: settings.image_pull_deadline.as_secs(),
            step_timeout_seconds: settings.step_timeout.as_secs(),
            lease_seconds: settings.lease.as_secs(),
            parallel: settings.parallel,
        }
    }
}

impl Requests {
    /// No value may be zero.
    pub(super) fn check(&self) -> Result<()> {
        for (what, value) in [
            ("work_deadline_seconds", self.work_deadline_seconds),
            ("capacity_deadline_seconds", self.capacity_deadline_seconds),
            ("image_pull_deadline_seconds", self.image_pull_deadline_seconds),
            ("step_timeout_seconds", self.step_timeout_seconds),
            ("lease_seconds", self.lease_seconds),
            ("parallel", self.parallel.into()),
        ] {
            if value == 0 {
                return Err(Failure(format!("requests.{what} must be at least 1")));
            }
        }
        Ok(())
    }
}

impl Config {
    /// The settings of the control plane.
    pub(crate) fn settings(&self) -> Settings {
        let (gpus_every, gpu_recovery) = self.gpu_times();
        Settings {
            gpus_every,
            gpu_recovery,
            work_deadline: Duration::from_secs(self.requests.work_deadline_seconds),
            capacity_deadline: Duration::from_secs(self.requests.capacity_deadline_seconds),
            image_pull_deadline: Duration::from_secs(self.requests.image_pull_deadline_seconds),
            allowed_registries: self.images.allowed_registries.clone(),
            step_timeout: Duration::from_secs(self.requests.step_timeout_seconds),
            lease: Duration::from_secs(self.requests.lease_seconds),
            parallel: self.requests.parallel,
            eligibility: match self.storage.eligibility {
                EligibilityName::Any => Eligibility::Any,
                EligibilityName::Tensorpool => Eligibility::Tensorpool,
            },
            storage_overcommit: self.storage.overcommit,
            storage_cap_gb: self.capacity.storage_gb,
            detach_grace: Duration::from_secs(self.storage.detach_grace_seconds),
            limits: self.limits.limits(),
            line: self.line.rules(),
            after_reboot: match self.after_reboot {
                AfterRebootName::Start => AfterReboot::Start,
                AfterRebootName::Leave => AfterReboot::Leave,
            },
            jobs: self.job_settings(),
            ..Settings::default()
        }
    }
}
