//! ListObjectsV2: the list that continues with a token.

use s3s::dto::{ListObjectsV2Input, ListObjectsV2Output};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::Objects;
use crate::s3::listing;
use crate::s3::listing::encoding::Encoding;
use crate::s3::shared::caller;

pub(in crate::s3) async fn list_objects_v2(
    objects: &Objects,
    request: S3Request<ListObjectsV2Input>,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    let org = caller::organization(&request)?;
    let input = request.input;
    let encoding = Encoding::from_request(input.encoding_type.as_ref())?;
    let limit = listing::page_limit(input.max_keys, "max-keys")?;
    let reached =
        input.continuation_token.as_deref().filter(|token| !token.is_empty()).map(decode_token).transpose()?;
    let after = reached.as_deref().or(input.start_after.as_deref());
    let query = listing::list_query(input.prefix.as_deref(), input.delimiter.as_deref(), after, limit)?;
    let page = objects.list(&org, &input.bucket, &query).await?;
    let next = listing::last_key(&page, |listed| &listed.key).filter(|_| page.more).map(encode_token);
    let (is_truncated, count) = (page.more, page.entries.len());
    let owner = input.fetch_owner.unwrap_or(false).then(|| listing::owner_of(&org));
    let (found, prefixes) = listing::split_entries(page.entries, encoding);
    let contents = found.into_iter().map(|listed| listing::object_entry(listed, owner.clone(), encoding)).collect();
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(encoding.encode_text(query.prefix)),
        max_keys: Some(limit as i32),
        key_count: Some(count as i32),
        continuation_token: input.continuation_token,
        is_truncated: Some(is_truncated),
        next_continuation_token: next,
        contents: Some(contents),
        common_prefixes: Some(prefixes),
        delimiter: query.delimiter.map(|delimiter| encoding.encode_text(delimiter)),
        encoding_type: encoding.response_type(),
        start_after: input.start_after.map(|start| encoding.encode_text(start)),
        request_charged: None,
    }))
}

/// Encodes where a page ended as a token without special characters.
fn encode_token(entry: &str) -> String {
    base64_simd::URL_SAFE_NO_PAD.encode_to_string(entry)
}

/// Decodes where the previous page ended.
fn decode_token(token: &str) -> S3Result<String> {
    let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(token).ok();
    let entry = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    entry.ok_or_else(|| s3_error!(InvalidArgument, "The continuation token provided is incorrect"))
}
