//! Ends calls whose key stops working while they run: a client may send a body, or read a response, as slowly as it
//! likes.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body as _, Frame, SizeHint};
use s3s::{Body, HttpResponse, StdError};
use tarn_store::s3_keys::KeyHolder;

use super::call_permits::CallPermit;
use crate::Objects;
use crate::caller::Caller;

/// How often the key of a call that still runs is looked up again.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A response of this size or less is sent at once, and its call ends with it. It is not watched and needs no permit.
const SMALL_RESPONSE: u64 = 64 << 10;

/// One call, and what becomes known of it.
pub(in crate::s3) struct Call {
    /// The id of the call, which its response has.
    pub(in crate::s3) id: String,
    /// The address of the client, if it is known.
    pub(in crate::s3) address: Option<IpAddr>,
    /// Whose key signed the call, once the key was found.
    pub(in crate::s3) caller: OnceLock<Arc<Caller>>,
    /// Set once the signature is checked, and released with the call.
    pub(in crate::s3) permit: OnceLock<CallPermit>,
}

impl Call {
    pub(in crate::s3) fn new(id: String, address: Option<IpAddr>) -> Self {
        Call { id, address, caller: OnceLock::new(), permit: OnceLock::new() }
    }

    /// Notes whose key signed the call. Its signature is checked afterwards.
    pub(in crate::s3) fn identify(&self, access_key: &str, holder: KeyHolder) {
        let (access_key, address, call) = (access_key.to_owned(), self.address, self.id.clone());
        self.caller.get_or_init(|| Arc::new(Caller { access_key, holder, address, call }));
    }
}

/// Completes when the key of a call no longer works; never for a call without a key. A lookup that fails says nothing.
pub(in crate::s3) async fn key_ended(objects: Objects, call: Arc<Call>) {
    loop {
        tokio::time::sleep(RECHECK_INTERVAL).await;
        if let Some(caller) = call.caller.get()
            && matches!(objects.holder_of(&caller.access_key).await, Ok(None))
        {
            return;
        }
    }
}

/// Cuts a large response off when the key of its call no longer works.
pub(in crate::s3) fn watch_response(response: HttpResponse, objects: Objects, call: Arc<Call>) -> HttpResponse {
    if response.body().size_hint().upper().is_some_and(|size| size <= SMALL_RESPONSE) {
        return response;
    }
    response.map(|body| Body::http_body_unsync(WatchedBody { body, ended: Box::pin(key_ended(objects, call)) }))
}

struct WatchedBody {
    body: Body,
    ended: BoxFuture<'static, ()>,
}

impl http_body::Body for WatchedBody {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        if self.ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err("the access key no longer works".into())));
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
