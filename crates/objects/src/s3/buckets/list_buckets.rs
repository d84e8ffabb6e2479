//! ListBuckets.

use s3s::dto::{Bucket, ListBucketsInput, ListBucketsOutput, Owner};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::Objects;
use crate::s3::REGION;
use crate::s3::shared::{caller, times};

/// The maximum number of buckets of a page.
const MAX_PAGE: i32 = 10_000;

pub(in crate::s3) async fn list_buckets(
    objects: &Objects,
    request: S3Request<ListBucketsInput>,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let org = caller::organization(&request)?;
    let ListBucketsInput { bucket_region, continuation_token, max_buckets, prefix } = request.input;
    let limit = max_buckets.unwrap_or(MAX_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(s3_error!(InvalidArgument, "max-buckets must be between 1 and {MAX_PAGE}"));
    }
    let here = bucket_region.is_none_or(|region| region == REGION);
    let mut found = objects.buckets(&org).await?;
    found.retain(|bucket| {
        here && prefix.as_ref().is_none_or(|prefix| bucket.name.starts_with(prefix))
            && continuation_token.as_ref().is_none_or(|last| bucket.name > *last)
    });
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let output = ListBucketsOutput {
        continuation_token: found.last().filter(|_| more).map(|last| last.name.clone()),
        owner: Some(Owner { display_name: Some(org.to_string()), id: Some(org.to_string()) }),
        prefix,
        buckets: Some(found.into_iter().map(bucket_entry).collect()),
    };
    Ok(S3Response::new(output))
}

fn bucket_entry(bucket: tarn_model::buckets::Bucket) -> Bucket {
    Bucket {
        bucket_region: Some(REGION.to_owned()),
        creation_date: Some(times::timestamp(bucket.created)),
        name: Some(bucket.name),
    }
}
