//! Instances: created, observed, configured, restarted, removed.

use std::net::IpAddr;

use tarn_model::capacity::Inventory;
use tarn_model::ids::InstanceId;

use super::{TestedDriver, call_twice, expect_refused, retry_until_settled};
use crate::{Access, InstanceSpec};

pub(super) async fn check_instances(tested: &TestedDriver<'_>, inventory: &Inventory) {
    check_life_cycle(tested).await;
    check_absent_instance(tested).await;
    check_restart(tested).await;
    check_peers(tested).await;
    check_gpu_ownership(tested, inventory).await;
}

async fn check_life_cycle(tested: &TestedDriver<'_>) {
    let spec = tested.instance();
    let made = tested.start(&spec).await;
    assert!(made.running, "ensure_instance returns when it runs: {made:?}");
    assert_eq!((&made.cluster, made.boot), (&spec.cluster, spec.boot), "it is what was asked for");
    assert_eq!(made.end, None, "what runs has not ended");
    assert!(made.volumes.is_empty(), "nothing was asked to be mounted: {made:?}");
    assert!(made.private_ip.parse::<IpAddr>().is_ok(), "{:?} is an address", made.private_ip);
    assert_eq!(tested.observe_one(&spec.id).await, Some(made.clone()), "it is observed as it was created");
    assert_eq!(tested.observe().await.instances.len(), 1, "there is one, however often it was asked for");
    for key in ["ssh-ed25519 AAAA first", "ssh-ed25519 AAAA second"] {
        let hosts = vec![(spec.name.clone(), made.private_ip.clone())];
        let access = Access { public_keys: vec![key.into()], hosts, ..Access::default() };
        call_twice("configure_instance", || tested.driver.configure_instance(&spec.id, &access)).await;
    }
    assert_eq!(tested.observe_one(&spec.id).await, Some(made), "being configured does not restart it");
    tested.stop(&spec).await;
    let access = Access::default();
    expect_refused("configuring a removed instance", || tested.driver.configure_instance(&spec.id, &access)).await;
    assert!(tested.driver.connect(&spec.id).await.is_err(), "a removed instance cannot be connected to");
}

async fn check_absent_instance(tested: &TestedDriver<'_>) {
    let id = InstanceId::fresh(tested.ids);
    assert_eq!(tested.observe_one(&id).await, None, "an instance that was never created is not observed");
    call_twice("remove_instance of an absent instance", || tested.driver.remove_instance(&id)).await;
    let access = Access::default();
    expect_refused("configuring an absent instance", || tested.driver.configure_instance(&id, &access)).await;
    assert!(tested.driver.connect(&id).await.is_err(), "an absent instance cannot be connected to");
}

async fn check_restart(tested: &TestedDriver<'_>) {
    let spec = tested.instance();
    let first = tested.start(&spec).await;
    let next = InstanceSpec { boot: 2, ..spec.clone() };
    let second = tested.start(&next).await;
    assert!(second.running && second.boot == 2, "a higher boot number restarts it: {second:?}");
    assert_eq!(second.private_ip, first.private_ip, "a restart keeps the address");
    assert_eq!(second.end, None, "what runs again has not ended");
    assert_eq!(tested.observe().await.instances.len(), 1, "a restart makes no second one");
    // A driver may report a late call with an old boot number as an error or not; the call must have no effect.
    let _late = retry_until_settled(|| tested.driver.ensure_instance(&spec)).await;
    assert_eq!(tested.observe_one(&spec.id).await, Some(second), "a lower boot number never goes back");
    tested.stop(&next).await;
}

async fn check_peers(tested: &TestedDriver<'_>) {
    let one = tested.instance();
    let id = InstanceId::fresh(tested.ids);
    let other = InstanceSpec { id, node: 1, name: "conformance-1".into(), ..one.clone() };
    let foreign = tested.instance();
    let made = [tested.start(&one).await, tested.start(&other).await];
    tested.start(&foreign).await;
    assert_ne!(made[0].private_ip, made[1].private_ip, "the nodes of a cluster have their own addresses");
    assert_eq!(tested.observe().await.instances.len(), 3);
    tested.stop(&one).await;
    assert_eq!(tested.observe_one(&other.id).await, Some(made[1].clone()), "removing a node leaves the others alone");
    tested.stop(&other).await;
    tested.stop(&foreign).await;
}

/// Runs only where the inventory has a GPU.
async fn check_gpu_ownership(tested: &TestedDriver<'_>, inventory: &Inventory) {
    let Some(gpu) = inventory.gpus.first() else { return };
    let with_gpu = || {
        let mut spec = tested.instance();
        spec.gpus = vec![gpu.id.clone()];
        spec.shape.gpus = 1;
        spec.shape.gpu_model = Some(gpu.model.clone());
        spec
    };
    let (owner, rival) = (with_gpu(), with_gpu());
    tested.start(&owner).await;
    expect_refused("a GPU that has an owner", || tested.driver.ensure_instance(&rival)).await;
    assert_eq!(tested.observe_one(&rival.id).await, None, "a refused instance leaves nothing behind");
    tested.stop(&owner).await;
    tested.start(&rival).await;
    tested.stop(&rival).await;
}
