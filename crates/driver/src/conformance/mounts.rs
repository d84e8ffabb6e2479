//! Mounts: made at the start of an instance and, where the driver can, while it runs.

use std::time::Duration;

use tarn_model::ids::{InstanceId, VolumeId};

use super::{Subject, refused, twice, unsupported};
use crate::{InstanceSpec, VolumeSpec};

pub(super) async fn check(subject: &Subject<'_>) {
    at_start(subject).await;
    if subject.driver.capabilities().live_mounts {
        live(subject).await;
        shared(subject).await;
    } else {
        live_unsupported(subject).await;
    }
    absent(subject).await;
}

async fn at_start(subject: &Subject<'_>) {
    let [one, other] = [made(subject).await, made(subject).await];
    let spec = InstanceSpec { volumes: vec![one.id.clone()], ..subject.instance() };
    let started = subject.start(&spec).await;
    assert_eq!(started.volumes, spec.volumes, "the volumes of the spec are mounted");
    mounted(subject, &spec.id, &[&one]).await;

    let next = InstanceSpec { boot: 2, volumes: vec![other.id.clone()], ..spec };
    subject.start(&next).await;
    mounted(subject, &next.id, &[&other]).await;
    subject.delete(&one).await;
    refused("removing a mounted volume", || subject.driver.remove_volume(&other.id)).await;

    subject.stop(&next).await;
    subject.delete(&other).await;
}

async fn live(subject: &Subject<'_>) {
    let [one, other] = [made(subject).await, made(subject).await];
    let spec = InstanceSpec { volumes: vec![one.id.clone()], ..subject.instance() };
    let boot = subject.start(&spec).await.boot;
    twice("ensure_mount", || subject.driver.ensure_mount(&other.id, &spec.id)).await;
    mounted(subject, &spec.id, &[&one, &other]).await;
    // The same spec again is not a start, so what was mounted meanwhile stays.
    subject.start(&spec).await;
    mounted(subject, &spec.id, &[&one, &other]).await;

    unused(subject, &other.id, &spec.id).await;
    refused("removing a mounted volume", || subject.driver.remove_volume(&other.id)).await;
    assert!(subject.observe().await.volumes.contains_key(&other.id), "a volume that was not removed is there");
    twice("remove_mount", || subject.driver.remove_mount(&one.id, &spec.id)).await;
    mounted(subject, &spec.id, &[&other]).await;
    assert_eq!(subject.seen(&spec.id).await.map(|seen| seen.boot), Some(boot), "mounting does not restart it");
    subject.delete(&one).await;

    subject.stop(&spec).await;
    twice("remove_mount from an instance that is gone", || subject.driver.remove_mount(&other.id, &spec.id)).await;
    subject.delete(&other).await;
}

/// A volume is shared: several instances may mount it, and it is in use until the last has let go.
async fn shared(subject: &Subject<'_>) {
    let volume = made(subject).await;
    let specs = [subject.instance(), subject.instance()];
    for spec in &specs {
        subject.start(spec).await;
        twice("ensure_mount", || subject.driver.ensure_mount(&volume.id, &spec.id)).await;
    }
    subject.stop(&specs[0]).await;
    mounted(subject, &specs[1].id, &[&volume]).await;
    refused("removing a volume that one still mounts", || subject.driver.remove_volume(&volume.id)).await;
    subject.stop(&specs[1]).await;
    subject.delete(&volume).await;
}

async fn live_unsupported(subject: &Subject<'_>) {
    let (volume, spec) = (made(subject).await, subject.instance());
    subject.start(&spec).await;
    unsupported("ensure_mount in a running instance", || subject.driver.ensure_mount(&volume.id, &spec.id)).await;
    mounted(subject, &spec.id, &[]).await;
    subject.stop(&spec).await;
    subject.delete(&volume).await;
}

async fn absent(subject: &Subject<'_>) {
    let (volume, spec) = (made(subject).await, subject.instance());
    let no_volume = VolumeId::fresh(subject.ids);
    let no_instance = InstanceId::fresh(subject.ids);
    subject.start(&spec).await;
    if subject.driver.capabilities().live_mounts {
        refused("mounting no volume", || subject.driver.ensure_mount(&no_volume, &spec.id)).await;
        refused("mounting in no instance", || subject.driver.ensure_mount(&volume.id, &no_instance)).await;
    }
    twice("remove_mount of no volume", || subject.driver.remove_mount(&no_volume, &spec.id)).await;
    twice("remove_mount of what is not mounted", || subject.driver.remove_mount(&volume.id, &spec.id)).await;
    twice("remove_mount from no instance", || subject.driver.remove_mount(&volume.id, &no_instance)).await;
    for (volume, instance) in [(&no_volume, &spec.id), (&volume.id, &spec.id), (&volume.id, &no_instance)] {
        unused(subject, volume, instance).await;
    }
    let lost = InstanceSpec { volumes: vec![no_volume.clone()], ..subject.instance() };
    refused("starting with a volume that is not there", || subject.driver.ensure_instance(&lost)).await;
    assert_eq!(subject.seen(&lost.id).await, None, "what could not start left nothing behind");
    mounted(subject, &spec.id, &[]).await;
    subject.stop(&spec).await;
    subject.delete(&volume).await;
}

/// Nobody has come to use it, so nobody is named, asked or killed.
async fn unused(subject: &Subject<'_>, volume: &VolumeId, instance: &InstanceId) {
    let holders = twice("holders", || subject.driver.holders(volume, instance)).await;
    assert_eq!(holders, [], "nobody uses {volume} in {instance}");
    let killed = twice("end_holders", || subject.driver.end_holders(volume, instance, Duration::ZERO)).await;
    assert_eq!(killed, [], "nobody had to be killed");
}

async fn made(subject: &Subject<'_>) -> VolumeSpec {
    let spec = subject.volume();
    twice("ensure_volume", || subject.driver.ensure_volume(&spec)).await;
    spec
}

async fn mounted(subject: &Subject<'_>, instance: &InstanceId, wanted: &[&VolumeSpec]) {
    let mut wanted: Vec<VolumeId> = wanted.iter().map(|volume| volume.id.clone()).collect();
    wanted.sort();
    let seen = subject.seen(instance).await.map(|seen| seen.volumes);
    assert_eq!(seen, Some(wanted), "{instance} mounts exactly what it was told to");
}
