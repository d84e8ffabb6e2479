"""Object storage: S3 calls, memory and listings, beside s3s-fs and SeaweedFS. Neither of these two syncs to the
disk."""
