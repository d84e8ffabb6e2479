"""Multipart uploads: parts, completion, and refusals."""

import hashlib

import pytest

from objects import (  # noqa: F401
    PART, bucket, complete, keys_of, md5, new_bucket, put, read, refused, s3, storage, upload_parts, versioned,
)  # fmt: skip
from objects_wire import Wire

BIG = hashlib.shake_128(b"part").digest(PART)


def etag_of(contents: list[bytes]) -> str:
    """The ETag that S3 gives to an object in parts."""
    joined = b"".join(hashlib.md5(content).digest() for content in contents)
    return f'"{hashlib.md5(joined).hexdigest()}-{len(contents)}"'


@pytest.mark.parametrize(
    "sizes", [[7], [0], [PART], [PART, 1], [PART - 1], [PART + 1, 0], [PART, PART + 1, 600_000]], ids=str
)
def test_multipart_upload_of_every_size(s3, bucket, sizes):
    """Uploads with parts of every size become objects, visible only after completion."""
    contents = [(BIG + b"x")[:size] for size in sizes]
    upload, parts = upload_parts(s3, bucket, "key", contents, Metadata={"a": "1"}, ContentType="text/plain")
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket), "nothing is visible before the completion"
    done = complete(s3, bucket, "key", upload, parts)
    assert (done["ETag"], done["Bucket"], done["Key"]) == (etag_of(contents), bucket, "key")
    seen = s3.get_object(Bucket=bucket, Key="key")
    assert (seen["ETag"], seen["Metadata"], seen["ContentType"]) == (etag_of(contents), {"a": "1"}, "text/plain")
    assert seen["Body"].read() == b"".join(contents)
    assert s3.list_objects_v2(Bucket=bucket)["Contents"][0]["ETag"] == etag_of(contents)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    with refused(404, "NoSuchUpload"):
        s3.list_parts(Bucket=bucket, Key="key", UploadId=upload)


def test_ranges_cross_parts(s3, bucket):
    """Ranges cross the borders of parts."""
    upload, parts = upload_parts(s3, bucket, "key", [BIG, BIG, b"tail"])
    complete(s3, bucket, "key", upload, parts)
    whole = BIG + BIG + b"tail"
    for start, end in ((0, 9), (PART - 5, PART + 5), (PART - 1, 2 * PART), (2 * PART - 1, 2 * PART + 3), (2 * PART, 2 * PART)):
        assert read(s3, bucket, "key", Range=f"bytes={start}-{end}") == whole[start : end + 1]
    assert read(s3, bucket, "key", Range="bytes=-6") == whole[-6:]


