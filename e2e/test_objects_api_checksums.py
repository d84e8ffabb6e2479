"""The checksums of S3: verified on upload, returned on request."""

import pytest

from objects import PART, bucket, complete, md5, new_bucket, put, read, refused, s3, storage  # noqa: F401
from objects_chunks import SUMS, checksum, composite
from objects_wire import Wire

CONTENTS = {"empty": b"", "small": b"content", "large": b"content" * 5000}
PARTS = [bytes(PART), b"tail"]


def sums_of_parts(algorithm: str) -> list[str]:
    """The checksum of each of the parts."""
    return [checksum(algorithm, part) for part in PARTS]


@pytest.mark.parametrize("algorithm", SUMS)
@pytest.mark.parametrize("size", CONTENTS)
def test_correct_checksum_is_stored(s3, bucket, algorithm, size):
    """A correct checksum is accepted, stored and returned on request."""
    field, content = f"Checksum{algorithm}", CONTENTS[size]
    wanted = checksum(algorithm, content)
    done = s3.put_object(Bucket=bucket, Key="key", Body=content, **{field: wanted})
    assert (done[field], done["ETag"]) == (wanted, md5(content))
    assert s3.head_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")[field] == wanted
    seen = s3.get_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
    assert (seen[field], seen["Body"].read()) == (wanted, content)
    assert field not in s3.head_object(Bucket=bucket, Key="key")
    attributes = s3.get_object_attributes(Bucket=bucket, Key="key", ObjectAttributes=["Checksum"])
    assert attributes["Checksum"][field] == wanted


@pytest.mark.parametrize("algorithm", SUMS)
@pytest.mark.parametrize("size", CONTENTS)
def test_wrong_checksum_is_refused(storage, s3, bucket, algorithm, size):
    """A wrong checksum is refused, and nothing is stored."""
    header = {f"x-amz-checksum-{algorithm.lower()}": checksum(algorithm, b"something else")}
    answer = Wire(storage.account).call("PUT", f"/{bucket}/key", body=CONTENTS[size], headers=header)
    assert answer.outcome == (400, "BadDigest")
    with refused(404):
        s3.head_object(Bucket=bucket, Key="key")


@pytest.mark.parametrize("value", ["", "not base64!", "AAAA", "A" * 400])
def test_malformed_checksum_is_refused(storage, s3, bucket, value):
    """A malformed checksum is refused."""
    answer = Wire(storage.account).call("PUT", f"/{bucket}/key", body=b"x", headers={"x-amz-checksum-crc32": value})
    assert answer.status == 400 and answer.code in ("InvalidRequest", "BadDigest", "InvalidDigest", "InvalidArgument"), answer
    with refused(404):
        s3.head_object(Bucket=bucket, Key="key")


def test_two_checksums_are_refused(storage, bucket):
    """Two checksums in one call are refused."""
    both = {"x-amz-checksum-crc32": checksum("CRC32", b"x"), "x-amz-checksum-sha1": checksum("SHA1", b"x")}
    answer = Wire(storage.account).call("PUT", f"/{bucket}/key", body=b"x", headers=both)
    assert answer.outcome == (400, "InvalidRequest")


def test_range_has_no_whole_checksum(s3, bucket):
    """A range is returned without the checksum of the whole object."""
    put(s3, bucket, "key", body=b"content")
    # boto3 would verify a checksum and fail.
    assert read(s3, bucket, "key", Range="bytes=1-2", ChecksumMode="ENABLED") == b"on"


def test_copy_keeps_or_replaces_checksum(s3, bucket):
    """A copy keeps the checksum, or gets one of the requested algorithm."""
    s3.put_object(Bucket=bucket, Key="from", Body=b"content", ChecksumSHA1=checksum("SHA1", b"content"))
    s3.copy_object(Bucket=bucket, Key="kept", CopySource=f"{bucket}/from")
    assert s3.head_object(Bucket=bucket, Key="kept", ChecksumMode="ENABLED")["ChecksumSHA1"] == checksum("SHA1", b"content")
    done = s3.copy_object(Bucket=bucket, Key="new", CopySource=f"{bucket}/from", ChecksumAlgorithm="SHA256")
    assert done["CopyObjectResult"]["ChecksumSHA256"] == checksum("SHA256", b"content")
    assert s3.head_object(Bucket=bucket, Key="new", ChecksumMode="ENABLED")["ChecksumSHA256"]


