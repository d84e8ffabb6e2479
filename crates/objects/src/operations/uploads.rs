//! Multipart uploads: started, filled in any order, listed and aborted. Completing them is in `complete`.

use tarn_base::tasks::run_to_completion;
use tarn_model::buckets::Bucket;
use tarn_model::ids::{ContentId, FileId, OrgId};
use tarn_model::objects::{Algorithm, Details, MAX_PARTS, Part, Scope, Upload};
use tarn_store::{Tx, parts, uploads};

use crate::delete::discard_parts;
use crate::files::{Intake, Received, ReceivedBody, Sums};
use crate::list::{MAX_PAGE, Page, Query, build_page};
use crate::put::{ObjectLocation, Replaced, charge_account, check_key, commit_with_files};
use crate::upkeep::BATCH;
use crate::{Error, Objects, Result, accounts, buckets};

impl Objects {
    /// Starts an upload.
    pub async fn begin_upload(
        &self,
        location: &ObjectLocation,
        details: Details,
        checksum: Option<(Algorithm, Scope)>,
    ) -> Result<Upload> {
        check_key(&location.key)?;
        let location = location.clone();
        let write = self.write(move |tx| -> Result<Upload> {
            accounts::get(tx, &location.org)?;
            let bucket = buckets::find(tx, &location.org, &location.bucket)?;
            let (id, key, details, created) =
                (ContentId::fresh(tx.ids()), location.key.clone(), details.clone(), tx.now());
            let upload = Upload { id, bucket: bucket.id, key, details, checksum, created };
            uploads::insert(tx, &upload)?;
            Ok(upload)
        });
        write.await
    }

    /// Returns the upload with this id, if it is for this location.
    pub async fn upload(&self, location: &ObjectLocation, id: &str) -> Result<Upload> {
        self.store().read(|tx| find_upload(tx, location, id)).await
    }

    /// Starts to receive a part.
    pub async fn intake_part(
        &self,
        location: &ObjectLocation,
        upload: &Upload,
        number: u32,
        declared: Option<u64>,
        sums: Sums,
    ) -> Result<Intake> {
        self.check_room(location, &Replaced::Part(upload, number), declared).await?;
        Ok(self.files().intake_file(sums))
    }

    /// Adds a received part and replaces a part with the same number. `checksum` is in base64.
    pub async fn put_part(
        &self,
        location: &ObjectLocation,
        upload: &str,
        number: u32,
        received: Received,
        checksum: Option<String>,
    ) -> Result<Part> {
        if !(1..=MAX_PARTS).contains(&number) {
            return Err(Error::BadPartNumber);
        }
        let ReceivedBody::File(pending) = received.body else {
            return Err(Error::BadPartNumber);
        };
        let (location, id, quota) = (location.clone(), upload.to_owned(), self.quota_bytes(&location.org));
        let (file, size, etag) = (pending.id().clone(), received.size, hex::encode(received.md5.unwrap_or_default()));
        let objects = self.clone();
        let work = async move {
            let write = objects.write(move |tx| -> Result<(Part, Vec<FileId>)> {
                let upload = find_upload(tx, &location, &id)?;
                let (content, file, etag) = (upload.id, file.clone(), etag.clone());
                let part = Part { content, number, file, size, etag, checksum: checksum.clone(), modified: tx.now() };
                let old = parts::get(tx, &part.content, number)?;
                if old.is_some() {
                    parts::remove(tx, &part.content, number)?;
                }
                parts::insert(tx, &part)?;
                charge_account(
                    tx,
                    &location.org,
                    size as i64 - old.as_ref().map_or(0, |old| old.size as i64),
                    0,
                    quota,
                )?;
                Ok((part, old.into_iter().map(|old| old.file).collect()))
            });
            let (part, files) = commit_with_files(vec![pending], write, Error::is_refusal).await?;
            objects.remove_files(files).await;
            Ok(part)
        };
        run_to_completion(work).await
    }

