//! Completing an upload: its parts become an object, without being read or moved.

use std::collections::HashMap;

use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use tarn_model::ids::FileId;
use tarn_model::objects::{
    Algorithm, Body, Checksum, MAX_OBJECT_BYTES, MAX_PARTS, MIN_PART_BYTES, Part, Scope, Upload,
};
use tarn_store::{Tx, objects, parts, uploads};

use crate::put::{Condition, NewObject, ObjectLocation, Stored, StoredVersion, charge_account, replace_object};
use crate::{Error, Objects, Result, buckets};

/// A part that the client lists for the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenPart {
    pub number: u32,
    /// The expected ETag, without quotes.
    pub etag: String,
    /// The expected checksum, in base64.
    pub checksum: Option<String>,
}

/// The properties of the object that the client expects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The expected checksum, in base64.
    pub checksum: Option<String>,
    /// The expected size.
    pub size: Option<u64>,
}

/// The stored object and its checksum.
pub type Completed = (Stored, Option<Checksum>);

impl Objects {
    /// Turns the chosen parts into an object. The other parts are removed.
    pub async fn complete_upload(
        &self,
        location: &ObjectLocation,
        upload: &str,
        chosen: Vec<ChosenPart>,
        expected: Expected,
        condition: Condition,
    ) -> Result<Completed> {
        if !chosen.is_sorted_by(|one, next| one.number < next.number) {
            return Err(Error::InvalidPartOrder);
        }
        let (location, id) = (location.clone(), upload.to_owned());
        let complete = move |tx: &mut Tx<'_>| match crate::uploads::find_upload(tx, &location, &id) {
            Ok(upload) => complete_in_transaction(tx, &location, upload, &chosen, &expected, &condition),
            Err(Error::NoSuchUpload) => Ok((find_completed(tx, &location, &id, &chosen)?, Vec::new())),
            Err(error) => Err(error),
        };
        self.write_and_remove(complete).await
    }
}

fn complete_in_transaction(
    tx: &mut Tx<'_>,
    location: &ObjectLocation,
    upload: Upload,
    chosen: &[ChosenPart],
    expected: &Expected,
    condition: &Condition,
) -> Result<(Completed, Vec<FileId>)> {
    let bucket = buckets::find(tx, &location.org, &location.bucket)?;
    let mut stored_parts: HashMap<u32, Part> =
        parts::list(tx, &upload.id, 0, MAX_PARTS)?.into_iter().map(|part| (part.number, part)).collect();
    let used = take_chosen_parts(&mut stored_parts, chosen)?;
    let size = used.iter().map(|part| part.size).sum();
    if size > MAX_OBJECT_BYTES {
        return Err(Error::TooLarge(MAX_OBJECT_BYTES));
    }
    let checksum = upload.checksum.and_then(|(algorithm, scope)| whole_checksum(&used, algorithm, scope));
    let wrong_sum = expected.checksum.is_some() && expected.checksum != checksum.as_ref().map(|sum| sum.value.clone());
    if wrong_sum || expected.size.is_some_and(|expected| expected != size) {
        return Err(Error::BadChecksum);
    }
    let unused: u64 = stored_parts.values().map(|part| part.size).sum();
    let mut files: Vec<FileId> = stored_parts.into_values().map(|part| part.file).collect();
    if !files.is_empty() {
        parts::remove_others(tx, &upload.id, &used.iter().map(|part| part.number).collect::<Vec<u32>>())?;
    }
    uploads::remove(tx, &upload.id)?;
    let mut details = upload.details;
    details.checksum = checksum.clone();
    let etag = multipart_etag(used.iter().map(|part| part.etag.as_str()));
    let object = NewObject { size, etag, details, body: Body::Parts(upload.id), parts: Vec::new() };
    let stored = replace_object(tx, &bucket, &location.key, object, condition, &mut files)?;
    // The account was charged for the parts when they were received.
    charge_account(tx, &bucket.org, -(unused as i64), 1, None)?;
    Ok(((stored, checksum), files))
}

