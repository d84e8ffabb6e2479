//! The fake with concurrent users and with faults.

use super::*;
use crate::End;
use tarn_model::capacity::{Gpu, Shape};

fn test_inventory() -> Inventory {
    let gpu = |n: u32| Gpu { id: format!("gpu-{n}"), model: "H100".into(), simulated: true };
    Inventory { cpu_milli: 100_000, memory_bytes: 1 << 40, gpus: (0..4).map(gpu).collect(), storage_bytes: 1 << 40 }
}

fn volume(number: u64) -> VolumeSpec {
    VolumeSpec { id: format!("s-{number:012}").parse().unwrap(), size_bytes: number }
}

fn instance(number: u32) -> InstanceSpec {
    InstanceSpec {
        id: format!("i-{number:012}").parse().unwrap(),
        cluster: "c-000000000001".parse().unwrap(),
        node: number,
        name: format!("node-{number}"),
        shape: Shape { cpu_milli: 100, memory_bytes: 1 << 20, gpus: 0, gpu_model: None },
        gpus: vec![],
        container: Some("docker.io/library/debian".into()),
        boot: 1,
        volumes: vec![],
        share: "share".into(),
    }
}

/// Two drivers on one directory lose no update.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_drivers_share_a_world() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Arc::new(FakeDriver::open(dir.path(), test_inventory(), Settings::default()).unwrap());
    let drivers = [open(), open()];
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..30u32 {
        let [one, other] = if number % 2 == 0 { drivers.clone() } else { [drivers[1].clone(), drivers[0].clone()] };
        tasks.spawn(async move {
            let volume = volume(u64::from(number) + 1);
            let (made, again) = tokio::join!(one.ensure_volume(&volume), other.ensure_volume(&volume));
            assert_eq!(made, again);
            one.ensure_instance(&instance(number)).await.unwrap();
            other.ensure_mount(&volume.id, &instance(number).id).await.unwrap();
            if number % 3 == 0 {
                one.remove_instance(&instance(number).id).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let world = read_world(dir.path()).unwrap();
    assert_eq!(world, drivers[0].observe().await.unwrap());
    assert_eq!(world.volumes.len(), 30);
    assert_eq!(world.instances.len(), 20);
    assert!(world.instances.values().all(|instance| instance.volumes.len() == 1), "{world:#?}");
}

/// Of many concurrent instances with the same GPU exactly one is created.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_gpu_gets_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Arc::new(FakeDriver::open(dir.path(), test_inventory(), Settings::default()).unwrap());
    let drivers = [open(), open()];
    let tasks = (0..10).map(|number| {
        let (driver, mut spec) = (drivers[number % 2].clone(), instance(number as u32));
        spec.gpus = vec!["gpu-0".into()];
        spec.shape.gpus = 1;
        spec.shape.gpu_model = Some("H100".into());
        async move { driver.ensure_instance(&spec).await }
    });
    let outcomes = tasks.collect::<tokio::task::JoinSet<_>>().join_all().await;
    let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 9));
    assert!(lost.iter().all(|outcome| matches!(outcome, Err(Error::Permanent(_)))), "{lost:?}");
}

#[tokio::test]
async fn grouped_calls_get_their_own_results() {
    let dir = tempfile::tempdir().unwrap();
    let driver = FakeDriver::open(dir.path(), test_inventory(), Settings::default()).unwrap();
    let closed = driver.gate.clone().lock_owned().await;
    let (one, two, absent) = (volume(1), volume(2), instance(0).id);
    let calls = async {
        tokio::join!(
            driver.ensure_volume(&one),
            driver.ensure_mount(&one.id, &absent),
            driver.remove_volume(&one.id),
            driver.ensure_volume(&two),
        )
    };
    let opened = async {
        tokio::task::yield_now().await;
        drop(closed);
    };
    let ((made, mounted, removed, other), ()) = tokio::join!(calls, opened);
    assert_eq!(made, Ok(ObservedVolume { size_bytes: 1, used_bytes: Some(0), fault: None }));
    assert!(matches!(mounted, Err(Error::Permanent(_))), "{mounted:?}");
    assert_eq!((removed, other), (Ok(()), Ok(ObservedVolume { size_bytes: 2, used_bytes: Some(0), fault: None })));
    assert_eq!(read_world(dir.path()).unwrap().volumes.into_keys().collect::<Vec<_>>(), [two.id]);
}

