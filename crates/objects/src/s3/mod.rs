//! The S3 protocol in front of [`Objects`], with the crate s3s: it parses and signs, this adapter decides.
//!
//! A request comes through `front`, which guards s3s, is checked in `gate`, and reaches the file of its operation, named as
//! S3 names it. What an operation needs from others is in `conditions`, `checksums`, `errors` and `headers`. What S3 has
//! and is not listed here answers NotImplemented.

mod caller;
mod checksums;
mod chunks;
mod conditions;
mod descriptions;
mod encoding;
mod errors;
mod front;
mod gate;
mod headers;
mod hosts;
mod intake;
mod leftovers;
mod listing;
mod service;
mod signing;
mod slices;
mod tags;
mod times;
mod turns;
mod versions;

use async_trait::async_trait;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};

pub use front::Service;
pub use service::service;

use crate::Objects;

/// The region. Clients may sign for any other.
const REGION: &str = "global";

/// What answers S3's operations.
struct Adapter {
    objects: Objects,
}

/// Each operation is a function in a file of its own; this says which.
macro_rules! operations {
    ($($name:ident: $input:ty => $output:ty;)*) => {
        $(mod $name;)*

        #[async_trait]
        impl S3 for Adapter {
            $(async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                $name::answer(&self.objects, request).await
            })*
        }
    };
}

operations! {
    abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput;
    complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput;
    copy_object: CopyObjectInput => CopyObjectOutput;
    create_bucket: CreateBucketInput => CreateBucketOutput;
    create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput;
    delete_bucket: DeleteBucketInput => DeleteBucketOutput;
    delete_object: DeleteObjectInput => DeleteObjectOutput;
    delete_object_tagging: DeleteObjectTaggingInput => DeleteObjectTaggingOutput;
    delete_objects: DeleteObjectsInput => DeleteObjectsOutput;
    get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput;
    get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput;
    get_object: GetObjectInput => GetObjectOutput;
    get_object_attributes: GetObjectAttributesInput => GetObjectAttributesOutput;
    get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput;
    head_bucket: HeadBucketInput => HeadBucketOutput;
    head_object: HeadObjectInput => HeadObjectOutput;
    list_buckets: ListBucketsInput => ListBucketsOutput;
    list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput;
    list_object_versions: ListObjectVersionsInput => ListObjectVersionsOutput;
    list_objects: ListObjectsInput => ListObjectsOutput;
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output;
    list_parts: ListPartsInput => ListPartsOutput;
    post_object: PostObjectInput => PostObjectOutput;
    put_bucket_versioning: PutBucketVersioningInput => PutBucketVersioningOutput;
    put_object: PutObjectInput => PutObjectOutput;
    put_object_tagging: PutObjectTaggingInput => PutObjectTaggingOutput;
    upload_part: UploadPartInput => UploadPartOutput;
    upload_part_copy: UploadPartCopyInput => UploadPartCopyOutput;
}
