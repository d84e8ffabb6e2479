//! Limits: of callers, and of the work behind calls.

use std::time::Duration;

use serde::Deserialize;
use tarn_control::{Eligibility, Settings};

use super::Config;
use super::machine::EligibilityName;
use crate::failure::{Failure, Result};

/// How often one API key may call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RateLimit {
    pub(crate) per_second: u32,
    pub(crate) burst: u32,
}

/// Limits of the work behind calls.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Requests {
    work_deadline_seconds: u64,
    capacity_deadline_seconds: u64,
    step_timeout_seconds: u64,
    lease_seconds: u64,
    parallel: u32,
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
            step_timeout_seconds: settings.step_timeout.as_secs(),
            lease_seconds: settings.lease.as_secs(),
            parallel: settings.parallel,
        }
    }
}

impl Requests {
    /// None of them may be zero: that would be for ever, or never.
    pub(super) fn check(&self) -> Result<()> {
        for (what, value) in [
            ("work_deadline_seconds", self.work_deadline_seconds),
            ("capacity_deadline_seconds", self.capacity_deadline_seconds),
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
    /// What the control plane is told.
    pub(crate) fn settings(&self) -> Settings {
        let (gpus_every, gpu_recovery) = self.gpu_times();
        Settings {
            gpus_every,
            gpu_recovery,
            work_deadline: Duration::from_secs(self.requests.work_deadline_seconds),
            capacity_deadline: Duration::from_secs(self.requests.capacity_deadline_seconds),
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
            jobs: self.job_settings(),
            ..Settings::default()
        }
    }
}
