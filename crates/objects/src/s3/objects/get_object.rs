//! GetObject.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use s3s::dto::{ChecksumMode, GetObjectInput, GetObjectOutput, StreamingBlob};
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, StdError};
use tarn_model::objects::Object;

use crate::find::Which;
use crate::s3::shared::conditions::Conditions;
use crate::s3::shared::descriptions::describe;
use crate::s3::shared::ranges::{Slice, slice};
use crate::s3::shared::{caller, headers, version_ids};
use crate::{Error, Objects, Reading};

/// How often an object is looked for again that was replaced before it could be read.
const TRIES: usize = 10;

pub(in crate::s3) async fn get_object(
    objects: &Objects,
    request: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let org = caller::organization(&request)?;
    let input = &request.input;
    headers::refuse_own_keys(input.sse_customer_algorithm.is_some() || input.sse_customer_key.is_some())?;
    let which = version_ids::which(input.version_id.as_deref())?;
    let mut tries = 0;
    loop {
        tries += 1;
        let object = objects.find(&org, &input.bucket, &input.key, &which).await?;
        match read(objects, input, &object).await {
            Err(error) if *error.code() == S3ErrorCode::NoSuchVersion && tries < TRIES => {}
            read => return Ok(told(input, &which, object, read?)),
        }
    }
}

async fn read(objects: &Objects, input: &GetObjectInput, object: &Object) -> S3Result<(Slice, Reading)> {
    let conditions = Conditions {
        if_match: input.if_match.as_ref(),
        if_none_match: input.if_none_match.as_ref(),
        if_modified_since: input.if_modified_since.as_ref(),
        if_unmodified_since: input.if_unmodified_since.as_ref(),
    };
    conditions.check_read(object)?;
    let slice = slice(objects, object, input.range, input.part_number).await?;
    let reading = objects.read(object, slice.bytes.clone()).await?;
    Ok((slice, reading))
}

fn told(
    input: &GetObjectInput,
    which: &Which,
    mut object: Object,
    (slice, reading): (Slice, Reading),
) -> S3Response<GetObjectOutput> {
    let checksums = input.checksum_mode.as_ref().is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED);
    let version = version_ids::of(&object, which);
    let tags = i32::try_from(object.details.tags.len()).unwrap_or(i32::MAX);
    let mut output = describe!(GetObjectOutput, object, slice, version, checksums);
    output.tag_count = (tags > 0).then_some(tags);
    output.body = Some(StreamingBlob::new(Outgoing(reading)));
    S3Response::new(output)
}

/// Bytes on their way out.
struct Outgoing(Reading);

impl Stream for Outgoing {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx).map_err(|error| {
            // The client only sees that the connection ends.
            tracing::error!(error = %Error::from(error), "an object cannot be read to its end");
            StdError::from("the object cannot be read to its end")
        })
    }
}

impl ByteStream for Outgoing {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(usize::try_from(self.0.remaining()).unwrap_or(usize::MAX))
    }
}
