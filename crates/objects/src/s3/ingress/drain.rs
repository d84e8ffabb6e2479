//! What is left of a body when a call was refused before it was read.
//!
//! Many clients send all of a body before they look at the answer. If the connection were closed on them they would see a
//! reset instead of the refusal, so the rest is read and thrown away, up to a limit.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;

/// How many bytes are thrown away at most.
const MAX_BYTES: usize = 64 << 20;

/// For how long.
const MAX_TIME: Duration = Duration::from_secs(30);

/// A body whose rest is read when it is dropped.
pub(in crate::s3) struct Whole<B: Body<Data = Bytes> + Send + 'static> {
    inner: Option<Pin<Box<B>>>,
    /// Whether the client sends it by itself. One that waits to be asked need not send it at all.
    comes: bool,
}

impl<B: Body<Data = Bytes> + Send + 'static> Whole<B> {
    pub(in crate::s3) fn new(inner: B, waits_to_be_asked: bool) -> Self {
        Whole { inner: Some(Box::pin(inner)), comes: !waits_to_be_asked }
    }
}

impl<B: Body<Data = Bytes> + Send + 'static> Body for Whole<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.comes = true;
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

impl<B: Body<Data = Bytes> + Send + 'static> Drop for Whole<B> {
    fn drop(&mut self) {
        let rest = self.inner.take().filter(|inner| self.comes && !inner.is_end_stream());
        if let (Some(rest), Ok(runtime)) = (rest, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(MAX_TIME, throw_away(rest)));
        }
    }
}

async fn throw_away<B: Body<Data = Bytes>>(mut rest: Pin<Box<B>>) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| rest.as_mut().poll_frame(cx)).await {
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > MAX_BYTES {
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

    /// A body that comes through a channel.
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

    /// Whether a client can send all of its body although nobody wants it.
    async fn can_be_sent(pieces: usize, size: usize, waits: bool) -> bool {
        let (mut sender, receiver) = mpsc::channel(0);
        drop(Whole::new(Channel(receiver), waits));
        for _ in 0..pieces {
            if sender.send(Bytes::from(vec![0; size])).await.is_err() {
                return false;
            }
        }
        true
    }

    #[tokio::test]
    async fn a_refused_body_can_be_sent_to_its_end_within_limits() {
        assert!(can_be_sent(100, 1000, false).await);
        assert!(!can_be_sent(70, 1 << 20, false).await);
        assert!(!can_be_sent(100, 1000, true).await, "who waits to be asked is not");
    }
}
