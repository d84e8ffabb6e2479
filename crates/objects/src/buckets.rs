//! Buckets: made, found and removed. The functions over a transaction also serve the management API.

use tarn_model::buckets::{Bucket, Versioning, check_name};
use tarn_model::ids::{BucketId, OrgId};
use tarn_store::{Tx, buckets, uploads};

use crate::uploads::abort_some;
use crate::{Error, Objects, Result, accounts};

/// How many buckets an organization may have.
pub const MAX_BUCKETS: u64 = 1000;

/// How often a bucket is tried to be removed in which uploads are begun meanwhile.
pub const REMOVALS: usize = 10;

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
    // What no bucket can be called need not be looked for, and a database may not even take it.
    check_name(name).map_err(|_| Error::NoSuchBucket)?;
    buckets::find(tx, org, name)?.ok_or(Error::NoSuchBucket)
}

/// Forgets an empty bucket. `UploadsOpen` when uploads were begun in it: there may be too many of them for one transaction,
/// so [`Objects::abort_uploads`] gives them up, and then this has to be tried again.
pub fn remove(tx: &mut Tx<'_>, org: &OrgId, name: &str) -> Result<()> {
    let bucket = find(tx, org, name)?;
    if !buckets::is_empty(tx, &bucket.id)? {
        return Err(Error::BucketNotEmpty);
    }
    match uploads::any(tx, &bucket.id, 1)?.is_empty() {
        true => Ok(buckets::remove(tx, &bucket.id)?),
        false => Err(Error::UploadsOpen),
    }
}

impl Objects {
    /// Makes a bucket.
    pub async fn create_bucket(&self, org: &OrgId, name: &str) -> Result<Bucket> {
        let (org, name) = (org.clone(), name.to_owned());
        self.store().write(move |tx| create(tx, &org, &name)).await
    }

    /// Forgets an empty bucket and the uploads that were begun in it.
    pub async fn remove_bucket(&self, org: &OrgId, name: &str) -> Result<()> {
        for _ in 0..REMOVALS {
            let (of, called) = (org.clone(), name.to_owned());
            match self.store().write(move |tx| remove(tx, &of, &called)).await {
                Err(Error::UploadsOpen) => self.abort_uploads(org, name).await?,
                removed => return removed,
            }
        }
        Err(Error::UploadsOpen)
    }

    /// Gives up the uploads that were begun in a bucket that is empty otherwise, some at a time.
    pub async fn abort_uploads(&self, org: &OrgId, name: &str) -> Result<()> {
        loop {
            let (of, called) = (org.clone(), name.to_owned());
            let abort = move |tx: &mut Tx<'_>| {
                let (bucket, mut files) = (find(tx, &of, &called)?, Vec::new());
                if !buckets::is_empty(tx, &bucket.id)? {
                    return Err(Error::BucketNotEmpty);
                }
                let any = abort_some(tx, &bucket, &mut files)?;
                Ok((any, files))
            };
            if !self.write_and_remove(abort).await? {
                return Ok(());
            }
        }
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
            accounts::get(tx, &org)?;
            let bucket = find(tx, &org, &name)?;
            Ok(buckets::set_versioning(tx, &bucket.id, versioning)?)
        });
        write.await
    }
}
