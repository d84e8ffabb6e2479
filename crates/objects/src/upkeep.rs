//! Background maintenance of object storage: removal of orphaned files, abandoned uploads and closed accounts, and
//! saving of the call counts and of the last use of each key. Each task is called by a timer and may be interrupted at
//! any time.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_model::Time;
use tarn_model::buckets::Bucket;
use tarn_model::ids::{ContentId, FileId, OrgId};
use tarn_model::objects::Version;
use tarn_store::s3_keys::KeyHolder;
use tarn_store::{Tx, accounts, buckets, clock, objects, parts, s3_keys, uploads, versions};

use crate::delete::discard_object;
use crate::files::Swept;
use crate::uploads::{abort_some_uploads, remove_upload};
use crate::{Error, Objects, Result};

/// The maximum number of rows or files that one transaction removes: other writers wait for it.
pub(crate) const BATCH: u32 = 500;

/// The minimum age of an orphaned file where other processes write files, too.
const FOREIGN_GRACE: Duration = Duration::from_secs(24 * 3600);

/// Call counts and uses of keys that are not saved in the store yet.
#[derive(Default)]
pub(crate) struct Counters(Mutex<Counts>);

#[derive(Clone, Default)]
struct Counts {
    calls: HashMap<OrgId, u64>,
    /// When each access key was last used, and whether it is a legacy key. Only keys with a valid signature get here,
    /// so there are at most as many as keys that work.
    uses: HashMap<String, (Time, bool)>,
}

impl Counters {
    pub(crate) fn add_call(&self, access_key: &str, holder: &KeyHolder, now: Time) {
        let mut counts = self.0.lock();
        match counts.calls.get_mut(&holder.org) {
            Some(count) => *count += 1,
            None => drop(counts.calls.insert(holder.org.clone(), 1)),
        }
        match counts.uses.get_mut(access_key) {
            Some((last, _)) => *last = now,
            None => drop(counts.uses.insert(access_key.to_owned(), (now, holder.user.is_none()))),
        }
    }

    fn take_counts(&self) -> Counts {
        std::mem::take(&mut *self.0.lock())
    }

    fn restore_counts(&self, taken: Counts) {
        let mut counts = self.0.lock();
        for (org, count) in taken.calls {
            *counts.calls.entry(org).or_default() += count;
        }
        for (key, used) in taken.uses {
            counts.uses.entry(key).or_insert(used);
        }
    }
}

fn save_uses(tx: &mut Tx<'_>, counts: &Counts) -> Result<()> {
    for (key, (used, is_legacy)) in &counts.uses {
        if *is_legacy {
            accounts::set_legacy_key_used(tx, key, *used)?;
        } else {
            s3_keys::set_used(tx, key, *used)?;
        }
    }
    Ok(())
}

impl Objects {
    /// Saves the number of S3 calls since the last save, and when each key was last used.
    pub async fn save_counts(&self) -> Result<()> {
        let counts = self.counters().take_counts();
        if counts.calls.is_empty() {
            return Ok(());
        }
        let saved = counts.clone();
        let write = self.write(move |tx| -> Result<()> {
            for (org, count) in &saved.calls {
                accounts::count_requests(tx, org, *count)?;
            }
            save_uses(tx, &saved)
        });
        let written = write.await;
        if written.is_err() {
            self.counters().restore_counts(counts);
        }
        written
    }

    /// Aborts uploads that were started too long ago. Returns how many. An upload that cannot be aborted does not keep
    /// the others from it.
    pub async fn abort_abandoned(&self) -> Result<u64> {
        let abandoned_after = self.settings().abandoned_after;
        let limit = self.store().read(|tx| clock::passed_before(tx, abandoned_after)).await?;
        let (mut aborted, mut seen) = (0, (Time::from_micros(i64::MIN), String::new()));
        loop {
            let page = self.store().read(|tx| uploads::created_before(tx, limit, (seen.0, &seen.1), BATCH)).await?;
            let Some((created, last)) = page.last() else {
                return Ok(aborted);
            };
            seen = (*created, last.to_string());
            for (_, upload) in page {
                let id = upload.clone();
                match self.write_and_remove(move |tx| abort_old_upload(tx, &id)).await {
                    Ok(was_there) => aborted += u64::from(was_there),
                    Err(error) => tracing::error!(%upload, %error, "an abandoned upload cannot be aborted"),
                }
            }
        }
    }

    /// Empties and removes closed accounts. An account that cannot be emptied does not keep the others from it.
    pub async fn empty_closed(&self) -> Result<()> {
        for account in self.store().read(accounts::closing).await? {
            if let Err(error) = self.empty_account(&account.org).await {
                tracing::error!(org = %account.org, %error, "closed object storage cannot be emptied");
            }
        }
        Ok(())
    }

    async fn empty_account(&self, org: &OrgId) -> Result<()> {
        loop {
            let account_org = org.clone();
            if self.write_and_remove(move |tx| empty_some_buckets(tx, &account_org)).await? {
                return Ok(());
            }
        }
    }

    /// Removes files that no row refers to: those that a crash left behind.
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
            // A reader pins a file before its row can be removed, so the pins are checked after the rows.
            known.extend(self.pins().pinned_or_removed(files));
            Ok(known)
        };
        // The ages of files, and of the hold of a backup, are by the clock of the host.
        self.files().sweep(grace, self.clock().file_time(), referenced).await
    }

    /// Waits until files are left to the sweep because a backup needs them.
    pub async fn wait_until_files_are_left(&self) {
        self.files().wait_until_left().await;
    }

    /// Returns the interval of the sweep.
    pub fn sweep_every(&self) -> Duration {
        self.settings().sweep_every
    }
}

/// Aborts an abandoned upload; `false` when it has ended already.
fn abort_old_upload(tx: &mut Tx<'_>, id: &ContentId) -> Result<(bool, Vec<FileId>)> {
    let mut files = Vec::new();
    let Some(upload) = uploads::get(tx, id)? else {
        return Ok((false, files));
    };
    let bucket = buckets::get(tx, &upload.bucket)?.ok_or(Error::NoSuchBucket)?;
    remove_upload(tx, &bucket.org, id, &mut files)?;
    Ok((true, files))
}

/// Removes a batch of an account's content. When nothing is left, removes the account and returns `true`.
fn empty_some_buckets(tx: &mut Tx<'_>, org: &OrgId) -> Result<(bool, Vec<FileId>)> {
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

/// Removes a batch of a bucket's content. Returns whether there was anything.
fn empty_bucket(tx: &mut Tx<'_>, bucket: &Bucket, files: &mut Vec<FileId>) -> Result<bool> {
    let current = objects::list(tx, &bucket.id, "", None, BATCH)?;
    for listed in &current {
        if files.len() >= BATCH as usize {
            return Ok(true);
        }
        if let Some(object) = objects::get(tx, &bucket.id, &listed.key)? {
            objects::remove(tx, &bucket.id, &listed.key)?;
            discard_object(tx, bucket, &object, files)?;
        }
    }
    if !current.is_empty() {
        return Ok(true);
    }
    let older = versions::some_of_bucket(tx, &bucket.id, BATCH)?;
    for version in &older {
        if files.len() >= BATCH as usize {
            return Ok(true);
        }
        let key = match version {
            Version::Object(object) => {
                discard_object(tx, bucket, object, files)?;
                &object.key
            }
            Version::Marker(marker) => &marker.key,
        };
        versions::remove(tx, &bucket.id, key, version.sequence())?;
    }
    Ok(!older.is_empty() || abort_some_uploads(tx, bucket, files)?)
}
