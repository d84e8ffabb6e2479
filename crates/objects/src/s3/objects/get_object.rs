//! GetObject.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use s3s::dto::{ChecksumMode, GetObjectInput, GetObjectOutput, StreamingBlob};
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, StdError};
use tarn_model::objects::Object;

use crate::find::VersionSelector;
use crate::s3::shared::conditions::Conditions;
use crate::s3::shared::descriptions::describe_object;
use crate::s3::shared::ranges::{Slice, requested_slice};
use crate::s3::shared::{caller, headers, version_ids};
use crate::{Error, ObjectReader, Objects};

/// How often an object is looked up when it is replaced before it can be read.
const MAX_TRIES: usize = 10;

pub(in crate::s3) async fn get_object(
    objects: &Objects,
    request: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let org = caller::organization(&request)?;
    let input = &request.input;
    headers::reject_customer_keys(input.sse_customer_algorithm.is_some() || input.sse_customer_key.is_some())?;
    let selector = version_ids::parse_selector(input.version_id.as_deref())?;
    let mut tries = 0;
    loop {
        tries += 1;
        let object = objects.find(&org, &input.bucket, &input.key, &selector).await?;
        match read_object(objects, input, &object).await {
            Err(error) if *error.code() == S3ErrorCode::NoSuchVersion && tries < MAX_TRIES => {}
            read => return Ok(get_object_output(input, &selector, object, read?)),
        }
    }
}

async fn read_object(objects: &Objects, input: &GetObjectInput, object: &Object) -> S3Result<(Slice, ObjectReader)> {
    let conditions = Conditions {
        if_match: input.if_match.as_ref(),
        if_none_match: input.if_none_match.as_ref(),
        if_modified_since: input.if_modified_since.as_ref(),
        if_unmodified_since: input.if_unmodified_since.as_ref(),
    };
    conditions.check_read(object)?;
    let slice = requested_slice(objects, object, input.range, input.part_number).await?;
    let reader = objects.read(object, slice.bytes.clone()).await?;
    Ok((slice, reader))
}

fn get_object_output(
    input: &GetObjectInput,
    selector: &VersionSelector,
    mut object: Object,
    (slice, reader): (Slice, ObjectReader),
) -> S3Response<GetObjectOutput> {
    let checksums = input.checksum_mode.as_ref().is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED);
    let version = version_ids::found_version(&object, selector);
    let tags = i32::try_from(object.details.tags.len()).unwrap_or(i32::MAX);
    let mut output = describe_object!(GetObjectOutput, object, slice, version, checksums);
    output.tag_count = (tags > 0).then_some(tags);
    output.body = Some(StreamingBlob::new(ResponseBody(reader)));
    S3Response::new(output)
}

/// The bytes of a response.
struct ResponseBody(ObjectReader);

impl Stream for ResponseBody {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx).map_err(|error| {
            // The client only sees that the connection ends.
            tracing::error!(error = %Error::from(error), "an object could not be read to its end");
            StdError::from("the object could not be read to its end")
        })
    }
}

impl ByteStream for ResponseBody {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(usize::try_from(self.0.remaining()).unwrap_or(usize::MAX))
    }
}
