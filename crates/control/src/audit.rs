//! Comparing the database with the world: after any crash at any step they must agree.
//!
//! Objects that a request is changing at this moment are left out: that request will settle them.

use std::fmt;

use tarn_driver::{Observed, ObservedInstance, ObservedVolume};
use tarn_model::ids::{InstanceId, VolumeId};
use tarn_model::lifecycle::State;
use tarn_model::storage::{Left, Volume, VolumeState};
use tarn_store::instances::Claimed;
use tarn_store::{Store, instances, storage};

use crate::{Error, Result};

/// Something in which the database and the world do not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// An instance is not as its row says.
    Instance(Box<Claimed>, Option<ObservedInstance>),
    /// A volume is not as its row says.
    Volume(Box<Volume>, Option<ObservedVolume>),
    /// An instance exists and has no row.
    UnknownInstance(InstanceId),
    /// A volume exists and has no row.
    UnknownVolume(VolumeId),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Instance(claimed, seen) => {
                let instance = &claimed.instance;
                write!(f, "instance {} is {} and was seen as {seen:?}", instance.id, instance.state.name())
            }
            Difference::Volume(volume, seen) => {
                let (id, state, size_gb) = (&volume.id, volume.state.name(), volume.size_gb);
                write!(f, "storage {id} is {state} with {size_gb} GB and was seen as {seen:?}")
            }
            Difference::UnknownInstance(id) => write!(f, "{id} exists and has no row"),
            Difference::UnknownVolume(id) => write!(f, "{id} exists and has no row"),
        }
    }
}

/// Every difference. Observe first and call this then: what was made meanwhile is busy or has a row. What has changed its
/// state meanwhile may seem different, so look again at what is to be acted upon.
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
        // One that died or could not be removed keeps its capacity, and nobody knows whether it is there.
        State::Failed { .. } => seen.is_none() || instance.holds_capacity,
        State::Destroyed => seen.is_none(),
        State::Pending | State::Provisioning | State::Configuring | State::Restarting | State::Destroying => false,
    }
}

/// Whether a volume that was missing or damaged is whole again, with all of its size.
pub(crate) fn is_intact_again(volume: &Volume, seen: Option<&ObservedVolume>) -> bool {
    seen.is_some_and(|seen| seen.fault.is_none() && seen.size_gb() >= volume.size_gb)
}

fn is_as_recorded(volume: &Volume, seen: Option<&ObservedVolume>) -> bool {
    match &volume.state {
        VolumeState::Ready => seen.is_some_and(|seen| seen.fault.is_none() && seen.size_gb() == volume.size_gb),
        VolumeState::Failed { left: Left::Nothing, .. } => seen.is_none(),
        VolumeState::Failed { left: Left::Parts, .. } => true,
        VolumeState::Failed { left: Left::Data, .. } => !is_intact_again(volume, seen),
        VolumeState::Pending | VolumeState::Creating | VolumeState::Resizing { .. } => false,
        VolumeState::Destroying | VolumeState::Destroyed => false,
    }
}
