//! What a place of backups does not need any more: leftovers, backups beyond those to be kept, and contents that no
//! backup names.

use std::collections::HashSet;

use super::{Backup, Place, content_key};
use crate::backup::parts::contents::read_list;
use crate::failure::{Failure, Result};

/// Removes what an interrupted backup left.
pub(in crate::backup) async fn remove_leftovers(place: &Place) -> Result<()> {
    let removed = place.medium.remove_leftovers().await;
    removed.map_err(|e| Failure::with_cause("cannot remove what an interrupted backup left", e))
}

/// Removes the oldest backups beyond `keep`, never the one that was just made, and then the contents that no backup
/// names. Returns the names of the removed backups.
pub(in crate::backup) async fn remove_old(place: &Place, keep: Option<u32>, newest: &str) -> Result<Vec<String>> {
    let failed = |e| Failure::with_cause("the backup is complete, but older ones could not be removed", e);
    let mut all = place.backups().await?;
    let excess = keep.map_or(0, |keep| all.len().saturating_sub(keep as usize));
    let old: Vec<String> =
        all.iter().filter(|backup| backup.name != newest).take(excess).map(|backup| backup.name.clone()).collect();
    for name in &old {
        place.medium.remove_backup(name).await.map_err(failed)?;
    }
    all.retain(|backup| !old.contains(&backup.name));
    remove_unused_contents(place, &all).await?;
    Ok(old)
}

/// Removes contents that none of these backups names. If a list cannot be read, all contents are kept.
async fn remove_unused_contents(place: &Place, backups: &[Backup]) -> Result<()> {
    let failed = |e| Failure::with_cause("the backup is complete, but what no backup needs could not be removed", e);
    let mut named = HashSet::new();
    for backup in backups {
        let Ok(list) = read_list(&*place.medium, &backup.name).await else {
            eprintln!("tarn: the list of backup {} cannot be read, so all contents are kept", backup.name);
            return Ok(());
        };
        named.extend(list.iter().map(|file| content_key(&file.file)));
    }
    let all = place.medium.contents().await.map_err(failed)?;
    let unused: Vec<String> = all.into_keys().filter(|key| !named.contains(key)).collect();
    if unused.is_empty() { Ok(()) } else { place.medium.remove_contents(unused).await.map_err(failed) }
}
