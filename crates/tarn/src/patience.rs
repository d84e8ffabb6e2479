//! Bodies that must keep coming: a client that falls silent in the middle of one is not waited for, because it holds a
//! connection, and perhaps a file, that others need.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Error;
use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// A body that fails when nothing comes for so long.
pub(crate) fn with(body: Body, patience: Duration) -> Body {
    if body.is_end_stream() { body } else { Body::new(Patient { body, patience, silence: None }) }
}

struct Patient {
    body: Body,
    patience: Duration,
    /// Runs while nothing comes.
    silence: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Patient {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.silence = None;
            return Poll::Ready(frame);
        }
        let patience = self.patience;
        let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(patience)));
        silence.as_mut().poll(cx).map(|()| Some(Err(Error::new("the body stopped coming"))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream::{self, StreamExt};

    #[tokio::test]
    async fn silence_ends_a_body_and_talk_does_not() {
        let pieces = || stream::iter([Ok::<_, Error>(Bytes::from_static(b"a")), Ok(Bytes::from_static(b"b"))]);
        let whole = with(Body::from_stream(pieces()), Duration::from_secs(60));
        assert_eq!(axum::body::to_bytes(whole, 100).await.unwrap(), "ab");
        let silent = with(Body::from_stream(pieces().chain(stream::pending())), Duration::from_millis(1));
        let error = axum::body::to_bytes(silent, 100).await.unwrap_err();
        assert!(format!("{error:?}").contains("stopped coming"), "{error:?}");
    }

    #[test]
    fn the_length_stays_known() {
        let body = with(Body::from("four"), Duration::from_secs(60));
        assert_eq!(body.size_hint().exact(), Some(4));
        assert!(with(Body::empty(), Duration::from_secs(60)).is_end_stream());
    }
}
