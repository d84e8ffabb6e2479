//! CompleteMultipartUpload: the parts become an object.
//!
//! A client that lost the response may ask again: while the object is still the one that this upload became, the same
//! response is returned.

use s3s::dto::{CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart, CompletedPartList, ETag};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::objects::{Algorithm, Checksum, MAX_PARTS, Scope, Upload};

use crate::complete::{ChosenPart, Expected};
use crate::put::ObjectLocation;
use crate::s3::shared::{caller, checksums, conditions, version_ids};
use crate::{Error, Objects};

pub(in crate::s3) async fn complete_multipart_upload(
    objects: &Objects,
    request: S3Request<CompleteMultipartUploadInput>,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    let location = caller::object_location(&request, &request.input.bucket, &request.input.key)?;
    let mut input = request.input;
    let condition = conditions::put_condition(input.if_match.as_ref(), input.if_none_match.as_ref())?;
    let listed = input.multipart_upload.take().and_then(|list| list.parts).unwrap_or_default();
    if listed.is_empty() || listed.len() > MAX_PARTS as usize {
        return Err(s3_error!(MalformedXML, "Specify from 1 to {MAX_PARTS} parts."));
    }
    let upload = match objects.upload(&location, &input.upload_id).await {
        Ok(upload) => Some(upload),
        // The upload may be complete already. The same response is returned if the parts are the same; nothing else is
        // known about the upload.
        Err(Error::NoSuchUpload) => None,
        Err(error) => return Err(error.into()),
    };
    let expected = upload.as_ref().map(|upload| expected_whole(&input, upload, listed.len())).transpose()?;
    let expected = expected.unwrap_or_default();
    let only_size_expected = expected.size.is_some() && expected.checksum.is_none();
    let chosen = chosen_parts(listed, upload.and_then(|upload| upload.checksum))?;
    let done = objects.complete_upload(&location, &input.upload_id, chosen, expected, condition).await;
    let (stored, checksum) = done.map_err(|error| match error {
        Error::BadChecksum if only_size_expected => s3_error!(
            InvalidRequest,
            "The provided 'x-amz-mp-object-size' header does not match the size of the parts that were received."
        ),
        other => other.into(),
    })?;
    Ok(complete_output(location, stored.etag, version_ids::stored_version(&stored.version), checksum))
}

fn complete_output(
    location: ObjectLocation,
    etag: String,
    version_id: Option<String>,
    checksum: Option<Checksum>,
) -> S3Response<CompleteMultipartUploadOutput> {
    let mut output = CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", location.bucket, location.key)),
        bucket: Some(location.bucket),
        key: Some(location.key),
        e_tag: Some(ETag::Strong(etag)),
        version_id,
        ..Default::default()
    };
    if let Some(Checksum { algorithm, scope, value }) = checksum {
        checksums::set_checksum!(output, algorithm, value);
        output.checksum_type = Some(checksums::scope_name(scope));
    }
    S3Response::new(output)
}

/// Returns the properties of the object that the client expects.
fn expected_whole(input: &CompleteMultipartUploadInput, upload: &Upload, parts: usize) -> S3Result<Expected> {
    let size = input.mpu_object_size.map(u64::try_from).transpose();
    let size = size.map_err(|_| s3_error!(InvalidArgument, "Value for x-amz-mp-object-size header is invalid."))?;
    if let (Some(requested), Some((_, scope))) = (&input.checksum_type, upload.checksum)
        && requested.as_str() != scope.name()
    {
        return Err(s3_error!(
            InvalidRequest,
            "The upload was created using the {} checksum mode. The complete request must use the same checksum mode.",
            scope.name()
        ));
    }
    let checksum = match (checksums::given_checksum!(input)?, upload.checksum) {
        (None, _) => None,
        (Some(_), None) => {
            return Err(s3_error!(
                InvalidRequest,
                "The upload was created without a checksum algorithm. Name one when you start the upload."
            ));
        }
        (Some((given, _)), Some((wanted, _))) if given != wanted => {
            return Err(checksums::algorithm_mismatch(wanted, given));
        }
        // The client may leave out the number of parts at the end.
        (Some((_, value)), Some((_, Scope::Composite))) if !value.contains('-') => Some(format!("{value}-{parts}")),
        (Some((_, value)), Some(_)) => Some(value),
    };
    Ok(Expected { checksum, size })
}

fn chosen_parts(listed: CompletedPartList, checksum: Option<(Algorithm, Scope)>) -> S3Result<Vec<ChosenPart>> {
    listed.into_iter().map(|part| chosen_part(part, checksum)).collect()
}

fn chosen_part(part: CompletedPart, checksum: Option<(Algorithm, Scope)>) -> S3Result<ChosenPart> {
    let given = checksums::given_checksum!(part)?;
    let (Some(number), Some(etag)) = (part.part_number, part.e_tag) else {
        return Err(s3_error!(MalformedXML, "Each part has a PartNumber and an ETag."));
    };
    let number = crate::s3::multipart::upload_part::part_number(number)?;
    let checksum = match (given, checksum) {
        (Some((given, _)), Some((wanted, _))) if given != wanted => {
            return Err(checksums::algorithm_mismatch(wanted, given));
        }
        (Some((_, value)), Some(_)) => Some(value),
        (None, Some((algorithm, Scope::Composite))) => {
            return Err(s3_error!(
                InvalidRequest,
                "The upload was created using a {} checksum. The complete request must include the checksum for each \
                 part. It was missing for part {number} in the request.",
                algorithm.name().to_ascii_lowercase()
            ));
        }
        // The checksums of an upload without an algorithm were verified when the parts were received, and are not
        // stored.
        (None, Some((_, Scope::Full))) | (_, None) => None,
    };
    Ok(ChosenPart { number, etag: etag.into_value(), checksum })
}