def test_parts_in_any_order_with_gaps(s3, bucket):
    """Parts may be sent in any order and with gaps in their numbers."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="key")["UploadId"]
    contents = {10_000: b"tail", 3: BIG, 700: BIG[::-1]}
    etags = {
        number: s3.upload_part(Bucket=bucket, Key="key", UploadId=upload, PartNumber=number, Body=content)["ETag"]
        for number, content in contents.items()
    }
    assert etags == {number: md5(content) for number, content in contents.items()}
    complete(s3, bucket, "key", upload, [{"PartNumber": number, "ETag": etags[number]} for number in sorted(etags)])
    assert read(s3, bucket, "key") == BIG + BIG[::-1] + b"tail"


def test_repeated_part_replaces_first(s3, bucket):
    """A part that is sent again replaces the first one."""
    upload, parts = upload_parts(s3, bucket, "key", [BIG, b"first try"])
    again = s3.upload_part(Bucket=bucket, Key="key", UploadId=upload, PartNumber=2, Body=b"second")
    assert len(s3.list_parts(Bucket=bucket, Key="key", UploadId=upload)["Parts"]) == 2
    with refused(400, "InvalidPart"):
        complete(s3, bucket, "key", upload, parts)
    complete(s3, bucket, "key", upload, [parts[0], {"PartNumber": 2, "ETag": again["ETag"]}])
    assert read(s3, bucket, "key") == BIG + b"second"


def test_omitted_parts_are_dropped(s3, bucket):
    """Parts that the completion does not list are dropped."""
    upload, parts = upload_parts(s3, bucket, "key", [BIG, b"unwanted"])
    complete(s3, bucket, "key", upload, parts[:1])
    assert read(s3, bucket, "key") == BIG


def test_upload_overwrites_object_at_completion(s3, bucket):
    """An upload overwrites an object when it is completed, and not before."""
    put(s3, bucket, "key", body=b"old")
    upload, parts = upload_parts(s3, bucket, "key", [b"new"])
    assert read(s3, bucket, "key") == b"old"
    complete(s3, bucket, "key", upload, parts)
    assert read(s3, bucket, "key") == b"new"


def test_uploads_to_one_key_are_independent(s3, bucket):
    """Uploads to the same key are independent."""
    one, parts_of_one = upload_parts(s3, bucket, "key", [b"one"])
    two, parts_of_two = upload_parts(s3, bucket, "key", [b"two"])
    assert one != two
    complete(s3, bucket, "key", two, parts_of_two)
    assert read(s3, bucket, "key") == b"two"
    complete(s3, bucket, "key", one, parts_of_one)
    assert read(s3, bucket, "key") == b"one"


def test_invalid_completions_are_refused(s3, bucket):
    """Invalid completions are refused and leave the upload usable."""
    small, small_parts = upload_parts(s3, bucket, "key", [b"too small", b"tail"])
    with refused(400, "EntityTooSmall"):
        complete(s3, bucket, "key", small, small_parts)
    upload, parts = upload_parts(s3, bucket, "key", [BIG, b"tail"])
    with refused(400, "MalformedXML"):
        complete(s3, bucket, "key", upload, [])
    with refused(400, "InvalidPartOrder"):
        complete(s3, bucket, "key", upload, parts[::-1])
    with refused(400, "InvalidPartOrder"):
        complete(s3, bucket, "key", upload, [parts[0], parts[0], parts[1]])
    with refused(400, "InvalidPart"):
        complete(s3, bucket, "key", upload, [*parts, {"PartNumber": 9, "ETag": parts[0]["ETag"]}])
    with refused(400, "InvalidPart"):
        complete(s3, bucket, "key", upload, [parts[0], {"PartNumber": 2, "ETag": md5(b"other")}])
    with refused(404, "NoSuchUpload"):
        complete(s3, bucket, "other key", upload, parts)
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)
    # None of this has damaged the upload; an ETag may come without its quotes.
    complete(s3, bucket, "key", upload, [part | {"ETag": part["ETag"].strip('"')} for part in parts])
    assert read(s3, bucket, "key") == BIG + b"tail"


def test_malformed_completion_is_refused(storage, s3, bucket):
    """A malformed body of a completion is refused."""
    upload, _ = upload_parts(s3, bucket, "key", [b"part"])
    bad = [
        b"", b"<CompleteMultipartUpload>", b"nonsense", b"<Other/>",
        b"<CompleteMultipartUpload><Part><PartNumber>x</PartNumber><ETag>y</ETag></Part></CompleteMultipartUpload>",
    ]  # fmt: skip
    for body in bad:
        answer = Wire(storage.account).call("POST", f"/{bucket}/key", f"uploadId={upload}", body=body)
        assert answer.status == 400 and answer.code in ("MalformedXML", "InvalidRequest", "MissingRequestBodyError"), (body, answer)


@pytest.mark.parametrize("number", ["0", "10001", "-1", "abc", "99999999999999999999"])
def test_invalid_part_numbers_are_refused(storage, s3, bucket, number):
    """Invalid part numbers are refused."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="key")["UploadId"]
    query = f"partNumber={number}&uploadId={upload}"
    answer = Wire(storage.account).call("PUT", f"/{bucket}/key", query, body=b"x")
    assert answer.outcome == (400, "InvalidArgument")


def test_too_many_parts_are_refused(storage, s3, bucket):
    """A completion with more than ten thousand parts is refused."""
    upload, _ = upload_parts(s3, bucket, "key", [b"part"])
    part = "<Part><PartNumber>{}</PartNumber><ETag>" + md5(b"part").strip('"') + "</ETag></Part>"
    listed = "".join(part.format(number) for number in range(1, 10_002))
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    answer = Wire(storage.account).call("POST", f"/{bucket}/key", f"uploadId={upload}", body=body)
    assert answer.status == 400 and answer.code in ("MalformedXML", "InvalidArgument", "InvalidPart"), answer
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


@pytest.mark.parametrize("upload", ["nonsense", "..%2F..", "x" * 2000])
def test_unknown_upload_ids_are_refused(storage, bucket, upload):
    """Unknown upload IDs are refused."""
    wire, path = Wire(storage.account), f"/{bucket}/key"
    for method, query in (("PUT", f"partNumber=1&uploadId={upload}"), ("GET", f"uploadId={upload}"),
                          ("DELETE", f"uploadId={upload}")):  # fmt: skip
        assert wire.call(method, path, query).outcome == (404, "NoSuchUpload"), method


def test_abort_ends_upload(s3, bucket):
    """An aborted upload is gone."""
    upload, parts = upload_parts(s3, bucket, "key", [BIG, b"tail"])
    s3.abort_multipart_upload(Bucket=bucket, Key="key", UploadId=upload)
    with refused(404, "NoSuchUpload"):
        s3.abort_multipart_upload(Bucket=bucket, Key="key", UploadId=upload)
    with refused(404, "NoSuchUpload"):
        s3.upload_part(Bucket=bucket, Key="key", UploadId=upload, PartNumber=3, Body=b"late")
    with refused(404, "NoSuchUpload"):
        complete(s3, bucket, "key", upload, parts)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=bucket)
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == []


