//! Object storage with an account and a bucket in it.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::StreamExt;
use tarn_model::access::Policy;
use tarn_model::ids::{OrgId, UserId};
use tarn_model::objects::{Details, Object};
use tarn_model::users::User;
use tarn_model::{Ids, Time};
use tarn_objects::files::Sums;
use tarn_objects::find::VersionSelector;
use tarn_objects::put::{Condition, ObjectLocation, Stored};
use tarn_objects::{Components, Error, Objects, Result, Settings};
use tarn_store::s3_keys::KeyHolder;
use tarn_store::testing::{self, DatabaseKind};

pub(crate) struct World {
    base: testing::World,
    pub(crate) objects: Objects,
    pub(crate) org: OrgId,
    pub(crate) directory: PathBuf,
}

impl Deref for World {
    type Target = testing::World;

    fn deref(&self) -> &testing::World {
        &self.base
    }
}

/// A world whose callers have no user, so that they may delete buckets only as any member may.
pub(crate) async fn world(database: DatabaseKind) -> Option<World> {
    let access = Policy { members_may_destroy: true };
    with(database, Settings { reserve_bytes: 0, access, ..Settings::default() }).await
}

pub(crate) async fn with(database: DatabaseKind, settings: Settings) -> Option<World> {
    let base = testing::World::open(database).await?;
    let org = OrgId::fresh(&*base.ids);
    let (objects, directory) = open(&base, settings);
    let of = org.clone();
    base.store.write(move |tx| tarn_objects::accounts::enable(tx, &of).map(drop)).await.unwrap();
    objects.create_bucket(&org, None, "first").await.unwrap();
    Some(World { base, objects, org, directory })
}

/// Object storage on a store, and its directory.
pub(crate) fn open(base: &testing::World, settings: Settings) -> (Objects, PathBuf) {
    let (store, directory) = (base.store.clone(), base.fresh.dir.path().join("objects"));
    let (clock, ids) = (base.clock.clone(), base.ids.clone());
    let components = Components { store, directory: directory.clone(), secret: [7; 32], settings, clock, ids };
    (Objects::open(components).unwrap(), directory)
}

/// A user in an organization.
pub(crate) fn user(ids: &dyn Ids, org: &OrgId) -> User {
    let id = UserId::fresh(ids);
    let (email, created) = (format!("{id}@example.org"), Time::ZERO);
    User { id, email, org: Some(org.clone()), org_admin: false, engine_admin: false, disabled: false, created }
}

/// Waits until an object storage has this many data files: removals end a moment after the call.
pub(crate) async fn has_files(directory: &Path, wanted: usize) {
    for _ in 0..6000 {
        if count_files(directory) == wanted {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("there are {} files, not {wanted}", count_files(directory));
}

/// Returns the number of data files in the directory of an object storage.
fn count_files(directory: &Path) -> usize {
    let shards = std::fs::read_dir(directory).unwrap();
    shards.map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap().count()).sum()
}

impl World {
    /// The holder of a legacy key of the account.
    pub(crate) fn holder(&self) -> KeyHolder {
        KeyHolder { org: self.org.clone(), user: None, ends: None }
    }

    pub(crate) fn location(&self, key: &str) -> ObjectLocation {
        ObjectLocation { org: self.org.clone(), bucket: "first".to_owned(), key: key.to_owned() }
    }

    pub(crate) async fn put(&self, key: &str, data: &[u8]) -> Result<Stored> {
        self.put_if(key, data, Condition::default()).await
    }

    pub(crate) async fn put_if(&self, key: &str, data: &[u8], condition: Condition) -> Result<Stored> {
        let location = self.location(key);
        let mut intake = self.objects.intake(&location, Some(data.len() as u64), Sums::with(None)).await?;
        intake.push(Bytes::copy_from_slice(data)).await?;
        self.objects.put(&location, intake.finish().await?, Details::default(), condition).await
    }

    pub(crate) async fn find(&self, key: &str, selector: &VersionSelector) -> Result<Object> {
        self.objects.find(&self.org, "first", key, selector).await
    }

    pub(crate) async fn get(&self, key: &str, selector: &VersionSelector) -> Result<Vec<u8>> {
        let object = self.find(key, selector).await?;
        self.read(&object).await
    }

    pub(crate) async fn read(&self, object: &Object) -> Result<Vec<u8>> {
        let mut reading = self.objects.read(object, 0..object.size).await?;
        let mut data = Vec::new();
        while let Some(piece) = reading.next().await {
            data.extend_from_slice(&piece.map_err(Error::from)?);
        }
        Ok(data)
    }

    /// Returns the bytes and objects of the account.
    pub(crate) async fn usage(&self) -> (u64, u64) {
        let account = self.store.read(|tx| tarn_objects::accounts::get(tx, &self.org)).await.unwrap();
        (account.bytes, account.objects)
    }

    /// Returns the number of data files.
    pub(crate) fn files(&self) -> usize {
        count_files(&self.directory)
    }

    /// Waits until there are this many data files.
    pub(crate) async fn has_files(&self, wanted: usize) {
        has_files(&self.directory, wanted).await;
    }
}
