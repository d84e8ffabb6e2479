//! The removal of orphans: files that no row refers to. The caller knows the rows; this module does not.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_model::Time;
use tarn_model::ids::FileId;

use super::backup_hold::Removal;
use super::directory::{Directory, shard_name};

/// The number of files checked at a time.
const BATCH: usize = 500;

/// The maximum number of files that are remembered because a backup needed them.
const MAX_LEFT: usize = 1 << 17;

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The number of files found.
    pub seen: u64,
    /// The number of files removed.
    pub removed: u64,
    /// Whether a backup held the files, so that some of them were not examined.
    pub was_held: bool,
}

/// Files whose rows this process removed while a backup needed the files. They need not grow old to be orphans.
#[derive(Default)]
pub(super) struct LeftByBackup(Mutex<HashSet<FileId>>);

impl LeftByBackup {
    /// Remembers files. More than the limit wait until they are old, as those of another process do.
    pub(super) fn add(&self, files: Vec<FileId>) {
        let mut left = self.0.lock();
        let room = MAX_LEFT.saturating_sub(left.len());
        left.extend(files.into_iter().take(room));
    }

    fn all(&self) -> Vec<FileId> {
        self.0.lock().iter().cloned().collect()
    }

    fn forget(&self, files: &[FileId]) {
        let mut left = self.0.lock();
        for file in files {
            left.remove(file);
        }
    }
}

pub(super) async fn sweep<F, Fut, E>(
    directory: &Arc<Directory>,
    left: &LeftByBackup,
    grace: Duration,
    now: Time,
    mut referenced: F,
) -> Result<Swept, E>
where
    F: FnMut(Vec<FileId>) -> Fut,
    Fut: Future<Output = Result<HashSet<FileId>, E>>,
    E: From<io::Error>,
{
    let mut swept = Swept::default();
    for batch in left.all().chunks(BATCH) {
        let Some(removed) = remove_orphans(directory, batch, None, now, &mut referenced).await? else {
            return Ok(Swept { was_held: true, ..swept });
        };
        left.forget(&removed);
        swept.removed += removed.len() as u64;
    }
    let shards = on_blocking_thread(directory, |directory| directory.entry_names(None)).await?;
    for shard in shards.into_iter().filter(|name| name.len() == 2 && name != "..") {
        let (seen, files) =
            on_blocking_thread(directory, move |directory| orphan_candidates(directory, &shard)).await?;
        swept.seen += seen;
        for batch in files.chunks(BATCH) {
            let before = Some(now.before(grace));
            let Some(removed) = remove_orphans(directory, batch, before, now, &mut referenced).await? else {
                return Ok(Swept { was_held: true, ..swept });
            };
            swept.removed += removed.len() as u64;
        }
    }
    Ok(swept)
}

/// Removes those of the files that have no row and have not changed since `before`, and returns them. `None` if a
/// backup holds the files.
async fn remove_orphans<F, Fut, E>(
    directory: &Arc<Directory>,
    batch: &[FileId],
    before: Option<Time>,
    now: Time,
    referenced: &mut F,
) -> Result<Option<Vec<FileId>>, E>
where
    F: FnMut(Vec<FileId>) -> Fut,
    Fut: Future<Output = Result<HashSet<FileId>, E>>,
    E: From<io::Error>,
{
    // From before the rows are read until the files are removed, no backup can begin to need them.
    let removal = on_blocking_thread(directory, move |directory| directory.begin_sweep(now)).await?;
    if matches!(removal, Removal::Held) {
        return Ok(None);
    }
    let known = referenced(batch.to_vec()).await?;
    let orphans: Vec<_> = batch.iter().filter(|file| !known.contains(file)).cloned().collect();
    let removed = on_blocking_thread(directory, move |directory| Ok(remove_old(directory, orphans, before))).await?;
    drop(removal);
    Ok(Some(removed))
}

/// Returns the number of files of a subdirectory, and those that may be orphans.
///
/// A file that is in flight may get its row at any time. A file that is not in flight has its row already or never gets
/// one, so the rows are checked after this, never before.
fn orphan_candidates(directory: &Directory, shard: &str) -> io::Result<(u64, Vec<FileId>)> {
    let names = directory.entry_names(Some(shard))?;
    // An entry with another kind of name was not created here and must not be removed.
    let files = names.iter().filter_map(|name| name.parse::<FileId>().ok()).filter(|file| shard_name(file) == shard);
    let files: Vec<_> = files.collect();
    let seen = files.len() as u64;
    let in_flight = directory.in_flight();
    Ok((seen, files.into_iter().filter(|file| !in_flight.contains(file)).collect()))
}

/// Removes those of the files that have not changed since `before`, and returns them. Younger files may be in flight
/// in another process, or their removal may be.
fn remove_old(directory: &Directory, mut orphans: Vec<FileId>, before: Option<Time>) -> Vec<FileId> {
    orphans.retain(|file| {
        let is_old = directory.changed_us(file).map(|changed| match (changed, before) {
            (Some(changed), Some(before)) => changed <= before.as_micros(),
            (changed, _) => changed.is_some(),
        });
        let removed = match is_old {
            Ok(true) => directory.remove(file).map(|()| true),
            kept => kept,
        };
        removed.unwrap_or_else(|error| {
            tracing::warn!(%file, %error, "an orphaned file cannot be removed");
            false
        })
    });
    orphans
}

async fn on_blocking_thread<T: Send + 'static>(
    directory: &Arc<Directory>,
    work: impl FnOnce(&Directory) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let directory = directory.clone();
    tokio::task::spawn_blocking(move || work(&directory)).await.map_err(io::Error::other).flatten()
}
