"""Object storage: S3 requests, memory and listings, beside s3s-fs and SeaweedFS. None of these two writes through to the disk."""
