"""Volumes on real instances: what users find inside, what survives, and what is refused."""

import hashlib
import os

import pytest

from instances import needs_root
from support import eventually
from volumes import GIGABYTE, Volumes, file_size

pytestmark = needs_root

# Appends until the disk is full and then keeps retrying, as a training run that writes checkpoints may.
STUBBORN_WRITER = """
import os, sys, time
block, written, refused = b"x" * (1 << 20), 0, False
with open(sys.argv[1], "wb", buffering=0) as file, open("writer", "w") as says:
    print("began", file=says, flush=True)
    while written < 1300 << 20:
        try:
            written += file.write(block)
            os.fsync(file.fileno())
        except OSError as error:
            if not refused:
                print("refused", error.errno, file=says, flush=True)
                refused = True
            time.sleep(0.1)
    print("done", file=says, flush=True)
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """One engine for the whole file, because instances take a moment to start."""
    with Volumes(tmp_path_factory.mktemp("volumes")) as running:
        yield running


@pytest.fixture
def server(cloud):
    """The engine for the client's fixture."""
    return cloud


def test_full_volume_grows_under_writer(cloud, tp):
    """A full volume affects only its writer, which continues when the volume grows."""
    cluster, volume = cloud.create("filler"), cloud.make_volume("full")
    cloud.finish(cloud.attach(volume, cluster["id"])["request_id"])
    began = cloud.init_start_time("filler")
    cloud.ssh("filler", "cat > write.py", answer=STUBBORN_WRITER)
    cloud.ssh("filler", f"nohup python3 write.py /mnt/{volume}/fill >/dev/null 2>&1 & echo")
    says = lambda word: word in cloud.ssh("filler", "cat writer || true").out  # noqa: E731
    eventually(lambda: says("refused 28"), seconds=600, what="ENOSPC inside")
    file = cloud.files()[volume].stat()
    assert file.st_size == file_size(1) and file.st_blocks * 512 <= file_size(1), "the host's disk holds no more of it"
    assert "No space left" in cloud.ssh("filler", f"cp /usr/bin/python3 /mnt/{volume}/more", code=1).errors
    cloud.ssh("filler", "touch the-own-disk-goes-on")

    tp("storage", "edit", volume, "--size", "2")
    info = eventually(lambda: (seen := cloud.volume(volume))["size_gb"] == 2 and seen, what="the new size")
    assert info["status"] == "READY"
    size = int(cloud.ssh("filler", f"df --block-size=1 --output=size /mnt/{volume} | tail -n 1").out)
    assert 1.8 * GIGABYTE < size <= file_size(2), "it is visible inside"
    eventually(lambda: says("done"), seconds=600, what="a writer that continues")
    assert cloud.init_start_time("filler") == began, "nothing was restarted"
    eventually(lambda: cloud.volume(volume)["used_gb"] >= 1, what="the used space")
    cloud.destroy(cluster["id"])
    cloud.destroy_volume(volume)


