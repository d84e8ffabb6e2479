//! Directories that a restore fills under another name: created for one process at a time, and removed when that has
//! died.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tarn_base::files;
use tarn_driver::local::restored_pool;

use crate::data::ownership_mark;

/// The end of the name of a directory that is being prepared.
const PREPARED: &str = ".restoring";

/// The file in a data directory that is being prepared. It says what else belongs to the restore.
const RECORD: &str = "restoring.json";

/// That file until it is complete. Nothing else exists before it.
const UNFINISHED_RECORD: &str = "restoring.json.new";

/// A new directory that no other process removes or fills while this value lives.
pub(super) struct Prepared {
    pub(super) path: PathBuf,
    _lock: File,
}

impl Prepared {
    /// Creates a directory that only its owner can enter; `None` if there is one.
    pub(super) fn create(path: &Path) -> io::Result<Option<Prepared>> {
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
            Err(error) => return Err(error),
        }
        // Another process may take it for a leftover until it is locked.
        Prepared::lock(path)
    }

    /// Takes a directory that a dead process left; `None` if it is in use or does not exist.
    pub(super) fn lock(path: &Path) -> io::Result<Option<Prepared>> {
        let missing = |error: io::Error| if error.kind() == ErrorKind::NotFound { Ok(None) } else { Err(error) };
        let lock = match File::open(path) {
            Ok(lock) => lock,
            Err(error) => return missing(error),
        };
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // It may have been renamed or removed before it was locked.
        let locked = lock.metadata()?;
        match fs::symlink_metadata(path) {
            Ok(found) if (found.dev(), found.ino()) == (locked.dev(), locked.ino()) => {
                Ok(Some(Prepared { path: path.to_owned(), _lock: lock }))
            }
            Ok(_) => Ok(None),
            Err(error) => missing(error),
        }
    }
}

/// What belongs to a data directory that is being prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The mark of the directory of objects.
    pub(super) mark: String,
    /// The final name of the directory of objects, if it is new and not in the data directory.
    pub(super) objects: Option<PathBuf>,
    /// The pool, if it is not in the data directory.
    pub(super) pool: Option<PathBuf>,
}

impl Record {
    /// Writes the record into a directory that was just created.
    pub(super) fn write(&self, data: &Path) -> io::Result<()> {
        let unfinished = data.join(UNFINISHED_RECORD);
        files::write_file(&unfinished, &serde_json::to_vec(self).map_err(io::Error::other)?, 0o600)?;
        files::publish_file(&unfinished, &data.join(RECORD))
    }

    /// Removes the record of a restore that is complete.
    pub(super) fn remove(data: &Path) -> io::Result<()> {
        fs::remove_file(data.join(RECORD))
    }

