//! The account of the engine itself: what it keeps for others under names of its own. Nobody is told its key, and no quota
//! limits it.

use std::io;

use tarn_model::ids::{FileId, OrgId};
use tarn_model::objects::{Body, Details};
use tarn_store::{Tx, objects};

use crate::delete::discard;
use crate::files::{INLINE_MAX, Received};
use crate::list::successor;
use crate::put::{Arrival, Condition, Place, check_key, enter, hexadecimal, naming};
use crate::upkeep::SOME;
use crate::{Error, Objects, Result, accounts, buckets};

/// The id of the account. Organizations have random ids, so none has this one.
const ACCOUNT: &str = "o-000000000000";

/// The account of the engine.
pub fn account() -> OrgId {
    ACCOUNT.parse().expect("it has the form of an id")
}

/// Whether this is the account of the engine.
pub(crate) fn is_account(org: &OrgId) -> bool {
    org.as_str() == ACCOUNT
}

/// Puts a small object as part of a larger transaction; one that is too large for a row is refused. The file of what was there
/// before, if it had one, is left to the sweep.
pub fn put_small(tx: &mut Tx<'_>, bucket: &str, key: &str, data: &[u8]) -> Result<()> {
    check_key(key)?;
    if data.len() > INLINE_MAX {
        return Err(Error::TooLarge(INLINE_MAX as u64));
    }
    let place = Place { org: account(), bucket: bucket.to_owned(), key: key.to_owned() };
    let (size, body) = (data.len() as u64, Body::Inline(data.to_vec()));
    let arrival = Arrival { size, etag: hexadecimal(&[0; 16]), details: Details::default(), body, parts: Vec::new() };
    enter(tx, &place, &arrival, &Condition::default(), None).map(drop)
}

/// Why a put that is part of something larger did not happen.
#[derive(Debug)]
pub enum NotPut<E> {
    /// Because of the object.
    Object(Error),
    /// Because of what happens with it.
    Other(E),
}

impl<E> NotPut<E> {
    /// Whether the transaction was taken back for certain. What else happens in it can only refuse.
    fn is_refusal(&self) -> bool {
        match self {
            NotPut::Object(error) => error.is_refusal(),
            NotPut::Other(_) => true,
        }
    }
}

impl<E> From<Error> for NotPut<E> {
    fn from(error: Error) -> Self {
        NotPut::Object(error)
    }
}

impl<E> From<tarn_store::Error> for NotPut<E> {
    fn from(error: tarn_store::Error) -> Self {
        NotPut::Object(error.into())
    }
}

impl Objects {
    /// Makes the account and a bucket in it, unless they are there.
    pub async fn ensure_internal(&self, bucket: &str) -> Result<()> {
        let (org, bucket) = (account(), bucket.to_owned());
        let there = self.store().read(|tx| tarn_store::buckets::find(tx, &org, &bucket)).await?;
        if there.is_some() {
            return Ok(());
        }
        let write = self.store().write(move |tx| {
            accounts::enable(tx, &org)?;
            match buckets::create(tx, &org, &bucket) {
                Ok(_) | Err(Error::BucketExists) => Ok(()),
                Err(other) => Err(other),
            }
        });
        write.await
    }

    /// Makes a body that was taken in visible, in one transaction with something else: both happen or neither.
    pub async fn put_with<T, E>(
        &self,
        place: &Place,
        received: Received,
        also: impl Fn(&mut Tx<'_>) -> std::result::Result<T, E> + Send + Sync + 'static,
    ) -> std::result::Result<T, NotPut<E>>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        check_key(&place.key)?;
        let (arrival, pending) = self.arrival(received, Details::default());
        let (objects, place, quota) = (self.clone(), place.clone(), self.quota_bytes(&place.org));
        let work = async move {
            let write = objects.store().write(move |tx| -> std::result::Result<(T, Vec<FileId>), NotPut<E>> {
                let (_, files) = enter(tx, &place, &arrival, &Condition::default(), quota)?;
                Ok((also(tx).map_err(NotPut::Other)?, files))
            });
            let (value, files) = naming(pending, write, NotPut::is_refusal).await?;
            objects.remove_files(files).await;
            Ok(value)
        };
        match tokio::spawn(work).await {
            Ok(result) => result,
            Err(error) => Err(Error::File(io::Error::other(error)).into()),
        }
    }

    /// Removes everything whose key begins so, some at a time: others wait for a transaction.
    pub async fn remove_internal(&self, bucket: &str, prefix: &str) -> Result<()> {
        loop {
            let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
            if !self.write_and_remove(move |tx| remove_some(tx, &bucket, &prefix)).await? {
                return Ok(());
            }
        }
    }
}

/// Removes some objects and says whether there may be more, and which files no row names any more.
fn remove_some(tx: &mut Tx<'_>, bucket: &str, prefix: &str) -> Result<(bool, Vec<FileId>)> {
    let (bucket, mut files) = (buckets::find(tx, &account(), bucket)?, Vec::new());
    let listed = objects::list(tx, &bucket.id, prefix, successor(prefix).as_deref(), SOME)?;
    for one in &listed {
        if let Some(object) = objects::get(tx, &bucket.id, &one.key)? {
            objects::remove(tx, &bucket.id, &one.key)?;
            discard(tx, &bucket, &object, &mut files)?;
        }
    }
    Ok((listed.len() as u32 == SOME, files))
}
