//! The pool: exclusive to one engine, never mistaken for another one, and full when it is full.

use std::fs;
use std::process::Command;

use tarn_driver::local::LocalDriver;
use tarn_driver::{Driver, Error};

use super::inspection::with_volumes;
use super::test_disks::MemoryDisk;
use super::{GIB, reopen};
use crate::local::test_host::{entry_names, open, open_with_pool};

fn refusal(opened: Result<LocalDriver, Error>) -> String {
    match opened {
        Err(Error::Permanent(why)) => why,
        Err(other) => panic!("it is refused for good, but {other:?}"),
        Ok(_) => panic!("it is refused"),
    }
}

/// A pool that is missing or belongs to another installation is refused.
#[test]
fn missing_or_foreign_pool_is_refused() {
    with_volumes(async |host| {
        let spec = host.volume(GIB);
        let made = host.driver.ensure_volume(&spec).await.unwrap();
        let (other, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pool = host.pool();
        let shared = open_with_pool(other.path(), &pool).await.err();
        assert!(matches!(&shared, Some(Error::Retry(why)) if why.contains("another engine")), "{shared:?}");
        host.driver = open(elsewhere.path()).await.unwrap();
        let foreign = refusal(open_with_pool(other.path(), &pool).await);
        assert!(foreign.contains("another installation"), "{foreign}");

        // The disk of the pool is not mounted: an empty directory is in its place, or none.
        let away = host.data.path().join("away");
        fs::rename(&pool, &away).unwrap();
        for _ in 0..2 {
            let lost = refusal(open(host.data.path()).await);
            assert!(lost.contains("is its disk mounted?"), "{lost}");
            let _present = fs::create_dir(&pool);
        }
        assert_eq!(entry_names(&pool), Vec::<String>::new(), "nothing is made in its place");
        let missing = refusal(open_with_pool(host.data.path(), &elsewhere.path().join("new")).await);
        assert!(missing.contains("is its disk mounted?"), "{missing}");
        fs::remove_file(away.join("installation")).unwrap();
        let unknown = refusal(open_with_pool(other.path(), &away).await);
        assert!(unknown.contains("unknown installation"), "{unknown}");
        fs::write(away.join("installation"), fs::read(host.data.path().join("installation")).unwrap()).unwrap();

        host.driver = open_with_pool(host.data.path(), &away).await.unwrap();
        let seen = host.driver.observe_volume(&spec.id).await.unwrap();
        assert_eq!(seen, Some(made), "an operator may move it");
        host.driver = open(elsewhere.path()).await.unwrap();
        fs::remove_dir(&pool).unwrap();
        fs::rename(&away, &pool).unwrap();
        host.driver = open(host.data.path()).await.unwrap();
    });
}

/// While the pool is missing, its volumes are not reported as gone.
#[test]
fn vanished_pool_does_not_lose_volumes() {
    with_volumes(async |host| {
        let spec = host.volume(GIB);
        let made = host.driver.ensure_volume(&spec).await.unwrap();
        let away = host.data.path().join("away");
        fs::rename(host.pool(), &away).unwrap();
        fs::create_dir(host.pool()).unwrap();
        assert!(matches!(host.driver.observe_volume(&spec.id).await, Err(Error::Retry(_))));
        assert!(matches!(host.driver.observe().await, Err(Error::Retry(_))));
        assert!(matches!(host.driver.ensure_volume(&spec).await, Err(Error::Retry(_))));
        assert!(matches!(host.driver.remove_volume(&spec.id).await, Err(Error::Retry(_))));
        fs::remove_dir(host.pool()).unwrap();
        fs::rename(&away, host.pool()).unwrap();
        assert_eq!(host.driver.observe_volume(&spec.id).await, Ok(Some(made)));
        reopen(host).await;
    });
}

/// A full disk is reported, and a volume that did not fit leaves nothing behind.
#[test]
fn full_pool_is_reported_and_leaves_nothing() {
    with_volumes(async |host| {
        let (data, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::of(200 << 20));
        let driver = open_with_pool(data.path(), disk.path()).await.unwrap();
        let (first, second) = (host.volume(GIB), host.volume(GIB));
        let room = driver.pool().await.unwrap();
        assert!(room > 190 << 20 && room <= 200 << 20, "{room}");
        driver.ensure_volume(&first).await.unwrap();
        let after = driver.pool().await.unwrap();
        assert!(after > room - (1 << 20) && after <= room, "what volumes have taken is still for volumes: {after}");
        assert!(
            Command::new("fallocate").args(["-l", "100M"]).arg(disk.path().join("other")).status().unwrap().success()
        );
        let refused = driver.ensure_volume(&second).await;
        assert!(matches!(&refused, Err(Error::Retry(why)) if why.contains("full")), "{refused:?}");
        assert_eq!(driver.observe_volume(&second.id).await, Ok(None));
        assert_eq!(entry_names(disk.path()), ["installation", "other", first.id.as_str()]);
        fs::remove_file(disk.path().join("other")).unwrap();
        driver.ensure_volume(&second).await.unwrap();
        let huge = tarn_driver::VolumeSpec { size_bytes: 1 << 60, ..host.volume(GIB) };
        assert!(driver.ensure_volume(&huge).await.is_err());
        for id in [&first.id, &second.id] {
            driver.remove_volume(id).await.unwrap();
        }
        assert_eq!(entry_names(disk.path()), ["installation"]);
    });
}
