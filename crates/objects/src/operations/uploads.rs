//! Uploads in parts: begun, filled in any order, listed, and given up. Completing is a file of its own.

use tarn_model::buckets::Bucket;
use tarn_model::ids::{ContentId, FileId, OrgId};
use tarn_model::objects::{Algorithm, Details, MAX_PARTS, Part, Scope, Upload};
use tarn_store::{Tx, parts, uploads};

use crate::delete::discard_parts;
use crate::files::{Intake, Received, Sums, Taken};
use crate::list::{MAX_PAGE, Page, Query, walk};
use crate::put::{Place, Replaced, charge, check_key, hexadecimal, naming};
use crate::upkeep::SOME;
use crate::{Error, Objects, Result, accounts, buckets};

impl Objects {
    /// Begins an upload.
    pub async fn begin_upload(
        &self,
        place: &Place,
        details: Details,
        checksum: Option<(Algorithm, Scope)>,
    ) -> Result<Upload> {
        check_key(&place.key)?;
        let place = place.clone();
        let write = self.store().write(move |tx| -> Result<Upload> {
            accounts::get(tx, &place.org)?;
            let bucket = buckets::find(tx, &place.org, &place.bucket)?;
            let (id, key, details, created) =
                (ContentId::fresh(tx.ids()), place.key.clone(), details.clone(), tx.now());
            let upload = Upload { id, bucket: bucket.id, key, details, checksum, created };
            uploads::insert(tx, &upload)?;
            Ok(upload)
        });
        write.await
    }

    /// The upload with this id, if it is one to this place.
    pub async fn upload(&self, place: &Place, id: &str) -> Result<Upload> {
        self.store().read(|tx| find(tx, place, id)).await
    }

    /// Begins to take in a part.
    pub async fn intake_part(
        &self,
        place: &Place,
        upload: &Upload,
        number: u32,
        declared: Option<u64>,
        sums: Sums,
    ) -> Result<Intake> {
        self.make_room(place, &Replaced::Part(upload, number), declared).await?;
        Ok(self.files().intake_file(sums))
    }

    /// Adds a part that was taken in; one of the same number is replaced. `checksum` is in base64.
    pub async fn put_part(
        &self,
        place: &Place,
        upload: &str,
        number: u32,
        received: Received,
        checksum: Option<String>,
    ) -> Result<Part> {
        if !(1..=MAX_PARTS).contains(&number) {
            return Err(Error::BadPartNumber);
        }
        let Taken::File(pending) = received.body else {
            return Err(Error::BadPartNumber);
        };
        let (place, id, quota) = (place.clone(), upload.to_owned(), self.quota_bytes(&place.org));
        let (file, size, etag) = (pending.id().clone(), received.size, hexadecimal(&received.md5.unwrap_or_default()));
        let objects = self.clone();
        let work = async move {
            let write = objects.store().write(move |tx| -> Result<(Part, Vec<FileId>)> {
                let upload = find(tx, &place, &id)?;
                let (content, file, etag) = (upload.id, file.clone(), etag.clone());
                let part = Part { content, number, file, size, etag, checksum: checksum.clone(), modified: tx.now() };
                let old = parts::get(tx, &part.content, number)?;
                if old.is_some() {
                    parts::remove(tx, &part.content, number)?;
                }
                parts::insert(tx, &part)?;
                charge(tx, &place.org, size as i64 - old.as_ref().map_or(0, |old| old.size as i64), 0, quota)?;
                Ok((part, old.into_iter().map(|old| old.file).collect()))
            });
            let (part, files) = naming(vec![pending], write, Error::is_refusal).await?;
            objects.remove_files(files).await;
            Ok(part)
        };
        self.to_the_end(work).await
    }

    /// The parts of an upload after a number, in order.
    pub async fn parts(&self, place: &Place, upload: &str, after: u32, limit: u32) -> Result<(Upload, Vec<Part>)> {
        let read = self.store().read(|tx| {
            let upload = find(tx, place, upload)?;
            let parts = parts::list(tx, &upload.id, after, limit)?;
            Ok((upload, parts))
        });
        read.await
    }

    /// Gives an upload up.
    pub async fn abort_upload(&self, place: &Place, upload: &str) -> Result<()> {
        let (place, id) = (place.clone(), upload.to_owned());
        let abort = move |tx: &mut Tx<'_>| {
            let upload = find(tx, &place, &id)?;
            let mut files = Vec::new();
            abort(tx, &place.org, &upload.id, &mut files)?;
            Ok(((), files))
        };
        self.write_and_remove(abort).await
    }

    /// Lists the uploads of a bucket that are not complete. `within` goes on within the key that `query.after` names.
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
                // Whoever goes on does so with the next key, so nothing of this one may be left.
                if let Some((key, id)) = found.last().map(|last| (last.key.clone(), last.id.clone())) {
                    found.extend(uploads::list_of(tx, &bucket, &key, id.as_str(), MAX_PAGE + 1)?);
                }
                Ok(found)
            };
            walk(tx, query, start, first, source, |upload| &upload.key)
        });
        read.await
    }
}

/// Forgets an upload with its parts. Their files are to be removed after the commit.
pub(crate) fn abort(tx: &mut Tx<'_>, org: &OrgId, upload: &ContentId, files: &mut Vec<FileId>) -> Result<()> {
    uploads::remove(tx, upload)?;
    let bytes = discard_parts(tx, upload, files)?;
    Ok(tarn_store::accounts::release_usage(tx, org, bytes, 0)?)
}

/// Forgets some uploads of a bucket. Says whether there were any.
pub(crate) fn abort_some(tx: &mut Tx<'_>, bucket: &Bucket, files: &mut Vec<FileId>) -> Result<bool> {
    let some = uploads::any(tx, &bucket.id, SOME)?;
    for upload in &some {
        // An upload may have ten thousand files; not many such uploads fit into a transaction.
        if files.len() >= SOME as usize {
            break;
        }
        abort(tx, &bucket.org, upload, files)?;
    }
    Ok(!some.is_empty())
}

/// The upload with this id, if it is one to this place.
pub(crate) fn find(tx: &mut Tx<'_>, place: &Place, id: &str) -> Result<Upload> {
    let bucket = buckets::find(tx, &place.org, &place.bucket)?;
    let id: ContentId = id.parse().map_err(|_| Error::NoSuchUpload)?;
    let upload = uploads::get(tx, &id)?.ok_or(Error::NoSuchUpload)?;
    match upload.bucket == bucket.id && upload.key == place.key {
        true => Ok(upload),
        false => Err(Error::NoSuchUpload),
    }
}
