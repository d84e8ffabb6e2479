//! The step that ends the processes which use a volume: they are asked to exit, have a grace period, and are killed
//! after it. The processes that were killed are recorded.

use futures::future::join_all;
use tarn_driver::VolumeUser;
use tarn_model::clusters::Instance;
use tarn_model::events::{Event, KilledProcess, VolumeEvent};
use tarn_model::ids::VolumeId;
use tarn_model::requests::{AttachmentChange, Request};
use tarn_store::{Tx, requests};

use super::create::load_volume;
use crate::requests::clusters::nodes;
use crate::requests::{Context, Failure, StepResult, commit_nothing};
use crate::{Result, volume_users};

/// The size up to which processes are added to a note; further ones are listed in events only.
const MAX_NOTE: usize = 2000;

/// How many processes of one node are listed in an event.
const MAX_NAMED: usize = 100;

/// The end of a note that is full.
const MORE: &str = ", and more, which are listed in the events";

/// Ends all processes that use the volume, on all nodes at the same time. A live detach ends none.
pub(super) async fn end_volume_users(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    if change.live {
        return commit_nothing();
    }
    let nodes = nodes::read_nodes(ctx.control, &change.cluster).await?;
    let outcomes = join_all(nodes.instances.iter().map(|node| end_users_on_node(ctx, &change.volume, node))).await;
    for (node, outcome) in nodes.instances.iter().zip(outcomes) {
        match outcome {
            Ok(()) => {}
            // The next steps can continue: a restart ends all processes, and an unmount reports the ones that block it.
            Err(Failure::Permanent(why)) => {
                tracing::warn!(volume = %change.volume, instance = %node.id, why, "volume users could not be ended");
            }
            Err(retry @ Failure::Retry(_)) => return Err(retry),
        }
    }
    commit_nothing()
}

/// Ends the processes on one node. Killed processes are recorded immediately: another node may fail, and the next try
/// would not find them.
async fn end_users_on_node(ctx: Context<'_>, volume: &VolumeId, node: &Instance) -> StepResult<()> {
    let grace = ctx.control.settings().detach_grace;
    let killed = ctx.control.driver().end_volume_users(volume, &node.id, grace).await?;
    if killed.is_empty() {
        return Ok(());
    }
    metrics::counter!("tarn_processes_killed_total").increment(killed.len() as u64);
    let (request, name, killed_on) = (ctx.request.clone(), node.name(), node.id.clone());
    let (volume, seconds) = (volume.clone(), grace.as_secs());
    let write = ctx.control.store().write(move |tx| -> Result<()> {
        let scope = load_volume(tx, &volume)?.owner;
        let process = |holder: &VolumeUser| KilledProcess { pid: holder.pid, program: holder.program.clone() };
        let event = VolumeEvent::ProcessesKilled {
            node: name.clone(),
            instance: killed_on.clone(),
            request: request.id.clone(),
            processes: killed.iter().take(MAX_NAMED).map(process).collect(),
            count: killed.len() as u64,
        };
        tx.record(scope.scope(), Event::Volume(volume.clone(), event))?;
        let found: Vec<_> = killed.iter().map(|holder| (name.clone(), holder.clone())).collect();
        let note = extend_note(tx, &request, seconds, &volume_users::describe_volume_users(&found))?;
        match requests::set_note(tx, &request, &note) {
            // Another runner holds the lease now and writes the note of its own run. The event is recorded in any case.
            Err(tarn_store::Error::Conflict) => Ok(()),
            done => Ok(done?),
        }
    });
    Ok(write.await?)
}

/// Returns the note of a request with these processes added.
fn extend_note(tx: &mut Tx<'_>, request: &Request, seconds: u64, processes: &str) -> Result<String> {
    Ok(match requests::note(tx, &request.id)? {
        None => format!("Processes that did not release the volume within {seconds} s were killed: {processes}"),
        Some(note) if note.ends_with(MORE) => note,
        Some(note) if note.len() > MAX_NOTE => format!("{note}{MORE}"),
        Some(note) => format!("{note}, {processes}"),
    })
}
