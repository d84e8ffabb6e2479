//! The `[object_storage]` section and `s3_listen`: address, directory and limits of object storage.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tarn_model::Time;
use tarn_model::ids::OrgId;
use tarn_objects::Settings;

use super::Config;
use crate::failure::{Failure, Result};

/// A larger number is a mistake, and its sums would overflow.
const MAX_GB: u64 = 1_000_000_000;
const MAX_DAYS: u64 = 3650;

/// The address of S3, if it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum S3Listen {
    At(SocketAddr),
    Nowhere,
}

/// The `[object_storage]` section.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ObjectStorage {
    /// Directory of the objects; below the data directory when absent.
    directory: Option<PathBuf>,
    /// Quota of each organization.
    quota_gb: Option<u64>,
    /// Quotas of single organizations, by ID.
    quotas_gb: BTreeMap<OrgId, u64>,
    /// Free space that is kept on the disk.
    reserve_mb: u64,
    /// Age at which an unfinished multipart upload is removed.
    abandoned_upload_days: u64,
    /// When the keys stop working that all members of an organization share.
    legacy_keys_until: Option<String>,
}

impl Default for S3Listen {
    fn default() -> Self {
        S3Listen::At(SocketAddr::from(([127, 0, 0, 1], 7071)))
    }
}

impl FromStr for S3Listen {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "none" => Ok(S3Listen::Nowhere),
            _ => text
                .parse()
                .map(S3Listen::At)
                .map_err(|_| format!("'{text}' is not an address such as 127.0.0.1:7071, nor 'none'")),
        }
    }
}

impl From<S3Listen> for String {
    fn from(listen: S3Listen) -> String {
        match listen {
            S3Listen::At(address) => address.to_string(),
            S3Listen::Nowhere => "none".to_owned(),
        }
    }
}

impl TryFrom<String> for S3Listen {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl Default for ObjectStorage {
    fn default() -> Self {
        let quotas_gb = BTreeMap::new();
        ObjectStorage {
            directory: None,
            quota_gb: None,
            quotas_gb,
            reserve_mb: 256,
            abandoned_upload_days: 7,
            legacy_keys_until: None,
        }
    }
}

impl ObjectStorage {
    pub(super) fn check(&self) -> Result<()> {
        for (what, value, limit) in [
            ("quota_gb", self.quota_gb.unwrap_or(1), MAX_GB),
            ("abandoned_upload_days", self.abandoned_upload_days, MAX_DAYS),
        ] {
            if !(1..=limit).contains(&value) {
                return Err(Failure(format!("object_storage.{what} must be at least 1 and at most {limit}")));
            }
        }
        for (org, quota) in &self.quotas_gb {
            if !(1..=MAX_GB).contains(quota) {
                return Err(Failure(format!("object_storage.quotas_gb.{org} must be at least 1 and at most {MAX_GB}")));
            }
        }
        self.legacy_keys_until.as_deref().map(parse_date).transpose()?;
        if self.reserve_mb <= MAX_GB {
            Ok(())
        } else {
            Err(Failure(format!("object_storage.reserve_mb must be at most {MAX_GB}")))
        }
    }
}

impl Config {
    /// The objects directory.
    pub(crate) fn objects_directory(&self) -> PathBuf {
        // A relative path is resolved against the data directory.
        self.data.join(self.object_storage.directory.as_deref().unwrap_or(Path::new("objects")))
    }

    /// The settings of object storage.
    pub(crate) fn objects_settings(&self) -> Settings {
        let own = &self.object_storage;
        let quotas = own.quotas_gb.iter().map(|(org, gb)| (org.clone(), gb * 1_000_000_000));
        Settings {
            quota_bytes: own.quota_gb.map(|gb| gb * 1_000_000_000),
            quotas_bytes: quotas.collect(),
            reserve_bytes: own.reserve_mb * 1_000_000,
            abandoned_after: Duration::from_secs(own.abandoned_upload_days * 24 * 3600),
            legacy_keys_until: own.legacy_keys_until.as_deref().and_then(|date| parse_date(date).ok()),
            ..Settings::default()
        }
    }
}

/// Parses a date of RFC 3339; without a time it is the midnight that begins the day in UTC.
fn parse_date(text: &str) -> Result<Time> {
    let full = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let parsed = full.parse::<jiff::Timestamp>().map(|date| Time::from_micros(date.as_microsecond()));
    parsed.map_err(|_| {
        Failure("object_storage.legacy_keys_until must be a date such as \"2027-01-31T00:00:00Z\"".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<Config, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn s3_listen_is_an_address_or_none() {
        assert_eq!(parsed("").unwrap().s3_listen, S3Listen::At(SocketAddr::from(([127, 0, 0, 1], 7071))));
        assert_eq!(parsed("s3_listen = 'none'").unwrap().s3_listen, S3Listen::Nowhere);
        assert_eq!(
            parsed("s3_listen = '0.0.0.0:9000'").unwrap().s3_listen,
            S3Listen::At(SocketAddr::from(([0, 0, 0, 0], 9000)))
        );
        for wrong in ["''", "'7071'", "'localhost:7071'", "false"] {
            assert!(parsed(&format!("s3_listen = {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_become_bytes_and_time() {
        let config = parsed("[object_storage]\nquota_gb = 2\nreserve_mb = 1\nabandoned_upload_days = 3").unwrap();
        config.object_storage.check().unwrap();
        let settings = config.objects_settings();
        assert_eq!((settings.quota_bytes, settings.reserve_bytes), (Some(2_000_000_000), 1_000_000));
        assert_eq!(settings.abandoned_after, Duration::from_secs(3 * 24 * 3600));
        let plain = parsed("data = 'd'").unwrap();
        assert_eq!((plain.objects_settings().quota_bytes, plain.objects_directory()), (None, "d/objects".into()));
        let own = "o-0123456789ab";
        let several =
            parsed(&format!("[object_storage]\nquota_gb = 2\n[object_storage.quotas_gb]\n{own} = 30")).unwrap();
        several.object_storage.check().unwrap();
        assert_eq!(several.objects_settings().quotas_bytes.get(&own.parse().unwrap()), Some(&30_000_000_000));
        let unknown = parsed("[object_storage.quotas_gb]\nacme = 3").unwrap_err();
        assert!(unknown.to_string().contains("followed by 12 characters"), "names may change: {unknown}");
        let nothing = parsed(&format!("[object_storage.quotas_gb]\n{own} = 0")).unwrap();
        assert!(nothing.object_storage.check().is_err());
        for (text, shown) in
            [("2027-01-31", "2027-01-31T00:00:00Z"), ("2027-01-31T05:00:00+02:00", "2027-01-31T03:00:00Z")]
        {
            let dated = parsed(&format!("[object_storage]\nlegacy_keys_until = '{text}'")).unwrap();
            dated.object_storage.check().unwrap();
            assert_eq!(dated.objects_settings().legacy_keys_until.unwrap().to_string(), shown);
        }
        let elsewhere = parsed("[object_storage]\ndirectory = '/srv/objects'").unwrap();
        assert_eq!(elsewhere.objects_directory(), PathBuf::from("/srv/objects"));
    }
}