/// A client that lost the response asks again. Returns what the upload became, as long as that object is current.
fn find_completed(tx: &mut Tx<'_>, location: &ObjectLocation, id: &str, chosen: &[ChosenPart]) -> Result<Completed> {
    let bucket = buckets::find(tx, &location.org, &location.bucket)?;
    let object = objects::get(tx, &bucket.id, &location.key)?.ok_or(Error::NoSuchUpload)?;
    let etag = multipart_etag(chosen.iter().map(|part| part.etag.as_str()));
    match &object.body {
        Body::Parts(content) if content.as_str() == id && object.etag == etag => {
            let version = StoredVersion::in_bucket(&bucket, object.version);
            let stored = Stored { version, etag, modified: object.modified, size: object.size };
            Ok((stored, object.details.checksum))
        }
        _ => Err(Error::NoSuchUpload),
    }
}

/// Removes the chosen parts from the map and checks them.
fn take_chosen_parts(stored_parts: &mut HashMap<u32, Part>, chosen: &[ChosenPart]) -> Result<Vec<Part>> {
    let mut used = Vec::with_capacity(chosen.len());
    for ChosenPart { number, etag, checksum } in chosen {
        let part = stored_parts.remove(number).filter(|part| part.etag == *etag).ok_or(Error::InvalidPart(*number))?;
        if checksum.is_some() && *checksum != part.checksum {
            return Err(Error::InvalidPart(*number));
        }
        used.push(part);
    }
    match used.split_last() {
        None => Err(Error::InvalidPart(1)),
        Some((_, others)) => match others.iter().find(|part| part.size < MIN_PART_BYTES) {
            Some(small) => Err(Error::PartTooSmall { number: small.number, size: small.size }),
            None => Ok(used),
        },
    }
}

/// The ETag of a multipart object: the MD5 of the MD5s, and the number of parts.
fn multipart_etag<'a>(etags: impl ExactSizeIterator<Item = &'a str>) -> String {
    let (mut md5, count) = (Md5::new(), etags.len());
    for etag in etags {
        md5.update(&hex::decode(etag).unwrap_or_default());
    }
    format!("{}-{count}", hex::encode(md5.finalize()))
}

/// Returns the checksum of the object, computed from those of the parts; `None` when a part has none.
fn whole_checksum(parts: &[Part], algorithm: Algorithm, scope: Scope) -> Option<Checksum> {
    let decoded = parts.iter().map(|part| {
        let bytes = base64_simd::STANDARD.decode_to_vec(part.checksum.as_deref()?).ok()?;
        Some((bytes, part.size))
    });
    let sums: Vec<(Vec<u8>, u64)> = decoded.collect::<Option<_>>()?;
    let value = match scope {
        Scope::Composite => {
            let joined: Vec<u8> = sums.iter().flat_map(|(sum, _)| sum.clone()).collect();
            format!("{}-{}", base64_simd::STANDARD.encode_to_string(digest(algorithm, &joined)), parts.len())
        }
        Scope::Full => base64_simd::STANDARD.encode_to_string(combine_crcs(&sums, algorithm)?),
    };
    Some(Checksum { algorithm, scope, value })
}

fn digest(algorithm: Algorithm, data: &[u8]) -> Vec<u8> {
    match algorithm {
        Algorithm::Crc32 => Crc32::checksum(data).to_vec(),
        Algorithm::Crc32c => Crc32c::checksum(data).to_vec(),
        Algorithm::Crc64Nvme => Crc64Nvme::checksum(data).to_vec(),
        Algorithm::Sha1 => Sha1::checksum(data).as_ref().to_vec(),
        Algorithm::Sha256 => Sha256::checksum(data).as_ref().to_vec(),
    }
}

/// Computes the CRC of joined pieces from the CRCs of the pieces. This is impossible for hashes.
fn combine_crcs(sums: &[(Vec<u8>, u64)], algorithm: Algorithm) -> Option<Vec<u8>> {
    let (crc, width) = match algorithm {
        Algorithm::Crc32 => (crc_fast::CrcAlgorithm::Crc32IsoHdlc, 4),
        Algorithm::Crc32c => (crc_fast::CrcAlgorithm::Crc32Iscsi, 4),
        Algorithm::Crc64Nvme => (crc_fast::CrcAlgorithm::Crc64Nvme, 8),
        Algorithm::Sha1 | Algorithm::Sha256 => return None,
    };
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let joined = sums
        .iter()
        .map(|(sum, size)| (number(sum), *size))
        .reduce(|(left, length), (right, more)| (crc_fast::checksum_combine(crc, left, right, more), length + more))?;
    Some(joined.0.to_be_bytes()[8 - width..].to_vec())
}
