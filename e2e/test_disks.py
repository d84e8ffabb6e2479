"""The disk of an instance: it has a limit of its own, keeps what it holds, and a full one harms nobody."""

import os
import subprocess
from pathlib import Path

import footprint
import pytest
from machines import Machines, needs_root
from support import eventually

pytestmark = needs_root
MIB = 1 << 20
GB = 1_000_000_000
SMALL = "instance_disk_gb = 1\n"
# Ends when the disk is full, and says how much it wrote.
FILL = """
import os
written = 0
try:
    with open("fill", "wb", buffering=0) as file:
        while True: written += file.write(b"x" * 1048576)
except OSError as error:
    print(written, error.errno)
"""


class Cloud(Machines):
    """Machines with small disks, unless it is said otherwise."""

    def __init__(self, directory: Path, **options):
        super().__init__(directory, **options)
        config = Path(self.command[self.command.index("--config") + 1])
        config.write_text(config.read_text().replace("[capacity]\n", f"[capacity]\n{SMALL}"))
        self.environment = dict(self.environment)

    def disk(self, cluster: str) -> Path:
        """The file or directory of the first node's disk."""
        place = self.data / "instances" / self.info(cluster)["instances"][0]["id"]
        [found] = place.glob("disk*")
        return found

    def restart(self, cluster: str):
        """Restarts all nodes and waits."""
        self.finish(self.call("POST", f"/cluster/restart/{cluster}", expect=202).json()["request_id"])

    def python(self, cluster: str, script: str) -> str:
        """What a script says inside."""
        return self.ssh(cluster, "python3 -", answer=script, seconds=600).out


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """One cloud for what does not need a disk of its own."""
    with Cloud(tmp_path_factory.mktemp("disks")) as running:
        yield running
    assert not footprint.loop_devices(running.data)


def test_a_full_disk_is_the_instances_own(cloud):
    cloud.create("box")
    cloud.create("other")
    assert cloud.disk("box").suffix == ".xfs" and footprint.loop_devices(cloud.data)
    size = int(cloud.ssh("box", "df -B1 --output=size / | tail -1").out)
    assert 0.9 * GB < size <= GB
    written, error = map(int, cloud.python("box", FILL).split())
    assert error == 28 and 0.7 * GB < written < GB, "no space left, and that after about as much as there was"
    assert cloud.ssh("box", "echo still in").out == "still in\n"
    assert cloud.ssh("other", "head -c 50M /dev/zero > much && stat -c %s much").out == f"{50 * MIB}\n"
    # Also a full one starts again and again, with what it holds.
    for _ in range(2):
        cloud.restart("box")
        assert cloud.ssh("box", "stat -c %s fill").out == f"{written}\n"
    assert cloud.ssh("box", "rm fill; echo room > word; sync; cat word").out == "room\n"
    given_back = lambda: cloud.disk("box").stat().st_blocks * 512 < written / 2  # noqa: E731
    eventually(given_back, seconds=180, what="room that the machine has again")
    cloud.destroy_all()


def test_what_an_instance_keeps_through_restarts_and_crashes(cloud):
    cloud.create("box")
    cloud.ssh("box", "echo one > file; sudo sh -c 'echo two > /etc/two; echo three > /usr/local/three'; sync")
    cloud.restart("box")
    cloud.process.kill()
    cloud.process.wait()
    cloud.start()
    cloud.restart("box")
    assert cloud.ssh("box", "cat file /etc/two /usr/local/three").out == "one\ntwo\nthree\n"
    place = cloud.disk("box")
    cloud.destroy("box")
    assert not place.parent.exists() and not footprint.loop_devices(cloud.data)


def test_a_disk_that_is_gone_is_not_made_anew(cloud):
    made = cloud.create("box")
    disk, elsewhere = cloud.disk("box"), cloud.directory / "elsewhere"
    # Whoever moves it away while it is mounted: the instance goes on, the next start has nothing to stand on.
    disk.rename(elsewhere)
    request = cloud.call("POST", "/cluster/restart/box", expect=202).json()["request_id"]
    assert "is not where it was kept" in cloud.finish(request, status="FAILED")["message"] and not disk.exists()
    elsewhere.rename(disk)
    cloud.restart("box")
    assert cloud.ssh("box", "hostname").out.strip() == made["instances"][0]["name"]
    cloud.destroy_all()


def test_disks_from_before_there_was_a_limit(cloud):
    """Yesterday's instances have a directory. They start as they are; new ones get a disk with a limit."""
    cloud.stop()
    cloud.environment["TARN_TEST_WITHOUT"] = "disk-limit"
    cloud.start()
    cloud.create("old")
    cloud.ssh("old", "echo kept > word")
    assert cloud.disk("old").is_dir()
    cloud.stop()
    for record in (cloud.data / "instances").glob("*/instance.json"):
        record.write_text(record.read_text().replace('"had_disk":true,', ""))
    del cloud.environment["TARN_TEST_WITHOUT"]
    cloud.start()
    assert cloud.ssh("old", "cat word").out == "kept\n"
    cloud.restart("old")
    assert cloud.ssh("old", "cat word").out == "kept\n" and cloud.disk("old").is_dir()
    cloud.create("new")
    assert cloud.disk("new").is_file()
    cloud.destroy_all()


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 900 MiB in a file."""
    image, place = tmp_path / "image", tmp_path / "data"
    place.mkdir()
    with open(image, "wb") as file:
        file.truncate(900 * MIB)
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_full_disk_of_the_machine(tmp_path, small_disk):
    """Disks may promise more than there is. When it is used up, writers are told, disks live on, and nobody new comes."""
    assert os.path.ismount(small_disk), "never fill what is not the small disk"
    with Cloud(tmp_path, name=small_disk.name) as cloud:
        cloud.create("box")
        cloud.ssh("box", "echo safe > before; sync")
        ballast = small_disk / "ballast"
        with open(ballast, "wb") as file:
            room = os.statvfs(small_disk)
            os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - 24 * MIB)
        body = {"instance_type": "tiny", "tp_cluster_name": "late"}
        late = cloud.call("POST", "/cluster/create", json=body, expect=202).json()["request_id"]
        told = lambda: "disk of the host is full" in str(cloud.call("GET", f"/request/info/{late}", expect=200).json())  # noqa: E731
        eventually(told, seconds=60, what="a request that says what it waits for")
        script = "import os\nfile = open('much', 'wb', buffering=0)\nfile.write(b'x' * (100 << 20))\ntry:\n    os.fsync(file)\n    print('safe')\nexcept OSError as error:\n    print('told', error.errno)\n"
        assert cloud.python("box", script).startswith("told"), "what could not be written is not said to be safe"
        ballast.unlink()
        cloud.finish(late)
        again = lambda: cloud.ssh("box", "cat before; echo again > after && sync && cat after", code=None).out == "safe\nagain\n"  # noqa: E731
        eventually(again, seconds=60, what="a disk that works again")
        cloud.restart("box")
        assert cloud.ssh("box", "cat before after").out == "safe\nagain\n"
