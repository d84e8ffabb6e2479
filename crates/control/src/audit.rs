//! Compares the database with the host, and its counts with its rows. After a crash at any step they must agree.
//!
//! Objects that an open request is changing are left out: that request will settle them.

use std::fmt;

use tarn_driver::{Observed, ObservedInstance, ObservedVolume};
use tarn_model::ids::{InstanceId, VolumeId};
use tarn_model::lifecycle::State;
use tarn_model::storage::{Volume, VolumeRemains, VolumeState};
use tarn_store::counts::{self, Miscount};
use tarn_store::instances::Claimed;
use tarn_store::{Store, instances, storage};

use crate::{Error, Result};

/// A difference between the database and the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    Instance(Box<Claimed>, Option<ObservedInstance>),
    Volume(Box<Volume>, Option<ObservedVolume>),
    UnknownInstance(InstanceId),
    UnknownVolume(VolumeId),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Instance(claimed, seen) => {
                let instance = &claimed.instance;
                write!(f, "instance {} is {} and was observed as {seen:?}", instance.id, instance.state.name())
            }
            Difference::Volume(volume, seen) => {
                let (id, state, size_gb) = (&volume.id, volume.state.name(), volume.size_gb);
                write!(f, "storage {id} is {state} with {size_gb} GB and was observed as {seen:?}")
            }
            Difference::UnknownInstance(id) => write!(f, "{id} exists and has no row"),
            Difference::UnknownVolume(id) => write!(f, "{id} exists and has no row"),
        }
    }
}

/// Returns the counts of what exists, and the balances, that differ from the rows that they count. They are changed in
/// the transactions that change these rows, so there are none at any time.
pub async fn miscounts(store: &Store) -> Result<Vec<Miscount>> {
    store.read(counts::miscounts).await.map_err(|error: tarn_store::Error| Error::from(error))
}

/// Corrects wrong counts, and returns them.
pub async fn correct_miscounts(store: &Store) -> Result<Vec<Miscount>> {
    store.write(counts::correct).await.map_err(|error: tarn_store::Error| Error::from(error))
}

/// Returns every difference. Call this after observing the host: what was created in between is busy or has a row. An
/// object may have changed its state in between, so observe it again before acting on its difference.
pub async fn differences(store: &Store, observed: &Observed) -> Result<Vec<Difference>> {
    let read = store.read(|tx| Ok((instances::claimed(tx)?, storage::claimed(tx)?)));
    let (nodes, volumes) = read.await.map_err(|error: tarn_store::Error| Error::from(error))?;
    let (mut found, mut unknown) = (Vec::new(), observed.clone());
    for claimed in nodes {
        let seen = unknown.instances.remove(&claimed.instance.id);
        if !claimed.busy && !is_as_claimed(&claimed, seen.as_ref()) {
            found.push(Difference::Instance(Box::new(claimed), seen));
        }
    }
    for (volume, busy) in volumes {
        let seen = unknown.volumes.remove(&volume.id);
        if !busy && !is_as_recorded(&volume, seen.as_ref()) {
            found.push(Difference::Volume(Box::new(volume), seen));
        }
    }
    found.extend(unknown.instances.into_keys().map(Difference::UnknownInstance));
    found.extend(unknown.volumes.into_keys().map(Difference::UnknownVolume));
    Ok(found)
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