/// A call whose caller gave up while it waited is never made.
#[tokio::test]
async fn abandoned_call_has_no_effect() {
    let dir = tempfile::tempdir().unwrap();
    let driver = FakeDriver::open(dir.path(), test_inventory(), Settings::default()).unwrap();
    let closed = driver.gate.clone().lock_owned().await;
    let given_up = tokio::time::timeout(Duration::from_millis(1), driver.ensure_volume(&volume(1))).await;
    assert!(given_up.is_err());
    drop(closed);
    driver.ensure_volume(&volume(2)).await.unwrap();
    assert_eq!(read_world(dir.path()).unwrap().volumes.into_keys().collect::<Vec<_>>(), [volume(2).id]);
}

#[tokio::test]
async fn damaged_world_fails_every_call() {
    let dir = tempfile::tempdir().unwrap();
    let driver = FakeDriver::open(dir.path(), test_inventory(), Settings::default()).unwrap();
    std::fs::write(dir.path().join("fake-world.json"), "{").unwrap();
    let errors = [driver.ensure_volume(&volume(1)).await.unwrap_err(), driver.observe().await.unwrap_err()];
    assert!(errors.iter().all(|error| matches!(error, Error::Permanent(why) if why.contains("damaged"))), "{errors:?}");
}

/// Faults come before and after the effect, and are the same with the same seed.
#[tokio::test]
async fn injected_faults_repeat_with_the_seed() {
    let run = async || {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { fault_rate: 0.5, seed: 11, ..Settings::default() };
        let driver = FakeDriver::open(dir.path(), test_inventory(), settings).unwrap();
        let mut seen = Vec::new();
        for number in 1..=40 {
            let outcome = driver.ensure_volume(&volume(number)).await;
            assert!(matches!(outcome, Ok(_) | Err(Error::Retry(_))), "{outcome:?}");
            let exists = driver.observe_volume(&volume(number).id).await.unwrap().is_some();
            seen.push((outcome.is_ok(), exists));
        }
        seen
    };
    let seen = run().await;
    assert!(seen.contains(&(true, true)) && seen.contains(&(false, false)) && seen.contains(&(false, true)));
    assert!(!seen.contains(&(true, false)), "a successful call has its effect");
    assert_eq!(seen, run().await);
}

#[tokio::test]
async fn killed_instance_stays_dead_until_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let driver = FakeDriver::open(dir.path(), test_inventory(), Settings::default()).unwrap();
    let spec = instance(0);
    let made = driver.ensure_instance(&spec).await.unwrap();
    driver.kill(&spec.id, End::OutOfMemory).await.unwrap();
    let seen = driver.observe_instance(&spec.id).await.unwrap().unwrap();
    assert_eq!(seen, ObservedInstance { running: false, end: Some(End::OutOfMemory), ..made.clone() });
    assert!(matches!(driver.configure_instance(&spec.id, &Access::default()).await, Err(Error::Permanent(_))));
    let again = driver.ensure_instance(&InstanceSpec { boot: 2, ..spec.clone() }).await.unwrap();
    assert_eq!(again, ObservedInstance { boot: 2, ..made });
    assert!(
        matches!(driver.kill(&instance(1).id, End::Exit).await, Err(Error::Permanent(_))),
        "there is no such thing"
    );
}

