"""A job that fills the disk of its node: it gets an error, nothing is lost, and the engine's disk always has space."""

import os
import subprocess

import pytest

from jobs import Jobs
from instances import needs_root
from support import eventually

pytestmark = needs_root
DISK_MIB = 700


@pytest.fixture
def small_disk(tmp_path):
    """A separate filesystem in a file. A tmpfs would not do: what a job writes there counts as memory of its
    instance."""
    image, place = tmp_path / "image", tmp_path / "data"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(DISK_MIB << 20)
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_job_with_full_disk_continues(tmp_path, small_disk):
    """A job that fills the node's disk gets an error and continues; the engine keeps its own space."""
    assert os.path.ismount(small_disk), "fill only the small disk"
    with Jobs(tmp_path, name=small_disk.name) as cloud:
        cloud.create("box", kind="worker")
        job = cloud.run("box", "echo before", "head -c 2G /dev/zero > fill || echo full", "rm fill; echo after", venv=False)
        seen = cloud.wait(job, None)
        log = cloud.log_of(job)
        assert seen["status"] == "completed" and log.startswith(b"before\n") and b"No space" in log, (seen, log)
        assert log.endswith(b"full\nafter\n"), log

        stuck = cloud.run("box", "head -c 2G /dev/zero > fill || echo full", "sleep 31337", venv=False)
        full = lambda: int(cloud.ssh("box", "df -B1 --output=avail / | tail -1").out) < 1 << 20  # noqa: E731
        eventually(full, seconds=180, what="a full disk")
        assert free(small_disk) > 100 << 20, "a node has at most half of the disk"
        assert cloud.ssh("box", "echo alive").out == "alive\n"
        assert cloud.call("GET", f"/job/info/{stuck}", expect=200)
        cloud.ssh("box", f"rm jobs/{stuck}/fill")
        cloud.wait_until_running(stuck, b"full\n")
        cloud.cancel(stuck)
        assert cloud.text(cloud.run("box", "echo well", venv=False)) == "well\n"
        assert "panicked" not in cloud.output()


def free(place) -> int:
    """The free space in bytes."""
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize
