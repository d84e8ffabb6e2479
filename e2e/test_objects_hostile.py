"""Malicious input, and clients that vanish: S3 errors, nothing lost, nothing left."""

import contextlib
import hashlib
import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from objects import MIB, bucket, keys_of, new_bucket, own_storage, put, read, refused, s3  # noqa: F401
from objects_wire import UNSIGNED, Wire
from support import eventually

# How many calls of an organization may send a body at once.
TURNS = 64


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """A separate server, whose files are inspected."""
    with own_storage(tmp_path_factory.mktemp("hostile")) as running:
        yield running


@pytest.fixture
def wire(storage):
    """A plain connection with the account."""
    return Wire(storage.account)


@pytest.fixture
def nothing_left(storage, s3, bucket):
    """After the test the bucket is empty, there is no new file, and the server works."""
    before = storage.files()
    yield
    assert keys_of(s3.list_objects_v2(Bucket=bucket)) == []
    eventually(lambda: storage.files() <= before, what="the end of the files")
    put(s3, bucket, "afterwards")
    assert read(s3, bucket, "afterwards") == b"afterwards"
    assert "panicked" not in storage.server.output()


def connect(storage) -> socket.socket:
    """A connection to S3."""
    address = urlsplit(storage.account.endpoint)
    return socket.create_connection((address.hostname, address.port), timeout=60)


