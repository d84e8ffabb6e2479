"""A full disk: the engine says so, keeps what it had acknowledged, and goes on when there is room again."""

import os
import subprocess

import pytest

from support import Server

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small filesystem needs root")


@pytest.fixture
def small_disk(tmp_path):
    """A filesystem of 8 MiB, and nothing else of the machine's disk."""
    place = tmp_path / "data"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tarn-test", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@needs_root
def test_a_full_disk_refuses_and_recovers(small_disk):
    assert os.path.ismount(small_disk), "never fill what is not the small disk"
    ballast = small_disk / "ballast"
    with Server(small_disk) as server:
        kept = server.call("POST", "/storage/create", json={"size": 1}, expect=202).json()
        server.finish(kept["request_id"])
        with open(ballast, "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            for _ in range(10_000):
                file.write(b"\0" * 4096)
        for _ in range(200):
            refused = server.call("POST", "/storage/create", json={"size": 1})
            if refused.status_code == 503:
                break
        assert refused.status_code == 503, "the disk is full and that was not noticed"
        assert refused.json()["code"] == "unavailable" and "Retry-After" in refused.headers
        assert server.call("GET", "/storage/info/" + kept["storage_id"], expect=200)

        ballast.unlink()
        again = server.call("POST", "/storage/create", json={"size": 1}, expect=202).json()
        server.finish(again["request_id"])
        server.stop()
    with Server(small_disk) as server:
        server.call("GET", "/storage/info/" + kept["storage_id"], expect=200)
        server.call("GET", "/storage/info/" + again["storage_id"], expect=200)
        server.stop()
