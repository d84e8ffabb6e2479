//! Starting requests, in the transaction of the operation that needs them, and ending them.

use std::time::Duration;

use tarn_model::ids::{ClusterId, RequestId, VolumeId};
use tarn_model::requests::{Request, RequestStatus, RequestType};
use tarn_model::users::Owner;
use tarn_store::{Tx, events, requests};

use super::QUEUE_WINDOW;
use crate::Result;

/// What a new request is about.
pub(crate) struct NewRequest<'a> {
    pub(crate) kind: RequestType,
    pub(crate) owner: Owner,
    pub(crate) cluster: Option<&'a ClusterId>,
    pub(crate) volume: Option<&'a VolumeId>,
}

/// Starts a request that must finish within `limit`.
pub(crate) fn start_request(tx: &mut Tx<'_>, new: NewRequest<'_>, limit: Duration) -> Result<Request> {
    let request = Request { deadline: tx.now().after(limit), ..pending_request(tx, new) };
    requests::insert(tx, &request)?;
    Ok(request)
}

/// Starts a request that waits in the capacity queue for at most `limit`. A request behind the window of the queue
/// sleeps until the queue has moved.
pub(crate) fn start_queued(tx: &mut Tx<'_>, new: NewRequest<'_>, limit: Duration) -> Result<Request> {
    let (deadline, now) = (tx.now().after(limit), tx.now());
    let far_back = requests::line_length(tx, QUEUE_WINDOW)? >= u64::from(QUEUE_WINDOW);
    let due = if far_back { deadline } else { now };
    let request = Request { due, deadline, waiting: true, ..pending_request(tx, new) };
    requests::insert(tx, &request)?;
    Ok(request)
}

/// Records a request whose work is done in the same transaction.
pub(crate) fn start_completed(tx: &mut Tx<'_>, new: NewRequest<'_>, message: &str) -> Result<RequestId> {
    let blank = pending_request(tx, new);
    let ended = Some(blank.created);
    let request = Request { status: RequestStatus::Completed, message: Some(message.to_owned()), ended, ..blank };
    requests::insert(tx, &request)?;
    Ok(request.id)
}

/// Ends a request with the status and the message that it already has, and records the event.
pub(crate) fn end_request(tx: &mut Tx<'_>, mut request: Request, verb: &str) -> Result<()> {
    request.ended = Some(tx.now());
    requests::save(tx, &request)?;
    let (kind, object) = (request.kind.name(), request.object_id());
    let detail = serde_json::json!({ "type": kind, "object": object, "message": request.message });
    events::record(tx, events::ENGINE, request.owner.scope(), request.id.as_str(), verb, &detail)?;
    Ok(())
}

fn pending_request(tx: &Tx<'_>, new: NewRequest<'_>) -> Request {
    let now = tx.now();
    Request {
        id: RequestId::fresh(tx.ids()),
        kind: new.kind,
        status: RequestStatus::Pending,
        owner: new.owner,
        cluster: new.cluster.cloned(),
        volume: new.volume.cloned(),
        waiting: false,
        step: 0,
        failure: None,
        attempts: 0,
        due: now,
        deadline: now,
        message: None,
        created: now,
        ended: None,
        epoch: 0,
    }
}
