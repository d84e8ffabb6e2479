"""Stock S3 clients with no option besides endpoint and credentials: aws-cli, rclone, s3cmd, boto3 and s3fs."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import boto3
import pytest
import requests
import s3fs
from boto3.s3.transfer import TransferConfig

from objects import MIB, new_bucket, own_storage, put, read, s3  # noqa: F401
from support import ENVIRONMENT

VENV = Path(sys.executable).parent
# The newest release and Debian's: they are built on different S3 libraries.
RCLONES = {"newest": str(VENV / "rclone"), "debian": "/usr/bin/rclone"}


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """A separate server: the clients are configured through its API."""
    with own_storage(tmp_path_factory.mktemp("clients")) as running:
        yield running


def fill(place: Path, size: int):
    """Writes a file without repetitions."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(hashlib.shake_128(place.name.encode()).digest(size))


def sums(place: Path) -> dict[str, str]:
    """The checksum of each file in a directory."""
    files = [file for file in place.rglob("*") if file.is_file()]
    return {str(file.relative_to(place)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


class Client:
    """A program with its own home directory."""

    def __init__(self, home: Path, *command: str, environment=None):
        self.home, self.command = home, command
        self.environment = ENVIRONMENT | {"HOME": str(home), "LC_ALL": "C.UTF-8"} | (environment or {})

    def __call__(self, *arguments, code=0) -> str:
        """Runs the program; returns its output on both streams."""
        done = subprocess.run(
            [*self.command, *map(str, arguments)], env=self.environment, cwd=self.home, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
        )  # fmt: skip
        assert code in (None, done.returncode), f"{arguments}: {done.returncode}\n{done.stdout}"
        return done.stdout


@pytest.fixture
def tree(tmp_path) -> Path:
    """Two hundred files of all kinds, one of them large enough for parts."""
    place = tmp_path / "tree"
    for number in range(190):
        fill(place / f"directory-{number % 7}" / f"file-{number}", number * 311)
    for name in ("ü/日本語", "a b/c+d", "e%20f", "emoji \U0001f600", "quote'\"s", "-dash", "&amp;", "semi;colon=1", "~tilde"):
        fill(place / name, 1000)
    fill(place / "empty", 0)
    fill(place / "large", 20 * MIB)
    return place


@pytest.fixture
def aws(storage, tmp_path):
    """aws-cli with the configuration that the server returns."""
    home = tmp_path / "home"
    (home / ".aws").mkdir(parents=True)
    said = storage.server.call("GET", "/object-storage/configure/aws", expect=200).json()
    (home / ".aws" / "credentials").write_text(said["credentials_file"])
    (home / ".aws" / "config").write_text(said["config_file"])
    more = {"AWS_PROFILE": said["profile_name"], "AWS_EC2_METADATA_DISABLED": "true", "AWS_PAGER": ""}
    return Client(home, str(VENV / "aws"), "--endpoint-url", said["endpoint"], environment=more)


def test_aws_cli_syncs(aws, tree, tmp_path):
    """aws-cli syncs a tree both ways."""
    aws("s3", "mb", "s3://aws-sync")
    aws("s3", "sync", "--no-progress", tree, "s3://aws-sync/tree")
    assert "upload" not in aws("s3", "sync", tree, "s3://aws-sync/tree"), "a second sync has nothing to do"
    aws("s3", "sync", "--no-progress", "s3://aws-sync/tree", tmp_path / "back")
    assert sums(tmp_path / "back") == sums(tree)
    (tree / "directory-1" / "file-1").unlink()
    fill(tree / "e%20f", 2000)
    said = aws("s3", "sync", "--no-progress", "--delete", tree, "s3://aws-sync/tree")
    assert said.count("upload:") == said.count("delete:") == 1, said
    assert len(aws("s3", "ls", "--recursive", "s3://aws-sync").splitlines()) == len(sums(tree))
    aws("s3", "rb", "s3://aws-sync", code=1)
    aws("s3", "rm", "--recursive", "--quiet", "s3://aws-sync")
    aws("s3", "rb", "s3://aws-sync")


def test_aws_cli_copies_and_lists(aws, tree, tmp_path):
    """aws-cli copies, lists, moves and presigns."""
    aws("s3", "mb", "s3://aws-copy")
    aws("s3", "cp", "--no-progress", tree / "large", "s3://aws-copy/large")
    assert "-3" in aws("s3api", "head-object", "--bucket", "aws-copy", "--key", "large"), "it was uploaded in parts"
    aws("s3", "cp", "--no-progress", "s3://aws-copy/large", "s3://aws-copy/copies/large")
    aws("s3", "cp", "--no-progress", "s3://aws-copy/copies/large", tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == (tree / "large").read_bytes()
    assert "PRE copies/" in aws("s3", "ls", "s3://aws-copy")
    aws("s3", "mv", "--no-progress", "s3://aws-copy/copies/large", "s3://aws-copy/moved")
    aws("s3", "ls", "s3://aws-copy/copies/", code=1)
    aws("s3", "cp", "s3://aws-copy/missing", tmp_path / "missing", code=1)
    url = aws("s3", "presign", "s3://aws-copy/moved").strip()
    with requests.Session() as browser:
        browser.trust_env = False
        assert hashlib.sha256(browser.get(url).content).digest() == hashlib.sha256((tree / "large").read_bytes()).digest()


@pytest.fixture
def browser():
    """An HTTP client without a key."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


def test_aws_cli_presigns_without_configuration(storage, s3, new_bucket, browser, tmp_path):
    """`aws s3 presign` with an endpoint and keys only gives URLs that work until they expire."""
    bucket, account = new_bucket(), storage.account
    put(s3, bucket, "a b/ü+")
    environment = {
        "AWS_ACCESS_KEY_ID": account.access_key, "AWS_SECRET_ACCESS_KEY": account.secret_key,
        "AWS_ENDPOINT_URL": account.endpoint, "AWS_EC2_METADATA_DISABLED": "true",
    }  # fmt: skip
    aws = Client(tmp_path, str(VENV / "aws"), environment=environment)
    url = aws("s3", "presign", f"s3://{bucket}/a b/ü+").strip()
    assert browser.get(url).content == "a b/ü+".encode()
    assert browser.put(url, data=b"other").status_code == 403
    expired = aws("s3", "presign", f"s3://{bucket}/a b/ü+", "--expires-in", "-10").strip()
    assert browser.get(expired).status_code == 403


def test_aws_cli_calls_s3api(aws, tmp_path):
    """`aws s3api` sets checksums, tags and versioning."""
    aws("s3api", "create-bucket", "--bucket", "aws-api")
    (tmp_path / "body").write_bytes(b"content")
    place = ("--bucket", "aws-api", "--key", "key")
    for algorithm in ("CRC32", "SHA1", "SHA256"):
        aws("s3api", "put-object", *place, "--body", tmp_path / "body", "--checksum-algorithm", algorithm)
    aws("s3api", "put-object-tagging", *place, "--tagging", "TagSet=[{Key=a,Value=1}]")
    assert '"Value": "1"' in aws("s3api", "get-object-tagging", *place)
    aws("s3api", "put-bucket-versioning", "--bucket", "aws-api", "--versioning-configuration", "Status=Enabled")
    aws("s3api", "delete-object", *place)
    assert '"DeleteMarkers"' in aws("s3api", "list-object-versions", "--bucket", "aws-api")
    assert "NoSuchKey" in aws("s3api", "get-object", *place, tmp_path / "none", code=None)
    assert "aws-api" in aws("s3api", "list-buckets")


@pytest.fixture(params=RCLONES)
def rclone(request, storage, tmp_path):
    """rclone with the section that the stock client writes."""
    program = RCLONES[request.param]
    if not os.access(program, os.X_OK):
        pytest.skip(f"{program} is missing: scripts/install-missing test")
    home = tmp_path / "home"
    (home / ".config" / "rclone").mkdir(parents=True)
    said = storage.server.call("GET", "/object-storage/configure/rclone", expect=200).json()
    assert said["remote_name"] == "tp"
    (home / ".config" / "rclone" / "rclone.conf").write_text(said["rclone_config"])
    return Client(home, program)


def test_rclone_syncs(rclone, tree, tmp_path, request):
    """rclone syncs and checks a tree, and copies on the server."""
    place = f"tp:rclone-{request.node.callspec.params['rclone']}"
    fill(tree / "large", 50 * MIB)
    rclone("mkdir", place)
    rclone("sync", tree, f"{place}/tree")
    assert "0 differences found" in rclone("check", tree, f"{place}/tree")
    rclone("check", "--download", tree, f"{place}/tree")
    fill(tree / "directory-3" / "file-3", 12_345)
    (tree / "directory-4" / "file-4").unlink()
    rclone("check", tree, f"{place}/tree", code=1)
    rclone("sync", tree, f"{place}/tree")
    assert "0 differences found" in rclone("check", tree, f"{place}/tree")
    listed = {line.split(maxsplit=3)[3]: int(line.split()[0]) for line in rclone("lsl", f"{place}/tree").splitlines()}
    assert listed == {name: (tree / name).stat().st_size for name in sums(tree)}
    rclone("copy", f"{place}/tree", tmp_path / "back")
    assert sums(tmp_path / "back") == sums(tree)
    # Copies on the server: the data does not pass through the client.
    rclone("copy", f"{place}/tree", f"{place}/again")
    assert "0 differences found" in rclone("check", f"{place}/tree", f"{place}/again")
    rclone("purge", place)
    assert place.removeprefix("tp:") not in rclone("lsd", "tp:")


def test_rclone_keeps_times_and_hashes(rclone, tree, request):
    """rclone keeps modification times and hashes."""
    place = f"tp:rclone-more-{request.node.callspec.params['rclone']}"
    os.utime(tree / "empty", (1_000_000_000, 1_000_000_000))
    rclone("copy", tree / "empty", place)
    assert "2001-09-09" in rclone("lsl", place)
    rclone("copyto", tree / "large", f"{place}/large")
    assert rclone("md5sum", place + "/large").split()[0] == hashlib.md5((tree / "large").read_bytes()).hexdigest()
    rclone("moveto", f"{place}/large", f"{place}/moved")
    rclone("deletefile", f"{place}/moved")
    rclone("purge", place)


def test_rclone_signs_for_any_region(rclone, tree, tmp_path, request):
    """rclone works with a region that has dots."""
    place = f"tp:rclone-region-{request.node.callspec.params['rclone']}"
    region = ("--s3-region", "eu.west.1")
    rclone("copy", tree / "directory-1", place, *region)
    assert "0 differences found" in rclone("check", "--download", tree / "directory-1", place, *region)
    rclone("purge", place, *region)


@pytest.fixture
def s3cmd(storage, tmp_path):
    """s3cmd with endpoint and credentials in its file."""
    home, address = tmp_path / "home", urlsplit(storage.account.endpoint)
    home.mkdir()
    (home / ".s3cfg").write_text(
        f"[default]\naccess_key = {storage.account.access_key}\nsecret_key = {storage.account.secret_key}\n"
        f"host_base = {address.netloc}\nhost_bucket = {address.netloc}\nuse_https = False\n"
    )
    return Client(home, sys.executable, str(VENV / "s3cmd"))


def test_s3cmd_syncs(s3cmd, tree, tmp_path, browser):
    """s3cmd puts, gets, signs URLs, syncs, copies and deletes."""
    s3cmd("mb", "s3://s3cmd")
    assert "s3://s3cmd" in s3cmd("ls")
    s3cmd("put", tree / "large", "s3://s3cmd/large")
    s3cmd("get", "s3://s3cmd/large", tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == (tree / "large").read_bytes()
    assert browser.get(s3cmd("signurl", "s3://s3cmd/large", "+60").strip()).content == (tree / "large").read_bytes()
    (tree / "large").unlink()
    s3cmd("sync", f"{tree}/", "s3://s3cmd/tree/")
    assert "upload" not in s3cmd("sync", f"{tree}/", "s3://s3cmd/tree/"), "a second sync has nothing to do"
    s3cmd("sync", "s3://s3cmd/tree/", f"{tmp_path}/back/")
    assert sums(tmp_path / "back") == sums(tree)
    assert len(s3cmd("ls", "--recursive", "s3://s3cmd/tree/").splitlines()) == len(sums(tree))
    s3cmd("cp", "s3://s3cmd/large", "s3://s3cmd/copy")
    s3cmd("del", "s3://s3cmd/large")
    assert "s3://s3cmd/large" not in s3cmd("ls", "s3://s3cmd/")
    s3cmd("get", "s3://s3cmd/large", tmp_path / "missing", code=None)
    assert not (tmp_path / "missing").exists()
    assert s3cmd("rb", "s3://s3cmd", code=None) and "s3://s3cmd" in s3cmd("ls"), "the bucket is not empty"
    s3cmd("del", "--recursive", "--force", "s3://s3cmd")
    s3cmd("rb", "s3://s3cmd")
    assert "s3://s3cmd" not in s3cmd("ls")


def test_boto3_transfers_with_threads(storage, s3, new_bucket, tree, tmp_path):
    """boto3 transfers files in parts and with threads."""
    bucket = new_bucket()
    parts = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=8)
    s3.upload_file(str(tree / "large"), bucket, "large", Config=parts)
    assert s3.head_object(Bucket=bucket, Key="large")["ETag"].endswith('-4"')
    s3.download_file(bucket, "large", str(tmp_path / "large"), Config=parts)
    assert (tmp_path / "large").read_bytes() == (tree / "large").read_bytes()
    s3.copy({"Bucket": bucket, "Key": "large"}, bucket, "copy", Config=parts)
    s3.download_file(bucket, "copy", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == (tree / "large").read_bytes()

    def there_and_back(name: str) -> bool:
        s3.upload_file(str(tree / name), bucket, name)
        s3.download_file(bucket, name, str(tmp_path / f"back-{hashlib.md5(name.encode()).hexdigest()}"))
        return (tmp_path / f"back-{hashlib.md5(name.encode()).hexdigest()}").read_bytes() == (tree / name).read_bytes()

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(there_and_back, [name for name in sums(tree) if name != "large"]))


def test_boto3_resources_work(storage, new_bucket):
    """boto3's resources work."""
    bucket = storage.account.client(boto3.resource).Bucket(new_bucket())
    for name in ("a/1", "a/2", "b"):
        bucket.put_object(Key=name, Body=name)
    assert [each.key for each in bucket.objects.all()] == ["a/1", "a/2", "b"]
    bucket.objects.filter(Prefix="a/").delete()
    assert [each.get()["Body"].read() for each in bucket.objects.all()] == [b"b"]
    bucket.Object("b").wait_until_exists()
    bucket.Object("b").delete()
    bucket.Object("b").wait_until_not_exists()


def test_boto3_presigns_with_defaults(storage, s3, new_bucket, browser):
    """boto3 with an endpoint and keys only presigns URLs that work for what they name, and end with their key."""
    bucket, account = new_bucket(), storage.account
    keys = {"aws_access_key_id": account.access_key, "aws_secret_access_key": account.secret_key}
    plain = boto3.client("s3", endpoint_url=account.endpoint, **keys)
    place = {"Bucket": bucket, "Key": "a b/ü+"}
    url = plain.generate_presigned_url("put_object", Params=place)
    assert "AWSAccessKeyId=" in url, "boto3 signs these by Signature Version 2"
    assert browser.put(url, data=b"content").status_code == 200
    options = {"ResponseContentDisposition": "attachment; filename=x", "ResponseContentType": "text/html"}
    url = plain.generate_presigned_url("get_object", Params=place | options)
    answer = browser.get(url)
    assert (answer.status_code, answer.content) == (200, b"content")
    assert (answer.headers["Content-Disposition"], answer.headers["Content-Type"]) == ("attachment; filename=x", "text/html")
    assert browser.get(url, headers={"Range": "bytes=0-2"}).content == b"con"
    for wrong in (url.replace("a%20b", "other"), url.replace("html", "plain"), url + "&tagging", url + "0", url + "&acl&acl"):
        assert browser.get(wrong).status_code == 403, wrong
    assert browser.delete(url).status_code == browser.put(url, data=b"x").status_code == 403
    assert browser.get(plain.generate_presigned_url("get_object", Params=place, ExpiresIn=-10)).status_code == 403
    typed = place | {"Key": "typed", "ContentType": "image/png", "Metadata": {"who": "ada"}}
    assert browser.put(plain.generate_presigned_url("put_object", Params=typed), data=b"x").status_code == 200
    head = s3.head_object(Bucket=bucket, Key="typed")
    assert (head["ContentType"], head["Metadata"]) == ("image/png", {"who": "ada"})
    assert browser.get(plain.generate_presigned_url("head_object", Params=place)).status_code == 403
    assert browser.head(plain.generate_presigned_url("head_object", Params=place)).status_code == 200
    assert browser.delete(plain.generate_presigned_url("delete_object", Params=place)).status_code == 204


def test_s3fs_works_with_defaults(storage, s3, new_bucket, browser):
    """s3fs with an endpoint and keys only creates exclusively, reads, lists and shares."""
    bucket, account = new_bucket(), storage.account
    files = s3fs.S3FileSystem(
        key=account.access_key, secret=account.secret_key, endpoint_url=account.endpoint, skip_instance_cache=True
    )
    with files.open(f"{bucket}/new", "xb") as file:
        file.write(b"first")
    with pytest.raises(FileExistsError), files.open(f"{bucket}/new", "xb") as file:
        file.write(b"second")
    assert files.cat(f"{bucket}/new") == read(s3, bucket, "new") == b"first"
    assert files.ls(bucket) == [f"{bucket}/new"]
    with pytest.raises(FileNotFoundError):
        files.cat(f"{bucket}/missing")
    assert browser.get(files.url(f"{bucket}/new")).content == b"first"
    files.rm(f"{bucket}/new")
    assert files.ls(bucket, refresh=True) == []
