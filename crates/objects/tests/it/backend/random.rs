//! Compares random puts, copies, deletions and changes of versioning with a simple model: lists, contents, usage and
//! files must agree after every step.

use std::collections::BTreeMap;

use rstest::rstest;
use tarn_model::Ids;
use tarn_model::buckets::Versioning;
use tarn_model::ids::VersionId;
use tarn_model::objects::Details;
use tarn_objects::Error;
use tarn_objects::files::INLINE_MAX;
use tarn_objects::find::VersionSelector;
use tarn_objects::list::{Entry, Query};
use tarn_objects::list_versions::After;
use tarn_objects::put::{Condition, StoredVersion};
use tarn_store::testing::{DatabaseKind, SeededIds};

use crate::backend::support::{World, world};

/// The versions of each key, newest first.
#[derive(Default)]
struct Model {
    versioning: Versioning,
    keys: BTreeMap<String, Vec<ModelVersion>>,
}

/// A version; without bytes it is a delete marker.
type ModelVersion = (Option<VersionId>, Option<Vec<u8>>);

impl Model {
    fn add(&mut self, key: &str, version: StoredVersion, data: Option<Vec<u8>>) {
        let versions = self.keys.entry(key.to_owned()).or_default();
        let id = match version {
            StoredVersion::Id(id) => Some(id),
            StoredVersion::Null | StoredVersion::Unversioned => None,
        };
        match self.versioning {
            Versioning::Off => versions.clear(),
            Versioning::Suspended => versions.retain(|(id, _)| id.is_some()),
            Versioning::Enabled => assert!(id.is_some()),
        }
        if data.is_some() || self.versioning != Versioning::Off {
            versions.insert(0, (id, data));
        }
        self.keys.retain(|_, versions| !versions.is_empty());
    }

    fn remove(&mut self, key: &str, version: &Option<VersionId>) {
        if let Some(versions) = self.keys.get_mut(key) {
            versions.retain(|(id, _)| id != version);
        }
        self.keys.retain(|_, versions| !versions.is_empty());
    }
}

/// After every random step, the storage agrees with the model.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn storage_agrees_with_model(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let chance = SeededIds::new(20_261_116);
    let below = |limit: u64| chance.bits() % limit;
    let mut model = Model::default();
    for step in 0..160 {
        let key = ["a", "a/b", "a/c", "b//", "../x"][below(5) as usize].to_owned();
        match below(10) {
            0..=4 => {
                let size = [0, 1, INLINE_MAX, INLINE_MAX + 1, 40_000][below(5) as usize];
                let data = vec![step as u8; size];
                let stored = world.put(&key, &data).await.unwrap();
                model.add(&key, stored.version, Some(data));
            }
            5 => {
                let from = world.find(&key, &VersionSelector::Current).await;
                if let Ok(from) = from {
                    let data = world.read(&from).await.unwrap();
                    let to = world.location("copy");
                    let copied =
                        world.objects.copy(&from, &to, Details::default(), Condition::default()).await.unwrap();
                    model.add("copy", copied.version, Some(data));
                }
            }
            6 | 7 => {
                let deleted = world.objects.delete(&world.org, "first", &key).await.unwrap();
                model.add(&key, deleted.version, None);
            }
            8 => {
                let versions = model.keys.get(&key).cloned().unwrap_or_default();
                if !versions.is_empty() {
                    let (id, _) = versions[below(versions.len() as u64) as usize].clone();
                    world.objects.delete_version(&world.org, "first", &key, id.as_ref()).await.unwrap();
                    model.remove(&key, &id);
                }
            }
            _ if step > 40 => {
                model.versioning = [Versioning::Enabled, Versioning::Suspended][below(2) as usize];
                world.objects.set_versioning(&world.org, "first", model.versioning).await.unwrap();
            }
            _ => {}
        }
        compare(&world, &model, below(4) as u32 + 1).await;
    }
}

async fn compare(world: &World, model: &Model, limit: u32) {
    let mut seen = Vec::new();
    let mut expected = Vec::new();
    for (key, versions) in &model.keys {
        for (at, (id, data)) in versions.iter().enumerate() {
            expected.push((key.clone(), id.clone(), at == 0, data.as_ref().map(|data| data.len() as u64)));
            let read = world.get(key, &VersionSelector::Version(id.clone())).await;
            match data {
                Some(data) => assert!(read.unwrap() == *data),
                None => assert!(matches!(read, Err(Error::IsMarker { .. }))),
            }
        }
        match &versions[0].1 {
            Some(data) => {
                assert!(world.get(key, &VersionSelector::Current).await.unwrap() == *data);
                seen.push(key.clone());
            }
            None => {
                let missing = world.get(key, &VersionSelector::Current).await;
                assert!(matches!(missing, Err(Error::KeyDeleted { .. })), "{missing:?}");
            }
        }
    }
    assert_eq!(all_keys(world, limit).await, seen);
    assert_eq!(all_versions(world, limit).await, expected);
    let objects: Vec<&Vec<u8>> = model.keys.values().flatten().filter_map(|(_, data)| data.as_ref()).collect();
    let bytes = objects.iter().map(|data| data.len() as u64).sum();
    assert_eq!(world.usage().await, (bytes, objects.len() as u64));
    world.has_files(objects.iter().filter(|data| data.len() > INLINE_MAX).count()).await;
}

async fn all_keys(world: &World, limit: u32) -> Vec<String> {
    let (mut query, mut keys) = (Query { limit, ..Query::default() }, Vec::new());
    loop {
        let page = world.objects.list(&world.org, "first", &query).await.unwrap();
        for entry in page.entries {
            let Entry::Item(listed) = entry else { panic!("there is no delimiter") };
            keys.push(listed.key);
        }
        if !page.more {
            return keys;
        }
        query.after = keys.last().cloned();
    }
}

async fn all_versions(world: &World, limit: u32) -> Vec<(String, Option<VersionId>, bool, Option<u64>)> {
    let (mut query, mut within, mut versions) = (Query { limit, ..Query::default() }, None, Vec::new());
    loop {
        let page = world.objects.list_versions(&world.org, "first", &query, within).await.unwrap();
        let mut last = None;
        for entry in page.entries {
            let Entry::Item(version) = entry else { panic!("there is no delimiter") };
            last = Some(After::Sequence(version.listed.sequence));
            query.after = Some(version.listed.key.clone());
            let size = version.listed.object.map(|(size, _)| size);
            versions.push((version.listed.key, version.listed.version, version.latest, size));
        }
        if !page.more {
            return versions;
        }
        within = last;
    }
}
