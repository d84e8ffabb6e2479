//! The engine's own account, in which it stores objects for other parts of Tarn. Its key is never handed out, and no
//! quota limits it. What it stores for a job is counted for the owner of that job.

use tarn_base::tasks::run_to_completion;
use tarn_model::ids::{FileId, OrgId};
use tarn_model::objects::{Body, Details};
use tarn_store::{Tx, objects, usage};

use crate::delete::discard_object;
use crate::files::{INLINE_MAX, Received};
use crate::list::successor;
use crate::put::{Condition, NewObject, ObjectLocation, check_key, commit_with_files, insert_object};
use crate::upkeep::BATCH;
use crate::{Error, Objects, Result, accounts, buckets};

/// The id of the account. Organizations have random ids, so none has this one.
const ACCOUNT: &str = "o-000000000000";

/// Returns the id of the engine's account.
pub fn account() -> OrgId {
    ACCOUNT.parse().expect("it has the form of an id")
}

/// Returns whether this is the engine's account.
pub(crate) fn is_account(org: &OrgId) -> bool {
    org.as_str() == ACCOUNT
}

/// Counts the bytes of an object of the engine for its job, whose id is the first segment of the key, and for the
/// owner of that job. Objects of organizations are counted by their accounts alone.
pub(crate) fn count_for_job(tx: &mut Tx<'_>, org: &OrgId, key: &str, bytes: i64) -> Result<()> {
    match key.split_once('/') {
        Some((job, _)) if is_account(org) => Ok(usage::add_job_bytes(tx, job, bytes)?),
        Some(_) | None => Ok(()),
    }
}

/// Stores a small object as part of a larger transaction. An object that is too large for a row is refused. The file of
/// a replaced object is left to the sweep.
pub fn put_small(tx: &mut Tx<'_>, bucket: &str, key: &str, data: &[u8]) -> Result<()> {
    check_key(key)?;
    if data.len() > INLINE_MAX {
        return Err(Error::TooLarge(INLINE_MAX as u64));
    }
    let location = ObjectLocation { org: account(), bucket: bucket.to_owned(), key: key.to_owned() };
    let (size, body) = (data.len() as u64, Body::Inline(data.to_vec()));
    let object = NewObject { size, etag: hex::encode([0; 16]), details: Details::default(), body, parts: Vec::new() };
    insert_object(tx, &location, &object, &Condition::default(), None).map(drop)
}

/// Why a put within a larger transaction failed.
#[derive(Debug)]
pub enum PutError<E> {
    /// The object was refused.
    Object(Error),
    /// The rest of the transaction failed.
    Other(E),
}

impl<E> PutError<E> {
    /// Returns whether the transaction was certainly rolled back. The rest of the transaction can only fail by
    /// refusing.
    fn is_refusal(&self) -> bool {
        match self {
            PutError::Object(error) => error.is_refusal(),
            PutError::Other(_) => true,
        }
    }
}

impl<E> From<Error> for PutError<E> {
    fn from(error: Error) -> Self {
        PutError::Object(error)
    }
}

impl<E> From<tarn_store::Error> for PutError<E> {
    fn from(error: tarn_store::Error) -> Self {
        PutError::Object(error.into())
    }
}

impl Objects {
    /// Creates the account and a bucket in it, unless they exist.
    pub async fn ensure_internal(&self, bucket: &str) -> Result<()> {
        let (org, bucket) = (account(), bucket.to_owned());
        let existing = self.store().read(|tx| tarn_store::buckets::find(tx, &org, &bucket)).await?;
        if existing.is_some() {
            return Ok(());
        }
        let write = self.write(move |tx| {
            accounts::enable(tx, &org)?;
            match buckets::create(tx, &org, None, &bucket) {
                Ok(_) | Err(Error::BucketExists) => Ok(()),
                Err(other) => Err(other),
            }
        });
        write.await
    }

    /// Stores a received body in one transaction with other work: both happen or neither.
    pub async fn put_with<T, E>(
        &self,
        location: &ObjectLocation,
        received: Received,
        also: impl Fn(&mut Tx<'_>) -> std::result::Result<T, E> + Send + Sync + 'static,
    ) -> std::result::Result<T, PutError<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        check_key(&location.key)?;
        let (object, pending) = self.new_object(received, Details::default());
        let (objects, location, quota) = (self.clone(), location.clone(), self.quota_bytes(&location.org));
        let work = async move {
            let write = objects.write(move |tx| -> std::result::Result<(T, Vec<FileId>), PutError<E>> {
                let (_, files) = insert_object(tx, &location, &object, &Condition::default(), quota)?;
                Ok((also(tx).map_err(PutError::Other)?, files))
            });
            let (value, files) = commit_with_files(pending, write, PutError::is_refusal).await?;
            objects.remove_files(files).await;
            Ok(value)
        };
        run_to_completion(work).await
    }

    /// Removes all objects whose key starts with `prefix`, in batches: other writers wait for each transaction.
    pub async fn remove_internal(&self, bucket: &str, prefix: &str) -> Result<()> {
        loop {
            let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
            if !self.write_and_remove(move |tx| remove_some_objects(tx, &bucket, &prefix)).await? {
                return Ok(());
            }
        }
    }
}

/// Removes a batch of objects. Returns whether there may be more, and the files that no row refers to any more.
fn remove_some_objects(tx: &mut Tx<'_>, bucket: &str, prefix: &str) -> Result<(bool, Vec<FileId>)> {
    let (bucket, mut files) = (buckets::find(tx, &account(), bucket)?, Vec::new());
    let listed = objects::list(tx, &bucket.id, prefix, successor(prefix).as_deref(), BATCH)?;
    for one in &listed {
        if let Some(object) = objects::get(tx, &bucket.id, &one.key)? {
            objects::remove(tx, &bucket.id, &one.key)?;
            discard_object(tx, &bucket, &object, &mut files)?;
        }
    }
    Ok((listed.len() as u32 == BATCH, files))
}
