//! UploadPart.

use s3s::dto::{ETag, UploadPartInput, UploadPartOutput};
use s3s::{S3Request, S3Response, S3Result};
use tarn_model::objects::{MAX_PARTS, Upload};

use crate::s3::shared::checksums::{self, RequestedChecksum};
use crate::s3::shared::{body, caller};
use crate::{Error, Objects};

pub(in crate::s3) async fn upload_part(
    objects: &Objects,
    request: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let location = caller::object_location(&request, &request.input.bucket, &request.input.key)?;
    let number = part_number(request.input.part_number)?;
    let mut requested = checksums::requested_checksum(&request)?;
    let md5 = body::announced_md5(&request)?;
    let input = request.input;
    let declared = body::declared_length(input.content_length)?;
    let upload = objects.upload(&location, &input.upload_id).await?;
    requested.require_upload_algorithm(&upload)?;
    let intake = objects.intake_part(&location, &upload, number, declared, requested.sums()).await?;
    let received = body::receive_body(intake, input.body, declared, md5).await?;
    let checksum = requested.verify(&received)?;
    // Without an algorithm of the upload, the checksum of the part has been verified and is not needed any more.
    let stored_checksum = checksum.clone().filter(|_| upload.checksum.is_some());
    let part = objects.put_part(&location, &input.upload_id, number, received, stored_checksum).await?;
    let mut output = UploadPartOutput { e_tag: Some(ETag::Strong(part.etag)), ..Default::default() };
    if let Some((algorithm, value)) = requested.algorithm.zip(checksum) {
        checksums::set_checksum!(output, algorithm, value);
    }
    Ok(S3Response::new(output))
}

/// Checks the number of a part.
pub(in crate::s3) fn part_number(number: i32) -> S3Result<u32> {
    let number = u32::try_from(number).ok().filter(|number| (1..=MAX_PARTS).contains(number));
    Ok(number.ok_or(Error::BadPartNumber)?)
}

impl RequestedChecksum {
    /// Requires the algorithm of the upload, even when the call does not request it.
    fn require_upload_algorithm(&mut self, upload: &Upload) -> S3Result<()> {
        let Some((wanted, _)) = upload.checksum else {
            return Ok(());
        };
        match self.algorithm.replace(wanted) {
            Some(other) if other != wanted => Err(checksums::algorithm_mismatch(wanted, other)),
            _ => Ok(()),
        }
    }
}
