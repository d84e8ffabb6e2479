"""The `tarn` client and object storage: every command, and the other S3 clients that it configures."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from objects import enable, give_legacy_key, put
from support import ENVIRONMENT

VENV = Path(sys.executable).parent
SHOWN = re.compile(r"^(Access Key ID|Secret Access Key|Endpoint|Region): +(\S+)$", re.M)


def test_enable_shows_credentials(tarn):
    """`object-storage enable` shows the credentials, and a second time the same ones."""
    said = tarn("object-storage enable").text
    shown = dict(SHOWN.findall(said))
    assert len(shown) == 4 and dict(SHOWN.findall(tarn("object-storage credentials").text)) == shown
    again = tarn.json("object-storage enable")
    assert again["access_key_id"] == shown["Access Key ID"], "a second call changes nothing"
    assert tarn.json("object-storage credentials")["secret_access_key"] == shown["Secret Access Key"]


def test_keys_create_list_revoke(tarn, server):
    """Keys are created, listed and revoked; a third one is refused."""
    enable(server)
    assert "laptop" in tarn("object-storage keys create --name laptop").text
    keys = tarn.json("object-storage keys list")["keys"]
    assert [(key["name"], key["status"]) for key in keys] == [("laptop", "active"), ("default", "active")]
    assert "limit" in tarn("object-storage keys create", code=4).errors
    laptop = keys[0]["access_key_id"]
    assert "no longer works" in tarn(f"object-storage keys revoke {laptop}").text
    assert tarn.json(f"object-storage keys revoke {laptop}")["message"], "a second call changes nothing"
    assert laptop not in tarn("object-storage keys list").text and laptop in tarn("object-storage keys ls --all").text
    assert tarn.json("object-storage keys create")["access_key_id"] != laptop


def test_legacy_key_is_retired(tarn, server):
    """An administrator retires the key that the members of an older organization shared."""
    enable(server)
    give_legacy_key(server, "TARNSHARED1")
    assert "legacy" in tarn("object-storage keys list").text
    assert "TARNSHARED1" in tarn("object-storage keys retire-legacy").text
    give_legacy_key(server, "TARNSHARED2")
    assert "TARNSHARED2" in tarn.json("object-storage keys retire-legacy")["message"]
    assert "legacy" not in tarn("object-storage keys list").text


def test_bucket_create_list_delete(tarn, server):
    """Buckets are created, listed and deleted; taken names and full buckets are refused."""
    s3 = enable(server).client()
    assert "no buckets" in tarn("object-storage bucket list").text
    assert "photos" in tarn("object-storage bucket create photos").text
    assert tarn.json("object-storage bucket create logs")
    assert tarn("object-storage bucket ls").text.splitlines() == ["logs", "photos"]
    assert tarn.json("object-storage bucket list")["buckets"] == ["logs", "photos"]
    assert "with that name" in tarn("object-storage bucket create photos", code=4).errors
    assert tarn.json("object-storage bucket create photos", code=4)["code"]
    put(s3, "photos", "key")
    assert "empty" in tarn("object-storage bucket delete photos", code=4).errors
    assert tarn.json("object-storage bucket rm photos", code=4)["code"]
    assert "Objects:  1" in tarn("object-storage usage").text and tarn.json("object-storage usage")["objects"] == 1
    s3.delete_object(Bucket="photos", Key="key")
    tarn("object-storage bucket rm photos")
    assert tarn.json("object-storage bucket delete logs") == {}
    assert [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]] == []


def test_disable_needs_confirmation(tarn, server):
    """`object-storage disable` asks first, and needs `--force` while there are objects."""
    s3 = enable(server).client()
    tarn("object-storage bucket create photos")
    put(s3, "photos", "key")
    assert "force" in tarn("object-storage disable --no-input", code=4).errors
    assert tarn.json("object-storage disable --no-input", code=4)["code"]
    s3.delete_object(Bucket="photos", Key="key")
    assert "--no-input" in tarn("object-storage disable", code=2).errors
    for answer, code in (("n", 1), ("y", 0)):
        with tarn.terminal("object-storage disable") as terminal:
            terminal.read_until("[y/N]")
            terminal.type(f"{answer}\n")
            terminal.wait_for_end(code)
    with pytest.raises(s3.exceptions.ClientError, match="InvalidAccessKeyId"):
        s3.list_buckets()
    s3 = enable(server).client()
    tarn("object-storage bucket create photos")
    put(s3, "photos", "key")
    assert tarn.json("object-storage disable --force --no-input")["message"]
    tarn("object-storage credentials", code=3)


def run(tarn, program, *arguments, code=0) -> str:
    """Runs another program whose files are in the home of the client."""
    environment = ENVIRONMENT | {"HOME": str(tarn.home), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [str(program), *map(str, arguments)], env=environment, cwd=tarn.home, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == code, f"{program} {arguments}: {done.stdout}"
    return done.stdout


def test_configure_aws_serves_aws_and_boto3(tarn, server):
    """With the written profile aws-cli and boto3 reach the storage; other profiles are kept."""
    enable(server)
    tarn("object-storage bucket create photos")
    credentials, config = tarn.home / ".aws/credentials", tarn.home / ".aws/config"
    credentials.parent.mkdir()
    credentials.write_text("# mine\n[default]\naws_access_key_id = OTHER\n\n[tp]\naws_access_key_id = OLD\n\n[last]\nx = 1\n")
    said = tarn("object-storage configure aws").text
    assert str(credentials) in said and str(config) in said
    body = tarn.json("object-storage configure aws")
    text = credentials.read_text()
    assert text.count("[tp]") == 1 and "OLD" not in text and text.startswith("# mine\n[default]\n") and "[last]\nx = 1\n" in text
    assert body["profile_name"] == "tp" and config.read_text().count("[profile tp]") == 1
    assert {stat.S_IMODE(path.stat().st_mode) for path in (credentials, config)} == {0o600}
    (tarn.home / "file").write_bytes(content := os.urandom(100_000))
    aws = [sys.executable, VENV / "aws", "--profile", "tp"]
    run(tarn, *aws, "s3", "cp", "file", "s3://photos/file")
    assert "file" in run(tarn, *aws, "s3", "ls", "s3://photos/")
    session = boto3_session(tarn)
    s3 = session.client("s3", config=Config(proxies={}))
    assert s3.get_object(Bucket="photos", Key="file")["Body"].read() == content


def boto3_session(tarn) -> boto3.Session:
    """boto3 with the configuration in the client's home, in this process."""
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tarn.home / ".aws/credentials"))
        patched.setenv("AWS_CONFIG_FILE", str(tarn.home / ".aws/config"))
        session = boto3.Session(profile_name="tp")
        session.get_credentials()
        return session


@pytest.mark.parametrize("rclone", [VENV / "rclone", "/usr/bin/rclone"], ids=["newest", "debian"])
def test_configure_rclone_serves_rclone(tarn, server, rclone):
    """With the written remote rclone reaches the storage; other remotes are kept."""
    if not shutil.which(rclone):
        pytest.skip(f"{rclone} is missing: scripts/install-missing test")
    enable(server)
    file = tarn.home / ".config/rclone/rclone.conf"
    file.parent.mkdir(parents=True)
    file.write_text("[mine]\ntype = local\n")
    for _ in range(2):
        assert f"Wrote [tp] to {file}." in tarn("object-storage configure rclone").text
        assert file.read_text().count("[tp]") == file.read_text().count("[mine]") == 1
    assert tarn.json("object-storage configure rclone")["remote_name"] == "tp"
    (tarn.home / "tree/deep").mkdir(parents=True)
    (tarn.home / "tree/deep/leaf").write_text("leaf")
    run(tarn, rclone, "mkdir", "tp:photos")
    run(tarn, rclone, "sync", "tree", "tp:photos/tree")
    assert "0 differences found" in run(tarn, rclone, "check", "tree", "tp:photos/tree")
    assert tarn("object-storage bucket list").text == "photos\n"
