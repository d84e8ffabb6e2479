//! Cancels work on a cluster that has had no effect yet, because the cluster is to be destroyed.

use tarn_model::clusters::Cluster;
use tarn_model::lifecycle::State;
use tarn_model::requests::{Progress, Request, RequestKind};
use tarn_store::{Tx, line, requests};

use crate::Result;
use crate::requests::{end_request, pulls_image};

/// Cancels the claim of a cluster that waits for capacity.
pub(super) fn leave_queue(tx: &mut Tx<'_>, cluster: &Cluster) -> Result<()> {
    for request in requests::open_of_cluster(tx, &cluster.id)? {
        cancel_request(tx, request, "the cluster was destroyed before it got its capacity")?;
    }
    line::wake(tx)?;
    Ok(())
}

/// Cancels work that has changed nothing on the host yet: a restart that has not begun, and a claim that still pulls
/// its image. Both may wait for a long time. Destroying the cluster releases what they hold, as after any failure.
pub(super) fn withdraw_open_work(tx: &mut Tx<'_>, cluster: Cluster) -> Result<Cluster> {
    let open = requests::open_of_cluster(tx, &cluster.id)?;
    let why = match (&cluster.state, &open[..]) {
        (State::Restarting, [Request { kind: RequestKind::RestartCluster(_), progress: Progress::New, .. }]) => {
            "the cluster was destroyed before its restart began"
        }
        // The next step, which creates instances, begins only after the pull is committed, and a fenced request commits
        // nothing.
        (State::Provisioning, [one]) if pulls_image(one) => "the cluster was destroyed while its image was fetched",
        _ => return Ok(cluster),
    };
    for request in open {
        cancel_request(tx, request, why)?;
    }
    let now = tx.now();
    Ok(cluster.moved(now, |state| state.fail(why))?)
}

/// Fences a request, so that its runner cannot commit any more, and ends it.
fn cancel_request(tx: &mut Tx<'_>, request: Request, why: &str) -> Result<()> {
    let mut request = requests::fence(tx, request)?;
    request.progress = request.progress.fail()?;
    request.message = Some(why.to_owned());
    end_request(tx, request)
}
