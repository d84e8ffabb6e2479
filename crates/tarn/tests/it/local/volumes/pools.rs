//! The pool: one engine's alone, never mistaken for another one, and full when it is full.

use std::fs;
use std::process::Command;

use tarn_driver::local::LocalDriver;
use tarn_driver::{Driver, Error};

use super::disks::Disk;
use super::looks::with_volumes;
use super::{GIB, reopen};
use crate::local::machine::{names, open, open_with};

fn refusal(opened: Result<LocalDriver, Error>) -> String {
    match opened {
        Err(Error::Permanent(why)) => why,
        Err(other) => panic!("it is refused for good, but {other:?}"),
        Ok(_) => panic!("it is refused"),
    }
}

#[test]
fn a_pool_that_is_not_there_or_not_ones_own_is_refused() {
    with_volumes(async |machine| {
        let spec = machine.volume(GIB);
        let made = machine.driver.ensure_volume(&spec).await.unwrap();
        let (other, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pool = machine.pool();
        let shared = open_with(other.path(), &pool).await.err();
        assert!(matches!(&shared, Some(Error::Retry(why)) if why.contains("another engine")), "{shared:?}");
        machine.driver = open(elsewhere.path()).await.unwrap();
        let foreign = refusal(open_with(other.path(), &pool).await);
        assert!(foreign.contains("another installation"), "{foreign}");

        // The disk of the pool is not mounted: an empty directory is in its place, or none.
        let away = machine.data.path().join("away");
        fs::rename(&pool, &away).unwrap();
        for _ in 0..2 {
            let lost = refusal(open(machine.data.path()).await);
            assert!(lost.contains("is its disk mounted?"), "{lost}");
            let _present = fs::create_dir(&pool);
        }
        assert_eq!(names(&pool), Vec::<String>::new(), "nothing is made in its place");
        let missing = refusal(open_with(machine.data.path(), &elsewhere.path().join("new")).await);
        assert!(missing.contains("is its disk mounted?"), "{missing}");
        fs::remove_file(away.join("installation")).unwrap();
        let unknown = refusal(open_with(other.path(), &away).await);
        assert!(unknown.contains("not known"), "{unknown}");
        fs::write(away.join("installation"), fs::read(machine.data.path().join("installation")).unwrap()).unwrap();

        machine.driver = open_with(machine.data.path(), &away).await.unwrap();
        let seen = machine.driver.observe_volume(&spec.id).await.unwrap();
        assert_eq!(seen, Some(made), "an operator may move it");
        machine.driver = open(elsewhere.path()).await.unwrap();
        fs::remove_dir(&pool).unwrap();
        fs::rename(&away, &pool).unwrap();
        machine.driver = open(machine.data.path()).await.unwrap();
    });
}

#[test]
fn a_pool_that_goes_away_does_not_make_its_volumes_seem_gone() {
    with_volumes(async |machine| {
        let spec = machine.volume(GIB);
        let made = machine.driver.ensure_volume(&spec).await.unwrap();
        let away = machine.data.path().join("away");
        fs::rename(machine.pool(), &away).unwrap();
        fs::create_dir(machine.pool()).unwrap();
        assert!(matches!(machine.driver.observe_volume(&spec.id).await, Err(Error::Retry(_))));
        assert!(matches!(machine.driver.observe().await, Err(Error::Retry(_))));
        assert!(matches!(machine.driver.ensure_volume(&spec).await, Err(Error::Retry(_))));
        assert!(matches!(machine.driver.remove_volume(&spec.id).await, Err(Error::Retry(_))));
        fs::remove_dir(machine.pool()).unwrap();
        fs::rename(&away, machine.pool()).unwrap();
        assert_eq!(machine.driver.observe_volume(&spec.id).await, Ok(Some(made)));
        reopen(machine).await;
    });
}

#[test]
fn a_full_disk_is_said_and_nothing_is_left_of_what_had_no_room() {
    with_volumes(async |machine| {
        let (data, disk) = (tempfile::tempdir().unwrap(), Disk::of(200 << 20));
        let driver = open_with(data.path(), disk.path()).await.unwrap();
        let (first, second) = (machine.volume(GIB), machine.volume(GIB));
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
        assert_eq!(names(disk.path()), ["installation", "other", first.id.as_str()]);
        fs::remove_file(disk.path().join("other")).unwrap();
        driver.ensure_volume(&second).await.unwrap();
        let huge = tarn_driver::VolumeSpec { size_bytes: 1 << 60, ..machine.volume(GIB) };
        assert!(driver.ensure_volume(&huge).await.is_err());
        for id in [&first.id, &second.id] {
            driver.remove_volume(id).await.unwrap();
        }
        assert_eq!(names(disk.path()), ["installation"]);
    });
}
