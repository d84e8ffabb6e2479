//! Compares rows with an observation. Both are read in the order of their ids, a page of rows at a time; a page is one
//! consistent state of the database, and the next one may be newer.

use std::collections::BTreeMap;
use std::ops::Bound;

use tarn_driver::{ObservedInstance, ObservedVolume};
use tarn_model::ids::{InstanceId, VolumeId};
use tarn_model::lifecycle::State;
use tarn_model::storage::{Volume, VolumeRemains, VolumeState};
use tarn_store::instances::Claimed;
use tarn_store::{Store, Tx, instances, requests, storage};

use super::Difference;
use crate::Result;

/// How many rows are read at a time.
const PAGE_SIZE: u32 = 200;

/// How many ids without a row of a page are looked up at a time.
const LOOKUPS: usize = 20;

/// What a page of rows was compared with, and the id after which the next page begins, if there is one.
type Compared<Id> = (Vec<Difference>, Option<Id>);

pub(super) async fn compare_instances(
    store: &Store,
    observed: &BTreeMap<InstanceId, ObservedInstance>,
) -> Result<Vec<Difference>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (page, last) = store.read(|tx| compare_instance_page(tx, observed, after.as_ref())).await?;
        found.extend(page);
        match last {
            Some(last) => after = Some(last),
            None => return Ok(found),
        }
    }
}

fn compare_instance_page(
    tx: &mut Tx<'_>,
    observed: &BTreeMap<InstanceId, ObservedInstance>,
    after: Option<&InstanceId>,
) -> Result<Compared<InstanceId>> {
    let page = instances::holding(tx, after, PAGE_SIZE)?;
    let last = page.last().filter(|_| page.len() == PAGE_SIZE as usize).map(|row| row.instance.id.clone());
    let other = |id: &&InstanceId| page.binary_search_by(|row| row.instance.id.cmp(id)).is_err();
    let others: Vec<&InstanceId> = ids_between(observed, after, last.as_ref()).filter(other).collect();
    let mut found = Vec::new();
    for claimed in page {
        found.extend(compare_instance(tx, claimed, observed)?);
    }
    for some in others.chunks(LOOKUPS) {
        let claimed = instances::claimed(tx, some)?;
        let unknown = some.iter().filter(|id| !claimed.iter().any(|row| row.instance.id == ***id));
        found.extend(unknown.map(|id| Difference::UnknownInstance((*id).clone())));
        for claimed in claimed {
            found.extend(compare_instance(tx, claimed, observed)?);
        }
    }
    Ok((found, last))
}

pub(super) async fn compare_volumes(
    store: &Store,
    observed: &BTreeMap<VolumeId, ObservedVolume>,
) -> Result<Vec<Difference>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (page, last) = store.read(|tx| compare_volume_page(tx, observed, after.as_ref())).await?;
        found.extend(page);
        match last {
            Some(last) => after = Some(last),
            None => return Ok(found),
        }
    }
}

fn compare_volume_page(
    tx: &mut Tx<'_>,
    observed: &BTreeMap<VolumeId, ObservedVolume>,
    after: Option<&VolumeId>,
) -> Result<Compared<VolumeId>> {
    let page = storage::remaining(tx, after, PAGE_SIZE)?;
    let last = page.last().filter(|_| page.len() == PAGE_SIZE as usize).map(|row| row.id.clone());
    let other = |id: &&VolumeId| page.binary_search_by(|row| row.id.cmp(id)).is_err();
    let others: Vec<&VolumeId> = ids_between(observed, after, last.as_ref()).filter(other).collect();
    let mut found = Vec::new();
    for volume in page {
        found.extend(compare_volume(tx, volume, observed)?);
    }
    for some in others.chunks(LOOKUPS) {
        let claimed = storage::claimed(tx, some)?;
        let unknown = some.iter().filter(|id| !claimed.iter().any(|row| row.id == ***id));
        found.extend(unknown.map(|id| Difference::UnknownVolume((*id).clone())));
        for volume in claimed {
            found.extend(compare_volume(tx, volume, observed)?);
        }
    }
    Ok((found, last))
}

