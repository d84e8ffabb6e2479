//! Comparing the database with the world: after any crash at any step they must agree.
//!
//! Objects that a request is changing at this moment are left out: that request will settle them.

use std::collections::BTreeSet;

use tarn_driver::Observed;
use tarn_model::lifecycle::State;
use tarn_model::storage::VolumeState;
use tarn_store::instances::Claimed;
use tarn_store::{Store, instances, storage};

use crate::{Error, Result};

/// Every difference, in words. Observe first and call this then: what was made meanwhile is busy or has a row.
pub async fn differences(store: &Store, observed: &Observed) -> Result<Vec<String>> {
    let read = store.read(|tx| Ok((instances::claimed(tx)?, storage::claimed(tx)?)));
    let (nodes, volumes) = read.await.map_err(|error: tarn_store::Error| Error::from(error))?;
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for claimed in &nodes {
        known.insert(claimed.instance.id.to_string());
        if !claimed.busy {
            found.extend(instance_difference(claimed, observed));
        }
    }
    for (volume, busy) in &volumes {
        known.insert(volume.id.to_string());
        let seen = observed.volumes.get(&volume.id);
        let right = match &volume.state {
            VolumeState::Ready => seen.is_some_and(|seen| seen.size_bytes / 1_000_000_000 == volume.size_gb),
            VolumeState::Failed { remains, .. } => seen.is_none() || *remains,
            VolumeState::Pending | VolumeState::Creating | VolumeState::Resizing { .. } => false,
            VolumeState::Destroying | VolumeState::Destroyed => false,
        };
        if !busy && !right {
            found.push(format!(
                "storage {} is {} with {} GB and was seen as {seen:?}",
                volume.id,
                volume.state.name(),
                volume.size_gb
            ));
        }
    }
    let ids =
        observed.instances.keys().map(ToString::to_string).chain(observed.volumes.keys().map(ToString::to_string));
    found.extend(ids.filter(|id| !known.contains(id)).map(|id| format!("{id} exists and has no row")));
    Ok(found)
}

fn instance_difference(claimed: &Claimed, observed: &Observed) -> Option<String> {
    let instance = &claimed.instance;
    let seen = observed.instances.get(&instance.id);
    let right = match &instance.state {
        State::Running => seen.is_some_and(|seen| {
            let mounted: Vec<_> = claimed.volume.iter().cloned().collect();
            seen.running && seen.boot == instance.boot && seen.volumes == mounted
        }),
        // One that could not be removed keeps its capacity, and nobody knows whether it is there.
        State::Failed { .. } => seen.is_none() || instance.holds_capacity,
        State::Destroyed => seen.is_none(),
        State::Pending | State::Provisioning | State::Configuring | State::Restarting | State::Destroying => false,
    };
    (!right).then(|| format!("instance {} is {} and was seen as {seen:?}", instance.id, instance.state.name()))
}