def test_list_parts_in_pages(s3, bucket):
    """Parts are listed, in pages."""
    upload, parts = upload_parts(s3, bucket, "key", [b"%d" % number for number in range(5)])
    page = s3.list_parts(Bucket=bucket, Key="key", UploadId=upload)
    assert [(part["PartNumber"], part["ETag"], part["Size"]) for part in page["Parts"]] == [
        (part["PartNumber"], part["ETag"], 1) for part in parts
    ]
    assert (page["IsTruncated"], page["UploadId"], page["StorageClass"]) == (False, upload, "STANDARD")
    first = s3.list_parts(Bucket=bucket, Key="key", UploadId=upload, MaxParts=2)
    assert (len(first["Parts"]), first["IsTruncated"], first["NextPartNumberMarker"]) == (2, True, 2)
    pages = s3.get_paginator("list_parts").paginate(
        Bucket=bucket, Key="key", UploadId=upload, PaginationConfig={"PageSize": 2}
    )
    assert [[part["PartNumber"] for part in page["Parts"]] for page in pages] == [[1, 2], [3, 4], [5]]


def test_list_uploads_in_pages(s3, bucket):
    """Uploads are listed, in pages, by prefix and by delimiter."""
    made = [(key, s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]) for key in ("b", "a", "a", "c/d", "c/e")]
    page = s3.list_multipart_uploads(Bucket=bucket)
    seen = [(upload["Key"], upload["UploadId"]) for upload in page["Uploads"]]
    assert sorted(seen) == sorted(made) and [key for key, _ in seen] == ["a", "a", "b", "c/d", "c/e"]
    pages = s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, PaginationConfig={"PageSize": 1})
    assert [(upload["Key"], upload["UploadId"]) for page in pages for upload in page.get("Uploads", [])] == seen
    assert [each["Key"] for each in s3.list_multipart_uploads(Bucket=bucket, Prefix="c/")["Uploads"]] == ["c/d", "c/e"]
    grouped = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    assert [each["Prefix"] for each in grouped["CommonPrefixes"]] == ["c/"] and len(grouped["Uploads"]) == 3
    after = s3.list_multipart_uploads(Bucket=bucket, KeyMarker="b")
    assert [each["Key"] for each in after["Uploads"]] == ["c/d", "c/e"]


@pytest.mark.parametrize("key", ["plain", " ", "ü 日本", "?versionId=", "a//../b"])
def test_part_copy_with_range(s3, bucket, key):
    """A part can be copied from a range of an object."""
    source = hashlib.shake_128(b"source").digest(PART + 1000)
    put(s3, bucket, key, body=source)
    upload = s3.create_multipart_upload(Bucket=bucket, Key="to")["UploadId"]
    parts = []
    for number, (start, end) in enumerate([(0, PART - 1), (PART, PART + 999)], 1):
        done = s3.upload_part_copy(
            Bucket=bucket, Key="to", UploadId=upload, PartNumber=number, CopySource={"Bucket": bucket, "Key": key},
            CopySourceRange=f"bytes={start}-{end}",
        )["CopyPartResult"]  # fmt: skip
        assert done["ETag"] == md5(source[start : end + 1])
        parts.append({"PartNumber": number, "ETag": done["ETag"]})
    complete(s3, bucket, "to", upload, parts)
    assert read(s3, bucket, "to") == source


def test_part_copy_of_whole_object(s3, bucket):
    """A part can be copied from a whole object."""
    for size in (0, 100, 100_000):
        put(s3, bucket, "from", body=BIG[:size])
        upload = s3.create_multipart_upload(Bucket=bucket, Key="to")["UploadId"]
        done = s3.upload_part_copy(Bucket=bucket, Key="to", UploadId=upload, PartNumber=1, CopySource=f"{bucket}/from")
        complete(s3, bucket, "to", upload, [{"PartNumber": 1, "ETag": done["CopyPartResult"]["ETag"]}])
        assert read(s3, bucket, "to") == BIG[:size]


def test_part_copy_of_version_across_parts(s3, versioned):
    """A part can be copied from a version, across the borders of its parts."""
    upload, parts = upload_parts(s3, versioned, "from", [BIG, b"tail"])
    version = complete(s3, versioned, "from", upload, parts)["VersionId"]
    put(s3, versioned, "from", body=b"newer")
    upload = s3.create_multipart_upload(Bucket=versioned, Key="to")["UploadId"]
    source = {"Bucket": versioned, "Key": "from", "VersionId": version}
    done = s3.upload_part_copy(
        Bucket=versioned, Key="to", UploadId=upload, PartNumber=1, CopySource=source,
        CopySourceRange=f"bytes={PART - 3}-{PART + 3}",
    )  # fmt: skip
    assert done["CopySourceVersionId"] == version
    complete(s3, versioned, "to", upload, [{"PartNumber": 1, "ETag": done["CopyPartResult"]["ETag"]}])
    assert read(s3, versioned, "to") == BIG[-3:] + b"tail"


@pytest.mark.parametrize(
    "text", ["0-2", "bytes=0", "bytes=hello-world", "bytes=0-bar", "bytes=hello-", "bytes=0-2,3-5", "bytes=3-2", "bytes=-2"]
)
def test_part_copy_with_malformed_range_is_refused(s3, bucket, text):
    """A part copy with a malformed range is refused."""
    put(s3, bucket, "from", body=b"hello")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="to")["UploadId"]
    with refused(400, "InvalidArgument"):
        s3.upload_part_copy(
            Bucket=bucket, Key="to", UploadId=upload, PartNumber=1, CopySource=f"{bucket}/from", CopySourceRange=text
        )


def test_part_copy_of_missing_source_is_refused(s3, bucket):
    """A part copy from a missing source, or outside its range, is refused."""
    put(s3, bucket, "from", body=b"hello")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="to")["UploadId"]
    place = {"Bucket": bucket, "Key": "to", "UploadId": upload, "PartNumber": 1}
    for text in ("bytes=0-21", "bytes=5-5"):
        with pytest.raises(s3.exceptions.ClientError) as caught:
            s3.upload_part_copy(**place, CopySource=f"{bucket}/from", CopySourceRange=text)
        assert caught.value.response["Error"]["Code"] in ("InvalidRange", "InvalidArgument", "InvalidRequest")
    with refused(404, "NoSuchKey"):
        s3.upload_part_copy(**place, CopySource=f"{bucket}/missing")
    with refused(404, "NoSuchBucket"):
        s3.upload_part_copy(**place, CopySource="bucket-that-nobody-made/key")
    with refused(412, "PreconditionFailed"):
        s3.upload_part_copy(**place, CopySource=f"{bucket}/from", CopySourceIfMatch='"other"')
    assert "Parts" not in s3.list_parts(Bucket=bucket, Key="to", UploadId=upload)


def test_read_by_part_number(s3, bucket):
    """An object can be read by part number."""
    contents = [BIG, BIG[::-1], b"tail"]
    upload, parts = upload_parts(s3, bucket, "key", contents)
    complete(s3, bucket, "key", upload, parts)
    for number, content in enumerate(contents, 1):
        seen = s3.get_object(Bucket=bucket, Key="key", PartNumber=number)
        assert (seen["PartsCount"], seen["ResponseMetadata"]["HTTPStatusCode"]) == (3, 206)
        assert seen["ETag"] == etag_of(contents) and seen["Body"].read() == content
        head = s3.head_object(Bucket=bucket, Key="key", PartNumber=number)
        assert (head["PartsCount"], head["ContentLength"]) == (3, len(content))
    with refused(416, "InvalidPartNumber", "InvalidRange"):
        s3.get_object(Bucket=bucket, Key="key", PartNumber=4)
    put(s3, bucket, "plain", body=b"one piece")
    assert read(s3, bucket, "plain", PartNumber=1) == b"one piece"
    with refused(416, "InvalidPartNumber", "InvalidRange"):
        s3.get_object(Bucket=bucket, Key="plain", PartNumber=2)


def test_copy_of_multipart_object(s3, bucket):
    """An object that was uploaded in parts can be copied."""
    upload, parts = upload_parts(s3, bucket, "from", [BIG, b"tail"], Metadata={"a": "1"})
    complete(s3, bucket, "from", upload, parts)
    s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/from")
    s3.delete_object(Bucket=bucket, Key="from")
    assert read(s3, bucket, "to") == BIG + b"tail"
    assert s3.head_object(Bucket=bucket, Key="to")["Metadata"] == {"a": "1"}


def test_multipart_tags_and_attributes(s3, bucket):
    """A multipart upload sets tags, and its attributes count the parts."""
    upload, parts = upload_parts(s3, bucket, "key", [BIG, b"tail"], Tagging="a=1")
    complete(s3, bucket, "key", upload, parts)
    assert s3.get_object_tagging(Bucket=bucket, Key="key")["TagSet"] == [{"Key": "a", "Value": "1"}]
    wanted = ["ETag", "ObjectSize", "ObjectParts"]
    seen = s3.get_object_attributes(Bucket=bucket, Key="key", ObjectAttributes=wanted)
    assert (seen["ObjectSize"], seen["ObjectParts"]["TotalPartsCount"]) == (PART + 4, 2)
    assert seen["ETag"] == s3.head_object(Bucket=bucket, Key="key")["ETag"].strip('"'), "it has no quotes here"