def test_live_attach_and_detach_restart_nothing(cloud):
    """A live attach and detach restart nothing; a volume in use is not detached."""
    cluster, volume = cloud.create("live", nodes=2), cloud.make_volume("swift")
    nodes = [node["name"] for node in cluster["instances"]]
    beat = "nohup sh -c 'while :; do date +%s.%N > beat; sleep 0.1; done' >/dev/null 2>&1 & echo $!"
    heart = cloud.ssh("live", beat).out.strip()
    began = [cloud.init_start_time(node) for node in nodes]
    cloud.finish(cloud.attach(volume, cluster["id"], live=True)["request_id"])
    assert [cloud.mounted(node) for node in nodes] == [{volume}, {volume}]
    assert cloud.ssh("live", "echo here > swift/note && readlink swift").out.strip() == f"/mnt/{volume}"
    assert cloud.ssh(nodes[1], f"cat swift/note && stat -c %U:%G /mnt/{volume} swift/note").out.split() == [
        "here", "ubuntu:ubuntu", "ubuntu:ubuntu",
    ]  # fmt: skip

    sleeper = cloud.ssh(nodes[1], "nohup sh -c 'cd swift; exec sleep 600' >/dev/null 2>&1 & echo $!").out.strip()
    sleeps = lambda: cloud.ssh(nodes[1], f"cat /proc/{sleeper}/comm").out.strip() == "sleep"  # noqa: E731
    eventually(sleeps, what="a process that uses the volume")
    refused = cloud.detach(volume, cluster["id"], live=True, expect=409)
    assert refused["code"] == "storage_in_use" and "sleep" in refused["message"] and sleeper in refused["message"], refused
    assert cloud.ssh("live", "cat swift/note").out.strip() == "here", "nothing was changed"
    assert cloud.volume(volume)["attachments"] == [{"cluster_id": cluster["id"], "status": "ATTACHED"}]

    cloud.ssh(nodes[1], f"kill {sleeper}")
    # The process gets a signal, and uses the volume until it has ended.
    eventually(lambda: cloud.ssh(nodes[1], f"test -e /proc/{sleeper}", code=None).code == 1, what="no process that uses the volume")
    cloud.finish(cloud.detach(volume, cluster["id"], live=True)["request_id"])
    assert [cloud.mounted(node) for node in nodes] == [set(), set()]
    assert cloud.ssh("live", "readlink swift", code=1).out == "", "the link was removed with it"
    cloud.ssh("live", f"sudo sh -c 'echo lost > /mnt/{volume}/file'", code=None)
    assert cloud.ssh("live", f"ls -A /mnt/{volume} 2>/dev/null || true").out == "", "an empty mount point accepts nothing"
    assert [cloud.init_start_time(node) for node in nodes] == began
    cloud.ssh("live", f"kill -0 {heart} && kill {heart}")
    eventually(lambda: volume not in cloud.devices(), what="no loop device left")
    cloud.destroy(cluster["id"])
    cloud.destroy_volume(volume)


def test_detach_ends_processes_in_volume(cloud):
    """A detach that is not live ends the processes that use the volume, and names them."""
    cluster, volume = cloud.create("holder"), cloud.make_volume("held")
    cloud.finish(cloud.attach(volume, cluster["id"])["request_id"])
    stubborn = "import signal, time, os; signal.signal(15, signal.SIG_IGN); signal.signal(1, signal.SIG_IGN); "
    stubborn += "file = open('held/file', 'w'); open('ready', 'w'); time.sleep(600)"
    holder = cloud.ssh("holder", f'nohup python3 -c "{stubborn}" >/dev/null 2>&1 & echo $!').out.strip()
    eventually(lambda: cloud.ssh("holder", "ls ready", code=None).code == 0, what="a process that uses the volume")
    began = cloud.init_start_time("holder")
    ended = cloud.finish(cloud.detach(volume, cluster["id"])["request_id"])
    assert "python3" in ended["message"] and holder in ended["message"], ended
    assert cloud.init_start_time("holder") != began, "a detach that is not live restarts"
    assert cloud.mounted("holder") == set()
    cloud.destroy(cluster["id"])
    cloud.destroy_volume(volume)


