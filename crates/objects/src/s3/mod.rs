//! The S3 protocol in front of [`Objects`]. The crate s3s parses requests and checks signatures; this adapter
//! implements the operations.
//!
//! A call passes `ingress`, which guards s3s and finds the calling organization, and reaches the function with the S3
//! name of its operation. The operations are in `buckets`, `settings`, `objects`, `listing`, `multipart` and `tagging`;
//! what they share is in `shared`. S3 operations that are not listed here respond with NotImplemented.

mod buckets;
mod ingress;
mod listing;
mod multipart;
mod objects;
mod service;
mod settings;
mod shared;
mod tagging;

use async_trait::async_trait;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};

pub use ingress::front::{ClientAddress, OnRefusal, Service};
pub use service::service;

use crate::Objects;
use settings::{bucket_cors, bucket_lifecycle, bucket_tagging};
use shared::caller;

/// The region of every bucket. Clients may sign for any other.
const REGION: &str = "global";

/// Implements the S3 operations on [`Objects`].
struct Adapter {
    objects: Objects,
}

/// Implements [`S3`]: each operation calls the function of its name, in the module named here or in its file there,
/// with a handle for its caller.
macro_rules! operations {
    (
        modules { $($module:ident { $($small:ident: $in:ty => $out:ty;)* })* }
        files { $($folder:ident { $($name:ident: $input:ty => $output:ty;)* })* }
    ) => {
        #[async_trait]
        impl S3 for Adapter {
            $($(async fn $small(&self, request: S3Request<$in>) -> S3Result<S3Response<$out>> {
                $module::$small(&caller::handle(&self.objects, &request)?, request).await
            })*)*
            $($(async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                $folder::$name::$name(&caller::handle(&self.objects, &request)?, request).await
            })*)*
        }
    };
}

operations! {
    modules {
        buckets {
            create_bucket: CreateBucketInput => CreateBucketOutput;
            delete_bucket: DeleteBucketInput => DeleteBucketOutput;
            get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput;
            get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput;
            head_bucket: HeadBucketInput => HeadBucketOutput;
            list_buckets: ListBucketsInput => ListBucketsOutput;
            put_bucket_versioning: PutBucketVersioningInput => PutBucketVersioningOutput;
        }
        bucket_cors {
            delete_bucket_cors: DeleteBucketCorsInput => DeleteBucketCorsOutput;
            get_bucket_cors: GetBucketCorsInput => GetBucketCorsOutput;
            put_bucket_cors: PutBucketCorsInput => PutBucketCorsOutput;
        }
        bucket_lifecycle {
            delete_bucket_lifecycle: DeleteBucketLifecycleInput => DeleteBucketLifecycleOutput;
            get_bucket_lifecycle_configuration: GetBucketLifecycleConfigurationInput => GetBucketLifecycleConfigurationOutput;
            put_bucket_lifecycle_configuration: PutBucketLifecycleConfigurationInput => PutBucketLifecycleConfigurationOutput;
        }
        bucket_tagging {
            delete_bucket_tagging: DeleteBucketTaggingInput => DeleteBucketTaggingOutput;
            get_bucket_tagging: GetBucketTaggingInput => GetBucketTaggingOutput;
            put_bucket_tagging: PutBucketTaggingInput => PutBucketTaggingOutput;
        }
        tagging {
            delete_object_tagging: DeleteObjectTaggingInput => DeleteObjectTaggingOutput;
            get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput;
            put_object_tagging: PutObjectTaggingInput => PutObjectTaggingOutput;
        }
    }
    files {
        objects {
            copy_object: CopyObjectInput => CopyObjectOutput;
            delete_object: DeleteObjectInput => DeleteObjectOutput;
            delete_objects: DeleteObjectsInput => DeleteObjectsOutput;
            get_object: GetObjectInput => GetObjectOutput;
            get_object_attributes: GetObjectAttributesInput => GetObjectAttributesOutput;
            head_object: HeadObjectInput => HeadObjectOutput;
            post_object: PostObjectInput => PostObjectOutput;
            put_object: PutObjectInput => PutObjectOutput;
        }
        listing {
            list_object_versions: ListObjectVersionsInput => ListObjectVersionsOutput;
            list_objects: ListObjectsInput => ListObjectsOutput;
            list_objects_v2: ListObjectsV2Input => ListObjectsV2Output;
        }
        multipart {
            abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput;
            complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput;
            create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput;
            list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput;
            list_parts: ListPartsInput => ListPartsOutput;
            upload_part: UploadPartInput => UploadPartOutput;
            upload_part_copy: UploadPartCopyInput => UploadPartCopyOutput;
        }
    }
}
