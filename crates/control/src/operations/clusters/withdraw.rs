//! Cancels work on a cluster that has had no effect yet, because the cluster is to be destroyed.

use tarn_model::clusters::Cluster;
use tarn_model::lifecycle::State;
use tarn_model::requests::{Request, RequestStatus, RequestType};
use tarn_store::{Tx, requests};

use crate::Result;
use crate::requests::{PULL, QUEUE_WINDOW, definition, end_request};

/// Cancels the claim of a cluster that waits for capacity.
pub(super) fn leave_queue(tx: &mut Tx<'_>, cluster: &Cluster) -> Result<()> {
    for request in requests::open_of_cluster(tx, &cluster.id)? {
        cancel_request(tx, request, "the cluster was destroyed before it got its capacity")?;
    }
    requests::wake_line(tx, QUEUE_WINDOW)?;
    Ok(())
}

/// Cancels work that has changed nothing on the host yet: a restart that has not begun, and a claim that still pulls
/// its image. Both may wait for a long time. Destroying the cluster releases what they hold, as after any failure.
pub(super) fn withdraw_open_work(tx: &mut Tx<'_>, cluster: Cluster) -> Result<Cluster> {
    let open = requests::open_of_cluster(tx, &cluster.id)?;
    let why = match (&cluster.state, &open[..]) {
        (State::Restarting, [one]) if one.kind == RequestType::ClusterRestart && has_not_begun(one) => {
            "the cluster was destroyed before its restart began"
        }
        (State::Provisioning, [one]) if fetches_image(one) => "the cluster was destroyed while its image was fetched",
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
    request.waiting = false;
    request.status = RequestStatus::Failed;
    request.message = Some(why.to_owned());
    end_request(tx, request, "request.failed")
}

/// Returns whether no runner has worked on a request. The first lease makes it PROCESSING.
fn has_not_begun(request: &Request) -> bool {
    request.status == RequestStatus::Pending && request.step == 0
}

/// Returns whether a claim is at the step that pulls the image. The next step, which creates instances, begins only
/// after this one is committed, and a fenced request commits nothing.
fn fetches_image(request: &Request) -> bool {
    let step = definition(request.kind).steps.get(request.step as usize);
    request.failure.is_none() && step.is_some_and(|step| step.name == PULL)
}
