//! Buckets: creation, lookup and removal. The functions over a transaction also serve the management API.

use tarn_model::access::{self, Action, Object, Policy};
use tarn_model::buckets::{Bucket, Versioning, check_name, check_new_name};
use tarn_model::events::{BucketEvent, Event};
use tarn_model::ids::{BucketId, OrgId, UserId};
use tarn_store::{Tx, buckets, uploads, users};

use crate::uploads::abort_some_uploads;
use crate::{Error, Objects, Result, accounts};

/// The maximum number of buckets of an organization.
pub const MAX_BUCKETS: u64 = 1000;

/// How often the removal of a bucket is tried while uploads are started in it.
pub const MAX_REMOVAL_TRIES: usize = 10;

/// Creates a bucket. The creator is unknown where a key stands for the whole organization.
pub fn create(tx: &mut Tx<'_>, org: &OrgId, creator: Option<&UserId>, name: &str) -> Result<Bucket> {
    check_new_name(name)?;
    accounts::get(tx, org)?;
    if buckets::find(tx, org, name)?.is_some() {
        return Err(Error::BucketExists);
    }
    if buckets::count(tx, org)? >= MAX_BUCKETS {
        return Err(Error::TooManyBuckets(MAX_BUCKETS));
    }
    let (id, created) = (BucketId::fresh(tx.ids()), tx.now());
    let bucket = Bucket {
        id,
        org: org.clone(),
        creator: creator.cloned(),
        name: name.to_owned(),
        versioning: Versioning::Off,
        created,
    };
    buckets::insert(tx, &bucket)?;
    Ok(bucket)
}

/// Returns the bucket with this name.
pub fn find(tx: &mut Tx<'_>, org: &OrgId, name: &str) -> Result<Bucket> {
    // An invalid name cannot exist, and a database may not even accept it as a parameter.
    check_name(name).map_err(|_| Error::NoSuchBucket)?;
    buckets::find(tx, org, name)?.ok_or(Error::NoSuchBucket)
}

/// Removes an empty bucket, and returns it. `UploadsOpen` when it has open uploads: there may be too many of them for
/// one transaction, so the caller first calls [`Objects::abort_uploads`] and then tries again.
pub fn remove(tx: &mut Tx<'_>, org: &OrgId, name: &str) -> Result<Bucket> {
    let bucket = find(tx, org, name)?;
    if !buckets::is_empty(tx, &bucket.id)? {
        return Err(Error::BucketNotEmpty);
    }
    if uploads::some_of_bucket(tx, &bucket.id, 1)?.is_empty() {
        buckets::remove(tx, &bucket.id)?;
        Ok(bucket)
    } else {
        Err(Error::UploadsOpen)
    }
}

/// Refuses a user who may not delete the bucket. A key of the whole organization stands for any member.
fn check_deletion(tx: &mut Tx<'_>, org: &OrgId, user: Option<&UserId>, name: &str, policy: Policy) -> Result<()> {
    let Some(user) = user else {
        return if policy.members_may_destroy { Ok(()) } else { Err(Error::NotYours) };
    };
    let (user, bucket) = (users::get(tx, user)?.ok_or(Error::NotYours)?, find(tx, org, name)?);
    let object = Object::Owned { creator: bucket.creator.as_ref(), org: Some(&bucket.org) };
    access::check(&user, Action::DeleteBucket, object, policy).map_err(|_| Error::NotYours)
}

/// Records what a user, or the organization by its legacy key, did with a bucket.
fn record_event(tx: &mut Tx<'_>, user: Option<&UserId>, bucket: &Bucket, event: BucketEvent) -> Result<()> {
    let org = bucket.org.as_str();
    Ok(tx.record_as(user.map_or(org, UserId::as_str), org, Event::Bucket(bucket.id.clone(), event))?)
}

impl Objects {
    /// Creates a bucket, for a user or with a key of the whole organization.
    pub async fn create_bucket(&self, org: &OrgId, user: Option<&UserId>, name: &str) -> Result<Bucket> {
        let (org, user, name) = (org.clone(), user.cloned(), name.to_owned());
        let write = self.write(move |tx| {
            let bucket = create(tx, &org, user.as_ref(), &name)?;
            let created = BucketEvent::Created { name: bucket.name.clone() };
            record_event(tx, user.as_ref(), &bucket, created)?;
            Ok(bucket)
        });
        write.await
    }

    /// Removes an empty bucket and its open uploads, for a user or with a key of the whole organization.
    pub async fn remove_bucket(&self, org: &OrgId, user: Option<&UserId>, name: &str) -> Result<()> {
        let policy = self.settings().access;
        for _ in 0..MAX_REMOVAL_TRIES {
            let (bucket_org, by, bucket_name) = (org.clone(), user.cloned(), name.to_owned());
            let removed = self.write(move |tx| {
                check_deletion(tx, &bucket_org, by.as_ref(), &bucket_name, policy)?;
                let bucket = remove(tx, &bucket_org, &bucket_name)?;
                let deleted = BucketEvent::Deleted { name: bucket.name.clone() };
                record_event(tx, by.as_ref(), &bucket, deleted)
            });
            match removed.await {
                Err(Error::UploadsOpen) => self.abort_uploads(org, name).await?,
                removed => return removed,
            }
        }
        Err(Error::UploadsOpen)
    }

    /// Aborts the open uploads of a bucket that is otherwise empty, in batches.
    pub async fn abort_uploads(&self, org: &OrgId, name: &str) -> Result<()> {
        loop {
            let (bucket_org, bucket_name) = (org.clone(), name.to_owned());
            let abort = move |tx: &mut Tx<'_>| {
                let (bucket, mut files) = (find(tx, &bucket_org, &bucket_name)?, Vec::new());
                if !buckets::is_empty(tx, &bucket.id)? {
                    return Err(Error::BucketNotEmpty);
                }
                let any = abort_some_uploads(tx, &bucket, &mut files)?;
                Ok((any, files))
            };
            if !self.write_and_remove(abort).await? {
                return Ok(());
            }
        }
    }

    /// Returns the bucket with this name.
    pub async fn bucket(&self, org: &OrgId, name: &str) -> Result<Bucket> {
        self.store().read(|tx| find(tx, org, name)).await
    }

    /// Returns all buckets of an organization, ordered by name.
    pub async fn buckets(&self, org: &OrgId) -> Result<Vec<Bucket>> {
        self.store().read(|tx| Ok(buckets::list(tx, org)?)).await
    }

    /// Changes whether a bucket keeps old versions.
    pub async fn set_versioning(&self, org: &OrgId, name: &str, versioning: Versioning) -> Result<()> {
        let (org, name) = (org.clone(), name.to_owned());
        let write = self.write(move |tx| -> Result<()> {
            accounts::get(tx, &org)?;
            let bucket = find(tx, &org, &name)?;
            Ok(buckets::set_versioning(tx, &bucket.id, versioning)?)
        });
        write.await
    }
}
