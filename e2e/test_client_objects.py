"""Our own client and object storage: every command, and the clients of others that it tells where everything is."""

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

from objects import enable, put
from support import ENVIRONMENT

VENV = Path(sys.executable).parent
SHOWN = re.compile(r"^(Access Key ID|Secret Access Key|Endpoint|Region): +(\S+)$", re.M)


def test_enable_shows_keys_that_work(tarn):
    said = tarn("object-storage enable").text
    shown = dict(SHOWN.findall(said))
    assert len(shown) == 4 and dict(SHOWN.findall(tarn("object-storage credentials").text)) == shown
    again = tarn.json("object-storage enable")
    assert again["access_key_id"] == shown["Access Key ID"], "a second time changes nothing"
    assert tarn.json("object-storage credentials")["secret_access_key"] == shown["Secret Access Key"]


def test_buckets(tarn, server):
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


def test_disable(tarn, server):
    s3 = enable(server).client()
    tarn("object-storage bucket create photos")
    put(s3, "photos", "key")
    assert "force" in tarn("object-storage disable --no-input", code=4).errors
    assert tarn.json("object-storage disable --no-input", code=4)["code"]
    s3.delete_object(Bucket="photos", Key="key")
    assert "--no-input" in tarn("object-storage disable", code=2).errors
    for answer, code in (("n", 1), ("y", 0)):
        with tarn.terminal("object-storage disable") as terminal:
            terminal.until("[y/N]")
            terminal.type(f"{answer}\n")
            terminal.ends(code)
    with pytest.raises(s3.exceptions.ClientError, match="InvalidAccessKeyId"):
        s3.list_buckets()
    s3 = enable(server).client()
    tarn("object-storage bucket create photos")
    put(s3, "photos", "key")
    assert tarn.json("object-storage disable --force --no-input")["message"]
    tarn("object-storage credentials", code=3)


def run(tarn, program, *arguments, code=0) -> str:
    """Another program that finds its files in the home of our client."""
    environment = ENVIRONMENT | {"HOME": str(tarn.home), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [str(program), *map(str, arguments)], env=environment, cwd=tarn.home, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == code, f"{program} {arguments}: {done.stdout}"
    return done.stdout


def test_aws_finds_it(tarn, server):
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
    """boto3 as it finds itself in the home of our client, without another process for it."""
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tarn.home / ".aws/credentials"))
        patched.setenv("AWS_CONFIG_FILE", str(tarn.home / ".aws/config"))
        session = boto3.Session(profile_name="tp")
        session.get_credentials()
        return session


@pytest.mark.parametrize("rclone", [VENV / "rclone", "/usr/bin/rclone"], ids=["newest", "debian"])
def test_rclone_finds_it(tarn, server, rclone):
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
