"""Tenants of one object storage: the same names, nothing shared; and rotated keys."""

import pytest

from objects import Account, bucket, enable, new_bucket, new_tenant, own_storage, put, read, refused, s3  # noqa: F401


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """A separate server, with two tenants."""
    with own_storage(tmp_path_factory.mktemp("tenants")) as running:
        yield running


@pytest.fixture(scope="module")
def theirs(storage):
    """boto3 for the other tenant."""
    return storage.other.client()


def test_tenants_may_use_same_bucket_name(s3, theirs):
    """Two tenants may use the same bucket name for different buckets."""
    for client, content in ((s3, b"ours"), (theirs, b"theirs")):
        client.create_bucket(Bucket="shared-name")
        put(client, "shared-name", "key", body=content * 10_000)
        put(client, "shared-name", content.decode())
    assert read(s3, "shared-name", "key") == b"ours" * 10_000
    assert read(theirs, "shared-name", "key") == b"theirs" * 10_000
    with refused(404, "NoSuchKey"):
        read(theirs, "shared-name", "ours")
    s3.delete_objects(Bucket="shared-name", Delete={"Objects": [{"Key": "key"}, {"Key": "ours"}]})
    s3.delete_bucket(Bucket="shared-name")
    assert read(theirs, "shared-name", "key") == b"theirs" * 10_000


def test_other_tenant_sees_no_bucket(s3, theirs, new_bucket):
    """To another tenant a bucket and its uploads do not exist."""
    bucket = new_bucket()
    version = s3.put_object(Bucket=bucket, Key="key", Body=b"secret").get("VersionId", "null")
    upload = s3.create_multipart_upload(Bucket=bucket, Key="key")["UploadId"]
    assert bucket not in [each["Name"] for each in theirs.list_buckets()["Buckets"]]
    place = {"Bucket": bucket, "Key": "key"}
    attempts = [
        lambda: theirs.list_objects_v2(Bucket=bucket),
        lambda: theirs.list_multipart_uploads(Bucket=bucket),
        lambda: theirs.get_object(**place),
        lambda: theirs.get_object(**place, VersionId=version),
        lambda: theirs.put_object(**place, Body=b"x"),
        lambda: theirs.delete_object(**place),
        lambda: theirs.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"x"),
        lambda: theirs.abort_multipart_upload(**place, UploadId=upload),
        lambda: theirs.delete_bucket(Bucket=bucket),
        lambda: theirs.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}),
    ]
    for attempt in attempts:
        with refused(404, "NoSuchBucket"):
            attempt()
    theirs.create_bucket(Bucket="their-own-place")
    with refused(404, "NoSuchBucket"):
        theirs.copy_object(Bucket="their-own-place", Key="loot", CopySource=f"{bucket}/key")
    # The same bucket name does not open the other tenant's uploads either.
    theirs.create_bucket(Bucket=bucket)
    with refused(404, "NoSuchUpload"):
        theirs.upload_part(**place, UploadId=upload, PartNumber=1, Body=b"x")
    for name in (bucket, "their-own-place"):
        theirs.delete_bucket(Bucket=name)
    assert read(s3, bucket, "key") == b"secret"


def test_rotated_keys_revoke_old_keys(storage):
    """Rotated keys revoke the old ones at once, also on open connections and in presigned URLs."""
    server = storage.server
    key = new_tenant(server, "rotating")
    old = enable(server, key)
    kept = old.client()
    kept.create_bucket(Bucket="kept")
    put(kept, "kept", "key")
    url = kept.generate_presigned_url("get_object", Params={"Bucket": "kept", "Key": "key"})
    said = server.call("POST", "/object-storage/rotate-keys", key=key, expect=200).json()
    new = Account(said["endpoint"], said["access_key_id"], said["secret_access_key"], said["region"])
    assert new.secret_key != old.secret_key
    # Also on the open connection.
    for client in (kept, old.client()):
        with refused(403, "InvalidAccessKeyId", "SignatureDoesNotMatch"):
            read(client, "kept", "key")
    assert server.session.get(url, timeout=30).status_code == 403
    assert read(new.client(), "kept", "key") == b"key"
    assert enable(server, key) == new
    storage.account.client().list_buckets()


def test_disabled_member_loses_access(storage):
    """The key of a disabled member, and URLs that were signed with it, open nothing; the others' keys do."""
    server = storage.server
    key = new_tenant(server, "disabling")
    org = server.call("GET", "/user/organization/info", key=key, expect=200).json()["org_name"]
    body = {"email": "leaving@example.org", "org_name": org}
    member = server.call("POST", "/admin/user/create", json=body, expect=200).json()
    ours, theirs = enable(server, key).client(), enable(server, member["api_key"]).client()
    ours.create_bucket(Bucket="kept")
    put(theirs, "kept", "key")
    url = theirs.generate_presigned_url("get_object", Params={"Bucket": "kept", "Key": "key"})
    assert server.session.get(url, timeout=30).status_code == 200
    server.call("POST", f"/admin/user/disable/{member['user_id']}", expect=200)
    with refused(403, "InvalidAccessKeyId"):
        read(theirs, "kept", "key")
    assert server.session.get(url, timeout=30).status_code == 403
    assert read(ours, "kept", "key") == b"key"


def test_revoked_key_opens_nothing(storage):
    """A revoked key and its presigned URLs open nothing; the member's other key does."""
    server = storage.server
    key = new_tenant(server, "revoking")
    first = enable(server, key)
    said = server.call("POST", "/object-storage/keys/create", key=key, json={"name": "second"}, expect=200).json()
    second = Account(said["endpoint"], said["access_key_id"], said["secret_access_key"], said["region"]).client()
    client = first.client()
    client.create_bucket(Bucket="kept")
    put(client, "kept", "key")
    url = client.generate_presigned_url("get_object", Params={"Bucket": "kept", "Key": "key"})
    server.call("DELETE", f"/object-storage/keys/revoke/{first.access_key}", key=key, expect=200)
    with refused(403, "InvalidAccessKeyId"):
        client.list_buckets()
    assert server.session.get(url, timeout=30).status_code == 403
    assert read(second, "kept", "key") == b"key"


def test_forced_disable_removes_everything(storage):
    """A forced disable removes buckets and objects."""
    server = storage.server
    key = new_tenant(server, "leaving")
    client = enable(server, key).client()
    before = storage.files()
    client.create_bucket(Bucket="full")
    put(client, "full", "large", body=b"x" * 100_000)
    put(client, "full", "small")
    assert server.call("DELETE", "/object-storage/disable", key=key).status_code == 409
    assert read(client, "full", "small") == b"small"
    server.call("DELETE", "/object-storage/disable?force=true", key=key, expect=200)
    with refused(403, "InvalidAccessKeyId"):
        client.list_buckets()
    again = enable(server, key).client()
    assert again.list_buckets()["Buckets"] == []
    # A later sweep may remove the files, which the crash test checks.
    assert len(storage.files() - before) <= 1


def test_restart_keeps_keys_and_objects(tmp_path):
    """A restart keeps keys and objects."""
    with own_storage(tmp_path) as storage:
        client = storage.account.client()
        client.create_bucket(Bucket="kept")
        put(client, "kept", "large", body=b"x" * 100_000)
        put(client, "kept", "small")
        storage.server.stop()
        storage.server.start()
        assert enable(storage.server) == storage.account
        assert read(client, "kept", "large") == b"x" * 100_000
        assert read(client, "kept", "small") == b"small"
