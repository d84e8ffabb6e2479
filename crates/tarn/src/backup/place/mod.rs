//! A directory of backups.
//!
//! ```text
//! DIR/tarn-backups          marks the directory, and is locked while it is used
//! DIR/objects/xx/f-…        contents of objects, which the backups share; never changed
//! DIR/20261119T041500Z/     a backup: manifest.json, the database, the list of its objects, …
//! DIR/….partial/            a backup that is being made, or whose making was interrupted
//! ```
//!
//! A backup is complete when its directory has its final name, and that happens last.

pub(super) mod manifest;
pub(super) mod retention;
pub(super) mod sums;

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tarn_base::files;
use tarn_model::Time;
use tarn_model::ids::FileId;

use crate::failure::{Failure, Result};
use manifest::Manifest;

const MARK: &str = "tarn-backups";
const CONTENTS: &str = "objects";
/// The end of the name of an incomplete backup, and of a content that is being copied.
pub(in crate::backup) const PARTIAL: &str = ".partial";

/// A directory of backups, locked.
pub(in crate::backup) struct Place {
    pub(in crate::backup) path: PathBuf,
    _lock: File,
}

/// A backup that has its final name.
pub(in crate::backup) struct Backup {
    pub(in crate::backup) name: String,
    pub(in crate::backup) directory: PathBuf,
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
    /// Opens a directory to add a backup. No other process may use it meanwhile. A missing or empty directory is
    /// prepared; one with other content is refused.
    pub(in crate::backup) fn open_for_writing(path: &Path) -> Result<Place> {
        let shown = path.display();
        let failed = |e| Failure::with_cause(format!("cannot use {shown} for backups"), e);
        create_directory(path).map_err(failed)?;
        let mark = path.join(MARK);
        if !mark.exists() {
            let is_empty = fs::read_dir(path).map_err(failed)?.all(|entry| {
                entry.is_ok_and(|entry| {
                    let name = entry.file_name();
                    name == "lost+found" || name.to_string_lossy().starts_with(MARK)
                })
            });
            if !is_empty {
                return Err(Failure(format!(
                    "{shown} is not empty and has no backups; give an empty directory, or one that does not exist"
                )));
            }
            let beside = path.join(format!("{MARK}.{}", std::process::id()));
            files::replace_file(&mark, &beside, b"1\n", 0o600).map_err(failed)?;
        }
        create_directory(&path.join(CONTENTS)).map_err(failed)?;
        Place::lock(path, File::try_lock)
    }

    /// Opens a directory to read backups. Others may read, but not add or remove backups.
    pub(in crate::backup) fn open_for_reading(path: &Path) -> Result<Place> {
        if !path.join(MARK).exists() {
            return Err(Failure(format!("{} is not a directory of backups", path.display())));
        }
        Place::lock(path, File::try_lock_shared)
    }

