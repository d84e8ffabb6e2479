"""Root inside an instance against the machine around it: each attempt has the refusal that must come."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from machines import Machines, needs_root

pytestmark = needs_root


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """A cloud with two clusters of one tenant: even those must not reach each other."""
    with Machines(tmp_path_factory.mktemp("isolation")) as running:
        running.create("inside")
        running.create("neighbour")
        yield running


def as_root(cloud, script: str, machine="inside", **more):
    """Runs a script as root in an instance."""
    return cloud.ssh(machine, "sudo bash -s", answer=script, code=None, **more)


def test_no_process_of_the_host_is_seen_or_signalled(cloud):
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        seen = as_root(cloud, "ls -d /proc/[0-9]* | wc -l; cat /proc/*/cmdline | tr '\\0' ' '")
        assert int(seen.out.split()[0]) < 40
        assert "sleep 600" not in seen.out and "tarn serve" not in seen.out
        assert as_root(cloud, f"kill -9 {bystander.pid}").code != 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_nothing_of_the_host_can_be_read(cloud, tmp_path):
    secret = f"tarn-secret-{os.getpid()}"
    hidden = [tmp_path / "secret", cloud.data / "probe", Path("/root") / f".{secret}", Path("/home") / secret]
    for path in hidden:
        path.write_text(secret)
    try:
        for path in [*hidden, cloud.data / "admin.key", cloud.data / "secret.key", cloud.data / "tarn.db", cloud.identity]:
            assert path.exists()
            assert as_root(cloud, f"cat {path}").code != 0, path
        found = as_root(cloud, f"grep -rslF {secret} /root /home /etc /var /run /tmp /opt /srv /mnt /dev 2>/dev/null", seconds=120)
        assert found.out.strip() == "", found
        shadow = Path("/etc/shadow").read_text()
        inside = as_root(cloud, "cat /etc/shadow").out
        hashes = [line.split(":")[1] for line in shadow.splitlines() if line.split(":")[1].startswith("$")]
        assert not [one for one in hashes if one in inside]
        sockets = as_root(cloud, "find / -xdev -type s 2>/dev/null; ls /run").out
        assert "docker" not in sockets and "dbus" not in sockets and "control.sock" not in sockets
    finally:
        for path in hidden:
            path.unlink()


@pytest.mark.parametrize(
    "attempt",
    [
        "mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk",
        "mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem",
        "mount -t tmpfs none /mnt",
        "mount --bind /usr /mnt",
        "mount -o remount,rw /proc/sys",
        "echo /bin/true > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
        "echo 1 > /sys/kernel/profiling",
        "python3 -c 'import ctypes; exit(0 if ctypes.CDLL(None).syscall(313, 0, 0, 0) >= 0 else 1)'",
        "unshare --user --map-root-user true",
        "unshare --mount true",
        "date -s '2001-01-01'",
        "hostname other",
        "dmesg",
        "head -c 1 /proc/kcore",
        "ip link set eth0 address 02:00:00:00:00:99",
        "ip addr add 10.99.99.99/8 dev eth0",
        "find /sys/fs/cgroup -type f -writable -exec sh -c 'echo 0 > {}' \\; -print 2>/dev/null | grep .",
        "echo -1000 > /proc/1/oom_score_adj",
        "python3 -c 'import ctypes; exit(0 if ctypes.CDLL(None, use_errno=True).syscall(321, 0, 0, 0) >= 0 else 1)'",
        "python3 -c 'import ctypes; exit(0 if ctypes.CDLL(None).syscall(250, 0, 0) >= 0 else 1)'",
    ],
)
def test_root_inside_is_not_root_outside(cloud, attempt):
    code = as_root(cloud, attempt).code
    assert code not in (0, 127, 255), f"{attempt}: {code} (127: no such program, 255: no connection)"


def test_other_clusters_and_the_host_are_out_of_reach(cloud):
    other = cloud.info("neighbour")["instances"][0]["private_ip"]
    reach = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)"

    def reaches(address, port):
        return cloud.ssh("inside", f"python3 -c '{reach}' {address} {port}", code=None).code == 0

    own = cloud.info("inside")["instances"][0]["private_ip"]
    assert reaches(own, 22), "the probe itself works"
    assert not reaches(other, 22)
    # All addresses of the machine, among them the one that the instance has as its gateway.
    addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    with socket.create_server(("0.0.0.0", 0)) as listener:
        for address in (address for address in addresses if ":" not in address):
            assert not reaches(address, listener.getsockname()[1]), address
