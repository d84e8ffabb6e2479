//! Local directories of a process that backs up to a bucket, or reads from one.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use tarn_model::Ids as _;

use crate::environment::RandomIds;

const PREFIX: &str = "tarn-backup-scratch-";

/// A directory that is removed with this value. One that a killed process left is removed by the next process that
/// needs one at the same place.
pub(in crate::backup) struct Scratch {
    pub(super) path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Creates a directory below `parent` that only its owner can enter.
    pub(super) fn create(parent: &Path) -> io::Result<Scratch> {
        remove_abandoned(parent)?;
        loop {
            let path = parent.join(format!("{PREFIX}{:016x}", RandomIds.bits()));
            DirBuilder::new().mode(0o700).create(&path)?;
            let lock = File::open(&path).and_then(|file| Ok(file.try_lock()?).map(|()| file));
            // Another process may have taken it for abandoned before it was locked.
            match lock {
                Ok(lock) if path.exists() => return Ok(Scratch { path, _lock: lock }),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What remains is removed by the next process.
        let _ = remove_flat(&self.path);
    }
}

/// Removes the directories of processes that do not run any more. Those of other users are not touched.
fn remove_abandoned(parent: &Path) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let path = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let is_own = found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0;
        if is_own
            && let Ok(directory) = File::open(&path)
            && directory.try_lock().is_ok()
        {
            remove_flat(&path)?;
        }
    }
    Ok(())
}

/// Removes a directory that has only files. Nothing below it is entered.
pub(super) fn remove_flat(directory: &Path) -> io::Result<()> {
    let absent = |error: io::Error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) };
    let entries = match fs::read_dir(directory) {
        Err(error) => return absent(error),
        Ok(entries) => entries,
    };
    for entry in entries {
        fs::remove_file(entry?.path()).or_else(absent)?;
    }
    fs::remove_dir(directory).or_else(absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory lives as long as its value, and one that was left by a process that was killed until the next.
    #[test]
    fn abandoned_directories_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let first = Scratch::create(parent.path()).unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        DirBuilder::new().mode(0o700).create(&left).unwrap();
        fs::write(left.join("file"), "x").unwrap();
        let others = parent.path().join(format!("{PREFIX}others"));
        DirBuilder::new().mode(0o755).create(&others).unwrap();
        let link = parent.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&others, &link).unwrap();
        let second = Scratch::create(parent.path()).unwrap();
        assert!(first.path.exists() && second.path.exists() && !left.exists() && others.exists() && link.is_symlink());
        fs::write(first.path.join("file"), "x").unwrap();
        let path = first.path.clone();
        drop(first);
        assert!(!path.exists());
    }
}
