//! DeleteObjects: many keys in one call, each of which may fail separately.

use futures::StreamExt;
use s3s::dto::{DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, Error, ObjectIdentifier};
use s3s::{S3Error, S3Request, S3Response, S3Result, s3_error};
use tarn_model::ids::OrgId;

use crate::Objects;
use crate::delete::{DeleteCondition, Deleted};
use crate::put::check_key;
use crate::s3::shared::{caller, times, version_ids};

/// The maximum number of keys of a call.
const MAX_KEYS: usize = 1000;

/// The number of concurrent deletions. The store commits concurrent writes together.
const MAX_CONCURRENT: usize = 64;

pub(in crate::s3) async fn delete_objects(
    objects: &Objects,
    request: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let org = caller::organization(&request)?;
    let DeleteObjectsInput { bucket, delete, .. } = request.input;
    if delete.objects.is_empty() || delete.objects.len() > MAX_KEYS {
        return Err(s3_error!(MalformedXML, "A call deletes 1 to {MAX_KEYS} keys."));
    }
    objects.bucket(&org, &bucket).await?;
    let quiet = delete.quiet.unwrap_or(false);
    let (org, bucket) = (&org, bucket.as_str());
    let each = delete.objects.into_iter().map(|wanted| async move {
        let outcome = delete_one(objects, org, bucket, &wanted).await;
        (wanted, outcome)
    });
    let outcomes: Vec<_> = futures::stream::iter(each).buffered(MAX_CONCURRENT).collect().await;
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (wanted, outcome) in outcomes {
        match outcome {
            Ok(_) if quiet => {}
            Ok(done) => deleted.push(deleted_entry(wanted, &done)),
            Err(error) => errors.push(error_entry(wanted, &error)),
        }
    }
    let output = DeleteObjectsOutput { deleted: Some(deleted), errors: Some(errors), ..DeleteObjectsOutput::default() };
    Ok(S3Response::new(output))
}

async fn delete_one(objects: &Objects, org: &OrgId, bucket: &str, wanted: &ObjectIdentifier) -> S3Result<Deleted> {
    check_key(&wanted.key)?;
    let condition = DeleteCondition {
        if_match: wanted.e_tag.as_ref().map(|etag| etag.value().to_owned()),
        size: wanted.size,
        modified_second: wanted.last_modified_time.as_ref().map(|time| times::second(time).unwrap_or(i64::MIN)),
    };
    let selector = version_ids::parse_selector(wanted.version_id.as_deref())?;
    Ok(objects.delete_if(org, bucket, &wanted.key, &selector, condition).await?)
}

fn deleted_entry(wanted: ObjectIdentifier, done: &Deleted) -> DeletedObject {
    DeletedObject {
        delete_marker: done.marker.then_some(true),
        delete_marker_version_id: version_ids::stored_version(&done.version).filter(|_| done.marker),
        key: Some(wanted.key),
        version_id: wanted.version_id,
    }
}

fn error_entry(wanted: ObjectIdentifier, error: &S3Error) -> Error {
    Error {
        code: Some(error.code().as_str().to_owned()),
        key: Some(wanted.key),
        message: error.message().map(str::to_owned),
        version_id: wanted.version_id,
    }
}
