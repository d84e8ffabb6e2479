//! Instances: made, found, configured, restarted, removed.

use std::net::IpAddr;

use tarn_model::capacity::Inventory;
use tarn_model::ids::InstanceId;

use super::{Subject, refused, settle, twice};
use crate::{Access, InstanceSpec};

pub(super) async fn check(subject: &Subject<'_>, inventory: &Inventory) {
    life(subject).await;
    absent(subject).await;
    restart(subject).await;
    peers(subject).await;
    gpus(subject, inventory).await;
}

async fn life(subject: &Subject<'_>) {
    let spec = subject.instance();
    let made = subject.start(&spec).await;
    assert!(made.running, "ensure_instance returns when it runs: {made:?}");
    assert_eq!((&made.cluster, made.boot), (&spec.cluster, spec.boot), "it is what was asked for");
    assert_eq!(made.end, None, "what runs has not ended");
    assert!(made.volumes.is_empty(), "nothing was asked to be mounted: {made:?}");
    assert!(made.private_ip.parse::<IpAddr>().is_ok(), "{:?} is an address", made.private_ip);
    assert_eq!(subject.seen(&spec.id).await, Some(made.clone()), "it is seen as it was made");
    assert_eq!(subject.observe().await.instances.len(), 1, "there is one, however often it was asked for");
    for key in ["ssh-ed25519 AAAA first", "ssh-ed25519 AAAA second"] {
        let hosts = vec![(spec.name.clone(), made.private_ip.clone())];
        let access = Access { public_keys: vec![key.into()], hosts, ..Access::default() };
        twice("configure_instance", || subject.driver.configure_instance(&spec.id, &access)).await;
    }
    assert_eq!(subject.seen(&spec.id).await, Some(made), "being configured does not restart it");
    subject.stop(&spec).await;
    let access = Access::default();
    refused("configuring what was removed", || subject.driver.configure_instance(&spec.id, &access)).await;
    assert!(subject.driver.connect(&spec.id).await.is_err(), "there is no way into what was removed");
}

async fn absent(subject: &Subject<'_>) {
    let id = InstanceId::fresh(subject.ids);
    assert_eq!(subject.seen(&id).await, None, "what was never made is not seen");
    twice("remove_instance of what was never made", || subject.driver.remove_instance(&id)).await;
    let access = Access::default();
    refused("configuring what was never made", || subject.driver.configure_instance(&id, &access)).await;
    assert!(subject.driver.connect(&id).await.is_err(), "there is no way into what was never made");
}

async fn restart(subject: &Subject<'_>) {
    let spec = subject.instance();
    let first = subject.start(&spec).await;
    let next = InstanceSpec { boot: 2, ..spec.clone() };
    let second = subject.start(&next).await;
    assert!(second.running && second.boot == 2, "a higher boot number restarts it: {second:?}");
    assert_eq!(second.private_ip, first.private_ip, "a restart keeps the address");
    assert_eq!(second.end, None, "what runs again has not ended");
    assert_eq!(subject.observe().await.instances.len(), 1, "a restart makes no second one");
    // Whether a late call of the past is an error is the driver's choice; that it does nothing is not.
    let _late = settle(|| subject.driver.ensure_instance(&spec)).await;
    assert_eq!(subject.seen(&spec.id).await, Some(second), "a lower boot number never goes back");
    subject.stop(&next).await;
}

async fn peers(subject: &Subject<'_>) {
    let one = subject.instance();
    let id = InstanceId::fresh(subject.ids);
    let other = InstanceSpec { id, node: 1, name: "conformance-1".into(), ..one.clone() };
    let stranger = subject.instance();
    let made = [subject.start(&one).await, subject.start(&other).await];
    subject.start(&stranger).await;
    assert_ne!(made[0].private_ip, made[1].private_ip, "the nodes of a cluster have their own addresses");
    assert_eq!(subject.observe().await.instances.len(), 3);
    subject.stop(&one).await;
    assert_eq!(subject.seen(&other.id).await, Some(made[1].clone()), "removing a node leaves the others alone");
    subject.stop(&other).await;
    subject.stop(&stranger).await;
}

/// Only where there is a GPU to quarrel about.
async fn gpus(subject: &Subject<'_>, inventory: &Inventory) {
    let Some(gpu) = inventory.gpus.first() else { return };
    let with_gpu = || {
        let mut spec = subject.instance();
        spec.gpus = vec![gpu.id.clone()];
        spec.shape.gpus = 1;
        spec.shape.gpu_model = Some(gpu.model.clone());
        spec
    };
    let (owner, rival) = (with_gpu(), with_gpu());
    subject.start(&owner).await;
    refused("a GPU that has an owner", || subject.driver.ensure_instance(&rival)).await;
    assert_eq!(subject.seen(&rival.id).await, None, "who was refused left nothing behind");
    subject.stop(&owner).await;
    subject.start(&rival).await;
    subject.stop(&rival).await;
}
