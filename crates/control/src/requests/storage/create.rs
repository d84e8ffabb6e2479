//! STORAGE_CREATE: creates the volume.

use tarn_driver::{ObservedVolume, VolumeSpec};
use tarn_model::events::{Event, VolumeEvent};
use tarn_model::ids::VolumeId;
use tarn_model::storage::{Volume, VolumeRemains, VolumeState};
use tarn_store::{Tx, storage};

use super::destroy::remove_volume;
use crate::requests::{Context, Definition, Failure, Next, StepResult, Undo, act, commit, commit_nothing, step};
use crate::{Error, Result};

pub(in crate::requests) fn definition(volume: &VolumeId) -> Definition<'_> {
    Definition {
        steps: vec![
            step("begin", act(volume, begin_creation), Undo::None("it only marks the start")),
            step("make", act(volume, make_volume), Undo::With(act(volume, unmake_volume))),
            step("confirm", act(volume, confirm_created), Undo::None("it only observes and commits")),
        ],
        completed: "The storage is ready.",
        takes_notes: false,
    }
}

async fn begin_creation(_: Context<'_>, id: &VolumeId) -> StepResult {
    let id = id.clone();
    commit(move |tx| move_volume(tx, &id, |state| VolumeEvent::Creating { state }, VolumeState::create))
}

async fn make_volume(ctx: Context<'_>, id: &VolumeId) -> StepResult {
    let volume = read_volume(ctx, id).await?;
    let size_bytes = volume.size_gb * 1_000_000_000;
    ctx.control.driver().ensure_volume(&VolumeSpec { id: volume.id, size_bytes }).await?;
    commit_nothing()
}

async fn unmake_volume(ctx: Context<'_>, id: &VolumeId) -> StepResult {
    remove_volume(ctx, id).await?;
    commit_nothing()
}

async fn confirm_created(ctx: Context<'_>, id: &VolumeId) -> StepResult {
    match ctx.control.driver().observe_volume(id).await? {
        Some(ObservedVolume { fault: Some(fault), .. }) => return Err(Failure::Permanent(fault)),
        Some(seen) => ctx.control.memory.volume_usage.record_volume(id, &seen),
        None => return Err(Failure::Permanent("the volume disappeared while it was being created".to_owned())),
    }
    let id = id.clone();
    commit(move |tx| move_volume(tx, &id, |state| VolumeEvent::Ready { state }, VolumeState::ready))
}

pub(in crate::requests) fn fail_creation(tx: &mut Tx<'_>, id: &VolumeId, undone: bool, reason: &str) -> Result<()> {
    let left = if undone { VolumeRemains::Nothing } else { VolumeRemains::Parts };
    move_volume(tx, id, failed, |state| state.fail(reason, left)).map(drop)
}

/// The event of a volume that could not be created or removed.
pub(super) fn failed(state: String) -> VolumeEvent {
    VolumeEvent::Failed { state: Some(state), reason: None }
}

/// Reads the volume of a request.
pub(super) async fn read_volume(ctx: Context<'_>, id: &VolumeId) -> StepResult<Volume> {
    Ok(ctx.control.store().read(|tx| load_volume(tx, id)).await?)
}

/// Reads a volume in a transaction.
pub(in crate::requests) fn load_volume(tx: &mut Tx<'_>, id: &VolumeId) -> Result<Volume> {
    storage::get(tx, id)?.ok_or_else(|| Error::not_found("storage", id.as_str()))
}

/// Moves a volume to its next state and records the event.
pub(super) fn move_volume(
    tx: &mut Tx<'_>,
    id: &VolumeId,
    event: impl Fn(String) -> VolumeEvent,
    transition: impl FnOnce(VolumeState) -> std::result::Result<VolumeState, tarn_model::Refused>,
) -> Result<Next> {
    let now = tx.now();
    let volume = load_volume(tx, id)?.moved(now, transition)?;
    storage::save(tx, &volume)?;
    let event = event(volume.state.name().to_owned());
    tx.record(volume.owner.scope(), Event::Volume(volume.id, event))?;
    Ok(Next::Done)
}
