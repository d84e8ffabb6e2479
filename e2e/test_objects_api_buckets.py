"""Buckets over S3: their names, their life cycle, and unsupported operations."""

import pytest

from objects import bucket, new_bucket, put, read, refused, s3, storage  # noqa: F401
from objects_wire import Wire

GOOD_NAMES = ["abc", "1-2", "a.b.c", "with-dashes-and.dots", "a" * 63]
BAD_NAMES = [
    "ab", "a" * 64, "Upper", "under_score", "-first", "last-", ".first", "last.", "two..dots", "192.168.5.4",
    "b%20lank", "foo.-bar", "foo-.bar", "%C3%BCber", "ex%21clamation", "xn--other", "other-s3alias",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_valid_bucket_names_work(s3, name):
    """Buckets with valid names can be created, used and deleted."""
    s3.create_bucket(Bucket=name)
    try:
        assert name in [each["Name"] for each in s3.list_buckets()["Buckets"]]
        put(s3, name, "key")
        assert read(s3, name, "key") == b"key"
        s3.delete_object(Bucket=name, Key="key")
    finally:
        s3.delete_bucket(Bucket=name)
    assert name not in [each["Name"] for each in s3.list_buckets()["Buckets"]]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_invalid_bucket_names_are_refused(storage, name):
    """Invalid bucket names are refused."""
    # boto3 would refuse to send some of these.
    assert Wire(storage.account).call("PUT", f"/{name}").outcome == (400, "InvalidBucketName")


def test_bucket_list_is_sorted_and_dated(s3, new_bucket):
    """The list of buckets is sorted, with dates and the owner."""
    names = sorted(new_bucket() for _ in range(3))
    listed = s3.list_buckets()
    seen = [each["Name"] for each in listed["Buckets"]]
    assert seen == sorted(seen) and set(names) <= set(seen)
    assert all(each["CreationDate"].tzinfo for each in listed["Buckets"])
    assert listed["Owner"]["ID"]


def test_missing_bucket_is_refused(s3):
    """Every operation on a missing bucket is refused."""
    missing = "bucket-that-nobody-made"
    with refused(404):
        s3.head_bucket(Bucket=missing)
    for operation in (s3.list_objects, s3.list_objects_v2, s3.list_object_versions, s3.list_multipart_uploads):
        with refused(404, "NoSuchBucket"):
            operation(Bucket=missing)
    for operation in (s3.delete_bucket, s3.get_bucket_location, s3.get_bucket_versioning):
        with refused(404, "NoSuchBucket"):
            operation(Bucket=missing)
    for operation in (s3.get_object, s3.delete_object, s3.put_object, s3.create_multipart_upload):
        with refused(404, "NoSuchBucket"):
            operation(Bucket=missing, Key="key")
    with refused(404, "NoSuchBucket"):
        s3.delete_objects(Bucket=missing, Delete={"Objects": [{"Key": "key"}]})


def test_delete_needs_empty_bucket(s3, new_bucket):
    """A bucket can only be deleted when it is empty."""
    bucket = new_bucket()
    put(s3, bucket, "key")
    with refused(409, "BucketNotEmpty"):
        s3.delete_bucket(Bucket=bucket)
    assert read(s3, bucket, "key") == b"key"
    s3.delete_object(Bucket=bucket, Key="key")
    s3.delete_bucket(Bucket=bucket)
    with refused(404, "NoSuchBucket"):
        s3.delete_bucket(Bucket=bucket)
    with refused(404):
        s3.head_bucket(Bucket=bucket)


def test_bucket_with_old_versions_is_not_empty(s3, new_bucket):
    """A bucket that has only old versions is not empty."""
    bucket = new_bucket(versioned=True)
    put(s3, bucket, "key")
    s3.delete_object(Bucket=bucket, Key="key")
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
    with refused(409, "BucketNotEmpty"):
        s3.delete_bucket(Bucket=bucket)


def test_second_create_keeps_contents(s3, bucket):
    """A second create is refused and keeps the contents."""
    put(s3, bucket, "key")
    with refused(409, "BucketAlreadyOwnedByYou"):
        s3.create_bucket(Bucket=bucket)
    assert read(s3, bucket, "key") == b"key"


def test_bucket_name_is_reusable(s3, new_bucket):
    """The name of a deleted bucket can be used again."""
    bucket = new_bucket()
    put(s3, bucket, "old")
    s3.delete_object(Bucket=bucket, Key="old")
    s3.delete_bucket(Bucket=bucket)
    s3.create_bucket(Bucket=bucket)
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_head_bucket_and_location(s3, bucket):
    """HEAD and the location of a bucket are served."""
    assert s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 200
    assert "LocationConstraint" in s3.get_bucket_location(Bucket=bucket)


@pytest.mark.parametrize("region", ["global", "eu-central-1"])
def test_any_region_is_accepted(s3, new_bucket, region):
    """Any region is accepted as the location constraint."""
    name = new_bucket()
    s3.delete_bucket(Bucket=name)
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": region})
    s3.head_bucket(Bucket=name)


def test_malformed_create_body_is_refused(storage):
    """A malformed body of a create is refused."""
    for body in (b"<CreateBucketConfiguration><Location", b"not XML at all", b"<Other/>"):
        answer = Wire(storage.account).call("PUT", "/bucket-by-bad-xml", body=body)
        assert answer.outcome == (400, "MalformedXML"), body


NOT_DONE = {
    "put_bucket_website": {"WebsiteConfiguration": {"IndexDocument": {"Suffix": "index.html"}}},
    "put_bucket_replication": {
        "ReplicationConfiguration": {
            "Role": "arn:aws:iam::1:role/r",
            "Rules": [{"Status": "Enabled", "Destination": {"Bucket": "arn:aws:s3:::other"}}],
        }
    },
    "put_bucket_notification_configuration": {"NotificationConfiguration": {}},
    "put_bucket_logging": {"BucketLoggingStatus": {}},
    "put_bucket_accelerate_configuration": {"AccelerateConfiguration": {"Status": "Enabled"}},
    "put_bucket_request_payment": {"RequestPaymentConfiguration": {"Payer": "Requester"}},
    "put_bucket_encryption": {
        "ServerSideEncryptionConfiguration": {
            "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
        }
    },
    "get_bucket_website": {},
    "get_bucket_replication": {},
}


@pytest.mark.parametrize("operation", NOT_DONE)
def test_unsupported_bucket_operations_return_501(s3, bucket, operation):
    """Unsupported bucket operations return 501."""
    with refused(501, "NotImplemented"):
        getattr(s3, operation)(Bucket=bucket, **NOT_DONE[operation])


def test_unsupported_object_operations_return_501(s3, bucket):
    """Unsupported object operations return 501."""
    put(s3, bucket, "key")
    with refused(501, "NotImplemented"):
        s3.get_object_torrent(Bucket=bucket, Key="key")
    with refused(501, "NotImplemented"):
        s3.restore_object(Bucket=bucket, Key="key", RestoreRequest={"Days": 1})
    with refused(501, "NotImplemented"):
        s3.put_object_legal_hold(Bucket=bucket, Key="key", LegalHold={"Status": "ON"})


def test_unexpected_methods_are_refused(storage, bucket):
    """Methods that a path does not have are refused."""
    wire = Wire(storage.account)
    for method, path in (("PATCH", f"/{bucket}/key"), ("DELETE", "/"), ("PUT", "/")):
        answer = wire.call(method, path)
        assert answer.status in (400, 405, 501) and answer.code, answer
