"""Full object storage: a quota, and a disk."""

import os

import pytest

from objects import MIB, PART, data_files, enable, keys_of, own_storage, put, read, refused, upload_parts
from objects_wire import UNSIGNED, Wire
from support import Server, eventually

DISK_MIB = 40
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")
# The smallest possible quota, and an object that fits eleven times. Copies take no disk space, but they count.
SETTINGS = "[object_storage]\nquota_gb = 1\n"
LARGE = 90_000_000


def test_quota_is_enforced(tmp_path):
    """The quota refuses puts, copies and parts beyond it, and other tenants are not affected."""
    with own_storage(tmp_path, settings=SETTINGS) as storage:
        s3, other = storage.account.client(), storage.other.client()
        for client in (s3, other):
            client.create_bucket(Bucket="full")
        put(s3, "full", "0", body=bytes(LARGE))
        for number in range(1, 11):
            s3.copy_object(Bucket="full", Key=f"{number}", CopySource="full/0")
        before = storage.files()
        with refused(403, "QuotaExceeded"):
            s3.copy_object(Bucket="full", Key="copy", CopySource="full/0")
        with refused(403, "QuotaExceeded"):
            put(s3, "full", "put", body=bytes(11_000_000))
        upload, _ = upload_parts(s3, "full", "parts", [bytes(PART)])
        with refused(403, "QuotaExceeded"):
            s3.upload_part(Bucket="full", Key="parts", UploadId=upload, PartNumber=2, Body=bytes(PART))
        s3.abort_multipart_upload(Bucket="full", Key="parts", UploadId=upload)
        # A call that does not announce its length.
        chunks = (b"%x\r\n" % MIB + bytes(MIB) + b"\r\n") * 11 + b"0\r\n\r\n"
        wire = Wire(storage.account)
        signed = wire.sign("PUT", "/full/chunked", payload=UNSIGNED, headers={"transfer-encoding": "chunked"})
        answer = wire.send("PUT", "/full/chunked", headers=signed.headers, body=chunks)
        assert answer.outcome in ((403, "QuotaExceeded"), (411, "MissingContentLength")), answer
        eventually(lambda: storage.files() == before, what="the removal of refused files")
        assert len(s3.list_objects_v2(Bucket="full")["Contents"]) == 11
        put(other, "full", "theirs", body=bytes(11_000_000))
        # A delete frees space, and a replaced object counts once.
        s3.delete_object(Bucket="full", Key="10")
        for _ in range(3):
            put(s3, "full", "put", body=bytes(40_000_000))
        assert s3.head_object(Bucket="full", Key="put")["ContentLength"] == 40_000_000


def test_organization_limit_is_enforced(tmp_path):
    """A limit of one organization applies to it only, and lowering it loses nothing."""
    with own_storage(tmp_path) as storage:
        s3, other, server = storage.account.client(), storage.other.client(), storage.server
        for client in (s3, other):
            client.create_bucket(Bucket="full")
        limits = f"/admin/limits/{server.call('GET', '/me', expect=200).json()['org_id']}"
        put(s3, "full", "first", body=bytes(3 * MIB))
        server.call("PATCH", limits, json={"object_gb": 0.005}, expect=200)
        with refused(403, "QuotaExceeded"):
            put(s3, "full", "second", body=bytes(2 * MIB))
        with refused(403, "QuotaExceeded"):
            s3.copy_object(Bucket="full", Key="copy", CopySource="full/first")
        upload = s3.create_multipart_upload(Bucket="full", Key="parts")["UploadId"]
        with refused(403, "QuotaExceeded"):
            s3.upload_part(Bucket="full", Key="parts", UploadId=upload, PartNumber=1, Body=bytes(2 * MIB))
        s3.abort_multipart_upload(Bucket="full", Key="parts", UploadId=upload)
        put(s3, "full", "small", body=bytes(MIB))
        put(other, "full", "theirs", body=bytes(6 * MIB))
        # Lowered below the usage: nothing is lost, and nothing is added.
        server.call("PATCH", limits, json={"object_gb": 0.001}, expect=200)
        assert len(read(s3, "full", "first")) == 3 * MIB
        with refused(403, "QuotaExceeded"):
            put(s3, "full", "tiny", body=b"x")
        server.call("DELETE", limits, expect=200)
        put(s3, "full", "second", body=bytes(2 * MIB))


@needs_root
def test_full_disk_refuses_and_recovers(small_disk, tmp_path):
    """A full disk refuses writes, keeps the objects, and recovers."""
    assert os.path.ismount(small_disk), "fill only the small disk"
    ballast = small_disk / "ballast"
    # The default reserve would be larger than this disk.
    config = tmp_path / "tarn.toml"
    config.write_text("[object_storage]\nreserve_mb = 0\n")
    with Server(small_disk, "--config", config) as server:
        s3 = enable(server).client()
        s3.create_bucket(Bucket="full")
        put(s3, "full", "small", body=b"small")
        put(s3, "full", "large", body=b"x" * MIB)
        with open(ballast, "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            for _ in range(20_000):
                file.write(b"\0" * 4096)
        for size in (2 * MIB, 100_000):
            with pytest.raises(s3.exceptions.ClientError) as caught:
                put(s3, "full", f"more-{size}", body=b"y" * size)
            answer = caught.value.response
            assert answer["ResponseMetadata"]["HTTPStatusCode"] in (503, 507), answer
            assert answer["Error"]["Code"] and str(small_disk) not in str(answer), answer
        for key, content in (("small", b"small"), ("large", b"x" * MIB)):
            assert read(s3, "full", key) == content
        assert [each["Key"] for each in s3.list_objects_v2(Bucket="full")["Contents"]] == ["large", "small"]

        ballast.unlink()
        put(s3, "full", "again", body=b"z" * 2 * MIB)
        files = lambda: data_files(small_disk)  # noqa: E731
        eventually(lambda: len(files()) == 2, what="the removal of incomplete files")
        server.stop()
        server.start()
        assert read(s3, "full", "again") == b"z" * 2 * MIB
        server.stop()


@needs_root
def test_reserve_of_disk_is_kept(small_disk, tmp_path):
    """Writes are refused when they would use the reserve of the disk."""
    assert os.path.ismount(small_disk), "fill only the small disk"
    config = tmp_path / "tarn.toml"
    config.write_text("[object_storage]\nreserve_mb = 0\n")
    with Server(small_disk, "--config", config) as server:
        s3 = enable(server).client()
        s3.create_bucket(Bucket="full")
        put(s3, "full", "before", body=b"x" * MIB)
        server.stop()
    # The default reserve is larger than this disk.
    with Server(small_disk) as server:
        s3 = enable(server).client()
        upload = s3.create_multipart_upload(Bucket="full", Key="parts")["UploadId"]
        for attempt in (
            lambda: put(s3, "full", "large", body=b"x" * MIB),
            lambda: put(s3, "full", "small", body=b"x"),
            lambda: put(s3, "full", "empty", body=b""),
            lambda: s3.upload_part(Bucket="full", Key="parts", UploadId=upload, PartNumber=1, Body=b"x"),
            lambda: s3.copy_object(Bucket="full", Key="again", CopySource="full/before", ChecksumAlgorithm="SHA256"),
        ):
            with refused(507, "InsufficientStorage"):
                attempt()
        assert keys_of(s3.list_objects_v2(Bucket="full")) == ["before"]
        assert read(s3, "full", "before") == b"x" * MIB
        s3.delete_object(Bucket="full", Key="before")
        files = lambda: data_files(small_disk)  # noqa: E731
        eventually(lambda: not files(), what="the end of all files")
        server.stop()