def send_parts(s3, bucket: str, algorithm: str, kind: str) -> tuple[str, list[dict]]:
    """Starts an upload with checksums, and sends the parts with theirs."""
    field = f"Checksum{algorithm}"
    begun = s3.create_multipart_upload(Bucket=bucket, Key="key", ChecksumAlgorithm=algorithm, ChecksumType=kind)
    assert (begun["ChecksumAlgorithm"], begun["ChecksumType"]) == (algorithm, kind)
    parts = []
    for number, (content, sum_) in enumerate(zip(PARTS, sums_of_parts(algorithm)), 1):
        sent = s3.upload_part(
            Bucket=bucket, Key="key", UploadId=begun["UploadId"], PartNumber=number, Body=content, **{field: sum_}
        )
        assert sent[field] == sum_
        parts.append({"PartNumber": number, "ETag": sent["ETag"], field: sum_})
    return begun["UploadId"], parts


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "SHA1", "SHA256"])
def test_composite_checksum_of_parts(s3, bucket, algorithm):
    """A multipart upload can have a checksum of the checksums of its parts."""
    field = f"Checksum{algorithm}"
    upload, parts = send_parts(s3, bucket, algorithm, "COMPOSITE")
    seen = s3.list_parts(Bucket=bucket, Key="key", UploadId=upload)
    assert [part[field] for part in seen["Parts"]] == sums_of_parts(algorithm)
    with refused(400, "InvalidPart"):
        complete(s3, bucket, "key", upload, [parts[0], parts[1] | {field: checksum(algorithm, b"other")}])
    done = complete(s3, bucket, "key", upload, parts)
    assert (done[field], done["ChecksumType"]) == (composite(algorithm, PARTS), "COMPOSITE")
    head = s3.head_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
    assert (head[field], head["ChecksumType"]) == (composite(algorithm, PARTS), "COMPOSITE")
    wanted = ["Checksum", "ObjectParts"]
    attributes = s3.get_object_attributes(Bucket=bucket, Key="key", ObjectAttributes=wanted)
    assert [part[field] for part in attributes["ObjectParts"]["Parts"]] == sums_of_parts(algorithm)
    for number, wanted in enumerate(sums_of_parts(algorithm), 1):
        for read_part in (s3.get_object, s3.head_object):
            part = read_part(Bucket=bucket, Key="key", PartNumber=number, ChecksumMode="ENABLED")
            assert (part[field], part["ChecksumType"], part["PartsCount"]) == (wanted, "COMPOSITE", len(PARTS))


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME"])
def test_full_object_checksum_of_parts(s3, bucket, algorithm):
    """A multipart upload can have a checksum of the whole object."""
    field = f"Checksum{algorithm}"
    whole = checksum(algorithm, b"".join(PARTS))
    upload, parts = send_parts(s3, bucket, algorithm, "FULL_OBJECT")
    with refused(400, "BadDigest", "InvalidRequest"):
        complete(s3, bucket, "key", upload, parts, ChecksumType="FULL_OBJECT", **{field: checksum(algorithm, b"other")})
    done = complete(s3, bucket, "key", upload, parts, ChecksumType="FULL_OBJECT", **{field: whole})
    assert (done[field], done["ChecksumType"]) == (whole, "FULL_OBJECT")
    head = s3.head_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
    assert (head[field], head["ChecksumType"]) == (whole, "FULL_OBJECT")


def test_mismatched_checksum_types_are_refused(s3, bucket):
    """Algorithms and checksum types that do not go together are refused."""
    for algorithm, kind in (("SHA256", "FULL_OBJECT"), ("SHA1", "FULL_OBJECT"), ("CRC64NVME", "COMPOSITE")):
        with refused(400, "InvalidRequest"):
            s3.create_multipart_upload(Bucket=bucket, Key="key", ChecksumAlgorithm=algorithm, ChecksumType=kind)


def test_wrong_part_checksum_is_refused(storage, s3, bucket):
    """A part with a wrong checksum is refused and not stored."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="key", ChecksumAlgorithm="SHA256")["UploadId"]
    wrong = {"x-amz-checksum-sha256": checksum("SHA256", b"other")}
    query = f"partNumber=1&uploadId={upload}"
    answer = Wire(storage.account).call("PUT", f"/{bucket}/key", query, body=b"part", headers=wrong)
    assert answer.outcome == (400, "BadDigest")
    assert "Parts" not in s3.list_parts(Bucket=bucket, Key="key", UploadId=upload)


@pytest.mark.parametrize("size", [1000, 100_000])
def test_body_that_differs_from_signature_is_refused(storage, s3, bucket, size):
    """A body that is not the signed one is refused."""
    answer = Wire(storage.account).call("PUT", f"/{bucket}/key", body=b"x" * size, payload="0" * 64)
    assert answer.outcome == (400, "XAmzContentSHA256Mismatch")
    with refused(404):
        s3.head_object(Bucket=bucket, Key="key")
