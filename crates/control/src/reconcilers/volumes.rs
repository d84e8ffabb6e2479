//! Volumes that are seen missing or damaged, and those that come right again. Nothing is done to any of them here.

use tarn_driver::ObservedVolume;
use tarn_model::ids::VolumeId;
use tarn_model::storage::{Left, Volume, VolumeState};
use tarn_store::{Tx, events, requests, storage};

use crate::audit::is_intact_again;
use crate::{Control, Error, Kind, Result};

/// What is said of a volume that is nowhere to be seen.
const MISSING: &str = "its data is missing. When the operator has restored it, the volume becomes READY again; if that is not \
                       possible, detach and destroy it";

/// Looks again at a volume that was seen to be other than its row says, and marks what it is. What changed between the two looks
/// is left for the next time: a request may just have made or removed it.
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
            let (now, detail) = (tx.now(), serde_json::json!({ "reason": why }));
            save_volume(tx, volume.moved(now, |state| state.spoil(why))?, "storage.failed", &detail)?;
            metrics::counter!("tarn_volumes_failed_total").increment(1);
        }
        (VolumeState::Failed { left: Left::Data, .. }, None) if is_intact_again(&volume, seen) => {
            let (now, detail) = (tx.now(), serde_json::json!({ "size_gb": volume.size_gb }));
            save_volume(tx, volume.moved(now, VolumeState::recover)?, "storage.recovered", &detail)?;
            metrics::counter!("tarn_volumes_recovered_total").increment(1);
        }
        // Another size than expected, or parts of a volume that failed otherwise: its owner sees its state.
        _ => {}
    }
    Ok(())
}

fn save_volume(tx: &mut Tx<'_>, volume: Volume, verb: &str, detail: &serde_json::Value) -> Result<()> {
    storage::save(tx, &volume)?;
    Ok(events::record(tx, events::ENGINE, volume.owner.scope(), volume.id.as_str(), verb, detail)?)
}
