//! Rows of GPUs and of the host, and how withheld GPUs count as held.

use rstest::rstest;
use tarn_model::Time;
use tarn_model::capacity::Gpu;
use tarn_model::gpus::{Drain, Facts, GpuRecord, Health};
use tarn_store::testing::DatabaseKind;
use tarn_store::{Error, gpus, host, instances};

use crate::support::world;

fn known(id: &str, health: Health) -> GpuRecord {
    let facts = Facts {
        memory_bytes: 80 << 30,
        driver_version: Some("570.1".into()),
        cuda_version: Some("12.8".into()),
        bus_id: Some("0000:3b:00.0".into()),
        parent: Some("GPU-1".into()),
    };
    let gpu = Gpu { id: id.into(), model: "H100".into(), simulated: true };
    GpuRecord { gpu, facts, health, cleared: Some(Time::from_micros(3)), drain: None }
}

/// GPUs are read as they were saved.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn gpus_round_trip(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let (reason, since) = ("why".to_owned(), Time::from_micros(5));
    let healths = [
        Health::Good,
        Health::Bad { reason: reason.clone(), since },
        Health::Recovering { reason: reason.clone(), since },
        Health::Fatal { reason, since },
    ];
    for (number, health) in healths.into_iter().enumerate() {
        let mut known = known(&format!("gpu-{number}"), health);
        for drain in [None, Some(Drain { reason: None, since }), Some(Drain { reason: Some("x".into()), since }), None]
        {
            known.drain = drain;
            let saved = known.clone();
            world.store.write(move |tx| gpus::save(tx, &saved)).await.unwrap();
            assert_eq!(world.store.read(|tx| gpus::get(tx, &known.gpu.id)).await.unwrap().as_ref(), Some(&known));
        }
    }
    assert_eq!(world.store.read(gpus::all).await.unwrap().len(), 4);
    let held = world.store.read(instances::held).await.unwrap();
    let withheld: Vec<_> = held.withheld.into_keys().collect();
    assert_eq!((withheld, held.closed), (vec!["gpu-1".into(), "gpu-2".into(), "gpu-3".into()], None));
    world.store.write(|tx| gpus::forget(tx, "gpu-1")).await.map_err(|error: Error| error).unwrap();
    let slices = ["gpu-0", "gpu-2", "gpu-3"].map(|slice| (slice.to_owned(), "GPU-1".to_owned()));
    assert_eq!(world.store.read(gpus::slices).await.unwrap(), slices);
    assert_eq!(world.store.read(|tx| gpus::get(tx, "gpu-1")).await.unwrap(), None);
}

/// The drain of the host is set and removed.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn host_drain_is_set_and_removed(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    for reason in [None, Some("kernel".to_owned())] {
        let drain = Drain { reason, since: Time::from_micros(7) };
        let set = drain.clone();
        world.store.write(move |tx| host::set_drain(tx, Some(&set))).await.unwrap();
        assert_eq!(world.store.read(host::drain).await.unwrap(), Some(drain.clone()));
        assert_eq!(world.store.read(instances::held).await.unwrap().closed, Some(drain.to_string()));
    }
    world.store.write(|tx| host::set_drain(tx, None)).await.map_err(|error: Error| error).unwrap();
    assert_eq!(world.store.read(host::drain).await.unwrap(), None);
}
