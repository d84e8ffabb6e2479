//! ListMultipartUploads: uploads that are neither complete nor aborted.

use s3s::dto::{
    Initiator, ListMultipartUploadsInput, ListMultipartUploadsOutput, MultipartUpload, Owner, StorageClass,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::objects::Upload;

use crate::Objects;
use crate::list::{Entry, Page};
use crate::s3::listing;
use crate::s3::listing::encoding::Encoding;
use crate::s3::shared::{caller, checksums, times};

pub(in crate::s3) async fn list_multipart_uploads(
    objects: &Objects,
    request: S3Request<ListMultipartUploadsInput>,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    let org = caller::organization(&request)?;
    let input = request.input;
    let encoding = Encoding::from_request(input.encoding_type.as_ref())?;
    let limit = listing::page_limit(input.max_uploads, "max-uploads")?;
    let (prefix, delimiter, key_marker) = (&input.prefix, &input.delimiter, &input.key_marker);
    let query = listing::list_query(prefix.as_deref(), delimiter.as_deref(), key_marker.as_deref(), limit)?;
    // Without a key marker it has no meaning.
    let within = input.upload_id_marker.as_deref().filter(|marker| query.after.is_some() && !marker.is_empty());
    if within.is_some_and(|marker| marker.contains('\0')) {
        return Err(s3_error!(InvalidArgument, "Invalid uploadId marker"));
    }
    let page = objects.list_uploads(&org, &input.bucket, &query, within).await?;
    let (next_key, next_upload) = next_markers(&page);
    let (is_truncated, owner) = (page.more, listing::owner_of(&org));
    let (found, prefixes) = listing::split_entries(page.entries, encoding);
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: Some(encoding.encode_text(query.prefix)),
        delimiter: query.delimiter.map(|delimiter| encoding.encode_text(delimiter)),
        key_marker: Some(encoding.encode_text(input.key_marker.unwrap_or_default())),
        upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
        max_uploads: Some(limit as i32),
        is_truncated: Some(is_truncated),
        next_key_marker: next_key.map(|key| encoding.encode_text(key)),
        next_upload_id_marker: next_upload,
        uploads: Some(found.into_iter().map(|upload| upload_entry(upload, &owner, encoding)).collect()),
        common_prefixes: Some(prefixes),
        encoding_type: encoding.response_type(),
        request_charged: None,
    }))
}

/// Returns where the next page starts, if there is one.
fn next_markers(page: &Page<Upload>) -> (Option<String>, Option<String>) {
    match page.entries.last().filter(|_| page.more) {
        None => (None, None),
        Some(Entry::Prefix(prefix)) => (Some(prefix.clone()), None),
        Some(Entry::Item(upload)) => (Some(upload.key.clone()), Some(upload.id.to_string())),
    }
}

fn upload_entry(upload: Upload, owner: &Owner, encoding: Encoding) -> MultipartUpload {
    MultipartUpload {
        key: Some(encoding.encode_text(upload.key)),
        upload_id: Some(upload.id.to_string()),
        initiated: Some(times::timestamp(upload.created)),
        initiator: Some(Initiator { id: owner.id.clone(), display_name: owner.display_name.clone() }),
        owner: Some(owner.clone()),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        checksum_algorithm: upload.checksum.map(|(algorithm, _)| checksums::algorithm_name(algorithm)),
        checksum_type: upload.checksum.map(|(_, scope)| checksums::scope_name(scope)),
    }
}
