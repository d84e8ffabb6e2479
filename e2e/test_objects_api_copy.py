"""Copies within the server, and deletes of many objects."""

from datetime import timedelta

import pytest

from objects import bucket, keys_of, new_bucket, put, read, refused, s3, storage, versioned  # noqa: F401
from objects_wire import Wire

CONTENTS = {"empty": b"", "small": b"content", "large": b"content" * 10_000}


@pytest.mark.parametrize("size", CONTENTS)
def test_copy_is_independent_of_source(s3, bucket, new_bucket, size):
    """A copy within or between buckets has the same content and is independent of its source."""
    elsewhere = new_bucket()
    put(s3, bucket, "from", body=CONTENTS[size])
    etag = s3.head_object(Bucket=bucket, Key="from")["ETag"]
    for place, source in ((bucket, {"Bucket": bucket, "Key": "from"}), (elsewhere, f"/{bucket}/from")):
        done = s3.copy_object(Bucket=place, Key="to", CopySource=source)["CopyObjectResult"]
        assert done["ETag"] == etag and done["LastModified"]
        assert read(s3, place, "to") == CONTENTS[size]
    # The copy is independent of its source.
    s3.delete_object(Bucket=bucket, Key="from")
    assert read(s3, bucket, "to") == read(s3, elsewhere, "to") == CONTENTS[size]
    put(s3, bucket, "to", body=b"changed")
    assert read(s3, elsewhere, "to") == CONTENTS[size]


def test_copy_overwrites_target(s3, bucket):
    """A copy overwrites its target."""
    put(s3, bucket, "from", "to")
    s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/from")
    assert read(s3, bucket, "to") == b"from"


@pytest.mark.parametrize("key", ["a b+c", "ü/日本", "?versionId=x", "..", "a//b", "100%", "a&b=c"])
def test_copy_source_with_special_name(s3, bucket, key):
    """A copy source may have any name."""
    put(s3, bucket, key)
    s3.copy_object(Bucket=bucket, Key="to", CopySource={"Bucket": bucket, "Key": key})
    assert read(s3, bucket, "to") == key.encode()


