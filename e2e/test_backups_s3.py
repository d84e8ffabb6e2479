"""Backups in a bucket: in one of another engine, which any other S3 could be."""

import http.server
import json
import os
import signal
import threading

import pytest

from backups import BUCKET, SECRET, VAULT, BucketBackups, at, put_large, restored_engine, vault
from doctors import doctor_of_engine
from instances import needs_root
from objects import Account, enable, read
from support import Server, eventually, free_port, tarn
from volumes import Volumes

MIB = 1 << 20


@pytest.fixture
def server(tmp_path):
    """A fresh engine, which is backed up."""
    with Server(tmp_path / "data") as running:
        yield running
        running.stop()


@pytest.fixture
def account(server) -> Account:
    """Object storage with a bucket."""
    account = enable(server)
    account.client().create_bucket(Bucket=BUCKET)
    return account


@pytest.fixture
def other(tmp_path):
    """The engine with the bucket of backups, and its account."""
    with vault(tmp_path / "vault") as running:
        yield running


@pytest.fixture
def backups(server, other) -> BucketBackups:
    """A bucket for backups of the engine."""
    return BucketBackups(other[1], server)


def test_backups_in_a_bucket(server, account, backups, tmp_path):
    """A bucket has backups as a directory has: only what is new is sent, older ones are removed, and what is there is
    verified, tried and restored."""
    put_large(account, "first", "second")
    large = os.urandom(20 * MIB)
    account.client().put_object(Bucket=BUCKET, Key="in pieces", Body=large)
    said = backups.make().stdout
    assert "3 files" in said and "verified" in said, said
    put_large(account, "third")
    said = backups.make().stdout
    assert "of which 1 files" in said, said
    account.client().delete_object(Bucket=BUCKET, Key="first")
    backups.make("--keep", 2)
    assert len(backups.names()) == 2 and len(backups.contents()) == 4
    backups.make("--keep", 1)
    (name,) = backups.names()
    assert len(backups.contents()) == 3, "no backup names the other one"
    backups.check_tidy()
    assert "is intact" in backups.verify().stdout
    said = backups.drill("--data", tmp_path).stdout
    assert f"{name} can be restored: 3 files" in said, said
    backups.restore(tmp_path / "new")
    with Server(tmp_path / "new") as restored:
        client = at(restored, account).client()
        assert read(client, BUCKET, "in pieces") == large and read(client, BUCKET, "third") == b"third" * 100_000
        restored.stop()
    assert json.loads((server.data / "last-backup.json").read_text())["directory"] == backups.path
    doctor_of_engine(server).expect_level("ok", "backups.age")
    assert not [*server.data.glob("tarn-backup-scratch-*")]
    # Without a prefix the bucket itself is the place.
    assert "not empty" in tarn("admin", "backup", f"s3://{VAULT}", "--data", server.data, environment=backups.environment | SECRET).stderr
    # Another host with the same bucket needs nothing but the access key.
    options = ["--s3-endpoint", backups.environment["AWS_ENDPOINT_URL"], "--s3-region", "eu-north-1"]
    keys = {name: value for name, value in backups.environment.items() if "KEY" in name}
    assert name in tarn("admin", "backup", "list", backups.path, *options, environment=keys).stdout


def test_damage_in_a_bucket_is_found(server, account, backups, tmp_path):
    """A changed object is found by a verification, which is recorded, and by the next backup, which replaces it."""
    put_large(account, "key", "other")
    backups.make()
    (name,), content = backups.names(), min(key for key in backups.keys() if key.startswith("objects/"))
    backups.damage(content)
    assert content.rpartition("/")[2] in backups.verify("--data", server.data, code=1).stdout
    doctor_of_engine(server).expect_level("warning", "backups.age")
    assert "damaged" in backups.restore(tmp_path / "refused", code=1).stderr
    said = backups.make().stderr
    assert content.rpartition("/")[2] in said and "replaced" in said, said
    backups.verify("--backup", name)
    doctor_of_engine(server).expect_level("ok", "backups.age")
    for file in ("tarn.db", "objects.list", "manifest.json"):
        backups.damage(f"{backups.names()[-1]}/{file}")
        backups.verify("--backup", backups.names()[0] if file == "manifest.json" else backups.names()[-1], code=1)
    assert "damaged" in backups.restore(tmp_path / "refused", "--backup", backups.names()[0], code=1).stderr
    assert not (tmp_path / "refused").exists()
    backups.verify("--backup", name)


