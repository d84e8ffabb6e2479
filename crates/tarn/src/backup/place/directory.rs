//! A directory of backups.
//!
//! ```text
//! DIR/tarn-backups          marks the directory, and is locked while it is used
//! DIR/objects/xx/f-…        contents of objects, which the backups share; never changed
//! DIR/20261119T041500Z/     a backup: manifest.json, the database, the list of its objects, …
//! DIR/….partial/            a backup that is being made, or whose making was interrupted
//! DIR/reread.next           a note for the next backup
//! ```
//!
//! A backup is complete when its directory has its final name, and that happens last.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use tarn_base::files;
use tarn_model::ids::FileId;
use tarn_store::backup::NamedFile;

use super::medium::{Brought, LocalFile, Medium, Trace, is_expected};
use super::scratch::remove_flat;
use super::sums::{FileSum, copy_with_md5, md5_of};
use super::{CONTENTS, MARK, PARTIAL, content_key, is_backup_name, shard};
use crate::backup::parts::volumes::copy_volume;
use crate::failure::{Failure, Result};

/// A directory of backups, locked.
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Opens a directory to add a backup. No other process may use it meanwhile. A missing or empty directory is
    /// prepared; one with other content is refused.
    pub(super) fn open_for_writing(path: &Path) -> Result<Directory> {
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
        Directory::lock(path, File::try_lock)
    }

    /// Opens a directory to read backups. Others may read, but not add or remove backups.
    pub(super) fn open_for_reading(path: &Path) -> Result<Directory> {
        if !path.join(MARK).exists() {
            return Err(Failure(format!("{} is not a directory of backups", path.display())));
        }
        Directory::lock(path, File::try_lock_shared)
    }

    fn lock(path: &Path, lock: impl Fn(&File) -> std::result::Result<(), TryLockError>) -> Result<Directory> {
        let failed = |e| Failure::with_cause(format!("cannot lock {}", path.display()), e);
        let file = File::open(path.join(MARK)).map_err(failed)?;
        match lock(&file) {
            Ok(()) => Ok(Directory { path: path.to_owned(), _lock: file }),
            Err(TryLockError::WouldBlock) => {
                Err(Failure(format!("another process uses the backups in {}; try again later", path.display())))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    fn content(&self, file: &FileId) -> PathBuf {
        self.path.join(CONTENTS).join(content_key(file))
    }

    fn file(&self, name: &str, file: &str) -> PathBuf {
        self.path.join(name).join(file)
    }

    /// Whether a path below the directory is a directory on the same filesystem, and not a link to one.
    fn is_own_directory(&self, path: &Path) -> io::Result<bool> {
        let found = fs::symlink_metadata(path)?;
        Ok(found.is_dir() && found.dev() == fs::metadata(&self.path)?.dev())
    }
}

#[async_trait]
impl Medium for Directory {
    async fn backup_names(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_backup_name(&name) && entry.path().is_dir() {
                found.push(name);
            }
        }
        Ok(found)
    }

    async fn begin(&self, name: &str) -> io::Result<PathBuf> {
        let directory = self.path.join(format!("{name}{PARTIAL}"));
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        Ok(directory)
    }

    fn staging(&self) -> &'static str {
        "the backups"
    }

    async fn store_early(&self, _: &str, _: &Path, _: &str) -> io::Result<()> {
        Ok(())
    }

    async fn publish(&self, name: &str, staged: &Path) -> io::Result<()> {
        // Also the name of a content that was there before may not be on disk: the backup that brought it may have been
        // killed.
        let contents = self.path.join(CONTENTS);
        for shard in fs::read_dir(&contents)? {
            File::open(shard?.path())?.sync_all()?;
        }
        File::open(contents)?.sync_all()?;
        File::open(staged)?.sync_all()?;
        files::publish_file(staged, &self.path.join(name))
    }

    async fn remove_leftovers(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_leftover = name.strip_suffix(PARTIAL).is_some_and(is_backup_name);
            // What a link leads to, and what is mounted there, was not made by a backup.
            if is_leftover && self.is_own_directory(&entry.path())? {
                remove_flat(&entry.path())?;
            }
        }
        Ok(())
    }

    async fn remove_backup(&self, name: &str) -> io::Result<()> {
        // Without its name it is no backup any more, also if its removal is interrupted.
        let removed = self.path.join(format!("{name}{PARTIAL}"));
        fs::rename(self.path.join(name), &removed)?;
        if self.is_own_directory(&removed)? { remove_flat(&removed) } else { Ok(()) }
    }

    async fn read_file(&self, name: &str, file: &str) -> io::Result<Vec<u8>> {
        fs::read(self.file(name, file))
    }

    async fn file_sum(&self, name: &str, file: &str) -> io::Result<FileSum> {
        FileSum::of(&self.path.join(name), file)
    }

    async fn copy_file(&self, name: &str, file: &str, to: &Path) -> io::Result<()> {
        if copy_volume(&self.file(name, file), to, false)? {
            return Ok(());
        }
        Err(io::Error::other("the backup was changed meanwhile"))
    }

    async fn local_file(&self, name: &str, file: &str) -> io::Result<LocalFile> {
        Ok(LocalFile { path: self.file(name, file), _scratch: None })
    }

    async fn contents(&self) -> io::Result<HashMap<String, u64>> {
        let mut found = HashMap::new();
        for shard in fs::read_dir(self.path.join(CONTENTS))? {
            let shard = shard?;
            for content in fs::read_dir(shard.path())? {
                let content = content?;
                let (shard, name) = (shard.file_name(), content.file_name());
                let key = format!("{}/{}", shard.to_string_lossy(), name.to_string_lossy());
                found.insert(key, content.metadata()?.len());
            }
        }
        Ok(found)
    }

    async fn bring(&self, file: &NamedFile, source: &Path) -> io::Result<Brought> {
        let path = self.content(&file.file);
        create_directory(&self.path.join(CONTENTS).join(shard(&file.file)))?;
        let beside = incomplete_name(&path);
        let (is_linked, (bytes, md5)) = match link_or_copy(source, &beside) {
            Ok(brought) => brought,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Brought::Missing),
            Err(error) => return Err(error),
        };
        if !is_expected(file, bytes, &md5) {
            fs::remove_file(&beside)?;
            return Ok(Brought::Damaged);
        }
        fs::rename(&beside, &path)?;
        Ok(Brought::Stored { is_linked, md5 })
    }

    async fn content_sum(&self, file: &FileId) -> io::Result<(u64, String)> {
        md5_of(&self.content(file))
    }

    async fn copy_content(&self, file: &FileId, to: &Path, may_link: bool) -> io::Result<(u64, String)> {
        let content = self.content(file);
        if may_link && fs::hard_link(&content, to).is_ok() { md5_of(to) } else { copy_with_md5(&content, to) }
    }

    async fn remove_contents(&self, keys: Vec<String>) -> io::Result<()> {
        keys.iter().try_for_each(|key| fs::remove_file(self.path.join(CONTENTS).join(key)))
    }

    async fn read_note(&self, note: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.path.join(note)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write_note(&self, note: &str, text: &str) -> io::Result<()> {
        let beside = self.path.join(format!("{note}{PARTIAL}"));
        files::replace_file(&self.path.join(note), &beside, text.as_bytes(), 0o600)
    }

    fn says_damage(&self, _: &io::Error) -> bool {
        true
    }

    fn trace(&self) -> Option<Trace> {
        None
    }

    async fn close(&self) {}
}

