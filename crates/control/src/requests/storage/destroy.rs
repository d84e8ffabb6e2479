//! STORAGE_DESTROY: removes the volume with its data and confirms that it is gone.

use tarn_model::events::VolumeEvent;
use tarn_model::ids::VolumeId;
use tarn_model::storage::{VolumeRemains, VolumeState};
use tarn_store::Tx;

use super::create::{failed, move_volume};
use crate::Result;
use crate::requests::{Context, Definition, Failure, StepResult, Undo, act, commit, step};

pub(in crate::requests) fn definition(volume: &VolumeId) -> Definition<'_> {
    let undo = Undo::None("destroyed data cannot be restored");
    Definition {
        steps: vec![step("remove", act(volume, destroy_volume), undo)],
        completed: "The storage is destroyed.",
        takes_notes: false,
    }
}

async fn destroy_volume(ctx: Context<'_>, id: &VolumeId) -> StepResult {
    remove_volume(ctx, id).await?;
    let id = id.clone();
    commit(move |tx| move_volume(tx, &id, |state| VolumeEvent::Destroyed { state }, VolumeState::gone))
}

/// Removes the volume and checks that it is gone.
pub(super) async fn remove_volume(ctx: Context<'_>, id: &VolumeId) -> StepResult<()> {
    let driver = ctx.control.driver();
    driver.remove_volume(id).await?;
    match driver.observe_volume(id).await? {
        None => Ok(()),
        Some(_) => Err(Failure::Retry("the volume still exists after its removal".to_owned())),
    }
}

pub(in crate::requests) fn fail_destruction(tx: &mut Tx<'_>, id: &VolumeId, reason: &str) -> Result<()> {
    let reason = format!("it could not be removed: {reason}; destroy it again");
    move_volume(tx, id, failed, |state| state.fail(&reason, VolumeRemains::Parts)).map(drop)
}
