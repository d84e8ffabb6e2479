//! The record of the last backup, a file in the data directory. The engine and the doctor read it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tarn_base::files;
use tarn_model::Time;

use crate::failure::{Failure, Result};

const FILE: &str = "last-backup.json";

/// The last backup that was completed and verified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LastBackup {
    pub(crate) name: String,
    /// The directory of backups.
    pub(crate) directory: PathBuf,
    /// When its database was copied, in microseconds since 1970.
    pub(crate) created_us: i64,
}

impl LastBackup {
    /// The time up to which everything is in the backup.
    pub(crate) fn created(&self) -> Time {
        Time::from_micros(self.created_us)
    }

    /// Writes the record.
    pub(super) fn write(&self, data: &Path) -> Result<()> {
        let failed = |e| Failure::with_cause("the backup is complete, but its time could not be recorded", e);
        let text = serde_json::to_string(self).map_err(std::io::Error::other).map_err(failed)?;
        let (path, beside) = (data.join(FILE), data.join(format!("{FILE}.{}", std::process::id())));
        files::replace_file(&path, &beside, text.as_bytes(), 0o644).map_err(failed)
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
