//! ListParts.

use s3s::dto::{ETag, Initiator, ListPartsInput, ListPartsOutput, StorageClass};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::objects::{Algorithm, Part};

use crate::Objects;
use crate::s3::listing;
use crate::s3::shared::{caller, checksums, times};

pub(in crate::s3) async fn list_parts(
    objects: &Objects,
    request: S3Request<ListPartsInput>,
) -> S3Result<S3Response<ListPartsOutput>> {
    let location = caller::object_location(&request, &request.input.bucket, &request.input.key)?;
    let input = request.input;
    let limit = listing::page_limit(input.max_parts, "max-parts")?;
    let after = parse_part_marker(input.part_number_marker)?;
    // One part more than the limit shows whether there are more.
    let (upload, mut parts) = objects.parts(&location, &input.upload_id, after, limit + 1).await?;
    let more = limit > 0 && parts.len() as u32 > limit;
    parts.truncate(limit as usize);
    let algorithm = upload.checksum.map(|(algorithm, _)| algorithm);
    let owner = listing::owner_of(&location.org);
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(location.bucket),
        key: Some(location.key),
        upload_id: Some(input.upload_id),
        initiator: Some(Initiator { id: owner.id.clone(), display_name: owner.display_name.clone() }),
        owner: Some(owner),
        storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
        part_number_marker: Some(after as i32),
        next_part_number_marker: parts.last().map(|part| part.number as i32),
        max_parts: Some(limit as i32),
        is_truncated: Some(more),
        checksum_algorithm: algorithm.map(checksums::algorithm_name),
        checksum_type: upload.checksum.map(|(_, scope)| checksums::scope_name(scope)),
        parts: Some(parts.into_iter().map(|part| part_entry(part, algorithm)).collect()),
        ..Default::default()
    }))
}

/// Parses the number of the part after which the list starts.
pub(in crate::s3) fn parse_part_marker(requested: Option<i32>) -> S3Result<u32> {
    u32::try_from(requested.unwrap_or(0)).map_err(|_| {
        s3_error!(InvalidArgument, "Argument part-number-marker must be an integer between 0 and {}", i32::MAX)
    })
}

fn part_entry(part: Part, algorithm: Option<Algorithm>) -> s3s::dto::Part {
    let mut entry = s3s::dto::Part {
        part_number: Some(part.number as i32),
        size: Some(part.size as i64),
        e_tag: Some(ETag::Strong(part.etag)),
        last_modified: Some(times::timestamp(part.modified)),
        ..Default::default()
    };
    if let Some((algorithm, value)) = algorithm.zip(part.checksum) {
        checksums::set_checksum!(entry, algorithm, value);
    }
    entry
}