def test_copy_to_itself_needs_change(s3, bucket):
    """A copy of an object to itself must change something."""
    s3.put_object(Bucket=bucket, Key="key", Body=b"x", Metadata={"a": "1"}, ContentType="text/plain")
    source = {"Bucket": bucket, "Key": "key"}
    with refused(400, "InvalidRequest"):
        s3.copy_object(Bucket=bucket, Key="key", CopySource=source)
    s3.copy_object(Bucket=bucket, Key="key", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"})
    head = s3.head_object(Bucket=bucket, Key="key")
    assert head["Metadata"] == {"b": "2"} and head["ContentType"] != "text/plain"
    assert read(s3, bucket, "key") == b"x"


def test_copy_keeps_or_replaces_metadata(s3, bucket):
    """A copy keeps metadata and tags, or replaces them with the `REPLACE` directive."""
    s3.put_object(
        Bucket=bucket, Key="from", Body=b"x", Metadata={"a": "1"}, ContentType="text/plain", CacheControl="no-cache",
        Tagging="t=1",
    )  # fmt: skip
    source = {"Bucket": bucket, "Key": "from"}
    # Without REPLACE the metadata in the call is ignored.
    s3.copy_object(Bucket=bucket, Key="kept", CopySource=source, Metadata={"b": "2"}, ContentType="image/png")
    head = s3.head_object(Bucket=bucket, Key="kept")
    assert (head["Metadata"], head["ContentType"], head["CacheControl"]) == ({"a": "1"}, "text/plain", "no-cache")
    assert s3.get_object_tagging(Bucket=bucket, Key="kept")["TagSet"] == [{"Key": "t", "Value": "1"}]
    s3.copy_object(
        Bucket=bucket, Key="new", CopySource=source, MetadataDirective="REPLACE", Metadata={"b": "2"},
        ContentType="image/png", TaggingDirective="REPLACE", Tagging="u=2",
    )  # fmt: skip
    head = s3.head_object(Bucket=bucket, Key="new")
    assert (head["Metadata"], head["ContentType"], "CacheControl" in head) == ({"b": "2"}, "image/png", False)
    assert s3.get_object_tagging(Bucket=bucket, Key="new")["TagSet"] == [{"Key": "u", "Value": "2"}]


def test_missing_copy_source_is_refused(s3, bucket):
    """Missing sources, buckets and keys are refused."""
    with refused(404, "NoSuchKey"):
        s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/missing")
    with refused(404, "NoSuchBucket"):
        s3.copy_object(Bucket=bucket, Key="to", CopySource="bucket-that-nobody-made/key")
    put(s3, bucket, "from")
    with refused(404, "NoSuchBucket"):
        s3.copy_object(Bucket="bucket-that-nobody-made", Key="to", CopySource=f"{bucket}/from")
    with refused(400, "InvalidArgument"):
        s3.copy_object(Bucket=bucket, Key="to", CopySource="no-key")
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == ["from"]


def test_copy_with_condition(s3, bucket):
    """A copy can have conditions on its source."""
    put(s3, bucket, "from")
    head = s3.head_object(Bucket=bucket, Key="from")
    etag, modified, hour = head["ETag"], head["LastModified"], timedelta(hours=1)
    source = {"Bucket": bucket, "Key": "from"}
    for good in (
        {"CopySourceIfMatch": etag}, {"CopySourceIfNoneMatch": '"other"'}, {"CopySourceIfModifiedSince": modified - hour},
        {"CopySourceIfUnmodifiedSince": modified + hour},
    ):  # fmt: skip
        s3.copy_object(Bucket=bucket, Key="to", CopySource=source, **good)
        s3.delete_object(Bucket=bucket, Key="to")
    for bad in (
        {"CopySourceIfMatch": '"other"'}, {"CopySourceIfNoneMatch": etag}, {"CopySourceIfModifiedSince": modified},
        {"CopySourceIfUnmodifiedSince": modified - hour},
    ):  # fmt: skip
        with refused(412, "PreconditionFailed"):
            s3.copy_object(Bucket=bucket, Key="to", CopySource=source, **bad)
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == ["from"]


def test_copy_of_version(s3, versioned, new_bucket):
    """A copy can name a version of its source."""
    versions = [s3.put_object(Bucket=versioned, Key="key", Body=f"{number}")["VersionId"] for number in range(3)]
    plain = new_bucket()
    for number, version in enumerate(versions):
        source = {"Bucket": versioned, "Key": "key", "VersionId": version}
        done = s3.copy_object(Bucket=plain, Key="to", CopySource=source)
        assert done["CopySourceVersionId"] == version
        assert read(s3, plain, "to") == f"{number}".encode()
    # Copying an old version over the newest restores it.
    done = s3.copy_object(Bucket=versioned, Key="key", CopySource={"Bucket": versioned, "Key": "key", "VersionId": versions[0]})
    assert done["VersionId"] not in versions
    assert read(s3, versioned, "key") == b"0"
    s3.delete_object(Bucket=versioned, Key="key")
    with refused(404, "NoSuchKey"):
        s3.copy_object(Bucket=plain, Key="to", CopySource=f"{versioned}/key")
    with refused(404, "NoSuchVersion"):
        s3.copy_object(Bucket=plain, Key="to", CopySource={"Bucket": versioned, "Key": "other", "VersionId": versions[0]})


def test_delete_many_objects(s3, bucket):
    """One call deletes many objects; a missing one counts as deleted."""
    keys = [f"key-{number}" for number in range(5)]
    put(s3, bucket, *keys, "kept")
    doomed = {"Objects": [{"Key": key} for key in [*keys, "missing", "kept"[:2]]]}
    done = s3.delete_objects(Bucket=bucket, Delete=doomed)
    assert {each["Key"] for each in done["Deleted"]} == {*keys, "missing", "ke"}, "a missing object counts as deleted"
    assert "Errors" not in done
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == ["kept"]


def test_delete_many_quietly(s3, bucket):
    """A quiet delete of many objects returns only errors."""
    put(s3, bucket, "a", "b")
    done = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "a"}, {"Key": "b"}], "Quiet": True})
    assert "Deleted" not in done and "Errors" not in done
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_delete_many_is_limited_to_thousand(s3, bucket):
    """One call deletes at most a thousand objects."""
    put(s3, bucket, "key-1", "key-1000")
    keys = [{"Key": f"key-{number}"} for number in range(1001)]
    with refused(400, "MalformedXML"):
        s3.delete_objects(Bucket=bucket, Delete={"Objects": keys})
    assert len(keys_of(s3.list_objects_v2(Bucket=bucket))) == 2
    done = s3.delete_objects(Bucket=bucket, Delete={"Objects": keys[1:]})
    assert len(done["Deleted"]) == 1000
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_empty_delete_body_is_refused(storage, bucket):
    """A delete without objects, or with a malformed body, is refused."""
    for body in (b"<Delete></Delete>", b"<Delete><Object></Object></Delete>", b"<Delete>", b"<Other/>"):
        answer = Wire(storage.account).call("POST", f"/{bucket}", "delete=", body=body)
        assert answer.outcome == (400, "MalformedXML"), body
    answer = Wire(storage.account).call("POST", f"/{bucket}", "delete=")
    assert answer.status == 400 and answer.code in ("MalformedXML", "MissingRequestBodyError"), answer


def test_delete_many_reports_invalid_key(s3, bucket):
    """An invalid key is reported, and the other objects are deleted."""
    put(s3, bucket, "key")
    done = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "key"}, {"Key": "x" * 1025}]})
    assert [each["Key"] for each in done["Deleted"]] == ["key"]
    assert [each["Code"] for each in done["Errors"]] == ["KeyTooLongError"]


def test_delete_many_versions(s3, versioned):
    """One call deletes versions and delete markers."""
    versions = [s3.put_object(Bucket=versioned, Key="key", Body=f"{number}")["VersionId"] for number in range(3)]
    doomed = [{"Key": "key", "VersionId": version} for version in versions[:2]]
    done = s3.delete_objects(Bucket=versioned, Delete={"Objects": doomed})
    assert {each["VersionId"] for each in done["Deleted"]} == set(versions[:2])
    assert read(s3, versioned, "key") == b"2"
    marked = s3.delete_objects(Bucket=versioned, Delete={"Objects": [{"Key": "key"}]})["Deleted"][0]
    assert marked["DeleteMarker"] is True
    marker = marked["DeleteMarkerVersionId"]
    removed = s3.delete_objects(Bucket=versioned, Delete={"Objects": [{"Key": "key", "VersionId": marker}]})["Deleted"][0]
    assert removed["DeleteMarker"] is True
    assert read(s3, versioned, "key") == b"2"
