//! CreateMultipartUpload: sets the metadata of the object; its bytes follow later.

use s3s::dto::{CreateMultipartUploadInput, CreateMultipartUploadOutput};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::objects::{Algorithm, Scope};

use crate::Objects;
use crate::s3::shared::{caller, checksums, headers};

pub(in crate::s3) async fn create_multipart_upload(
    objects: &Objects,
    mut request: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let location = caller::object_location(&request, &request.input.bucket, &request.input.key)?;
    let details = headers::take_object_headers!(request.input).into_details()?;
    let algorithm = request.input.checksum_algorithm.as_ref().map(|algorithm| algorithm.as_str());
    let checksum = parse_checksum(algorithm, request.input.checksum_type.as_ref().map(|scope| scope.as_str()))?;
    let upload = objects.begin_upload(&location, details, checksum).await?;
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(location.bucket),
        key: Some(location.key),
        upload_id: Some(upload.id.to_string()),
        checksum_algorithm: checksum.map(|(algorithm, _)| checksums::algorithm_name(algorithm)),
        checksum_type: checksum.map(|(_, scope)| checksums::scope_name(scope)),
        ..Default::default()
    }))
}

/// Parses the checksum algorithm of the parts and the checksum type of the object. Only CRCs of parts can be combined,
/// and CRC64NVME has no other type.
fn parse_checksum(algorithm: Option<&str>, scope: Option<&str>) -> S3Result<Option<(Algorithm, Scope)>> {
    let algorithm = match (algorithm, scope) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return Err(s3_error!(
                InvalidRequest,
                "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm header."
            ));
        }
        (Some(name), _) => checksums::parse_algorithm(name)?,
    };
    let scope = match scope {
        Some(name) => Scope::from_name(&name.to_ascii_uppercase())
            .ok_or_else(|| s3_error!(InvalidRequest, "Value for x-amz-checksum-type header is invalid."))?,
        None if algorithm == Algorithm::Crc64Nvme => Scope::Full,
        None => Scope::Composite,
    };
    match (algorithm, scope) {
        (Algorithm::Sha1 | Algorithm::Sha256, Scope::Full) | (Algorithm::Crc64Nvme, Scope::Composite) => {
            Err(s3_error!(
                InvalidRequest,
                "The {} checksum type cannot be used with the {} checksum algorithm.",
                scope.name(),
                algorithm.name().to_ascii_lowercase()
            ))
        }
        _ => Ok(Some((algorithm, scope))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not every algorithm supports every checksum type.
    #[test]
    fn checksum_types_are_checked() {
        use Algorithm::{Crc32, Crc64Nvme, Sha256};
        assert_eq!(parse_checksum(None, None).unwrap(), None);
        assert_eq!(parse_checksum(Some("crc32"), None).unwrap(), Some((Crc32, Scope::Composite)));
        assert_eq!(parse_checksum(Some("CRC32"), Some("FULL_OBJECT")).unwrap(), Some((Crc32, Scope::Full)));
        assert_eq!(parse_checksum(Some("CRC64NVME"), None).unwrap(), Some((Crc64Nvme, Scope::Full)));
        assert_eq!(parse_checksum(Some("SHA256"), None).unwrap(), Some((Sha256, Scope::Composite)));
        for (algorithm, scope) in [
            (Some("SHA256"), Some("FULL_OBJECT")),
            (Some("CRC64NVME"), Some("COMPOSITE")),
            (Some("MD4"), None),
            (Some("CRC32"), Some("HALF")),
            (None, Some("COMPOSITE")),
        ] {
            assert_eq!(parse_checksum(algorithm, scope).unwrap_err().code().as_str(), "InvalidRequest");
        }
    }
}
