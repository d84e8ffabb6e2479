//! The removal of orphans: files that no row names. Whoever knows the rows is asked; rows themselves are not known here.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tarn_model::Time;
use tarn_model::ids::FileId;

use super::directory::{Directory, shard_name};

/// How many files are asked for at a time.
const BATCH: usize = 500;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// How many files it saw.
    pub seen: u64,
    /// How many it removed.
    pub removed: u64,
}

pub(super) async fn sweep<F, Fut, E>(
    directory: &Arc<Directory>,
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
    let shards = blocking(directory, |directory| directory.names(None)).await?;
    for shard in shards.into_iter().filter(|name| name.len() == 2 && name != "..") {
        let (seen, files) = blocking(directory, move |directory| candidates(directory, &shard)).await?;
        swept.seen += seen;
        for batch in files.chunks(BATCH) {
            let known = referenced(batch.to_vec()).await?;
            let orphans: Vec<_> = batch.iter().filter(|file| !known.contains(file)).cloned().collect();
            let before = now.before(grace);
            swept.removed += blocking(directory, move |directory| Ok(remove_old(directory, orphans, before))).await?;
        }
    }
    Ok(swept)
}

/// How many files a subdirectory has, and those of them that may be orphans.
///
/// A file that is in flight now may get its row at any time. One that is not has its row already or will never get one, so
/// the rows are asked after this, never before.
fn candidates(directory: &Directory, shard: &str) -> io::Result<(u64, Vec<FileId>)> {
    let names = directory.names(Some(shard))?;
    // What is not named like one of our files was not made here, and is nobody's to remove.
    let files = names.iter().filter_map(|name| name.parse::<FileId>().ok()).filter(|file| shard_name(file) == shard);
    let files: Vec<_> = files.collect();
    let seen = files.len() as u64;
    let in_flight = directory.in_flight();
    Ok((seen, files.into_iter().filter(|file| !in_flight.contains(file)).collect()))
}

/// Removes those of the files that have not changed since `before`, and says how many these were. The young ones may be in
/// flight in another process, or their removal may be.
fn remove_old(directory: &Directory, orphans: Vec<FileId>, before: Time) -> u64 {
    let mut removed = 0;
    for file in orphans {
        let result = directory.changed_us(&file).and_then(|changed| match changed {
            Some(changed) if changed <= before.as_micros() => directory.remove(&file).map(|()| true),
            _ => Ok(false),
        });
        match result {
            Ok(was_removed) => removed += u64::from(was_removed),
            Err(error) => tracing::warn!(%file, %error, "an orphaned file cannot be removed"),
        }
    }
    removed
}

async fn blocking<T: Send + 'static>(
    directory: &Arc<Directory>,
    work: impl FnOnce(&Directory) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let directory = directory.clone();
    tokio::task::spawn_blocking(move || work(&directory)).await.map_err(io::Error::other).flatten()
}
