//! STORAGE_EDIT: grows the volume. The transaction that accepted the call has already changed name and protection.

use tarn_driver::{ObservedVolume, VolumeSpec};
use tarn_model::events::{Event, VolumeEvent};
use tarn_model::ids::VolumeId;
use tarn_model::storage::VolumeState;
use tarn_store::{Tx, storage};

use super::create::{load_volume, read_volume};
use crate::Result;
use crate::requests::{Context, Definition, Failure, Next, StepResult, Undo, act, commit, commit_nothing, step};

pub(in crate::requests) fn definition(volume: &VolumeId) -> Definition<'_> {
    Definition {
        steps: vec![
            step("grow", act(volume, grow_volume), Undo::With(act(volume, keep_observed_size))),
            step("confirm", act(volume, confirm_size), Undo::None("it only observes and commits")),
        ],
        completed: "The storage has its new size.",
        takes_notes: false,
    }
}

/// Observes the volume first: a missing one must not be created again, and a damaged one must not be changed.
async fn grow_volume(ctx: Context<'_>, id: &VolumeId) -> StepResult {
    let volume = read_volume(ctx, id).await?;
    if let VolumeState::Resizing { to_gb } = volume.state {
        check_intact(ctx.control.driver().observe_volume(id).await?)?;
        let spec = VolumeSpec { id: volume.id, size_bytes: to_gb * 1_000_000_000 };
        ctx.control.driver().ensure_volume(&spec).await?;
    }
    commit_nothing()
}

/// A volume cannot shrink, so the undo observes its current size and keeps it. A missing or damaged volume keeps its
/// recorded size; the reconciler decides about its state.
async fn keep_observed_size(ctx: Context<'_>, id: &VolumeId) -> StepResult {
    let seen = ctx.control.driver().observe_volume(id).await?.filter(|seen| seen.fault.is_none());
    let id = id.clone();
    commit(move |tx| end_resize(tx, &id, seen.as_ref().map(ObservedVolume::size_gb)))
}

async fn confirm_size(ctx: Context<'_>, id: &VolumeId) -> StepResult {
    let seen = check_intact(ctx.control.driver().observe_volume(id).await?)?;
    ctx.control.memory.volume_usage.record_volume(id, &seen);
    let id = id.clone();
    commit(move |tx| end_resize(tx, &id, Some(seen.size_gb())))
}

/// Returns the observed volume, or fails if it is missing or damaged.
pub(super) fn check_intact(seen: Option<ObservedVolume>) -> StepResult<ObservedVolume> {
    match seen {
        Some(ObservedVolume { fault: Some(fault), .. }) => Err(Failure::Permanent(fault)),
        Some(seen) => Ok(seen),
        None => Err(Failure::Permanent("the volume is missing".to_owned())),
    }
}

/// Ends the resize with the observed size, or with the old size when none was observed.
pub(in crate::requests) fn end_resize(tx: &mut Tx<'_>, id: &VolumeId, seen_gb: Option<u64>) -> Result<Next> {
    let (now, mut volume) = (tx.now(), load_volume(tx, id)?);
    if matches!(volume.state, VolumeState::Resizing { .. }) {
        volume.size_gb = seen_gb.unwrap_or(volume.size_gb);
        let volume = volume.moved(now, VolumeState::ready)?;
        storage::save(tx, &volume)?;
        let resized = VolumeEvent::Resized { size_gb: volume.size_gb };
        tx.record(volume.owner.scope(), Event::Volume(volume.id, resized))?;
    }
    Ok(Next::Done)
}
