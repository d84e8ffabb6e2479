//! ListObjects: the old list, which continues after a key that the client knows.

use s3s::dto::{ListObjectsInput, ListObjectsOutput};
use s3s::{S3Request, S3Response, S3Result};

use crate::Objects;
use crate::s3::listing;
use crate::s3::listing::encoding::Encoding;
use crate::s3::shared::caller;

pub(in crate::s3) async fn list_objects(
    objects: &Objects,
    request: S3Request<ListObjectsInput>,
) -> S3Result<S3Response<ListObjectsOutput>> {
    let org = caller::organization(&request)?;
    let input = request.input;
    let encoding = Encoding::from_request(input.encoding_type.as_ref())?;
    let limit = listing::page_limit(input.max_keys, "max-keys")?;
    let query =
        listing::list_query(input.prefix.as_deref(), input.delimiter.as_deref(), input.marker.as_deref(), limit)?;
    let page = objects.list(&org, &input.bucket, &query).await?;
    // Without a delimiter, the client continues after the last key.
    let tells_next = page.more && query.delimiter.is_some();
    let next = listing::last_key(&page, |listed| &listed.key).filter(|_| tells_next).map(str::to_owned);
    let (is_truncated, owner) = (page.more, listing::owner_of(&org));
    let (found, prefixes) = listing::split_entries(page.entries, encoding);
    let contents =
        found.into_iter().map(|listed| listing::object_entry(listed, Some(owner.clone()), encoding)).collect();
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(encoding.encode_if_needed(query.prefix)),
        marker: Some(encoding.encode_text(input.marker.unwrap_or_default())),
        max_keys: Some(limit as i32),
        is_truncated: Some(is_truncated),
        contents: Some(contents),
        common_prefixes: Some(prefixes),
        delimiter: query.delimiter.map(|delimiter| encoding.encode_text(delimiter)),
        next_marker: next.map(|next| encoding.encode_text(next)),
        encoding_type: encoding.response_type(),
        request_charged: None,
    }))
}
