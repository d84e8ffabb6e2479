//! Buckets: made, found and removed. The functions over a transaction also serve the management API.

use tarn_model::buckets::{Bucket, Versioning, check_name};
use tarn_model::ids::{BucketId, ContentId, FileId, OrgId};
use tarn_store::{Tx, buckets, uploads};

use crate::delete::discard_parts;
use crate::{Error, Objects, Result, accounts};

/// How many buckets an organization may have.
pub const MAX_BUCKETS: u64 = 1000;

/// Makes a bucket.
pub fn create(tx: &mut Tx<'_>, org: &OrgId, name: &str) -> Result<Bucket> {
    check_name(name)?;
    accounts::get(tx, org)?;
    if buckets::find(tx, org, name)?.is_some() {
        return Err(Error::BucketExists);
    }
    if buckets::count(tx, org)? >= MAX_BUCKETS {
        return Err(Error::TooManyBuckets(MAX_BUCKETS));
    }
    let (id, created) = (BucketId::fresh(tx.ids()), tx.now());
    let bucket = Bucket { id, org: org.clone(), name: name.to_owned(), versioning: Versioning::Off, created };
    buckets::insert(tx, &bucket)?;
    Ok(bucket)
}

/// The bucket of this name.
pub fn find(tx: &mut Tx<'_>, org: &OrgId, name: &str) -> Result<Bucket> {
    buckets::find(tx, org, name)?.ok_or(Error::NoSuchBucket)
}

/// Forgets an empty bucket and the uploads that were begun in it. Their files are returned, to be removed after the commit.
pub fn remove(tx: &mut Tx<'_>, org: &OrgId, name: &str) -> Result<Vec<FileId>> {
    let bucket = find(tx, org, name)?;
    if !buckets::is_empty(tx, &bucket.id)? {
        return Err(Error::BucketNotEmpty);
    }
    let files = abort_all(tx, org, &bucket.id)?;
    buckets::remove(tx, &bucket.id)?;
    Ok(files)
}

fn abort_all(tx: &mut Tx<'_>, org: &OrgId, bucket: &BucketId) -> Result<Vec<FileId>> {
    let mut files = Vec::new();
    loop {
        let some = uploads::list(tx, bucket, "", None, 100)?;
        if some.is_empty() {
            return Ok(files);
        }
        for upload in some {
            abort(tx, org, &upload.id, &mut files)?;
        }
    }
}

/// Forgets an upload with its parts.
pub(crate) fn abort(tx: &mut Tx<'_>, org: &OrgId, upload: &ContentId, files: &mut Vec<FileId>) -> Result<()> {
    uploads::remove(tx, upload)?;
    let bytes = discard_parts(tx, upload, files)?;
    tarn_store::accounts::charge(tx, org, -bytes, 0)?;
    Ok(())
}

impl Objects {
    /// Makes a bucket.
    pub async fn create_bucket(&self, org: &OrgId, name: &str) -> Result<Bucket> {
        let (org, name) = (org.clone(), name.to_owned());
        self.store().write(move |tx| create(tx, &org, &name)).await
    }

    /// Forgets an empty bucket.
    pub async fn remove_bucket(&self, org: &OrgId, name: &str) -> Result<()> {
        let (org, name) = (org.clone(), name.to_owned());
        let files = self.store().write(move |tx| remove(tx, &org, &name)).await?;
        self.remove_files(files).await;
        Ok(())
    }

    /// The bucket of this name.
    pub async fn bucket(&self, org: &OrgId, name: &str) -> Result<Bucket> {
        self.store().read(|tx| find(tx, org, name)).await
    }

    /// All buckets of an organization, by name.
    pub async fn buckets(&self, org: &OrgId) -> Result<Vec<Bucket>> {
        self.store().read(|tx| Ok(buckets::list(tx, org)?)).await
    }

    /// Changes whether a bucket keeps what is overwritten.
    pub async fn set_versioning(&self, org: &OrgId, name: &str, versioning: Versioning) -> Result<()> {
        let (org, name) = (org.clone(), name.to_owned());
        let write = self.store().write(move |tx| -> Result<()> {
            let bucket = find(tx, &org, &name)?;
            Ok(buckets::set_versioning(tx, &bucket.id, versioning)?)
        });
        write.await
    }
}
