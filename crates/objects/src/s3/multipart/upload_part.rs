//! UploadPart.

use s3s::dto::{ETag, UploadPartInput, UploadPartOutput};
use s3s::{S3Request, S3Response, S3Result};
use tarn_model::objects::{MAX_PARTS, Upload};

use crate::s3::shared::checksums::{self, Asked};
use crate::s3::shared::{body, caller};
use crate::{Error, Objects};

pub(in crate::s3) async fn upload_part(
    objects: &Objects,
    request: S3Request<UploadPartInput>,
) -> S3Result<S3Response<UploadPartOutput>> {
    let place = caller::place(&request, &request.input.bucket, &request.input.key)?;
    let number = number(request.input.part_number)?;
    let mut asked = checksums::asked(&request)?;
    let md5 = body::announced_md5(&request)?;
    let input = request.input;
    let declared = body::declared(input.content_length)?;
    let upload = objects.upload(&place, &input.upload_id).await?;
    asked.agree(&upload)?;
    let taking = objects.intake_part(&place, &upload, number, declared, asked.sums()).await?;
    let received = body::receive(taking, input.body, declared, md5).await?;
    let checksum = asked.verify(&received)?;
    // The part of an upload without a checksum has been verified, and nobody will ask for its own.
    let kept = checksum.clone().filter(|_| upload.checksum.is_some());
    let part = objects.put_part(&place, &input.upload_id, number, received, kept).await?;
    let mut output = UploadPartOutput { e_tag: Some(ETag::Strong(part.etag)), ..Default::default() };
    if let Some((algorithm, value)) = asked.algorithm.zip(checksum) {
        checksums::tell!(output, algorithm, value);
    }
    Ok(S3Response::new(output))
}

/// The number of a part.
pub(in crate::s3) fn number(number: i32) -> S3Result<u32> {
    let number = u32::try_from(number).ok().filter(|number| (1..=MAX_PARTS).contains(number));
    Ok(number.ok_or(Error::BadPartNumber)?)
}

impl Asked {
    /// A part has the checksum that its upload was begun with, also when the call does not ask for it.
    fn agree(&mut self, upload: &Upload) -> S3Result<()> {
        let Some((wanted, _)) = upload.checksum else {
            return Ok(());
        };
        match self.algorithm.replace(wanted) {
            Some(other) if other != wanted => Err(checksums::mismatch(wanted, other)),
            _ => Ok(()),
        }
    }
}
