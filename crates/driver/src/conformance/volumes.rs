//! Volumes: made, grown, never shrunk, removed.

use tarn_model::ids::{InstanceId, VolumeId};

use super::{Subject, settle, twice, unsupported};
use crate::VolumeSpec;

pub(super) async fn check(subject: &Subject<'_>) {
    let small = subject.volume();
    let large = VolumeSpec { size_bytes: 2 * small.size_bytes, ..small.clone() };
    let other = subject.volume();
    subject.delete(&small).await;

    let made = twice("ensure_volume", || subject.driver.ensure_volume(&small)).await;
    assert!(made.size_bytes >= small.size_bytes, "it is as large as was asked for: {made:?}");
    twice("ensure_volume of another", || subject.driver.ensure_volume(&other)).await;
    let grown = twice("ensure_volume that grows", || subject.driver.ensure_volume(&large)).await;
    assert!(grown.size_bytes >= large.size_bytes, "it has grown: {grown:?}");
    let kept = twice("ensure_volume with a smaller size", || subject.driver.ensure_volume(&small)).await;
    assert_eq!(kept, grown, "a volume never shrinks");

    let alone = settle(|| subject.driver.observe_volume(&small.id)).await;
    assert_eq!(alone, Ok(Some(grown.clone())), "observe_volume sees it");
    let whole = subject.observe().await.volumes;
    assert_eq!((whole.len(), whole.get(&small.id)), (2, Some(&grown)), "observe sees it and the other");

    subject.delete(&small).await;
    assert_eq!(subject.observe().await.volumes.len(), 1, "removing one leaves the others alone");
    subject.delete(&other).await;
}

/// A driver without volumes says so at every verb about them.
pub(super) async fn check_unsupported(subject: &Subject<'_>) {
    let (spec, instance) = (subject.volume(), InstanceId::fresh(subject.ids));
    let id: &VolumeId = &spec.id;
    unsupported("ensure_volume", || subject.driver.ensure_volume(&spec)).await;
    unsupported("ensure_mount", || subject.driver.ensure_mount(id, &instance)).await;
    twice("remove_volume", || subject.driver.remove_volume(id)).await;
    twice("remove_mount", || subject.driver.remove_mount(id, &instance)).await;
    assert_eq!(settle(|| subject.driver.observe_volume(id)).await, Ok(None), "there is none to be seen");
}
