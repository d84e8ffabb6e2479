//! Receiving the body of a request, and its errors.

use futures::StreamExt;
use s3s::dto::StreamingBlob;
use s3s::{S3Error, S3Request, S3Result, StdError, s3_error};
use tarn_model::objects::MAX_PUT_BYTES;

use crate::Error;
use crate::files::{Intake, Received};
use crate::s3::shared::errors::custom;

/// Parses the declared length of the body. A body that is too long for a single request is refused before it is sent.
pub(in crate::s3) fn declared_length(content_length: Option<i64>) -> S3Result<Option<u64>> {
    let Some(length) = content_length else {
        return Ok(None);
    };
    let length =
        u64::try_from(length).map_err(|_| s3_error!(InvalidArgument, "A body cannot have a negative length."))?;
    if length > MAX_PUT_BYTES { Err(Error::TooLarge(MAX_PUT_BYTES).into()) } else { Ok(Some(length)) }
}

/// Parses the MD5 that the client sends in a header.
pub(in crate::s3) fn announced_md5<T>(request: &S3Request<T>) -> S3Result<Option<[u8; 16]>> {
    // s3s ignores an empty header.
    let Some(text) = request.headers.get("content-md5") else {
        return Ok(None);
    };
    let bytes = base64_simd::STANDARD.decode_to_vec(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    let refuse = || s3_error!(InvalidDigest, "The Content-MD5 you specified is not the base64 of 16 bytes.");
    bytes.map(Some).ok_or_else(refuse)
}

/// Receives a body to its end. Compares its length and MD5 with the declared ones.
pub(in crate::s3) async fn receive_body(
    mut intake: Intake,
    body: Option<StreamingBlob>,
    declared: Option<u64>,
    md5: Option<[u8; 16]>,
) -> S3Result<Received> {
    let mut size = 0_u64;
    if let Some(mut body) = body {
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| body_error(&error))?;
            size += piece.len() as u64;
            if declared.is_some_and(|declared| size > declared) {
                return Err(incomplete_body());
            }
            if size > MAX_PUT_BYTES {
                return Err(Error::TooLarge(MAX_PUT_BYTES).into());
            }
            intake.push(piece).await.map_err(Error::from)?;
        }
    }
    if declared.is_some_and(|declared| size != declared) {
        return Err(incomplete_body());
    }
    let received = intake.finish().await.map_err(Error::from)?;
    if md5.is_some() && md5 != received.md5 {
        Err(s3_error!(BadDigest, "The Content-MD5 you specified did not match what we received."))
    } else {
        Ok(received)
    }
}

fn incomplete_body() -> S3Error {
    s3_error!(IncompleteBody, "You did not provide the number of bytes specified by the Content-Length HTTP header.")
}

/// Converts the error of a body. s3s does not export its error types, so their texts decide.
pub(in crate::s3) fn body_error(error: &StdError) -> S3Error {
    let text = error.to_string();
    let mentions = |what: &str| text.contains(what);
    if mentions(crate::s3::ingress::chunks::TOO_LARGE) {
        s3_error!(
            InvalidRequest,
            "A chunk of the body is too large: send chunks of at most {} MiB.",
            crate::s3::ingress::chunks::MAX_CHUNK >> 20
        )
    } else if mentions("SignatureMismatch") {
        s3_error!(SignatureDoesNotMatch, "The signature of a chunk does not match what we received.")
    } else if mentions("Sha256Mismatch") {
        sha256_mismatch()
    } else if mentions("FormatError") || mentions("TooLarge") || mentions("TooManyTrailerHeaders") {
        s3_error!(IncompleteBody, "The body is not well-formed in the encoding aws-chunked.")
    } else {
        // Other errors mean that the connection ended early, so no client reads this response.
        incomplete_body()
    }
}

/// The error for a body that is not the one that was signed.
pub(in crate::s3) fn sha256_mismatch() -> S3Error {
    let message = "The provided 'x-amz-content-sha256' header does not match what was computed.";
    custom("XAmzContentSHA256Mismatch", http::StatusCode::BAD_REQUEST, message)
}
