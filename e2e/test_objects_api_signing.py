"""Signatures: every form that clients use, and the errors for wrong ones."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
import requests

from objects import bucket, new_bucket, put, read, refused, s3, storage  # noqa: F401
from objects_chunks import checksum, send_chunks
from objects_wire import SIGNED_CHUNKS, SIGNED_CHUNKS_TRAILER, UNSIGNED, UNSIGNED_CHUNKS_TRAILER, Wire

CHUNKS = [b"X" * 70_000, b"Y" * 65_536, b"tail"]
WHOLE = b"".join(CHUNKS)


@pytest.fixture
def wire(storage):
    """A plain connection with the account."""
    return Wire(storage.account)


@pytest.fixture
def browser():
    """An HTTP client without a key."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.mark.parametrize("payload", [None, UNSIGNED], ids=["signed", "unsigned"])
def test_single_body_is_accepted(wire, s3, bucket, payload):
    """A body in one piece is accepted, signed or unsigned."""
    assert wire.call("PUT", f"/{bucket}/key", body=WHOLE, payload=payload).status == 200
    assert read(s3, bucket, "key") == WHOLE


@pytest.mark.parametrize("chunks", [CHUNKS, [b"small"], []], ids=["many", "one", "none"])
def test_signed_chunks_are_accepted(wire, s3, bucket, chunks):
    """Signed chunks are accepted, and `aws-chunked` is not stored."""
    assert send_chunks(wire, f"/{bucket}/key", chunks, SIGNED_CHUNKS).status == 200
    seen = s3.get_object(Bucket=bucket, Key="key")
    assert seen["Body"].read() == b"".join(chunks)
    assert "aws-chunked" not in seen.get("ContentEncoding", ""), "that was only the transfer encoding"


@pytest.mark.parametrize("kind", [SIGNED_CHUNKS_TRAILER, UNSIGNED_CHUNKS_TRAILER])
@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_trailing_checksum_is_verified(wire, s3, bucket, kind, algorithm):
    """A trailing checksum is verified."""
    name = f"x-amz-checksum-{algorithm.lower()}"
    answer = send_chunks(wire, f"/{bucket}/key", CHUNKS, kind, trailer=(name, checksum(algorithm, WHOLE)))
    assert answer.status == 200, answer
    head = s3.head_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
    assert (head[f"Checksum{algorithm}"], head["ContentLength"]) == (checksum(algorithm, WHOLE), len(WHOLE))
    answer = send_chunks(wire, f"/{bucket}/wrong", CHUNKS, kind, trailer=(name, checksum(algorithm, b"other")))
    assert answer.outcome == (400, "BadDigest")
    with refused(404):
        s3.head_object(Bucket=bucket, Key="wrong")


def test_content_encoding_is_kept(wire, s3, bucket):
    """A content encoding beside `aws-chunked` is kept."""
    headers = {"content-encoding": "gzip,aws-chunked"}
    assert send_chunks(wire, f"/{bucket}/key", CHUNKS, SIGNED_CHUNKS, headers=headers).status == 200
    assert s3.head_object(Bucket=bucket, Key="key")["ContentEncoding"] == "gzip"


SPOILS = {
    "first chunk": lambda body: body.replace(b"XXXX", b"XX.X", 1),
    "last chunk": lambda body: body.replace(b"tail", b"tale"),
    "letters swapped": lambda body: body.translate(bytes.maketrans(b"XY", b"YX")),
}


@pytest.mark.parametrize("kind", [SIGNED_CHUNKS, SIGNED_CHUNKS_TRAILER])
@pytest.mark.parametrize("how", SPOILS)
def test_altered_chunk_is_refused(wire, s3, bucket, kind, how):
    """An altered chunk is refused."""
    trailer = ("x-amz-checksum-crc32", checksum("CRC32", WHOLE)) if kind == SIGNED_CHUNKS_TRAILER else None
    answer = send_chunks(wire, f"/{bucket}/key", CHUNKS, kind, trailer=trailer, spoil=SPOILS[how])
    assert answer.outcome == (403, "SignatureDoesNotMatch")
    with refused(404):
        s3.head_object(Bucket=bucket, Key="key")


def test_altered_trailer_is_refused(wire, s3, bucket):
    """An altered trailer is refused."""
    right, wrong = checksum("CRC32", WHOLE), checksum("CRC32", b"other")
    answer = send_chunks(
        wire, f"/{bucket}/key", CHUNKS, SIGNED_CHUNKS_TRAILER, trailer=("x-amz-checksum-crc32", right),
        spoil=lambda body: body.replace(right.encode(), wrong.encode()),
    )  # fmt: skip
    assert answer.status in (400, 403) and answer.code in ("SignatureDoesNotMatch", "BadDigest"), answer
    with refused(404):
        s3.head_object(Bucket=bucket, Key="key")


