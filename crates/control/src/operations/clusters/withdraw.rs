//! Work on a cluster that is given up before it has done anything, because the cluster is to be destroyed.

use tarn_model::clusters::Cluster;
use tarn_model::lifecycle::State;
use tarn_model::requests::{Request, RequestStatus, RequestType};
use tarn_store::{Tx, requests};

use crate::Result;
use crate::requests::{LINE_WINDOW, PULL, definition, end_request};

/// Ends the claim of a cluster that waits for capacity.
pub(super) fn leave_queue(tx: &mut Tx<'_>, cluster: &Cluster) -> Result<()> {
    for request in requests::open_of_cluster(tx, &cluster.id)? {
        cancel_request(tx, request, "the cluster was destroyed before it got its capacity")?;
    }
    requests::wake_line(tx, LINE_WINDOW)?;
    Ok(())
}

/// Ends the work on a cluster that has changed nothing on the machine yet: a restart before it has begun, and a claim that still
/// fetches its image. Both may wait for long. What they hold is given back by the destruction, as after any failure.
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

/// Takes a request out of the hands of whoever has it, and ends it.
fn cancel_request(tx: &mut Tx<'_>, request: Request, why: &str) -> Result<()> {
    let mut request = requests::fence(tx, request)?;
    request.waiting = false;
    request.status = RequestStatus::Failed;
    request.message = Some(why.to_owned());
    end_request(tx, request, "request.failed")
}

/// Whether nobody has worked on a request: with its first lease it is PROCESSING.
fn has_not_begun(request: &Request) -> bool {
    request.status == RequestStatus::Pending && request.step == 0
}

/// Whether a claim is at the step that fetches the image. The step after it, which makes instances, begins only when this one is
/// committed, and a fenced request commits nothing.
fn fetches_image(request: &Request) -> bool {
    let step = definition(request.kind).steps.get(request.step as usize);
    request.failure.is_none() && step.is_some_and(|step| step.name == PULL)
}
