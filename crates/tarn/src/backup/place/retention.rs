//! What a directory of backups does not need any more: leftovers, backups beyond those to be kept, and contents that no
//! backup names.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::{Backup, PARTIAL, Place};
use crate::backup::parts::contents::read_list;
use crate::failure::{Failure, Result};

/// Removes what an interrupted backup left.
pub(in crate::backup) fn remove_leftovers(place: &Place) -> Result<()> {
    let remove = || -> io::Result<()> {
        for entry in fs::read_dir(&place.path)? {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(PARTIAL) && path.is_dir() {
                remove_backup(&path)?;
            }
        }
        Ok(())
    };
    remove().map_err(|e| Failure::with_cause("cannot remove what an interrupted backup left", e))
}

/// Removes the oldest backups beyond `keep`, never the one that was just made, and then the contents that no backup
/// names. Returns the names of the removed backups.
pub(in crate::backup) fn remove_old(place: &Place, keep: Option<u32>, newest: &str) -> Result<Vec<String>> {
    let failed = |e: io::Error| Failure::with_cause("the backup is complete, but older ones could not be removed", e);
    let all = place.backups()?;
    let excess = keep.map_or(0, |keep| all.len().saturating_sub(keep as usize));
    let old: Vec<&Backup> = all.iter().filter(|backup| backup.name != newest).take(excess).collect();
    for backup in &old {
        // Without its name it is no backup any more, also if its removal is interrupted.
        let removed = place.path.join(format!("{}{PARTIAL}", backup.name));
        fs::rename(&backup.directory, &removed).and_then(|()| remove_backup(&removed)).map_err(failed)?;
    }
    remove_unused_contents(place).map_err(failed)?;
    Ok(old.into_iter().map(|backup| backup.name.clone()).collect())
}

/// Removes contents that no backup names. If a list cannot be read, all contents are kept.
fn remove_unused_contents(place: &Place) -> io::Result<()> {
    let mut named = HashSet::new();
    for backup in place.backups().map_err(|failure| io::Error::other(failure.0))? {
        let Ok(list) = read_list(&backup.directory) else {
            eprintln!("tarn: the list of backup {} cannot be read, so all contents are kept", backup.name);
            return Ok(());
        };
        named.extend(list.into_iter().map(|file| file.file.to_string()));
    }
    for shard in fs::read_dir(place.contents())? {
        let shard = shard?.path();
        for content in fs::read_dir(&shard)? {
            let content = content?;
            if !named.contains(&*content.file_name().to_string_lossy()) {
                fs::remove_file(content.path())?;
            }
        }
    }
    Ok(())
}

/// Removes the directory of a backup, which has only files. Nothing below it is entered.
fn remove_backup(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        fs::remove_file(entry?.path())?;
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