def test_clusters_share_volume_with_same_owners(cloud):
    """Two clusters share a volume and see the same owners; renaming and destroying affect only what they should."""
    clusters = [cloud.create(name)["id"] for name in ("one", "two")]
    volume = cloud.make_volume("shared")
    for cluster in clusters:
        cloud.finish(cloud.attach(volume, cluster)["request_id"])
    assert set(cloud.volume(volume)["attached_clusters"]) == set(clusters)
    cloud.ssh("one", "echo from-one > shared/first; sudo sh -c 'echo of-root > shared/second'; mkdir -m 700 shared/private")
    assert cloud.ssh("two", "cat shared/first shared/second").out.split() == ["from-one", "of-root"]
    seen = cloud.ssh("two", "stat -c %U:%G:%a shared/first shared/second shared/private").out.split()
    assert seen == ["ubuntu:ubuntu:644", "root:root:644", "ubuntu:ubuntu:700"]
    cloud.ssh("two", "echo from-two >> shared/first && touch shared/private/mine")
    assert cloud.ssh("one", "cat shared/first; ls shared/private").out.split() == ["from-one", "from-two", "mine"]

    cloud.ssh("two", "rm shared && echo mine > shared")
    cloud.edit(volume, tp_storage_name="together")
    linked = lambda instance: cloud.ssh(instance, "readlink together", code=None).out.strip() == f"/mnt/{volume}"  # noqa: E731
    eventually(lambda: linked("one") and linked("two"), what="the new name inside")
    assert cloud.ssh("one", "ls").out.split() == ["together"], "the old name is gone"
    assert cloud.ssh("two", "cat shared").out.strip() == "mine", "the user's own file is kept"
    # The data outlives one cluster, and the other continues.
    cloud.destroy(clusters[0])
    assert cloud.ssh("two", "cat together/second").out.strip() == "of-root"
    assert cloud.volume(volume)["attached_clusters"] == [clusters[1]]
    cloud.destroy(clusters[1])
    cloud.destroy_volume(volume)
    assert volume not in cloud.files()


def test_volume_survives_restart_and_engine_kill(cloud):
    """A volume survives a restart of its cluster and a killed engine."""
    cluster, volume = cloud.create("lasting"), cloud.make_volume("kept")
    cloud.finish(cloud.attach(volume, cluster["id"], live=True)["request_id"])
    cloud.ssh("lasting", "head -c 1000000 /dev/urandom > kept/data && sync kept/data && sha256sum kept/data > sum")
    cloud.process.kill()
    cloud.process.wait()
    cloud.start()
    assert cloud.ssh("lasting", "sha256sum --check sum").out.strip() == "kept/data: OK"
    cloud.finish(cloud.call("POST", f"/cluster/restart/{cluster['id']}", expect=202).json()["request_id"])
    assert cloud.ssh("lasting", "sha256sum --check sum").out.strip() == "kept/data: OK"
    cloud.finish(cloud.detach(volume, cluster["id"], live=True)["request_id"])
    cloud.destroy(cluster["id"])
    cloud.destroy_volume(volume)


def test_lost_or_damaged_volume_fails(cloud, tmp_path):
    """A lost or damaged volume fails, is not changed, and recovers when its file returns."""
    cluster, volumes = cloud.create("mourner"), [cloud.make_volume(name) for name in ("lost", "damaged")]
    lost, damaged = volumes
    for volume in volumes:
        cloud.finish(cloud.attach(volume, cluster["id"], live=True)["request_id"])
        cloud.ssh("mourner", f"echo precious > /mnt/{volume}/file; sync")
        cloud.finish(cloud.detach(volume, cluster["id"], live=True)["request_id"])
    eventually(lambda: not cloud.devices() & {lost, damaged}, what="both volumes without a loop device")
    place, aside = cloud.files()[lost], cloud.data / "aside"
    os.rename(place, aside)
    file = cloud.files()[damaged]
    with open(file, "r+b") as broken:
        broken.write(os.urandom(64 << 10))
    before = digest(file)
    for volume in volumes:
        info = cloud.wait_for_volume_status(volume, "FAILED", seconds=120)
        assert len(info["explanation"].split()) > 5 and str(cloud.data) not in info["explanation"], info
        assert cloud.attach(volume, cluster["id"], live=True, expect=409)["message"]
        assert cloud.call("PATCH", f"/storage/edit/{volume}", json={"size_gb": 2}).status_code == 409
    assert digest(file) == before, "the file was not changed"
    assert not place.exists(), "nothing was created in its place"

    os.rename(aside, place)
    cloud.wait_for_volume_status(lost, "READY", seconds=120)
    cloud.finish(cloud.attach(lost, cluster["id"], live=True)["request_id"])
    assert cloud.ssh("mourner", "cat lost/file").out.strip() == "precious"
    cloud.destroy_volume(damaged)
    assert damaged not in cloud.files()
    cloud.destroy(cluster["id"])
    cloud.destroy_volume(lost)


def digest(path) -> str:
    """The checksum of a file, also of a sparse one."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
