//! A place of backups: a directory or a bucket, and what both have in common.
//!
//! A place has the contents of objects once, under names that never change, and for each backup the rest under the name
//! of the backup. Start reading at [`medium`] for what a directory and a bucket must be able to do.

mod bucket;
pub(super) mod directory;
pub(super) mod location;
pub(super) mod manifest;
pub(super) mod medium;
pub(super) mod retention;
mod scratch;
pub(super) mod sums;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use tarn_base::plain;
use tarn_model::Time;
use tarn_model::ids::FileId;

use crate::failure::{Failure, Result};
use bucket::Bucket;
use directory::Directory;
use location::Location;
use manifest::Manifest;
use medium::Medium;

const MARK: &str = "tarn-backups";
const CONTENTS: &str = "objects";
/// The end of the name of an incomplete backup, and of a content that is being copied.
const PARTIAL: &str = ".partial";

/// A place of backups.
pub(in crate::backup) struct Place {
    pub(in crate::backup) medium: Box<dyn Medium>,
    shown: String,
}

/// A complete backup.
pub(in crate::backup) struct Backup {
    pub(in crate::backup) name: String,
    /// The manifest, or what is wrong with it.
    pub(in crate::backup) manifest: std::result::Result<Manifest, String>,
}

impl Backup {
    /// When it was made, and its name, which order backups.
    fn order(&self) -> (i64, &str) {
        (self.manifest.as_ref().map_or(i64::MIN, |manifest| manifest.created_us), &self.name)
    }
}

impl Place {
    /// Opens a place to add a backup. No other process may add or remove backups meanwhile. An empty place is prepared;
    /// one with other content is refused. `scratch` is where local files may be.
    pub(in crate::backup) async fn open_for_writing(location: &Location, scratch: &Path) -> Result<Place> {
        let medium: Box<dyn Medium> = match location {
            Location::Directory(path) => Box::new(Directory::open_for_writing(path)?),
            Location::Bucket(address) => Box::new(Bucket::open_for_writing(address, scratch).await?),
        };
        Ok(Place { medium, shown: location.absolute().display().to_string() })
    }

    /// Opens a place to read backups.
    pub(in crate::backup) async fn open_for_reading(location: &Location) -> Result<Place> {
        let medium: Box<dyn Medium> = match location {
            Location::Directory(path) => Box::new(Directory::open_for_reading(path)?),
            Location::Bucket(address) => Box::new(Bucket::open_for_reading(address, &std::env::temp_dir()).await?),
        };
        Ok(Place { medium, shown: location.absolute().display().to_string() })
    }

    /// Returns all complete backups, oldest first. One with a damaged manifest comes first.
    pub(in crate::backup) async fn backups(&self) -> Result<Vec<Backup>> {
        let failed = |e| Failure::with_cause(format!("cannot read {}", self.shown), e);
        let mut found = Vec::new();
        for name in self.medium.backup_names().await.map_err(failed)? {
            let manifest = Manifest::read(&*self.medium, &name).await.map_err(failed)?;
            found.push(Backup { name, manifest });
        }
        found.sort_by(|left, right| left.order().cmp(&right.order()));
        Ok(found)
    }

    /// Returns the backup with this name, or the newest one.
    pub(in crate::backup) async fn find(&self, name: Option<&str>) -> Result<Backup> {
        let mut all = self.backups().await?;
        match name {
            Some(name) => all.into_iter().find(|backup| backup.name == name).ok_or_else(|| self.has_no(name)),
            None => all.pop().ok_or_else(|| Failure(format!("{} has no complete backup", self.shown))),
        }
    }

    /// The failure that there is no such backup.
    pub(in crate::backup) fn has_no(&self, name: &str) -> Failure {
        let name = plain(name, 100);
        Failure(format!("{} has no backup {name}; `tarn admin backup list` shows them", self.shown))
    }

    /// Fails if a backup was removed since it was found: what is missing then is not damage.
    pub(in crate::backup) async fn refuse_removed(&self, backup: &Backup) -> Result<()> {
        let names = self.medium.backup_names().await;
        let names = names.map_err(|e| Failure::with_cause(format!("cannot read {}", self.shown), e))?;
        if names.contains(&backup.name) {
            return Ok(());
        }
        Err(Failure(format!("backup {} was removed meanwhile; try again", backup.name)))
    }

    /// Begins a backup: returns its name and the local directory to fill.
    pub(in crate::backup) async fn begin(&self, now: Time) -> Result<(String, PathBuf)> {
        let failed = |e| Failure::with_cause("cannot begin the backup", e);
        let taken = self.medium.backup_names().await.map_err(failed)?;
        let moment = now.to_string().replace(['-', ':'], "");
        let mut names = (1..).map(|number| if number == 1 { moment.clone() } else { format!("{moment}-{number}") });
        let name = names.find(|name| !taken.contains(name)).unwrap_or(moment.clone());
        let directory = self.medium.begin(&name).await.map_err(failed)?;
        Ok((name, directory))
    }
}

/// The name of the directory of a file, here and in the directory of objects.
pub(in crate::backup) fn shard(file: &FileId) -> &str {
    &file.as_str()[FileId::PREFIX.len()..][..2]
}

/// The name of a content among all contents.
pub(in crate::backup) fn content_key(file: &FileId) -> String {
    format!("{}/{}", shard(file), file.as_str())
}

/// Whether this is the name of a complete backup, such as `20261119T041500Z` or `20261119T041500Z-2`.
fn is_backup_name(name: &str) -> bool {
    let (moment, number) = name.split_once('-').unwrap_or((name, "2"));
    moment.len() == 16
        && moment.ends_with('Z')
        && moment.bytes().all(|byte| byte.is_ascii_digit() || b"TZ".contains(&byte))
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod names {
    use super::*;

    #[test]
    fn names_of_backups_are_recognized() {
        let moment = Time::from_micros(1_794_774_000_000_000).to_string().replace(['-', ':'], "");
        assert!(is_backup_name(&moment), "{moment}");
        assert!(is_backup_name("20261119T041500Z-2"));
        for other in
            ["objects", "20261119T041500Z.partial", "20261119", "lost+found", "tarn-backups", "20261119T041500Z-"]
        {
            assert!(!is_backup_name(other), "{other}");
        }
    }
}
