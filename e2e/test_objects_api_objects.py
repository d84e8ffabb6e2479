"""Single objects: writing, reading, headers, and keys."""

import hashlib
from datetime import UTC, datetime
from email.header import decode_header, make_header
from urllib.parse import quote

import pytest

from objects import INLINE, MIB, bucket, md5, new_bucket, put, read, refused, s3, storage  # noqa: F401
from objects_wire import Wire


# On both sides of every internal limit: between database and files, of a frame, of a buffer.
@pytest.mark.parametrize("size", [0, 1, INLINE - 1, INLINE, INLINE + 1, 65_536, 1_000_003, 8 * MIB + 1])
def test_objects_of_every_size(s3, bucket, size):
    """Objects of every size are written and read back."""
    content = hashlib.shake_128(b"seed").digest(size)
    written = s3.put_object(Bucket=bucket, Key="key", Body=content)
    assert written["ETag"] == md5(content)
    seen = s3.get_object(Bucket=bucket, Key="key")
    assert (seen["ContentLength"], seen["ETag"], seen["Body"].read()) == (size, md5(content), content)
    head = s3.head_object(Bucket=bucket, Key="key")
    assert (head["ContentLength"], head["ETag"], head["AcceptRanges"]) == (size, md5(content), "bytes")
    assert abs((datetime.now(UTC) - head["LastModified"]).total_seconds()) < 60


def test_put_overwrites_object(s3, bucket):
    """A put overwrites the object."""
    for content in (b"first", b"x" * 50_000, b"second", b"", b"y" * 60_000):
        put(s3, bucket, "key", body=content)
        assert read(s3, bucket, "key") == content
        assert s3.list_objects_v2(Bucket=bucket)["Contents"][0]["Size"] == len(content)


def test_missing_key_is_refused(s3, bucket):
    """A missing key is refused for reading; deleting it succeeds."""
    with refused(404, "NoSuchKey"):
        read(s3, bucket, "missing")
    with refused(404):
        s3.head_object(Bucket=bucket, Key="missing")
    assert s3.delete_object(Bucket=bucket, Key="missing")["ResponseMetadata"]["HTTPStatusCode"] == 204


def test_delete_removes_object(s3, bucket):
    """A deleted object is gone."""
    put(s3, bucket, "key", body=b"x" * 20_000)
    s3.delete_object(Bucket=bucket, Key="key")
    with refused(404, "NoSuchKey"):
        read(s3, bucket, "key")
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


KEYS = [
    "..", ".", "../../etc/passwd", "/", "//", "/leading", "trailing/", "a//b", "./a", "a/../b", "a/./b", "\\", "a\\..\\b",
    " ", "  lead and trail  ", "+", "%2e%2e/%2f", "%00", "?query#fragment", "&amp;<>\"'", "ä/ö", "日本語", "\U0001f600",
    "e\u0301 is not é", "\u202eright to left", "\x01\x02\x1f", "\n", "\r\n", "\t", "\x7f", "con", "objects.db",
    "a:b*c|d", "~", "$(touch x)", "'; drop table objects; --", "-rf", "_", "x" * 1024, "ü" * 512,
]  # fmt: skip


def test_keys_may_be_any_text(s3, bucket):
    """Keys may be any text."""
    for number, key in enumerate(KEYS):
        put(s3, bucket, key, body=f"{number}")
    listed = [key["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket) for key in page["Contents"]]
    assert listed == sorted(KEYS, key=str.encode)
    for number, key in enumerate(KEYS):
        assert read(s3, bucket, key) == f"{number}".encode(), key
    done = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in KEYS if key.isprintable()]})
    assert "Errors" not in done
    for key in KEYS:
        s3.delete_object(Bucket=bucket, Key=key)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_invalid_keys_are_refused(storage, bucket):
    """Keys that are too long or not UTF-8 are refused."""
    wire = Wire(storage.account)
    for key in ("x" * 1025, "ü" * 512 + "x"):
        assert wire.call("PUT", f"/{bucket}/{quote(key)}", body=b"x").outcome == (400, "KeyTooLongError")
    for key in ("%00", "a%00b", "%ff", "%c3%28", "%ed%a0%80"):
        answer = wire.call("PUT", f"/{bucket}/{key}", body=b"x")
        assert answer.status == 400 and answer.code, (key, answer)
    assert b"<Key>" not in wire.call("GET", f"/{bucket}").body


def test_metadata_round_trips(s3, bucket):
    """Metadata is stored and replaced with the object."""
    for values in ({"one": "1", "two-words": "a b  c", "empty": ""}, {"other": "2"}, {}):
        s3.put_object(Bucket=bucket, Key="key", Body="x", Metadata=values)
        for seen in (s3.get_object(Bucket=bucket, Key="key"), s3.head_object(Bucket=bucket, Key="key")):
            # Clients may keep or fold spaces within a value.
            assert {name: value.split() for name, value in seen["Metadata"].items()} == {
                name: value.split() for name, value in values.items()
            }


def test_metadata_names_are_lower_case(s3, bucket):
    """Metadata names are returned in lower case."""
    s3.put_object(Bucket=bucket, Key="key", Body="x", Metadata={"MixedCase": "Kept"})
    assert s3.head_object(Bucket=bucket, Key="key")["Metadata"] == {"mixedcase": "Kept"}


