"""Object storage under test: an engine of ours, or any other S3. Start reading at `Storage`.

`TARN_TEST_S3_ENDPOINT`, `TARN_TEST_S3_ACCESS_KEY` and `TARN_TEST_S3_SECRET_KEY` (and `TARN_TEST_S3_REGION`) point the
tests of the S3 API, `test_objects_api_*.py`, at another S3, to check that they expect what other servers do.
"""

import contextlib
import functools
import hashlib
import itertools
import os
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from support import Server, eventually

EXTERNAL_ENDPOINT = os.environ.get("TARN_TEST_S3_ENDPOINT")
KIB, MIB = 1 << 10, 1 << 20
# An object of up to this size is stored in the database; a larger one is a file.
INLINE = 16 * KIB
# The minimum size of a part that is not the last one.
PART = 5 * MIB
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Account:
    """Credentials and address of an S3 account."""

    endpoint: str
    access_key: str
    secret_key: str
    region: str

    def client(self, kind=boto3.client, **options):
        """boto3 with its defaults, but without retries, which could hide a failure."""
        s3 = {"addressing_style": "path"} | options.pop("s3", {})
        settings = {"retries": {"total_max_attempts": 1}, "max_pool_connections": 32, "proxies": {}} | options
        return kind(
            "s3", endpoint_url=self.endpoint, region_name=self.region, aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key, config=Config(s3=s3, **settings),
        )  # fmt: skip


@dataclass(eq=False)
class Storage:
    """What the tests of a module share: an account, another tenant's account, and the server if it is ours."""

    account: Account
    other: Account | None = None
    server: Server | None = None

    def files(self) -> set[Path]:
        """The data files of the objects."""
        return data_files(self.server.data)

    def existing(self) -> set[tuple[Account, str]]:
        """The buckets of both accounts. Starts the server again if a test has ended it."""
        if self.server and self.server.process.poll() is not None:
            self.server.start()
        listed = {account: client.list_buckets()["Buckets"] for account, client in self.clients.items()}
        return {(account, bucket["Name"]) for account, buckets in listed.items() for bucket in buckets}

    def remove_except(self, kept: set[tuple[Account, str]]):
        """Removes all buckets except these."""
        for account, name in self.existing() - kept:
            remove_bucket(self.clients[account], name)

    @functools.cached_property
    def clients(self) -> dict[Account, object]:
        """boto3 for each account."""
        return {account: account.client() for account in (self.account, self.other) if account}


def data_files(data: Path) -> set[Path]:
    """The files below the object directory."""
    return {path for path in (data / "objects").glob("??/*") if path.is_file()}


def enable(server: Server, key: str | None = None) -> Account:
    """Enables object storage for the key's organization. Waits if it is still being emptied."""

    def enabled():
        answer = server.call("POST", "/object-storage/enable", key=key)
        assert answer.status_code == 200 or answer.json()["code"] == "object_storage_closing", answer.text
        return answer.ok and answer.json()

    answer = eventually(enabled, what="object storage")
    return Account(answer["endpoint"], answer["access_key_id"], answer["secret_access_key"], answer["region"])


def give_legacy_key(server: Server, access_key: str):
    """Gives every organization with object storage a key that its members share, as before keys belonged to users."""
    server.stop()
    with contextlib.closing(sqlite3.connect(server.data / "tarn.db")) as database, database:
        database.execute("update accounts set legacy_key = ? where org_id <> 'o-000000000000'", [access_key])
    server.start()


def new_tenant(server: Server, name: str) -> str:
    """The API key of a user in a new organization."""
    name = f"{name}-{next(_numbers)}"
    body = {"email": f"{name}@example.org", "org_name": name}
    return server.call("POST", "/admin/user/create", json=body, expect=200).json()["api_key"]