def head_of(signed, method: str, path: str, length: int) -> bytes:
    """The head of a call as it is sent."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in signed.headers.items())]
    return "\r\n".join([*lines, f"content-length: {length}", "", ""]).encode()


def test_slow_tenant_does_not_block_others(storage, wire, s3, bucket, new_bucket, nothing_left):
    """A tenant with many slow uploads does not block the uploads of another tenant."""
    before = storage.files()
    other = storage.other.client()
    theirs = new_bucket(other)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connect(storage)) for _ in range(TURNS)]
        for number, connection in enumerate(slow):
            path = f"/{bucket}/slow-{number}"
            signed = wire.sign("PUT", path, payload=UNSIGNED)
            connection.sendall(head_of(signed, "PUT", path, MIB) + b"x" * 700_000)
        eventually(lambda: len(storage.files() - before) == TURNS, what="files that grow")
        with ThreadPoolExecutor(1) as threads:
            one_more = threads.submit(put, s3, bucket, "one-more")
            for _ in range(10):
                put(other, theirs, "key")
            assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0, "reading works, and one more upload waits"
            assert not one_more.done()
            slow.pop().close()
            one_more.result(60)
    s3.delete_object(Bucket=bucket, Key="one-more")


@pytest.mark.parametrize("sent", [0, 10, 100_000, 3 * MIB])
def test_aborted_put_leaves_nothing(storage, wire, bucket, nothing_left, sent):
    """A put whose connection closes leaves nothing."""
    path = f"/{bucket}/key"
    with connect(storage) as connection:
        signed = wire.sign("PUT", path, payload=UNSIGNED)
        connection.sendall(head_of(signed, "PUT", path, sent + 1000) + b"x" * sent)
        if sent > MIB:
            eventually(lambda: storage.files(), what="a file that grows")


def test_aborted_put_keeps_old_object(storage, wire, s3, bucket):
    """A put whose connection closes keeps the old object."""
    put(s3, bucket, "key", body=b"old" * 10_000)
    before = storage.files()
    with connect(storage) as connection:
        signed = wire.sign("PUT", f"/{bucket}/key", payload=UNSIGNED)
        connection.sendall(head_of(signed, "PUT", f"/{bucket}/key", 5 * MIB) + b"x" * MIB)
    eventually(lambda: storage.files() == before, what="the removal of incomplete files")
    assert read(s3, bucket, "key") == b"old" * 10_000


def test_aborted_part_leaves_nothing(storage, wire, s3, bucket, nothing_left):
    """A part whose connection closes leaves nothing."""
    upload = s3.create_multipart_upload(Bucket=bucket, Key="key")["UploadId"]
    with connect(storage) as connection:
        signed = wire.sign("PUT", f"/{bucket}/key", f"partNumber=1&uploadId={upload}", payload=UNSIGNED)
        target = f"/{bucket}/key?partNumber=1&uploadId={upload}"
        connection.sendall(head_of(signed, "PUT", target, 5 * MIB) + b"x" * MIB)
    assert "Parts" not in s3.list_parts(Bucket=bucket, Key="key", UploadId=upload)
    s3.abort_multipart_upload(Bucket=bucket, Key="key", UploadId=upload)


def test_bytes_beyond_length_are_ignored(storage, wire, s3, bucket):
    """Bytes beyond the announced length are not part of the object."""
    path = f"/{bucket}/key"
    with connect(storage) as connection:
        signed = wire.sign("PUT", path, payload=hashlib.sha256(b"12345").hexdigest())
        connection.sendall(head_of(signed, "PUT", path, 5) + b"1234567890" * 10)
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert read(s3, bucket, "key") == b"12345"


@pytest.mark.parametrize("length", ["-1", "abc", "99999999999999999999999", "5, 6"])
def test_invalid_lengths_are_refused(wire, bucket, nothing_left, length):
    """Invalid lengths are refused."""
    signed = wire.sign("PUT", f"/{bucket}/key", payload=UNSIGNED)
    answer = wire.send("PUT", f"/{bucket}/key", headers=signed.headers, body=b"x", length=length)
    assert answer.status in (400, 411), answer


def test_oversized_object_is_refused(wire, bucket, nothing_left):
    """An object beyond the maximum size is refused."""
    signed = wire.sign("PUT", f"/{bucket}/key", payload=UNSIGNED)
    answer = wire.send("PUT", f"/{bucket}/key", headers=signed.headers | {"expect": "100-continue"}, length=(5 << 30) + 1)
    assert answer.outcome == (400, "EntityTooLarge")


@pytest.mark.parametrize("size", [100, 200_000])
def test_refused_put_leaves_no_file(wire, bucket, nothing_left, size):
    """A refused put leaves no file."""
    body = b"x" * size
    assert wire.call("PUT", f"/{bucket}/key", body=body, payload="0" * 64).outcome == (400, "XAmzContentSHA256Mismatch")
    wrong = {"content-md5": "rL0Y20zC+Fzt72VPzMSk2A=="}
    assert wire.call("PUT", f"/{bucket}/key", body=body, headers=wrong).outcome == (400, "BadDigest")
    wrong = {"x-amz-checksum-crc32": "AAAAAA=="}
    assert wire.call("PUT", f"/{bucket}/key", body=body, headers=wrong).outcome == (400, "BadDigest")


BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE bomb [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
<!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;"><!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;"><!ENTITY f "&e;&e;&e;&e;&e;&e;&e;&e;">]>
<Delete><Object><Key>&f;</Key></Object></Delete>"""
OUTSIDE = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY file SYSTEM "file:///etc/hostname">]>
<Delete><Object><Key>&file;</Key></Object></Delete>"""
DEEP = b"<Delete>" + b"<Object>" * 100_000 + b"</Object>" * 100_000 + b"</Delete>"


@pytest.mark.parametrize("body", [BOMB, OUTSIDE, DEEP, b"\xff\xfe", b"<Delete", b"\0" * 100], ids=range(6))
def test_malicious_xml_is_refused(wire, bucket, nothing_left, body):
    """Malicious XML is refused."""
    answer = wire.call("POST", f"/{bucket}", "delete=", body=body)
    assert answer.status == 400 and answer.code in ("MalformedXML", "MaxMessageLengthExceeded"), answer
    assert len(answer.body) < 5000


def test_oversized_xml_is_refused(wire, bucket, nothing_left):
    """Oversized XML is refused."""
    body = b"<Delete>" + b"<Object><Key>x</Key></Object>" * (30 * MIB // 29) + b"</Delete>"
    for path, query in ((f"/{bucket}", "delete="), (f"/{bucket}/key", "tagging="), (f"/{bucket}", "versioning=")):
        answer = wire.call("POST" if query == "delete=" else "PUT", path, query, body=body)
        assert answer.status in (400, 413) and answer.code in ("MalformedXML", "MaxMessageLengthExceeded", "EntityTooLarge"), answer


@pytest.mark.parametrize(
    "target",
    ["/%2e%2e/%2e%2e/etc/passwd", "//", "/?", "/%", "/%zz/key", "/a?%", "/" + "x" * 20_000, "/?list-type=2&list-type=1",
     "/..", "/../../objects", "*", "http://127.0.0.1:1/x"],
)  # fmt: skip
def test_strange_targets_are_refused(storage, wire, target):
    """Strange request targets are refused, and the response names no path of the host."""
    answer = wire.send("GET", target)
    assert 400 <= answer.status < 500, answer
    assert str(storage.server.data).encode() not in answer.body, "the response contains no path of the host"


def test_oversized_headers_are_refused(storage, s3):
    """Oversized or malformed request heads are refused."""
    heads = [
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"".join(b"x-%d: y\r\n" % number for number in range(5000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * MIB + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200,
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ]
    for head in heads:
        with connect(storage) as connection:
            try:
                connection.sendall(head)
                seen = connection.recv(20)
            except ConnectionError:
                continue
            assert seen == b"" or seen.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), (head[:40], seen)
    s3.list_buckets()


def test_keys_never_become_paths(storage, s3, bucket):
    """Keys never become paths in the data directory."""
    before = {path for path in storage.server.data.parent.rglob("*")}
    keys = ["../escape", "/etc/escape", "objects/../../escape", "..%2fescape", "a\\..\\escape"]
    put(s3, bucket, *keys, body=b"x" * 50_000)
    made = {path for path in storage.server.data.parent.rglob("*")} - before
    assert all("escape" not in path.name and storage.server.data in path.parents for path in made), made
    assert len([path for path in made if path.is_file() and "objects" in path.parts]) == len(keys)


def test_errors_have_s3_form(wire, bucket):
    """Errors have the form of S3, with a request ID and escaped text."""
    answer = wire.call("GET", f"/{bucket}/missing%3Cb%3E%26")
    assert answer.outcome == (404, "NoSuchKey")
    assert answer.headers["content-type"] == "application/xml"
    assert b"<RequestId>" in answer.body and answer.headers["x-amz-request-id"].encode() in answer.body
    assert b"<b>" not in answer.body
