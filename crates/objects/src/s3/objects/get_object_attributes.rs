//! GetObjectAttributes: the metadata of an object, without its bytes.

use s3s::dto::{
    ETag, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts, ObjectAttributes, ObjectPart,
    StorageClass,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::objects::{Checksum, Object};

use crate::Objects;
use crate::s3::listing;
use crate::s3::multipart::list_parts;
use crate::s3::shared::{caller, checksums, times, version_ids};

pub(in crate::s3) async fn get_object_attributes(
    objects: &Objects,
    request: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let org = caller::organization(&request)?;
    let input = request.input;
    let selector = version_ids::parse_selector(input.version_id.as_deref())?;
    let limit = listing::page_limit(input.max_parts, "x-amz-max-parts")?;
    let after = list_parts::parse_part_marker(input.part_number_marker)?;
    let object = objects.find(&org, &input.bucket, &input.key, &selector).await?;
    let mut output = GetObjectAttributesOutput {
        last_modified: Some(times::timestamp(object.modified)),
        version_id: object.version.as_ref().map(|version| version.to_string()),
        ..Default::default()
    };
    // Some clients send one header per attribute, most send one header with all of them.
    for wanted in input.object_attributes.iter().flat_map(|list| list.as_str().split(',')).map(str::trim) {
        match wanted {
            ObjectAttributes::ETAG => output.e_tag = Some(ETag::Strong(object.etag.clone())),
            ObjectAttributes::CHECKSUM => output.checksum = object.details.checksum.clone().map(checksum_attribute),
            ObjectAttributes::OBJECT_PARTS => {
                output.object_parts = parts_attribute(objects, &object, after, limit).await?
            }
            ObjectAttributes::OBJECT_SIZE => output.object_size = Some(object.size as i64),
            ObjectAttributes::STORAGE_CLASS => {
                output.storage_class = Some(StorageClass::from_static(StorageClass::STANDARD));
            }
            _ => return Err(s3_error!(InvalidArgument, "Invalid attribute name specified.")),
        }
    }
    Ok(S3Response::new(output))
}

fn checksum_attribute(checksum: Checksum) -> s3s::dto::Checksum {
    let Checksum { algorithm, scope, value } = checksum;
    let mut output_part =
        s3s::dto::Checksum { checksum_type: Some(checksums::scope_name(scope)), ..Default::default() };
    checksums::set_checksum!(output_part, algorithm, value);
    output_part
}

/// Returns the parts of a multipart object. Its ETag contains the number of parts.
async fn parts_attribute(
    objects: &Objects,
    object: &Object,
    after: u32,
    limit: u32,
) -> S3Result<Option<GetObjectAttributesParts>> {
    let Some(total) = object.etag.split_once('-').and_then(|(_, count)| count.parse().ok()) else {
        return Ok(None);
    };
    let algorithm = object.details.checksum.as_ref().map(|checksum| checksum.algorithm);
    let mut found = objects.parts_of(object, after, limit + 1).await?;
    let more = limit > 0 && found.len() as u32 > limit;
    found.truncate(limit as usize);
    let last = found.last().map(|part| part.number as i32);
    let output_part = found.into_iter().map(|part| {
        let (number, size) = (Some(part.number as i32), Some(part.size as i64));
        let mut output_part = ObjectPart { part_number: number, size, ..Default::default() };
        if let Some((algorithm, value)) = algorithm.zip(part.checksum) {
            checksums::set_checksum!(output_part, algorithm, value);
        }
        output_part
    });
    Ok(Some(GetObjectAttributesParts {
        is_truncated: Some(more),
        max_parts: Some(limit as i32),
        next_part_number_marker: last,
        part_number_marker: Some(after as i32),
        parts: Some(output_part.collect()),
        total_parts_count: Some(total),
    }))
}