    fn lock(path: &Path, lock: impl Fn(&File) -> std::result::Result<(), TryLockError>) -> Result<Place> {
        let failed = |e| Failure::with_cause(format!("cannot lock {}", path.display()), e);
        let file = File::open(path.join(MARK)).map_err(failed)?;
        match lock(&file) {
            Ok(()) => Ok(Place { path: path.to_owned(), _lock: file }),
            Err(TryLockError::WouldBlock) => {
                Err(Failure(format!("another process uses the backups in {}; try again later", path.display())))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Returns all complete backups, oldest first. One with a damaged manifest comes first.
    pub(in crate::backup) fn backups(&self) -> Result<Vec<Backup>> {
        let failed = |e| Failure::with_cause(format!("cannot read {}", self.path.display()), e);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let (name, directory) = (entry.file_name().to_string_lossy().into_owned(), entry.path());
            if is_backup_name(&name) && directory.is_dir() {
                found.push(Backup { name, manifest: Manifest::read(&directory), directory });
            }
        }
        found.sort_by(|left, right| left.order().cmp(&right.order()));
        Ok(found)
    }

    /// Returns the backup with this name, or the newest one.
    pub(in crate::backup) fn find(&self, name: Option<&str>) -> Result<Backup> {
        let mut all = self.backups()?;
        let shown = self.path.display();
        match name {
            Some(name) => all
                .into_iter()
                .find(|backup| backup.name == name)
                .ok_or_else(|| Failure(format!("{shown} has no backup {name}; `tarn admin backup list` shows them"))),
            None => all.pop().ok_or_else(|| Failure(format!("{shown} has no complete backup"))),
        }
    }

    /// Begins a backup: returns its name and the directory to fill.
    pub(in crate::backup) fn begin(&self, now: Time) -> Result<(String, PathBuf)> {
        let moment = now.to_string().replace(['-', ':'], "");
        let names = (1..).map(|number| if number == 1 { moment.clone() } else { format!("{moment}-{number}") });
        let free = |name: &String| !self.path.join(name).exists();
        let name = names.take(1000).find(free).ok_or_else(|| Failure("there is no free name".to_owned()))?;
        let directory = self.path.join(format!("{name}{PARTIAL}"));
        create_directory(&directory).map_err(|e| Failure::with_cause("cannot begin the backup", e))?;
        Ok((name, directory))
    }

    /// Gives a backup its final name. Everything in it must be on disk.
    pub(in crate::backup) fn publish(&self, name: &str, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()?;
        files::publish_file(directory, &self.path.join(name))
    }

    /// The path of the content of a file.
    pub(in crate::backup) fn content(&self, file: &FileId) -> PathBuf {
        self.contents().join(shard(file)).join(file.as_str())
    }

    /// The directory of all contents.
    pub(in crate::backup) fn contents(&self) -> PathBuf {
        self.path.join(CONTENTS)
    }
}

/// The name of the directory of a file, here and in the directory of objects.
pub(in crate::backup) fn shard(file: &FileId) -> &str {
    &file.as_str()[FileId::PREFIX.len()..][..2]
}

/// Creates a directory that only its owner can enter, unless it exists.
pub(in crate::backup) fn create_directory(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        created => created,
    }
}

/// Whether this is the name of a complete backup, such as `20261119T041500Z` or `20261119T041500Z-2`.
fn is_backup_name(name: &str) -> bool {
    let (moment, number) = name.split_once('-').unwrap_or((name, "2"));
    moment.len() == 16
        && moment.ends_with('Z')
        && moment.bytes().all(|byte| byte.is_ascii_digit() || b"TZ".contains(&byte))
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_backups_are_recognized() {
        let moment = Time::from_micros(1_794_774_000_000_000).to_string().replace(['-', ':'], "");
        assert!(is_backup_name(&moment), "{moment}");
        assert!(is_backup_name("20261119T041500Z-2"));
        for other in ["objects", "20261119T041500Z.partial", "20261119", "lost+found", "tarn-backups"] {
            assert!(!is_backup_name(other), "{other}");
        }
    }

    /// Only an empty directory becomes a directory of backups, and one process at a time writes into it.
    #[test]
    fn place_is_marked_and_locked() {
        let root = tempfile::tempdir().unwrap();
        let foreign = root.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("precious"), "").unwrap();
        assert!(Place::open_for_writing(&foreign).is_err_and(|e| e.0.contains("not empty")));
        assert!(Place::open_for_reading(&foreign).is_err());
        let path = root.path().join("backups");
        let first = Place::open_for_writing(&path).unwrap();
        assert!(Place::open_for_writing(&path).is_err_and(|e| e.0.contains("another process")));
        assert!(Place::open_for_reading(&path).is_err());
        assert!(first.find(None).is_err_and(|e| e.0.contains("no complete backup")));
        drop(first);
        let _readers = [Place::open_for_reading(&path).unwrap(), Place::open_for_reading(&path).unwrap()];
    }
}
