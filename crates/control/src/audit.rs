//! Compares the database with the host, and its counts with its rows. After a crash at any step they must agree.
//!
//! Objects that an open request is changing are left out: that request will settle them.

mod compare;

use std::fmt;

use tarn_driver::{Observed, ObservedInstance, ObservedVolume};
use tarn_model::ids::{InstanceId, VolumeId};
use tarn_model::storage::Volume;
use tarn_store::Store;
use tarn_store::counts::{self, Miscount};
use tarn_store::instances::Claimed;

pub(crate) use self::compare::is_intact_again;
use self::compare::{compare_instances, compare_volumes, find_abandoned};
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
/// object may have changed its state in between, so observe it again before acting on its difference. This reads all
/// instances that ever existed.
pub async fn differences(store: &Store, observed: &Observed) -> Result<Vec<Difference>> {
    let mut found = differences_of_existing(store, observed).await?;
    found.extend(find_abandoned(store, &observed.instances).await?);
    Ok(found)
}

/// Returns the differences of what exists on the host, and of what may exist there by its row. Rows that wait or have
/// ended are not read, so the cost does not grow with them. Call it as [`differences`].
pub(crate) async fn differences_of_existing(store: &Store, observed: &Observed) -> Result<Vec<Difference>> {
    let mut found = compare_instances(store, &observed.instances).await?;
    found.extend(compare_volumes(store, &observed.volumes).await?);
    Ok(found)
}
