"""What instances see of themselves in /proc, with and without lxcfs, and when lxcfs ends or hangs."""

import signal
from pathlib import Path

import pytest

from doctors import doctor_of_engine
from instances import Instances, needs_root
from lxcfs import Lxcfs, needs_lxcfs
from support import eventually

pytestmark = [needs_root, needs_lxcfs]

# The memory of the type "tiny", in kB.
OWN_KB = 256 * 1024
FILES = "cpuinfo loadavg meminfo stat swaps uptime"


@pytest.fixture
def lxcfs(tmp_path):
    with Lxcfs(tmp_path) as made:
        yield made


@pytest.fixture
def cloud(tmp_path, lxcfs):
    """An engine that knows where lxcfs will be mounted. It is not there yet."""
    with Instances(tmp_path, settings=lxcfs.settings) as running:
        yield running


def host_kb() -> int:
    """The memory of the host, in kB."""
    return int(Path("/proc/meminfo").read_text().split()[1])


def memory_kb(cloud, instance: str) -> int | None:
    """The memory that an instance sees, in kB; `None` while it cannot read it."""
    seen = cloud.ssh(instance, "grep MemTotal /proc/meminfo", code=None)
    return int(seen.out.split()[1]) if seen.code == 0 else None


def expect_memory(cloud, instance: str, kb: int):
    eventually(lambda: memory_kb(cloud, instance) == kb, what=f"{kb} kB in {instance}")


def test_instance_sees_its_share(cloud, lxcfs):
    """Programs inside that ask for memory, CPUs, load and uptime get those of the instance, from its first moment on."""
    lxcfs.start()
    node = cloud.create("small")["instances"][0]["id"]
    inside = lambda *command, **more: cloud.ssh(node, *command, **more)  # noqa: E731
    assert memory_kb(cloud, node) == OWN_KB != host_kb()
    assert inside("free -k | awk '/^Mem/ {print $2}'").out.strip() == str(OWN_KB)
    assert inside("python3 -c 'import os; print(os.cpu_count(), len(os.sched_getaffinity(0)))'").out.split() == ["1", "1"]
    assert inside("grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat; getconf _NPROCESSORS_ONLN").out.split() == ["1", "1", "1"]
    assert float(inside("cut -d' ' -f1 /proc/uptime").out) < float(Path("/proc/uptime").read_text().split()[0])
    assert len(inside("cat /proc/loadavg").out.split()) == 5
    assert inside("cat /proc/swaps").out.startswith("Filename")

    # Nothing else of lxcfs is inside, and nobody can change or remove it.
    mounted = inside("awk '$0 ~ / fuse/ {print $5, $6}' /proc/self/mountinfo").out.splitlines()
    assert len(mounted) == len(FILES.split()) + 1 and all("ro,nosuid,nodev,noexec" in line for line in mounted), mounted
    assert inside("sudo umount /proc/meminfo", code=None).code != 0
    assert inside("sudo sh -c 'echo 1 > /proc/meminfo'", code=None).code != 0
    assert inside("cat /proc/diskstats").out == "", "lxcfs would show the disks of the host"
    doctor_of_engine(cloud).expect_level("ok", "tools.lxcfs")


def test_restarted_instance_sees_its_share(cloud, lxcfs):
    """An instance that is restarted, or whose engine was killed, sees its share."""
    lxcfs.start()
    cluster = cloud.create("again")
    node = cluster["instances"][0]["id"]
    cloud.kill()
    cloud.start()
    assert memory_kb(cloud, node) == OWN_KB
    cloud.finish(cloud.call("POST", f"/cluster/restart/{cluster['id']}", expect=202).json()["request_id"])
    assert memory_kb(cloud, node) == OWN_KB


def test_running_instances_follow_lxcfs(cloud, lxcfs):
    """Without lxcfs instances see the whole host, and the doctor says so. Running instances get the files when lxcfs is
    started, lose them when it has died, and get those of the next one."""
    node = cloud.create("before")["instances"][0]["id"]
    assert memory_kb(cloud, node) == host_kb()
    report = doctor_of_engine(cloud)
    report.expect_level("note", "tools.lxcfs")
    assert "lxcfs" in report.found["tools.lxcfs"]["todo"]
    lxcfs.start()
    expect_memory(cloud, node, OWN_KB)
    lxcfs.kill()
    expect_memory(cloud, node, host_kb())
    doctor_of_engine(cloud).expect_level("warning", "tools.lxcfs")
    lxcfs.unmount()
    lxcfs.start()
    expect_memory(cloud, node, OWN_KB)
    # As systemctl restart does it: the mount is another one when the engine looks again.
    lxcfs.kill()
    lxcfs.unmount()
    lxcfs.start()
    expect_memory(cloud, node, OWN_KB)
    every = f"for name in {FILES}; do cat /proc/$name > /dev/null || exit 1; done"
    eventually(lambda: cloud.ssh(node, every, code=None).code == 0, what="all files of the new lxcfs")
    assert cloud.ssh(node, "grep -c fuse.lxcfs /proc/self/mountinfo").out.strip() == str(len(FILES.split()) + 1), "nothing is left"


def test_hung_lxcfs_holds_up_nothing(cloud, lxcfs):
    """While lxcfs hangs, the engine starts and removes instances, and gives running ones the host's files back."""
    lxcfs.start()
    first = cloud.create("first")
    node = first["instances"][0]["id"]
    assert memory_kb(cloud, node) == OWN_KB
    lxcfs.signal(signal.SIGSTOP)
    # This command waits for lxcfs, in the instance that is destroyed below.
    cloud.ssh(node, "nohup cat /proc/uptime > /dev/null 2>&1 &")
    second = cloud.create("second")["instances"][0]["id"]
    report = doctor_of_engine(cloud)
    report.expect_level("warning", "tools.lxcfs")
    assert "does not answer" in report.found["tools.lxcfs"]["found"]
    count = lambda instance: cloud.ssh(instance, "grep -c fuse.lxcfs /proc/self/mountinfo", code=None).out.strip()  # noqa: E731
    for instance in (node, second):
        eventually(lambda: count(instance) == "0", what=f"the removal of the files in {instance}")
        assert memory_kb(cloud, instance) == host_kb()
    cloud.destroy(first["id"])
    lxcfs.signal(signal.SIGCONT)
    expect_memory(cloud, second, OWN_KB)


def test_empty_setting_shows_the_host(tmp_path, lxcfs):
    """An operator can leave instances with the numbers of the host."""
    lxcfs.start()
    with Instances(tmp_path, settings='\n[instances]\nlxcfs = ""\n') as cloud:
        node = cloud.create("plain")["instances"][0]["id"]
        assert memory_kb(cloud, node) == host_kb()
        doctor_of_engine(cloud).expect_level("ok", "tools.lxcfs")
