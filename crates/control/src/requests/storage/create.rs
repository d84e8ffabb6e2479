//! STORAGE_CREATE: creates the volume.

use tarn_driver::{ObservedVolume, VolumeSpec};
use tarn_model::ids::VolumeId;
use tarn_model::requests::{Request, RequestType};
use tarn_model::storage::{Volume, VolumeRemains, VolumeState};
use tarn_store::{Tx, events, storage};

use crate::requests::{Commit, Context, Definition, Failure, Next, Step, Undo, Work, commit_nothing};
use crate::{Error, Result};

pub(in crate::requests) const DEFINITION: Definition = Definition {
    kind: RequestType::StorageCreate,
    steps: &[
        Step { name: "begin", run: begin_creation, undo: Undo::None("it only marks the start") },
        Step { name: "make", run: make_volume, undo: Undo::With(remove_and_confirm) },
        Step { name: "confirm", run: confirm_created, undo: Undo::None("it only observes and commits") },
    ],
    completed: "The storage is ready.",
    takes_notes: false,
    failed: fail_creation,
};

fn begin_creation(ctx: Context<'_>) -> Work<'_> {
    let id = ctx.volume().clone();
    Box::pin(async move {
        let commit: Commit = Box::new(move |tx| move_volume(tx, &id, "storage.creating", VolumeState::create));
        Ok(commit)
    })
}

fn make_volume(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        let volume = read_volume(ctx).await?;
        let size_bytes = volume.size_gb * 1_000_000_000;
        ctx.control.driver().ensure_volume(&VolumeSpec { id: volume.id, size_bytes }).await?;
        Ok(commit_nothing())
    })
}

/// Removes the volume and checks that it is gone.
pub(super) fn remove_and_confirm(ctx: Context<'_>) -> Work<'_> {
    Box::pin(async move {
        let driver = ctx.control.driver();
        driver.remove_volume(ctx.volume()).await?;
        match driver.observe_volume(ctx.volume()).await? {
            None => Ok(commit_nothing()),
            Some(_) => Err(Failure::Retry("the volume still exists after its removal".to_owned())),
        }
    })
}

fn confirm_created(ctx: Context<'_>) -> Work<'_> {
    let id = ctx.volume().clone();
    Box::pin(async move {
        match ctx.control.driver().observe_volume(&id).await? {
            Some(ObservedVolume { fault: Some(fault), .. }) => return Err(Failure::Permanent(fault)),
            Some(seen) => ctx.control.volume_usage().record_volume(&id, &seen),
            None => return Err(Failure::Permanent("the volume disappeared while it was being created".to_owned())),
        }
        let commit: Commit = Box::new(move |tx| move_volume(tx, &id, "storage.ready", VolumeState::ready));
        Ok(commit)
    })
}

fn fail_creation(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    match &request.volume {
        Some(id) => {
            let left = if request.step > 0 { VolumeRemains::Parts } else { VolumeRemains::Nothing };
            move_volume(tx, id, "storage.failed", |state| state.fail(reason, left)).map(drop)
        }
        None => Ok(()),
    }
}

/// Reads the volume of a request.
pub(super) async fn read_volume(ctx: Context<'_>) -> std::result::Result<Volume, Failure> {
    let id = ctx.volume().clone();
    Ok(ctx.control.store().read(|tx| load_volume(tx, &id)).await?)
}

/// Reads a volume in a transaction.
pub(in crate::requests) fn load_volume(tx: &mut Tx<'_>, id: &VolumeId) -> Result<Volume> {
    storage::get(tx, id)?.ok_or_else(|| Error::not_found("storage", id.as_str()))
}

/// Moves a volume to its next state and records the event.
pub(super) fn move_volume(
    tx: &mut Tx<'_>,
    id: &VolumeId,
    verb: &str,
    transition: impl FnOnce(VolumeState) -> std::result::Result<VolumeState, tarn_model::Refused>,
) -> Result<Next> {
    let now = tx.now();
    let volume = load_volume(tx, id)?.moved(now, transition)?;
    storage::save(tx, &volume)?;
    let detail = serde_json::json!({ "state": volume.state.name() });
    events::record(tx, events::ENGINE, volume.owner.scope(), id.as_str(), verb, &detail)?;
    Ok(Next::Done)
}
