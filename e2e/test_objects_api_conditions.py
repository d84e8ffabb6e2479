"""Ranges and conditional calls."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

from objects import bucket, complete, new_bucket, put, read, refused, s3, storage, upload_parts  # noqa: F401
from objects_wire import Wire

SMALL, LARGE = bytes(range(100)), bytes(range(256)) * 4096
RANGES = {
    "normal": ("bytes=4-7", 4, 8),
    "first byte": ("bytes=0-0", 0, 1),
    "leading": ("bytes=40-", 40, None),
    "trailing": ("bytes=-7", -7, None),
    "beyond the end": ("bytes=90-5000000", 90, None),
    "more than there is": ("bytes=-5000000", 0, None),
}


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("name", RANGES)
def test_ranges_are_served(s3, bucket, content, name):
    """Ranges of an object are served."""
    header, start, end = RANGES[name]
    put(s3, bucket, "key", body=content)
    seen = s3.get_object(Bucket=bucket, Key="key", Range=header)
    wanted = content[start:end]
    first = range(len(content))[start]
    assert seen["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert seen["ContentRange"] == f"bytes {first}-{first + len(wanted) - 1}/{len(content)}"
    assert seen["Body"].read() == wanted
    head = s3.head_object(Bucket=bucket, Key="key", Range=header)
    assert head["ContentLength"] == len(wanted)


@pytest.mark.parametrize("header", ["bytes=100-200", "bytes=100-", "bytes=-0"])
def test_unsatisfiable_ranges_are_refused(s3, bucket, header):
    """Ranges outside the object are refused."""
    put(s3, bucket, "key", body=SMALL)
    with refused(416, "InvalidRange"):
        s3.get_object(Bucket=bucket, Key="key", Range=header)


def test_empty_object_has_no_ranges(s3, bucket):
    """An empty object has no ranges."""
    put(s3, bucket, "key", body=b"")
    with refused(416, "InvalidRange"):
        s3.get_object(Bucket=bucket, Key="key", Range="bytes=0-0")


@pytest.mark.parametrize("header", ["bytes=7-4", "bytes=a-b", "bytes=-", "lines=1-2", "bytes=1-2,4-5", "bytes"])
def test_unusable_ranges_are_ignored(s3, bucket, header):
    """A range that is malformed, of another unit or of several parts is ignored."""
    put(s3, bucket, "key", body=SMALL)
    seen = s3.get_object(Bucket=bucket, Key="key", Range=header)
    assert (seen["ResponseMetadata"]["HTTPStatusCode"], seen["Body"].read()) == (200, SMALL)
    assert s3.head_object(Bucket=bucket, Key="key", Range=header)["ContentLength"] == len(SMALL)


@pytest.fixture
def dated(s3, bucket):
    """The ETag and the time of an object `key`."""
    put(s3, bucket, "key", body=b"content")
    head = s3.head_object(Bucket=bucket, Key="key")
    return head["ETag"], head["LastModified"]


def test_met_conditions_return_object(s3, bucket, dated):
    """Conditions that are met return the object."""
    etag, modified = dated
    hour = timedelta(hours=1)
    for condition in (
        {"IfMatch": etag}, {"IfMatch": "*"}, {"IfMatch": f'"other", {etag}'}, {"IfMatch": etag.strip('"')},
        {"IfNoneMatch": '"other"'}, {"IfModifiedSince": modified - hour}, {"IfUnmodifiedSince": modified + hour},
        {"IfUnmodifiedSince": modified},
        # An entity tag is more exact than a time, so it takes precedence.
        {"IfMatch": etag, "IfUnmodifiedSince": modified - hour},
        {"IfNoneMatch": '"other"', "IfModifiedSince": modified + timedelta(seconds=1)},
    ):  # fmt: skip
        assert read(s3, bucket, "key", **condition) == b"content", condition
        s3.head_object(Bucket=bucket, Key="key", **condition)


def test_failed_conditions_return_412(s3, bucket, dated):
    """Conditions that fail return 412."""
    etag, modified = dated
    hour = timedelta(hours=1)
    for condition in ({"IfMatch": '"other"'}, {"IfUnmodifiedSince": modified - hour}):
        with refused(412, "PreconditionFailed"):
            read(s3, bucket, "key", **condition)
        with refused(412):
            s3.head_object(Bucket=bucket, Key="key", **condition)


def test_unmodified_object_returns_304(storage, s3, bucket, dated):
    """An unmodified object returns 304 with its entity tag and no body."""
    etag, modified = dated
    text = modified.strftime("%a, %d %b %Y %H:%M:%S GMT")
    for header in ({"if-none-match": etag}, {"if-none-match": "*"}, {"if-modified-since": text}):
        for method in ("GET", "HEAD"):
            answer = Wire(storage.account).call(method, f"/{bucket}/key", headers=header)
            assert (answer.status, answer.body, answer.headers["etag"]) == (304, b"", etag), header


def test_condition_applies_to_range(s3, bucket, dated):
    """A condition also applies to a range."""
    etag, _ = dated
    assert read(s3, bucket, "key", IfMatch=etag, Range="bytes=0-2") == b"con"
    with refused(412, "PreconditionFailed"):
        read(s3, bucket, "key", IfMatch='"other"', Range="bytes=0-2")


def test_put_if_none_match_creates_once(s3, bucket):
    """A put with `If-None-Match: *` writes only when there is no object."""
    for content in (b"first", b"x" * 50_000):
        s3.put_object(Bucket=bucket, Key=f"key-{len(content)}", Body=content, IfNoneMatch="*")
        with refused(412, "PreconditionFailed"):
            s3.put_object(Bucket=bucket, Key=f"key-{len(content)}", Body=b"y" * len(content), IfNoneMatch="*")
        assert read(s3, bucket, f"key-{len(content)}") == content
        s3.delete_object(Bucket=bucket, Key=f"key-{len(content)}")
        s3.put_object(Bucket=bucket, Key=f"key-{len(content)}", Body=content, IfNoneMatch="*")


def test_failed_condition_is_named(s3, bucket):
    """The response to a condition that fails names it."""
    put(s3, bucket, "key")
    for condition, name in (({"IfNoneMatch": "*"}, "If-None-Match"), ({"IfMatch": '"other"'}, "If-Match")):
        with refused(412, "PreconditionFailed") as caught:
            s3.put_object(Bucket=bucket, Key="key", Body=b"x", **condition)
        assert caught.value.response["Error"]["Condition"] == name


def test_delete_if_match(s3, bucket):
    """A deletion with `If-Match` deletes only the object with that entity tag."""
    etag = s3.put_object(Bucket=bucket, Key="key", Body=b"x")["ETag"]
    with refused(412, "PreconditionFailed"):
        s3.delete_object(Bucket=bucket, Key="key", IfMatch='"other"')
    wrong = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "key", "ETag": '"other"'}]})
    assert [error["Code"] for error in wrong["Errors"]] == ["PreconditionFailed"]
    assert read(s3, bucket, "key") == b"x"
    s3.delete_object(Bucket=bucket, Key="key", IfMatch=etag)
    s3.put_object(Bucket=bucket, Key="key", Body=b"x")
    right = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "key", "ETag": etag}]})
    assert [deleted["Key"] for deleted in right["Deleted"]] == ["key"]
    s3.delete_object(Bucket=bucket, Key="key", IfMatch=etag)


def test_put_if_match_replaces_known_object(s3, bucket):
    """A put with `If-Match` replaces only the object with that entity tag."""
    etag = s3.put_object(Bucket=bucket, Key="key", Body=b"first")["ETag"]
    with refused(412, "PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="key", Body=b"lost", IfMatch='"other"')
    s3.put_object(Bucket=bucket, Key="key", Body=b"second", IfMatch=etag)
    with refused(412, "PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="key", Body=b"lost", IfMatch=etag)
    assert read(s3, bucket, "key") == b"second"
    with refused(404, "NoSuchKey"):
        s3.put_object(Bucket=bucket, Key="missing", Body=b"lost", IfMatch=etag)


def test_delete_marker_counts_as_no_object(s3, new_bucket):
    """A delete marker counts as no object for `If-None-Match`."""
    bucket = new_bucket(versioned=True)
    s3.put_object(Bucket=bucket, Key="key", Body=b"1", IfNoneMatch="*")
    with refused(412, "PreconditionFailed"):
        s3.put_object(Bucket=bucket, Key="key", Body=b"2", IfNoneMatch="*")
    s3.delete_object(Bucket=bucket, Key="key")
    s3.put_object(Bucket=bucket, Key="key", Body=b"3", IfNoneMatch="*")
    assert read(s3, bucket, "key") == b"3"


def test_complete_with_condition(s3, bucket):
    """Completing a multipart upload can have a condition."""
    put(s3, bucket, "taken")
    upload, parts = upload_parts(s3, bucket, "taken", [b"part"])
    with refused(412, "PreconditionFailed"):
        complete(s3, bucket, "taken", upload, parts, IfNoneMatch="*")
    assert read(s3, bucket, "taken") == b"taken"
    upload, parts = upload_parts(s3, bucket, "free", [b"part"])
    complete(s3, bucket, "free", upload, parts, IfNoneMatch="*")
    assert read(s3, bucket, "free") == b"part"


@pytest.mark.parametrize("size", [10, 30_000])
def test_one_of_parallel_conditional_puts_wins(s3, bucket, size):
    """Of many parallel puts with `If-None-Match` exactly one wins."""
    def write(number: int) -> int:
        try:
            s3.put_object(Bucket=bucket, Key="key", Body=bytes([number]) * size, IfNoneMatch="*")
        except ClientError as error:
            return error.response["ResponseMetadata"]["HTTPStatusCode"]
        return 200

    with ThreadPoolExecutor(8) as writers:
        outcomes = list(writers.map(write, range(8)))
    assert outcomes.count(200) == 1 and set(outcomes) <= {200, 412, 409}, outcomes
    assert read(s3, bucket, "key") == bytes([outcomes.index(200)]) * size
