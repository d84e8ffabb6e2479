//! Draining the rest of a body when a call was refused before the body was read.
//!
//! Many clients send the whole body before they read the response. If the connection were closed, they would see a
//! reset instead of the refusal, so the rest is read and discarded, up to a limit.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;

/// The maximum number of discarded bytes.
const MAX_DRAINED_BYTES: usize = 64 << 20;

/// The timeout for discarding them.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// A body whose rest is read when it is dropped.
pub(in crate::s3) struct DrainedBody<B: Body<Data = Bytes> + Send + 'static> {
    inner: Option<Pin<Box<B>>>,
    /// Whether the client sends the body without 100-continue, or the body has been requested.
    is_sent: bool,
}

impl<B: Body<Data = Bytes> + Send + 'static> DrainedBody<B> {
    pub(in crate::s3) fn new(inner: B, expects_continue: bool) -> Self {
        DrainedBody { inner: Some(Box::pin(inner)), is_sent: !expects_continue }
    }
}

impl<B: Body<Data = Bytes> + Send + 'static> Body for DrainedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.is_sent = true;
        let Some(inner) = &mut self.inner else {
            return Poll::Ready(None);
        };
        let frame = ready!(inner.as_mut().poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.inner = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), |inner| inner.size_hint())
    }
}

impl<B: Body<Data = Bytes> + Send + 'static> Drop for DrainedBody<B> {
    fn drop(&mut self) {
        let rest = self.inner.take().filter(|inner| self.is_sent && !inner.is_end_stream());
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(DRAIN_TIMEOUT, drain_body(rest)));
        }
    }
}

async fn drain_body<B: Body<Data = Bytes>>(mut rest: Pin<Box<B>>) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| rest.as_mut().poll_frame(cx)).await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > MAX_DRAINED_BYTES {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;
    use futures::{SinkExt, StreamExt};

    use super::*;

    type Sent = mpsc::Receiver<Bytes>;

    /// A body that arrives through a channel.
    struct Channel(Sent);

    impl Body for Channel {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.0.poll_next_unpin(cx).map(|piece| piece.map(Frame::data).map(Ok))
        }
    }

    /// Returns whether a client can send its whole body although it is discarded.
    async fn can_send_all(pieces: usize, size: usize, expects_continue: bool) -> bool {
        let (mut sender, receiver) = mpsc::channel(0);
        drop(DrainedBody::new(Channel(receiver), expects_continue));
        for _ in 0..pieces {
            if sender.send(Bytes::from(vec![0; size])).await.is_err() {
                return false;
            }
        }
        true
    }

    /// A refused body can be sent to its end, within limits.
    #[tokio::test]
    async fn refused_body_is_drained_within_limits() {
        assert!(can_send_all(100, 1000, false).await);
        assert!(!can_send_all(70, 1 << 20, false).await);
        assert!(!can_send_all(100, 1000, true).await, "a client that waits for 100-continue is not read");
    }
}
