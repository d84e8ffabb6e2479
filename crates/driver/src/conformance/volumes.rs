//! Volumes: created, grown, never shrunk, removed.

use tarn_model::ids::{InstanceId, VolumeId};

use super::{TestedDriver, call_twice, expect_unsupported, retry_until_settled};
use crate::VolumeSpec;

pub(super) async fn check_volumes(tested: &TestedDriver<'_>) {
    let small = tested.volume();
    let large = VolumeSpec { size_bytes: 2 * small.size_bytes, ..small.clone() };
    let other = tested.volume();
    tested.delete(&small).await;

    let made = call_twice("ensure_volume", || tested.driver.ensure_volume(&small)).await;
    assert!(made.size_bytes >= small.size_bytes, "it is as large as was asked for: {made:?}");
    call_twice("ensure_volume of another", || tested.driver.ensure_volume(&other)).await;
    let grown = call_twice("ensure_volume that grows", || tested.driver.ensure_volume(&large)).await;
    assert!(grown.size_bytes >= large.size_bytes, "it has grown: {grown:?}");
    let kept = call_twice("ensure_volume with a smaller size", || tested.driver.ensure_volume(&small)).await;
    assert_eq!(kept, grown, "a volume never shrinks");

    let alone = retry_until_settled(|| tested.driver.observe_volume(&small.id)).await;
    assert_eq!(alone, Ok(Some(grown.clone())), "observe_volume sees it");
    let whole = tested.observe().await.volumes;
    assert_eq!((whole.len(), whole.get(&small.id)), (2, Some(&grown)), "observe sees it and the other");

    tested.delete(&small).await;
    assert_eq!(tested.observe().await.volumes.len(), 1, "removing one leaves the others alone");
    tested.delete(&other).await;
}

/// A driver without volumes returns `Unsupported` from every method about them.
pub(super) async fn check_unsupported_volumes(tested: &TestedDriver<'_>) {
    let (spec, instance) = (tested.volume(), InstanceId::fresh(tested.ids));
    let id: &VolumeId = &spec.id;
    expect_unsupported("ensure_volume", || tested.driver.ensure_volume(&spec)).await;
    expect_unsupported("ensure_mount", || tested.driver.ensure_mount(id, &instance)).await;
    call_twice("remove_volume", || tested.driver.remove_volume(id)).await;
    call_twice("remove_mount", || tested.driver.remove_mount(id, &instance)).await;
    assert_eq!(retry_until_settled(|| tested.driver.observe_volume(id)).await, Ok(None), "there is none");
}
