//! An idle timeout for request bodies: a client that stops sending in the middle of a body occupies a connection, and
//! perhaps a file, that others need.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Error;
use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// Returns a body that fails when no data arrives for the given time.
pub(crate) fn with_idle_timeout(body: Body, timeout: Duration) -> Body {
    if body.is_end_stream() { body } else { Body::new(IdleTimeoutBody { body, timeout, timer: None }) }
}

struct IdleTimeoutBody {
    body: Body,
    timeout: Duration,
    /// Runs while no data arrives.
    timer: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for IdleTimeoutBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.timer = None;
            return Poll::Ready(frame);
        }
        let timeout = self.timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(timeout)));
        timer.as_mut().poll(cx).map(|()| Some(Err(Error::new("the body stopped arriving"))))
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
    async fn idle_body_fails() {
        let pieces = || stream::iter([Ok::<_, Error>(Bytes::from_static(b"a")), Ok(Bytes::from_static(b"b"))]);
        let whole = with_idle_timeout(Body::from_stream(pieces()), Duration::from_secs(60));
        assert_eq!(axum::body::to_bytes(whole, 100).await.unwrap(), "ab");
        let silent = with_idle_timeout(Body::from_stream(pieces().chain(stream::pending())), Duration::from_millis(1));
        let error = axum::body::to_bytes(silent, 100).await.unwrap_err();
        assert!(format!("{error:?}").contains("stopped arriving"), "{error:?}");
    }

    #[test]
    fn length_stays_known() {
        let body = with_idle_timeout(Body::from("four"), Duration::from_secs(60));
        assert_eq!(body.size_hint().exact(), Some(4));
        assert!(with_idle_timeout(Body::empty(), Duration::from_secs(60)).is_end_stream());
    }
}