@contextlib.contextmanager
def own_storage(directory: Path, *options, settings=""):
    """A server with two tenants. Its stop is checked; its data is removed, also after a failure."""
    if settings:
        (directory / "tarn.toml").write_text(settings)
        options = ("--config", directory / "tarn.toml", *options)
    data = directory / "data"
    try:
        with Server(data, *options) as server:
            yield Storage(enable(server), enable(server, new_tenant(server, "other")), server)
            server.stop()
            # Shown only for a failed test.
            print(server.output()[-8000:])
    finally:
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """One storage for the whole file: each test uses its own buckets."""
    if EXTERNAL_ENDPOINT:
        keys = (os.environ["TARN_TEST_S3_ACCESS_KEY"], os.environ["TARN_TEST_S3_SECRET_KEY"])
        yield Storage(Account(EXTERNAL_ENDPOINT, *keys, os.environ.get("TARN_TEST_S3_REGION", "us-east-1")))
    else:
        with own_storage(tmp_path_factory.mktemp("objects")) as running:
            yield running


@pytest.fixture(scope="module")
def s3(storage):
    """boto3 for the account."""
    return storage.account.client()


@pytest.fixture
def new_bucket(s3):
    """Creates buckets: `new_bucket()` returns an unused name. They are emptied and removed at the end."""
    made = []

    def create(client=s3, versioned=False) -> str:
        name = f"bucket-{os.getpid()}-{next(_numbers)}"
        client.create_bucket(Bucket=name)
        if versioned:
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        made.append((client, name))
        return name

    yield create
    for client, name in made:
        remove_bucket(client, name)


@pytest.fixture
def bucket(new_bucket):
    """A new bucket."""
    return new_bucket()


@pytest.fixture
def versioned(new_bucket):
    """A new bucket with versioning."""
    return new_bucket(versioned=True)


def remove_bucket(client, name: str):
    """Empties a bucket and removes it. A bucket that a test has removed is ignored."""
    try:
        for upload in client.list_multipart_uploads(Bucket=name).get("Uploads", []):
            client.abort_multipart_upload(Bucket=name, Key=upload["Key"], UploadId=upload["UploadId"])
        for page in client.get_paginator("list_object_versions").paginate(Bucket=name):
            listed = page.get("Versions", []) + page.get("DeleteMarkers", [])
            if doomed := [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in listed]:
                client.delete_objects(Bucket=name, Delete={"Objects": doomed, "Quiet": True})
        client.delete_bucket(Bucket=name)
    except client.exceptions.NoSuchBucket:
        pass


@contextlib.contextmanager
def refused(status: int, *codes: str):
    """Expects an error with this status and one of these codes; responses to HEAD have no body and therefore no
    code."""
    with pytest.raises(ClientError) as caught:
        yield caught
    answer = caught.value.response
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == status, answer
    assert not codes or answer["Error"]["Code"] in codes, answer


def put(client, bucket: str, *keys: str, body=None):
    """Writes objects whose content is their key unless it is given."""
    for key in keys:
        client.put_object(Bucket=bucket, Key=key, Body=key if body is None else body)


def read(client, bucket: str, key: str, **options) -> bytes:
    """The content of an object."""
    return client.get_object(Bucket=bucket, Key=key, **options)["Body"].read()


def keys_of(page: dict) -> list[str]:
    """The keys of a page of a listing."""
    return [each["Key"] for each in page.get("Contents", [])]


def prefixes_of(page: dict) -> list[str]:
    """The common prefixes of a page of a listing."""
    return [each["Prefix"] for each in page.get("CommonPrefixes", [])]


def md5(content: bytes) -> str:
    """The ETag, with its quotes, of an object in one piece."""
    return f'"{hashlib.md5(content).hexdigest()}"'


def upload_parts(client, bucket: str, key: str, contents: list[bytes], **options) -> tuple[str, list[dict]]:
    """Starts a multipart upload and sends its parts; returns its id and the list for its completion."""
    upload = client.create_multipart_upload(Bucket=bucket, Key=key, **options)["UploadId"]
    parts = []
    for number, content in enumerate(contents, 1):
        sent = client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=content)
        parts.append({"PartNumber": number, "ETag": sent["ETag"]})
    return upload, parts


def complete(client, bucket: str, key: str, upload: str, parts: list[dict], **options) -> dict:
    """Completes a multipart upload."""
    return client.complete_multipart_upload(
        Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts}, **options
    )
