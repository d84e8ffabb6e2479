"""A full disk: the engine reports it, keeps what it acknowledged, and recovers when there is space."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from objects import enable, put, read
from support import Server, eventually

DISK_MIB = 8
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")


def fill_disk(ballast):
    """Fills the disk of a file."""
    with open(ballast, "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        for _ in range(10_000):
            file.write(b"\0" * 4096)


def request_volume(server, name):
    """Requests a volume and returns the response."""
    return server.call("POST", "/storage/create", json={"size": 1, "name": name})


@needs_root
def test_full_disk_refuses_and_recovers(small_disk):
    """A full disk refuses writes with 503, keeps what was acknowledged, and recovers."""
    assert os.path.ismount(small_disk), "fill only the small disk"
    ballast = small_disk / "ballast"
    with Server(small_disk) as server:
        kept_name = "kept"
        kept = request_volume(server, kept_name).json()
        server.finish(kept["request_id"])
        fill_disk(ballast)
        names = [f"volume-{number}" for number in range(300)]
        # Many at once, so that they share transactions: the success of one must not commit another that was refused.
        with ThreadPoolExecutor(16) as callers:
            answers = dict(zip(names, callers.map(lambda name: request_volume(server, name), names)))
        refused = [answer for answer in answers.values() if answer.status_code == 503]
        assert refused, "the disk is full, and no call was refused"
        assert all(answer.json()["code"] == "unavailable" and "Retry-After" in answer.headers for answer in refused)
        assert server.call("GET", "/storage/info/" + kept["storage_id"], expect=200)

        ballast.unlink()
        volumes = server.call("GET", "/storage/list?all=true&limit=1000", expect=200).json()["volumes"]
        accepted = {name for name, answer in answers.items() if answer.status_code == 202}
        assert {volume["name"] for volume in volumes} - {kept_name} == accepted, "exactly what was acknowledged is kept"
        again = request_volume(server, "again").json()
        server.finish(again["request_id"])
        server.stop()
    with Server(small_disk) as server:
        server.call("GET", "/storage/info/" + kept["storage_id"], expect=200)
        server.call("GET", "/storage/info/" + again["storage_id"], expect=200)
        server.stop()


@needs_root
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_start_on_full_disk_serves_reads(small_disk, tmp_path, end):
    """An engine that is started on a full disk serves what only reads, objects as well, says what it waits for, and
    continues without a restart when there is space."""
    assert os.path.ismount(small_disk), "fill only the small disk"
    ballast = small_disk / "ballast"
    # The default reserve would be larger than this disk.
    config = tmp_path / "tarn.toml"
    config.write_text("[object_storage]\nreserve_mb = 0\n")
    with Server(small_disk, "--config", config) as server:
        kept = request_volume(server, "kept").json()
        server.finish(kept["request_id"])
        s3 = enable(server).client()
        s3.create_bucket(Bucket="full")
        objects = {"small": b"small", "large": b"x" * 500_000}
        for key, body in objects.items():
            put(s3, "full", key, body=body)
        getattr(server, end)()
        fill_disk(ballast)
        server.launch()
        health = lambda: server.session.get(f"{server.url}/healthz", timeout=20)  # noqa: E731
        eventually(lambda: is_answered(health), what="a response")
        refused = health()
        assert (refused.status_code, refused.json()["code"]) == (503, "engine_waiting"), refused.text
        assert "free some space" in refused.json()["message"] and "Retry-After" in refused.headers
        assert server.call("GET", "/storage/info/" + kept["storage_id"], expect=200)
        assert server.call("GET", "/me", expect=200)
        for key, body in objects.items():
            assert read(s3, "full", key) == body
            assert s3.head_object(Bucket="full", Key=key)["ContentLength"] == len(body)
        assert {each["Key"] for each in s3.list_objects_v2(Bucket="full")["Contents"]} == set(objects)
        with pytest.raises(s3.exceptions.ClientError) as caught:
            put(s3, "full", "more", body=b"y" * 500_000)
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] in (503, 507), caught.value.response
        pid = server.process.pid

        ballast.unlink()
        eventually(lambda: health().status_code == 200, what="a healthy engine")
        again = request_volume(server, "again").json()
        server.finish(again["request_id"])
        assert server.process.pid == pid and "the wait is over" in server.output()
        put(s3, "full", "again", body=objects["large"])
        assert read(s3, "full", "again") == objects["large"]
        server.stop()


def is_answered(call) -> bool:
    """Whether a call gets any response."""
    try:
        return bool(call() is not None)
    except requests.ConnectionError:
        return False


@needs_root
def test_first_start_on_full_disk_waits(small_disk):
    """A new installation on a full disk waits as well, refuses calls with the reason, and is set up when there is space."""
    assert os.path.ismount(small_disk), "fill only the small disk"
    ballast = small_disk / "ballast"
    fill_disk(ballast)
    with Server(small_disk).launch() as server:
        eventually(lambda: is_answered(lambda: server.session.get(f"{server.url}/healthz", timeout=20)), what="a response")
        refused = server.session.get(f"{server.url}/cluster/list", timeout=20)
        assert (refused.status_code, refused.json()["code"]) == (503, "engine_waiting"), refused.text
        ballast.unlink()
        eventually(server.is_healthy, what="a healthy engine")
        server.call("GET", "/me", expect=200)
        server.stop()