/// Returns the instances that hold nothing, do not exist, and differ from their rows all the same: nothing continues a
/// change of them that has begun.
pub(super) async fn find_abandoned(
    store: &Store,
    observed: &BTreeMap<InstanceId, ObservedInstance>,
) -> Result<Vec<Difference>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let read = store.read(|tx| -> Result<Compared<InstanceId>> {
            let page = instances::not_holding(tx, after.as_ref(), PAGE_SIZE)?;
            let (last, mut found) = (page.last().map(|row| row.instance.id.clone()), Vec::new());
            for claimed in page {
                // What exists was compared already.
                if !observed.contains_key(&claimed.instance.id) {
                    found.extend(compare_instance(tx, claimed, observed)?);
                }
            }
            Ok((found, last))
        });
        let (page, last) = read.await?;
        found.extend(page);
        match last {
            Some(last) => after = Some(last),
            None => return Ok(found),
        }
    }
}

/// Returns the observed ids after one and up to another.
fn ids_between<'o, Id: Ord, Seen>(
    observed: &'o BTreeMap<Id, Seen>,
    after: Option<&Id>,
    last: Option<&Id>,
) -> impl Iterator<Item = &'o Id> {
    let range = (after.map_or(Bound::Unbounded, Bound::Excluded), last.map_or(Bound::Unbounded, Bound::Included));
    observed.range::<Id, _>(range).map(|(id, _)| id)
}

fn compare_instance(
    tx: &mut Tx<'_>,
    claimed: Claimed,
    observed: &BTreeMap<InstanceId, ObservedInstance>,
) -> Result<Option<Difference>> {
    let seen = observed.get(&claimed.instance.id);
    if is_as_claimed(&claimed, seen) || requests::is_cluster_busy(tx, &claimed.instance.cluster)? {
        return Ok(None);
    }
    Ok(Some(Difference::Instance(Box::new(claimed), seen.cloned())))
}

fn compare_volume(
    tx: &mut Tx<'_>,
    volume: Volume,
    observed: &BTreeMap<VolumeId, ObservedVolume>,
) -> Result<Option<Difference>> {
    let seen = observed.get(&volume.id);
    if is_as_recorded(&volume, seen) || requests::is_volume_busy(tx, &volume.id)? {
        return Ok(None);
    }
    Ok(Some(Difference::Volume(Box::new(volume), seen.cloned())))
}

fn is_as_claimed(claimed: &Claimed, seen: Option<&ObservedInstance>) -> bool {
    let instance = &claimed.instance;
    match &instance.state {
        State::Running => seen.is_some_and(|seen| {
            let mounted: Vec<_> = claimed.volume.iter().cloned().collect();
            seen.running && seen.boot == instance.boot && seen.volumes == mounted
        }),
        // An instance that died or could not be removed keeps its capacity. It may or may not exist.
        State::Failed { .. } => seen.is_none() || instance.holds_capacity,
        State::Destroyed => seen.is_none(),
        State::Pending | State::Provisioning | State::Configuring | State::Restarting | State::Destroying => false,
    }
}

/// Returns whether a volume that was missing or damaged is intact again, with its full size.
pub(crate) fn is_intact_again(volume: &Volume, seen: Option<&ObservedVolume>) -> bool {
    seen.is_some_and(|seen| seen.fault.is_none() && seen.size_gb() >= volume.size_gb)
}

fn is_as_recorded(volume: &Volume, seen: Option<&ObservedVolume>) -> bool {
    match &volume.state {
        VolumeState::Ready => seen.is_some_and(|seen| seen.fault.is_none() && seen.size_gb() == volume.size_gb),
        VolumeState::Failed { left: VolumeRemains::Nothing, .. } => seen.is_none(),
        VolumeState::Failed { left: VolumeRemains::Parts, .. } => true,
        VolumeState::Failed { left: VolumeRemains::Data, .. } => !is_intact_again(volume, seen),
        VolumeState::Pending | VolumeState::Creating | VolumeState::Resizing { .. } => false,
        VolumeState::Destroying | VolumeState::Destroyed => false,
    }
}
