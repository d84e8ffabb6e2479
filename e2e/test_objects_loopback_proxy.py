"""S3 inside an instance through the loopback proxy: the same endpoint and the same credentials."""

import pytest

from instances import Instances, needs_root
from objects import MIB, enable, put, read
from support import eventually

pytestmark = needs_root
# What a training script would do, with nothing that the image might lack.
TRANSFER = """
import hashlib, sys, urllib.request
source, target = sys.stdin.read().split()
content = urllib.request.urlopen(source).read()
request = urllib.request.Request(target, data=content[::-1], method="PUT")
assert urllib.request.urlopen(request).status == 200
print(hashlib.sha256(content).hexdigest())
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """One engine with one instance for the whole file."""
    with Instances(tmp_path_factory.mktemp("inside")) as running:
        running.create("box")
        yield running


@pytest.fixture
def s3(cloud):
    """boto3 outside, with a bucket `inside`."""
    client = enable(cloud).client()
    if "inside" not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
        client.create_bucket(Bucket="inside")
    return client


def presigned(s3, operation: str, key: str) -> str:
    """A URL that needs no key."""
    return s3.generate_presigned_url(operation, Params={"Bucket": "inside", "Key": key}, ExpiresIn=600)


def test_presigned_urls_work_inside(cloud, s3):
    """Presigned URLs work inside an instance."""
    content = bytes(range(256)) * (4 * MIB // 256)
    put(s3, "inside", "source", body=content)
    urls = f"{presigned(s3, 'get_object', 'source')} {presigned(s3, 'put_object', 'target')}"
    said = eventually(lambda: transfer_inside(cloud, urls), what="a response of S3 inside")
    assert len(said) == 64
    assert read(s3, "inside", "target") == content[::-1]


def test_unsigned_calls_inside_are_refused(cloud, s3):
    """Unsigned calls inside an instance are refused."""
    put(s3, "inside", "secret")
    command = f"curl --silent --output /dev/null --write-out '%{{http_code}}' http://127.0.0.1:{cloud.s3_port}/inside/secret"
    assert eventually(lambda: output_inside(cloud, command), what="a response of S3 inside") == "403"


def test_s3_inside_returns_after_engine_kill(cloud, s3):
    """S3 responds inside again after the engine was killed."""
    put(s3, "inside", "kept", body=b"kept")
    cloud.process.kill()
    cloud.process.wait()
    cloud.start()
    url = presigned(s3, "get_object", "kept")
    said = eventually(lambda: output_inside(cloud, f"curl --silent --fail '{url}'"), what="a response of S3 inside")
    assert said == "kept"


def transfer_inside(cloud, urls: str) -> str | None:
    """Reads and writes inside; None while the proxy does not listen yet."""
    ran = cloud.ssh("box", f"python3 -c '{TRANSFER}'", answer=urls, code=None)
    assert ran.code == 0 or "refused" in ran.errors, ran
    return ran.out.strip() if ran.code == 0 else None


def output_inside(cloud, command: str) -> str | None:
    """The output of a command inside; None while the proxy does not listen yet."""
    ran = cloud.ssh("box", command, code=None)
    return ran.out.strip() if ran.code == 0 else None
