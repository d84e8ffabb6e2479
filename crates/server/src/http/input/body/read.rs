//! Reads the body of a call within its limits.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use futures::StreamExt;

use crate::http::output::failure::Failure;

/// The largest body that is parsed.
const MAX_BYTES: usize = 1 << 20;

/// How much of a larger body is read and discarded: a client that is cut off while it sends would see a broken
/// connection instead of the response.
const MAX_DISCARDED: usize = 16 << 20;

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the whole body.
pub(crate) async fn read_body(body: Body) -> Result<Bytes, Failure> {
    match tokio::time::timeout(BODY_TIMEOUT, collect_chunks(body)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::invalid("body_incomplete", "the body did not arrive in time")),
    }
}

async fn collect_chunks(body: Body) -> Result<Bytes, Failure> {
    let mut chunks = body.into_data_stream();
    let (mut kept, mut length) = (Vec::<Bytes>::new(), 0usize);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Failure::invalid("body_incomplete", "the body ended early"))?;
        length += chunk.len();
        match length {
            0..=MAX_BYTES => kept.push(chunk),
            _ if length <= MAX_DISCARDED => kept.clear(),
            _ => break,
        }
    }
    if length > MAX_BYTES {
        let message = "the body is larger than 1 MiB";
        return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message));
    }
    match kept.len() {
        1 => Ok(kept.remove(0)),
        _ => Ok(Bytes::from(kept.concat())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn body_size_is_limited() {
        let whole = vec![b'x'; MAX_BYTES];
        assert_eq!(read_body(Body::from(whole.clone())).await.unwrap(), whole);
        for length in [MAX_BYTES + 1, MAX_DISCARDED + 1] {
            let failure = read_body(Body::from(vec![b'x'; length])).await.unwrap_err();
            assert_eq!((failure.status.as_u16(), failure.code), (413, "body_too_large"));
        }
    }

    #[tokio::test]
    async fn body_chunks_are_joined() {
        let chunks = ["ab", "", "c"].map(|text| Ok::<_, std::io::Error>(Bytes::from(text)));
        let body = Body::from_stream(futures::stream::iter(chunks));
        assert_eq!(read_body(body).await.unwrap(), "abc");
    }

    #[tokio::test]
    async fn broken_body_is_reported() {
        let chunks = [Ok(Bytes::from("{")), Err(std::io::Error::other("gone"))];
        let failure = read_body(Body::from_stream(futures::stream::iter(chunks))).await.unwrap_err();
        assert_eq!((failure.status.as_u16(), failure.code), (400, "body_incomplete"));
    }
}