/// Creates a directory that only its owner can enter, unless it exists.
pub(in crate::backup) fn create_directory(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        created => created,
    }
}

/// The name of a content until it was compared.
fn incomplete_name(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(PARTIAL);
    PathBuf::from(beside)
}

/// Links a file to a new name, or copies it where that is not possible. Returns whether it was linked, and its size and
/// MD5.
fn link_or_copy(source: &Path, path: &Path) -> io::Result<(bool, (u64, String))> {
    // A backup that was killed may have left it.
    fs::remove_file(path).or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    match fs::hard_link(source, path) {
        Ok(()) => return md5_of(path).map(|found| (true, found)),
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
        // Another filesystem, one without links, too many links, or the file of another user.
        Err(_) => {}
    }
    let found = copy_with_md5(source, path).inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok((false, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only an empty directory becomes a directory of backups, and one process at a time writes into it.
    #[test]
    fn place_is_marked_and_locked() {
        let root = tempfile::tempdir().unwrap();
        let foreign = root.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("precious"), "").unwrap();
        assert!(Directory::open_for_writing(&foreign).is_err_and(|e| e.0.contains("not empty")));
        assert!(Directory::open_for_reading(&foreign).is_err());
        let path = root.path().join("backups");
        let first = Directory::open_for_writing(&path).unwrap();
        assert!(Directory::open_for_writing(&path).is_err_and(|e| e.0.contains("another process")));
        assert!(Directory::open_for_reading(&path).is_err());
        drop(first);
        let _readers = [Directory::open_for_reading(&path).unwrap(), Directory::open_for_reading(&path).unwrap()];
    }

    /// What a link with the name of a leftover leads to is not touched.
    #[tokio::test]
    async fn leftovers_are_own_directories() {
        let root = tempfile::tempdir().unwrap();
        let place = Directory::open_for_writing(&root.path().join("backups")).unwrap();
        let precious = root.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "x").unwrap();
        let link = place.path.join("20261119T041500Z.partial");
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        let other = place.path.join("photos.partial");
        fs::create_dir(&other).unwrap();
        let left = place.begin("20261119T041501Z").await.unwrap();
        fs::write(left.join("tarn.db"), "x").unwrap();
        place.remove_leftovers().await.unwrap();
        assert!(precious.join("file").exists() && link.is_symlink() && other.exists() && !left.exists());
    }
}
