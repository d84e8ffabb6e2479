//! What must stay true of object storage: no file without a row, no upload that was forgotten, nothing left of accounts that
//! were given up, and requests counted. Each is called by a timer and may be interrupted at any time.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tarn_model::ids::{FileId, OrgId};
use tarn_model::objects::Version;
use tarn_store::{Tx, accounts, buckets, objects, parts, uploads, versions};

use crate::delete::discard;
use crate::files::Swept;
use crate::{Error, Objects, Result};

/// How many rows one transaction removes at most.
const BATCH: u32 = 500;

/// How old a file without a row must be where other processes write files, too.
const FOREIGN_GRACE: Duration = Duration::from_secs(24 * 3600);

/// Requests that were counted and are not in the store yet.
#[derive(Default)]
pub(crate) struct Counters(Mutex<HashMap<OrgId, u64>>);

impl Counters {
    pub(crate) fn add(&self, org: &OrgId) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(org) {
            Some(count) => *count += 1,
            None => drop(counts.insert(org.clone(), 1)),
        }
    }

    fn take(&self) -> HashMap<OrgId, u64> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Objects {
    /// Writes down how many requests there were since the last time.
    pub async fn save_counts(&self) -> Result<()> {
        let counts = self.counters().take();
        if counts.is_empty() {
            return Ok(());
        }
        let write = self.store().write(move |tx| -> Result<()> {
            for (org, count) in &counts {
                accounts::count_requests(tx, org, *count)?;
            }
            Ok(())
        });
        write.await
    }

    /// Gives up uploads that were begun too long ago. Returns how many.
    pub async fn abort_abandoned(&self) -> Result<u64> {
        let limit = self.clock().now().before(self.settings().abandoned_after);
        let mut aborted = 0;
        loop {
            let write = self.store().write(move |tx| -> Result<(u64, Vec<FileId>)> {
                let (mut files, old) = (Vec::new(), uploads::before(tx, limit, 10)?);
                let count = old.len() as u64;
                for upload in old {
                    let Some(bucket) = buckets::get(tx, &upload.bucket)? else {
                        return Err(Error::NoSuchBucket);
                    };
                    crate::buckets::abort(tx, &bucket.org, &upload.id, &mut files)?;
                }
                Ok((count, files))
            });
            let (count, files) = write.await?;
            self.remove_files(files).await;
            aborted += count;
            if count == 0 {
                return Ok(aborted);
            }
        }
    }

    /// Empties accounts that were given up, and forgets them.
    pub async fn empty_closed(&self) -> Result<()> {
        for account in self.store().read(accounts::closing).await? {
            loop {
                let org = account.org.clone();
                let write = self.store().write(move |tx| empty_some(tx, &org));
                let (files, done) = write.await?;
                self.remove_files(files).await;
                if done {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Removes files that no row names: what a crash left behind.
    pub async fn sweep(&self) -> Result<Swept> {
        let grace = if self.store().generation().is_some() { Duration::ZERO } else { FOREIGN_GRACE };
        let referenced = |files: Vec<FileId>| async move {
            let read = self.store().read(|tx| -> Result<HashSet<FileId>> {
                let mut known = HashSet::new();
                for file in files {
                    if parts::has_file(tx, &file)? {
                        known.insert(file);
                    }
                }
                Ok(known)
            });
            read.await
        };
        self.files().sweep(grace, self.clock().now(), referenced).await
    }

    /// How often the files are to be swept.
    pub fn sweep_every(&self) -> Duration {
        self.settings().sweep_every
    }
}

/// Removes some of what an account holds; the account itself when nothing is left.
fn empty_some(tx: &mut Tx<'_>, org: &OrgId) -> Result<(Vec<FileId>, bool)> {
    let mut files = Vec::new();
    for bucket in buckets::list(tx, org)? {
        let seen = objects::list(tx, &bucket.id, "", None, BATCH)?;
        let older = versions::any(tx, &bucket.id, BATCH)?;
        if seen.is_empty() && older.is_empty() {
            files.extend(crate::buckets::remove(tx, org, &bucket.name)?);
            continue;
        }
        for listed in seen {
            if let Some(object) = objects::get(tx, &bucket.id, &listed.key)? {
                objects::remove(tx, &bucket.id, &listed.key)?;
                discard(tx, &bucket, &object, &mut files)?;
            }
        }
        for version in older {
            if let Version::Object(object) = &version {
                discard(tx, &bucket, object, &mut files)?;
                versions::remove(tx, &bucket.id, &object.key, object.sequence)?;
            } else if let Version::Marker(marker) = &version {
                versions::remove(tx, &bucket.id, &marker.key, marker.sequence)?;
            }
        }
        return Ok((files, false));
    }
    accounts::remove(tx, org)?;
    Ok((files, true))
}
