//! Ends calls whose key stops working while they run: a client may send a body, or read a response, as slowly as it
//! likes.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Body as _, Frame, SizeHint};
use s3s::{Body, HttpResponse, StdError};
use tarn_store::s3_keys::KeyHolder;

use super::places::Place;
use crate::Objects;

/// How often the key of a call that still runs is looked up again.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// A response of this size or less is sent at once, and its call ends with it. It is not watched and needs no place.
const SMALL_RESPONSE: u64 = 64 << 10;

/// The key that signed a call, and its holder.
pub(in crate::s3) struct SignedBy {
    pub(in crate::s3) access_key: String,
    pub(in crate::s3) holder: KeyHolder,
    /// Set once the signature is checked, and released with the call.
    pub(in crate::s3) place: OnceLock<Place>,
}

/// The key of one call, once its signature is checked.
pub(in crate::s3) type CallKey = Arc<OnceLock<SignedBy>>;

/// Completes when the key of a call no longer works; never for a call without a key. A lookup that fails says nothing.
pub(in crate::s3) async fn key_ended(objects: Objects, key: CallKey) {
    loop {
        tokio::time::sleep(RECHECK_INTERVAL).await;
        if let Some(signed) = key.get()
            && matches!(objects.holder_of(&signed.access_key).await, Ok(None))
        {
            return;
        }
    }
}

/// Cuts a large response off when the key of its call no longer works.
pub(in crate::s3) fn watch_response(response: HttpResponse, objects: Objects, key: CallKey) -> HttpResponse {
    if response.body().size_hint().upper().is_some_and(|size| size <= SMALL_RESPONSE) {
        return response;
    }
    response.map(|body| Body::http_body_unsync(WatchedBody { body, ended: Box::pin(key_ended(objects, key)) }))
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
