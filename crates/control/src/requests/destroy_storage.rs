//! STORAGE_DESTROY: removes the volume with its data and sees that it is gone.

use tarn_model::requests::{Request, RequestType};
use tarn_model::storage::{Left, VolumeState};
use tarn_store::Tx;

use super::create_storage::{change, remove};
use super::{Commit, Context, Definition, Step, Undo, Work};
use crate::Result;

pub(super) const DEFINITION: Definition = Definition {
    kind: RequestType::StorageDestroy,
    steps: &[
        Step { name: "remove", run: remove, undo: Undo::None("data that was destroyed on purpose cannot come back") },
        Step { name: "confirm", run: confirm, undo: Undo::None("it only commits what was seen") },
    ],
    completed: "The storage is destroyed.",
    takes_notes: false,
    failed,
};

fn confirm(ctx: Context<'_>) -> Work<'_> {
    let id = ctx.volume().clone();
    Box::pin(async move {
        let commit: Commit = Box::new(move |tx| change(tx, &id, "storage.destroyed", VolumeState::gone));
        Ok(commit)
    })
}

fn failed(request: &Request, tx: &mut Tx<'_>, reason: &str) -> Result<()> {
    let reason = format!("it could not be removed: {reason}; destroy it again");
    match &request.volume {
        Some(id) => change(tx, id, "storage.failed", |state| state.fail(&reason, Left::Parts)).map(drop),
        None => Ok(()),
    }
}