def test_metadata_beyond_ascii(storage, bucket):
    """Metadata beyond ASCII is returned unchanged or refused."""
    wire, path = Wire(storage.account), f"/{bucket}/key"
    for value in ("Grüße 日本".encode(), b"\xff\xfe not UTF-8"):
        answer = wire.call("PUT", path, body=b"x", headers={"x-amz-meta-greeting": value})
        assert answer.status in (200, 400), answer
        if answer.status == 200:
            # Unchanged, or encoded as in mail headers.
            seen = wire.call("GET", path).headers["x-amz-meta-greeting"]
            assert seen.encode("latin-1") == value or str(make_header(decode_header(seen))).encode() == value


def test_metadata_size_is_limited(s3, bucket):
    """The size of the metadata is limited."""
    s3.put_object(Bucket=bucket, Key="key", Body="x", Metadata={"a": "x" * 2000})
    with refused(400, "MetadataTooLarge"):
        s3.put_object(Bucket=bucket, Key="other", Body="x", Metadata={"a": "x" * 1500, "b": "x" * 1500})
    with refused(404):
        s3.head_object(Bucket=bucket, Key="other")


HEADERS = {
    "CacheControl": "max-age=14400", "ContentDisposition": 'attachment; filename="a.txt"', "ContentEncoding": "gzip",
    "ContentLanguage": "de", "ContentType": "text/plain; charset=utf-8",
}  # fmt: skip


def test_standard_headers_round_trip(s3, bucket):
    """Standard headers are stored and returned."""
    s3.put_object(Bucket=bucket, Key="key", Body="x", **HEADERS, Expires=datetime(2033, 5, 18, tzinfo=UTC))
    for seen in (s3.get_object(Bucket=bucket, Key="key"), s3.head_object(Bucket=bucket, Key="key")):
        assert {name: seen[name] for name in HEADERS} == HEADERS
        assert "2033" in seen["ExpiresString"]
    put(s3, bucket, "key")
    plain = s3.head_object(Bucket=bucket, Key="key")
    assert plain["ContentType"] in ("binary/octet-stream", "application/octet-stream")
    assert "ContentEncoding" not in plain and "CacheControl" not in plain


def test_response_headers_can_be_overridden(s3, bucket):
    """The headers of a response can be overridden in the call."""
    put(s3, bucket, "key")
    wished = {f"Response{name}": value for name, value in HEADERS.items()}
    seen = s3.get_object(Bucket=bucket, Key="key", **wished, ResponseExpires=datetime(2033, 5, 18, tzinfo=UTC))
    assert {name: seen[name] for name in HEADERS} == HEADERS
    assert "2033" in seen["ExpiresString"]


@pytest.mark.parametrize(
    ("digest", "code"),
    [("rL0Y20zC+Fzt72VPzMSk2A==", "BadDigest"), ("YmFkIGRpZ2VzdA==", "InvalidDigest"), ("not base64", "InvalidDigest"),
     ("", "InvalidDigest")],
)  # fmt: skip
def test_wrong_md5_is_refused(storage, s3, bucket, digest, code):
    """A wrong or malformed MD5 is refused, and nothing is stored."""
    for body in (b"bar", b"bar" * 20_000):
        answer = Wire(storage.account).call("PUT", f"/{bucket}/key", body=body, headers={"content-md5": digest})
        assert answer.outcome == (400, code)
    with refused(404):
        s3.head_object(Bucket=bucket, Key="key")


def test_correct_md5_is_accepted(s3, bucket):
    """A correct MD5 is accepted."""
    s3.put_object(Bucket=bucket, Key="key", Body=b"foo", ContentMD5="rL0Y20zC+Fzt72VPzMSk2A==")
    assert read(s3, bucket, "key") == b"foo"


def test_failed_overwrite_keeps_object(s3, bucket):
    """A failed overwrite keeps the old object."""
    put(s3, bucket, "key", body=b"old")
    with refused(400, "BadDigest"):
        s3.put_object(Bucket=bucket, Key="key", Body=b"new", ContentMD5="rL0Y20zC+Fzt72VPzMSk2A==")
    assert read(s3, bucket, "key") == b"old"


def test_storage_classes(s3, bucket):
    """`STANDARD` is accepted, and other storage classes are refused."""
    s3.put_object(Bucket=bucket, Key="key", Body=b"x", StorageClass="STANDARD")
    with refused(400, "InvalidStorageClass"):
        s3.put_object(Bucket=bucket, Key="key", Body=b"x", StorageClass="NONSENSE")


def test_object_attributes(s3, bucket):
    """The attributes of an object are returned on request."""
    put(s3, bucket, "key", body=b"content")
    wanted = ["ETag", "ObjectSize", "StorageClass", "Checksum"]
    seen = s3.get_object_attributes(Bucket=bucket, Key="key", ObjectAttributes=wanted)
    assert (seen["ETag"], seen["ObjectSize"]) == (md5(b"content").strip('"'), 7), "it has no quotes here"
    assert seen["Checksum"]["ChecksumCRC32"], "boto3 sends it by itself"
    with refused(404, "NoSuchKey"):
        s3.get_object_attributes(Bucket=bucket, Key="missing", ObjectAttributes=wanted)
