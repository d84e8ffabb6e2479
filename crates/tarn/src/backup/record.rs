//! The record of the last backup, a file in the data directory. The engine and the doctor read it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tarn_base::{files, plain};
use tarn_model::Time;

use crate::failure::{Failure, Result};

const FILE: &str = "last-backup.json";

/// The most characters of a fault that are recorded.
const MAX_SHOWN: usize = 300;

/// The last backup that was completed and verified, and what was found later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastBackup {
    pub(crate) name: String,
    /// The directory of backups, or the address of a bucket.
    pub(crate) directory: PathBuf,
    /// When its database was copied, in microseconds since 1970.
    pub(crate) created_us: i64,
    /// What a later verification found wrong with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) damaged: Option<String>,
}

impl LastBackup {
    /// A backup that was just made.
    pub(super) fn new(name: String, directory: PathBuf, created_us: i64) -> LastBackup {
        LastBackup { name, directory, created_us, damaged: None }
    }

    /// Records what a verification found, if the backup is the last one of the installation in this data directory.
    pub(super) fn record_verified(data: &Path, name: &str, directory: &Path, damaged: Option<&str>) {
        let Ok(Some(last)) = LastBackup::read(data) else { return };
        let damaged = damaged.map(|fault| plain(fault, MAX_SHOWN).into_owned());
        if last.name != name || last.directory != directory || last.damaged.is_some() == damaged.is_some() {
            return;
        }
        if let Err(failure) = (LastBackup { damaged, ..last }).write_record(data) {
            eprintln!("tarn: what was found cannot be recorded in {}: {failure}", data.display());
        }
    }

    /// The time up to which everything is in the backup.
    pub(crate) fn created(&self) -> Time {
        Time::from_micros(self.created_us)
    }

    /// Writes the record.
    pub(super) fn write(&self, data: &Path) -> Result<()> {
        let failed = |e| Failure::with_cause("the backup is complete, but its time could not be recorded", e);
        self.write_record(data).map_err(failed)
    }

    fn write_record(&self, data: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string(self).map_err(std::io::Error::other)?;
        let (path, beside) = (data.join(FILE), data.join(format!("{FILE}.{}", std::process::id())));
        files::replace_file(&path, &beside, text.as_bytes(), 0o644)
    }

    /// Reads the record; `None` if there was no backup yet.
    pub(crate) fn read(data: &Path) -> std::io::Result<Option<LastBackup>> {
        match std::fs::read(data.join(FILE)) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(std::io::Error::other),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
