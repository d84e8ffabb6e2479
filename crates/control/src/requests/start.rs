//! Starting requests, in the transaction of the operation that needs them, and ending them.

use std::time::Duration;

use tarn_model::capacity::Claim;
use tarn_model::events::{Event, RequestEvent};
use tarn_model::ids::RequestId;
use tarn_model::requests::{Progress, Request, RequestKind, RequestStatus};
use tarn_model::users::Owner;
use tarn_store::{Tx, line, requests};

use crate::Result;

/// Starts a request that must finish within `limit`.
pub(crate) fn start_request(tx: &mut Tx<'_>, owner: Owner, kind: RequestKind, limit: Duration) -> Result<Request> {
    let request = Request { deadline: tx.now().after(limit), ..new_request(tx, owner, kind) };
    requests::insert(tx, &request)?;
    Ok(request)
}

/// Starts the request of a claim, which waits in the capacity queue for at most `limit`.
pub(crate) fn start_queued(
    tx: &mut Tx<'_>,
    owner: Owner,
    kind: RequestKind,
    claim: &Claim,
    limit: Duration,
) -> Result<Request> {
    let deadline = tx.now().after(limit);
    let request = Request { deadline, progress: Progress::Queued, ..new_request(tx, owner, kind) };
    line::enter(tx, &request, claim)?;
    Ok(request)
}

/// Records a request whose work is done in the same transaction.
pub(crate) fn start_completed(tx: &mut Tx<'_>, owner: Owner, kind: RequestKind, message: &str) -> Result<RequestId> {
    let (new, progress) = (new_request(tx, owner, kind), Progress::Completed { steps: 0 });
    let request = Request { progress, message: Some(message.to_owned()), ended: Some(new.created), ..new };
    requests::insert(tx, &request)?;
    Ok(request.id)
}

/// Ends a request with the progress and the message that it already has, and records the event.
pub(crate) fn end_request(tx: &mut Tx<'_>, mut request: Request) -> Result<()> {
    request.ended = Some(tx.now());
    requests::save(tx, &request)?;
    let (kind, object) = (request.kind.request_type(), request.kind.object_id().to_owned());
    let is_completed = request.status() == RequestStatus::Completed;
    let message = request.message;
    let event = if is_completed {
        RequestEvent::Completed { kind, object, message }
    } else {
        RequestEvent::Failed { kind, object, message }
    };
    Ok(tx.record_as_engine(request.owner.scope(), Event::Request(request.id, event))?)
}

fn new_request(tx: &Tx<'_>, owner: Owner, kind: RequestKind) -> Request {
    let now = tx.now();
    Request {
        id: RequestId::fresh(tx.ids()),
        kind,
        owner,
        progress: Progress::New,
        attempts: 0,
        due: now,
        deadline: now,
        message: None,
        created: now,
        ended: None,
        epoch: 0,
    }
}