    /// Returns the parts of an upload after a number, in order.
    pub async fn parts(
        &self,
        location: &ObjectLocation,
        upload: &str,
        after: u32,
        limit: u32,
    ) -> Result<(Upload, Vec<Part>)> {
        let read = self.store().read(|tx| {
            let upload = find_upload(tx, location, upload)?;
            let parts = parts::list(tx, &upload.id, after, limit)?;
            Ok((upload, parts))
        });
        read.await
    }

    /// Aborts an upload.
    pub async fn abort_upload(&self, location: &ObjectLocation, upload: &str) -> Result<()> {
        let (location, id) = (location.clone(), upload.to_owned());
        let abort = move |tx: &mut Tx<'_>| {
            let upload = find_upload(tx, &location, &id)?;
            let mut files = Vec::new();
            remove_upload(tx, &location.org, &upload.id, &mut files)?;
            Ok(((), files))
        };
        self.write_and_remove(abort).await
    }

    /// Lists the open uploads of a bucket. `within` continues within the key that `query.after` names.
    pub async fn list_uploads(
        &self,
        org: &OrgId,
        bucket: &str,
        query: &Query,
        within: Option<&str>,
    ) -> Result<Page<Upload>> {
        let read = self.store().read(|tx| {
            let bucket = buckets::find(tx, org, bucket)?.id;
            let (start, first) = match (&query.after, within) {
                (None, _) => (Some(query.prefix.clone()), Vec::new()),
                (Some(key), None) => (query.start_after(key), Vec::new()),
                (Some(key), Some(id)) => {
                    (query.start_after(key), uploads::list_of(tx, &bucket, key, id, query.limit + 1)?)
                }
            };
            let source = |tx: &mut Tx<'_>, from: &str, until: Option<&str>, limit: u32| -> Result<Vec<Upload>> {
                let mut found = uploads::list(tx, &bucket, from, until, limit)?;
                // The next batch starts with the next key, so no upload of this key may be left out.
                if let Some((key, id)) = found.last().map(|last| (last.key.clone(), last.id.clone())) {
                    found.extend(uploads::list_of(tx, &bucket, &key, id.as_str(), MAX_PAGE + 1)?);
                }
                Ok(found)
            };
            build_page(tx, query, start, first, source, |upload| &upload.key)
        });
        read.await
    }
}

/// Removes an upload with its parts. Their files are to be removed after the commit.
pub(crate) fn remove_upload(tx: &mut Tx<'_>, org: &OrgId, upload: &ContentId, files: &mut Vec<FileId>) -> Result<()> {
    uploads::remove(tx, upload)?;
    let bytes = discard_parts(tx, upload, files)?;
    Ok(tarn_store::accounts::release_usage(tx, org, bytes, 0)?)
}

/// Removes a batch of a bucket's uploads. Returns whether there were any.
pub(crate) fn abort_some_uploads(tx: &mut Tx<'_>, bucket: &Bucket, files: &mut Vec<FileId>) -> Result<bool> {
    let ids = uploads::some_of_bucket(tx, &bucket.id, BATCH)?;
    for upload in &ids {
        // An upload may have ten thousand files, so only few such uploads fit into one transaction.
        if files.len() >= BATCH as usize {
            break;
        }
        remove_upload(tx, &bucket.org, upload, files)?;
    }
    Ok(!ids.is_empty())
}

/// Returns the upload with this id, if it is for this location.
pub(crate) fn find_upload(tx: &mut Tx<'_>, location: &ObjectLocation, id: &str) -> Result<Upload> {
    let bucket = buckets::find(tx, &location.org, &location.bucket)?;
    let id: ContentId = id.parse().map_err(|_| Error::NoSuchUpload)?;
    let upload = uploads::get(tx, &id)?.ok_or(Error::NoSuchUpload)?;
    if upload.bucket == bucket.id && upload.key == location.key { Ok(upload) } else { Err(Error::NoSuchUpload) }
}
