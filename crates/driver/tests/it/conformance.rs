//! The conformance suite on the fake: plain, slow and unreliable.

use tarn_driver::fake::{FakeDriver, Settings, read_world};
use tarn_driver::{Observed, conformance};
use tarn_model::capacity::{Gpu, Inventory};
use tarn_model::testing::SeededIds;

async fn check(gpus: u32, settings: Settings) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let gpu = |n: u32| Gpu { id: format!("simulated-H100-{n}"), model: "H100".into(), simulated: true };
    let inventory = Inventory {
        cpu_milli: 2_000,
        memory_bytes: 2 << 30,
        gpus: (0..gpus).map(gpu).collect(),
        storage_bytes: 16 << 30,
    };
    let driver = FakeDriver::open(dir.path(), inventory, settings).expect("an empty world opens");
    conformance::check(&driver, &SeededIds::new(0)).await;
    assert_eq!(read_world(dir.path()).expect("the world is readable"), Observed::default());
}

#[tokio::test]
async fn fake_conforms() {
    check(2, Settings::default()).await;
}

#[tokio::test]
async fn fake_conforms_without_gpus() {
    check(0, Settings::default()).await;
}

#[tokio::test]
async fn fake_conforms_without_live_mounts() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let inventory =
        Inventory { cpu_milli: 2_000, memory_bytes: 2 << 30, storage_bytes: 16 << 30, ..Inventory::default() };
    let driver = FakeDriver::open(dir.path(), inventory, Settings::default()).expect("an empty world opens");
    conformance::check(&driver.without_live_mounts(), &SeededIds::new(0)).await;
}

#[tokio::test]
async fn slow_fake_conforms() {
    check(2, Settings { latency_ms: (0, 3), fault_rate: 0.0, seed: 1 }).await;
}

#[tokio::test]
async fn unreliable_fake_conforms() {
    check(2, Settings { latency_ms: (0, 1), fault_rate: 0.4, seed: 2 }).await;
}