@pytest.mark.parametrize("stage", ["tarn-backups.lock", "/begun", "objects/", "/upload-", "/tarn.db"])
def test_killed_backup_to_a_bucket_leaves_nothing(server, account, backups, stage):
    """A backup that is killed at any moment is no backup; the next one begins at once and removes what it left."""
    put_large(account, "kept")
    backups.make()
    for number in range(20):
        put_large(account, *[f"{number}-{index}" for index in range(5)])
        account.client().put_object(Bucket=BUCKET, Key=f"in pieces {number}", Body=os.urandom(24 * MIB))
        known, before = backups.keys(), set(backups.names())
        process = backups.begin()
        while process.poll() is None and not [key for key in backups.keys() - known if stage in key]:
            pass
        process.send_signal(signal.SIGKILL)
        was_killed = process.wait() == -signal.SIGKILL
        for name in set(backups.names()) - before:
            backups.verify("--backup", name)
        if was_killed and set(backups.names()) == before:
            break
    else:
        pytest.fail("no backup could be killed at this stage")
    assert len(backups.names()) >= 1
    backups.make("--keep", 1)
    backups.check_tidy()
    backups.verify()
    assert not [*server.data.glob("tarn-backup-scratch-*")]


def test_unusable_buckets_are_refused(server, account, other, backups, tmp_path):
    """Each mistake has a message that says what to do, and changes nothing."""
    owner = other[1].client()
    wrong = {
        "AWS_SECRET_ACCESS_KEY": ("wrong", "refuses the access key"),
        "AWS_ACCESS_KEY_ID": ("unknown", "refuses the access key"),
        "AWS_ENDPOINT_URL": (f"http://127.0.0.1:{free_port()}", "refused"),
    }
    for name, (value, expected) in wrong.items():
        environment = backups.environment | {name: value} | SECRET
        for command in (["admin", "backup", backups.path, "--data", server.data], ["admin", "backup", "verify", backups.path]):
            done = tarn(*command, environment=environment)
            assert done.returncode == 1 and expected in done.stderr and f"s3://{VAULT}" in done.stderr, done
            assert backups.environment["AWS_SECRET_ACCESS_KEY"] not in done.stderr + done.stdout
    for missing in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        said = backups.make(code=1, environment=SECRET | {missing: ""}).stderr
        assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said, said
    backups.path = "s3://absent/prefix"
    assert "there is no bucket absent" in backups.make(code=1).stderr
    backups.path = f"s3://{VAULT}/"
    owner.put_object(Bucket=VAULT, Key="precious", Body=b"x")
    assert "is not empty" in backups.make(code=1).stderr
    assert "no backups" in tarn("restore", f"s3://{VAULT}/x", "--data", tmp_path / "new", environment=backups.environment).stderr
    listed = owner.list_objects_v2(Bucket=VAULT)["Contents"]
    assert [each["Key"] for each in listed] == ["precious"], "nothing was changed"
    assert not (server.data / "last-backup.json").exists() and not [*server.data.glob("tarn-backup-scratch-*")]


def test_bucket_of_the_same_installation_is_refused(server, account):
    """A backup into the installation that it is of would be lost with it."""
    account.client().create_bucket(Bucket=VAULT)
    backups = BucketBackups(account, server)
    assert "is in the installation that is to be backed up" in backups.make(code=1).stderr
    assert not {key for key in backups.keys() if key != "tarn-backups"}


