//! What a place of backups must do, for a directory and for a bucket.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{ObjectStore as _, ObjectStoreExt as _};
use tarn_store::backup::NamedFile;
use tempfile::TempDir;

use super::manifest::{DatabaseKind, FORMAT, ObjectsCopy, SQLITE, VolumeCopy};
use super::sums::FileSum;
use super::*;
use crate::backup::parts::contents::{self, Collected};

/// A place, and an installation whose objects are backed up to it.
struct World {
    root: TempDir,
    bucket: Option<Arc<InMemory>>,
    made: i64,
}

impl World {
    /// One with a directory, and one with a bucket.
    fn both() -> [World; 2] {
        [None, Some(Arc::default())].map(|bucket| World { root: tempfile::tempdir().unwrap(), bucket, made: 0 })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    async fn open(&self) -> Place {
        let medium: Box<dyn Medium> = match &self.bucket {
            None => Box::new(Directory::open_for_writing(&self.path("backups")).unwrap()),
            Some(bucket) => Box::new(Bucket::open_memory(bucket.clone(), self.root.path()).await.unwrap()),
        };
        Place { medium, shown: "the place".to_owned() }
    }

    /// Stores an object, as the engine does.
    fn store(&self, id: &str, content: &[u8]) -> NamedFile {
        let md5 = hex::encode(<md5::Md5 as md5::Digest>::digest(content));
        let file = NamedFile { file: id.parse().unwrap(), bytes: content.len() as u64, md5 };
        let path = self.path("installation").join(content_key(&file.file));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Contents of a directory of backups are links to the file that was there.
        let _ = fs::remove_file(&path);
        fs::write(path, content).unwrap();
        file
    }

    /// Fills a backup with these objects, but does not complete it.
    async fn begin(&mut self, place: &Place, files: &[NamedFile]) -> (Manifest, Collected, PathBuf) {
        retention::remove_leftovers(place).await.unwrap();
        self.made += 1;
        let now = Time::from_micros(self.made * 1_000_000);
        let (name, staged) = place.begin(now).await.unwrap();
        let (objects, collected) =
            contents::collect(&*place.medium, &self.path("installation"), files, &staged).await.unwrap();
        for (file, content) in [(SQLITE, name.as_bytes()), ("s-000000000001.volume", b"volume")] {
            fs::write(staged.join(file), content).unwrap();
        }
        let manifest = manifest(&name, now, objects, &staged);
        manifest.write(&staged).unwrap();
        place.medium.store_early(&name, &staged, "s-000000000001.volume").await.unwrap();
        (manifest, collected, staged)
    }

    /// Makes a backup of these objects, and keeps some.
    async fn make(&mut self, files: &[NamedFile], keep: u32) -> (Manifest, Collected) {
        let place = self.open().await;
        let (manifest, collected, staged) = self.begin(&place, files).await;
        place.medium.publish(&manifest.name, &staged).await.unwrap();
        contents::note_read(&*place.medium, &collected).await.unwrap();
        retention::remove_old(&place, Some(keep), &manifest.name).await.unwrap();
        place.medium.close().await;
        (manifest, collected)
    }

    async fn names(&self) -> Vec<String> {
        let place = self.open().await;
        let names = place.backups().await.unwrap().into_iter().map(|backup| backup.name).collect();
        place.medium.close().await;
        names
    }

    async fn contents(&self) -> BTreeSet<String> {
        let place = self.open().await;
        let contents = place.medium.contents().await.unwrap().into_keys().collect();
        place.medium.close().await;
        contents
    }

    /// Changes a content that is in the place, which keeps its size.
    async fn damage(&self, file: &NamedFile) {
        let (key, content) = (content_key(&file.file), vec![b'!'; file.bytes as usize]);
        match &self.bucket {
            Some(bucket) => drop(bucket.put(&Key::from(format!("place/objects/{key}")), content.into()).await.unwrap()),
            None => {
                let path = self.path("backups").join("objects").join(key);
                fs::remove_file(&path).unwrap();
                fs::write(path, content).unwrap();
            }
        }
    }

    /// Everything that is in the place, without the lock.
    async fn everything(&self) -> BTreeSet<String> {
        use futures::TryStreamExt as _;
        let Some(bucket) = &self.bucket else { return files_below(&self.path("backups")) };
        let listed: Vec<_> = bucket.list(None).try_collect().await.unwrap();
        listed.into_iter().map(|object| object.location.to_string()).collect()
    }
}

fn files_below(directory: &Path) -> BTreeSet<String> {
    let below = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    below
        .flat_map(|path| if path.is_dir() { files_below(&path) } else { [path.display().to_string()].into() })
        .collect()
}

fn manifest(name: &str, now: Time, objects: ObjectsCopy, staged: &Path) -> Manifest {
    Manifest {
        format: FORMAT,
        name: name.to_owned(),
        created_us: now.as_micros(),
        created: now.to_string(),
        tarn: "1".to_owned(),
        schema: 1,
        database: DatabaseKind::Sqlite,
        database_file: FileSum::of(staged, SQLITE).unwrap(),
        secret_key: None,
        key_fingerprint: None,
        objects,
        volumes: vec![VolumeCopy {
            id: "s-000000000001".to_owned(),
            file: FileSum::of(staged, "s-000000000001.volume").unwrap(),
        }],
        volumes_left_out: Vec::new(),
    }
}

/// A backup is there when it was completed, and has what was put into it.
#[tokio::test]
async fn backups_are_complete_or_absent() {
    for mut world in World::both() {
        let files = [world.store("f-aa0000000001", b"first"), world.store("f-bb0000000002", &[7; 20 << 20])];
        let (manifest, collected) = world.make(&files, 9).await;
        assert_eq!((collected.new_files, collected.new_bytes), (2, 5 + (20 << 20)));
        let place = world.open().await;
        let (_, _, staged) = world.begin(&place, &files).await;
        assert_eq!(world_names(&place).await, [manifest.name.as_str()], "the second one is not complete");
        let backup = place.find(None).await.unwrap();
        assert_eq!(backup.manifest.as_ref().unwrap(), &manifest);
        for file in manifest.files() {
            assert_eq!(file.fault(place.medium.file_sum(&backup.name, &file.name).await), None);
            let to = world.path(&file.name);
            place.medium.copy_file(&backup.name, &file.name, &to).await.unwrap();
            assert_eq!(file.fault(FileSum::of(world.root.path(), &file.name)), None);
            let local = place.medium.local_file(&backup.name, &file.name).await.unwrap();
            assert_eq!(fs::read(&local.path).unwrap(), fs::read(to).unwrap());
        }
        let list = contents::read_list(&*place.medium, &backup.name).await.unwrap();
        assert_eq!(list, files);
        let restored = world.path("restored");
        fs::create_dir(&restored).unwrap();
        let faults = contents::restore_contents(&*place.medium, &list, &restored, false).await.unwrap();
        assert!(faults.is_empty() && fs::read(restored.join("bb/f-bb0000000002")).unwrap() == [7; 20 << 20]);
        assert!(place.find(Some("20200101T000000Z")).await.is_err_and(|e| e.0.contains("no backup")));
        // The process is killed. That its lock ends then is another test.
        drop(place);
        if let Some(bucket) = &world.bucket {
            bucket.delete(&Key::from("place/tarn-backups.lock")).await.unwrap();
        }
        world.make(&files, 9).await;
        assert!(!staged.exists() && world.names().await.len() == 2);
        let left = world.everything().await;
        assert!(!left.iter().any(|name| name.contains(".partial") || name.contains("T000002Z")), "{left:?}");
    }
}

async fn world_names(place: &Place) -> Vec<String> {
    place.backups().await.unwrap().into_iter().map(|backup| backup.name).collect()
}

/// Contents are brought once, and removed with the last backup that names them.
#[tokio::test]
async fn contents_are_shared() {
    for mut world in World::both() {
        let (first, second) = (world.store("f-aa0000000001", b"first"), world.store("f-bb0000000002", b"second"));
        world.make(std::slice::from_ref(&first), 9).await;
        let (_, collected) = world.make(&[first.clone(), second.clone()], 9).await;
        assert_eq!(collected.new_files, 1);
        world.make(std::slice::from_ref(&second), 2).await;
        assert_eq!((world.contents().await.len(), world.names().await.len()), (2, 2));
        world.make(std::slice::from_ref(&second), 1).await;
        assert_eq!(world.contents().await, [content_key(&second.file)].into());
        assert_eq!(world.names().await.len(), 1);
    }
}

/// What is not what was stored is named, and does not get into the place.
#[tokio::test]
async fn contents_are_compared() {
    for mut world in World::both() {
        let (good, wrong) = (world.store("f-aa0000000001", b"good"), world.store("f-aa0000000002", b"good"));
        let (large, missing) = (world.store("f-bb0000000003", &[7; 9 << 20]), world.store("f-bb0000000004", b"gone"));
        world.store("f-aa0000000002", b"oops");
        let mut other = vec![7; 9 << 20];
        other[5] = 8;
        world.store("f-bb0000000003", &other);
        fs::remove_file(world.path("installation").join(content_key(&missing.file))).unwrap();
        if world.bucket.is_none() {
            // What a killed backup linked and did not compare.
            world.make(&[], 9).await;
            let shard = world.path("backups/objects/aa");
            fs::create_dir_all(&shard).unwrap();
            fs::write(shard.join("f-aa0000000002.partial"), "oops").unwrap();
        }
        let (manifest, _) = world.make(&[good.clone(), wrong, large, missing], 9).await;
        assert_eq!((manifest.objects.files, manifest.objects.damaged.len()), (1, 3));
        assert_eq!(world.contents().await, [content_key(&good.file)].into());
    }
}

/// A content that was damaged in the place at equal size is found by a later backup, and replaced if it can be.
#[tokio::test]
async fn rotten_contents_are_found() {
    for mut world in World::both() {
        let files = [world.store("f-aa0000000001", b"first"), world.store("f-bb0000000002", b"second")];
        world.make(&files, 9).await;
        world.damage(&files[0]).await;
        let (manifest, collected) = world.make(&files, 9).await;
        assert_eq!((collected.replaced, manifest.objects.damaged.len()), (vec![files[0].file.to_string()], 0));
        let (_, collected) = world.make(&files, 9).await;
        assert!(collected.replaced.is_empty(), "it is intact again");
        world.damage(&files[0]).await;
        world.store("f-aa0000000001", b"wrong");
        let (manifest, collected) = world.make(&files, 9).await;
        assert_eq!((collected.replaced.len(), manifest.objects.files, manifest.objects.damaged.len()), (0, 1, 1));
    }
}

/// A place with other content is refused, and is as it was.
#[tokio::test]
async fn places_with_other_content_are_refused() {
    let bucket = Arc::new(InMemory::new());
    bucket.put(&Key::from("place/precious"), "x".into()).await.unwrap();
    let root = tempfile::tempdir().unwrap();
    assert!(Bucket::open_memory(bucket.clone(), root.path()).await.is_err_and(|e| e.0.contains("not empty")));
    let world = World { root, bucket: Some(bucket), made: 0 };
    assert_eq!(world.everything().await, ["place/precious".to_owned()].into());
}
