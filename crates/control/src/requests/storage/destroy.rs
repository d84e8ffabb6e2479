//! STORAGE_DESTROY: removes the volume with its data and confirms that it is gone.

use tarn_model::requests::{Request, RequestType};
use tarn_model::storage::{VolumeRemains, VolumeState};
use tarn_store::Tx;

use super::create::{move_volume, remove_and_confirm};
use crate::Result;
use crate::requests::{Commit, Context, Definition, Step, Undo, Work};

pub(in crate::requests) const DEFINITION: Definition = Definition {
    kind: RequestType::StorageDestroy,
    steps: &[
        Step { name: "remove", run: remove_and_confirm, undo: Undo::None("destroyed data cannot be restored") },
        Step { name: "confirm", run: confirm_destroyed, undo: Undo::None("it only commits") },
    ],
    completed: "The storage is destroyed.",
    takes_notes: false,
    failed: fail_destruction,
};

fn confirm_destroyed(ctx: Context<'_>) -> Work<'_> {
    let id = ctx.volume().clone();
    Box::pin(async move {
        let commit: Commit = Box::new(move |tx| move_volume(tx, &id, "storage.destroyed", VolumeState::gone));
        Ok(commit)
    })
}

fn fail_destruction(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    let reason = format!("it could not be removed: {reason}; destroy it again");
    match &request.volume {
        Some(id) => move_volume(tx, id, "storage.failed", |state| state.fail(&reason, VolumeRemains::Parts)).map(drop),
        None => Ok(()),
    }
}