def test_bucket_belongs_to_one_process(server, account, backups):
    """While a backup runs, no other one uses the bucket, also when the first stands still."""
    put_large(account, "key")
    for number in range(20):
        process = backups.begin()
        while process.poll() is None and "tarn-backups.lock" not in backups.keys():
            pass
        process.send_signal(signal.SIGSTOP)
        if "tarn-backups.lock" in backups.keys():
            break
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == 0
        put_large(account, f"key {number}")
    else:
        pytest.fail("no backup could be stopped while it had the lock")
    try:
        said = backups.make(code=1).stderr
        assert "another process uses the backups" in said and str(process.pid) in said, said
    finally:
        process.send_signal(signal.SIGCONT)
    assert process.wait(60) == 0
    backups.make()
    backups.check_tidy()
    backups.verify()


def test_server_that_restarts_is_waited_for(server, account, other, backups):
    """A backup goes on when the server of its bucket comes back."""
    for number in range(30):
        put_large(account, f"key {number}")
    process = backups.begin()
    eventually(lambda: process.poll() is not None or backups.contents(), what="the first content")
    other[0].kill()
    other[0].start()
    assert process.wait(120) == 0
    assert len(backups.contents()) == 30
    backups.check_tidy()
    backups.verify()


class Unconditional(http.server.BaseHTTPRequestHandler):
    """A server that takes every object, and ignores conditions."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self):  # noqa: N802
        self.respond(200)

    def do_HEAD(self):  # noqa: N802
        self.respond(404)

    def do_GET(self):  # noqa: N802
        self.respond(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")

    def do_POST(self):  # noqa: N802
        self.respond(200, b"<DeleteResult></DeleteResult>")

    def respond(self, status: int, body=b""):
        """Responds to a call, and remembers it."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.calls.append(f"{self.command} {self.path}")
        self.send_response(status)
        self.send_header("ETag", '"d41d8cd98f00b204e9800998ecf8427e"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Keeps quiet."""


def test_server_without_conditions_is_refused(server, account):
    """Where two backups could destroy each other, none is made."""
    stub = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Unconditional)
    stub.calls = []
    threading.Thread(target=stub.serve_forever, daemon=True).start()
    try:
        backups = BucketBackups(Account(f"http://127.0.0.1:{stub.server_port}", "key", "secret", "us-east-1"), server)
        assert "ignores conditions" in backups.make(code=1).stderr
        written = {call for call in stub.calls if call.startswith("PUT")}
        assert written == {f"PUT /{VAULT}/{backups.prefix}/tarn-backups.lock"}, written
    finally:
        stub.shutdown()
        stub.server_close()


@needs_root
def test_volumes_in_a_bucket(tmp_path, other):
    """A volume is sent without its holes, and restored with its data."""
    config = tmp_path / "engine.toml"
    with Volumes(tmp_path) as cloud:
        box, volume = cloud.create("box"), cloud.make_volume("kept")
        cloud.finish(cloud.attach(volume, box["id"], live=True)["request_id"])
        cloud.ssh("box", f"echo on the volume > /mnt/{volume}/file && sync -f /mnt/{volume}/file")
        cloud.finish(cloud.detach(volume, box["id"], live=True)["request_id"])
        backups = BucketBackups(other[1], cloud, "--config", config)
        (copied,) = backups.make_json("--volumes")["volumes"]
        (name,) = backups.names()
        stored = backups.client.head_object(Bucket=VAULT, Key=f"{backups.prefix}/{name}/{volume}.volume")["ContentLength"]
        assert 0 < stored < copied["file"]["bytes"] // 4, (stored, copied)
        backups.verify()
        assert "1 with their data" in backups.restore(tmp_path / "new", "--config", config).stdout
        with restored_engine(tmp_path, config) as restored:
            again = restored.create("again")
            restored.finish(restored.attach(volume, again["id"], live=True)["request_id"])
            assert restored.ssh("again", f"cat /mnt/{volume}/file").out == "on the volume\n"