BROKEN = {
    "cut short": lambda body: body[: len(body) // 2],
    "no end": lambda body: body[: body.rindex(b"0;chunk-signature")],
    "no size": lambda body: b"xyz" + body,
    "huge size": lambda body: b"ffffffffffffffffffff" + body,
    "a chunk left out": lambda body: body[body.index(b"10000;") :],
}


@pytest.mark.parametrize("how", BROKEN)
def test_malformed_chunks_are_refused(wire, s3, bucket, how):
    """Malformed chunks are refused."""
    answer = send_chunks(wire, f"/{bucket}/key", CHUNKS, SIGNED_CHUNKS, spoil=BROKEN[how])
    assert answer.status in (400, 403) and answer.code, answer
    with refused(404):
        s3.head_object(Bucket=bucket, Key="key")


@pytest.mark.parametrize("length", ["5", "99999999", "abc", "-1", None])
def test_wrong_decoded_length_is_refused(wire, s3, bucket, length):
    """A wrong decoded length is refused."""
    headers = {"content-encoding": "aws-chunked"} | ({"x-amz-decoded-content-length": length} if length else {})
    signed = wire.sign("PUT", f"/{bucket}/key", headers=headers, payload=UNSIGNED_CHUNKS_TRAILER)
    answer = wire.send("PUT", f"/{bucket}/key", headers=signed.headers, body=b"4\r\nbody\r\n0\r\n\r\n")
    assert answer.status in (400, 411) and answer.code, answer
    with refused(404):
        s3.head_object(Bucket=bucket, Key="key")


def test_unauthenticated_calls_are_refused(storage, wire, bucket):
    """Calls without a signature, with an unknown key or with a wrong secret are refused."""
    assert wire.send("GET", f"/{bucket}").outcome == (403, "AccessDenied")
    assert wire.send("PUT", f"/{bucket}/key", body=b"x").outcome == (403, "AccessDenied")
    unknown = Wire(replace(storage.account, access_key="AKIDUNKNOWN000000000"))
    assert unknown.call("GET", f"/{bucket}").outcome == (403, "InvalidAccessKeyId")
    guessed = Wire(replace(storage.account, secret_key="wrong"))
    assert guessed.call("GET", f"/{bucket}").outcome == (403, "SignatureDoesNotMatch")
    assert guessed.call("PUT", f"/{bucket}/key", body=b"x" * 50_000).outcome == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize("hours", [-1, 1, -24 * 365])
def test_skewed_clock_is_refused(wire, bucket, hours):
    """A signature that is an hour off is refused."""
    answer = wire.call("GET", f"/{bucket}", at=datetime.now(UTC) + timedelta(hours=hours))
    assert answer.outcome == (403, "RequestTimeTooSkewed")


def test_slightly_skewed_clock_is_accepted(wire, bucket):
    """A signature that is ten minutes off is accepted."""
    for minutes in (-10, 10):
        assert wire.call("GET", f"/{bucket}", at=datetime.now(UTC) + timedelta(minutes=minutes)).status == 200


@pytest.mark.parametrize("region", ["us-east-1", "anywhere", "eu.west.1", "us_east_1", "US", "My.Own_Region-1"])
def test_any_signing_region_is_accepted(wire, bucket, region):
    """Any region in a signature is accepted, also with signed chunks and in URLs."""
    assert wire.call("GET", f"/{bucket}", region=region).status == 200
    assert send_chunks(wire, f"/{bucket}/key", CHUNKS, SIGNED_CHUNKS, region=region).status == 200
    assert wire.send("GET", wire.presign("GET", f"/{bucket}/key", region=region)).body == WHOLE
    altered = wire.presign("GET", f"/{bucket}/key", region=region).replace("/key", "/other")
    assert wire.send("GET", altered).outcome == (403, "SignatureDoesNotMatch")


@pytest.mark.parametrize(
    "header", ["", "nonsense", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=c",
               "AWS a:b", "Bearer x", "AWS4-HMAC-SHA256 " + "x" * 5000]
)  # fmt: skip
def test_malformed_authorization_is_refused(wire, bucket, header):
    """A malformed authorization is refused."""
    headers = wire.sign("GET", f"/{bucket}").headers | {"authorization": header}
    answer = wire.send("GET", f"/{bucket}", headers=headers)
    assert answer.status in (400, 403) and answer.code, answer


def test_altered_signed_call_is_refused(wire, s3, bucket):
    """A signed call whose method, path, query or headers are altered is refused."""
    put(s3, bucket, "key", "other")
    signed = wire.sign("GET", f"/{bucket}/key", headers={"range": "bytes=0-1"})
    assert wire.send("GET", f"/{bucket}/key", headers=signed.headers).status == 206
    for method, path in (("GET", f"/{bucket}/other"), ("DELETE", f"/{bucket}/key"), ("GET", f"/{bucket}/key?partNumber=1")):
        assert wire.send(method, path, headers=signed.headers).outcome == (403, "SignatureDoesNotMatch")
    changed = signed.headers | {"range": "bytes=0-2"}
    assert wire.send("GET", f"/{bucket}/key", headers=changed).outcome == (403, "SignatureDoesNotMatch")
    assert read(s3, bucket, "key") == b"key"


def test_boto3_presigned_urls_work(s3, bucket, browser):
    """URLs that boto3 presigns work for their method and headers only."""
    place = {"Bucket": bucket, "Key": "a b/ü"}
    url = s3.generate_presigned_url("put_object", Params=place | {"ContentType": "text/plain"}, ExpiresIn=60)
    assert browser.put(url, data=b"content", headers={"Content-Type": "text/plain"}).status_code == 200
    assert browser.put(url, data=b"other", headers={"Content-Type": "image/png"}).status_code == 403
    options = {"ResponseContentDisposition": "attachment; filename=x", "ResponseContentType": "text/html"}
    url = s3.generate_presigned_url("get_object", Params=place | options, ExpiresIn=60)
    # Some clients send a content type with every call.
    answer = browser.get(url, headers={"Content-Type": "application/octet-stream"})
    assert (answer.status_code, answer.content) == (200, b"content")
    assert answer.headers["Content-Disposition"] == "attachment; filename=x"
    assert answer.headers["Content-Type"] == "text/html"
    assert browser.head(url).status_code == 403
    assert browser.delete(url).status_code == 403
    assert browser.get(url, headers={"Range": "bytes=0-2"}).content == b"con"
    assert read(s3, bucket, "a b/ü") == b"content"


def test_presigned_url_expires(wire, s3, bucket):
    """A presigned URL is valid for its time."""
    put(s3, bucket, "key")
    hour, path = timedelta(hours=1), f"/{bucket}/key"
    now = datetime.now(UTC)
    assert wire.send("GET", wire.presign("GET", path, seconds=7200, at=now - hour)).body == b"key"
    assert wire.send("GET", wire.presign("GET", path, seconds=60, at=now - hour)).outcome == (403, "AccessDenied")
    early = wire.send("GET", wire.presign("GET", path, at=now + hour))
    assert early.status == 403 and early.code in ("AccessDenied", "RequestTimeTooSkewed"), early
    for seconds in (604_801, -1, "x"):
        answer = wire.send("GET", wire.presign("GET", path, seconds=seconds))
        assert answer.outcome == (400, "AuthorizationQueryParametersError"), seconds


def test_altered_presigned_url_is_refused(wire, s3, bucket):
    """An altered presigned URL is refused."""
    put(s3, bucket, "key", "other")
    url = wire.presign("GET", f"/{bucket}/key")
    assert wire.send("GET", url).status == 200
    for altered in (url.replace("/key", "/other"), url.replace("Expires=60", "Expires=61"), url[:-1] + "0", url + "&a=b"):
        if altered != url:
            assert wire.send("GET", altered).outcome == (403, "SignatureDoesNotMatch"), altered
    for method in ("PUT", "DELETE", "HEAD"):
        assert wire.send(method, url).status == 403
    start, signature = url.split("X-Amz-Signature=")
    for altered in ("", signature[1:], signature + "0", signature.upper() + "Z", "z" * 64, f"{signature}&X-Amz-Signature={signature}"):
        answer = wire.send("GET", f"{start}X-Amz-Signature={altered}")
        assert answer.outcome == (403, "SignatureDoesNotMatch"), altered
    for removed in (url.replace("X-Amz-Signature", "X-Amz-Other"), start.rstrip("&?")):
        assert wire.send("GET", removed).outcome == (403, "SignatureDoesNotMatch"), removed


def test_virtual_host_addressing_works(storage, wire, bucket, new_bucket):
    """Buckets are also addressed by host name."""
    address = urlsplit(storage.account.endpoint)
    for name in (bucket, new_bucket()):
        host = {"host": f"{name}.localhost:{address.port}"}
        assert wire.call("PUT", "/a%20b//c", body=name.encode(), headers=host).status == 200
        assert wire.call("GET", "/a%20b//c", headers=host).body == name.encode()
        assert wire.call("GET", f"/{name}/a%20b//c").body == name.encode(), "the same by its path"
        assert b"<Key>a b//c</Key>" in wire.call("GET", "/", "list-type=2", headers=host).body
        url = wire.presign("GET", "/a%20b//c", headers=host)
        assert wire.send("GET", url, headers=host).body == name.encode()
    with_dots = wire.call("GET", "/", headers={"host": f"bucket.that.nobody.made.localhost:{address.port}"})
    assert with_dots.outcome == (404, "NoSuchBucket")
