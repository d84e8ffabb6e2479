"""Buckets with versioning."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from objects import bucket, complete, keys_of, new_bucket, put, read, refused, s3, storage, upload_parts, versioned  # noqa: F401
from objects_wire import Wire


def write(s3, bucket: str, key: str, *contents: bytes) -> list[str]:
    """Writes versions of a key; returns their ids."""
    return [s3.put_object(Bucket=bucket, Key=key, Body=content)["VersionId"] for content in contents]


def suspend(s3, bucket: str):
    """Suspends versioning."""
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})


def listed(s3, bucket: str, **options) -> list[tuple[str, str, bool]]:
    """Key, version and whether it is the latest, in listed order, followed by the delete markers."""
    page = s3.list_object_versions(Bucket=bucket, **options)
    both = page.get("Versions", []) + page.get("DeleteMarkers", [])
    return [(each["Key"], each["VersionId"], each["IsLatest"]) for each in both]


def test_versioning_is_enabled_and_suspended(s3, bucket):
    """Versioning can be enabled and suspended."""
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    for status in ("Enabled", "Suspended", "Enabled"):
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
        assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == status


def test_invalid_versioning_status_is_refused(storage, bucket):
    """An invalid versioning status is refused."""
    for status in ("Off", "enabled", ""):
        body = f"<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>".encode()
        answer = Wire(storage.account).call("PUT", f"/{bucket}", "versioning=", body=body)
        assert answer.status == 400 and answer.code in ("MalformedXML", "IllegalVersioningConfigurationException"), answer


def test_every_version_is_readable(s3, versioned):
    """Every version is readable, and the last one is the latest."""
    contents = [b"one", b"two" * 10_000, b""]
    versions = write(s3, versioned, "key", *contents)
    assert len(set(versions)) == 3
    for version, content in zip(versions, contents):
        seen = s3.get_object(Bucket=versioned, Key="key", VersionId=version)
        assert (seen["VersionId"], seen["Body"].read()) == (version, content)
        assert s3.head_object(Bucket=versioned, Key="key", VersionId=version)["ContentLength"] == len(content)
    assert s3.get_object(Bucket=versioned, Key="key")["VersionId"] == versions[-1]
    assert listed(s3, versioned) == [("key", version, version == versions[-1]) for version in versions[::-1]]
    assert len(keys_of(s3.list_objects_v2(Bucket=versioned))) == 1


def test_delete_adds_marker(s3, versioned):
    """A delete adds a marker; removing the marker restores the object."""
    (version,) = write(s3, versioned, "key", b"content")
    done = s3.delete_object(Bucket=versioned, Key="key")
    marker = done["VersionId"]
    assert done["DeleteMarker"] is True
    with refused(404, "NoSuchKey") as caught:
        read(s3, versioned, "key")
    headers = caught.value.response["ResponseMetadata"]["HTTPHeaders"]
    assert (headers["x-amz-delete-marker"], headers["x-amz-version-id"]) == ("true", marker)
    with refused(404):
        s3.head_object(Bucket=versioned, Key="key")
    with refused(405, "MethodNotAllowed"):
        read(s3, versioned, "key", VersionId=marker)
    assert read(s3, versioned, "key", VersionId=version) == b"content"
    assert "Contents" not in s3.list_objects_v2(Bucket=versioned)
    page = s3.list_object_versions(Bucket=versioned)
    assert [(each["VersionId"], each["IsLatest"]) for each in page["DeleteMarkers"]] == [(marker, True)]
    assert [(each["VersionId"], each["IsLatest"]) for each in page["Versions"]] == [(version, False)]

    removed = s3.delete_object(Bucket=versioned, Key="key", VersionId=marker)
    assert (removed["DeleteMarker"], removed["VersionId"]) == (True, marker)
    assert read(s3, versioned, "key") == b"content"


def test_delete_of_missing_key_adds_marker(s3, versioned):
    """A delete of a key that never existed adds a marker."""
    done = s3.delete_object(Bucket=versioned, Key="never")
    assert done["DeleteMarker"] is True
    assert listed(s3, versioned) == [("never", done["VersionId"], True)]


def test_delete_of_one_version(s3, versioned):
    """A deleted version is gone, and the one before becomes the latest."""
    versions = write(s3, versioned, "key", b"0", b"1", b"2")
    done = s3.delete_object(Bucket=versioned, Key="key", VersionId=versions[1])
    assert done["VersionId"] == versions[1] and "DeleteMarker" not in done
    assert read(s3, versioned, "key") == b"2"
    s3.delete_object(Bucket=versioned, Key="key", VersionId=versions[2])
    assert read(s3, versioned, "key") == b"0", "the version before is the latest again"
    assert listed(s3, versioned) == [("key", versions[0], True)]
    assert s3.delete_object(Bucket=versioned, Key="key", VersionId=versions[2])["ResponseMetadata"]["HTTPStatusCode"] == 204
    s3.delete_object(Bucket=versioned, Key="key", VersionId=versions[0])
    with refused(404, "NoSuchKey"):
        read(s3, versioned, "key")
    assert listed(s3, versioned) == []
    s3.delete_bucket(Bucket=versioned)


def test_missing_versions_are_refused(s3, versioned):
    """Versions that do not exist are refused."""
    one, other = write(s3, versioned, "one", b"1")[0], write(s3, versioned, "other", b"2")[0]
    for version in (other, one[:-1] + ("a" if one[-1] != "a" else "b")):
        with refused(404, "NoSuchVersion"):
            read(s3, versioned, "one", VersionId=version)
    for version in ("nonsense", "null", "../..", "x" * 1000):
        with pytest.raises(s3.exceptions.ClientError) as caught:
            read(s3, versioned, "one", VersionId=version)
        outcome = caught.value.response
        assert outcome["Error"]["Code"] in ("NoSuchVersion", "InvalidArgument"), outcome
        assert outcome["ResponseMetadata"]["HTTPStatusCode"] in (400, 404), outcome


def test_earlier_object_is_null_version(s3, bucket):
    """An object from before versioning is the null version."""
    put(s3, bucket, "key", body=b"before")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    (version,) = write(s3, bucket, "key", b"after")
    assert listed(s3, bucket) == [("key", version, True), ("key", "null", False)]
    assert read(s3, bucket, "key", VersionId="null") == b"before"
    s3.delete_object(Bucket=bucket, Key="key", VersionId=version)
    assert read(s3, bucket, "key") == b"before"
    s3.delete_object(Bucket=bucket, Key="key", VersionId="null")
    assert listed(s3, bucket) == []


def test_suspended_put_overwrites_null_version(s3, versioned):
    """While versioning is suspended, a put overwrites only the null version."""
    versions = write(s3, versioned, "key", b"0", b"1")
    suspend(s3, versioned)
    for content in (b"null 1", b"null 2"):
        assert s3.put_object(Bucket=versioned, Key="key", Body=content).get("VersionId", "null") == "null"
    assert listed(s3, versioned) == [("key", "null", True), ("key", versions[1], False), ("key", versions[0], False)]
    assert read(s3, versioned, "key") == read(s3, versioned, "key", VersionId="null") == b"null 2"
    assert read(s3, versioned, "key", VersionId=versions[1]) == b"1"


def test_suspended_delete_adds_null_marker(s3, versioned):
    """While versioning is suspended, a delete adds a null marker, which the next put replaces."""
    (version,) = write(s3, versioned, "key", b"kept")
    suspend(s3, versioned)
    put(s3, versioned, "key", body=b"null")
    done = s3.delete_object(Bucket=versioned, Key="key")
    assert (done["DeleteMarker"], done["VersionId"]) == (True, "null")
    assert listed(s3, versioned) == [("key", version, False), ("key", "null", True)]
    with refused(404, "NoSuchKey"):
        read(s3, versioned, "key")
    # The next object replaces the marker.
    put(s3, versioned, "key", body=b"again")
    assert listed(s3, versioned) == [("key", "null", True), ("key", version, False)]
    s3.delete_object(Bucket=versioned, Key="key", VersionId="null")
    assert read(s3, versioned, "key") == b"kept"


def test_unversioned_object_is_null_version(s3, bucket):
    """In a bucket without versioning the object is the null version."""
    put(s3, bucket, "key")
    assert listed(s3, bucket) == [("key", "null", True)]
    s3.delete_object(Bucket=bucket, Key="key", VersionId="null")
    assert listed(s3, bucket) == []


def test_versions_list_page_by_page(s3, versioned):
    """Versions are listed page by page, by prefix, by delimiter and from a marker."""
    made = [(key, version) for key in ("a", "b/c", "b/d") for version in write(s3, versioned, key, b"0", b"1", b"2")[::-1]]
    s3.delete_object(Bucket=versioned, Key="a")
    for size in (1, 2, 4, 1000):
        pages = list(s3.get_paginator("list_object_versions").paginate(Bucket=versioned, PaginationConfig={"PageSize": size}))
        seen = [(each["Key"], each["VersionId"]) for page in pages for each in page.get("Versions", [])]
        assert seen == made
        assert sum(len(page.get("DeleteMarkers", [])) for page in pages) == 1
        assert all(len(page.get("Versions", [])) + len(page.get("DeleteMarkers", [])) <= size for page in pages)
    first = s3.list_object_versions(Bucket=versioned, MaxKeys=2, Prefix="b/")
    assert first["IsTruncated"] is True
    # The listing continues from the markers of the page, or from any known version.
    for key, version in ((first["NextKeyMarker"], first["NextVersionIdMarker"]), made[4]):
        rest = s3.list_object_versions(Bucket=versioned, Prefix="b/", KeyMarker=key, VersionIdMarker=version)
        assert [(each["Key"], each["VersionId"]) for each in rest["Versions"]] == made[5:]
    grouped = s3.list_object_versions(Bucket=versioned, Delimiter="/")
    assert [each["Prefix"] for each in grouped["CommonPrefixes"]] == ["b/"] and len(grouped["Versions"]) == 3
    after = s3.list_object_versions(Bucket=versioned, KeyMarker="b/c")
    assert {each["Key"] for each in after["Versions"]} == {"b/d"}


def test_version_marker_needs_key_marker(storage, versioned):
    """A version marker needs a key marker."""
    answer = Wire(storage.account).call("GET", f"/{versioned}", "version-id-marker=x&versions=")
    assert answer.outcome == (400, "InvalidArgument")


def test_parallel_puts_all_become_versions(s3, versioned):
    """Parallel puts all become versions."""
    def one(number: int) -> tuple[str, bytes]:
        content = b"%d" % number * (1 if number % 2 else 20_000)
        return s3.put_object(Bucket=versioned, Key="key", Body=content)["VersionId"], content

    with ThreadPoolExecutor(8) as writers:
        made = dict(writers.map(one, range(16)))
    assert len(made) == 16
    for version, content in made.items():
        assert read(s3, versioned, "key", VersionId=version) == content
    seen = listed(s3, versioned)
    assert {version for _, version, _ in seen} == made.keys() and [latest for _, _, latest in seen] == [True] + [False] * 15
    assert read(s3, versioned, "key") == made[seen[0][1]]


def test_parallel_deletes_remove_all_versions(s3, versioned):
    """Parallel deletes remove all versions."""
    versions = write(s3, versioned, "key", *[b"%d" % number for number in range(12)])
    with ThreadPoolExecutor(8) as removers:
        list(removers.map(lambda version: s3.delete_object(Bucket=versioned, Key="key", VersionId=version), versions))
    assert listed(s3, versioned) == []
    with refused(404, "NoSuchKey"):
        read(s3, versioned, "key")


def test_multipart_uploads_become_versions(s3, versioned):
    """Multipart uploads become versions."""
    versions = []
    for content in (b"one", b"two"):
        upload, parts = upload_parts(s3, versioned, "key", [content])
        versions.append(complete(s3, versioned, "key", upload, parts)["VersionId"])
    assert read(s3, versioned, "key", VersionId=versions[0]) == b"one"
    assert listed(s3, versioned) == [("key", versions[1], True), ("key", versions[0], False)]


def test_metadata_and_tags_belong_to_version(s3, versioned):
    """Metadata and tags belong to a version."""
    first = s3.put_object(Bucket=versioned, Key="key", Body=b"1", Metadata={"a": "1"}, Tagging="t=1")["VersionId"]
    second = s3.put_object(Bucket=versioned, Key="key", Body=b"2", Metadata={"a": "2"})["VersionId"]
    assert s3.head_object(Bucket=versioned, Key="key", VersionId=first)["Metadata"] == {"a": "1"}
    tags = {"TagSet": [{"Key": "u", "Value": "2"}]}
    s3.put_object_tagging(Bucket=versioned, Key="key", VersionId=first, Tagging=tags)
    assert s3.get_object_tagging(Bucket=versioned, Key="key", VersionId=first)["TagSet"] == tags["TagSet"]
    assert s3.get_object_tagging(Bucket=versioned, Key="key", VersionId=second)["TagSet"] == []
    s3.delete_object_tagging(Bucket=versioned, Key="key", VersionId=first)
    assert s3.get_object_tagging(Bucket=versioned, Key="key", VersionId=first)["TagSet"] == []


def test_versions_keep_names_beyond_xml(s3, versioned):
    """Versions keep key names that XML cannot contain."""
    keys = ["a+b c", "ü&<>", "\x01\n"]
    for key in keys:
        write(s3, versioned, key, b"0", b"1")
    page = s3.list_object_versions(Bucket=versioned)
    assert sorted({each["Key"] for each in page["Versions"]}) == sorted(keys)
