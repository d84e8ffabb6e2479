//! The undo of attaching and detaching. What cannot be undone stays as it is, is reported to the caller, and does not
//! block the cluster: while the volume counts as attached it can be detached, and a restart mounts it.

use std::future::Future;

use tarn_driver::Error;
use tarn_model::clusters::Instance;
use tarn_model::ids::{ClusterId, VolumeId};
use tarn_model::lifecycle::State;
use tarn_model::requests::{AttachmentChange, Request};
use tarn_store::{Tx, requests};

use super::attach::{keep_attached, keeps_nodes_running, push_volume_names};
use super::edit::check_intact;
use crate::Result;
use crate::requests::clusters::nodes::{self, Nodes};
use crate::requests::{Context, Failure, Next, StepResult, commit, commit_nothing};

/// How often a permanent failure is retried, for some seconds in total: processes may exit by themselves.
const MAX_TRIES: u32 = 5;

/// Undoes a mount. Where processes already use the volume it stays mounted: an undo ends no process.
pub(super) async fn unmount_again(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    if !keeps_nodes_running(ctx, change).await? {
        return commit_nothing();
    }
    let (nodes, driver) = (nodes::read_nodes(ctx.control, &change.cluster).await?, ctx.control.driver());
    let left = try_on_each_node(ctx, &nodes, |node| driver.remove_mount(&change.volume, &node.id)).await?;
    push_volume_names(ctx, nodes).await;
    let Some(left) = left else { return commit_nothing() };
    let note = format!("The storage could not be unmounted again and still counts as attached: {left}. Detach it");
    let (request, cluster) = (ctx.request.clone(), change.cluster.clone());
    commit(move |tx| {
        keep_attached(tx, &cluster)?;
        add_note(tx, &request, &note)
    })
}

/// Undoes an unmount. A node that has ended has no volumes, and the reconciler reports its end.
pub(super) async fn mount_again(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    if !keeps_nodes_running(ctx, change).await? {
        return commit_nothing();
    }
    let missing = match volume_fault(ctx, &change.volume).await? {
        Some(fault) => Some(fault),
        None => {
            let (nodes, driver) = (running_nodes(ctx, &change.cluster).await?, ctx.control.driver());
            let missing = try_on_each_node(ctx, &nodes, |node| driver.ensure_mount(&change.volume, &node.id)).await?;
            push_volume_names(ctx, nodes).await;
            missing
        }
    };
    let (request, Some(missing)) = (ctx.request.clone(), missing) else { return commit_nothing() };
    commit(move |tx| add_note(tx, &request, &describe_unmounted(&missing)))
}

/// Undoes a restart without the volume. A faulty volume stays out, because it would keep the nodes from running.
pub(super) async fn restart_again(ctx: Context<'_>, change: &AttachmentChange) -> StepResult {
    if keeps_nodes_running(ctx, change).await? {
        return commit_nothing();
    }
    let fault = volume_fault(ctx, &change.volume).await?;
    let volume = Some(&change.volume).filter(|_| fault.is_none());
    let restarted = nodes::restart_all(ctx.control, &change.cluster, 2, volume).await?;
    let (request, Some(fault)) = (ctx.request.clone(), fault) else { return Ok(restarted) };
    commit(move |tx| {
        add_note(tx, &request, &describe_unmounted(&fault))?;
        restarted(tx)
    })
}

/// Returns why the volume cannot be mounted anywhere.
async fn volume_fault(ctx: Context<'_>, volume: &VolumeId) -> StepResult<Option<String>> {
    match check_intact(ctx.control.driver().observe_volume(volume).await?) {
        Ok(_) => Ok(None),
        Err(Failure::Permanent(fault)) => Ok(Some(fault)),
        Err(retry) => Err(retry),
    }
}

/// Returns the nodes that should run and do.
async fn running_nodes(ctx: Context<'_>, cluster: &ClusterId) -> StepResult<Nodes> {
    let mut nodes = nodes::read_nodes(ctx.control, cluster).await?;
    let mut seen = nodes::observe_all(ctx.control, &nodes).await?.into_iter();
    nodes.instances.retain(|node| {
        let runs = seen.next().flatten().is_some_and(|seen| seen.running);
        runs && node.state == State::Running
    });
    Ok(nodes)
}

/// Runs `act` on every node, even when it fails on some. Returns where and why it failed permanently, after enough
/// tries.
async fn try_on_each_node<'n, F>(
    ctx: Context<'_>,
    nodes: &'n Nodes,
    act: impl Fn(&'n Instance) -> F,
) -> StepResult<Option<String>>
where
    F: Future<Output = std::result::Result<(), Error>>,
{
    let outcome = |node: &'n Instance| {
        let act = act(node);
        async move {
            match act.await {
                Err(Error::Permanent(why)) => Ok(Some(format!("{why} on {}", node.name()))),
                done => done.map(|()| None),
            }
        }
    };
    let failed: Vec<String> = nodes::for_each_node(nodes, outcome).await?.into_iter().flatten().collect();
    let message = match failed.as_slice() {
        [] => return Ok(None),
        [one] => one.clone(),
        [one, others @ ..] => format!("{one}, and likewise on {} more nodes", others.len()),
    };
    if ctx.request.attempts < MAX_TRIES { Err(Failure::Retry(message)) } else { Ok(Some(message)) }
}

fn describe_unmounted(why: &str) -> String {
    format!(
        "The storage could not be mounted again and still counts as attached: {why}. Detach it, or restart the cluster \
         when it can be used again"
    )
}

/// Adds to the note that the caller sees at the end.
fn add_note(tx: &mut Tx<'_>, request: &Request, message: &str) -> Result<Next> {
    let note = match requests::note(tx, &request.id)? {
        Some(note) => format!("{note}. {message}"),
        None => message.to_owned(),
    };
    requests::set_note(tx, request, &note)?;
    Ok(Next::Done)
}
