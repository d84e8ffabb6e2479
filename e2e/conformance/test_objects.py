"""Object storage with common clients: the stock client's buckets, boto3, rclone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from objects import MIB, complete, keys_of, md5, put, read, refused, upload_parts

from .engine import TIMEOUT_SECONDS


def test_stock_client_buckets(tp, account, bucket):
    """The stock client creates, lists and deletes buckets."""
    shown = tp("object-storage", "credentials").text
    assert account.access_key in shown and account.endpoint in shown
    tp("object-storage", "bucket", "create", bucket)
    assert bucket in tp("object-storage", "bucket", "list").text.splitlines()
    tp("object-storage", "bucket", "create", bucket, refused=True)
    tp("object-storage", "bucket", "create", "Not A Bucket", refused=True)
    put(account.client(), bucket, "key")
    tp("object-storage", "bucket", "delete", bucket, refused=True)
    account.client().delete_object(Bucket=bucket, Key="key")
    tp("object-storage", "bucket", "delete", bucket)
    assert bucket not in tp("object-storage", "bucket", "list").text.splitlines()
    tp("object-storage", "bucket", "delete", bucket, refused=True)


def test_boto3_reads_and_writes(account, bucket):
    """boto3 writes, lists, reads, copies and deletes objects."""
    s3 = account.client()
    s3.create_bucket(Bucket=bucket)
    put(s3, bucket, "a/1", "a/2", "b", "ü 日本語")
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == ["a/1", "a/2", "b", "ü 日本語"]
    assert keys_of(s3.list_objects_v2(Bucket=bucket, Prefix="a/")) == ["a/1", "a/2"]
    assert read(s3, bucket, "b") == b"b" and s3.head_object(Bucket=bucket, Key="b")["ETag"] == md5(b"b")
    assert read(s3, bucket, "ü 日本語", Range="bytes=0-1") == "ü".encode()
    contents = [os.urandom(5 * MIB), b"the last part may be small"]
    complete(s3, bucket, "large", *upload_parts(s3, bucket, "large", contents))
    assert read(s3, bucket, "large") == b"".join(contents)
    s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "b"})
    assert read(s3, bucket, "copy") == b"b"
    s3.delete_object(Bucket=bucket, Key="b")
    with refused(404, "NoSuchKey"):
        read(s3, bucket, "b")


def test_wrong_secret_is_refused(account, bucket):
    """A wrong secret is refused."""
    stranger = type(account)(account.endpoint, account.access_key, "x" * 40, account.region)
    with refused(403, "SignatureDoesNotMatch"):
        stranger.client().list_buckets()


def test_rclone_syncs(tp, engine, bucket, account, tmp_path):
    """rclone syncs with the section that the stock client writes, and needs no flag to relax its checks."""
    beside = Path(sys.executable).with_name("rclone")
    program = str(beside) if beside.exists() else shutil.which("rclone")
    if not program:
        pytest.skip("rclone is missing here")
    assert "[tp]" in tp("object-storage", "configure", "rclone").text

    places = {"HOME": str(tp.home), "XDG_CONFIG_HOME": str(tp.home / ".config")}

    def rclone(*arguments) -> str:
        done = subprocess.run(
            [program, *map(str, arguments)], env=engine.environment | places,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {done}"
        return done.stdout + done.stderr

    tree = tmp_path / "tree"
    (tree / "deep er").mkdir(parents=True)
    for number in range(20):
        (tree / "deep er" / f"file-{number}").write_bytes(os.urandom(number * 1000))
    (tree / "large").write_bytes(os.urandom(7 * MIB))
    rclone("mkdir", f"tp:{bucket}")
    rclone("sync", tree, f"tp:{bucket}/tree")
    assert "0 differences found" in rclone("check", "--download", tree, f"tp:{bucket}/tree")
    assert "0 differences found" in rclone("check", tree, f"tp:{bucket}/tree")
    rclone("copy", f"tp:{bucket}/tree", tmp_path / "back")
    assert "0 differences found" in rclone("check", tree, tmp_path / "back")
