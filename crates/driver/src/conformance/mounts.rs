//! Mounts: created at the start of an instance and, where the driver supports it, while it runs.

use std::time::Duration;

use tarn_model::ids::{InstanceId, VolumeId};

use super::{TestedDriver, call_twice, expect_refused, expect_unsupported};
use crate::{InstanceSpec, VolumeSpec};

pub(super) async fn check_mounts(tested: &TestedDriver<'_>) {
    check_mounts_at_start(tested).await;
    if tested.driver.capabilities().live_mounts {
        check_live_mounts(tested).await;
        check_shared_volume(tested).await;
    } else {
        check_unsupported_live_mounts(tested).await;
    }
    check_absent_mounts(tested).await;
}

async fn check_mounts_at_start(tested: &TestedDriver<'_>) {
    let [one, other] = [make_volume(tested).await, make_volume(tested).await];
    let spec = InstanceSpec { volumes: vec![one.id.clone()], ..tested.instance() };
    let started = tested.start(&spec).await;
    assert_eq!(started.volumes, spec.volumes, "the volumes of the spec are mounted");
    expect_mounted(tested, &spec.id, &[&one]).await;

    let next = InstanceSpec { boot: 2, volumes: vec![other.id.clone()], ..spec };
    tested.start(&next).await;
    expect_mounted(tested, &next.id, &[&other]).await;
    tested.delete(&one).await;
    expect_refused("removing a mounted volume", || tested.driver.remove_volume(&other.id)).await;

    tested.stop(&next).await;
    tested.delete(&other).await;
}

async fn check_live_mounts(tested: &TestedDriver<'_>) {
    let [one, other] = [make_volume(tested).await, make_volume(tested).await];
    let spec = InstanceSpec { volumes: vec![one.id.clone()], ..tested.instance() };
    let boot = tested.start(&spec).await.boot;
    call_twice("ensure_mount", || tested.driver.ensure_mount(&other.id, &spec.id)).await;
    expect_mounted(tested, &spec.id, &[&one, &other]).await;
    // The same spec again is not a new start, so the live mount stays.
    tested.start(&spec).await;
    expect_mounted(tested, &spec.id, &[&one, &other]).await;

    expect_unused(tested, &other.id, &spec.id).await;
    expect_refused("removing a mounted volume", || tested.driver.remove_volume(&other.id)).await;
    assert!(tested.observe().await.volumes.contains_key(&other.id), "a volume that was not removed is there");
    call_twice("remove_mount", || tested.driver.remove_mount(&one.id, &spec.id)).await;
    expect_mounted(tested, &spec.id, &[&other]).await;
    assert_eq!(tested.observe_one(&spec.id).await.map(|seen| seen.boot), Some(boot), "mounting does not restart it");
    tested.delete(&one).await;

    tested.stop(&spec).await;
    call_twice("remove_mount from an instance that is gone", || tested.driver.remove_mount(&other.id, &spec.id)).await;
    tested.delete(&other).await;
}

/// A volume is shared: several instances may mount it, and it is in use until the last one unmounts it.
async fn check_shared_volume(tested: &TestedDriver<'_>) {
    let volume = make_volume(tested).await;
    let specs = [tested.instance(), tested.instance()];
    for spec in &specs {
        tested.start(spec).await;
        call_twice("ensure_mount", || tested.driver.ensure_mount(&volume.id, &spec.id)).await;
    }
    tested.stop(&specs[0]).await;
    expect_mounted(tested, &specs[1].id, &[&volume]).await;
    expect_refused("removing a volume that an instance still mounts", || tested.driver.remove_volume(&volume.id)).await;
    tested.stop(&specs[1]).await;
    tested.delete(&volume).await;
}

async fn check_unsupported_live_mounts(tested: &TestedDriver<'_>) {
    let (volume, spec) = (make_volume(tested).await, tested.instance());
    tested.start(&spec).await;
    expect_unsupported("ensure_mount in a running instance", || tested.driver.ensure_mount(&volume.id, &spec.id)).await;
    expect_mounted(tested, &spec.id, &[]).await;
    tested.stop(&spec).await;
    tested.delete(&volume).await;
}

async fn check_absent_mounts(tested: &TestedDriver<'_>) {
    let (volume, spec) = (make_volume(tested).await, tested.instance());
    let no_volume = VolumeId::fresh(tested.ids);
    let no_instance = InstanceId::fresh(tested.ids);
    tested.start(&spec).await;
    if tested.driver.capabilities().live_mounts {
        expect_refused("mounting no volume", || tested.driver.ensure_mount(&no_volume, &spec.id)).await;
        expect_refused("mounting in no instance", || tested.driver.ensure_mount(&volume.id, &no_instance)).await;
    }
    call_twice("remove_mount of no volume", || tested.driver.remove_mount(&no_volume, &spec.id)).await;
    call_twice("remove_mount of what is not mounted", || tested.driver.remove_mount(&volume.id, &spec.id)).await;
    call_twice("remove_mount from no instance", || tested.driver.remove_mount(&volume.id, &no_instance)).await;
    for (volume, instance) in [(&no_volume, &spec.id), (&volume.id, &spec.id), (&volume.id, &no_instance)] {
        expect_unused(tested, volume, instance).await;
    }
    let lost = InstanceSpec { volumes: vec![no_volume.clone()], ..tested.instance() };
    expect_refused("starting with a volume that is not there", || tested.driver.ensure_instance(&lost)).await;
    assert_eq!(tested.observe_one(&lost.id).await, None, "a failed start leaves nothing behind");
    expect_mounted(tested, &spec.id, &[]).await;
    tested.stop(&spec).await;
    tested.delete(&volume).await;
}

/// Expects that no process uses the volume, so that none is named, asked to end or killed.
async fn expect_unused(tested: &TestedDriver<'_>, volume: &VolumeId, instance: &InstanceId) {
    let volume_users = call_twice("holders", || tested.driver.volume_users(volume, instance)).await;
    assert_eq!(volume_users, [], "no process uses {volume} in {instance}");
    let killed = call_twice("end_holders", || tested.driver.end_volume_users(volume, instance, Duration::ZERO)).await;
    assert_eq!(killed, [], "no process had to be killed");
}

async fn make_volume(tested: &TestedDriver<'_>) -> VolumeSpec {
    let spec = tested.volume();
    call_twice("ensure_volume", || tested.driver.ensure_volume(&spec)).await;
    spec
}

async fn expect_mounted(tested: &TestedDriver<'_>, instance: &InstanceId, wanted: &[&VolumeSpec]) {
    let mut wanted: Vec<VolumeId> = wanted.iter().map(|volume| volume.id.clone()).collect();
    wanted.sort();
    let seen = tested.observe_one(instance).await.map(|seen| seen.volumes);
    assert_eq!(seen, Some(wanted), "{instance} has exactly the requested mounts");
}