#[tokio::test]
async fn access_is_replaced_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let driver = FakeDriver::open(dir.path(), test_inventory(), Settings::default()).unwrap();
    let spec = instance(0);
    driver.ensure_instance(&spec).await.unwrap();
    for key in ["ssh-ed25519 old", "ssh-ed25519 new"] {
        let hosts = vec![("node-0".into(), "10.77.0.1".into())];
        let access = Access { public_keys: vec![key.into()], hosts, ..Access::default() };
        driver.configure_instance(&spec.id, &access).await.unwrap();
    }
    driver.ensure_instance(&InstanceSpec { boot: 2, ..spec.clone() }).await.unwrap();
    let world = driver.file.read_locked().unwrap();
    assert_eq!(world.instances[&spec.id].public_keys, ["ssh-ed25519 new"]);
    assert_eq!(world.instances[&spec.id].hosts, [("node-0".to_owned(), "10.77.0.1".to_owned())]);
}

/// A process that uses a volume keeps it from being unmounted.
#[tokio::test]
async fn process_blocks_the_unmount() {
    let dir = tempfile::tempdir().unwrap();
    let driver = FakeDriver::open(dir.path(), test_inventory(), Settings::default()).unwrap();
    let (spec, volume) = (instance(0), volume(1));
    driver.ensure_volume(&volume).await.unwrap();
    driver.ensure_instance(&spec).await.unwrap();
    assert!(driver.hold(&volume.id, &spec.id, "python3").await.is_err(), "it is not mounted yet");
    driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
    let stubborn = driver.hold(&volume.id, &spec.id, "python3").await.unwrap();
    driver.visit(&volume.id, &spec.id, "bash").await.unwrap();
    assert_eq!(driver.volume_users(&volume.id, &spec.id).await.unwrap().len(), 2);
    let refused = driver.remove_mount(&volume.id, &spec.id).await.unwrap_err();
    assert!(refused.to_string().contains(&format!("python3 (process {stubborn})")), "{refused}");

    let killed = driver.end_volume_users(&volume.id, &spec.id, Duration::from_secs(10)).await.unwrap();
    assert_eq!(killed, [VolumeUser { pid: stubborn, program: "python3".into() }], "the other one has left");
    assert_eq!(driver.end_volume_users(&volume.id, &spec.id, Duration::ZERO).await, Ok(vec![]));
    driver.remove_mount(&volume.id, &spec.id).await.unwrap();
    assert_eq!(driver.volume_users(&volume.id, &spec.id).await, Ok(vec![]));
}

#[tokio::test]
async fn faulty_volume_is_left_alone_until_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let driver = FakeDriver::open(dir.path(), test_inventory(), Settings::default()).unwrap();
    let (spec, volume) = (InstanceSpec { volumes: vec![volume(1).id], ..instance(0) }, volume(1));
    let made = driver.ensure_volume(&volume).await.unwrap();
    driver.lose(&volume.id).await.unwrap();
    assert_eq!(driver.observe_volume(&volume.id).await, Ok(None));
    assert!(driver.ensure_volume(&volume).await.is_err(), "it is not made a second time");
    assert!(driver.ensure_instance(&spec).await.is_err());
    driver.damage(&volume.id, "its filesystem is damaged").await.unwrap();
    let seen = driver.observe_volume(&volume.id).await.unwrap().unwrap();
    assert_eq!((seen.fault.as_deref(), seen.used_bytes), (Some("its filesystem is damaged"), None));
    assert!(driver.ensure_instance(&spec).await.is_err());
    driver.mend(&volume.id).await.unwrap();
    assert_eq!(driver.ensure_volume(&volume).await, Ok(made));
    driver.ensure_instance(&spec).await.unwrap();
    driver.damage(&volume.id, "again").await.unwrap();
    driver.remove_instance(&spec.id).await.unwrap();
    driver.remove_volume(&volume.id).await.unwrap();
    assert_eq!(driver.observe().await, Ok(Observed::default()), "what is damaged can be removed");
}
