//! The `[jobs]` section: limits of files, logs and outputs of jobs, and how long they are kept.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tarn_control::JobSettings;

use super::Config;
use crate::failure::{Failure, Result};

/// The maximum number of files in an upload and in an archive that a node unpacks.
const MAX_FILES: u64 = 1_000_000;
/// A larger number is a mistake, and its sums would overflow.
const MAX_GB: f64 = 1e6;
const MAX_DAYS: u64 = 3650;
/// The URL for the upload is valid for a day.
const MAX_DRAFT_MINUTES: u64 = 24 * 60;
/// Seven days, which S3 allows for its signed URLs as well.
const MAX_URL_MINUTES: u64 = 7 * 24 * 60;
/// A process that has not ended after ten minutes will not end by itself.
const MAX_GRACE_SECONDS: u64 = 600;

/// The `[jobs]` section. Gigabytes have 10⁹ bytes and may be fractions; the control plane has the defaults.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Jobs {
    /// Maximum size of the uploaded archive.
    max_upload_gb: Option<f64>,
    /// Maximum total size of the unpacked files.
    max_unpacked_gb: Option<f64>,
    /// Maximum number of files.
    max_files: Option<u64>,
    /// Maximum size of the log.
    max_log_gb: Option<f64>,
    /// Maximum total size of the outputs.
    max_output_gb: Option<f64>,
    /// How long a job may wait for its files and its start.
    draft_minutes: Option<u64>,
    /// How long the URL of an output is valid.
    output_url_minutes: Option<u64>,
    /// How long a stopped job may take to end before it is killed.
    stop_grace_seconds: Option<u64>,
    /// How long a job is kept after its end.
    keep_days: Option<u64>,
}

impl Jobs {
    pub(super) fn check(&self) -> Result<()> {
        for (what, value) in [
            ("max_upload_gb", self.max_upload_gb),
            ("max_unpacked_gb", self.max_unpacked_gb),
            ("max_log_gb", self.max_log_gb),
            ("max_output_gb", self.max_output_gb),
        ] {
            // Less than a byte would be zero. The range also excludes NaN, for which every comparison is false.
            if value.is_some_and(|gb| !(1e-9..=MAX_GB).contains(&gb)) {
                return Err(Failure(format!("jobs.{what} must be above 0 and at most {MAX_GB}")));
            }
        }
        for (what, value, least, limit) in [
            ("max_files", self.max_files, 1, MAX_FILES),
            ("draft_minutes", self.draft_minutes, 1, MAX_DRAFT_MINUTES),
            ("output_url_minutes", self.output_url_minutes, 1, MAX_URL_MINUTES),
            ("stop_grace_seconds", self.stop_grace_seconds, 0, MAX_GRACE_SECONDS),
            ("keep_days", self.keep_days, 1, MAX_DAYS),
        ] {
            if value.is_some_and(|value| !(least..=limit).contains(&value)) {
                return Err(Failure(format!("jobs.{what} must be at least {least} and at most {limit}")));
            }
        }
        Ok(())
    }
}

impl Config {
    /// Whether the operator has not decided how long the URLs of outputs are valid.
    pub(crate) fn has_default_output_url(&self) -> bool {
        self.jobs.output_url_minutes.is_none()
    }

    /// The job settings of the control plane.
    pub(super) fn job_settings(&self) -> JobSettings {
        let (own, plain) = (&self.jobs, JobSettings::default());
        let bytes = |gb: Option<f64>, otherwise| gb.map_or(otherwise, |gb| (gb * 1e9).round() as u64);
        let seconds = |value: Option<u64>, unit, otherwise| value.map_or(otherwise, |n| Duration::from_secs(n * unit));
        JobSettings {
            max_upload_bytes: bytes(own.max_upload_gb, plain.max_upload_bytes),
            max_unpacked_bytes: bytes(own.max_unpacked_gb, plain.max_unpacked_bytes),
            max_files: own.max_files.unwrap_or(plain.max_files),
            max_log_bytes: bytes(own.max_log_gb, plain.max_log_bytes),
            max_output_bytes: bytes(own.max_output_gb, plain.max_output_bytes),
            draft_timeout: seconds(own.draft_minutes, 60, plain.draft_timeout),
            output_url: seconds(own.output_url_minutes, 60, plain.output_url),
            stop_grace: seconds(own.stop_grace_seconds, 1, plain.stop_grace),
            keep: seconds(own.keep_days, 24 * 3600, plain.keep),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<Config, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn absent_values_are_defaults() {
        assert_eq!(parsed("").unwrap().settings().jobs, JobSettings::default());
        let some = parsed("[jobs]\nkeep_days = 2").unwrap();
        some.jobs.check().unwrap();
        let expected = JobSettings { keep: Duration::from_secs(2 * 24 * 3600), ..JobSettings::default() };
        assert_eq!(some.settings().jobs, expected);
    }

    #[test]
    fn limits_become_bytes_and_time() {
        let text = "[jobs]\nmax_upload_gb = 2\nmax_unpacked_gb = 0.000000001\nmax_files = 7\nmax_log_gb = 0.5\n\
                    max_output_gb = 1000000\ndraft_minutes = 5\noutput_url_minutes = 10080\nstop_grace_seconds = 0\nkeep_days = 3650";
        let config = parsed(text).unwrap();
        config.jobs.check().unwrap();
        let expected = JobSettings {
            max_upload_bytes: 2_000_000_000,
            max_unpacked_bytes: 1,
            max_files: 7,
            max_log_bytes: 500_000_000,
            max_output_bytes: 1_000_000_000_000_000,
            draft_timeout: Duration::from_secs(300),
            output_url: Duration::from_secs(7 * 24 * 3600),
            stop_grace: Duration::ZERO,
            keep: Duration::from_secs(3650 * 24 * 3600),
        };
        assert_eq!(config.settings().jobs, expected);
    }

    #[test]
    fn invalid_values_are_refused() {
        for wrong in [
            "max_upload_gb = 0",
            "max_unpacked_gb = -1.0",
            "max_log_gb = nan",
            "max_output_gb = inf",
            "max_output_gb = 1000001",
            "max_files = 0",
            "max_files = 1000001",
            "draft_minutes = 0",
            "draft_minutes = 1441",
            "output_url_minutes = 0",
            "output_url_minutes = 10081",
            "stop_grace_seconds = 601",
            "keep_days = 0",
            "keep_days = 3651",
        ] {
            let refused = parsed(&format!("[jobs]\n{wrong}")).unwrap().jobs.check().unwrap_err();
            let key = wrong.split(' ').next().unwrap();
            assert!(refused.0.starts_with(&format!("jobs.{key} must be ")), "{wrong}: {}", refused.0);
        }
        for (wrong, why) in [
            ("max_upload = 1", "unknown field"),
            ("max_files = -1", "invalid value"),
            ("keep_days = '30'", "invalid type"),
            ("max_log_gb = true", "invalid type"),
        ] {
            let refused = parsed(&format!("[jobs]\n{wrong}")).unwrap_err().to_string();
            assert!(refused.contains(why), "{wrong}: {refused}");
        }
    }
}