    fn read(data: &Path) -> io::Result<Option<Record>> {
        match fs::read(data.join(RECORD)) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Removes what a restore prepared that was given up: the directory, and what it had outside of it.
pub(super) fn discard(data: Prepared) -> io::Result<()> {
    if let Some(record) = Record::read(&data.path)? {
        if let Some(pool) = &record.pool {
            restored_pool::abandon_pool(&data.path, pool)?;
        }
        if let Some(objects) = &record.objects {
            // The first of the two names to get its final one.
            for directory in [prepared_name(objects), objects.clone()] {
                discard_objects(&directory, &record.mark)?;
            }
        }
        return remove_tree_but(&data.path, RECORD);
    }
    // Nothing but the directory was created, or it is none of a restore.
    match fs::remove_file(data.path.join(UNFINISHED_RECORD)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::remove_dir(&data.path),
    }
}

/// Removes a directory of objects if it has the mark of the restore, or nothing but a mark that was not complete.
fn discard_objects(directory: &Path, mark: &str) -> io::Result<()> {
    let Some(locked) = Prepared::lock(directory)? else { return Ok(()) };
    if ownership_mark::read_mark(directory).map_err(|failure| io::Error::other(failure.0))?.as_deref() == Some(mark) {
        remove_tree_but(&locked.path, ownership_mark::MARK_FILE)
    } else if is_unmarked(directory)? {
        remove_tree(&locked.path)
    } else {
        Ok(())
    }
}

/// Whether a restore that created the directory died before it was marked.
fn is_unmarked(directory: &Path) -> io::Result<bool> {
    let mut entries = fs::read_dir(directory)?;
    let is_temporary = |name: std::ffi::OsString| ownership_mark::is_temporary_mark(&name.to_string_lossy());
    entries.try_fold(true, |is_so_far, entry| Ok(is_so_far && is_temporary(entry?.file_name())))
}

/// The directory in which another one is prepared.
pub(super) fn prepared_name(directory: &Path) -> PathBuf {
    let mut prepared = directory.as_os_str().to_owned();
    prepared.push(PREPARED);
    PathBuf::from(prepared)
}

/// Removes a directory, one file last, by which the next restore recognizes it if this process dies.
fn remove_tree_but(directory: &Path, last: &str) -> io::Result<()> {
    remove_content(directory, Some(last))?;
    remove_tree(directory)
}

/// Removes a directory of this process, and enters no other filesystem.
pub(super) fn remove_tree(directory: &Path) -> io::Result<()> {
    remove_content(directory, None)?;
    fs::remove_dir(directory)
}

fn remove_content(directory: &Path, kept: Option<&str>) -> io::Result<()> {
    let device = fs::symlink_metadata(directory)?.dev();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, found) = (entry.path(), fs::symlink_metadata(entry.path())?);
        if found.dev() != device {
            return Err(io::Error::other(format!("{} is on another filesystem", path.display())));
        }
        if kept.is_some_and(|kept| entry.file_name() == kept) {
            continue;
        }
        if found.is_dir() { remove_tree(&path)? } else { fs::remove_file(&path)? }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(objects: Option<PathBuf>) -> Record {
        Record { mark: "ours".to_owned(), objects, pool: None }
    }

    /// One process prepares a directory at a time; the next one takes what a dead one left.
    #[test]
    fn directory_is_prepared_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("deep/data.restoring");
        let first = Prepared::create(&path).unwrap().unwrap();
        assert!(Prepared::create(&path).unwrap().is_none() && Prepared::lock(&path).unwrap().is_none());
        drop(first);
        assert!(Prepared::create(&path).unwrap().is_none(), "what is there is not new");
        let left = Prepared::lock(&path).unwrap().unwrap();
        fs::rename(&path, place.path().join("data")).unwrap();
        assert!(Prepared::lock(&path).unwrap().is_none(), "it got its name");
        drop(left);
    }

    /// What a dead restore left is removed, and nothing that is not of it.
    #[test]
    fn leftovers_are_recognized() {
        let place = tempfile::tempdir().unwrap();
        let [data, objects] = ["data.restoring", "objects"].map(|name| place.path().join(name));
        // It was killed at once.
        drop(Prepared::create(&data).unwrap().unwrap());
        discard(Prepared::lock(&data).unwrap().unwrap()).unwrap();
        assert!(!data.exists());
        // It was killed while it wrote its record, or the mark of its objects.
        fs::create_dir(&data).unwrap();
        fs::write(data.join(UNFINISHED_RECORD), "{").unwrap();
        discard(Prepared::lock(&data).unwrap().unwrap()).unwrap();
        assert!(!data.exists());
        for directory in [&data, &prepared_name(&objects)] {
            fs::create_dir(directory).unwrap();
        }
        record(Some(objects.clone())).write(&data).unwrap();
        fs::write(prepared_name(&objects).join("installation.new"), "ou").unwrap();
        discard(Prepared::lock(&data).unwrap().unwrap()).unwrap();
        assert!(!data.exists() && !prepared_name(&objects).exists());
        // The directory of another program.
        fs::create_dir(&data).unwrap();
        fs::write(data.join("precious"), "").unwrap();
        discard(Prepared::lock(&data).unwrap().unwrap()).unwrap_err();
        assert!(data.join("precious").exists());
        // Its objects, under both of their names; and those of another installation.
        for (mark, is_removed) in [("ours", true), ("theirs", false)] {
            record(Some(objects.clone())).write(&data).unwrap();
            for name in [&objects, &prepared_name(&objects)] {
                fs::create_dir_all(name.join("aa")).unwrap();
                fs::write(name.join(ownership_mark::MARK_FILE), mark).unwrap();
            }
            discard(Prepared::lock(&data).unwrap().unwrap()).unwrap();
            assert!(!data.exists());
            assert_eq!([objects.exists(), prepared_name(&objects).exists()], [!is_removed; 2], "{mark}");
            fs::create_dir(&data).unwrap();
        }
    }
}
