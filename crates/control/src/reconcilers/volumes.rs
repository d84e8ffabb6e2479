//! Marks volumes that are observed to be missing or damaged, and volumes that are intact again. Nothing is done to the
//! volumes themselves.

use tarn_driver::ObservedVolume;
use tarn_model::events::{Event, VolumeEvent};
use tarn_model::ids::VolumeId;
use tarn_model::storage::{Volume, VolumeRemains, VolumeState};
use tarn_store::{Tx, requests, storage};

use crate::audit::is_intact_again;
use crate::{Control, Error, Kind, Result};

/// The reason for a volume that does not exist.
const MISSING: &str = "its data is missing. When the operator has restored it, the volume becomes READY again; if that \
                       is not possible, detach and destroy it";

/// Observes a volume again that differs from its row, and marks its state. If the row changed in between, nothing is
/// done: a request may just have created or removed the volume.
pub(super) async fn recheck_volume(control: &Control, volume: &Volume) -> Result<()> {
    let seen = control.driver().observe_volume(&volume.id).await.map_err(Error::internal)?;
    let (id, version) = (volume.id.clone(), volume.version);
    match control.store().write(move |tx| commit_observation(tx, &id, version, seen.as_ref())).await {
        Err(error) if error.kind == Kind::Conflict => Ok(()),
        done => done,
    }
}

fn commit_observation(tx: &mut Tx<'_>, id: &VolumeId, version: i64, seen: Option<&ObservedVolume>) -> Result<()> {
    let volume = storage::get(tx, id)?.filter(|volume| volume.version == version);
    let (Some(volume), true) = (volume, requests::open_of_volume(tx, id)?.is_empty()) else { return Ok(()) };
    let fault = match seen {
        Some(seen) => seen.fault.as_deref(),
        None => Some(MISSING),
    };
    match (&volume.state, fault) {
        (VolumeState::Ready | VolumeState::Resizing { .. }, Some(why)) => {
            let now = tx.now();
            let failed = VolumeEvent::Failed { state: None, reason: Some(why.to_owned()) };
            save_volume(tx, volume.moved(now, |state| state.spoil(why))?, failed)?;
            metrics::counter!("tarn_volumes_failed_total").increment(1);
        }
        (VolumeState::Failed { left: VolumeRemains::Data, .. }, None) if is_intact_again(&volume, seen) => {
            let (now, recovered) = (tx.now(), VolumeEvent::Recovered { size_gb: volume.size_gb });
            save_volume(tx, volume.moved(now, VolumeState::recover)?, recovered)?;
            metrics::counter!("tarn_volumes_recovered_total").increment(1);
        }
        // The size differs, or the volume failed otherwise and parts are left. Its owner sees the state.
        _ => {}
    }
    Ok(())
}

fn save_volume(tx: &mut Tx<'_>, volume: Volume, event: VolumeEvent) -> Result<()> {
    storage::save(tx, &volume)?;
    Ok(tx.record(volume.owner.scope(), Event::Volume(volume.id, event))?)
}
