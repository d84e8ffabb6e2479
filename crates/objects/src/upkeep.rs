//! What must stay true of object storage: no file without a row, no upload that was forgotten, nothing left of accounts that
//! were given up, and requests counted. Each is called by a timer and may be interrupted at any time.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tarn_model::Time;
use tarn_model::buckets::Bucket;
use tarn_model::ids::{ContentId, FileId, OrgId};
use tarn_model::objects::Version;
use tarn_store::{Tx, accounts, buckets, objects, parts, uploads, versions};

use crate::delete::discard;
use crate::files::Swept;
use crate::uploads::{abort, abort_some};
use crate::{Error, Objects, Result};

/// How many rows of a kind, or files, one transaction removes before it leaves the rest to the next: others wait for it.
pub(crate) const SOME: u32 = 500;

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

    fn put_back(&self, taken: HashMap<OrgId, u64>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (org, count) in taken {
            *counts.entry(org).or_default() += count;
        }
    }
}

impl Objects {
    /// Writes down how many requests there were since the last time.
    pub async fn save_counts(&self) -> Result<()> {
        let counts = self.counters().take();
        if counts.is_empty() {
            return Ok(());
        }
        let saved = counts.clone();
        let write = self.store().write(move |tx| -> Result<()> {
            for (org, count) in &saved {
                accounts::count_requests(tx, org, *count)?;
            }
            Ok(())
        });
        let written = write.await;
        if written.is_err() {
            self.counters().put_back(counts);
        }
        written
    }

    /// Gives up uploads that were begun too long ago. Returns how many. One that cannot be given up does not keep the others.
    pub async fn abort_abandoned(&self) -> Result<u64> {
        let limit = self.clock().now().before(self.settings().abandoned_after);
        let (mut aborted, mut seen) = (0, (Time::from_micros(i64::MIN), String::new()));
        loop {
            let page = self.store().read(|tx| uploads::before(tx, limit, (seen.0, &seen.1), SOME)).await?;
            let Some((created, last)) = page.last() else {
                return Ok(aborted);
            };
            seen = (*created, last.to_string());
            for (_, upload) in page {
                let id = upload.clone();
                match self.write_and_remove(move |tx| abort_old(tx, &id)).await {
                    Ok(was_there) => aborted += u64::from(was_there),
                    Err(error) => tracing::error!(%upload, %error, "an old upload cannot be given up"),
                }
            }
        }
    }

    /// Empties accounts that were given up, and forgets them. One that cannot be emptied does not keep the others.
    pub async fn empty_closed(&self) -> Result<()> {
        for account in self.store().read(accounts::closing).await? {
            if let Err(error) = self.empty(&account.org).await {
                tracing::error!(org = %account.org, %error, "object storage that was given up cannot be emptied");
            }
        }
        Ok(())
    }

    async fn empty(&self, org: &OrgId) -> Result<()> {
        loop {
            let of = org.clone();
            if self.write_and_remove(move |tx| empty_some(tx, &of)).await? {
                return Ok(());
            }
        }
    }

    /// Removes files that no row names: what a crash left behind.
    pub async fn sweep(&self) -> Result<Swept> {
        let grace = if self.store().generation().is_some() { Duration::ZERO } else { FOREIGN_GRACE };
        let referenced = |files: Vec<FileId>| async move {
            let read = self.store().read(|tx| -> Result<HashSet<FileId>> {
                let mut known = HashSet::new();
                for file in &files {
                    if parts::has_file(tx, file)? {
                        known.insert(file.clone());
                    }
                }
                Ok(known)
            });
            let mut known = read.await?;
            // Whoever reads a file whose row is gone has pinned it before the row went, so this is asked after the rows.
            known.extend(self.pins().held(files));
            Ok(known)
        };
        self.files().sweep(grace, self.clock().now(), referenced).await
    }

    /// How often the files are to be swept.
    pub fn sweep_every(&self) -> Duration {
        self.settings().sweep_every
    }
}

/// Gives up an upload that nobody ends; `false` when somebody has ended it meanwhile.
fn abort_old(tx: &mut Tx<'_>, id: &ContentId) -> Result<(bool, Vec<FileId>)> {
    let mut files = Vec::new();
    let Some(upload) = uploads::get(tx, id)? else {
        return Ok((false, files));
    };
    let bucket = buckets::get(tx, &upload.bucket)?.ok_or(Error::NoSuchBucket)?;
    abort(tx, &bucket.org, id, &mut files)?;
    Ok((true, files))
}

/// Removes some of what an account holds; the account itself when nothing is left, and then says so.
fn empty_some(tx: &mut Tx<'_>, org: &OrgId) -> Result<(bool, Vec<FileId>)> {
    let mut files = Vec::new();
    for bucket in buckets::list(tx, org)? {
        if empty_bucket(tx, &bucket, &mut files)? {
            return Ok((false, files));
        }
        buckets::remove(tx, &bucket.id)?;
    }
    accounts::remove(tx, org)?;
    Ok((true, files))
}

/// Removes some of what a bucket holds, and says whether there was anything.
fn empty_bucket(tx: &mut Tx<'_>, bucket: &Bucket, files: &mut Vec<FileId>) -> Result<bool> {
    let seen = objects::list(tx, &bucket.id, "", None, SOME)?;
    for listed in &seen {
        if files.len() >= SOME as usize {
            return Ok(true);
        }
        if let Some(object) = objects::get(tx, &bucket.id, &listed.key)? {
            objects::remove(tx, &bucket.id, &listed.key)?;
            discard(tx, bucket, &object, files)?;
        }
    }
    if !seen.is_empty() {
        return Ok(true);
    }
    let older = versions::any(tx, &bucket.id, SOME)?;
    for version in &older {
        if files.len() >= SOME as usize {
            return Ok(true);
        }
        let key = match version {
            Version::Object(object) => {
                discard(tx, bucket, object, files)?;
                &object.key
            }
            Version::Marker(marker) => &marker.key,
        };
        versions::remove(tx, &bucket.id, key, version.sequence())?;
    }
    Ok(!older.is_empty() || abort_some(tx, bucket, files)?)
}
